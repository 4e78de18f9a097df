//! The one operation on a limit, and what comes of it.

use core::num::NonZeroU64;

/// What a take does when there is less than it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// All or nothing: a decision about a request.
    All,
    /// As much as there is: a grant made ahead of demand.
    Some,
    /// All, into debt if need be: a report of what was already admitted.
    Force,
}

/// Asks a limit for an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// How much: the cost of a request, at least 1.
    pub amount: NonZeroU64,
    /// What to do when there is less.
    pub manner: Manner,
}

impl Take {
    /// All of `amount` or nothing.
    pub const fn all(amount: NonZeroU64) -> Self {
        Self { amount, manner: Manner::All }
    }

    /// Up to `amount`.
    pub const fn some(amount: NonZeroU64) -> Self {
        Self { amount, manner: Manner::Some }
    }

    /// `amount`, whatever there is.
    pub const fn force(amount: NonZeroU64) -> Self {
        Self { amount, manner: Manner::Force }
    }

    /// When a take that got nothing of a limit gets something, given how long to wait for the least it asks.
    pub(crate) fn retry(self, taken: u64, capacity: u64, wait_ms: impl FnOnce(u64) -> u64) -> Retry {
        let least = self.least();
        if taken > 0 {
            Retry::Now
        } else if least > capacity {
            Retry::Never
        } else {
            Retry::After(wait_ms(least))
        }
    }

    /// How much of `free` this take gets.
    pub(crate) fn taken_of(self, free: u64) -> u64 {
        let amount = self.amount.get();
        match self.manner {
            Manner::All if amount > free => 0,
            Manner::All | Manner::Force => amount,
            Manner::Some => amount.min(free),
        }
    }

    /// The least that must be free for this take to get anything.
    fn least(self) -> u64 {
        match self.manner {
            Manner::All => self.amount.get(),
            Manner::Some => 1,
            Manner::Force => 0,
        }
    }
}

/// What came of a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How much was taken.
    pub taken: u64,
    /// How much is left now.
    pub remaining: u64,
    /// How long until the whole limit is free again if nothing more is taken, rounded up.
    pub reset_ms: u64,
    /// When the same take would get something; for one that did, at once.
    pub retry: Retry,
    /// What a refund of this take must name: the window, the time or the end of what was charged.
    pub receipt: u64,
}

impl Outcome {
    /// Whether the take got nothing.
    pub const fn is_refused(&self) -> bool {
        !matches!(self.retry, Retry::Now)
    }
}

/// When to ask again, if nothing else is taken meanwhile. Ordered from soonest to latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// The take was made.
    Now,
    /// Refused until this many milliseconds have passed, and not one longer.
    After(u64),
    /// Refused for good: it asks for more than the limit ever has.
    Never,
}
