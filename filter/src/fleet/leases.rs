//! Grants that this VM has asked for: how much to ask for ahead of demand, and what must go back.
//!
//! The grants themselves lie in the table, where every worker spends them. Who asked for one answers for it: when its
//! time is over, that VM takes what is left out of the table and gives it back. A grant ends after two seconds, or with
//! the window that it was taken from; it is not spent after that, so taking it out late does no harm.
//!
//! What a VM asks for follows what it spent: enough for some ticks, never more than a few percent of the limit, and
//! less and less as the fleet comes near it, so that the last of it is not left lying with a proxy that has no use for
//! it.

use crate::ask::{Ask, Case, Ended, Home};
use crate::charge::{Evictions, update};
use crate::clock::Clock;
use crate::fleet::outbox::{Outbox, Refund};
use crate::host::Host;
use crate::metrics::{Metric, Metrics};
use crate::planted::{self, Bug};
use core::num::NonZeroU64;
use std::collections::BTreeMap;
use tidegate_config::LIMITS_MAX;
use tidegate_core::{Grant, Outcome, Retry, Timestamp};

/// Keys that a VM asks ahead for. Requests of others wait for the counter.
const LEASES_MAX: usize = 4_096;
/// The longest that a grant lives: what an idle proxy holds is back with the fleet by then.
pub(crate) const GRANT_MS_MAX: u64 = 2_000;
/// A chunk is at most one part in so many of the limit, or what the limit allows in this time if that is more: in a
/// short window a smaller one would not last from tick to tick.
const CHUNKS_IN_LIMIT: u64 = 32;
const CHUNK_LASTS_MS: u64 = 200;
/// A chunk is at most one part in so many of each proxy's share of what is left.
const CHUNKS_IN_REST: u64 = 4;
/// How many ticks' demand of this VM a chunk should last, and should at least be left at a tick: other workers spend
/// from the same grant, and demand comes in bursts.
const TICKS_AHEAD: u64 = 8;
/// A lease without demand is forgotten after so many ticks.
const IDLE_TICKS_MAX: u32 = 50;
/// For how long an exhausted limit is not asked for a chunk again, at most: a little longer than a denial is
/// remembered, so that a request that asks again is the only one.
const EXHAUSTED_MS_MAX: u64 = 5_500;

/// The key, the variant of the rule, the plan.
type LeaseKey = (u64, u32, usize);

/// What this VM knows of the grants of one key.
struct Lease {
    ask: Ask,
    /// What its requests asked for since the last tick, and in a tick lately.
    wanted: u64,
    wanted_per_tick: u64,
    idle_ticks: u32,
    /// What was left when it was last looked at.
    left: u64,
    /// What remained of each limit, as the counter last said.
    remaining: [u64; LIMITS_MAX],
    is_hungry: bool,
    is_asked_for: bool,
    /// Until then the counter has nothing to grant, on the monotonic clock.
    exhausted_until: Timestamp,
    /// What was granted to this VM and must go back.
    held: [Option<Held>; LIMITS_MAX],
}

/// A grant that this VM answers for.
#[derive(Clone, Copy)]
struct Held {
    receipt: u64,
    until: Timestamp,
    window: u32,
}

/// A chunk that the counter is asked for.
pub(crate) struct ChunkAsk {
    pub(crate) ask: Ask,
    /// How much of each limit.
    pub(crate) amounts: Vec<NonZeroU64>,
}

/// All that this VM leases.
#[derive(Default)]
pub(crate) struct Leases {
    by_key: BTreeMap<LeaseKey, Lease>,
    /// Who asks first when the next call has not room for all: whoever comes after the last that asked.
    next: LeaseKey,
}

fn key(ask: &Ask) -> LeaseKey {
    (ask.identity.key, ask.rule.variant, ask.limit_set)
}

impl Leases {
    /// A request was admitted by a grant.
    pub(crate) fn spent(&mut self, case: &Case) {
        let left = case.judged.outcomes().map(|outcome| outcome.remaining).min().unwrap_or(0);
        if let Some(lease) = self.open(&case.ask) {
            lease.wanted = lease.wanted.saturating_add(case.ask.take.amount.get());
            lease.left = left;
        }
    }

