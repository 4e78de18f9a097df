//! What the oracle knows of requests that a proxy admits on its own view of the fleet and reports later.
//!
//! A proxy knows what it has admitted itself, and of the others what the counter had heard of them when it last
//! answered this proxy. An admission is charged between the time it was made and the time it was reported.

use crate::fleet::Circumstances;
use crate::moments::missing;
use crate::oracle::Decision;
use crate::spec::{Algorithm, Limit};
use crate::windows::weighted;
use std::collections::BTreeMap;

/// How long an admission is kept beyond all that can depend on it.
const KEPT_MS: u64 = 60_000;
/// How far a proxy's idea of the counter's clock can be from it: an answer tells it to within a round trip.
pub(crate) const OFF_MS_MAX: u64 = 6;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    proxy: usize,
    vm: (usize, u64),
    step: u64,
    n: u64,
    earliest_ms: u64,
    latest_ms: u64,
    /// The counter's batch that told of it, and the time.
    reported: Option<(u64, u64)>,
    is_excused: bool,
    /// Its VM died before it heard that the counter knows of it: the proxy may count it twice until its window ends.
    is_doubled: bool,
    /// A VM that knew no clock but its own may have put it, or what stood beside it, into another window.
    is_blurred: bool,
}

/// The requests of one key that a rule of the fleet has admitted.
#[derive(Debug, Default)]
pub(crate) struct Admissions {
    all: Vec<Admission>,
    /// By VM: what it has reported and what is less than the oldest that it has not.
    credits: BTreeMap<(usize, u64), u64>,
    /// By proxy: when it was told, and as of which batch of the counter.
    seen: BTreeMap<usize, Vec<(u64, u64)>>,
    /// By proxy: when it lost its shared data.
    lost: BTreeMap<usize, u64>,
    /// How late a report came at most.
    pub(crate) lag_ms_max: u64,
}

impl Admissions {
    pub(crate) fn add(&mut self, decision: &Decision, how: Circumstances, n: u64, is_excused: bool) {
        self.all.retain(|old| old.latest_ms + KEPT_MS >= decision.end_ms);
        if how.is_blind {
            let beside = self.all.iter_mut().filter(|one| one.proxy == how.proxy && one.reported.is_none());
            beside.for_each(|one| one.is_blurred = true);
        }
        self.all.push(Admission {
            proxy: how.proxy,
            vm: how.vm,
            step: how.began_step,
            n,
            earliest_ms: decision.read_ms.unwrap_or(decision.end_ms),
            latest_ms: decision.end_ms,
            reported: None,
            is_excused,
            is_doubled: false,
            is_blurred: how.is_blind,
        });
    }

    /// The counter hears of so much that a VM has admitted: of the oldest.
    pub(crate) fn report(&mut self, vm: (usize, u64), n: u64, (batch, now_ms): (u64, u64), lasts_ms: u64) {
        // What could not be told for so long is forgotten by whoever had to tell it.
        let is_forgotten = |one: &Admission| one.latest_ms + lasts_ms < now_ms;
        let untold = self.all.iter_mut().filter(|one| one.vm == vm && one.reported.is_none());
        untold.filter(|one| is_forgotten(one)).for_each(|one| one.is_excused = true);
        let credit = self.credits.entry(vm).or_default();
        *credit += n;
        for one in
            self.all.iter_mut().filter(|one| one.vm == vm && one.reported.is_none() && !is_forgotten(one))
        {
            let Some(rest) = credit.checked_sub(one.n) else { break };
            *credit = rest;
            one.reported = Some((batch, now_ms));
            self.lag_ms_max = self.lag_ms_max.max(now_ms.saturating_sub(one.latest_ms));
        }
    }

    /// A proxy is told what the counter knew after a batch.
    pub(crate) fn see(&mut self, proxy: usize, step: u64, batch: u64) {
        self.seen.entry(proxy).or_default().push((step, batch));
    }

    pub(crate) fn excuse(&mut self, which: impl Fn(&Admission) -> bool) {
        self.all.iter_mut().filter(|one| which(one)).for_each(|one| one.is_excused = true);
    }

    pub(crate) fn lose_unreported(&mut self, vm: (usize, u64)) {
        for one in self.all.iter_mut().filter(|one| one.vm == vm) {
            let seen = self.seen.get(&one.proxy).into_iter().flatten().map(|(_, batch)| *batch).max();
            one.is_doubled |= one.reported.is_none_or(|(batch, _)| Some(batch) > seen);
        }
        self.excuse(|one| one.vm == vm && one.reported.is_none());
    }

    pub(crate) fn lose_view(&mut self, step: u64, proxy: usize) {
        self.seen.remove(&proxy);
        self.lost.insert(proxy, step);
        self.excuse(|one| one.proxy == proxy && one.reported.is_none());
    }

    /// Which of the counter's batches a proxy has heard of when a request comes.
    fn as_of(&self, how: Circumstances) -> Option<u64> {
        let told = self.seen.get(&how.proxy).into_iter().flatten();
        told.filter(|(step, _)| *step < how.began_step).map(|(_, batch)| *batch).max()
    }

    /// What a proxy must know when a request comes.
    fn known(&self, how: Circumstances) -> impl Iterator<Item = &Admission> {
        let as_of = self.as_of(how);
        let lost_step = self.lost.get(&how.proxy).copied().unwrap_or(0);
        self.all.iter().filter(move |one| {
            let is_reported = one.reported.is_some_and(|(batch, _)| Some(batch) <= as_of);
            !one.is_excused
                && (is_reported || one.proxy == how.proxy && one.step > lost_step && !one.is_blurred)
        })
    }

