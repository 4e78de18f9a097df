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

use std::sync::Arc;
use std::time::Instant;

use redis::Value;
use tidegate_config::wire::Batch;
use tokio::task::AbortHandle;

use self::call::{Said, When};
use self::errors::is_no_script;
use self::link::Link;
pub use self::options::{IN_FLIGHT_MAX, Options, PREFIX_DEFAULT, PREFIX_LEN_MAX};
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
    /// Connects, and from then on connects again by itself. An error is the first attempt's: whoever would rather
    /// wait for the server tries again.
    pub async fn connect(options: &Options) -> Result<Self, StoreError> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| StoreError::Broken(format!("no randomness: {error}")))?;
        let link = Link::new(options, u64::from_le_bytes(seed))?;
        let (first, told) = tokio::sync::oneshot::channel();
        let supervisor = tokio::spawn(link::supervise(Arc::clone(&link), first)).abort_handle();
        let store = Self { link, supervisor };
        told.await.map_err(|_| StoreError::Broken("the runtime is shutting down".to_owned()))??;
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
        if let Err(Failed::Said(error)) = &answer
            && is_no_script(error)
        {
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
        self.link.probe().await
    }
}
