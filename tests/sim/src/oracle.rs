//! The oracle: sees every decision and knows what the fault table of the design allows.
//!
//! It counts admissions for itself and knows nothing of the filter's states. For each counter it keeps what was
//! admitted, what of that a fault excuses (the charge may be missing), and which charges a fault may have left
//! behind (so that a denial may come early). Two questions are asked of every decision:
//! - admitted: with those that no fault excuses, is it within the limit?
//! - denied: with all that may have been charged, is there no room left?
//!
//! A decision takes time, and others happen meanwhile. The first question is asked as of the decision's end, when
//! what was charged before weighs least, the second as of the time that the filter read.

use crate::identity::{self, Place};
use crate::moments::Moments;
use crate::spec::{Algorithm, Limit, Rule};
use crate::windows::Windows;
use std::collections::BTreeMap;

/// How long a VM remembers a denial, and some more for clocks that drift.
const DENIAL_REMEMBERED_NS: u64 = 1_200_000_000;

/// How long a counter is remembered that nobody asks for, in times that a charge matters.
const SPANS_KEPT: u64 = 4;

/// A rule that applies to a request, for one key.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'c> {
    pub(crate) rule: &'c Rule,
    pub(crate) key: Vec<u8>,
    /// The slot of its counters: a key that a resize moves starts again.
    pub(crate) place: Place,
    /// How much the request counts.
    pub(crate) n: u64,
}

/// A counter: one limit of one rule for one key in one proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CounterId {
    pub(crate) proxy: usize,
    pub(crate) rule: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) window_ms: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) place: Place,
}

impl CounterId {
    pub(crate) fn new(proxy: usize, subject: &Subject<'_>, limit: &Limit) -> Self {
        Self {
            proxy,
            rule: subject.rule.name.clone(),
            algorithm: limit.algorithm,
            window_ms: limit.window_ms,
            key: subject.key.clone(),
            place: subject.place,
        }
    }
}

/// What was admitted and what may have been charged.
#[derive(Debug)]
pub(crate) enum Past {
    Windows(Windows),
    Moments(Moments),
}

impl Past {
    /// Nothing, of a counter whose windows are shifted.
    pub(crate) fn new(limit: &Limit, shift_ms: u64) -> Self {
        if limit.counts_in_windows() {
            Self::Windows(Windows::new(if limit.is_clock_aligned { 0 } else { shift_ms }))
        } else {
            Self::Moments(Moments::default())
        }
    }

    /// By how much the limit is passed now, excuses or not; or how much was used, if that is a failure.
    pub(crate) fn admit(
        &mut self,
        limit: &Limit,
        decision: &Decision,
        n: u64,
        is_excused: bool,
    ) -> Result<u64, u64> {
        match self {
            Self::Windows(windows) => windows.admit(limit, decision, n, is_excused),
            Self::Moments(moments) => moments.admit(limit, decision, n, is_excused),
        }
    }

    /// Whatever was admitted so far is excused.
    pub(crate) fn empty(&mut self) {
        match self {
            Self::Windows(windows) => windows.empty(),
            Self::Moments(moments) => moments.empty(),
        }
    }
}

#[derive(Debug)]
struct Counter {
    past: Past,
    /// How long a charge matters, by the largest limit seen.
    span_ms: u64,
    /// The step of the last fault that emptied it.
    emptied_step: u64,
    /// Until then, on the proxy's clock, a denial needs no reason: the clock stepped back.
    unsure_until_ms: u64,
    /// When requests that had charged it, and how much, were denied after all.
    undone_ns: Vec<(u64, u64)>,
    /// When it was last asked, on the proxy's clock.
    asked_ms: u64,
}

/// What the oracle is told of a decision.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) proxy: usize,
    /// The proxy's time as the filter read it.
    pub(crate) read_ms: Option<u64>,
    /// The proxy's time at the decision's end.
    pub(crate) end_ms: u64,
    /// The true time at the decision's end.
    pub(crate) now_ns: u64,
    /// The step of the first write to a slot.
    pub(crate) first_write_step: Option<u64>,
    /// Whether a fault hit it.
    pub(crate) is_faulty: bool,
}

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    counters: BTreeMap<CounterId, Counter>,
    /// The step of the last fault that emptied a counter of which no decision is known yet.
    emptied_unknown: BTreeMap<CounterId, u64>,
    /// By how much a limit was passed at most, excuses or not.
    pub(crate) over_max: u64,
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
}

