//! Counts by windows, for `fixed_window` and `sliding_window`: what the oracle knows of one counter.
//!
//! For each window it keeps how much was admitted, how much of that a fault excuses, and what charges
//! a fault may have left behind. Near a window's edge a request may belong to either window: it is put into the
//! earlier if there is room.

use crate::oracle::Decision;
use crate::spec::{Algorithm, Limit};

/// Windows back that a decision can still depend on.
const WINDOWS_KEPT: u64 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    admitted: u64,
    /// Of the admitted, those whose charge a fault may have undone.
    excused: u64,
    /// Charges that a fault may have left without an admission.
    stray: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Windows {
    shift_ms: u64,
    /// A few, each with its number.
    uses: Vec<(u64, Use)>,
}

impl Windows {
    pub(crate) fn new(shift_ms: u64) -> Self {
        Self { shift_ms, uses: Vec::new() }
    }

    fn window(&self, limit: &Limit, at_ms: u64) -> u64 {
        (at_ms + self.shift_ms) / limit.window_ms
    }

    fn elapsed_ms(&self, limit: &Limit, at_ms: u64) -> u64 {
        (at_ms + self.shift_ms) % limit.window_ms
    }

    fn of(&self, window: u64) -> Use {
        let found = self.uses.iter().find(|(number, _)| *number == window);
        found.map(|(_, used)| *used).unwrap_or_default()
    }

    fn of_mut(&mut self, window: u64) -> &mut Use {
        let place = self.uses.iter().position(|(number, _)| *number == window).unwrap_or_else(|| {
            self.uses.push((window, Use::default()));
            self.uses.len() - 1
        });
        &mut self.uses[place].1
    }

    /// How much is used in `window`, with `elapsed_ms` of it gone, counting each window by `count`.
    fn used(&self, limit: &Limit, window: u64, elapsed_ms: u64, count: impl Fn(Use) -> u64) -> u64 {
        let before = || window.checked_sub(1).map(|before| self.of(before)).unwrap_or_default();
        let previous = match limit.algorithm {
            Algorithm::SlidingWindow => weighted(count(before()), limit.window_ms, elapsed_ms),
            _ => 0,
        };
        count(self.of(window)) + previous
    }

    /// By how much the limit is passed now, excuses or not; or how much was used, if that is a failure.
    pub(crate) fn admit(
        &mut self,
        limit: &Limit,
        decision: &Decision,
        n: u64,
        is_excused: bool,
    ) -> Result<u64, u64> {
        let end = self.window(limit, decision.end_ms);
        let begin = decision.read_ms.map_or(end, |read_ms| self.window(limit, read_ms));
        let certain = |used: Use| used.admitted - used.excused;
        let (mut window, mut elapsed_ms) = (end, self.elapsed_ms(limit, decision.end_ms));
        if begin < end && self.used(limit, begin, limit.window_ms, certain) + n <= limit.requests {
            (window, elapsed_ms) = (begin, limit.window_ms);
        }
        let used = self.used(limit, window, elapsed_ms, certain);
        if !is_excused && used + n > limit.requests {
            return Err(used);
        }
        self.uses.retain(|(old, _)| old + WINDOWS_KEPT >= window);
        let here = self.of_mut(window);
        here.admitted += n;
        here.excused += if is_excused { n } else { 0 };
        if begin < end {
            // It may have been charged to the other of the two.
            self.of_mut(begin + end - window).stray += n;
        }
        let all = self.used(limit, window, elapsed_ms, |used| used.admitted);
        Ok(all.saturating_sub(limit.requests))
    }

    /// The most that may be charged, as of the time that the filter read; `None` if that cannot be told.
    pub(crate) fn used_at_most(&self, limit: &Limit, read_ms: u64, end_ms: u64) -> Option<u64> {
        let window = self.window(limit, read_ms);
        let charged = |used: Use| used.admitted + used.stray;
        (window == self.window(limit, end_ms))
            .then(|| self.used(limit, window, self.elapsed_ms(limit, read_ms), charged))
    }

    /// A charge without an admission may appear, for so long.
    pub(crate) fn stray(&mut self, limit: &Limit, end_ms: u64, n: u64, for_ms: u64) {
        let window = self.window(limit, end_ms);
        for window in window.saturating_sub(1)..=window + for_ms.div_ceil(limit.window_ms) {
            self.of_mut(window).stray += n;
        }
    }

    /// Whatever was admitted so far is excused.
    pub(crate) fn empty(&mut self) {
        for (_, used) in &mut self.uses {
            used.excused = used.admitted;
        }
    }
}

/// What a previous window's count still weighs: both roundings go up.
pub(crate) fn weighted(count: u64, window_ms: u64, elapsed_ms: u64) -> u64 {
    let weight = ((window_ms - elapsed_ms) << 16).div_ceil(window_ms);
    (count * weight).div_ceil(1 << 16)
}
