//! Charges that could not be made: a slot too contended, a write that failed. The request was admitted, so
//! the charge is owed, and made with the key's next charge or from the tick: late, not lost.

use crate::ask::Ask;
use crate::clock::Clock;
use crate::host::Host;
use crate::metrics::{Metric, Metrics};
use crate::table::Table;
use core::num::NonZeroU64;
use tidegate_core::{Take, Timestamp};

/// Keys that a VM can owe for. Beyond that a debt is dropped and counted.
const DEBTS_MAX: usize = 1024;
/// Debts that one tick tries to pay.
const PAID_PER_TICK_MAX: usize = 64;

/// What this VM owes, a debt for each key. Nearly always nothing, so a list will do.
#[derive(Default)]
pub(crate) struct Debts(Vec<Debt>);

#[derive(Clone)]
struct Debt {
    /// What is owed, to whom.
    ask: Ask,
    /// When the longest of the rule's windows that it belongs to ends: then nobody misses it.
    ends: Timestamp,
}

impl Debts {
    /// How much is owed for a key.
    pub(crate) fn owed(&self, ask: &Ask, clock: &Clock) -> u64 {
        let debt = self.0.iter().find(|debt| debt.ask.is_about_the_same(ask) && debt.counts(clock));
        debt.map_or(0, |debt| debt.ask.take.amount.get())
    }

    /// What was owed for the key has been charged along with its last take.
    pub(crate) fn paid(&mut self, ask: &Ask) {
        self.0.retain(|debt| !debt.ask.is_about_the_same(ask));
    }

    /// Owes for an ask that was admitted and not charged.
    pub(crate) fn owe(&mut self, ask: &Ask, ends: Timestamp, clock: &Clock, metrics: &mut Metrics) {
        self.0.retain(|debt| debt.counts(clock));
        if let Some(debt) = self.0.iter_mut().find(|debt| debt.ask.is_about_the_same(ask)) {
            let amount = debt.ask.take.amount.saturating_add(ask.take.amount.get());
            debt.ask.take = Take::force(amount);
            debt.ends = debt.ends.max(ends);
        } else if self.0.len() < DEBTS_MAX {
            self.0.push(Debt { ask: ask.with(Take::force(ask.take.amount)), ends });
        } else {
            metrics.add(Metric::DebtDropped, 1);
        }
    }

    /// Owes less by as much as is asked for, and says what is left of that.
    pub(crate) fn forgive(&mut self, ask: &Ask) -> u64 {
        let mut left = ask.take.amount.get();
        self.0.retain_mut(|Debt { ask: owed, .. }| {
            if !owed.is_about_the_same(ask) {
                return true;
            }
            let (amount, forgiven) = (owed.take.amount.get(), left.min(owed.take.amount.get()));
            left = left.saturating_sub(forgiven);
            let rest = NonZeroU64::new(amount.saturating_sub(forgiven));
            rest.inspect(|rest| owed.take = Take::force(*rest)).is_some()
        });
        left
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Pays what can be paid; what cannot waits for the next tick.
    pub(crate) fn pay(&mut self, host: &impl Host, clock: &Clock, metrics: &mut Metrics) {
        self.0.retain(|debt| debt.counts(clock));
        let due: Vec<Debt> = self.0.iter().take(PAID_PER_TICK_MAX).cloned().collect();
        for Debt { ask, .. } in due {
            if pay_one(host, &ask, clock, metrics) {
                self.paid(&ask);
            }
        }
    }
}

impl Debt {
    fn counts(&self, clock: &Clock) -> bool {
        self.ends > clock.of(self.ask.home)
    }
}

fn pay_one(host: &impl Host, ask: &Ask, clock: &Clock, metrics: &mut Metrics) -> bool {
    let Ok(read) = Table::read(host, ask.place) else { return false };
    let mut slot = read.slot;
    let judged = ask.judge(&slot, clock, 0);
    let evictions = ask.put(&mut slot, &judged, clock);
    let is_paid = Table::write(host, ask.place, &slot, read.cas).is_ok();
    if is_paid {
        evictions.count(metrics);
    }
    is_paid
}
