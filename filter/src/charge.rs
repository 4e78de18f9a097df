//! Takes from counters in the table: all that a request asks for, or nothing.
//!
//! First every slot is read and every rule judged; nothing is written before all have said yes. Then the
//! slots are written in order, each by compare-and-swap. Who loses a race reads that slot again and judges
//! again; if a rule says no then, what was already written is undone.

use crate::debts::Debts;
use crate::host::{Host, Status};
use crate::identity::Identity;
use crate::metrics::{Metric, Metrics};
use crate::planted::{self, Bug};
use crate::rules::Rule;
use crate::table::{Table, Versioned};
use core::num::NonZeroU64;
use tidegate_config::LIMITS_MAX;
use tidegate_core::slot::{Entry, Placed, Slot};
use tidegate_core::{Outcome, Retry, State, Take, Timestamp};

/// How often a slot is tried before its charge is kept as a debt. Contention by requests needs two or three.
const CAS_TRIES_MAX: usize = 32;

/// What one rule asks for one key.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'r> {
    pub(crate) rule: &'r Rule,
    pub(crate) rule_index: usize,
    pub(crate) identity: Identity,
    pub(crate) slot: u32,
    pub(crate) take: Take,
}

/// An ask and what came of it.
#[derive(Clone, Copy)]
pub(crate) struct Case<'r> {
    pub(crate) ask: Ask<'r>,
    pub(crate) judged: Judged,
}

/// The outcome of each limit of a rule.
#[derive(Clone, Copy)]
pub(crate) struct Judged {
    limits: [Option<(Outcome, State)>; LIMITS_MAX],
    /// The latest retry of its limits: `Now` if all of them say yes.
    pub(crate) retry: Retry,
    /// States that were no states and were taken for fresh.
    bad_states: u64,
}

/// What came of everything that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charged {
    /// Every enforced rule said yes, and all that said yes were charged.
    All,
    /// An enforced rule said no; nothing is charged.
    Nothing,
}

/// Takes what all of `cases` ask for. Afterwards each case holds its last judgement.
pub(crate) fn charge(
    host: &impl Host,
    cases: &mut [Case<'_>],
    now: Timestamp,
    debts: &mut Debts,
    metrics: &mut Metrics,
) -> Charged {
    cases.sort_unstable_by_key(|case| case.ask.slot);
    let mut groups: Vec<Group<'_, '_>> = cases
        .chunk_by_mut(|a, b| a.ask.slot == b.ask.slot)
        .map(|cases| Group::read(host, cases, now, debts, metrics))
        .collect();
    if groups.iter().any(Group::is_denied) {
        if planted::has(Bug::EarlyWrite) {
            for group in groups.iter_mut().filter(|group| !group.is_denied()) {
                group.write(host, now, debts, metrics);
            }
        }
        return Charged::Nothing;
    }
    for index in 0..groups.len() {
        let (written, rest) = groups.split_at_mut(index);
        let Some(group) = rest.first_mut() else { break };
        if group.write(host, now, debts, metrics) == Charged::Nothing {
            for group in written {
                group.undo(host, now, metrics);
            }
            return Charged::Nothing;
        }
    }
    Charged::All
}

/// The cases that share a slot, and so one read and one write.
struct Group<'c, 'r> {
    index: u32,
    /// The slot as last read; the error if the host would not tell.
    slot: Result<Versioned, Status>,
    cases: &'c mut [Case<'r>],
}

impl<'c, 'r> Group<'c, 'r> {
    fn read(
        host: &impl Host,
        cases: &'c mut [Case<'r>],
        now: Timestamp,
        debts: &Debts,
        metrics: &mut Metrics,
    ) -> Self {
        let index = cases.first().map_or(0, |case| case.ask.slot);
        let mut group = Self { index, slot: Err(Status::NotFound), cases };
        group.read_again(host, now, debts, metrics);
        group
    }

    fn read_again(&mut self, host: &impl Host, now: Timestamp, debts: &Debts, metrics: &mut Metrics) {
        self.slot = Table::read(host, self.index);
        match &self.slot {
            Ok(versioned) if versioned.was_bad => metrics.add(Metric::BadStates, 1),
            Ok(_) => {}
            Err(_) => metrics.add(Metric::Errors, 1),
        }
        // What cannot be read counts as empty: the limiter must not take the site down.
        let slot = self.slot.map_or(Slot::empty(self.index), |versioned| versioned.slot);
        for case in &mut *self.cases {
            case.judged = case.ask.judge(&slot, now, debts.owed(&case.ask.identity, now));
            metrics.add(Metric::BadStates, case.judged.bad_states);
        }
    }

    fn is_denied(&self) -> bool {
        self.cases.iter().any(|case| case.ask.rule.is_enforced() && case.judged.is_refused())
    }

    fn write(
        &mut self,
        host: &impl Host,
        now: Timestamp,
        debts: &mut Debts,
        metrics: &mut Metrics,
    ) -> Charged {
        for _ in 0..CAS_TRIES_MAX {
            let Ok(Versioned { mut slot, cas, .. }) = self.slot else { break };
            let mut placed = Evictions::default();
            for case in self.charged() {
                placed.add(case.ask.put(&mut slot, &case.judged, now));
            }
            if self.charged().next().is_none() {
                return Charged::All;
            }
            match Table::write(host, self.index, &slot, cas) {
                Ok(()) => {
                    placed.count(metrics);
                    for case in self.charged() {
                        debts.paid(&case.ask.identity);
                    }
                    return Charged::All;
                }
                Err(Status::CasMismatch) => {
                    metrics.add(Metric::CasRetries, 1);
                    self.read_again(host, now, debts, metrics);
                    if self.is_denied() {
                        return Charged::Nothing;
                    }
                }
                Err(_) => {
                    metrics.add(Metric::Errors, 1);
                    break;
                }
            }
        }
        // Decided on the last state read. The charge is not lost: it is made with the next success.
        metrics.add(Metric::CasGiveUps, 1);
        for case in self.cases.iter().filter(|case| !case.judged.is_refused()) {
            debts.owe(&case.ask, &case.judged, now, metrics);
        }
        Charged::All
    }

    fn undo(&self, host: &impl Host, now: Timestamp, metrics: &mut Metrics) {
        if planted::has(Bug::UndoForgotten) {
            return;
        }
        for _ in 0..CAS_TRIES_MAX {
            let Ok(Versioned { mut slot, cas, .. }) = Table::read(host, self.index) else { break };
            for case in self.charged() {
                case.ask.refund(&mut slot, &case.judged, now);
            }
            match Table::write(host, self.index, &slot, cas) {
                Ok(()) => return,
                Err(Status::CasMismatch) => metrics.add(Metric::CasRetries, 1),
                Err(_) => break,
            }
        }
        metrics.add(Metric::UndosLost, 1);
    }

    fn charged(&self) -> impl Iterator<Item = &Case<'r>> {
        self.cases.iter().filter(|case| !case.judged.is_refused())
    }
}

