//! A slot: eight counters of any keys and rules in one value of fixed size, which one compare-and-swap
//! replaces. A table of slots is bounded by its size, whatever clients send.
//!
//! Byte form, little-endian: a head of 12 bytes (magic `TG`, version, displaced load, displaced until in
//! seconds, the slot's own index) and eight entries. An entry is 16 bytes (fingerprint, rule tag, state kind,
//! load with the strict bit above it, expiry in seconds) and its state; a fingerprint of 0 is an empty place.
//! In a [`SmallSlot`] every state has 14 bytes, so a slot has always 252. In a [`LargeSlot`] a state has its
//! length before it (2 bytes) and an empty place has none.
//!
//! **When a slot is full** an expired entry gives way first. Then, if the newcomer's rule holds entries
//! here, the least loaded of them; else the least loaded of the rule with the most entries here, which is
//! a foreign eviction. What a displaced `strict` entry had used is not forgotten: the head keeps the
//! highest load displaced and when it ends, and every strict newcomer starts from it until then, for it
//! may be the one that was displaced. Strict counters are so never short, and may deny early.

use crate::bytes::Reader;
use crate::{BadState, Limit, Moment, SMALL_STATE_BYTES, State, Take, Timestamp};
use alloc::vec::Vec;
use core::num::NonZeroU64;

/// Entries in a slot.
pub const ENTRIES: usize = 8;
/// Bytes of a small slot.
pub const SMALL_SLOT_BYTES: usize = HEAD_BYTES + ENTRIES * (ENTRY_HEAD_BYTES + SMALL_STATE_BYTES);

const HEAD_BYTES: usize = 12;
const ENTRY_HEAD_BYTES: usize = 16;
const MAGIC: [u8; 2] = *b"TG";
const VERSION: u8 = 1;

const _: () = assert!(SMALL_SLOT_BYTES == 252, "the table's memory is promised per slot");

/// A slot of states of one size: what most algorithms need.
pub type SmallSlot = Slot<[u8; SMALL_STATE_BYTES]>;
/// A slot of states of any size.
pub type LargeSlot = Slot<Vec<u8>>;

/// How a slot keeps the contents of a state.
pub trait Contents: Sized {
    /// `None` if such a state does not fit.
    fn of(state: &State) -> Option<Self>;
    /// The contents as they are.
    fn as_bytes(&self) -> &[u8];
    /// Appends the contents, or those of an empty place.
    fn write(place: Option<&Self>, out: &mut Vec<u8>);
    /// Reads the contents of a place that is taken or empty; `None` if they are cut short.
    fn read(reader: &mut ContentsReader<'_>, is_taken: bool) -> Option<Self>;
}

/// Where contents are read from.
pub struct ContentsReader<'a>(Reader<'a>);

impl Contents for [u8; SMALL_STATE_BYTES] {
    fn of(state: &State) -> Option<Self> {
        state.small_contents()
    }

    fn as_bytes(&self) -> &[u8] {
        self
    }

    fn write(place: Option<&Self>, out: &mut Vec<u8>) {
        out.extend(place.unwrap_or(&[0; SMALL_STATE_BYTES]));
    }

    fn read(reader: &mut ContentsReader<'_>, _is_taken: bool) -> Option<Self> {
        reader.0.slice(SMALL_STATE_BYTES)?.try_into().ok()
    }
}

impl Contents for Vec<u8> {
    fn of(state: &State) -> Option<Self> {
        Some(state.contents()).filter(|contents| u16::try_from(contents.len()).is_ok())
    }

    fn as_bytes(&self) -> &[u8] {
        self
    }

    fn write(place: Option<&Self>, out: &mut Vec<u8>) {
        if let Some(contents) = place {
            out.extend(u16::try_from(contents.len()).unwrap_or(0).to_le_bytes());
            out.extend(contents);
        }
    }

    fn read(reader: &mut ContentsReader<'_>, is_taken: bool) -> Option<Self> {
        if !is_taken {
            return Some(Self::new());
        }
        let length = reader.0.u16();
        reader.0.slice(length.into()).map(<[u8]>::to_vec)
    }
}

/// How much of its limit a counter has used, in 127ths, rounded up: comparable across limits, and never
/// less than the truth. Debt is a full load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load(u8);

impl Load {
    /// That of a counter that has used all of its limit.
    pub const MOST: Self = Self(127);

    const FULL: u64 = 127;

