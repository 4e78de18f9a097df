//! Counters on a Redis or Valkey server, shared by any number of services.
//!
//! A batch is one call of one script ([`call`]), which decides and writes at once, by the server's clock. One
//! connection carries all calls; a task of ours looks after it. `docs/redis.md` says what each fault does.
//!
//! What is deliberately absent: a retry of a batch that may have been applied (its sender retries, under the same
//! sequence), a queue for better times (without a connection calls fail at once), and a call without a deadline.

mod beat;
pub mod call;
mod errors;
mod fleet;
mod keys;
mod link;
mod names;
mod numbers;
mod options;
mod pipe;
mod script;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use redis::Value;
use tidegate_config::wire::Batch;
use tokio::task::AbortHandle;

use self::call::{Said, When};
pub use self::errors::{Cause, NotConnected};
use self::link::Link;
pub use self::options::{IN_FLIGHT_MAX, Options, PATIENCE_DEFAULT, PREFIX_DEFAULT, PREFIX_LEN_MAX};
use self::pipe::{Failed, Pipe};
use super::{Answered, Store, StoreError};

/// Counters on a Redis server.
pub struct RedisStore {
    link: Arc<Link>,
    supervisor: AbortHandle,
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl RedisStore {
    /// Connects, and from then on connects again by itself. It tries for as long as the options say, but for what no
    /// time mends, such as a wrong password. A server that is full is there.
    pub async fn connect(options: &Options) -> Result<Self, NotConnected> {
        let broken = |why: String| NotConnected::from(StoreError::Broken(why));
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| broken(format!("no randomness: {error}")))?;
        let link = Link::new(options, u64::from_le_bytes(seed))?;
        let (first, told) = tokio::sync::oneshot::channel();
        let supervisor = tokio::spawn(link::supervise(Arc::clone(&link), first)).abort_handle();
        let store = Self { link, supervisor };
        told.await.map_err(|_| broken("the runtime is shutting down".to_owned()))??;
        Ok(store)
    }

    async fn run(&self, pipe: &Pipe, batch: &Batch<'_>, deadline: Instant) -> Result<Value, StoreError> {
        let caller = &self.link.caller;
        let when = match self.link.clock.now_ms() {
            0 => When { now_ms: 0, not_after_ms: pipe.not_after_ms(deadline) },
            now_ms => When { now_ms, not_after_ms: 0 },
        };
        let call = caller.call(batch, when);
        let mut answer = pipe.call(&caller.by_hash(&call), deadline).await;
        if answer.as_ref().is_err_and(Failed::is_no_script) {
            // Nothing ran, so it is safe to run it now.
            answer = pipe.call(&caller.by_text(&call), deadline).await;
        }
        answer.map_err(Failed::into_error)
    }
}

impl Store for RedisStore {
    async fn take(&self, batch: &Batch<'_>, deadline: Instant) -> Result<Answered, StoreError> {
        if deadline <= Instant::now() {
            return Err(StoreError::Expired);
        }
        let pipe = self.link.current()?;
        let proxies = self.link.fleet.note(batch);
        let value = self.run(&pipe, batch, deadline).await?;
        pipe.is_good.store(true, Relaxed);
        let said = match &value {
            Value::BulkString(bytes) => Said::read(bytes, batch),
            _ => None,
        };
        match said {
            Some(Said::Applied { epoch, now_ms, groups }) => Ok(Answered { now_ms, epoch, proxies, groups }),
            Some(Said::TooOld { .. }) => Err(StoreError::TooOld),
            Some(Said::Late { .. }) => {
                // Late by the server's clock: if that was set, ask for it again.
                pipe.doubt.notify_one();
                Err(StoreError::Expired)
            }
            None => Err(StoreError::Broken("an answer of the script that is none".to_owned())),
        }
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.link.ready().await
    }

    fn metrics(&self, out: &mut String) {
        let pipe = self.link.current().ok();
        // Writing into a text cannot fail.
        let _ = write!(
            out,
            "# HELP tidegate_redis_connected Whether there is a connection to Redis.\n\
             # TYPE tidegate_redis_connected gauge\n\
             tidegate_redis_connected {}\n\
             # HELP tidegate_redis_calls_in_flight Batches that Redis may still answer.\n\
             # TYPE tidegate_redis_calls_in_flight gauge\n\
             tidegate_redis_calls_in_flight {}\n\
             # HELP tidegate_redis_connections_total Connections made to Redis, the first included.\n\
             # TYPE tidegate_redis_connections_total counter\n\
             tidegate_redis_connections_total {}\n",
            u8::from(pipe.is_some()),
            pipe.map_or(0, |pipe| pipe.in_flight()),
            self.link.connections.load(Relaxed),
        );
    }
}
