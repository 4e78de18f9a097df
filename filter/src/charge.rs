//! Takes from counters in the table: all that a request asks for, or nothing.
//!
//! First every slot is read and every rule judged; nothing is written before all have said yes. Then the
//! slots are written in order, each by compare-and-swap. Who loses a race reads that slot again and judges
//! again; if a rule says no then, what was already written is undone.
//!
//! A rule can also count what it denies: then its counters are written although it said no.

use crate::any_slot::AnySlot;
use crate::debts::Debts;
use crate::host::{Host, Status};
use crate::identity::Identity;
use crate::metrics::{Metric, Metrics};
use crate::planted::{self, Bug};
use crate::rules::{CountedLimit, Rule};
use crate::table::{Place, Region, Table, Versioned};
use core::num::NonZeroU64;
use std::rc::Rc;
use tidegate_config::LIMITS_MAX;
use tidegate_core::slot::{EntryId, Placed};
use tidegate_core::{Outcome, Retry, State, Take, Timestamp};

/// How often a slot is tried before its charge is kept as a debt. Contention by requests needs two or three.
const CAS_TRIES_MAX: usize = 32;

/// What one rule asks for one key.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'r> {
    pub(crate) rule: &'r Rc<Rule>,
    /// Which of the rule's sets of limits: its plan.
    pub(crate) limit_set: usize,
    pub(crate) limits: &'r [CountedLimit],
    pub(crate) identity: Identity,
    pub(crate) place: Place,
    pub(crate) take: Take,
    /// Whether a no denies the request.
    pub(crate) enforced: bool,
}

/// An ask and what came of it.
pub(crate) struct Case<'r> {
    pub(crate) ask: Ask<'r>,
    pub(crate) judged: Judged,
}

/// The outcome of each limit of a rule.
#[derive(Clone)]
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
    cases.sort_unstable_by_key(|case| case.ask.place);
    let mut groups: Vec<Group<'_, '_>> = cases
        .chunk_by_mut(|a, b| a.ask.place == b.ask.place)
        .map(|cases| Group::read(host, cases, now, debts, metrics))
        .collect();
    let charged = if groups.iter().any(Group::is_denied) {
        if planted::has(Bug::EarlyWrite) {
            for group in groups.iter_mut().filter(|group| !group.is_denied()) {
                group.write(host, now, debts, metrics);
            }
        }
        Charged::Nothing
    } else {
        charge_all(host, &mut groups, now, debts, metrics)
    };
    if charged == Charged::Nothing {
        for group in &mut groups {
            group.write_denied(host, now, debts, metrics);
        }
    }
    charged
}

fn charge_all(
    host: &impl Host,
    groups: &mut [Group<'_, '_>],
    now: Timestamp,
    debts: &mut Debts,
    metrics: &mut Metrics,
) -> Charged {
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

/// Changes a slot whatever it holds; false if the tries ran out or the host failed.
pub(crate) fn update(
    host: &impl Host,
    place: Place,
    metrics: &mut Metrics,
    edit: &mut dyn FnMut(&mut AnySlot) -> Evictions,
) -> bool {
    for _ in 0..CAS_TRIES_MAX {
        let Ok(Versioned { mut slot, cas, .. }) = Table::read(host, place) else { return false };
        let evictions = edit(&mut slot);
        match Table::write(host, place, &slot, cas) {
            Ok(()) => {
                evictions.count(metrics);
                return true;
            }
            Err(Status::CasMismatch) => metrics.add(Metric::CasRetries, 1),
            Err(_) => return false,
        }
    }
    false
}

/// The cases that share a slot, and so one read and one write.
struct Group<'c, 'r> {
    place: Place,
    /// The slot as last read; none if the host would not tell.
    read: Option<Versioned>,
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
        let place = cases.first().map_or(Place { region: Region::Small, index: 0 }, |case| case.ask.place);
        let mut group = Self { place, read: None, cases };
        group.read_again(host, now, debts, metrics);
        group
    }

    fn read_again(&mut self, host: &impl Host, now: Timestamp, debts: &Debts, metrics: &mut Metrics) {
        self.read = Table::read(host, self.place).ok();
        match &self.read {
            Some(read) if read.was_bad => metrics.add(Metric::BadStates, 1),
            Some(_) => {}
            None => metrics.add(Metric::Errors, 1),
        }
        // What cannot be read counts as empty: the limiter must not take the site down.
        let empty = AnySlot::empty(self.place);
        let slot = self.read.as_ref().map_or(&empty, |read| &read.slot);
        for case in &mut *self.cases {
            case.judged = case.ask.judge(slot, now, debts.owed(&case.ask, now));
            metrics.add(Metric::BadStates, case.judged.bad_states);
        }
    }

    fn is_denied(&self) -> bool {
        self.cases.iter().any(|case| case.ask.enforced && case.judged.is_refused())
    }

    fn write(
        &mut self,
        host: &impl Host,
        now: Timestamp,
        debts: &mut Debts,
        metrics: &mut Metrics,
    ) -> Charged {
        if !self.cases.iter().any(Case::is_written) {
            return Charged::All;
        }
        for _ in 0..CAS_TRIES_MAX {
            match self.try_write(host, now, metrics, Case::is_written) {
                Tried::Written => {
                    for case in self.charged() {
                        debts.paid(&case.ask);
                    }
                    return Charged::All;
                }
                Tried::Failed => break,
                Tried::Outrun => {
                    self.read_again(host, now, debts, metrics);
                    if self.is_denied() {
                        return Charged::Nothing;
                    }
                }
            }
        }
        // Decided on the last state read. The charge is not lost: it is made with the next success.
        metrics.add(Metric::CasGiveUps, 1);
        for case in self.cases.iter().filter(|case| !case.judged.is_refused()) {
            debts.owe(&case.ask, case.judged.ends(now), now, metrics);
        }
        Charged::All
    }

    /// Counts the denied, where the rule says so.
    fn write_denied(&mut self, host: &impl Host, now: Timestamp, debts: &Debts, metrics: &mut Metrics) {
        if !self.cases.iter().any(Case::is_counted_denial) {
            return;
        }
        for _ in 0..CAS_TRIES_MAX {
            match self.try_write(host, now, metrics, Case::is_counted_denial) {
                Tried::Written => return,
                Tried::Failed => break,
                Tried::Outrun => self.read_again(host, now, debts, metrics),
            }
        }
        metrics.add(Metric::CasGiveUps, 1);
    }

    /// Writes what the chosen cases judged on the slot as it was last read.
    fn try_write(
        &mut self,
        host: &impl Host,
        now: Timestamp,
        metrics: &mut Metrics,
        chosen: impl Fn(&Case<'r>) -> bool,
    ) -> Tried {
        let Some(Versioned { mut slot, cas, .. }) = self.read.take() else { return Tried::Failed };
        let mut placed = Evictions::default();
        for case in self.cases.iter().filter(|case| chosen(case)) {
            placed.add(case.ask.put(&mut slot, &case.judged, now));
        }
        match Table::write(host, self.place, &slot, cas) {
            Ok(()) => {
                placed.count(metrics);
                Tried::Written
            }
            Err(Status::CasMismatch) => {
                metrics.add(Metric::CasRetries, 1);
                Tried::Outrun
            }
            Err(_) => {
                metrics.add(Metric::Errors, 1);
                Tried::Failed
            }
        }
    }

    fn undo(&self, host: &impl Host, now: Timestamp, metrics: &mut Metrics) {
        if planted::has(Bug::UndoForgotten) {
            return;
        }
        let is_undone = update(host, self.place, metrics, &mut |slot| {
            for case in self.charged() {
                let receipts = case.judged.outcomes().map(|outcome| outcome.receipt);
                case.ask.refund(slot, receipts, case.ask.take.amount.get(), now);
            }
            Evictions::default()
        });
        if !is_undone {
            metrics.add(Metric::UndosLost, 1);
        }
    }

    fn charged(&self) -> impl Iterator<Item = &Case<'r>> {
        self.cases.iter().filter(|case| !case.judged.is_refused())
    }
}

