//! One connection, shared by all calls: each waits no longer than its deadline, and there are only so many.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::{Notify, Semaphore};

use super::errors::{NotConnected, Trouble};
use super::options::ANSWER_MAX;
use crate::store::StoreError;

/// A connection and what is under way on it.
pub(super) struct Pipe {
    connection: MultiplexedConnection,
    room: Semaphore,
    room_max: usize,
    /// Answers to calls that somebody waited for.
    answers: AtomicU64,
    /// Whether a batch was answered.
    pub(super) is_good: AtomicBool,
    /// What the last beat met with.
    pub(super) trouble: Mutex<Option<StoreError>>,
    /// Calls whose callers gave up. They keep their room until the server has answered a later call: answers come in
    /// order, so then it has answered them too.
    abandoned: AtomicU64,
    /// How many of those have given their room back.
    released: AtomicU64,
    /// The server's clock as last told, and when it was asked.
    clock: Mutex<Option<(u64, Instant)>>,
    /// Somebody had no answer in time, or one that makes doubt: ask how it is.
    pub(super) doubt: Notify,
    /// The connection is of no use any more: for whoever looks after it, and for all who wait for an answer.
    pub(super) end: Notify,
    gone: Notify,
    ended_by: Mutex<Option<StoreError>>,
}

/// Why a call has no value.
pub(super) enum Failed {
    /// The server answered with an error that the caller may know what to do with.
    Said(RedisError),
    /// All else.
    Error(StoreError),
}

impl Failed {
    /// The server does not know the script: nothing ran.
    pub(super) fn is_no_script(&self) -> bool {
        matches!(self, Self::Said(error) if error.code() == Some("NOSCRIPT"))
    }

    pub(super) fn into_not_connected(self) -> NotConnected {
        match self {
            Self::Said(error) => NotConnected::of(&error),
            Self::Error(error) => error.into(),
        }
    }

    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Said(error) => Trouble::of(&error).error,
            Self::Error(error) => error,
        }
    }
}

/// Room for a call. Whoever drops it without an answer has abandoned the call.
struct InFlight<'a> {
    pipe: &'a Pipe,
    room_taken: u64,
    abandoned_before: u64,
    answered: bool,
}

impl Pipe {
    pub(super) fn new(connection: MultiplexedConnection, in_flight_max: usize) -> Self {
        Self {
            connection,
            room: Semaphore::new(in_flight_max),
            room_max: in_flight_max,
            answers: AtomicU64::new(0),
            is_good: AtomicBool::new(false),
            trouble: Mutex::new(None),
            abandoned: AtomicU64::new(0),
            released: AtomicU64::new(0),
            clock: Mutex::new(None),
            doubt: Notify::new(),
            end: Notify::new(),
            gone: Notify::new(),
            ended_by: Mutex::new(None),
        }
    }

    /// Sends a command and waits for its value, at most until the deadline.
    pub(super) async fn call(&self, cmd: &Cmd, deadline: Instant) -> Result<Value, Failed> {
        let Ok(permit) = self.room.try_acquire() else { return Err(Failed::Error(StoreError::Busy)) };
        permit.forget();
        self.send(cmd, deadline, 1).await
    }

    /// The same, also when there is no room. Only for whoever makes one such call at a time.
    pub(super) async fn call_anyway(&self, cmd: &Cmd, deadline: Instant) -> Result<Value, Failed> {
        self.send(cmd, deadline, 0).await
    }

    async fn send(&self, cmd: &Cmd, deadline: Instant, room_taken: u64) -> Result<Value, Failed> {
        let abandoned_before = self.abandoned.load(Ordering::Acquire);
        let mut in_flight = InFlight { pipe: self, room_taken, abandoned_before, answered: false };
        let mut connection = self.connection.clone();
        let gone = self.gone.notified();
        if let Some(error) = self.ended_by() {
            return Err(Failed::Error(error));
        }
        let answer = tokio::select! {
            answer = cmd.query_async::<Value>(&mut connection) => answer,
            () = gone => return Err(Failed::Error(self.ended_by().unwrap_or(StoreError::Deadline))),
            () = tokio::time::sleep_until(deadline.into()) => {
                self.doubt.notify_one();
                return Err(Failed::Error(StoreError::Deadline));
            }
        };
        in_flight.answered = true;
        self.answers.fetch_add(1, Ordering::AcqRel);
        answer.map_err(|error| {
            let trouble = Trouble::of(&error);
            if trouble.ends_connection {
                self.end_by(trouble.error);
            }
            Failed::Said(error)
        })
    }

    /// The time after which nothing may be done any more, told in the server's clock. The server's time cannot be
    /// later than what it told plus what has passed since it was asked, so no call is late too early.
    pub(super) fn not_after_ms(&self, deadline: Instant) -> u64 {
        let clock = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.map_or(0, |(now_ms, asked)| {
            let deadline = deadline.min(Instant::now() + ANSWER_MAX);
            let left = deadline.saturating_duration_since(asked).as_millis();
            now_ms.saturating_add(u64::try_from(left).unwrap_or(u64::MAX)).saturating_add(1)
        })
    }

    /// How many answers came to those who waited for them.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Acquire)
    }

    /// Calls that have room: those under way, and those given up that the server may still answer.
    pub(super) fn in_flight(&self) -> usize {
        self.room_max.saturating_sub(self.room.available_permits())
    }

    pub(super) fn set_clock(&self, now_ms: u64, asked: Instant) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some((now_ms, asked));
    }

    pub(super) fn end_by(&self, error: StoreError) {
        self.ended_by.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.end.notify_one();
        self.gone.notify_waiters();
    }

    pub(super) fn ended_by(&self) -> Option<StoreError> {
        self.ended_by.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Pipe { room, abandoned, released, .. } = self.pipe;
        if !self.answered {
            abandoned.fetch_add(self.room_taken, Ordering::AcqRel);
            return;
        }
        let before = released.fetch_max(self.abandoned_before, Ordering::AcqRel);
        let now_free = self.abandoned_before.saturating_sub(before).saturating_add(self.room_taken);
        room.add_permits(usize::try_from(now_free).unwrap_or(0));
    }
}