    /// The load of a state of `limit`.
    pub fn of(limit: &Limit, state: &State, at: Moment) -> Self {
        let used = limit.used(state, at);
        if used >= limit.capacity() {
            return Self(if used == 0 { 0 } else { 127 });
        }
        let load = used.saturating_mul(Self::FULL).div_ceil(limit.capacity().max(1));
        Self(u8::try_from(load).unwrap_or(127))
    }

    /// A state of `limit` with at least this load.
    pub fn state(self, limit: &Limit, at: Moment) -> Option<State> {
        let used = u64::from(self.0).saturating_mul(limit.capacity()).div_ceil(Self::FULL);
        NonZeroU64::new(used).map(|used| limit.take(None, at, Take::force(used)).1)
    }
}

/// Who is counted and how it is kept: what identifies an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId {
    /// A keyed hash of everything that makes this counter itself. Not 0.
    pub fingerprint: NonZeroU64,
    /// A short hash of the rule, by which a slot tells its own entries from others'.
    pub rule_tag: u16,
    /// Whether its load must outlive its displacement.
    pub strict: bool,
}

/// One counter of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<C> {
    id: EntryId,
    load: Load,
    expires_s: u32,
    kind: u8,
    contents: C,
}

impl<C: Contents> Entry<C> {
    /// The entry of a state of `limit`; `None` if such a state does not fit here.
    pub fn new(id: EntryId, limit: &Limit, state: &State, at: Moment) -> Option<Self> {
        Self::kept(id, state, Load::of(limit, state, at), limit.expires(state, at))
    }

    /// The entry of a state whose load and end its keeper knows better, because it counts by another clock than the
    /// slot's others.
    pub fn kept(id: EntryId, state: &State, load: Load, expires: Timestamp) -> Option<Self> {
        Some(Self { id, load, expires_s: expires.s_ceil(), kind: state.kind(), contents: C::of(state)? })
    }
}

impl<C> Entry<C> {
    fn lives(&self, now: Timestamp) -> bool {
        self.expires_s > now.s_floor()
    }
}

/// What displaced strict entries left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// The highest load among them.
    pub load: Load,
    /// When the last of them ends, in seconds.
    pub until_s: u32,
}

/// Where an entry went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Over its own earlier self, an empty place or an expired entry.
    Free,
    /// Over a living entry of its own rule.
    EvictedOwn,
    /// Over a living entry of another rule.
    EvictedForeign,
    /// Nowhere: every other place is taken by the entries it came with.
    NoPlace,
}

/// Bytes that are no slot, or another slot's: as good as an empty one, but worth counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSlot;

/// Eight entries and what was displaced from among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<C> {
    index: u32,
    displaced: Displaced,
    entries: [Option<Entry<C>>; ENTRIES],
}

impl<C: Contents> Slot<C> {
    /// A slot with nothing in it.
    pub const fn empty(index: u32) -> Self {
        Self { index, displaced: Displaced { load: Load(0), until_s: 0 }, entries: [const { None }; ENTRIES] }
    }

    /// Reads the slot at `index`. A host may hand out another key's value: the slot carries its index.
    pub fn from_bytes(index: u32, bytes: &[u8]) -> Result<Self, BadSlot> {
        let mut reader = Reader::new(bytes);
        if bytes.len() < HEAD_BYTES || reader.array() != MAGIC || reader.u8() != VERSION {
            return Err(BadSlot);
        }
        let load = Load(reader.u8());
        let until_s = reader.u32();
        if load.0 > 127 || reader.u32() != index {
            return Err(BadSlot);
        }
        let mut slot = Self::empty(index);
        slot.displaced = Displaced { load, until_s };
        let mut reader = ContentsReader(reader);
        for place in &mut slot.entries {
            *place = read_entry(&mut reader)?;
        }
        if reader.0.is_empty() { Ok(slot) } else { Err(BadSlot) }
    }