    /// A request found too little.
    pub(crate) fn lacked(&mut self, ask: &Ask) {
        if let Some(lease) = self.open(ask) {
            lease.wanted = lease.wanted.saturating_add(ask.take.amount.get());
            lease.left = 0;
            lease.is_hungry = true;
        }
    }

    fn open(&mut self, ask: &Ask) -> Option<&mut Lease> {
        let key = key(ask);
        if self.by_key.len() >= LEASES_MAX && !self.by_key.contains_key(&key) {
            return None;
        }
        let lease = self.by_key.entry(key).or_insert_with(|| Lease {
            ask: Ask { home: Home::Leased, ..ask.clone() },
            wanted: 0,
            wanted_per_tick: 0,
            idle_ticks: 0,
            left: 0,
            remaining: [u64::MAX; LIMITS_MAX],
            is_hungry: false,
            is_asked_for: false,
            exhausted_until: Timestamp::from_ms(0),
            held: [None; LIMITS_MAX],
        });
        Some(lease)
    }

    /// Looks at the demand since the last tick, and gives back what has ended.
    pub(crate) fn tick(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        outbox: &mut Outbox,
        metrics: &mut Metrics,
    ) {
        for lease in self.by_key.values_mut() {
            // What was wanted lately fades, so that a pause between bursts does not start all over.
            let faded = lease.wanted_per_tick.saturating_mul(3).div_euclid(4);
            lease.idle_ticks = if lease.wanted == 0 { lease.idle_ticks.saturating_add(1) } else { 0 };
            lease.wanted_per_tick = lease.wanted.max(faded);
            lease.wanted = 0;
            let is_wanted = lease.wanted_per_tick > 0;
            let is_short = lease.left < lease.wanted_per_tick.saturating_mul(TICKS_AHEAD);
            lease.is_hungry = is_wanted && (lease.is_hungry || is_short);
            lease.give_back(host, clock, clock.monotonic, outbox, metrics);
        }
        self.by_key
            .retain(|_, lease| lease.idle_ticks < IDLE_TICKS_MAX || lease.held.iter().any(Option::is_some));
    }

    /// The plugin ends: everything goes back at once.
    pub(crate) fn end(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        outbox: &mut Outbox,
        metrics: &mut Metrics,
    ) {
        for lease in self.by_key.values_mut() {
            lease.is_hungry = false;
            lease.give_back(host, clock, Timestamp::from_ms(u64::MAX), outbox, metrics);
        }
    }

    /// Chunks to ask for now, at most so many; with more than that each has its turn.
    pub(crate) fn hungry(&mut self, proxies: u32, clock: &Clock, most: usize) -> Vec<ChunkAsk> {
        let is_hungry = |lease: &Lease| {
            lease.is_hungry && !lease.is_asked_for && lease.exhausted_until <= clock.monotonic
        };
        let keys = self.by_key.range(self.next..).chain(self.by_key.range(..self.next));
        let hungry = keys.filter(|(_, lease)| is_hungry(lease)).map(|(key, _)| *key);
        // One more than is asked for now: it is the first the next time.
        let mut asking: Vec<LeaseKey> = hungry.take(most.saturating_add(1)).collect();
        self.next = if asking.len() > most { asking.pop().unwrap_or_default() } else { LeaseKey::default() };
        let mut chunks = Vec::with_capacity(asking.len());
        for key in asking {
            if let Some(lease) = self.by_key.get_mut(&key) {
                lease.is_asked_for = true;
                chunks.push(lease.chunk(proxies));
            }
        }
        chunks
    }

