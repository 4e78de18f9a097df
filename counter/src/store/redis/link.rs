//! The connection to the server: made, watched, and made again. While there is none, calls fail at once.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{AsyncConnectionConfig, Client, Cmd};
use tokio::sync::{oneshot, watch};

use super::beat;
use super::call::Caller;
use super::errors::{Trouble, unreachable};
use super::fleet::Fleet;
use super::options::{
    BACKOFF_MAX, BACKOFF_MIN, BEAT_EVERY, CONNECT_MAX, Options, PROBE_EVERY_MIN, PROBE_MAX, TestClock,
};
use super::pipe::{Failed, Pipe};
use crate::store::StoreError;

/// The connection, if there is one, else why not.
pub(super) type Current = Result<Arc<Pipe>, StoreError>;

/// What the store and the task that looks after its connection share.
pub(super) struct Link {
    client: Client,
    in_flight_max: usize,
    pub(super) caller: Caller,
    pub(super) fleet: Fleet,
    pub(super) clock: TestClock,
    current: watch::Sender<Current>,
}

impl Link {
    pub(super) fn new(options: &Options, seed: u64) -> Result<Arc<Self>, StoreError> {
        let client = match &options.tls {
            Some(tls) => Client::build_with_tls(options.info.clone(), tls.clone()),
            None => Client::open(options.info.clone()),
        };
        let client = client.map_err(|error| Trouble::of(&error).error)?;
        let (current, _) = watch::channel(Err(unreachable("not connected yet")));
        Ok(Arc::new(Self {
            client,
            in_flight_max: options.in_flight_max,
            caller: Caller::new(&options.prefix, seed),
            fleet: Fleet::default(),
            clock: options.clock.clone(),
            current,
        }))
    }

    /// The connection as it is now.
    pub(super) fn current(&self) -> Current {
        self.current.borrow().clone()
    }

    /// Whether the server takes a write now.
    pub(super) async fn probe(&self) -> Result<(), StoreError> {
        let pipe = self.current()?;
        let answer = pipe.call(&self.beat_command(&[]), Instant::now() + PROBE_MAX).await;
        answer.map(|_| ()).map_err(Failed::into_error)
    }

    /// Asks the server how it is, and tells it who is there.
    async fn beat(&self, pipe: &Pipe) -> Result<(), StoreError> {
        let told = self.fleet.to_tell();
        let asked = Instant::now();
        let answer = pipe.call_anyway(&self.beat_command(&told), asked + PROBE_MAX).await;
        let trouble = match answer {
            Ok(value) => match beat::read(value) {
                Some((now_ms, counts)) => {
                    pipe.set_clock(now_ms, asked);
                    self.fleet.learn(&told, &counts);
                    return Ok(());
                }
                None => StoreError::Broken("an answer to the beat that is none".to_owned()),
            },
            Err(failed) => failed.into_error(),
        };
        self.fleet.tell_again(told);
        Err(trouble)
    }

    fn beat_command(&self, told: &[(String, Vec<u64>)]) -> Cmd {
        beat::command(&self.caller.names, told, self.clock.now_ms())
    }

    async fn connect(&self) -> Current {
        // The deadline of each call is ours: the library's own would end calls that still have time.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connecting = async {
            let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
            let connection = connection.map_err(|error| Trouble::of(&error).error)?;
            let pipe = Pipe::new(connection, self.in_flight_max);
            let deadline = Instant::now() + CONNECT_MAX;
            pipe.call(&self.caller.load(), deadline).await.map_err(Failed::into_error)?;
            match self.beat(&pipe).await {
                // Full, it is still there, and may have room for the next.
                Ok(()) | Err(StoreError::Full(_)) => Ok(Arc::new(pipe)),
                Err(error) => Err(error),
            }
        };
        let in_time = tokio::time::timeout(CONNECT_MAX, connecting).await;
        in_time.unwrap_or_else(|_| Err(unreachable("it does not answer")))
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
            // What else goes wrong may pass: memory that is full, somebody's slow script.
            if self.beat(pipe).await == Err(StoreError::Deadline) {
                pipe.end_by(unreachable(&format!("it has not answered for {} ms", PROBE_MAX.as_millis())));
            }
            if let Some(error) = pipe.ended_by() {
                return error;
            }
            tokio::time::sleep(PROBE_EVERY_MIN).await;
        }
    }
}

/// Looks after the connection until it is aborted. `first` is told how the first attempt went.
pub(super) async fn supervise(link: Arc<Link>, first: oneshot::Sender<Result<(), StoreError>>) {
    let mut first = Some(first);
    let mut backoff = BACKOFF_MIN;
    loop {
        let current = link.connect().await;
        let _ = link.current.send_replace(current.clone());
        if let Some(first) = first.take() {
            let _ = first.send(current.as_ref().map(|_| ()).map_err(Clone::clone));
        }
        match current {
            Ok(pipe) => {
                tracing::info!("connected to Redis");
                backoff = BACKOFF_MIN;
                let why = link.watch(&pipe).await;
                tracing::warn!(%why, "the connection to Redis is given up");
                let _ = link.current.send_replace(Err(why));
            }
            Err(why) => {
                tracing::warn!(%why, wait_ms = backoff.as_millis(), "Redis cannot be reached; trying again");
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
