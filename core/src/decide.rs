//! The decision: from a limit and a state to what its algorithm says.

use crate::fixed_window::FixedWindow;
use crate::grid::Grid;
use crate::sliding_buckets::SlidingBuckets;
use crate::sliding_log::SlidingLog;
use crate::sliding_window::SlidingWindow;
use crate::token_bucket::{Numbers, TokenBucket};
use crate::{Algorithm, Limit, Moment, Outcome, State, Take, Timestamp, Window};
use core::num::NonZeroU64;

impl Limit {
    /// Decides one take. No state, or one of another algorithm, is a fresh one.
    pub fn take(&self, state: Option<State>, at: Moment, take: Take) -> (Outcome, State) {
        let requests = self.requests();
        match self.counter(state, at) {
            Counter::FixedWindow(state, grid) => wrap(state.take(requests, &grid, take), State::FixedWindow),
            Counter::SlidingWindow(state, grid) => {
                wrap(state.take(requests, self.window_ms(), &grid, take), State::SlidingWindow)
            }
            Counter::SlidingBuckets(state, buckets, grid) => {
                wrap(state.take(requests, buckets, &grid, take), State::SlidingBuckets)
            }
            Counter::SlidingLog(state) => {
                wrap(state.take(requests, self.window_ms(), at.now, take), State::SlidingLog)
            }
            Counter::TokenBucket(state, numbers) => {
                wrap(state.take(&numbers, at.now, take), State::TokenBucket)
            }
        }
    }

    /// Gives back `amount` of an earlier take, named by its receipt ([`Outcome::receipt`]). It goes to the
    /// window that it was taken from: if that counts no more, nothing happens. Whoever refunds does so at most
    /// once for each take.
    pub fn refund(&self, state: State, at: Moment, receipt: u64, amount: u64) -> State {
        match self.counter(Some(state), at) {
            Counter::FixedWindow(state, _) => State::FixedWindow(state.refund(receipt, amount)),
            Counter::SlidingWindow(state, _) => State::SlidingWindow(state.refund(receipt, amount)),
            Counter::SlidingBuckets(state, ..) => State::SlidingBuckets(state.refund(receipt, amount)),
            Counter::SlidingLog(state) => State::SlidingLog(state.refund(receipt, amount)),
            Counter::TokenBucket(state, numbers) => {
                State::TokenBucket(state.refund(&numbers, at.now, receipt, amount))
            }
        }
    }

    /// Charges an attempt that was denied, so that a client who never pauses never gets in (but a fixed window
    /// forgives at its end). Who pauses for a window is let in again: what windows count ends with them, a log
    /// keeps the latest, and a bucket's debt is at most what it holds.
    pub fn charge_denied(&self, state: Option<State>, at: Moment, amount: NonZeroU64) -> State {
        let amount = match self.algorithm() {
            Algorithm::TokenBucket { burst, .. } => {
                let used = state.as_ref().map_or(0, |state| self.used(state, at));
                let room = burst.saturating_mul(2).saturating_sub(used).min(amount.get());
                let Some(room) = NonZeroU64::new(room) else {
                    return state.unwrap_or_else(|| self.take(None, at, Take::all(amount)).1);
                };
                room
            }
            _ => amount,
        };
        match self.take(state, at, Take::force(amount)).1 {
            State::SlidingLog(log) => State::SlidingLog(log.latest(self.requests())),
            state => state,
        }
    }

    /// How much of [`Self::capacity`] is used now; more than that is debt.
    pub fn used(&self, state: &State, at: Moment) -> u64 {
        match self.counter(Some(state.clone()), at) {
            Counter::FixedWindow(state, grid) => state.at(&grid).count,
            Counter::SlidingWindow(state, grid) => state.at(&grid).used(self.window_ms(), &grid),
            Counter::SlidingBuckets(state, buckets, grid) => state.at(buckets, &grid).used(),
            Counter::SlidingLog(state) => state.at(self.window_ms(), at.now).0.used(),
            Counter::TokenBucket(state, numbers) => state.at(&numbers, at.now).used(&numbers),
        }
    }

    /// When the state will be as good as none.
    pub fn expires(&self, state: &State, at: Moment) -> Timestamp {
        match self.counter(Some(state.clone()), at) {
            Counter::FixedWindow(state, grid) => grid.start(state.fresh_from()),
            Counter::SlidingWindow(state, grid) => grid.start(state.fresh_from()),
            Counter::SlidingBuckets(state, buckets, grid) => grid.start(state.fresh_from(buckets)),
            Counter::SlidingLog(state) => state.expires(self.window_ms()),
            Counter::TokenBucket(state, numbers) => state.expires(&numbers),
        }
    }

    /// When the window ends that a receipt names: what was taken in it ahead of demand must be spent by then. `None`
    /// for algorithms without windows.
    pub fn window_end(&self, receipt: u64, at: Moment) -> Option<Timestamp> {
        let next = u32::try_from(receipt).ok()?.saturating_add(1);
        match self.counter(None, at) {
            Counter::FixedWindow(_, grid)
            | Counter::SlidingWindow(_, grid)
            | Counter::SlidingBuckets(_, _, grid) => Some(grid.start(next)),
            Counter::SlidingLog(_) | Counter::TokenBucket(..) => None,
        }
    }

    /// The state with what its algorithm needs to read it.
    fn counter(&self, state: Option<State>, at: Moment) -> Counter {
        match (self.algorithm(), state) {
            (Algorithm::FixedWindow, state) => {
                let grid = Grid::new(self.window(), at);
                match state {
                    Some(State::FixedWindow(state)) => Counter::FixedWindow(state, grid),
                    _ => Counter::FixedWindow(FixedWindow::fresh(&grid), grid),
                }
            }
            (Algorithm::SlidingWindow, state) => {
                let grid = Grid::new(self.window(), at);
                match state {
                    Some(State::SlidingWindow(state)) => Counter::SlidingWindow(state, grid),
                    _ => Counter::SlidingWindow(SlidingWindow::fresh(&grid), grid),
                }
            }
            (Algorithm::SlidingBuckets { buckets }, state) => {
                let step_ms = self.window_ms().checked_div(buckets.into()).unwrap_or(self.window_ms());
                let grid = Grid::new(Window::Ms(step_ms), at);
                match state {
                    Some(State::SlidingBuckets(state)) => Counter::SlidingBuckets(state, buckets, grid),
                    _ => Counter::SlidingBuckets(SlidingBuckets::fresh(&grid), buckets, grid),
                }
            }
            (Algorithm::SlidingLog, Some(State::SlidingLog(state))) => Counter::SlidingLog(state),
            (Algorithm::SlidingLog, _) => Counter::SlidingLog(SlidingLog::default()),
            (Algorithm::TokenBucket { burst, warm_up_ms }, state) => {
                let numbers = Numbers::of(self, burst, warm_up_ms);
                match state {
                    Some(State::TokenBucket(state)) => Counter::TokenBucket(state, numbers),
                    _ => Counter::TokenBucket(TokenBucket::fresh(&numbers, at.now), numbers),
                }
            }
        }
    }
}

/// A state of a limit's own algorithm, and what that needs beside it.
enum Counter {
    FixedWindow(FixedWindow, Grid),
    SlidingWindow(SlidingWindow, Grid),
    SlidingBuckets(SlidingBuckets, u8, Grid),
    SlidingLog(SlidingLog),
    TokenBucket(TokenBucket, Numbers),
}

fn wrap<S>((outcome, state): (Outcome, S), as_state: impl FnOnce(S) -> State) -> (Outcome, State) {
    (outcome, as_state(state))
}
