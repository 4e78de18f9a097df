//! Charges after the response: what a request reserved is given back, kept, or added to.
//!
//! A settlement that cannot be made at once is not lost: what is missing becomes a debt, and what is too much waits
//! for a tick.

use crate::ask::{Ask, Case, NOTHING_OWED};
use crate::charge::{Evictions, update};
use crate::clock::Clock;
use crate::debts::Debts;
use crate::headers::Headers;
use crate::host::{Host, now};
use crate::metrics::{Metric, Metrics};
use core::num::NonZeroU64;
use tidegate_config::{LIMITS_MAX, ResponseParts};
use tidegate_core::{Take, Timestamp};

/// Refunds that a VM keeps for a tick. Beyond that one is lost and counted.
const REFUNDS_MAX: usize = 1024;
/// Refunds that one tick tries to make.
const REFUNDS_PER_TICK_MAX: usize = 64;

/// What a request took of a rule that charges after the response.
#[derive(Clone)]
pub(crate) struct Reservation {
    /// What was taken, and from whom.
    ask: Ask,
    /// What a refund must name, for each of the limits.
    receipts: [u64; LIMITS_MAX],
    /// When it was taken, and when the windows are over that it was taken from: a refund means nothing then.
    since: Timestamp,
    ends: [Timestamp; LIMITS_MAX],
}

impl Reservation {
    /// What the cases of an admitted request have reserved.
    pub(crate) fn of(cases: &[Case], now: Timestamp) -> Vec<Self> {
        let reserves = |case: &&Case| case.ask.rule.settlement.is_some() && !case.judged.is_refused();
        cases.iter().filter(reserves).map(|case| Self::new(case, now)).collect()
    }

    fn new(Case { ask, judged }: &Case, now: Timestamp) -> Self {
        Self { ask: ask.clone(), receipts: judged.receipts(), since: now, ends: judged.ends_of_limits(now) }
    }

    /// Gives back a part of it; false if that must be tried again.
    fn refund(&self, host: &impl Host, amount: NonZeroU64, now: Timestamp, metrics: &mut Metrics) -> bool {
        update(host, self.ask.place, metrics, &mut |slot| {
            self.ask.refund(slot, self.receipts.iter().copied(), amount.get(), &Clock::wall(now));
            Evictions::default()
        })
    }

    /// Charges more than was reserved, into debt if need be; without a time, or when it cannot be made, it is owed.
    fn charge(
        &self,
        host: &impl Host,
        more: NonZeroU64,
        now: Option<Timestamp>,
        (debts, metrics): (&mut Debts, &mut Metrics),
    ) {
        let ask = self.ask.with(Take::force(more));
        let mut ends = self.ends;
        let is_made = now.is_some_and(|now| {
            update(host, self.ask.place, metrics, &mut |slot| {
                let judged = ask.judge(slot, &Clock::wall(now), &NOTHING_OWED);
                ends = judged.ends_of_limits(now);
                ask.put(slot, &judged, &Clock::wall(now))
            })
        });
        if !is_made {
            metrics.add(Metric::CasGiveUps, 1);
            debts.owe(&ask, ends, &Clock::wall(now.unwrap_or(self.since)), metrics);
        }
    }
}

/// Refunds that could not be made at once.
#[derive(Default)]
pub(crate) struct Refunds(Vec<(Reservation, NonZeroU64)>);

impl Refunds {
    fn make(
        &mut self,
        host: &impl Host,
        reservation: Reservation,
        amount: NonZeroU64,
        now: Option<Timestamp>,
        (debts, metrics): (&mut Debts, &mut Metrics),
    ) {
        // What this VM still owes for the key was never charged: that part is forgiven, not given back.
        let left = debts.forgive(&reservation.ask.with(Take::all(amount)));
        let Some(amount) = NonZeroU64::new(left) else { return };
        if !now.is_some_and(|now| reservation.refund(host, amount, now, metrics)) {
            self.keep(reservation, amount, metrics);
        }
    }

    fn keep(&mut self, reservation: Reservation, amount: NonZeroU64, metrics: &mut Metrics) {
        if self.0.len() < REFUNDS_MAX {
            self.0.push((reservation, amount));
        } else {
            metrics.add(Metric::UndosLost, 1);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes what can be made; what cannot waits for the next tick, as long as its window lasts.
    pub(crate) fn retry(&mut self, host: &impl Host, now: Timestamp, metrics: &mut Metrics) {
        self.0.retain(|(reservation, _)| reservation.ends.iter().any(|end| *end > now));
        let due = self.0.len().min(REFUNDS_PER_TICK_MAX);
        for (reservation, amount) in self.0.drain(..due).collect::<Vec<_>>() {
            if !reservation.refund(host, amount, now, metrics) {
                self.keep(reservation, amount, metrics);
            }
        }
    }

    /// The plugin ends: what is left is lost.
    pub(crate) fn lose(&mut self, metrics: &mut Metrics) {
        metrics.add(Metric::UndosLost, u64::try_from(self.0.len()).unwrap_or(u64::MAX));
        self.0.clear();
    }
}

/// A response's headers, as settlements see them.
struct Response<'a>(Headers<'a>);

impl ResponseParts for Response<'_> {
    fn header(&self, name: &[u8], each: &mut dyn FnMut(&[u8])) {
        for (_, value) in self.0.iter().filter(|(other, _)| *other == name) {
            each(value);
        }
    }
}

/// Settles what a request reserved, by the bytes of its response's headers if there are any.
pub(crate) fn settle(
    host: &impl Host,
    reservations: Vec<Reservation>,
    response: Option<&[u8]>,
    (debts, refunds, metrics): (&mut Debts, &mut Refunds, &mut Metrics),
) {
    let response = response.and_then(Headers::parse).map(Response);
    let response = response.as_ref().map(|response| -> &dyn ResponseParts { response });
    let mut now = None;
    for reservation in reservations {
        let Some(settlement) = &reservation.ask.rule.settlement else { continue };
        let amount = reservation.ask.take.amount;
        let (reserved, charged) = (amount.get(), settlement.charge(amount, response));
        if charged == reserved {
            continue;
        }
        let now =
            *now.get_or_insert_with(|| self::now(host).inspect_err(|_| metrics.add(Metric::Errors, 1)).ok());
        if let Some(refund) = NonZeroU64::new(reserved.saturating_sub(charged)) {
            refunds.make(host, reservation, refund, now, (debts, metrics));
        } else if let Some(more) = NonZeroU64::new(charged.saturating_sub(reserved)) {
            reservation.charge(host, more, now, (debts, metrics));
        }
    }
}
