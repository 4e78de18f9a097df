//! The core's tests, the same natively and on wasm32 under Node.
//!
//! - `cases`: tables of takes with the time injected: windows, costs, bounds, clocks that step.
//! - `oracle`: random histories against an oracle that keeps every take's time, and the promise of
//!   retry-after.
//! - `bytes`: every byte form survives the trip, and no bytes at all can do harm.
//! - `slots`: finding, placing, displacing.

#![allow(missing_docs, reason = "tests explain themselves by their names")]

mod bytes;
mod cases;
mod oracle;
mod slots;

use std::num::NonZeroU64;
use tidegate_core::{Algorithm, Limit, Moment, Outcome, State, Take, Timestamp};

pub(crate) const BOTH: [Algorithm; 2] = [Algorithm::FixedWindow, Algorithm::SlidingWindow];

pub(crate) fn limit(algorithm: Algorithm, requests: u64, window_ms: u64) -> Limit {
    Limit::new(algorithm, requests, window_ms).expect("the test's own limit is valid")
}

pub(crate) fn amount(amount: u64) -> NonZeroU64 {
    NonZeroU64::new(amount).expect("the test's own amount is not 0")
}

/// A moment on a grid that is aligned with the clock.
pub(crate) fn at(now_ms: u64) -> Moment {
    Moment { now: Timestamp::from_ms(now_ms), shift: 0 }
}

/// One key's counter of one limit.
pub(crate) struct Counter {
    pub(crate) limit: Limit,
    pub(crate) state: Option<State>,
    pub(crate) shift: u64,
}

impl Counter {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, state: None, shift: 0 }
    }

    pub(crate) fn take(&mut self, now_ms: u64, take: Take) -> Outcome {
        let moment = Moment { now: Timestamp::from_ms(now_ms), shift: self.shift };
        let (outcome, state) = self.limit.take(self.state, moment, take);
        self.state = Some(state);
        outcome
    }

    pub(crate) fn all(&mut self, now_ms: u64, cost: u64) -> Outcome {
        self.take(now_ms, Take::all(amount(cost)))
    }
}
