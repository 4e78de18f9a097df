//! The table: slots in shards with a lock each.

use std::mem::size_of;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tidegate_config::wire::{Batch, Group, GroupAnswer, Subjects, Take, limit_tag};
use tidegate_config::{LIMITS_MAX, WhenFull};
use tidegate_core::slot::{Contents, ENTRIES, EntryId, LargeSlot, Slot, SmallSlot};
use tidegate_core::{Moment, State, Timestamp};

use super::Size;
use super::group::{self, Asked};

/// The fewest counters that a table has room for.
pub const MAX_KEYS_MIN: usize = SHARDS * ENTRIES;
/// The most: about 42 GB.
pub const MAX_KEYS_MAX: usize = 1_000_000_000;
/// Room for as many counters if nobody says otherwise: about 42 MB.
pub const MAX_KEYS_DEFAULT: usize = 1_000_000;
/// The most counters with large states.
pub const LARGE_KEYS_MAX: usize = 1_000_000;
/// Room for as many counters with large states if nobody says otherwise.
pub const LARGE_KEYS_DEFAULT: usize = 8_192;

/// Enough that threads seldom meet, few enough to lock all of them.
const SHARDS: usize = 64;
const _: () = assert!(SHARDS.is_power_of_two());

/// Slots of either kind.
pub(super) struct Table {
    secret: [u8; 16],
    shards: Box<[Mutex<Shard>]>,
    /// How many slots of each kind a shard has.
    small_slots: usize,
    large_slots: usize,
    displaced: Counts,
}

/// The slots that one lock guards.
pub(super) struct Shard {
    small: Box<[SmallSlot]>,
    large: Box<[LargeSlot]>,
}

/// Where a counter is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    shard: usize,
    slot: usize,
    is_large: bool,
}

/// The locks that a group needs. All limits of one rule and key need the same.
pub(super) struct Locked<'t>(SmallVec<[(usize, MutexGuard<'t, Shard>); 1]>);

/// What the takes of a group mean here.
type AskedAll<'a> = SmallVec<[Asked<'a>; LIMITS_MAX]>;

/// How many living counters gave way.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) own: AtomicU64,
    pub(super) foreign: AtomicU64,
    pub(super) no_place: AtomicU64,
}

impl Table {
    pub(super) fn new(size: Size, secret: [u8; 16]) -> Self {
        let slots = |keys: usize| keys.div_ceil(ENTRIES).div_ceil(SHARDS).max(1);
        let (small_slots, large_slots) = (slots(size.keys), slots(size.large_keys));
        let shard =
            |_| Mutex::new(Shard { small: empty_slots(small_slots), large: empty_slots(large_slots) });
        let shards = (0..SHARDS).map(shard).collect();
        Self { secret, shards, small_slots, large_slots, displaced: Counts::default() }
    }

    /// What all slots take. A large one that is in use takes more, for the states in it.
    pub(super) fn bytes(&self) -> usize {
        SHARDS * (self.small_slots * size_of::<SmallSlot>() + self.large_slots * size_of::<LargeSlot>())
    }

    pub(super) fn displaced(&self) -> &Counts {
        &self.displaced
    }