impl Judged {
    /// Nothing judged yet.
    pub(crate) const NONE: Self = Self { limits: [None; LIMITS_MAX], retry: Retry::Now, bad_states: 0 };

    pub(crate) fn is_refused(&self) -> bool {
        self.retry != Retry::Now
    }

    /// The outcomes in the order of the rule's limits.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.limits.iter().flatten().map(|(outcome, _)| outcome)
    }

    fn counted(&self) -> impl Iterator<Item = &(Outcome, State)> {
        self.limits.iter().flatten()
    }
}

impl Ask<'_> {
    /// Decides on a slot as it was read, with what this VM still owes for the key charged first.
    pub(crate) fn judge(&self, slot: &Slot, now: Timestamp, owed: u64) -> Judged {
        let mut judged = Judged::NONE;
        for (counted, place) in self.rule.limits.iter().zip(&mut judged.limits) {
            let moment = counted.moment(&self.identity, now);
            let id = self.rule.entry_id(counted, &self.identity);
            let (found, inherits) = match slot.find(id.fingerprint) {
                Some(Ok(state)) => (Some(state), None),
                Some(Err(_)) => {
                    judged.bad_states = judged.bad_states.saturating_add(1);
                    (None, None)
                }
                None => {
                    (None, slot.displaced(now).filter(|_| id.strict && !planted::has(Bug::EvictionResets)))
                }
            };
            let state = inherits.and_then(|gone| gone.load.state(&counted.limit, moment)).or(found);
            let state = match NonZeroU64::new(owed) {
                Some(owed) => Some(counted.limit.take(state, moment, Take::force(owed)).1),
                None => state,
            };
            let (mut outcome, state) = counted.limit.take(state, moment, self.take);
            if let (Retry::After(wait_ms), Some(gone)) = (outcome.retry, inherits) {
                // A newcomer inherits no longer than what it inherits lasts.
                let lasts_ms = Timestamp::from_s(gone.until_s).ms_since(now);
                outcome.retry = Retry::After(wait_ms.min(lasts_ms));
            }
            judged.retry = judged.retry.max(outcome.retry);
            *place = Some((outcome, state));
        }
        judged
    }

    /// Writes the states of a judgement that said yes.
    pub(crate) fn put(&self, slot: &mut Slot, judged: &Judged, now: Timestamp) -> Evictions {
        let mut evictions = Evictions::default();
        let beside = self.rule.entry_ids(&self.identity);
        for (counted, (_, state)) in self.rule.limits.iter().zip(judged.counted()) {
            let id = self.rule.entry_id(counted, &self.identity);
            let moment = counted.moment(&self.identity, now);
            evictions.see(slot.put(Entry::new(id, &counted.limit, *state, moment), now, &beside));
        }
        evictions
    }

    /// Gives back what a judgement took. An entry that is gone took it along.
    fn refund(&self, slot: &mut Slot, judged: &Judged, now: Timestamp) {
        for (counted, (outcome, _)) in self.rule.limits.iter().zip(judged.counted()) {
            let id = self.rule.entry_id(counted, &self.identity);
            if let Some(Ok(state)) = slot.find(id.fingerprint) {
                let state = state.refund(outcome.window, outcome.taken);
                let moment = counted.moment(&self.identity, now);
                slot.update(Entry::new(id, &counted.limit, state, moment));
            }
        }
    }
}

/// Living entries that gave way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Evictions {
    own: u64,
    foreign: u64,
    no_place: u64,
}

impl Evictions {
    fn see(&mut self, placed: Placed) {
        match placed {
            Placed::Free => {}
            Placed::EvictedOwn => self.own = self.own.saturating_add(1),
            Placed::EvictedForeign => self.foreign = self.foreign.saturating_add(1),
            Placed::NoPlace => self.no_place = self.no_place.saturating_add(1),
        }
    }

    fn add(&mut self, other: Self) {
        self.own = self.own.saturating_add(other.own);
        self.foreign = self.foreign.saturating_add(other.foreign);
        self.no_place = self.no_place.saturating_add(other.no_place);
    }

    pub(crate) fn count(&self, metrics: &mut Metrics) {
        metrics.add(Metric::Evictions, self.own.saturating_add(self.foreign).saturating_add(self.no_place));
        metrics.add(Metric::ForeignEvictions, self.foreign);
    }
}
