//! A real redis-server that keeps nothing on disk.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fault::Context;
use crate::port::{self, Port};
use crate::process::Process;
use crate::{Fault, poll};

/// A running Redis. Dropping it stops it.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: Port,
    directory: TempDir,
}

impl Redis {
    /// Starts it on a free port.
    pub async fn start() -> Result<Self, Fault> {
        port::start(async |port| {
            let directory =
                tempfile::Builder::new().prefix("tidegate-redis-").tempdir().context("no directory")?;
            let process = spawn(port.address(), &directory)?;
            let mut redis = Self { process, port, directory };
            redis.become_ready().await?;
            Ok(redis)
        })
        .await
    }

    /// What `tidegate serve --store` takes.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.port.address())
    }

    /// Ends it as a crash does; what it held is gone.
    pub fn kill(&mut self) -> Result<(), Fault> {
        self.process.kill()
    }

    /// Starts it again where it was.
    pub async fn restart(&mut self) -> Result<(), Fault> {
        self.process = spawn(self.port.address(), &self.directory)?;
        self.become_ready().await
    }

    /// Stops it without telling anybody: connections stay, answers do not come.
    pub fn freeze(&self) -> Result<(), Fault> {
        self.process.freeze()
    }

    /// Lets a frozen one go on.
    pub fn thaw(&self) -> Result<(), Fault> {
        self.process.thaw()
    }

    async fn become_ready(&mut self) -> Result<(), Fault> {
        let address = self.port.address();
        poll::until("Redis to be ready", async || {
            if let Some(status) = self.process.ended()? {
                return Ok(Err(Fault::new(format!("redis-server ended with {status}"))));
            }
            let mut stream = TcpStream::connect(address).await.context("no connection")?;
            stream.write_all(b"PING\r\n").await.context("no word to Redis")?;
            let mut pong = [0; 5];
            stream.read_exact(&mut pong).await.context("no word from Redis")?;
            if &pong == b"+PONG" { Ok(Ok(())) } else { Err(Fault::new("no pong")) }
        })
        .await??;
        // If another one answered, ours could not listen there.
        match self.process.ended()? {
            Some(status) => Err(Fault::new(format!("redis-server ended with {status}"))),
            None => Ok(()),
        }
    }
}

fn spawn(address: SocketAddr, directory: &TempDir) -> Result<Process, Fault> {
    let mut command = Command::new("redis-server");
    command
        .args(["--port", &address.port().to_string(), "--bind", &address.ip().to_string()])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"])
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::spawn(&mut command, "redis-server (`tools/setup.sh redis` installs it)")
}
