//! A slot of either region: most states are small and of one size, a log's is not.

use crate::table::{Place, Region};
use core::num::NonZeroU64;
use tidegate_core::slot::{Contents, Displaced, Entry, EntryId, LargeSlot, Load, Placed, Slot, SmallSlot};
use tidegate_core::{BadState, State, Timestamp};

/// A slot as the table keeps it.
#[derive(Clone)]
pub(crate) enum AnySlot {
    Small(SmallSlot),
    Large(LargeSlot),
}

impl AnySlot {
    pub(crate) fn empty(place: Place) -> Self {
        match place.region {
            Region::Small => Self::Small(Slot::empty(place.index)),
            Region::Large => Self::Large(Slot::empty(place.index)),
        }
    }

    /// `None` if the bytes are no slot of this place.
    pub(crate) fn from_bytes(place: Place, bytes: &[u8]) -> Option<Self> {
        match place.region {
            Region::Small => Slot::from_bytes(place.index, bytes).map(Self::Small).ok(),
            Region::Large => Slot::from_bytes(place.index, bytes).map(Self::Large).ok(),
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Small(slot) => slot.to_bytes(),
            Self::Large(slot) => slot.to_bytes(),
        }
    }

    pub(crate) fn find(&self, fingerprint: NonZeroU64) -> Option<Result<State, BadState>> {
        match self {
            Self::Small(slot) => slot.find(fingerprint),
            Self::Large(slot) => slot.find(fingerprint),
        }
    }

    pub(crate) fn displaced(&self, now: Timestamp) -> Option<Displaced> {
        match self {
            Self::Small(slot) => slot.displaced(now),
            Self::Large(slot) => slot.displaced(now),
        }
    }

    /// Puts a state in, displacing another if it must, but none of those `beside` it.
    pub(crate) fn put(
        &mut self,
        id: EntryId,
        state: &State,
        load: Load,
        expires: Timestamp,
        now: Timestamp,
        beside: &[EntryId],
    ) -> Placed {
        fn put<C: Contents>(
            slot: &mut Slot<C>,
            entry: Option<Entry<C>>,
            now: Timestamp,
            beside: &[EntryId],
        ) -> Placed {
            entry.map_or(Placed::NoPlace, |entry| slot.put(entry, now, beside))
        }
        match self {
            Self::Small(slot) => put(slot, Entry::kept(id, state, load, expires), now, beside),
            Self::Large(slot) => put(slot, Entry::kept(id, state, load, expires), now, beside),
        }
    }
}