impl Oracle {
    fn counter(&mut self, id: &CounterId, limit: &Limit, decision: &Decision) -> &mut Counter {
        let emptied_step = self.emptied_unknown.remove(id);
        let counter = self.counters.entry(id.clone()).or_insert_with(|| Counter::new(id, limit));
        counter.emptied_step = counter.emptied_step.max(emptied_step.unwrap_or(0));
        counter.asked_ms = decision.end_ms;
        counter.span_ms = counter.span_ms.max(limit.span_ms());
        counter
    }

    /// A request went on. Every limit of every enforced rule must have had room.
    pub(crate) fn admit(&mut self, decision: &Decision, subjects: &[Subject<'_>]) -> Result<(), String> {
        self.admitted += 1;
        for subject in subjects.iter().filter(|subject| subject.rule.is_followed()) {
            let (rule, key) = (subject.rule, &subject.key);
            for limit in &rule.limits {
                let id = CounterId::new(decision.proxy, subject, limit);
                let owed_ms = owed_ms_max(rule);
                let over = self.counter(&id, limit, decision).admit(limit, decision, (subject.n, owed_ms)).map_err(|used| {
                    format!(
                        "over the limit: rule {} allows {limit}, key {key:?} has used {used} and {} more was admitted",
                        rule.name, subject.n
                    )
                })?;
                self.over_max = self.over_max.max(over);
            }
        }
        Ok(())
    }

    /// A request was denied by `rule`. One of its limits must have been used up; `contenders` counts requests
    /// under way that have charged a counter and may yet take it back.
    pub(crate) fn deny(
        &mut self,
        decision: &Decision,
        subjects: &[Subject<'_>],
        by: &str,
        contenders: impl Fn(&CounterId) -> u64,
    ) -> Result<(), String> {
        self.denied += 1;
        let is_it = |subject: &&Subject<'_>| subject.rule.name == by && !subject.rule.is_shadow;
        let Some(subject) = subjects.iter().find(is_it) else {
            return Err(format!("denied by {by:?}, which does not apply or is in shadow"));
        };
        if !subject.rule.is_followed() {
            return Ok(());
        }
        let mut reasons = Vec::new();
        let mut is_justified = decision.is_faulty;
        for limit in &subject.rule.limits {
            let id = CounterId::new(decision.proxy, subject, limit);
            let under_way = contenders(&id);
            let used = self.counter(&id, limit, decision).used_at_most(limit, decision, under_way);
            is_justified |= used.is_none_or(|used| used + subject.n > limit.capacity());
            reasons.push(format!("{} of {limit}", used.unwrap_or(0)));
        }
        if is_justified {
            return Ok(());
        }
        let Subject { rule, key, .. } = subject;
        let reasons = reasons.join(", ");
        Err(format!("denied without a reason: rule {}, key {key:?}, used at most {reasons}", rule.name))
    }

    /// After a decision that is not an admission: what it may have left behind.
    pub(crate) fn leave(&mut self, decision: &Decision, subjects: &[Subject<'_>], has_died: bool) {
        if decision.first_write_step.is_none() && !decision.is_faulty {
            return;
        }
        for subject in subjects {
            for limit in &subject.rule.limits {
                let id = CounterId::new(decision.proxy, subject, limit);
                let counter = self.counter(&id, limit, decision);
                if decision.is_faulty {
                    counter.stray(limit, decision, (subject.n, owed_ms_max(subject.rule)));
                } else if has_died {
                    counter.stray(limit, decision, (subject.n, limit.window_ms));
                }
                counter.undone_ns.retain(|(at, _)| at + DENIAL_REMEMBERED_NS >= decision.now_ns);
                counter.undone_ns.push((decision.now_ns, subject.n));
            }
        }
    }

    /// A fault emptied counters: whatever was admitted so far is excused.
    pub(crate) fn empty(&mut self, step: u64, which: impl Fn(&CounterId) -> bool) {
        for (_, counter) in self.counters.iter_mut().filter(|(id, _)| which(id)) {
            counter.empty(step);
        }
    }

    /// The same for one counter.
    pub(crate) fn empty_one(&mut self, step: u64, id: &CounterId) {
        match self.counters.get_mut(id) {
            Some(counter) => counter.empty(step),
            // A request under way may have charged it already.
            None => {
                self.emptied_unknown.insert(id.clone(), step);
            }
        }
    }

    /// A proxy that lost its shared data places its counters anew. Nothing that was charged counts any more; what was
    /// admitted is still known.
    pub(crate) fn place_anew(&mut self, proxy: usize, place: impl Fn(&CounterId) -> Place) {
        let all = std::mem::take(&mut self.counters);
        for (mut id, counter) in all {
            if id.proxy == proxy {
                id.place = place(&id);
            }
            self.counters.insert(id, counter);
        }
    }

    /// Forgets counters that no decision can depend on any more, for runs with very many. Only where no clock steps.
    pub(crate) fn forget_idle(&mut self, now_ms: u64) {
        self.counters.retain(|_, counter| counter.asked_ms + SPANS_KEPT * counter.span_ms >= now_ms);
    }

    pub(crate) fn knows(&self, id: &CounterId) -> bool {
        self.counters.contains_key(id)
    }

    /// A proxy's clock stepped: one extra window, and no more certainty about denials until it has passed
    /// all that it has seen.
    pub(crate) fn step_clock(&mut self, step: u64, proxy: usize, latest_ms: u64) {
        for (_, counter) in self.counters.iter_mut().filter(|(id, _)| id.proxy == proxy) {
            counter.empty(step);
            counter.unsure_until_ms = latest_ms + 3 * counter.span_ms;
        }
    }
}

impl Counter {
    fn new(id: &CounterId, limit: &Limit) -> Self {
        let past = Past::new(limit, identity::shift(&id.rule, &id.key) % limit.window_ms);
        Self { past, span_ms: 0, emptied_step: 0, unsure_until_ms: 0, undone_ns: Vec::new(), asked_ms: 0 }
    }

    /// By how much the limit is passed now, excuses or not; or how much was used, if that is a failure.
    fn admit(&mut self, limit: &Limit, decision: &Decision, (n, owed_ms): (u64, u64)) -> Result<u64, u64> {
        let is_excused =
            decision.is_faulty || decision.first_write_step.is_some_and(|step| step <= self.emptied_step);
        let over = self.past.admit(limit, decision, n, is_excused)?;
        if decision.is_faulty {
            // Its charge is a debt, and comes late.
            self.stray(limit, decision, (n, owed_ms));
        }
        Ok(over)
    }

    /// The most that may be charged, as of the time that the filter read; `None` if that cannot be told.
    fn used_at_most(&mut self, limit: &Limit, decision: &Decision, contenders: u64) -> Option<u64> {
        let read_ms = decision.read_ms?;
        if read_ms < self.unsure_until_ms {
            return None;
        }
        self.undone_ns.retain(|(at, _)| at + DENIAL_REMEMBERED_NS >= decision.now_ns);
        let used = match &mut self.past {
            Past::Windows(windows) => windows.used_at_most(limit, read_ms, decision.end_ms)?,
            Past::Moments(moments) => moments.used_at_most(limit, read_ms),
        };
        Some(used + contenders + self.undone_ns.iter().map(|(_, n)| n).sum::<u64>())
    }

    /// A charge without an admission may appear, for so long.
    fn stray(&mut self, limit: &Limit, decision: &Decision, (n, for_ms): (u64, u64)) {
        match &mut self.past {
            Past::Windows(windows) => windows.stray(limit, decision.end_ms, n, for_ms),
            Past::Moments(moments) => moments.stray(decision.end_ms, n, for_ms),
        }
    }

    fn empty(&mut self, step: u64) {
        self.emptied_step = self.emptied_step.max(step);
        self.past.empty();
    }
}

/// How long a debt can be owed: until the longest of the rule's windows that it belongs to is over, and the
/// filter charges it to the shorter ones too.
fn owed_ms_max(rule: &Rule) -> u64 {
    2 * rule.limits.iter().map(Limit::span_ms).max().unwrap_or(0)
}
