//! The oracle of the fleet: what all proxies together may admit by rules that hold across them.
//!
//! It counts by true time, which is the counter's, and knows nothing of the proxies' clocks. It sees every decision,
//! and what the counter hears and says:
//! - `exact` and `lease`: whatever the counter let pass is never over the bound. A lease's charge is made up to two
//!   seconds before it is spent.
//! - `sync`: a proxy is never over the limit on what it knows: all that it admitted itself, and what others had
//!   reported when the counter last answered it ([`crate::sync`]).
//! - a denial has a reason: the counter refused, or on what is known there is no room.
//! - what is decided without the counter is decided because a call failed, and as `on_failure` says.
//! - in the end the counter has charged what was admitted, no more and no less.

use crate::central::{Central, Judged};
use crate::changes::Ranges;
use crate::global_spec::{Global, Mode, OnFailure};
use crate::identity;
use crate::ledger::{Expected, Ledger};
use crate::oracle::{Decision, Past, Subject};
use crate::scenario::MS;
use crate::spec::{Algorithm, Config, Limit, Rule};
use crate::sync::{Admissions, OFF_MS_MAX};
use std::collections::{BTreeMap, BTreeSet};
use tidegate_config::wire::{Act, Sender};
use tidegate_core::{Manner, Retry};

/// The longest that a grant lives, and some more for clocks that drift.
pub(crate) const GRANT_MS_MAX: u64 = 2_010;
/// For how long a VM remembers a denial of its own.
const DENIAL_NS_MAX: u64 = 1_000 * MS;
/// How old an answer can be when a VM reads it: it waits from then on, and not from when the counter said so.
const ANSWER_MS_MAX: u64 = 500;
/// A run of this length ends in the window in which it began: then the counter's books can be compared.
pub(crate) const BOOKS_WINDOW_MS: u64 = 60_000;

/// A rule and a key, as the counter knows them.
type Party = (String, Vec<u8>);

/// A report that the counter has heard: whose, and which of the counter's batches it was.
pub(crate) type Acknowledged = (Party, u64);

/// How a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Circumstances {
    pub(crate) proxy: usize,
    pub(crate) vm: (usize, u64),
    /// In the callback of a good answer.
    pub(crate) is_told: bool,
    /// The last call of its VM had failed, when it came or when it was decided.
    pub(crate) has_lost_counter: bool,
    /// What requests under way in its proxy may have charged already.
    pub(crate) contenders: u64,
    /// That was so a moment ago: what was denied then is remembered.
    pub(crate) lost_lately: bool,
    /// The counter has never answered its VM, which may know no clock but its own: minutes from the counter's.
    pub(crate) is_blind: bool,
    /// The step at which it came.
    pub(crate) began_step: u64,
    /// When the run began.
    pub(crate) started_ns: u64,
}

#[derive(Default)]
struct Counter {
    /// By limit: what the counter let pass, or was granted.
    pasts: BTreeMap<(u64, String), Past>,
    /// By proxy and limit: what was decided without the counter.
    fallen_back: BTreeMap<(usize, u64, String), Past>,
    admissions: Admissions,
    /// When the counter said no: to how much, and until when.
    refusals: Vec<(u64, u64)>,
    /// When a VM last denied so much by what the proxy knows, for a reason: it remembers that.
    denied: BTreeMap<((usize, u64), u64), u64>,
    emptied_step: u64,
    /// Until then what the counter granted before it forgot may be spent.
    granted_until_ms: u64,
    admitted: u64,
    /// Of those, the ones without the counter.
    admitted_without: u64,
    ledger: Ledger,
    /// What the counter or its grants let pass: when at the latest, and how much.
    spent: Vec<(u64, u64)>,
}

#[derive(Default)]
pub(crate) struct Fleet {
    /// The numbers that limits have in the configs of the run.
    ranges: Ranges,
    counters: BTreeMap<Party, Counter>,
    /// Batches that the counter has heard, and which in its order each was. Steps would not tell: the counter may
    /// hear several between two of them.
    heard: BTreeMap<(u64, u32, u64), u64>,
    batches: u64,
    /// Proxies in which a fault has hit what is done for all: what they know is not certain any more.
    unsure: BTreeSet<usize>,
    pub(crate) over_max: u64,
    pub(crate) fallen_back: u64,
    /// When each request was admitted that a rule of the fleet is about, in milliseconds since the run's begin.
    pub(crate) admitted_ms: Vec<u64>,
}

fn party(subject: &Subject<'_>) -> Party {
    (subject.rule.name.clone(), identity::wire_key(&subject.key).to_vec())
}

fn named(limit: &Limit) -> (u64, String) {
    (limit.window_ms, format!("{:?}", limit.algorithm))
}

fn past(party: &Party, limit: &Limit) -> Past {
    let shift = identity::shift(&party.0, &party.1) % limit.window_ms;
    Past::new(limit, shift)
}

