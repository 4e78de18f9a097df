//! A redis-server of a test's own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often another port is tried if somebody else took the one that was free.
const PORTS_TRIED_MAX: u32 = 5;
const START_MAX: Duration = Duration::from_secs(20);
const LOG: &str = "log";

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) port: u16,
    child: Child,
    args: Vec<String>,
    dir: Dir,
}

/// A folder that ends with the test.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidegate-redis-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for the server");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// With more arguments, as on its command line.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        Self::start_in(Dir::new(), |_| args.clone())
    }

    /// In a folder of the test's. The arguments may name a second port, which was free as well.
    pub(crate) fn start_in(dir: Dir, args: impl Fn(u16) -> Vec<String>) -> Self {
        let mut log = String::new();
        for _ in 0..PORTS_TRIED_MAX {
            let (port, args) = (free_port(), args(free_port()));
            let mut child = spawn(port, &args, dir.path());
            if comes_up(&mut child, dir.path()) {
                return Self { port, child, args, dir };
            }
            end(&mut child);
            log = std::fs::read_to_string(dir.path().join(LOG)).unwrap_or_default();
        }
        panic!("redis-server does not start:\n{log}");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Starts it again where it was, with what it had on disk.
    pub(crate) fn restart(&mut self) {
        let begun = Instant::now();
        loop {
            self.child = spawn(self.port, &self.args, self.dir.path());
            if comes_up(&mut self.child, self.dir.path()) {
                return;
            }
            end(&mut self.child);
            // Somebody's outgoing connection may have the port for a moment.
            assert!(begun.elapsed() < START_MAX, "redis-server comes back");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Stops it without telling anybody: connections stay, answers do not come.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// A connection of the test's own.
    pub(crate) fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("a valid URL");
        client.get_connection().expect("the server is up")
    }

    /// One command of the test's own, its words apart by spaces.
    pub(crate) fn run<T: redis::FromRedisValue>(&self, command: &str) -> T {
        let mut cmd = redis::Cmd::new();
        for word in command.split(' ') {
            cmd.arg(word);
        }
        cmd.query(&mut self.connection()).expect("the server takes the command")
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(done.expect("kill runs").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

/// Each start writes its log anew, so that what stands there was said by this one.
fn spawn(port: u16, args: &[String], dir: &Path) -> Child {
    let log = std::fs::File::create(dir.join(LOG)).expect("a log");
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
        .arg("--dir")
        .arg(dir)
        .args(args)
        .stdin(Stdio::null())
        .stderr(log.try_clone().expect("a log"))
        .stdout(log)
        .spawn()
        .expect("redis-server starts; `tools/setup.sh redis` installs it")
}

/// Whether it takes connections before long, by its own word: whoever else has the port would answer a connection
/// too, be it another server or, on a port that nobody listens on yet, the connection itself.
fn comes_up(child: &mut Child, dir: &Path) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < START_MAX {
        if child.try_wait().expect("it can be asked").is_some() {
            return false;
        }
        let log = std::fs::read_to_string(dir.join(LOG)).expect("its log");
        if log.to_lowercase().contains("ready to accept connections") {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
