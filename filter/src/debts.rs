//! Charges that could not be made: a slot too contended, a write that failed. The request was admitted, so
//! the charge is owed, and made with the key's next charge or from the tick: late, not lost.

use crate::charge::{Ask, Judged};
use crate::host::Host;
use crate::identity::Identity;
use crate::metrics::{Metric, Metrics};
use crate::rules::Rule;
use crate::table::Table;
use core::num::NonZeroU64;
use std::collections::BTreeMap;
use tidegate_core::{Take, Timestamp};

/// Keys that a VM can owe for. Beyond that a debt is dropped and counted.
const DEBTS_MAX: usize = 1024;
/// Debts that one tick tries to pay.
const PAID_PER_TICK_MAX: usize = 64;

/// What this VM owes.
#[derive(Default)]
pub(crate) struct Debts {
    by_key: BTreeMap<u64, Debt>,
}

#[derive(Clone, Copy)]
struct Debt {
    rule_index: usize,
    identity: Identity,
    slot: u32,
    amount: NonZeroU64,
    /// When the longest of the rule's windows that it belongs to ends: then nobody misses it.
    ends: Timestamp,
}

impl Debts {
    /// How much is owed for a key.
    pub(crate) fn owed(&self, identity: &Identity, now: Timestamp) -> u64 {
        self.by_key.get(&identity.key).filter(|debt| debt.ends > now).map_or(0, |debt| debt.amount.get())
    }

    /// What was owed for the key has been charged along with its last take.
    pub(crate) fn paid(&mut self, identity: &Identity) {
        if !self.by_key.is_empty() {
            self.by_key.remove(&identity.key);
        }
    }

    /// Owes for an ask that was admitted and not charged.
    pub(crate) fn owe(&mut self, ask: &Ask<'_>, judged: &Judged, now: Timestamp, metrics: &mut Metrics) {
        self.by_key.retain(|_, debt| debt.ends > now);
        let key = ask.identity.key;
        if self.by_key.len() >= DEBTS_MAX && !self.by_key.contains_key(&key) {
            metrics.add(Metric::DebtDropped, 1);
            return;
        }
        let amount = ask.take.amount;
        let reset_ms = judged.outcomes().map(|outcome| outcome.reset_ms).max().unwrap_or(0);
        let ends = Timestamp::from_ms(now.ms().saturating_add(reset_ms));
        let fresh = Debt { rule_index: ask.rule_index, identity: ask.identity, slot: ask.slot, amount, ends };
        self.by_key
            .entry(key)
            .and_modify(|debt| {
                debt.amount = debt.amount.saturating_add(amount.get());
                debt.ends = debt.ends.max(ends);
            })
            .or_insert(fresh);
    }

    /// Pays what can be paid; what cannot waits for the next tick.
    pub(crate) fn pay(&mut self, host: &impl Host, rules: &[Rule], metrics: &mut Metrics) {
        if self.by_key.is_empty() {
            return;
        }
        let Ok(now_ns) = host.now_ns() else { return };
        let now = Timestamp::from_ms(now_ns.div_euclid(1_000_000));
        self.by_key.retain(|_, debt| debt.ends > now);
        let due: Vec<Debt> = self.by_key.values().take(PAID_PER_TICK_MAX).copied().collect();
        for debt in due {
            let Some(rule) = rules.get(debt.rule_index) else { continue };
            let ask = Ask {
                rule,
                rule_index: debt.rule_index,
                identity: debt.identity,
                slot: debt.slot,
                take: Take::force(debt.amount),
            };
            if pay_one(host, &ask, now, metrics) {
                self.paid(&debt.identity);
            }
        }
    }
}

fn pay_one(host: &impl Host, ask: &Ask<'_>, now: Timestamp, metrics: &mut Metrics) -> bool {
    let Ok(read) = Table::read(host, ask.slot) else { return false };
    let mut slot = read.slot;
    let judged = ask.judge(&slot, now, 0);
    let evictions = ask.put(&mut slot, &judged, now);
    let is_paid = Table::write(host, ask.slot, &slot, read.cas).is_ok();
    if is_paid {
        evictions.count(metrics);
    }
    is_paid
}