    /// How the takes of a batch are told apart here.
    pub(super) fn subjects<'a>(&'a self, batch: &'a Batch<'_>) -> Subjects<'a> {
        Subjects::new(&self.secret, &batch.namespace)
    }

    /// Judges a group, and charges it if nothing is refused.
    pub(super) fn judge<'a>(
        &self,
        group: &'a Group<'_>,
        subjects: &mut Subjects<'a>,
        now: Timestamp,
        tells_states: bool,
    ) -> GroupAnswer {
        let asked = self.asked_all(group, subjects, now);
        let locked = &mut self.lock(&asked);
        let takes = group::judge(&asked, locked, &self.displaced);
        GroupAnswer { takes, states: if tells_states { group::states(&asked, locked) } else { Vec::new() } }
    }

    /// The states of a group's counters as they are now.
    pub(super) fn states<'a>(
        &self,
        group: &'a Group<'_>,
        subjects: &mut Subjects<'a>,
        now: Timestamp,
    ) -> Vec<Option<State>> {
        let asked = self.asked_all(group, subjects, now);
        group::states(&asked, &mut self.lock(&asked))
    }

    fn asked_all<'a>(
        &self,
        group: &'a Group<'_>,
        subjects: &mut Subjects<'a>,
        now: Timestamp,
    ) -> AskedAll<'a> {
        group.takes.iter().map(|take| self.asked(take, subjects, now)).collect()
    }

    /// What a take means here. All limits of one rule and key have their counters in one slot of each kind.
    fn asked<'a>(&self, take: &'a Take<'_>, subjects: &mut Subjects<'a>, now: Timestamp) -> Asked<'a> {
        let hash = subjects.subject(take);
        let is_large = !take.limit.limit.has_small_state();
        let slots = if is_large { self.large_slots } else { self.small_slots };
        let place = Place { shard: part(hash, 0, SHARDS), slot: part(hash, 32, slots), is_large };
        let key = u64::try_from(hash >> 64).unwrap_or_default();
        let id = EntryId {
            fingerprint: NonZeroU64::new(key ^ mixed(limit_tag(&take.limit))).unwrap_or(NonZeroU64::MIN),
            rule_tag: rule_tag(&take.rule),
            strict: take.when_full == WhenFull::Strict,
        };
        Asked { take, place, id, at: Moment { now, shift: subjects.shift(take) } }
    }

    /// Locks in the order of the shards, so that two groups never wait for each other.
    fn lock(&self, asked: &[Asked<'_>]) -> Locked<'_> {
        let mut shards: SmallVec<[usize; LIMITS_MAX]> = asked.iter().map(|asked| asked.place.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let locked = |index: usize| Some((index, guard(self.shards.get(index)?)));
        Locked(shards.into_iter().filter_map(locked).collect())
    }
}

impl Locked<'_> {
    /// Does something with the slot at a place.
    pub(super) fn with<R>(&mut self, place: Place, with: impl FnOnce(AnySlot<'_>) -> R) -> Option<R> {
        let index = self.0.binary_search_by_key(&place.shard, |(shard, _)| *shard).ok()?;
        let (_, shard) = self.0.get_mut(index)?;
        Some(with(if place.is_large {
            AnySlot::Large(shard.large.get_mut(place.slot)?)
        } else {
            AnySlot::Small(shard.small.get_mut(place.slot)?)
        }))
    }
}

/// A slot of either kind.
pub(super) enum AnySlot<'s> {
    Small(&'s mut SmallSlot),
    Large(&'s mut LargeSlot),
}

fn empty_slots<C: Contents>(count: usize) -> Box<[Slot<C>]> {
    // A slot's index is for hosts that may mix slots up; memory does not.
    (0..count).map(|_| Slot::empty(0)).collect()
}

/// A thread that panicked left whole slots behind: each is replaced at once.
fn guard(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number below `count` from 32 bits of a hash.
fn part(hash: u128, shift: u32, count: usize) -> usize {
    let bits = (hash >> shift) & u128::from(u32::MAX);
    usize::try_from((bits * count as u128) >> 32).unwrap_or(0)
}

/// Spreads a limit's tag over 64 bits, each tag to a number of its own. It needs no secret: the key's hash has one.
fn mixed([algorithm, buckets, calendar, window_ms @ ..]: [u8; 11]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let kind = u64::from_le_bytes([algorithm, buckets, calendar, 0, 0, 0, 0, 0]);
    let tag = u64::from_le_bytes(window_ms).wrapping_mul(1 << 24) | kind;
    let tag = tag.wrapping_mul(ODD);
    (tag ^ (tag >> 32)).wrapping_mul(ODD)
}

/// A short name for a rule.
fn rule_tag(rule: &str) -> u16 {
    let hash = rule.bytes().fold(0_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [a, b, c, d] = hash.to_le_bytes();
    u16::from_le_bytes([a ^ c, b ^ d])
}
