//! The windows of one limit for one key: stretches of time that follow each other, numbered since the epoch.

use crate::window::{DAY_MS, Window, month_at, month_start_ms};
use crate::{Moment, Timestamp};

/// A moment among the windows of a limit, shifted for its key.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    /// Time since the grid's own beginning.
    now_ms: u64,
    shift_ms: u64,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Ms(u64),
    Month,
}

impl Grid {
    /// Windows of the calendar are nobody's to shift.
    pub(crate) fn new(window: Window, at: Moment) -> Self {
        let (step, shift_ms) = match window {
            Window::Ms(ms) => (Step::Ms(ms), at.shift.checked_rem(ms).unwrap_or(0)),
            Window::Day => (Step::Ms(DAY_MS), 0),
            Window::Month => (Step::Month, 0),
        };
        Self { now_ms: at.now.ms().saturating_add(shift_ms), shift_ms, step }
    }

    /// The number of the window that it is now.
    pub(crate) fn window(&self) -> u32 {
        match self.step {
            Step::Ms(ms) => u32::try_from(self.now_ms.checked_div(ms).unwrap_or(0)).unwrap_or(u32::MAX),
            Step::Month => month_at(self.now_ms),
        }
    }

    /// How much of `window` has passed; nothing if it has not begun.
    pub(crate) fn elapsed_ms(&self, window: u32) -> u64 {
        self.now_ms.saturating_sub(self.start_ms(window))
    }

    /// How long until `offset_ms` into `window`.
    pub(crate) fn wait_ms(&self, window: u32, offset_ms: u64) -> u64 {
        self.start_ms(window).saturating_add(offset_ms).saturating_sub(self.now_ms)
    }

    /// When `window` begins.
    pub(crate) fn start(&self, window: u32) -> Timestamp {
        Timestamp::from_ms(self.start_ms(window).saturating_sub(self.shift_ms))
    }

    fn start_ms(&self, window: u32) -> u64 {
        match self.step {
            Step::Ms(ms) => u64::from(window).saturating_mul(ms),
            Step::Month => month_start_ms(window),
        }
    }
}

/// How old a state's window is, seen from now.
pub(crate) enum Age {
    /// It is this window, or one a little ahead: the clock stepped back, and time stands still until it has
    /// caught up.
    Current,
    /// So many windows ago, at least one.
    Past(u32),
    /// Further ahead than a small step of a clock explains.
    FarAhead,
}

impl Age {
    /// `ahead_max` is how many windows ahead a state can be without being given up.
    pub(crate) fn of(state_window: u32, now_window: u32, ahead_max: u32) -> Self {
        match now_window.checked_sub(state_window) {
            Some(0) => Self::Current,
            Some(past) => Self::Past(past),
            None if state_window.saturating_sub(now_window) <= ahead_max => Self::Current,
            None => Self::FarAhead,
        }
    }
}