/// The rules of the fleet among all that apply.
fn global<'s, 'c>(subjects: &'s [Subject<'c>]) -> impl Iterator<Item = (&'s Subject<'c>, Global)> {
    subjects
        .iter()
        .filter(|subject| !subject.rule.is_shadow)
        .filter_map(|subject| Some((subject, subject.rule.global?)))
}

impl Fleet {
    pub(crate) fn new(configs: &[Config]) -> Self {
        Self { ranges: Ranges::new(configs), ..Self::default() }
    }

    /// The counter applies a batch. What it acknowledges is told when the answer arrives.
    pub(crate) fn hear(
        &mut self,
        now_ms: u64,
        vm: (usize, u64),
        sender: Option<Sender>,
        judged: &[Judged],
    ) -> Vec<Acknowledged> {
        self.batches += 1;
        let (mut first, mut is_new) = (self.batches, true);
        if let Some(Sender { proxy, vm, sequence }) = sender {
            is_new = !self.heard.contains_key(&(proxy, vm, sequence));
            first = *self.heard.entry((proxy, vm, sequence)).or_insert(self.batches);
        }
        let mut acknowledged = Vec::new();
        for judged in judged {
            let Judged { rule, key, is_first, n, act, outcome, .. } = judged;
            let party = (rule.clone(), key.clone());
            let counter = self.counters.entry(party.clone()).or_default();
            if is_new {
                counter.ledger.add(judged);
            }
            match outcome.retry {
                Retry::Now => {}
                Retry::After(ms) => counter.refusals.push((*n, now_ms + ms)),
                Retry::Never => counter.refusals.push((*n, u64::MAX)),
            }
            if *act == Act::Take(Manner::Force) {
                if is_new && *is_first {
                    counter.admissions.report(vm, *n, (first, now_ms), judged.limit.0);
                }
                acknowledged.push((party, first));
            }
        }
        acknowledged
    }

    /// An answer has arrived in a proxy, and its callback has returned.
    pub(crate) fn acknowledge(&mut self, step: u64, proxy: usize, acknowledged: &[Acknowledged]) {
        for (party, batch) in acknowledged {
            if let Some(counter) = self.counters.get_mut(party) {
                counter.admissions.see(proxy, step, *batch);
            }
        }
    }

