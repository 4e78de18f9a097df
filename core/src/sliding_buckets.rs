//! `sliding_buckets`: counts in sub-windows, and what is used is the sum of all that the last window's length
//! touches: the current sub-window and as many before it as a window has.
//!
//! The oldest of those is counted whole although the window covers only a part of it. So no window of that
//! length ever sees more than the limit, and a request is forgotten at most one sub-window late.

use crate::grid::{Age, Grid};
use crate::limit::REQUESTS_MAX;
use crate::{Outcome, Take};
use alloc::vec::Vec;

/// What was taken in the latest sub-windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingBuckets {
    /// The number of the current sub-window.
    pub window: u32,
    /// What was taken in it and in those before it, the latest first; the last is not 0.
    pub counts: Vec<u64>,
}

impl SlidingBuckets {
    pub(crate) fn fresh(grid: &Grid) -> Self {
        Self { window: grid.window(), counts: Vec::new() }
    }

    /// The state as it stands now, with `buckets` sub-windows to a window.
    pub(crate) fn at(mut self, buckets: u8, grid: &Grid) -> Self {
        let kept = usize::from(buckets).saturating_add(1);
        match Age::of(self.window, grid.window(), buckets.into()) {
            Age::Current => {}
            Age::Past(past) if past <= u32::from(buckets) => {
                let gone = usize::try_from(past).unwrap_or(usize::MAX);
                self.counts.splice(0..0, core::iter::repeat_n(0, gone));
                self.window = grid.window();
            }
            Age::Past(_) | Age::FarAhead => return Self::fresh(grid),
        }
        self.counts.truncate(kept);
        self.trimmed()
    }

    pub(crate) fn used(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    pub(crate) fn take(self, requests: u64, buckets: u8, grid: &Grid, take: Take) -> (Outcome, Self) {
        let before = self.at(buckets, grid);
        let used = before.used();
        let taken = take.taken_of(requests.saturating_sub(used));
        let retry = take.retry(taken, requests, |amount| before.wait_ms(requests, buckets, grid, amount));
        let after = before.add(taken);
        let outcome = Outcome {
            taken,
            remaining: requests.saturating_sub(used.saturating_add(taken)),
            reset_ms: if after.counts.is_empty() { 0 } else { grid.wait_ms(after.fresh_from(buckets), 0) },
            retry,
            receipt: after.window.into(),
        };
        (outcome, after)
    }

    /// Gives back `amount` taken in sub-window `window`, if that still counts.
    pub(crate) fn refund(mut self, window: u64, amount: u64) -> Self {
        let age = u64::from(self.window).checked_sub(window).and_then(|age| usize::try_from(age).ok());
        if let Some(count) = age.and_then(|age| self.counts.get_mut(age)) {
            *count = count.saturating_sub(amount);
        }
        self.trimmed()
    }

    /// The first sub-window in which this state is as good as fresh: when the latest count leaves.
    pub(crate) fn fresh_from(&self, buckets: u8) -> u32 {
        let age = self.counts.iter().position(|count| *count > 0).unwrap_or(0);
        self.leaves_at(age, buckets)
    }

    /// How long until `amount`, which is at most `requests`, fits if nothing more is taken.
    fn wait_ms(&self, requests: u64, buckets: u8, grid: &Grid, amount: u64) -> u64 {
        let mut used = self.used();
        for (age, count) in self.counts.iter().enumerate().rev() {
            used = used.saturating_sub(*count);
            if used.saturating_add(amount) <= requests {
                return grid.wait_ms(self.leaves_at(age, buckets), 0);
            }
        }
        0
    }

    /// The sub-window in which a count of this age no longer counts.
    fn leaves_at(&self, age: usize, buckets: u8) -> u32 {
        let age = u32::try_from(age).unwrap_or(u32::MAX);
        self.window.saturating_add(u32::from(buckets).saturating_add(1)).saturating_sub(age)
    }

    fn add(mut self, taken: u64) -> Self {
        if taken > 0 {
            if self.counts.is_empty() {
                self.counts.push(0);
            }
            if let Some(current) = self.counts.first_mut() {
                *current = current.saturating_add(taken).min(REQUESTS_MAX);
            }
        }
        self
    }

    /// One form for each state: no zeros at the end.
    fn trimmed(mut self) -> Self {
        while self.counts.last() == Some(&0) {
            self.counts.pop();
        }
        self
    }
}
