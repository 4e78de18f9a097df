//! The service over HTTP, on real sockets.
//!
//! - `takes`: batches in both encodings, over HTTP/1.1, HTTP/2 and TLS
//! - `refusals`: every problem that a request can get
//! - `bounds`: what is too long, too slow or too many
//! - `operation`: health, metrics, tokens and rules that change, shutdown

mod bounds;
mod client;
mod operation;
mod refusals;
mod takes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_config::wire::Batch;
use tidegate_counter::http::{self, Tls};
use tidegate_counter::store::memory::{MemoryStore, Size, SystemClock};
use tidegate_counter::store::{Answered, Store, StoreError};
use tidegate_counter::{RulesOff, Service, Settings, Tokens};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A store that a test can break.
pub(crate) struct Fragile {
    memory: MemoryStore<SystemClock>,
    control: Arc<Control>,
}

#[derive(Default)]
pub(crate) struct Control {
    /// How often the store was asked.
    pub(crate) asked: AtomicU64,
    /// What it says instead of an answer.
    pub(crate) error: Mutex<Option<StoreError>>,
    /// Whether it lets all who ask wait until their time is over, or this.
    pub(crate) hangs: AtomicBool,
}

impl Control {
    fn error(&self) -> Option<StoreError> {
        self.error.lock().expect("no panic").clone()
    }
}

impl Store for Fragile {
    async fn take(&self, batch: &Batch<'_>, deadline: Instant) -> Result<Answered, StoreError> {
        self.control.asked.fetch_add(1, SeqCst);
        while self.control.hangs.load(SeqCst) {
            if Instant::now() >= deadline {
                return Err(StoreError::Deadline);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        match self.control.error() {
            Some(error) => Err(error),
            None => self.memory.take(batch, deadline).await,
        }
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.control.error().map_or(Ok(()), Err)
    }
}

/// What a test's service is made of.
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    pub(crate) tokens: Tokens,
    pub(crate) rules_off: RulesOff,
    pub(crate) tls: Option<Tls>,
}

impl Default for Setup {
    fn default() -> Self {
        // Slow machines are no reason to fail: only tests of time set shorter ones.
        let long = Duration::from_mins(2);
        let settings = Settings {
            head_time_max: long,
            body_time_max: long,
            idle_time_max: long,
            take_time_max: long,
            stop_time_max: long,
            ..Settings::default()
        };
        Self { settings, tokens: Tokens::none(), rules_off: RulesOff::none(), tls: None }
    }
}

/// A service that runs.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) control: Arc<Control>,
    stop: Option<oneshot::Sender<()>>,
    ended: JoinHandle<()>,
}

impl Running {
    /// Tells it to stop.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().expect("told once").send(());
    }

    /// Waits for its end.
    pub(crate) async fn ended(self) {
        in_time(self.ended).await.expect("no panic");
    }
}

pub(crate) async fn run(setup: Setup) -> Running {
    let control = Arc::new(Control::default());
    let memory = MemoryStore::new(Size { keys: 10_000, large_keys: 64 }).expect("a store");
    let store = Fragile { memory, control: control.clone() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let service = Service::new(store, setup.settings, setup.tokens, setup.rules_off);
    let stopped = async {
        // A test that ends without a word stops it too.
        let _ = stopped.await;
    };
    let ended = tokio::spawn(http::run(listener, service, setup.tls, stopped));
    Running { address, control, stop: Some(stop), ended }
}

/// What a test waits for comes at once, or something is broken.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), future).await.expect("in time")
}

/// A file that ends with the test.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tidegate-http-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
        let file = Self(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    /// All at once, for whoever reads it meanwhile.
    pub(crate) fn write(&self, text: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(&new, &self.0).expect("renamed");
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
