//! The counter: a real `tidegate serve`, in its own memory or on a Redis.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::fault::Context;
use crate::port::{self, Port};
use crate::process::Process;
use crate::redis::Redis;
use crate::{Fault, http, poll, repository};

/// A running counter. Dropping it stops it.
#[derive(Debug)]
pub struct Counter {
    process: Process,
    port: Port,
    store: String,
    directory: TempDir,
}

/// What a counter says that it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Batches that were answered with 200.
    pub batches: u64,
    /// Batches that got any other answer.
    pub failed: u64,
    /// Takes that got something.
    pub taken: u64,
    /// Takes that got nothing.
    pub refused: u64,
    /// Refunds.
    pub refunds: u64,
}

impl Counter {
    /// One that counts in its own memory.
    pub async fn in_memory() -> Result<Self, Fault> {
        Self::start("memory".to_owned()).await
    }

    /// One that counts in this Redis.
    pub async fn on(redis: &Redis) -> Result<Self, Fault> {
        Self::start(redis.url()).await
    }

    async fn start(store: String) -> Result<Self, Fault> {
        port::start(async |port| {
            let directory =
                tempfile::Builder::new().prefix("tidegate-counter-").tempdir().context("no directory")?;
            std::fs::write(rules_off_path(directory.path()), "").context("no file of rules")?;
            let process = spawn(port.address(), &store, directory.path())?;
            let mut counter = Self { process, port, store: store.clone(), directory };
            counter.become_ready().await?;
            Ok(counter)
        })
        .await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) -> Result<(), Fault> {
        self.process.kill()
    }

    /// Starts it again where it was.
    pub async fn restart(&mut self) -> Result<(), Fault> {
        self.process = spawn(self.port.address(), &self.store, self.directory.path())?;
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

    /// Switches these rules off everywhere, and all others on. It is read within a second or so.
    pub fn switch_off(&self, rules: &[&str]) -> Result<(), Fault> {
        let (path, next) = (rules_off_path(self.directory.path()), self.directory.path().join("next"));
        std::fs::write(&next, rules.join("\n")).context("no file of rules")?;
        std::fs::rename(&next, &path).context("the file of rules")
    }

    /// What it did since it started.
    pub async fn counted(&self) -> Result<Counted, Fault> {
        let reply = http::send(self.port.address(), http::get("/metrics", &[])).await?;
        let page = String::from_utf8_lossy(&reply.body);
        let values: BTreeMap<&str, u64> = page
            .lines()
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
            .collect();
        let value = |name: &str| {
            let value = values.get(name).copied();
            value.ok_or_else(|| Fault::new(format!("the counter has no metric {name}:\n{page}")))
        };
        let failed = values
            .iter()
            .filter(|(name, _)| name.starts_with("tidegate_requests_total{") && !name.contains("\"200\""));
        Ok(Counted {
            // Pages and batches are both requests; a batch alone is timed.
            batches: value("tidegate_take_seconds_count")?,
            failed: failed.map(|(_, value)| value).sum(),
            taken: value("tidegate_takes_total{outcome=\"taken\"}")?,
            refused: value("tidegate_takes_total{outcome=\"refused\"}")?,
            refunds: value("tidegate_takes_total{outcome=\"refund\"}")?,
        })
    }

    /// Sends a batch of JSON of the test's own.
    pub async fn take(&self, batch: &serde_json::Value) -> Result<serde_json::Value, Fault> {
        let reply =
            http::post(self.port.address(), "/v1/take", "application/json", batch.to_string().into()).await?;
        if reply.status != 200 {
            return Err(Fault::new(format!("{} {}", reply.status, String::from_utf8_lossy(&reply.body))));
        }
        serde_json::from_slice(&reply.body).context("the counter's answer is not JSON")
    }

    async fn become_ready(&mut self) -> Result<(), Fault> {
        let address = self.port.address();
        let ready = poll::until("the counter to be ready", async || {
            if let Some(status) = self.process.ended()? {
                return Ok(Err(Fault::new(format!("the counter ended with {status}"))));
            }
            match http::send(address, http::get("/readyz", &[])).await?.status {
                200 => Ok(Ok(())),
                status => Err(Fault::new(format!("/readyz says {status}"))),
            }
        });
        let ready = ready.await.and_then(|ready| ready);
        // If another one answered, ours could not listen there.
        let ended =
            self.process.ended()?.map(|status| Fault::new(format!("the counter ended with {status}")));
        match ready.and(ended.map_or(Ok(()), Err)) {
            Ok(()) => Ok(()),
            Err(fault) => {
                let log = std::fs::read_to_string(log_path(self.directory.path())).unwrap_or_default();
                Err(Fault::new(format!("{fault}\nThe counter's log:\n{log}")))
            }
        }
    }
}

fn spawn(address: SocketAddr, store: &str, directory: &Path) -> Result<Process, Fault> {
    let log = File::options().create(true).append(true).open(log_path(directory)).context("no log")?;
    let mut command = Command::new(repository::tidegate_binary()?);
    // What whoever runs the tests has in the environment is no matter here.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    command.args(["serve", "--listen", &address.to_string(), "--store", store, "--rules-off"]);
    command.arg(rules_off_path(directory)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Process::spawn(&mut command, "the counter")
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("counter.log")
}

fn rules_off_path(directory: &Path) -> PathBuf {
    directory.join("rules-off")
}
