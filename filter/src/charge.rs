//! Takes from counters in the table: all that a request asks for, or nothing.
//!
//! First every slot is read and every rule judged; nothing is written before all have said yes. Then the
//! slots are written in order, each by compare-and-swap. Who loses a race reads that slot again and judges
//! again; if a rule says no then, what was already written is undone.
//!
//! A rule can also count what it denies: then its counters are written although it said no. And a rule that leases may
//! have too little granted: then nothing is written, and the counter must be asked.

use crate::any_slot::AnySlot;
use crate::ask::{Case, Home};
use crate::clock::Clock;
use crate::debts::Debts;
use crate::host::{Host, Status};
use crate::metrics::{Metric, Metrics};
use crate::planted::{self, Bug};
use crate::table::{Place, Region, Table, Versioned};
use tidegate_core::slot::Placed;

/// How often a slot is tried before its charge is kept as a debt. Contention by requests needs two or three.
const CAS_TRIES_MAX: usize = 32;

/// What came of everything that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charged {
    /// Every enforced rule said yes, and all that said yes were charged.
    All,
    /// An enforced rule said no; nothing is charged.
    Nothing,
    /// A rule has too little granted to say yes or no; nothing is charged.
    Lacking,
}

/// Takes what all of `cases` ask for. Afterwards each case holds its last judgement.
pub(crate) fn charge(
    host: &impl Host,
    cases: &mut [Case],
    clock: &Clock,
    debts: &mut Debts,
    metrics: &mut Metrics,
) -> Charged {
    let mut groups = read_all(host, cases, clock, debts, metrics);
    let charged = if groups.iter().any(Group::is_denied) {
        if planted::has(Bug::EarlyWrite) {
            for group in groups.iter_mut().filter(|group| !group.is_denied()) {
                group.write(host, clock, debts, metrics);
            }
        }
        Charged::Nothing
    } else if groups.iter().any(Group::lacks) {
        Charged::Lacking
    } else {
        charge_all(host, &mut groups, clock, debts, metrics)
    };
    if charged == Charged::Nothing {
        for group in &mut groups {
            group.write_denied(host, clock, debts, metrics);
        }
    }
    charged
}

/// What would come of [`charge`] now. Nothing is written but denials that their rules count.
pub(crate) fn peek(
    host: &impl Host,
    cases: &mut [Case],
    clock: &Clock,
    debts: &Debts,
    metrics: &mut Metrics,
) -> Charged {
    let mut groups = read_all(host, cases, clock, debts, metrics);
    if !groups.iter().any(Group::is_denied) {
        return Charged::All;
    }
    for group in &mut groups {
        group.write_denied(host, clock, debts, metrics);
    }
    Charged::Nothing
}

fn read_all<'c>(
    host: &impl Host,
    cases: &'c mut [Case],
    clock: &Clock,
    debts: &Debts,
    metrics: &mut Metrics,
) -> Vec<Group<'c>> {
    cases.sort_unstable_by_key(|case| case.ask.place);
    let groups = cases.chunk_by_mut(|a, b| a.ask.place == b.ask.place);
    groups.map(|cases| Group::read(host, cases, clock, debts, metrics)).collect()
}

