//! The store's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tidegate_core::Timestamp;

/// Tells the time, and never an earlier one than before.
pub trait Clock: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;
}

/// The machine's clock as it stood at the start, and from then on the monotonic one: a step of the machine's clock
/// opens no window twice.
pub struct SystemClock {
    started: Instant,
    started_ms: u64,
}

impl SystemClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let passed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_ms(self.started_ms.saturating_add(passed_ms))
    }
}

/// A clock that stands still until it is told to go on: for tests.
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `ms` milliseconds since the epoch.
    pub fn at_ms(ms: u64) -> Self {
        Self(AtomicU64::new(ms))
    }

    /// Goes on.
    pub fn advance_ms(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::SeqCst))
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        C::now(self)
    }
}
