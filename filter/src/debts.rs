//! Charges that could not be made: a slot too contended, a write that failed. The request was admitted, so
//! the charge is owed, and made with the key's next charge or from the tick: late, not lost.

use crate::ask::{Ask, NOTHING_OWED, Owed};
use crate::charge::update;
use crate::clock::Clock;
use crate::host::Host;
use crate::metrics::{Metric, Metrics};
use tidegate_config::LIMITS_MAX;
use tidegate_core::Timestamp;

/// Keys that a VM can owe for. Beyond that a debt is dropped and counted.
const DEBTS_MAX: usize = 1024;
/// Debts that one tick tries to pay.
const PAID_PER_TICK_MAX: usize = 64;

/// What this VM owes, a debt for each key. Nearly always nothing, so a list will do.
#[derive(Default)]
pub(crate) struct Debts(Vec<Debt>);

#[derive(Clone)]
struct Debt {
    /// To whom it is owed.
    ask: Ask,
    /// How much in each limit, and until when: nobody misses it once the window that it belongs to is over.
    limits: [(u64, Timestamp); LIMITS_MAX],
}

impl Debts {
    /// How much is owed for a key.
    pub(crate) fn owed(&self, ask: &Ask, clock: &Clock) -> Owed {
        let debt = self.0.iter().find(|debt| debt.ask.is_about_the_same(ask));
        debt.map_or(NOTHING_OWED, |debt| debt.counts(clock))
    }

    /// What was owed for the key has been charged along with its last take.
    pub(crate) fn paid(&mut self, ask: &Ask) {
        self.0.retain(|debt| !debt.ask.is_about_the_same(ask));
    }

    /// Owes for an ask that was admitted and not charged, in each limit until its window ends.
    pub(crate) fn owe(
        &mut self,
        ask: &Ask,
        ends: [Timestamp; LIMITS_MAX],
        clock: &Clock,
        metrics: &mut Metrics,
    ) {
        self.0.retain(|debt| debt.is_alive(clock));
        let amount = ask.take.amount.get();
        if let Some(debt) = self.0.iter_mut().find(|debt| debt.ask.is_about_the_same(ask)) {
            let counts = debt.counts(clock);
            for (((owed, until), counts), end) in debt.limits.iter_mut().zip(counts).zip(ends) {
                *owed = counts.saturating_add(amount);
                *until = end.max(*until);
            }
        } else if self.0.len() < DEBTS_MAX {
            self.0.push(Debt { ask: ask.clone(), limits: ends.map(|end| (amount, end)) });
        } else {
            metrics.add(Metric::DebtDropped, 1);
        }
    }

    /// Owes less by as much as is asked for, and says what is left of that.
    pub(crate) fn forgive(&mut self, ask: &Ask) -> u64 {
        let amount = ask.take.amount.get();
        let mut forgiven_max = 0;
        for debt in self.0.iter_mut().filter(|debt| debt.ask.is_about_the_same(ask)) {
            for (owed, _) in &mut debt.limits {
                forgiven_max = forgiven_max.max(amount.min(*owed));
                *owed = owed.saturating_sub(amount);
            }
        }
        self.0.retain(|debt| debt.limits.iter().any(|(owed, _)| *owed > 0));
        amount.saturating_sub(forgiven_max)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Pays what can be paid; what cannot waits for the next tick.
    pub(crate) fn pay(&mut self, host: &impl Host, clock: &Clock, metrics: &mut Metrics) {
        self.0.retain(|debt| debt.is_alive(clock));
        let due: Vec<Debt> = self.0.iter().take(PAID_PER_TICK_MAX).cloned().collect();
        for debt in due {
            let owed = debt.counts(clock);
            let is_paid = update(host, debt.ask.place, metrics, &mut |slot| debt.ask.pay(slot, &owed, clock));
            if is_paid {
                self.paid(&debt.ask);
            }
        }
    }
}

impl Debt {
    /// How much of it still counts.
    fn counts(&self, clock: &Clock) -> Owed {
        let now = clock.of(self.ask.home);
        self.limits.map(|(owed, until)| if until > now { owed } else { 0 })
    }

    fn is_alive(&self, clock: &Clock) -> bool {
        self.counts(clock) != NOTHING_OWED
    }
}
