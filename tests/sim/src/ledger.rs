//! The run's bill: what each party was admitted by, against what the counter was asked to charge.
//!
//! It adds up all that the counter hears, whatever the algorithm and however many windows have passed: what was taken
//! less what was given back is what was admitted. A grant that nobody gives back, one that is given back twice, or a
//! batch that counts twice shows here, even if no limit is ever passed.

use crate::central::Judged;
use std::collections::BTreeMap;
use tidegate_config::wire::Act;
use tidegate_core::Algorithm;

/// A limit among those of one rule: its window and its algorithm.
pub(crate) type LimitId = (u64, u8);

/// By limit, what was taken less what was given back.
#[derive(Debug, Default)]
pub(crate) struct Ledger(BTreeMap<LimitId, i64>);

/// What the bill of a party must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// What was admitted.
    pub(crate) admitted: u64,
    /// Of that, what need not be told: its windows may be over before anybody can.
    pub(crate) untold_max: u64,
    /// Whether more may be charged: what was granted of a window that is over need not be given back.
    pub(crate) may_waste: bool,
    /// What may be wrong either way.
    pub(crate) stray_max: u64,
}

impl Ledger {
    /// The counter has applied this for the first time.
    pub(crate) fn add(&mut self, judged: &Judged) {
        let amount = match judged.act {
            Act::Take(_) => judged.outcome.taken.cast_signed(),
            Act::Refund { .. } => -judged.n.cast_signed(),
        };
        *self.0.entry(judged.limit).or_default() += amount;
    }

    /// Compares each limit's bill with what was admitted.
    pub(crate) fn compare(&self, expected: Expected) -> Result<(), String> {
        let Expected { admitted, untold_max, may_waste, stray_max } = expected;
        let least = admitted.saturating_sub(untold_max + stray_max).cast_signed();
        let most = if may_waste { i64::MAX } else { (admitted + stray_max).cast_signed() };
        match self.0.values().find(|billed| !(least..=most).contains(*billed)) {
            Some(billed) => Err(format!(
                "the counter was asked to charge {billed}, and {least} to {most} would be right for {admitted} admitted"
            )),
            None => Ok(()),
        }
    }
}

/// Which limit of a rule.
pub(crate) const fn limit_id(window_ms: u64, algorithm: Algorithm) -> LimitId {
    let algorithm = match algorithm {
        Algorithm::FixedWindow => 1,
        Algorithm::SlidingWindow => 2,
        Algorithm::TokenBucket { .. } => 3,
        Algorithm::SlidingBuckets { .. } => 4,
        Algorithm::SlidingLog => 5,
    };
    (window_ms, algorithm)
}