    /// The counter has granted, or has nothing more.
    pub(crate) fn granted(
        &mut self,
        host: &impl Host,
        ask: &Ask,
        (asked_at, counter_now): (Timestamp, Timestamp),
        outcomes: &[Outcome],
        clock: &Clock,
        (outbox, metrics): (&mut Outbox, &mut Metrics),
    ) {
        // What has ended must be out of the table before more comes in.
        if let Some(lease) = self.by_key.get_mut(&key(ask)) {
            lease.give_back(host, clock, clock.monotonic, outbox, metrics);
        }
        let mut grants = [None; LIMITS_MAX];
        let mut held = [None; LIMITS_MAX];
        let mut refund = Refund { ask: ask.clone(), taken: [(0, 0); LIMITS_MAX] };
        for (index, (counted, outcome)) in ask.limits().iter().zip(outcomes).enumerate() {
            let moment = counted.moment(&ask.identity, counter_now);
            let end = counted.wire.limit.window_end(outcome.receipt, moment);
            let lasts_ms = end.map_or(GRANT_MS_MAX, |end| end.ms_since(counter_now)).min(GRANT_MS_MAX);
            let lasts_ms = if planted::has(Bug::GrantOutlivesItsWindow) { 60_000 } else { lasts_ms };
            // Counted from when it was asked for: the counter's answer took its time.
            let until = Timestamp::from_ms(asked_at.ms().saturating_add(lasts_ms));
            if outcome.taken == 0 {
                continue;
            }
            if until <= clock.monotonic {
                set(&mut refund.taken, index, (outcome.receipt, outcome.taken));
            } else {
                let window = end.map_or(0, |_| Grant::window(outcome.receipt));
                set(&mut grants, index, Some(Grant { left: outcome.taken, until, window }));
                set(&mut held, index, Some(Held { receipt: outcome.receipt, until, window }));
            }
        }
        let mut joined = grants;
        let is_added = grants.iter().all(Option::is_none)
            || update(host, ask.place, metrics, &mut |slot| {
                let evictions;
                (joined, evictions) = ask.add_grants(slot, &grants, clock);
                evictions
            });
        if !is_added {
            for (index, outcome) in outcomes.iter().enumerate() {
                set(&mut refund.taken, index, (outcome.receipt, outcome.taken));
            }
        }
        outbox.refund(refund, metrics);
        let Some(lease) = self.open(ask) else { return };
        lease.is_asked_for = false;
        lease.is_hungry = false;
        if is_added {
            lease.hold(held, &joined, &grants);
        }
        lease.hear(outcomes, clock);
    }

    /// The counter has refused a request: there is nothing to grant either.
    pub(crate) fn refused(&mut self, case: &Case, clock: &Clock) {
        if let Some(lease) = self.by_key.get_mut(&key(&case.ask)) {
            let outcomes: Vec<Outcome> = case.judged.outcomes().copied().collect();
            lease.hear(&outcomes, clock);
        }
    }

    /// The counter has lost what it knew: there is more than it said, and what it granted is neither spent any more nor
    /// given back.
    pub(crate) fn begin_anew(&mut self, host: &impl Host, clock: &Clock, metrics: &mut Metrics) {
        for lease in self.by_key.values_mut() {
            lease.remaining = [u64::MAX; LIMITS_MAX];
            lease.exhausted_until = Timestamp::from_ms(0);
            lease.take_out(host, clock, Timestamp::from_ms(u64::MAX), metrics);
            lease.held = [None; LIMITS_MAX];
        }
    }

    /// What came of an ask for a chunk is not known, or it was never made.
    pub(crate) fn forget_ask(&mut self, ask: &Ask) {
        if let Some(lease) = self.by_key.get_mut(&key(ask)) {
            lease.is_asked_for = false;
        }
    }

    /// What the fleet has left, as the counter last said.
    pub(crate) fn remaining(&self, ask: &Ask) -> Option<u64> {
        let lease = self.by_key.get(&key(ask))?;
        lease.remaining.iter().copied().min().filter(|remaining| *remaining < u64::MAX)
    }
}

