//! `sliding_window`: the count of this window, plus the previous one's by the part of it that the last
//! window's length still covers.
//!
//! With `e` of the window's `W` milliseconds gone, what is used is
//! `current + ceil(previous * ceil(2^16 * (W - e) / W) / 2^16)`: both roundings go up, so rounding never
//! admits. No product passes 2^52.

use crate::grid::{Age, Grid};
use crate::limit::{REQUESTS_MAX, WINDOW_MS_MAX};
use crate::rounding::{ceil_div, floor_div};
use crate::{Outcome, Take};

/// The weight of a whole window.
const WEIGHT_ONE: u64 = 1 << 16;

const EXACT_IN_DOUBLES: u64 = 1 << 53;
const _: () = assert!(REQUESTS_MAX < EXACT_IN_DOUBLES / WEIGHT_ONE);
const _: () = assert!(WINDOW_MS_MAX < EXACT_IN_DOUBLES / WEIGHT_ONE);

/// What was taken in one window and in the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// The number of the current window.
    pub window: u32,
    /// What was taken in it, debt included.
    pub current: u64,
    /// What was taken in the window before it.
    pub previous: u64,
}

impl SlidingWindow {
    pub(crate) fn fresh(grid: &Grid) -> Self {
        Self { window: grid.window(), current: 0, previous: 0 }
    }

    /// The state as it stands now.
    pub(crate) fn at(self, grid: &Grid) -> Self {
        match Age::of(self.window, grid.window(), 1) {
            Age::Current => self,
            Age::Past(1) => Self { window: grid.window(), current: 0, previous: self.current },
            Age::Past(_) | Age::FarAhead => Self::fresh(grid),
        }
    }

    pub(crate) fn used(&self, window_ms: u64, grid: &Grid) -> u64 {
        self.current.saturating_add(weighted(self.previous, window_ms, grid.elapsed_ms(self.window)))
    }

    pub(crate) fn take(self, requests: u64, window_ms: u64, grid: &Grid, take: Take) -> (Outcome, Self) {
        let before = self.at(grid);
        let used = before.used(window_ms, grid);
        let taken = take.taken_of(requests.saturating_sub(used));
        let after = Self { current: before.current.saturating_add(taken).min(REQUESTS_MAX), ..before };
        let outcome = Outcome {
            taken,
            remaining: requests.saturating_sub(used.saturating_add(taken)),
            reset_ms: after.reset_ms(grid),
            retry: take.retry(taken, requests, |amount| before.wait_ms(requests, window_ms, grid, amount)),
            receipt: after.window.into(),
        };
        (outcome, after)
    }

    /// Gives back `amount` taken in `window`, if that window still counts.
    pub(crate) fn refund(self, window: u64, amount: u64) -> Self {
        if window == u64::from(self.window) {
            Self { current: self.current.saturating_sub(amount), ..self }
        } else if window.saturating_add(1) == u64::from(self.window) {
            Self { previous: self.previous.saturating_sub(amount), ..self }
        } else {
            self
        }
    }

    /// The first window in which this state is as good as fresh.
    pub(crate) const fn fresh_from(&self) -> u32 {
        self.window.saturating_add(2)
    }

    /// How long until `amount`, which is at most `requests`, fits if nothing more is taken.
    fn wait_ms(&self, requests: u64, window_ms: u64, grid: &Grid, amount: u64) -> u64 {
        let room = requests.saturating_sub(amount);
        if let Some(room) = room.checked_sub(self.current) {
            // This window's own takes leave room: wait until the previous window weighs little enough.
            return grid.wait_ms(self.window, lightens_at_ms(self.previous, room, window_ms));
        }
        // They do not: wait into the next window, where they are the previous one's.
        let next = self.window.saturating_add(1);
        grid.wait_ms(next, lightens_at_ms(self.current, room, window_ms))
    }

    fn reset_ms(&self, grid: &Grid) -> u64 {
        match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => grid.wait_ms(self.window.saturating_add(1), 0),
            _ => grid.wait_ms(self.window.saturating_add(2), 0),
        }
    }
}

/// What a previous window's `count` still weighs, rounded up.
fn weighted(count: u64, window_ms: u64, elapsed_ms: u64) -> u64 {
    let left_ms = window_ms.saturating_sub(elapsed_ms);
    let weight = ceil_div(left_ms.saturating_mul(WEIGHT_ONE), window_ms);
    ceil_div(count.saturating_mul(weight), WEIGHT_ONE)
}

/// The first millisecond of a window at which the previous one's `count` weighs at most `room`: the
/// inverse of [`weighted`]. Rounding the weight and the rest of the window down is what "at most" asks.
fn lightens_at_ms(count: u64, room: u64, window_ms: u64) -> u64 {
    let weight_max = floor_div(room.saturating_mul(WEIGHT_ONE), count).min(WEIGHT_ONE);
    let left_ms_max = floor_div(weight_max.saturating_mul(window_ms), WEIGHT_ONE);
    window_ms.saturating_sub(left_ms_max)
}