/// What came of one try to write a slot.
enum Tried {
    Written,
    /// Somebody else wrote first.
    Outrun,
    Failed,
}

impl Case<'_> {
    fn is_counted_denial(&self) -> bool {
        self.judged.is_refused() && self.ask.rule.count_denied
    }

    fn is_written(&self) -> bool {
        !self.judged.is_refused() || self.is_counted_denial()
    }
}

impl Judged {
    /// Nothing judged yet.
    pub(crate) const NONE: Self =
        Self { limits: [const { None }; LIMITS_MAX], retry: Retry::Now, bad_states: 0 };

    pub(crate) fn is_refused(&self) -> bool {
        self.retry != Retry::Now
    }

    /// The outcomes in the order of the rule's limits.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.limits.iter().flatten().map(|(outcome, _)| outcome)
    }

    /// When the whole of every limit is free again: what was taken counts no more.
    pub(crate) fn ends(&self, now: Timestamp) -> Timestamp {
        let reset_ms = self.outcomes().map(|outcome| outcome.reset_ms).max().unwrap_or(0);
        Timestamp::from_ms(now.ms().saturating_add(reset_ms))
    }

    fn counted(&self) -> impl Iterator<Item = &(Outcome, State)> {
        self.limits.iter().flatten()
    }
}

impl Ask<'_> {
    /// Decides on a slot as it was read, with what this VM still owes for the key charged first.
    pub(crate) fn judge(&self, slot: &AnySlot, now: Timestamp, owed: u64) -> Judged {
        let mut judged = Judged::NONE;
        for (counted, place) in self.limits.iter().zip(&mut judged.limits) {
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

    /// Writes the states of a judgement: what it took, or that it was denied.
    pub(crate) fn put(&self, slot: &mut AnySlot, judged: &Judged, now: Timestamp) -> Evictions {
        let mut evictions = Evictions::default();
        let ids: Vec<EntryId> =
            self.limits.iter().map(|limit| self.rule.entry_id(limit, &self.identity)).collect();
        for ((counted, (_, state)), id) in self.limits.iter().zip(judged.counted()).zip(&ids) {
            let moment = counted.moment(&self.identity, now);
            let placed = if judged.is_refused() {
                let state = counted.limit.charge_denied(Some(state.clone()), moment, self.take.amount);
                slot.put(*id, &counted.limit, &state, moment, &ids)
            } else {
                slot.put(*id, &counted.limit, state, moment, &ids)
            };
            evictions.see(placed);
        }
        evictions
    }

    /// Gives back a part of what was taken, named by a receipt for each limit. An entry that is gone took it along.
    pub(crate) fn refund(
        &self,
        slot: &mut AnySlot,
        receipts: impl Iterator<Item = u64>,
        amount: u64,
        now: Timestamp,
    ) {
        for (counted, receipt) in self.limits.iter().zip(receipts) {
            let id = self.rule.entry_id(counted, &self.identity);
            if let Some(Ok(state)) = slot.find(id.fingerprint) {
                let moment = counted.moment(&self.identity, now);
                let state = counted.limit.refund(state, moment, receipt, amount);
                // It is there, so this writes over it.
                slot.put(id, &counted.limit, &state, moment, &[]);
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