impl Lease {
    fn chunk(&self, proxies: u32) -> ChunkAsk {
        let wanted = self.wanted_per_tick.max(self.wanted).saturating_mul(TICKS_AHEAD).max(1);
        let amount = |(index, counted): (usize, &crate::rules::CountedLimit)| {
            let limit = &counted.wire.limit;
            let allowed = limit.requests().saturating_mul(CHUNK_LASTS_MS);
            let lasting = allowed.checked_div(limit.window_ms()).unwrap_or(0).min(limit.capacity());
            let limit_max = limit.capacity().div_euclid(CHUNKS_IN_LIMIT).max(lasting);
            let remaining = self.remaining.get(index).copied().unwrap_or(u64::MAX);
            let sharers = u64::from(proxies).saturating_mul(CHUNKS_IN_REST);
            let rest_max = remaining.checked_div(sharers).unwrap_or(remaining);
            NonZeroU64::new(wanted.min(limit_max).min(rest_max)).unwrap_or(NonZeroU64::MIN)
        };
        ChunkAsk {
            ask: self.ask.clone(),
            amounts: self.ask.limits().iter().enumerate().map(amount).collect(),
        }
    }

    /// What this VM answers for ends when the grant in the table does, of which it is a part now.
    fn hold(
        &mut self,
        held: [Option<Held>; LIMITS_MAX],
        joined: &[Option<Grant>; LIMITS_MAX],
        grants: &[Option<Grant>; LIMITS_MAX],
    ) {
        for ((known, new), joined) in self.held.iter_mut().zip(held).zip(joined) {
            let until = joined.as_ref().map(|joined| joined.until);
            let new = new.map(|new| Held { until: until.unwrap_or(new.until), ..new });
            *known = new.or(*known);
        }
        let granted = grants.iter().flatten().map(|grant| grant.left).min().unwrap_or(0);
        self.left = self.left.saturating_add(granted);
    }

    /// What the counter said of its limits.
    fn hear(&mut self, outcomes: &[Outcome], clock: &Clock) {
        for (remaining, outcome) in self.remaining.iter_mut().zip(outcomes) {
            *remaining = outcome.remaining;
        }
        let wait_ms = outcomes.iter().map(|outcome| match outcome.retry {
            Retry::Now => 0,
            Retry::After(ms) => ms.min(EXHAUSTED_MS_MAX),
            Retry::Never => EXHAUSTED_MS_MAX,
        });
        let until_ms = clock.monotonic.ms().saturating_add(wait_ms.max().unwrap_or(0));
        self.exhausted_until = Timestamp::from_ms(until_ms);
    }

    /// Takes what is left of grants that end by `by` out of the table and gives it back.
    fn give_back(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        by: Timestamp,
        outbox: &mut Outbox,
        metrics: &mut Metrics,
    ) {
        let Some(refund) = self.take_out(host, clock, by, metrics) else { return };
        let returned = refund.parts().map(|(_, _, amount)| amount.get()).max().unwrap_or(0);
        metrics.add(Metric::GrantsReturned, returned);
        if planted::has(Bug::RefundTwice) {
            outbox.refund(Refund { ask: refund.ask.clone(), taken: refund.taken }, metrics);
        }
        outbox.refund(refund, metrics);
    }

    /// Takes what is left of grants that end by `by` out of the table.
    fn take_out(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        by: Timestamp,
        metrics: &mut Metrics,
    ) -> Option<Refund> {
        // Nothing that lasts longer than what this VM holds: that is another's, who looks after it.
        let ended = self.held.map(|held| {
            let ended = held.filter(|held| held.until <= by);
            ended.map(|Held { window, until, .. }| Ended { window, by: until })
        });
        if ended.iter().all(Option::is_none) {
            return None;
        }
        let mut reclaimed = [0; LIMITS_MAX];
        let is_out = update(host, self.ask.place, metrics, &mut |slot| {
            reclaimed = self.ask.reclaim(slot, &ended, clock);
            Evictions::default()
        });
        if !is_out {
            // Nobody spends it meanwhile; the next tick tries again.
            return None;
        }
        self.left = 0;
        let mut refund = Refund { ask: self.ask.clone(), taken: [(0, 0); LIMITS_MAX] };
        for ((held, is_ended), (left, taken)) in
            self.held.iter_mut().zip(ended).zip(reclaimed.iter().zip(&mut refund.taken))
        {
            if let (Some(Held { receipt, .. }), Some(_)) = (*held, is_ended) {
                *taken = (receipt, *left);
                *held = None;
            }
        }
        Some(refund)
    }
}

fn set<T>(list: &mut [T], index: usize, value: T) {
    if let Some(place) = list.get_mut(index) {
        *place = value;
    }
}
