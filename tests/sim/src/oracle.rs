//! The oracle: sees every decision and knows what the fault table of the design allows.
//!
//! It counts admissions for itself and knows nothing of the filter's states. For each counter and window it
//! keeps how many requests were admitted, how many of them a fault excuses (their charge may be missing), and
//! how many charges a fault may have left behind (so that a denial may come early). Two questions are asked
//! of every decision:
//! - admitted: with those that no fault excuses, is it within the limit?
//! - denied: with all that may have been charged, is there no room left?
//!
//! A decision takes time, and others happen meanwhile. The first question is asked as of the decision's end,
//! when a sliding window weighs least, the second as of the time that the filter read. Near a window's edge a
//! request may belong to either window: it is put into the earlier if there is room.

use crate::identity;
use crate::spec::{Algorithm, Limit, Rule};
use std::collections::BTreeMap;

/// How long a VM remembers a denial, and some more for clocks that drift.
const DENIAL_REMEMBERED_NS: u64 = 1_200_000_000;
/// Windows back that a decision can still depend on.
const WINDOWS_KEPT: u64 = 4;

/// A counter: one limit of one rule for one key in one proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CounterId {
    pub(crate) proxy: usize,
    pub(crate) rule: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) window_ms: u64,
    pub(crate) key: Vec<u8>,
}

