//! The connection to the server: made, watched, and made again. While there is none, calls fail at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{AsyncConnectionConfig, Client, Cmd};
use tidegate_config::wire::{Batch, Sender};
use tokio::sync::{Mutex, oneshot, watch};

use super::beat;
use super::call::{Caller, When};
use super::errors::{NotConnected, unreachable};
use super::fleet::Fleet;
use super::options::{
    BACKOFF_MAX, BACKOFF_MIN, BEAT_EVERY, CONNECT_MAX, GOOD_AFTER, Options, PROBE_EVERY_MIN, PROBE_KEPT,
    PROBE_MAX, TestClock,
};
use super::pipe::{Failed, Pipe};
use crate::store::StoreError;

/// The connection, if there is one, else why not.
pub(super) type Current = Result<Arc<Pipe>, StoreError>;

/// When the server was asked how it is, and what it said.
struct Probed {
    asked: Instant,
    said: Result<(), StoreError>,
}

/// What the store and the task that looks after its connection share.
pub(super) struct Link {
    client: Client,
    in_flight_max: usize,
    patience: Duration,
    pub(super) caller: Caller,
    pub(super) fleet: Fleet,
    pub(super) clock: TestClock,
    current: watch::Sender<Current>,
    /// How the server was when it was last asked for somebody.
    probed: Arc<Mutex<Option<Probed>>>,
    /// How often a connection was made.
    pub(super) connections: AtomicU64,
}

impl Link {
    pub(super) fn new(options: &Options, seed: u64) -> Result<Arc<Self>, NotConnected> {
        let client = match &options.tls {
            Some(tls) => Client::build_with_tls(options.info.clone(), tls.clone()),
            None => Client::open(options.info.clone()),
        };
        let client = client.map_err(|error| NotConnected::of(&error))?;
        let (current, _) = watch::channel(Err(unreachable("not connected yet")));
        Ok(Arc::new(Self {
            client,
            in_flight_max: options.in_flight_max,
            patience: options.patience,
            caller: Caller::new(&options.prefix, seed),
            fleet: Fleet::default(),
            clock: options.clock.clone(),
            current,
            probed: Arc::default(),
            connections: AtomicU64::new(0),
        }))
    }

    /// The connection as it is now.
    pub(super) fn current(&self) -> Current {
        self.current.borrow().clone()
    }