fn charge_all(
    host: &impl Host,
    groups: &mut [Group<'_>],
    clock: &Clock,
    debts: &mut Debts,
    metrics: &mut Metrics,
) -> Charged {
    for index in 0..groups.len() {
        let (written, rest) = groups.split_at_mut(index);
        let Some(group) = rest.first_mut() else { break };
        let charged = group.write(host, clock, debts, metrics);
        if charged != Charged::All {
            for group in written {
                group.undo(host, clock, metrics);
            }
            return charged;
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
        let Ok(Versioned { mut slot, cas, was_bad }) = Table::read(host, place) else { return false };
        metrics.add(Metric::BadStates, was_bad.into());
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
struct Group<'c> {
    place: Place,
    /// The slot as last read; none if the host would not tell.
    read: Option<Versioned>,
    cases: &'c mut [Case],
}

impl<'c> Group<'c> {
    fn read(
        host: &impl Host,
        cases: &'c mut [Case],
        clock: &Clock,
        debts: &Debts,
        metrics: &mut Metrics,
    ) -> Self {
        let place = cases.first().map_or(Place { region: Region::Small, index: 0 }, |case| case.ask.place);
        let mut group = Self { place, read: None, cases };
        group.read_again(host, clock, debts, metrics);
        group
    }

    fn read_again(&mut self, host: &impl Host, clock: &Clock, debts: &Debts, metrics: &mut Metrics) {
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
            case.judged = case.ask.judge(slot, clock, &debts.owed(&case.ask, clock));
            metrics.add(Metric::BadStates, case.judged.bad_states);
        }
    }

    fn is_denied(&self) -> bool {
        self.cases.iter().any(|case| case.ask.enforced && case.judged.is_refused())
    }

    fn lacks(&self) -> bool {
        self.cases.iter().any(|case| case.judged.lacks)
    }

    fn write(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        debts: &mut Debts,
        metrics: &mut Metrics,
    ) -> Charged {
        if !self.cases.iter().any(Case::is_written) {
            return Charged::All;
        }
        for _ in 0..CAS_TRIES_MAX {
            match self.try_write(host, clock, metrics, Case::is_written) {
                Tried::Written => {
                    for case in self.charged() {
                        debts.paid(&case.ask);
                    }
                    return Charged::All;
                }
                Tried::Failed => break,
                Tried::Outrun => {
                    self.read_again(host, clock, debts, metrics);
                    if self.is_denied() {
                        return Charged::Nothing;
                    }
                    if self.lacks() {
                        return Charged::Lacking;
                    }
                }
            }
        }
        metrics.add(Metric::CasGiveUps, 1);
        // What was granted and cannot be spent is as good as not granted: the counter is asked.
        if self.charged().any(|case| case.ask.home == Home::Leased) {
            return Charged::Lacking;
        }
        // Decided on the last state read. The charge is not lost: it is made with the next success. What syncs is
        // reported to the counter in any case; here it is not kept, and so not taken away when it is acknowledged.
        for case in self.cases.iter_mut().filter(|case| case.ask.home == Home::Synced) {
            case.judged.forget_receipts();
        }
        for case in self.charged().filter(|case| case.ask.home != Home::Synced) {
            let now = clock.of(case.ask.home);
            debts.owe(&case.ask, case.judged.ends_of_limits(now), clock, metrics);
        }
        Charged::All
    }

    /// Counts the denied, where the rule says so.
    fn write_denied(&mut self, host: &impl Host, clock: &Clock, debts: &Debts, metrics: &mut Metrics) {
        if !self.cases.iter().any(Case::is_counted_denial) {
            return;
        }
        for _ in 0..CAS_TRIES_MAX {
            match self.try_write(host, clock, metrics, Case::is_counted_denial) {
                Tried::Written => return,
                Tried::Failed => break,
                Tried::Outrun => self.read_again(host, clock, debts, metrics),
            }
        }
        metrics.add(Metric::CasGiveUps, 1);
    }

    /// Writes what the chosen cases judged on the slot as it was last read.
    fn try_write(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        metrics: &mut Metrics,
        chosen: impl Fn(&Case) -> bool,
    ) -> Tried {
        let Some(Versioned { mut slot, cas, .. }) = self.read.take() else { return Tried::Failed };
        let mut placed = Evictions::default();
        for case in self.cases.iter().filter(|case| chosen(case)) {
            placed.add(case.ask.put(&mut slot, &case.judged, clock));
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

    fn undo(&self, host: &impl Host, clock: &Clock, metrics: &mut Metrics) {
        if planted::has(Bug::UndoForgotten) {
            return;
        }
        let mut is_given_back = true;
        let is_written = update(host, self.place, metrics, &mut |slot| {
            is_given_back = true;
            for case in self.charged() {
                let receipts = case.judged.receipts().into_iter();
                is_given_back &= case.ask.refund(slot, receipts, case.ask.take.amount.get(), clock);
            }
            Evictions::default()
        });
        if !(is_written && is_given_back) {
            metrics.add(Metric::UndosLost, 1);
        }
    }

    fn charged(&self) -> impl Iterator<Item = &Case> {
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

/// Living entries that gave way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Evictions {
    own: u64,
    foreign: u64,
    no_place: u64,
}

impl Evictions {
    pub(crate) fn see(&mut self, placed: Placed) {
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
