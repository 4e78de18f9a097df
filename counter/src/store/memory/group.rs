//! A group of takes on locked slots: all of it or nothing.

use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;
use tidegate_config::LIMITS_MAX;
use tidegate_config::wire::{Act, Take};
use tidegate_core::slot::{Contents, Entry, EntryId, Placed, Slot};
use tidegate_core::{Manner, Moment, Outcome, Retry, State, Take as CoreTake, Timestamp};

use super::states_room::StatesRoom;
use super::table::{AnySlot, Counts, Locked, Place};

/// A take and where its counter is.
pub(super) struct Asked<'a> {
    pub(super) take: &'a Take<'a>,
    pub(super) place: Place,
    pub(super) id: EntryId,
    pub(super) at: Moment,
}

/// What came of a take, and the state to write if its group is charged.
struct Judged {
    outcome: Outcome,
    state: Option<State>,
}

/// What a counter starts from.
#[derive(Default)]
struct Found {
    state: Option<State>,
    /// If the state is inherited from counters that were displaced: how long that counts.
    lasts_ms: Option<u64>,
}

/// Judges every take; writes only if none fails the group.
pub(super) fn judge(asked: &[Asked<'_>], locked: &mut Locked<'_>, counts: &Counts) -> Vec<Outcome> {
    let mut judged: SmallVec<[Judged; LIMITS_MAX]> = SmallVec::new();
    for (index, this) in asked.iter().enumerate() {
        let earlier = asked.iter().zip(&judged).take(index).rev();
        let overlaid = earlier
            .filter(|(other, _)| other.id.fingerprint == this.id.fingerprint && other.place == this.place)
            .find_map(|(_, judged)| judged.state.clone());
        let found = match overlaid {
            Some(state) => Found { state: Some(state), lasts_ms: None },
            None => this.find(locked),
        };
        judged.push(this.judge(found));
    }
    let fails = |(asked, judged): (&Asked<'_>, &Judged)| {
        asked.take.act == Act::Take(Manner::All) && judged.outcome.is_refused()
    };
    if asked.iter().zip(&judged).any(fails) {
        return failed(asked, &judged, locked);
    }
    let ids: SmallVec<[EntryId; LIMITS_MAX]> = asked.iter().map(|asked| asked.id).collect();
    for (asked, judged) in asked.iter().zip(&judged) {
        if let Some(state) = &judged.state {
            match asked.put(state, locked, &ids) {
                Placed::Free => {}
                Placed::EvictedOwn => count(&counts.own),
                Placed::EvictedForeign => count(&counts.foreign),
                Placed::NoPlace => count(&counts.no_place),
            }
        }
    }
    judged.into_iter().map(|judged| judged.outcome).collect()
}

/// Nothing is charged: each tells its counter as it stands.
fn failed(asked: &[Asked<'_>], judged: &[Judged], locked: &mut Locked<'_>) -> Vec<Outcome> {
    let takes = asked.iter().zip(judged).map(|(asked, judged)| Outcome {
        retry: judged.outcome.retry,
        ..asked.peek(asked.find(locked).state)
    });
    takes.collect()
}

/// What the next take of each counter would start from; no more than one answer could tell in any case.
pub(super) fn states(asked: &[Asked<'_>], locked: &mut Locked<'_>) -> Vec<Option<State>> {
    let mut room = StatesRoom::default();
    asked.iter().map(|asked| asked.find(locked).state.and_then(|state| room.take(state))).collect()
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Asked<'_> {
    fn judge(&self, found: Found) -> Judged {
        match self.take.act {
            Act::Take(manner) => self.judge_take(manner, found),
            Act::Refund { receipt } => self.refund(receipt, found.state),
        }
    }

    fn judge_take(&self, manner: Manner, found: Found) -> Judged {
        let take = CoreTake { amount: self.take.n, manner };
        let (mut outcome, state) = self.take.limit.limit.take(found.state, self.at, take);
        if let (Retry::After(wait_ms), Some(lasts_ms)) = (outcome.retry, found.lasts_ms) {
            // A newcomer inherits no longer than what it inherits lasts.
            outcome.retry = Retry::After(wait_ms.min(lasts_ms));
        }
        if outcome.taken == 0 {
            outcome.receipt = 0;
            return Judged { outcome, state: None };
        }
        Judged { outcome, state: Some(state) }
    }

    fn refund(&self, receipt: u64, state: Option<State>) -> Judged {
        let limit = &self.take.limit.limit;
        let state = state.map(|state| limit.refund(state, self.at, receipt, self.take.n.get()));
        Judged { outcome: self.peek(state.clone()), state }
    }

    /// A counter as it stands: what a take of more than there can be is told.
    fn peek(&self, state: Option<State>) -> Outcome {
        let (outcome, _) = self.take.limit.limit.take(state, self.at, CoreTake::all(NonZeroU64::MAX));
        Outcome { retry: Retry::Now, receipt: 0, ..outcome }
    }

    fn find(&self, locked: &mut Locked<'_>) -> Found {
        let found = locked.with(self.place, |slot| match slot {
            AnySlot::Small(slot) => self.find_in(slot),
            AnySlot::Large(slot) => self.find_in(slot),
        });
        found.unwrap_or_default()
    }

    /// A strict newcomer may be one that was displaced here: it starts from the highest load displaced.
    fn find_in<C: Contents>(&self, slot: &Slot<C>) -> Found {
        if let Some(state) = slot.find(self.id.fingerprint) {
            return Found { state: state.ok(), lasts_ms: None };
        }
        match slot.displaced(self.at.now).filter(|_| self.id.strict) {
            Some(gone) => Found {
                state: gone.load.state(&self.take.limit.limit, self.at),
                lasts_ms: Some(Timestamp::from_s(gone.until_s).ms_since(self.at.now)),
            },
            None => Found::default(),
        }
    }

    fn put(&self, state: &State, locked: &mut Locked<'_>, beside: &[EntryId]) -> Placed {
        let placed = locked.with(self.place, |slot| match slot {
            AnySlot::Small(slot) => self.put_in(slot, state, beside),
            AnySlot::Large(slot) => self.put_in(slot, state, beside),
        });
        placed.unwrap_or(Placed::NoPlace)
    }

    fn put_in<C: Contents>(&self, slot: &mut Slot<C>, state: &State, beside: &[EntryId]) -> Placed {
        match Entry::new(self.id, &self.take.limit.limit, state, self.at) {
            Some(entry) => slot.put(entry, self.at.now, beside),
            None => Placed::NoPlace,
        }
    }
}