    /// Whether the server takes a batch now. However many ask, one of them asks the server, and not again before
    /// that is answered: also if whoever asked has left.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<(), StoreError> {
        self.current()?;
        let mut probed = Arc::clone(&self.probed).lock_owned().await;
        if let Some(last) = probed.as_ref().filter(|last| last.asked.elapsed() < PROBE_KEPT) {
            return last.said.clone();
        }
        let link = Arc::clone(self);
        let probing = tokio::spawn(async move {
            let said = link.probe().await;
            *probed = Some(Probed { asked: Instant::now(), said: said.clone() });
            said
        });
        probing.await.unwrap_or_else(|_| Err(unreachable("the service is shutting down")))
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let pipe = self.current()?;
        self.try_out(&pipe).await.map_err(Failed::into_error)?;
        // What only the beat does must go well too.
        pipe.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }

    /// Sends a batch without takes, from a sender that nobody can be: it needs of the server all that others need.
    async fn try_out(&self, pipe: &Pipe) -> Result<(), Failed> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sequence = u64::try_from(since_epoch.as_millis()).unwrap_or(0);
        let sender = Some(Sender { proxy: 0, vm: 0, sequence });
        let nothing =
            Batch { namespace: "".into(), sender, wait_ms: None, states: false, groups: Vec::new() };
        let call = self.caller.call(&nothing, When { now_ms: self.clock.now_ms(), not_after_ms: 0 });
        let deadline = Instant::now() + PROBE_MAX;
        match pipe.call_anyway(&self.caller.by_hash(&call), deadline).await {
            Err(failed) if failed.is_no_script() => {
                pipe.call_anyway(&self.caller.by_text(&call), deadline).await.map(|_| ())
            }
            answer => answer.map(|_| ()),
        }
    }

    /// Asks the server how it is, and tells it who is there.
    async fn beat(&self, pipe: &Pipe) -> Result<(), Failed> {
        let told = self.fleet.to_tell();
        let asked = Instant::now();
        let answer = pipe.call_anyway(&self.beat_command(&told), asked + PROBE_MAX).await;
        let failed = match answer.map(beat::read) {
            Ok(Some((now_ms, counts))) => {
                pipe.set_clock(now_ms, asked);
                self.fleet.learn(&told, &counts);
                return Ok(());
            }
            Ok(None) => Failed::Error(StoreError::Broken("an answer to the beat that is none".to_owned())),
            Err(failed) => failed,
        };
        self.fleet.tell_again(told);
        Err(failed)
    }

    fn beat_command(&self, told: &[(String, Vec<u64>)]) -> Cmd {
        beat::command(&self.caller.names, told, self.clock.now_ms())
    }

    async fn connect(&self, time_max: Duration) -> Result<Arc<Pipe>, NotConnected> {
        // The deadline of each call is ours: the library's own would end calls that still have time.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connecting = async {
            let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
            let connection = connection.map_err(|error| NotConnected::of(&error))?;
            let pipe = Pipe::new(connection, self.in_flight_max);
            let deadline = Instant::now() + time_max;
            pipe.call(&self.caller.load(), deadline).await.map_err(Failed::into_not_connected)?;
            or_full(self.try_out(&pipe).await)?;
            or_full(self.beat(&pipe).await)?;
            Ok(Arc::new(pipe))
        };
        let in_time = tokio::time::timeout(time_max, connecting).await;
        in_time.unwrap_or_else(|_| Err(unreachable("it does not answer").into()))
    }

    /// Beats until the connection is of no use; says why.
    async fn watch(&self, pipe: &Pipe) -> StoreError {
        loop {
            tokio::select! {
                () = pipe.end.notified() => {}
                () = tokio::time::sleep(BEAT_EVERY) => {}
                () = pipe.doubt.notified() => {}
            }
            if let Some(error) = pipe.ended_by() {
                return error;
            }
            let answers_before = pipe.answers();
            let trouble = self.beat(pipe).await.err().map(Failed::into_error);
            let is_silent = trouble == Some(StoreError::Deadline) && pipe.answers() == answers_before;
            // What else goes wrong may pass: memory that is full, somebody's slow script, more work than it can do.
            if is_silent {
                pipe.end_by(unreachable(&format!("it has not answered for {} ms", PROBE_MAX.as_millis())));
            }
            *pipe.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
            if let Some(error) = pipe.ended_by() {
                return error;
            }
            tokio::time::sleep(PROBE_EVERY_MIN).await;
        }
    }
}

/// Full, it is still there, and may have room for the next.
fn or_full(answer: Result<(), Failed>) -> Result<(), NotConnected> {
    match answer.map_err(Failed::into_not_connected) {
        Err(NotConnected { error: StoreError::Full(_), .. }) => Ok(()),
        answer => answer,
    }
}

/// Looks after the connection until it is aborted. `first` is told when the first connection stands, or why not if
/// the patience is over or another attempt would be no better.
pub(super) async fn supervise(link: Arc<Link>, first: oneshot::Sender<Result<(), NotConnected>>) {
    let begun = Instant::now();
    let mut first = Some(first);
    let mut backoff = BACKOFF_MIN;
    loop {
        let time_max = if first.is_some() { CONNECT_MAX.max(link.patience / 2) } else { CONNECT_MAX };
        let connected = link.connect(time_max).await;
        let _ = link.current.send_replace(connected.as_ref().map_err(|why| why.error.clone()).cloned());
        let is_told = match &connected {
            Ok(_) => true,
            Err(why) => why.cause.is_final() || begun.elapsed() >= link.patience,
        };
        if is_told && let Some(first) = first.take() {
            let _ = first.send(connected.as_ref().map(|_| ()).map_err(Clone::clone));
        }
        match connected {
            Ok(pipe) => {
                link.connections.fetch_add(1, Ordering::Relaxed);
                tracing::info!("connected to Redis");
                let since = Instant::now();
                let why = link.watch(&pipe).await;
                tracing::warn!(%why, "the connection to Redis is given up");
                let _ = link.current.send_replace(Err(why));
                // One that can be made and then fails at once is not made as fast as that again and again.
                if pipe.is_good.load(Ordering::Relaxed) || since.elapsed() >= GOOD_AFTER {
                    backoff = BACKOFF_MIN;
                }
            }
            Err(why) => {
                tracing::warn!(%why, wait_ms = backoff.as_millis(), "Redis cannot be used; trying again");
            }
        }
        tokio::time::sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Half to all of it, so that services which lost the same server do not all come back at once.
fn jittered(backoff: Duration) -> Duration {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_micros());
    let half = backoff / 2;
    half + half * (nanos % 256) / 256
}
