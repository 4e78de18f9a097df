//! A real Envoy: started on free ports, watched until it is ready, stopped by its own process id.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use crate::fault::Context;
use crate::process::Process;
use crate::setup::{Setup, access_log_path, listeners_path};
use crate::{Fault, poll, repository};

/// An old listener's connections live this long after an update.
const DRAIN_SECONDS: &str = "2";
/// How often buffered access log lines are written.
const LOG_FLUSH_MS: &str = "100";
/// How much of the log a failure shows.
const LOG_TAIL_LINES: usize = 40;

/// One test's Envoys at a time: those of two would fight over two cores.
static TURN: Mutex<()> = Mutex::const_new(());

/// Waits until no Envoy of this process runs, and keeps others from starting while the guard lives.
pub async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// What became of a new configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// It runs.
    Accepted,
    /// The old one runs on.
    Refused,
}

/// A running Envoy. Dropping it stops it.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    directory: TempDir,
    setup: Setup,
    admin: SocketAddr,
    listener: SocketAddr,
    /// None if somebody else has it, who started several.
    turn: Option<MutexGuard<'static, ()>>,
}

impl Envoy {
    /// Starts Envoy and waits until it takes requests.
    pub async fn start(setup: Setup) -> Result<Self, Fault> {
        let turn = turn().await;
        let mut envoy = Self::start_beside(setup, &turn).await?;
        envoy.turn = Some(turn);
        Ok(envoy)
    }

    /// Starts one of several, for whoever has the turn and keeps it for longer than these run.
    pub async fn start_beside(setup: Setup, _turn: &MutexGuard<'static, ()>) -> Result<Self, Fault> {
        let directory = tempfile::Builder::new().prefix("tidegate-").tempdir().context("no directory")?;
        let bootstrap = directory.path().join("envoy.json");
        write(&bootstrap, &setup.bootstrap(directory.path())?)?;
        write(&listeners_path(directory.path()), &setup.listeners(directory.path())?)?;
        let process = spawn(&bootstrap, directory.path(), setup.worker_count())?;
        let mut envoy = Self {
            process,
            directory,
            setup,
            admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            listener: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            turn: None,
        };
        match envoy.become_ready().await {
            Ok(()) => Ok(envoy),
            Err(fault) => Err(Fault::new(format!("{fault}\nEnvoy's log ends so:\n{}", envoy.log_tail()))),
        }
    }

    /// Where requests go.
    pub fn address(&self) -> SocketAddr {
        self.listener
    }

    /// Where the admin interface is.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends it as a crash does.
    pub fn kill(&mut self) -> Result<(), Fault> {
        self.process.kill()
    }

    /// Stops it without telling anybody: connections stay, answers do not come.
    pub fn freeze(&self) -> Result<(), Fault> {
        self.process.freeze()
    }

    /// Lets a frozen one go on.
    pub fn thaw(&self) -> Result<(), Fault> {
        self.process.thaw()
    }

    /// Envoy's own log so far.
    pub fn log(&self) -> String {
        fs::read(log_path(self.directory.path()))
            .map_or_else(|error| error.to_string(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// The access log so far; it lags behind by a moment.
    pub fn access_log(&self) -> String {
        fs::read_to_string(access_log_path(self.directory.path())).unwrap_or_default()
    }

    /// Gives Envoy other limits while it runs, and says whether it took them. Connections made before may
    /// still meet the old ones for a moment.
    pub async fn update(&mut self, limits: Value) -> Result<Update, Fault> {
        let before = self.update_counts().await?;
        let setup = self.setup.with_limits(limits);
        let next = self.directory.path().join("listeners.next.json");
        write(&next, &setup.listeners(self.directory.path())?)?;
        fs::rename(&next, listeners_path(self.directory.path())).context("the new listeners' file")?;
        poll::until("Envoy to take or refuse the update", async || match self.update_counts().await? {
            (accepted, _) if accepted > before.0 => Ok(Update::Accepted),
            (_, refused) if refused > before.1 => Ok(Update::Refused),
            counts => Err(Fault::new(format!("{counts:?} accepted and refused"))),
        })
        .await
    }

    async fn update_counts(&self) -> Result<(u64, u64), Fault> {
        let accepted = self.counter("listener_manager.lds.update_success").await?;
        Ok((accepted, self.counter("listener_manager.lds.update_rejected").await?))
    }

    async fn become_ready(&mut self) -> Result<(), Fault> {
        let admin_path = admin_address_path(self.directory.path());
        poll::until("Envoy to be ready", async || {
            if let Some(status) = self.process.ended()? {
                return Ok(Err(Fault::new(format!("Envoy ended with {status}"))));
            }
            let address = fs::read_to_string(&admin_path).context("no admin address yet")?;
            self.admin = address.trim().parse().context("no whole admin address yet")?;
            self.admin("/ready").await.map(Ok)
        })
        .await??;
        let page = self.admin("/listeners?format=json").await?;
        let page: Value = serde_json::from_str(&page).context("the listeners are not JSON")?;
        let address = &page["listener_statuses"][0]["local_address"]["socket_address"];
        let port = address["port_value"].as_u64().and_then(|port| u16::try_from(port).ok());
        let ip = address["address"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok());
        self.listener = ip.zip(port).ok_or_else(|| Fault::new("Envoy refused the listener"))?.into();
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        // Envoy begins with a list of all that it was built with.
        let lines: Vec<_> = log.lines().filter(|line| !line.contains("[info][main]")).collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("Envoy's log ends so:\n{}", self.log_tail());
        }
    }
}

fn spawn(bootstrap: &Path, directory: &Path, workers: usize) -> Result<Process, Fault> {
    let log = File::create(log_path(directory)).context("no log file")?;
    let mut command = Command::new(repository::envoy_binary()?);
    command
        .arg("--config-path")
        .arg(bootstrap)
        .arg("--admin-address-path")
        .arg(admin_address_path(directory))
        .args(["--concurrency", &workers.to_string()])
        // Hot restart needs a name in shared memory that no other Envoy of the machine has.
        .arg("--disable-hot-restart")
        .args(["--drain-time-s", DRAIN_SECONDS, "--file-flush-interval-msec", LOG_FLUSH_MS])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    Process::spawn(&mut command, "Envoy")
}

fn log_path(directory: &Path) -> std::path::PathBuf {
    directory.join("envoy.log")
}

fn admin_address_path(directory: &Path) -> std::path::PathBuf {
    directory.join("admin-address")
}

fn write(path: &Path, document: &Value) -> Result<(), Fault> {
    fs::write(path, document.to_string()).context(&path.display().to_string())
}