    /// The byte form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SMALL_SLOT_BYTES);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, self.displaced.load.0]);
        bytes.extend(self.displaced.until_s.to_le_bytes());
        bytes.extend(self.index.to_le_bytes());
        for place in &self.entries {
            write_entry(place.as_ref(), &mut bytes);
        }
        bytes
    }

    /// The state kept under a fingerprint, if there is one.
    pub fn find(&self, fingerprint: NonZeroU64) -> Option<Result<State, BadState>> {
        let entry = self.entries.iter().flatten().find(|entry| entry.id.fingerprint == fingerprint)?;
        Some(State::from_bytes(entry.kind, entry.contents.as_bytes()))
    }

    /// What a strict newcomer must start from.
    pub fn displaced(&self, now: Timestamp) -> Option<Displaced> {
        let counts = self.displaced.load > Load(0) && self.displaced.until_s > now.s_floor();
        counts.then_some(self.displaced)
    }

    /// How many entries live.
    pub fn living(&self, now: Timestamp) -> usize {
        self.entries.iter().flatten().filter(|entry| entry.lives(now)).count()
    }

    /// Replaces the state of an entry that is there; hands the entry back if it is not.
    pub fn update(&mut self, entry: Entry<C>) -> Result<(), Entry<C>> {
        let mut living = self.entries.iter_mut().flatten();
        match living.find(|old| old.id.fingerprint == entry.id.fingerprint) {
            Some(place) => {
                *place = entry;
                Ok(())
            }
            None => Err(entry),
        }
    }

    /// Puts an entry in, displacing another if it must, but none of those `beside` it.
    pub fn put(&mut self, entry: Entry<C>, now: Timestamp, beside: &[EntryId]) -> Placed {
        let Err(entry) = self.update(entry) else {
            return Placed::Free;
        };
        let free = |place: &&mut Option<Entry<C>>| !place.as_ref().is_some_and(|old| old.lives(now));
        if let Some(place) = self.entries.iter_mut().find(free) {
            *place = Some(entry);
            return Placed::Free;
        }
        let movable = |old: &Entry<C>| !beside.iter().any(|id| id.fingerprint == old.id.fingerprint);
        let own = entry.id.rule_tag;
        let has_own = self.entries.iter().flatten().any(|old| movable(old) && old.id.rule_tag == own);
        let (victims, placed) = if has_own {
            (own, Placed::EvictedOwn)
        } else if let Some(largest) = self.largest_rule(movable) {
            (largest, Placed::EvictedForeign)
        } else {
            return Placed::NoPlace;
        };
        self.displace(entry, now, |old| movable(old) && old.id.rule_tag == victims);
        placed
    }

    /// Displaces the least loaded of the eligible entries; among equals the one that ends first.
    fn displace(&mut self, entry: Entry<C>, now: Timestamp, eligible: impl Fn(&Entry<C>) -> bool) {
        let victim = self
            .entries
            .iter_mut()
            .flatten()
            .filter(|old| eligible(old))
            .min_by_key(|old| (old.load, old.expires_s));
        let Some(victim) = victim else { return };
        let gone = core::mem::replace(victim, entry);
        if gone.id.strict {
            let before = self.displaced(now).unwrap_or(Displaced { load: Load(0), until_s: 0 });
            self.displaced =
                Displaced { load: before.load.max(gone.load), until_s: before.until_s.max(gone.expires_s) };
        }
    }

    /// The rule with the most eligible entries here.
    fn largest_rule(&self, eligible: impl Fn(&Entry<C>) -> bool) -> Option<u16> {
        let tags = || self.entries.iter().flatten().filter(|old| eligible(old)).map(|old| old.id.rule_tag);
        tags().max_by_key(|tag| tags().filter(|other| other == tag).count())
    }
}

const STRICT_BIT: u8 = 0x80;

/// Reads a place. One that is cut short makes no slot.
fn read_entry<C: Contents>(reader: &mut ContentsReader<'_>) -> Result<Option<Entry<C>>, BadSlot> {
    let mut head = Reader::new(reader.0.slice(ENTRY_HEAD_BYTES).ok_or(BadSlot)?);
    let fingerprint = NonZeroU64::new(head.u64());
    let rule_tag = head.u16();
    let kind = head.u8();
    let load = head.u8();
    let expires_s = head.u32();
    let contents = C::read(reader, fingerprint.is_some()).ok_or(BadSlot)?;
    Ok(fingerprint.map(|fingerprint| Entry {
        id: EntryId { fingerprint, rule_tag, strict: load & STRICT_BIT != 0 },
        load: Load(load & !STRICT_BIT),
        expires_s,
        kind,
        contents,
    }))
}

fn write_entry<C: Contents>(entry: Option<&Entry<C>>, out: &mut Vec<u8>) {
    match entry {
        Some(entry) => {
            out.extend(entry.id.fingerprint.get().to_le_bytes());
            out.extend(entry.id.rule_tag.to_le_bytes());
            out.extend([entry.kind, entry.load.0 | if entry.id.strict { STRICT_BIT } else { 0 }]);
            out.extend(entry.expires_s.to_le_bytes());
        }
        None => out.extend([0; ENTRY_HEAD_BYTES]),
    }
    C::write(entry.map(|entry| &entry.contents), out);
}
