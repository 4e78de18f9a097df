//! A grant: what was taken from a limit ahead of demand, and is not spent yet.
//!
//! It was charged when it was made, so spending it asks nobody. What is left at its end must not be spent any more:
//! whoever made it gives it back.

use crate::limit::REQUESTS_MAX;
use crate::{Limit, Timestamp};

/// What is left of a grant, and until when it may be spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// How much is left.
    pub left: u64,
    /// Its end, on whichever clock its keeper uses for all its grants.
    pub until: Timestamp,
    /// Which window it was taken from, as [`Grant::window`] names it; 0 for algorithms without windows.
    pub window: u32,
}

/// Names of windows have so many bits: enough to tell neighbours apart.
const WINDOW_BITS: u32 = 24;

impl Grant {
    /// A grant of nothing.
    pub const NONE: Self = Self { left: 0, until: Timestamp::from_ms(0), window: 0 };

    /// A short name, not 0, of the window that a receipt names.
    pub fn window(receipt: u64) -> u32 {
        let names = (1_u64 << WINDOW_BITS).saturating_sub(1);
        u32::try_from(receipt.rem_euclid(names).saturating_add(1)).unwrap_or(1)
    }

    /// What remains when `amount` is spent now; `None` if there is too little, or it has ended.
    pub fn spend(self, amount: u64, now: Timestamp) -> Option<Self> {
        let left = self.left.checked_sub(amount).filter(|_| now < self.until)?;
        Some(Self { left, ..self })
    }

    /// This grant and another of the same limit as one. Within one window it lasts as long as the later of the two,
    /// for both end before the window does. Else it ends with the earlier, so that no part of it is spent late, and what
    /// has ended is not carried along.
    #[must_use]
    pub fn joined(self, other: Self, now: Timestamp) -> Self {
        let left = self.left.saturating_add(other.left).min(REQUESTS_MAX);
        if self.left == 0 {
            other
        } else if self.window == other.window && self.window != 0 {
            Self { left, until: self.until.max(other.until), ..other }
        } else if now >= self.until || self.window != other.window {
            other
        } else {
            Self { left, until: self.until.min(other.until), ..other }
        }
    }

    /// What spending gave up is spendable again, if the grant is still the one that it was spent from.
    #[must_use]
    pub fn unspend(self, amount: u64, until: Timestamp) -> Self {
        if self.until == until {
            Self { left: self.left.saturating_add(amount).min(REQUESTS_MAX), ..self }
        } else {
            self
        }
    }
}

impl Limit {
    /// The same limit with `percent` more, rounded down.
    #[must_use]
    pub fn raised(&self, percent: u8) -> Self {
        let more = |number: u64| number.saturating_mul(u64::from(percent)).div_euclid(100);
        self.with_numbers(|number| number.saturating_add(more(number)))
    }

    /// One of so many equal parts of it, rounded down, but at least 1 of what is not 0.
    #[must_use]
    pub fn divided(&self, parts: u32) -> Self {
        let part = |number: u64| number.checked_div(parts.into()).unwrap_or(number);
        self.with_numbers(|number| part(number).max(number.min(1)))
    }
}
