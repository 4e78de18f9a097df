//! `fixed_window`: a count that starts again with each window.

use crate::grid::{Age, Grid};
use crate::limit::REQUESTS_MAX;
use crate::{Outcome, Take};

/// What was taken in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// The window's number.
    pub window: u32,
    /// What was taken in it, debt included.
    pub count: u64,
}

impl FixedWindow {
    pub(crate) fn fresh(grid: &Grid) -> Self {
        Self { window: grid.window(), count: 0 }
    }

    /// The state as it stands now.
    pub(crate) fn at(self, grid: &Grid) -> Self {
        match Age::of(self.window, grid.window(), 1) {
            Age::Current => self,
            Age::Past(_) | Age::FarAhead => Self::fresh(grid),
        }
    }

    pub(crate) fn take(self, requests: u64, grid: &Grid, take: Take) -> (Outcome, Self) {
        let before = self.at(grid);
        let taken = take.taken_of(requests.saturating_sub(before.count));
        let after = Self { count: before.count.saturating_add(taken).min(REQUESTS_MAX), ..before };
        let to_end_ms = grid.wait_ms(before.window.saturating_add(1), 0);
        let outcome = Outcome {
            taken,
            remaining: requests.saturating_sub(after.count),
            reset_ms: if after.count == 0 { 0 } else { to_end_ms },
            retry: take.retry(taken, requests, |_| to_end_ms),
            receipt: after.window.into(),
        };
        (outcome, after)
    }

    /// Gives back `amount` taken in `window`, if that window still counts.
    pub(crate) fn refund(self, window: u64, amount: u64) -> Self {
        if window == u64::from(self.window) {
            Self { count: self.count.saturating_sub(amount), ..self }
        } else {
            self
        }
    }

    /// The first window in which this state is as good as fresh.
    pub(crate) const fn fresh_from(&self) -> u32 {
        self.window.saturating_add(1)
    }
}