impl CounterId {
    pub(crate) fn new(proxy: usize, rule: &Rule, limit: &Limit, key: &[u8]) -> Self {
        Self {
            proxy,
            rule: rule.name.clone(),
            algorithm: limit.algorithm,
            window_ms: limit.window_ms,
            key: key.to_vec(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    admitted: u64,
    /// Of the admitted, those whose charge a fault may have undone.
    excused: u64,
    /// Charges that a fault may have left without an admission.
    stray: u64,
}

#[derive(Debug, Default)]
struct Counter {
    shift_ms: u64,
    windows: BTreeMap<u64, Use>,
    /// The step of the last fault that emptied it.
    emptied_step: u64,
    /// Until then, on the proxy's clock, a denial needs no reason: the clock stepped back.
    unsure_until_ms: u64,
    /// When requests that had charged it were denied after all.
    undone_ns: Vec<u64>,
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
    /// By how much a limit was passed at most, excuses or not.
    pub(crate) over_max: u64,
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
}

impl Oracle {
    fn counter(&mut self, id: &CounterId, limit: &Limit) -> &mut Counter {
        self.counters.entry(id.clone()).or_insert_with(|| Counter {
            shift_ms: if limit.is_clock_aligned {
                0
            } else {
                identity::shift(&id.rule, &id.key) % limit.window_ms
            },
            ..Counter::default()
        })
    }

    /// A request went on. Every limit of every enforced rule must have had room.
    pub(crate) fn admit(&mut self, decision: &Decision, rules: &[(&Rule, Vec<u8>)]) -> Result<(), String> {
        self.admitted += 1;
        for (rule, key) in rules.iter().filter(|(rule, _)| rule.is_followed()) {
            for limit in &rule.limits {
                let id = CounterId::new(decision.proxy, rule, limit, key);
                let owed_ms = owed_ms_max(rule);
                let over = self.counter(&id, limit).admit(limit, decision, owed_ms).map_err(|used| {
                    format!(
                        "over the limit: rule {} allows {} in {} ms, key {:?} has used {used} and one more was admitted",
                        rule.name, limit.requests, limit.window_ms, key
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
        rules: &[(&Rule, Vec<u8>)],
        by: &str,
        contenders: impl Fn(&CounterId) -> u64,
    ) -> Result<(), String> {
        self.denied += 1;
        let Some((rule, key)) = rules.iter().find(|(rule, _)| rule.name == by && !rule.is_shadow) else {
            return Err(format!("denied by {by:?}, which does not apply or is in shadow"));
        };
        if !rule.is_followed() {
            return Ok(());
        }
        let mut reasons = Vec::new();
        let mut is_justified = decision.is_faulty;
        for limit in &rule.limits {
            let id = CounterId::new(decision.proxy, rule, limit, key);
            let under_way = contenders(&id);
            let used = self.counter(&id, limit).used_at_most(limit, decision, under_way);
            is_justified |= used.is_none_or(|used| used + 1 > limit.requests);
            reasons.push(format!("{} of {} in {} ms", used.unwrap_or(0), limit.requests, limit.window_ms));
        }
        if is_justified {
            return Ok(());
        }
        Err(format!(
            "denied without a reason: rule {}, key {key:?}, used at most {}",
            rule.name,
            reasons.join(", ")
        ))
    }

    /// After a decision that is not an admission: what it may have left behind.
    pub(crate) fn leave(&mut self, decision: &Decision, rules: &[(&Rule, Vec<u8>)], has_died: bool) {
        if decision.first_write_step.is_none() && !decision.is_faulty {
            return;
        }
        for (rule, key) in rules {
            for limit in &rule.limits {
                let id = CounterId::new(decision.proxy, rule, limit, key);
                let counter = self.counter(&id, limit);
                if decision.is_faulty {
                    counter.stray(limit, decision, owed_ms_max(rule));
                } else if has_died {
                    counter.stray(limit, decision, limit.window_ms);
                }
                counter.undone_ns.retain(|at| at + DENIAL_REMEMBERED_NS >= decision.now_ns);
                counter.undone_ns.push(decision.now_ns);
            }
        }
    }

    /// A fault emptied counters: whatever was admitted so far is excused.
    pub(crate) fn empty(&mut self, step: u64, which: impl Fn(&CounterId) -> bool) {
        for (_, counter) in self.counters.iter_mut().filter(|(id, _)| which(id)) {
            counter.empty(step);
        }
    }

    /// A proxy's clock stepped: one extra window, and no more certainty about denials until it has passed
    /// all that it has seen.
    pub(crate) fn step_clock(&mut self, step: u64, proxy: usize, latest_ms: u64) {
        for (id, counter) in self.counters.iter_mut().filter(|(id, _)| id.proxy == proxy) {
            counter.empty(step);
            counter.unsure_until_ms = latest_ms + 3 * id.window_ms;
        }
    }
}

impl Counter {
    fn window(&self, limit: &Limit, at_ms: u64) -> u64 {
        (at_ms + self.shift_ms) / limit.window_ms
    }

    fn elapsed_ms(&self, limit: &Limit, at_ms: u64) -> u64 {
        (at_ms + self.shift_ms) % limit.window_ms
    }

    fn of(&self, window: u64) -> Use {
        self.windows.get(&window).copied().unwrap_or_default()
    }

    fn before(&self, window: u64) -> Use {
        window.checked_sub(1).map(|before| self.of(before)).unwrap_or_default()
    }

    /// How much is used in `window`, with `elapsed_ms` of it gone, counting each window by `count`.
    fn used(&self, limit: &Limit, window: u64, elapsed_ms: u64, count: impl Fn(Use) -> u64) -> u64 {
        let previous = match limit.algorithm {
            Algorithm::FixedWindow => 0,
            Algorithm::SlidingWindow => weighted(count(self.before(window)), limit.window_ms, elapsed_ms),
        };
        count(self.of(window)) + previous
    }

    /// By how much the limit is passed now, excuses or not; or how much was used, if that is a failure.
    fn admit(&mut self, limit: &Limit, decision: &Decision, owed_ms: u64) -> Result<u64, u64> {
        let end = self.window(limit, decision.end_ms);
        let begin = decision.read_ms.map_or(end, |read_ms| self.window(limit, read_ms));
        let certain = |used: Use| used.admitted - used.excused;
        let (mut window, mut elapsed_ms) = (end, self.elapsed_ms(limit, decision.end_ms));
        if begin < end && self.used(limit, begin, limit.window_ms, certain) < limit.requests {
            (window, elapsed_ms) = (begin, limit.window_ms);
        }
        let is_excused =
            decision.is_faulty || decision.first_write_step.is_some_and(|step| step <= self.emptied_step);
        let used = self.used(limit, window, elapsed_ms, certain);
        if !is_excused && used >= limit.requests {
            return Err(used);
        }
        self.windows.retain(|old, _| old + WINDOWS_KEPT >= window);
        let here = self.windows.entry(window).or_default();
        here.admitted += 1;
        here.excused += u64::from(is_excused);
        if begin < end {
            // It may have been charged to the other of the two.
            self.windows.entry(begin + end - window).or_default().stray += 1;
        }
        if decision.is_faulty {
            // Its charge is a debt, and comes late.
            self.stray(limit, decision, owed_ms);
        }
        let all = self.used(limit, window, elapsed_ms, |used| used.admitted);
        Ok(all.saturating_sub(limit.requests))
    }

    /// The most that may be charged, as of the time that the filter read; `None` if that cannot be told.
    fn used_at_most(&mut self, limit: &Limit, decision: &Decision, contenders: u64) -> Option<u64> {
        let read_ms = decision.read_ms?;
        let window = self.window(limit, read_ms);
        if read_ms < self.unsure_until_ms || window != self.window(limit, decision.end_ms) {
            return None;
        }
        self.undone_ns.retain(|at| at + DENIAL_REMEMBERED_NS >= decision.now_ns);
        let charged = |used: Use| used.admitted + used.stray;
        let used = self.used(limit, window, self.elapsed_ms(limit, read_ms), charged);
        Some(used + contenders + self.undone_ns.len() as u64)
    }

    /// A charge without an admission may appear, for so long.
    fn stray(&mut self, limit: &Limit, decision: &Decision, for_ms: u64) {
        let window = self.window(limit, decision.end_ms);
        for window in window.saturating_sub(1)..=window + for_ms.div_ceil(limit.window_ms) {
            self.windows.entry(window).or_default().stray += 1;
        }
    }

    fn empty(&mut self, step: u64) {
        self.emptied_step = step;
        for used in self.windows.values_mut() {
            used.excused = used.admitted;
        }
    }
}

/// How long a debt can be owed: until the longest of the rule's windows that it belongs to is over, and the
/// filter charges it to the shorter ones too.
fn owed_ms_max(rule: &Rule) -> u64 {
    2 * rule.limits.iter().map(|limit| limit.window_ms).max().unwrap_or(0)
}

/// What a previous window's count still weighs: both roundings go up.
fn weighted(count: u64, window_ms: u64, elapsed_ms: u64) -> u64 {
    let weight = ((window_ms - elapsed_ms) << 16).div_ceil(window_ms);
    (count * weight).div_ceil(1 << 16)
}
