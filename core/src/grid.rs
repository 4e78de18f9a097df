//! The windows of one limit for one key: equal stretches of time, numbered since the epoch.

use crate::{Limit, Moment, Timestamp};

/// A moment on the grid of windows of a limit, shifted for its key.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    /// Time since the grid's own beginning.
    now_ms: u64,
    shift_ms: u64,
    window_ms: u64,
}

impl Grid {
    pub(crate) fn new(limit: &Limit, at: Moment) -> Self {
        let window_ms = limit.window_ms();
        let shift_ms = at.shift.checked_rem(window_ms).unwrap_or(0);
        Self { now_ms: at.now.ms().saturating_add(shift_ms), shift_ms, window_ms }
    }

    /// The number of the window that it is now.
    pub(crate) fn window(&self) -> u32 {
        let window = self.now_ms.checked_div(self.window_ms).unwrap_or(0);
        u32::try_from(window).unwrap_or(u32::MAX)
    }

    /// How much of `window` has passed; nothing if it has not begun.
    pub(crate) fn elapsed_ms(&self, window: u32) -> u64 {
        self.now_ms.saturating_sub(self.start_ms(window)).min(self.window_ms)
    }

    /// How long until `offset_ms` into `window`.
    pub(crate) fn wait_ms(&self, window: u32, offset_ms: u64) -> u64 {
        self.start_ms(window).saturating_add(offset_ms).saturating_sub(self.now_ms)
    }

    /// When `window` begins.
    pub(crate) fn start(&self, window: u32) -> Timestamp {
        Timestamp::from_ms(self.start_ms(window).saturating_sub(self.shift_ms))
    }

    pub(crate) const fn window_ms(&self) -> u64 {
        self.window_ms
    }

    fn start_ms(&self, window: u32) -> u64 {
        u64::from(window).saturating_mul(self.window_ms)
    }
}

/// How old a state's window is, seen from now.
pub(crate) enum Age {
    /// It is this window, or the next one: the clock stepped back a little, and time stands still until
    /// it has caught up.
    Current,
    /// It is the window before this one.
    Previous,
    /// It is gone; or it lies more than one window ahead, which no small step of a clock explains.
    Gone,
}

impl Age {
    pub(crate) fn of(state_window: u32, now_window: u32) -> Self {
        match (now_window.checked_sub(state_window), state_window.checked_sub(now_window)) {
            (Some(0), _) | (_, Some(1)) => Self::Current,
            (Some(1), _) => Self::Previous,
            _ => Self::Gone,
        }
    }
}
