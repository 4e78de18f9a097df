//! Charges that could not be made: a slot too contended, a write that failed. The request was admitted, so
//! the charge is owed, and made with the key's next charge or from the tick: late, not lost.

use crate::charge::Ask;
use crate::host::{Host, now};
use crate::identity::Identity;
use crate::metrics::{Metric, Metrics};
use crate::rules::Rule;
use crate::table::{Place, Table};
use core::num::NonZeroU64;
use std::rc::Rc;
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
    rule: Rc<Rule>,
    limit_set: usize,
    identity: Identity,
    place: Place,
    amount: NonZeroU64,
    /// When the longest of the rule's windows that it belongs to ends: then nobody misses it.
    ends: Timestamp,
}

impl Debts {
    /// How much is owed for a key.
    pub(crate) fn owed(&self, ask: &Ask<'_>, now: Timestamp) -> u64 {
        let debt = self.0.iter().find(|debt| debt.is_for(ask) && debt.ends > now);
        debt.map_or(0, |debt| debt.amount.get())
    }

    /// What was owed for the key has been charged along with its last take.
    pub(crate) fn paid(&mut self, ask: &Ask<'_>) {
        self.0.retain(|debt| !debt.is_for(ask));
    }

    /// Owes for an ask that was admitted and not charged.
    pub(crate) fn owe(&mut self, ask: &Ask<'_>, ends: Timestamp, now: Timestamp, metrics: &mut Metrics) {
        self.0.retain(|debt| debt.ends > now);
        let Ask { limit_set, identity, place, take, .. } = *ask;
        if let Some(debt) = self.0.iter_mut().find(|debt| debt.is_for(ask)) {
            debt.amount = debt.amount.saturating_add(take.amount.get());
            debt.ends = debt.ends.max(ends);
        } else if self.0.len() < DEBTS_MAX {
            let rule = Rc::clone(ask.rule);
            self.0.push(Debt { rule, limit_set, identity, place, amount: take.amount, ends });
        } else {
            metrics.add(Metric::DebtDropped, 1);
        }
    }

    /// Owes less by as much as is asked for, and says what is left of that.
    pub(crate) fn forgive(&mut self, ask: &Ask<'_>) -> u64 {
        let mut left = ask.take.amount.get();
        self.0.retain_mut(|debt| {
            if !debt.is_for(ask) {
                return true;
            }
            let (owed, forgiven) = (debt.amount.get(), left.min(debt.amount.get()));
            left = left.saturating_sub(forgiven);
            NonZeroU64::new(owed.saturating_sub(forgiven)).inspect(|rest| debt.amount = *rest).is_some()
        });
        left
    }

    /// Pays what can be paid; what cannot waits for the next tick.
    pub(crate) fn pay(&mut self, host: &impl Host, metrics: &mut Metrics) {
        if self.0.is_empty() {
            return;
        }
        let Ok(now) = now(host) else { return };
        self.0.retain(|debt| debt.ends > now);
        let due: Vec<Debt> = self.0.iter().take(PAID_PER_TICK_MAX).cloned().collect();
        for debt in due {
            let ask = debt.ask();
            if pay_one(host, &ask, now, metrics) {
                self.paid(&ask);
            }
        }
    }
}

impl Debt {
    /// Whether it is owed to the counters that an ask is about.
    fn is_for(&self, ask: &Ask<'_>) -> bool {
        self.identity.key == ask.identity.key && self.rule.variant == ask.rule.variant
    }

    fn ask(&self) -> Ask<'_> {
        Ask {
            rule: &self.rule,
            limit_set: self.limit_set,
            limits: self.rule.limits(self.limit_set),
            identity: self.identity,
            place: self.place,
            take: Take::force(self.amount),
            enforced: true,
        }
    }
}

fn pay_one(host: &impl Host, ask: &Ask<'_>, now: Timestamp, metrics: &mut Metrics) -> bool {
    let Ok(read) = Table::read(host, ask.place) else { return false };
    let mut slot = read.slot;
    let judged = ask.judge(&slot, now, 0);
    let evictions = ask.put(&mut slot, &judged, now);
    let is_paid = Table::write(host, ask.place, &slot, read.cas).is_ok();
    if is_paid {
        evictions.count(metrics);
    }
    is_paid
}