    /// By how much the fleet is over; an error if the proxy is over on what it knows.
    pub(crate) fn judge(
        &self,
        decision: &Decision,
        (how, n): (Circumstances, u64),
        limits: &[Limit],
        grid: impl Fn(&Limit) -> (u64, u64),
        is_excused: bool,
    ) -> Result<u64, String> {
        let mut over_max = 0;
        let as_of = self.as_of(how);
        let is_pending = |one: &Admission| one.reported.is_none_or(|(batch, _)| Some(batch) > as_of);
        for limit in limits {
            let known: Vec<&Admission> = self.known(how).collect();
            let used = used_at_least(&known, is_pending, decision, limit, grid(limit));
            if !is_excused && used.is_some_and(|used| used + n > limit.capacity()) {
                let used = used.unwrap_or(0);
                return Err(format!("over the limit on what the proxy knows: {limit}, {used} used"));
            }
            let all: Vec<&Admission> = self.all.iter().collect();
            let used = used_at_least(&all, is_pending, decision, limit, grid(limit)).unwrap_or(0);
            over_max = over_max.max((used + n).saturating_sub(limit.capacity()));
        }
        Ok(over_max)
    }

    /// The most that anybody can think is used, as of when the request came.
    pub(crate) fn used_at_most(
        &self,
        decision: &Decision,
        limit: &Limit,
        (shift_ms, span_ms): (u64, u64),
    ) -> u64 {
        let at_ms = decision.read_ms.unwrap_or(decision.end_ms);
        let charged_ms = |one: &Admission| one.reported.map_or(decision.end_ms, |(_, at_ms)| at_ms);
        // A window's edge may lie between; the one before counts whole then, and no less otherwise.
        let since_ms = match limit.algorithm {
            Algorithm::FixedWindow => at_ms - (at_ms + shift_ms) % limit.window_ms,
            _ => at_ms.saturating_sub(2 * span_ms),
        };
        let counts = self.all.iter().filter(|one| charged_ms(one).max(one.latest_ms) >= since_ms);
        counts.map(|one| if one.is_doubled { 2 * one.n } else { one.n }).sum()
    }
}

fn sum<'a>(admissions: impl Iterator<Item = &'a Admission>) -> u64 {
    admissions.map(|one| one.n).sum()
}

/// What of these is certainly used at a decision's end; nothing can be told across a window's edge.
///
/// What the counter has not acknowledged to a proxy it keeps in two weighted windows, whatever the algorithm.
fn used_at_least(
    all: &[&Admission],
    is_pending: impl Fn(&Admission) -> bool,
    decision: &Decision,
    limit: &Limit,
    (shift_ms, rate_max): (u64, u64),
) -> Option<u64> {
    let window = |at_ms: u64| (at_ms + shift_ms) / limit.window_ms;
    let charged_ms =
        |one: &Admission| one.reported.map_or(one.latest_ms, |(_, at_ms)| at_ms.max(one.latest_ms));
    let end_ms = decision.end_ms;
    let passed_ms = ((end_ms + shift_ms) % limit.window_ms + OFF_MS_MAX).min(limit.window_ms);
    let is_weighted = |one: &Admission| {
        is_pending(one) && window(one.earliest_ms - OFF_MS_MAX) != window(end_ms + OFF_MS_MAX)
    };
    let before = |number: u64| {
        let is_it = |one: &&Admission| is_weighted(one) && window(one.earliest_ms - OFF_MS_MAX) == number;
        // Near an edge it may be either's; then nothing of it is certain.
        let is_near = window(end_ms + OFF_MS_MAX) != window(end_ms);
        let pending = if is_near { 0 } else { sum(all.iter().copied().filter(is_it)) };
        weighted(pending, limit.window_ms, passed_ms)
    };
    let of_pending = before(window(end_ms).saturating_sub(1));
    let whole = || all.iter().copied().filter(|one| !is_weighted(one));
    match limit.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let made = whole().map(|one| (one.earliest_ms, one.n)).collect();
            Some(missing(made, rate_max, limit.window_ms, end_ms + OFF_MS_MAX) + of_pending)
        }
        Algorithm::SlidingLog | Algorithm::SlidingBuckets => {
            let in_window = |one: &&Admission| one.earliest_ms + limit.window_ms > end_ms + OFF_MS_MAX;
            Some(sum(whole().filter(in_window)) + of_pending)
        }
        Algorithm::FixedWindow | Algorithm::SlidingWindow => {
            let now = window(end_ms);
            let begun = window(decision.read_ms.unwrap_or(end_ms) - OFF_MS_MAX);
            if begun != now || window(end_ms + OFF_MS_MAX) != now {
                return None;
            }
            let whole = |number: u64| {
                let is_in = |one: &&Admission| {
                    window(one.earliest_ms - OFF_MS_MAX) == number
                        && window(charged_ms(one) + OFF_MS_MAX) == number
                };
                sum(all.iter().copied().filter(is_in))
            };
            let before = match limit.algorithm {
                Algorithm::SlidingWindow => {
                    let passed_ms = (end_ms + shift_ms) % limit.window_ms + OFF_MS_MAX;
                    weighted(whole(now - 1), limit.window_ms, passed_ms.min(limit.window_ms))
                }
                _ => 0,
            };
            Some(whole(now) + before)
        }
    }
}
