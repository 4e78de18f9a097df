//! Charges that could not be made: a slot too contended, a write that failed. The request was admitted, so
//! the charge is owed, and made with the key's next charge or from the tick: late, not lost.

use crate::charge::{Ask, Judged};
use crate::host::Host;
use crate::identity::Identity;
use crate::metrics::{Metric, Metrics};
use crate::rules::Rules;
use crate::table::{Place, Table};
use core::num::NonZeroU64;
use tidegate_core::{Take, Timestamp};

/// Keys that a VM can owe for. Beyond that a debt is dropped and counted.
const DEBTS_MAX: usize = 1024;
/// Debts that one tick tries to pay.
const PAID_PER_TICK_MAX: usize = 64;

/// What this VM owes, a debt for each key. Nearly always nothing, so a list will do.
#[derive(Default)]
pub(crate) struct Debts(Vec<Debt>);

#[derive(Clone, Copy)]
struct Debt {
    rule_index: usize,
    limit_set: usize,
    identity: Identity,
    place: Place,
    amount: NonZeroU64,
    /// When the longest of the rule's windows that it belongs to ends: then nobody misses it.
    ends: Timestamp,
}

impl Debts {
    /// How much is owed for a key.
    pub(crate) fn owed(&self, identity: &Identity, now: Timestamp) -> u64 {
        let debt = self.0.iter().find(|debt| debt.identity.key == identity.key && debt.ends > now);
        debt.map_or(0, |debt| debt.amount.get())
    }

    /// What was owed for the key has been charged along with its last take.
    pub(crate) fn paid(&mut self, identity: &Identity) {
        self.0.retain(|debt| debt.identity.key != identity.key);
    }

    /// Owes for an ask that was admitted and not charged.
    pub(crate) fn owe(&mut self, ask: &Ask<'_>, judged: &Judged, now: Timestamp, metrics: &mut Metrics) {
        self.0.retain(|debt| debt.ends > now);
        let amount = ask.take.amount;
        let reset_ms = judged.outcomes().map(|outcome| outcome.reset_ms).max().unwrap_or(0);
        let ends = Timestamp::from_ms(now.ms().saturating_add(reset_ms));
        if let Some(debt) = self.0.iter_mut().find(|debt| debt.identity.key == ask.identity.key) {
            debt.amount = debt.amount.saturating_add(amount.get());
            debt.ends = debt.ends.max(ends);
        } else if self.0.len() < DEBTS_MAX {
            self.0.push(Debt {
                rule_index: ask.rule_index,
                limit_set: ask.limit_set,
                identity: ask.identity,
                place: ask.place,
                amount,
                ends,
            });
        } else {
            metrics.add(Metric::DebtDropped, 1);
        }
    }

    /// Pays what can be paid; what cannot waits for the next tick.
    pub(crate) fn pay(&mut self, host: &impl Host, rules: &Rules, metrics: &mut Metrics) {
        if self.0.is_empty() {
            return;
        }
        let Ok(now_ns) = host.now_ns() else { return };
        let now = Timestamp::from_ms(now_ns.div_euclid(1_000_000));
        self.0.retain(|debt| debt.ends > now);
        let due: Vec<Debt> = self.0.iter().take(PAID_PER_TICK_MAX).copied().collect();
        for debt in due {
            let Some((rule, limits)) = rules.limits(debt.rule_index, debt.limit_set) else { continue };
            let ask = Ask {
                rule,
                rule_index: debt.rule_index,
                limit_set: debt.limit_set,
                limits,
                identity: debt.identity,
                place: debt.place,
                take: Take::force(debt.amount),
                enforced: true,
            };
            if pay_one(host, &ask, now, metrics) {
                self.paid(&debt.identity);
            }
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
