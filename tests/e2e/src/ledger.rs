//! What a counter was made to count, added up from the calls that a relay saw.

use std::collections::BTreeSet;

use crate::relay::{Ask, Call};

/// What came of all calls about one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Taken, all or nothing.
    pub all: u64,
    /// Taken ahead of demand.
    pub some: u64,
    /// Reported after the fact.
    pub force: u64,
    /// Given back.
    pub refunded: u64,
}

impl Ledger {
    /// Adds up the calls that were answered by one epoch of the counter (`None`: by any), about one rule. A batch
    /// that was sent again counts once, as it does in the counter.
    pub fn of(calls: &[Call], rule: &str, epoch: Option<u64>) -> Self {
        let mut seen = BTreeSet::new();
        let mut ledger = Self::default();
        for call in calls {
            let Some(answered) = call.epoch else { continue };
            let is_new = call
                .sender
                .is_none_or(|sender| seen.insert((answered, sender.proxy, sender.vm, sender.sequence)));
            if !is_new || epoch.is_some_and(|epoch| epoch != answered) {
                continue;
            }
            for take in call.takes.iter().filter(|take| take.rule == rule) {
                let taken = take.taken.unwrap_or(0);
                match take.manner {
                    Ask::All => ledger.all += taken,
                    Ask::Some => ledger.some += taken,
                    Ask::Force => ledger.force += taken,
                    Ask::Refund => ledger.refunded += take.n,
                }
            }
        }
        ledger
    }

    /// What stands charged.
    pub fn charged(&self) -> u64 {
        (self.all + self.some + self.force).saturating_sub(self.refunded)
    }
}
