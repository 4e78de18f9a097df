//! The core's tests, the same natively and on wasm32 under Node.
//!
//! - `cases`: tables of takes with the time injected: windows, costs, bounds, clocks that step.
//! - `oracle`: random histories against oracles that keep every take's time, and the promise of
//!   retry-after.
//! - `warm_up`: the warm-up of a token bucket against Guava's own arithmetic.
//! - `bytes`: every byte form survives the trip, and no bytes at all can do harm.
//! - `grants`: what is taken ahead of demand, and limits that are raised or divided.
//! - `slots`: finding, placing, displacing.

#![allow(missing_docs, reason = "tests explain themselves by their names")]

mod bytes;
mod cases;
mod grants;
mod oracle;
mod slots;
mod warm_up;

use std::num::NonZeroU64;
use tidegate_core::{Limit, LimitError, Moment, Outcome, State, Take, Timestamp, Window};

/// A limit of each algorithm, with as many requests at once as in a window.
pub(crate) fn every_algorithm(requests: u64, window_ms: u64) -> Vec<Limit> {
    let limits = [
        Limit::fixed_window(requests, Window::Ms(window_ms)),
        Limit::sliding_window(requests, window_ms),
        Limit::sliding_buckets(requests, window_ms, 4),
        Limit::sliding_log(requests.min(1_000), window_ms),
        Limit::token_bucket(requests, window_ms, requests, 0),
        Limit::token_bucket(requests, window_ms, requests, 10 * window_ms),
    ];
    limits.into_iter().map(valid).collect()
}

pub(crate) fn valid(limit: Result<Limit, LimitError>) -> Limit {
    limit.expect("the test's own limit is valid")
}

pub(crate) fn fixed(requests: u64, window_ms: u64) -> Limit {
    valid(Limit::fixed_window(requests, Window::Ms(window_ms)))
}

pub(crate) fn sliding(requests: u64, window_ms: u64) -> Limit {
    valid(Limit::sliding_window(requests, window_ms))
}

pub(crate) fn amount(amount: u64) -> NonZeroU64 {
    NonZeroU64::new(amount).expect("the test's own amount is not 0")
}

/// A moment on a grid that is aligned with the clock.
pub(crate) fn at(now_ms: u64) -> Moment {
    Moment { now: Timestamp::from_ms(now_ms), shift: 0 }
}

/// One key's counter of one limit.
#[derive(Clone)]
pub(crate) struct Counter {
    pub(crate) limit: Limit,
    pub(crate) state: Option<State>,
    pub(crate) shift: u64,
}

impl Counter {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, state: None, shift: 0 }
    }

    fn moment(&self, now_ms: u64) -> Moment {
        Moment { now: Timestamp::from_ms(now_ms), shift: self.shift }
    }

    pub(crate) fn take(&mut self, now_ms: u64, take: Take) -> Outcome {
        let (outcome, state) = self.limit.take(self.state.take(), self.moment(now_ms), take);
        self.state = Some(state);
        outcome
    }

    pub(crate) fn all(&mut self, now_ms: u64, cost: u64) -> Outcome {
        self.take(now_ms, Take::all(amount(cost)))
    }

    pub(crate) fn refund(&mut self, now_ms: u64, taken: &Outcome) {
        if let Some(state) = self.state.take() {
            self.state = Some(self.limit.refund(state, self.moment(now_ms), taken.receipt, taken.taken));
        }
    }

    pub(crate) fn used(&self, now_ms: u64) -> u64 {
        self.state.as_ref().map_or(0, |state| self.limit.used(state, self.moment(now_ms)))
    }
}
