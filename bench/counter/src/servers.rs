//! The processes that are measured, all on one core.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const SERVER_CORE: u32 = 0;
pub(crate) const LOAD_CORE: u32 = 1;

pub(crate) struct Server {
    child: Child,
    pub(crate) pid: u32,
    pub(crate) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Servers {
    pub(crate) echo: Server,
    pub(crate) memory: Server,
    pub(crate) on_redis: Server,
    pub(crate) redis: Server,
}

impl Servers {
    pub(crate) async fn start(tidegate: &str) -> Self {
        let redis = start_redis().await;
        let own = std::env::current_exe().expect("a path");
        let serve = |store: &str| {
            let mut command = on_core(SERVER_CORE, tidegate);
            command.args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--threads",
                "1",
                "--log-level",
                "error",
                // A machine that is busy with other things is slow, and shall not end the run.
                "--take-time",
                "10s",
                "--store",
                store,
            ]);
            listening(command)
        };
        let mut echo = on_core(SERVER_CORE, own.to_str().expect("text"));
        echo.arg("echo");
        Self {
            echo: listening(echo),
            memory: serve("memory"),
            on_redis: serve(&format!("redis://127.0.0.1:{}/", redis.port)),
            redis,
        }
    }
}

/// Puts a running process on one core.
pub(crate) fn pin(pid: u32, core: u32) {
    let done = Command::new("taskset").args(["-acp", &core.to_string(), &pid.to_string()]).output();
    assert!(done.expect("taskset runs").status.success(), "this machine needs two cores");
}

/// A command that runs on one core. taskset becomes the program, so the process is the program's.
pub(crate) fn on_core(core: u32, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string(), program]);
    command
}

fn listening(mut command: Command) -> Server {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let port = line.trim_end().rsplit(':').next().and_then(|port| port.parse().ok());
    Server { pid: child.id(), port: port.unwrap_or_else(|| panic!("{line:?} names no port")), child }
}

async fn start_redis() -> Server {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let mut command = on_core(SERVER_CORE, "redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let child = command.stdout(Stdio::null()).spawn().expect("redis-server runs");
    let server = Server { pid: child.id(), port, child };
    let begun = Instant::now();
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "redis-server does not listen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server
}