    /// A request went on.
    pub(crate) fn admit(
        &mut self,
        decision: &Decision,
        how: Circumstances,
        subjects: &[Subject<'_>],
        leased_at_most: impl Fn(&Rule, Global, &Limit) -> u64,
    ) -> Result<(), String> {
        if global(subjects).next().is_some() {
            self.admitted_ms.push((decision.now_ns - how.started_ns) / MS);
        }
        for (subject, global) in global(subjects) {
            let party = party(subject);
            let is_unsure = decision.is_faulty || how.is_blind || self.unsure.contains(&how.proxy);
            let counter = self.counters.entry(party.clone()).or_default();
            counter.admitted += subject.n;
            let rule = subject.rule;
            let why =
                |text: String| format!("rule {} of the fleet, key {:?}: {text}", rule.name, subject.key);
            let is_lease = matches!(global.mode, Mode::Lease { .. });
            let is_excused = decision.is_faulty
                || how.began_step <= counter.emptied_step
                || is_lease && decision.end_ms <= counter.granted_until_ms;
            let without = match global.mode {
                Mode::Exact => !how.is_told,
                Mode::Sync { .. } => how.has_lost_counter,
                // A grant can be spent while the counter is away; only what passes the bound was not one.
                Mode::Lease { .. } => how.has_lost_counter && global.on_failure != OnFailure::Closed,
            };
            if without {
                self.fallen_back += 1;
                counter.admitted_without += subject.n;
                counter.fall_back((decision, subject.n), how, rule, global, &party).map_err(why)?;
            } else if let Mode::Sync { .. } = global.mode {
                let known = |limit: &Limit| {
                    let shift_ms = identity::shift_of(limit, &party.0, &party.1);
                    (shift_ms, self.ranges.highest(&rule.name, limit).requests)
                };
                let over = counter.admissions.judge(
                    decision,
                    (how, subject.n),
                    &rule.limits,
                    known,
                    is_excused || is_unsure,
                );
                self.over_max = self.over_max.max(over.map_err(why)?);
            } else {
                if !is_excused {
                    let is_lease = matches!(global.mode, Mode::Lease { .. });
                    let ago_ms = if is_lease { GRANT_MS_MAX } else { 0 };
                    let of_lease = |limit: &Limit| leased_at_most(rule, global, limit);
                    let bound = |limit: &Limit| if is_lease { of_lease(limit) } else { limit.capacity() };
                    let take = (decision, subject.n, ago_ms);
                    counter.check_lowered(take, rule, &party, bound).map_err(why)?;
                }
                let highest = |limit: &Limit| self.ranges.highest(&rule.name, limit);
                let excuse = (is_excused, &highest as &dyn Fn(&Limit) -> Limit);
                let over =
                    counter.let_pass((decision, subject.n), rule, global, &party, excuse).map_err(why)?;
                self.over_max = self.over_max.max(over);
            }
            let counter = self.counters.entry(party).or_default();
            counter.admissions.add(decision, how, subject.n, without || is_excused);
        }
        Ok(())
    }

    /// A request was denied by a rule of the fleet.
    pub(crate) fn deny(
        &mut self,
        decision: &Decision,
        how: Circumstances,
        subject: &Subject<'_>,
        global: Global,
    ) -> Result<(), String> {
        let rule = subject.rule;
        if decision.is_faulty || self.unsure.contains(&how.proxy) {
            return Ok(());
        }
        let party = party(subject);
        let counter = self.counters.entry(party.clone()).or_default();
        let began_ms = decision.read_ms.unwrap_or(decision.end_ms);
        counter.refusals.retain(|(_, until_ms)| until_ms.saturating_add(BOOKS_WINDOW_MS) > began_ms);
        let is_remembered = |(n, until_ms): &(u64, u64)| {
            *n <= subject.n && until_ms.saturating_add(ANSWER_MS_MAX) >= began_ms
        };
        let is_alone = how.has_lost_counter && !how.is_told || how.lost_lately;
        let is_open = global.on_failure == OnFailure::Open && global.mode == Mode::Exact;
        let is_justified = counter.refusals.iter().any(is_remembered)
            || is_alone && !is_open
            || match global.mode {
                Mode::Exact => false,
                Mode::Lease { waits, .. } => !waits,
                Mode::Sync { .. } => rule.limits.iter().any(|limit| {
                    let shift = identity::shift_of(limit, &party.0, &party.1);
                    let span_ms = self.ranges.span_ms_max(&rule.name, limit);
                    let used = counter.admissions.used_at_most(decision, limit, (shift, span_ms));
                    used + how.contenders + subject.n > limit.capacity()
                }),
            };
        if is_justified {
            counter.denied.insert((how.vm, subject.n), decision.now_ns);
            return Ok(());
        }
        let mut denied = counter.denied.range((how.vm, 0)..=(how.vm, subject.n));
        if denied.any(|(_, at_ns)| at_ns + DENIAL_NS_MAX >= decision.now_ns) {
            return Ok(());
        }
        let key = &subject.key;
        Err(format!(
            "denied without a reason: rule {} of the fleet, key {key:?}, {:?}",
            rule.name, global.mode
        ))
    }

    /// The counter has lost what it knew: whatever was admitted so far is excused, and what it had granted.
    pub(crate) fn lose_all(&mut self, step: u64, now_ms: u64) {
        for counter in self.counters.values_mut() {
            counter.emptied_step = step;
            counter.granted_until_ms = now_ms + GRANT_MS_MAX;
            counter.pasts.values_mut().for_each(Past::empty);
            counter.spent.clear();
            counter.admissions.excuse(|_| true);
        }
    }

    /// A VM died: what it had not reported is lost.
    pub(crate) fn lose_vm(&mut self, vm: (usize, u64)) {
        for counter in self.counters.values_mut() {
            counter.admissions.lose_unreported(vm);
        }
    }

    /// A proxy lost its shared data.
    pub(crate) fn lose_proxy(&mut self, step: u64, proxy: usize) {
        for counter in self.counters.values_mut() {
            counter.admissions.lose_view(step, proxy);
            let own = counter.fallen_back.iter_mut().filter(|((other, ..), _)| *other == proxy);
            own.for_each(|(_, past)| past.empty());
        }
    }

    /// A fault has hit what a proxy does for all of its requests.
    pub(crate) fn lose_certainty(&mut self, proxy: usize) {
        self.unsure.insert(proxy);
    }

    /// Compares what was admitted with what the counter was asked to charge, and with its books for rules whose only
    /// window has lasted all along.
    pub(crate) fn compare_books(
        &self,
        central: &mut Central,
        now_ms: u64,
        rules: &[Rule],
        stray_max: u64,
    ) -> Result<(), String> {
        for rule in rules.iter().filter(|rule| !rule.is_shadow) {
            let Some(global) = rule.global else { continue };
            for ((_, key), counter) in self.counters.iter().filter(|((name, _), _)| *name == rule.name) {
                let admitted = counter.admitted;
                let untold_max = counter.untold_max(rule, global);
                let may_waste = matches!(global.mode, Mode::Lease { .. }) && !has_one_window(rule);
                let expected = Expected { admitted, untold_max, may_waste, stray_max };
                counter.ledger.compare(expected).map_err(|why| format!("rule {}: {why}", rule.name))?;
                if !has_one_window(rule) {
                    continue;
                }
                let charged = central.charged(now_ms, &rule.name, key, BOOKS_WINDOW_MS).unwrap_or(0);
                if charged.abs_diff(admitted) > stray_max {
                    return Err(format!(
                        "the counter has charged {charged} to rule {}, {admitted} were admitted, and {stray_max} are excused",
                        rule.name
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether a run that begins with its window ends before it does.
fn has_one_window(rule: &Rule) -> bool {
    rule.limits.iter().all(|limit| limit.window_ms == BOOKS_WINDOW_MS && limit.is_clock_aligned)
}

impl Counter {
    /// What was admitted and need not be told to the counter: whatever waits to be told is forgotten when its window is
    /// over.
    fn untold_max(&self, rule: &Rule, global: Global) -> u64 {
        match global.mode {
            _ if has_one_window(rule) => 0,
            Mode::Sync { .. } => self.admitted,
            Mode::Exact | Mode::Lease { .. } => self.admitted_without,
        }
    }

    /// What is spent was charged so long ago at most, and whatever had passed by then was charged before: together that
    /// is within the limit that this proxy had then. So a lowered limit holds at once, or for a lease two seconds later.
    fn check_lowered(
        &mut self,
        (decision, n, ago_ms): (&Decision, u64, u64),
        rule: &Rule,
        party: &Party,
        bound: impl Fn(&Limit) -> u64,
    ) -> Result<(), String> {
        let charged_ms = decision.read_ms.unwrap_or(decision.end_ms).saturating_sub(ago_ms);
        for limit in rule.limits.iter().filter(|limit| limit.algorithm == Algorithm::FixedWindow) {
            let shift_ms = identity::shift_of(limit, &party.0, &party.1);
            let since_ms = decision.end_ms - (decision.end_ms + shift_ms) % limit.window_ms;
            let in_time =
                self.spent.iter().filter(|(at_ms, _)| (since_ms + OFF_MS_MAX..charged_ms).contains(at_ms));
            let (used, most) = (in_time.map(|(_, n)| n).sum::<u64>(), bound(limit));
            if used + n > most {
                return Err(format!(
                    "over a limit that was lowered: {limit}, at most {most} when it was granted, {used} were used"
                ));
            }
        }
        self.spent.retain(|(at_ms, _)| at_ms + 2 * BOOKS_WINDOW_MS > decision.end_ms);
        self.spent.push((decision.end_ms, n));
        Ok(())
    }

    fn let_pass(
        &mut self,
        (decision, n): (&Decision, u64),
        rule: &Rule,
        global: Global,
        party: &Party,
        (is_excused, highest): (bool, &dyn Fn(&Limit) -> Limit),
    ) -> Result<u64, String> {
        let mut over_max = 0;
        for limit in &rule.limits {
            // What was taken under one limit passes under another, and proxies whose limits differ pass in another order than
            // the counter heard them: together they never pass the highest.
            let bound = global.bound(&highest(limit));
            let past = self.pasts.entry(named(limit)).or_insert_with(|| past(party, limit));
            let mut decision = decision.clone();
            if matches!(global.mode, Mode::Lease { .. }) && !limit.counts_in_windows() {
                decision.read_ms = Some(decision.end_ms.saturating_sub(GRANT_MS_MAX));
            }
            let over = past.admit(&bound, &decision, n, is_excused).map_err(|used| {
                format!("over the limit: {bound}, has used {used} and {n} more was admitted")
            })?;
            over_max = over_max.max(over);
        }
        Ok(over_max)
    }

    /// Without the counter each proxy enforces at most the whole limit by itself; how much less its share is stands
    /// in tests of its own.
    fn fall_back(
        &mut self,
        (decision, n): (&Decision, u64),
        how: Circumstances,
        rule: &Rule,
        global: Global,
        party: &Party,
    ) -> Result<(), String> {
        if !how.has_lost_counter && !decision.is_faulty {
            return Err("admitted without the counter, though no call had failed".to_owned());
        }
        match (global.on_failure, global.mode) {
            (OnFailure::Closed, Mode::Exact) if !decision.is_faulty => {
                return Err("admitted while the counter was away, though the rule is closed".to_owned());
            }
            (OnFailure::Share | OnFailure::Local, Mode::Exact) => {}
            _ => return Ok(()),
        }
        for limit in &rule.limits {
            let (window_ms, algorithm) = named(limit);
            let own = (how.proxy, window_ms, algorithm);
            let past = self.fallen_back.entry(own).or_insert_with(|| past(party, limit));
            past.admit(limit, decision, n, decision.is_faulty).map_err(|used| {
                format!("a proxy without the counter passes {limit}: {used} and {n} more was admitted")
            })?;
        }
        Ok(())
    }
}
