//! A slot: eight counters of any keys and rules in one value of fixed size, which one compare-and-swap
//! replaces. A table of slots is bounded by its size, whatever clients send.
//!
//! Byte form, little-endian, 252 bytes: a head (magic `TG`, version, displaced load, displaced until in
//! seconds, the slot's own index) and eight entries (fingerprint, rule tag, state kind, load with the
//! strict bit beside it, expiry in seconds, state). An entry with fingerprint 0 is empty.
//!
//! **When a slot is full** an expired entry gives way first. Then, if the newcomer's rule holds entries
//! here, the least loaded of them; else the least loaded of the rule with the most entries here, which is
//! a foreign eviction. What a displaced `strict` entry had used is not forgotten: the head keeps the
//! highest load displaced and when it ends, and every strict newcomer starts from it until then, for it
//! may be the one that was displaced. Strict counters are so never short, and may deny early.

use crate::bytes::{Reader, Writer};
use crate::{BadState, Limit, Moment, STATE_BYTES, State, StateBytes, Take, Timestamp};
use core::num::NonZeroU64;

/// Entries in a slot.
pub const ENTRIES: usize = 8;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = HEAD_BYTES + ENTRIES * ENTRY_BYTES;

const HEAD_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8 + 2 + 1 + 1 + 4 + STATE_BYTES;
const MAGIC: [u8; 2] = *b"TG";
const VERSION: u8 = 1;

const _: () = assert!(SLOT_BYTES == 252, "the table's memory is promised per slot");

/// How much of its limit a counter has used, in 127ths, rounded up: comparable across limits, and never
/// less than the truth. Debt is a full load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load(u8);

impl Load {
    const FULL: u64 = 127;

    /// The load of a state of `limit`.
    pub fn of(limit: &Limit, state: State, at: Moment) -> Self {
        let used = limit.used(state, at);
        if used >= limit.requests() {
            return Self(if used == 0 { 0 } else { 127 });
        }
        let load = used.saturating_mul(Self::FULL).div_ceil(limit.requests().max(1));
        Self(u8::try_from(load).unwrap_or(127))
    }

    /// A state of `limit` with at least this load.
    pub fn state(self, limit: &Limit, at: Moment) -> Option<State> {
        let used = u64::from(self.0).saturating_mul(limit.requests()).div_ceil(Self::FULL);
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
pub struct Entry {
    /// Who is counted.
    pub id: EntryId,
    /// How much of its limit it had used when it was last written.
    pub load: Load,
    /// When it will be as good as none, in seconds.
    pub expires_s: u32,
    /// The state.
    pub state: StateBytes,
}

impl Entry {
    /// The entry of a state of `limit`.
    pub fn new(id: EntryId, limit: &Limit, state: State, at: Moment) -> Self {
        Self {
            id,
            load: Load::of(limit, state, at),
            expires_s: limit.expires(state, at).s_ceil(),
            state: state.to_bytes(),
        }
    }

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
pub struct Slot {
    index: u32,
    displaced: Displaced,
    entries: [Option<Entry>; ENTRIES],
}

impl Slot {
    /// A slot with nothing in it.
    pub const fn empty(index: u32) -> Self {
        Self { index, displaced: Displaced { load: Load(0), until_s: 0 }, entries: [None; ENTRIES] }
    }

    /// Reads the slot at `index`. A host may hand out another key's value: the slot carries its index.
    pub fn from_bytes(index: u32, bytes: &[u8]) -> Result<Self, BadSlot> {
        let bytes: &[u8; SLOT_BYTES] = bytes.try_into().map_err(|_| BadSlot)?;
        let mut reader = Reader::new(bytes);
        if reader.array() != MAGIC || reader.u8() != VERSION {
            return Err(BadSlot);
        }
        let load = Load(reader.u8());
        let until_s = reader.u32();
        if load.0 > 127 || reader.u32() != index {
            return Err(BadSlot);
        }
        let mut entries = [None; ENTRIES];
        for entry in &mut entries {
            *entry = read_entry(&mut reader);
        }
        Ok(Self { index, displaced: Displaced { load, until_s }, entries })
    }

    /// The byte form.
    pub fn to_bytes(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.array(MAGIC);
        writer.u8(VERSION);
        writer.u8(self.displaced.load.0);
        writer.u32(self.displaced.until_s);
        writer.u32(self.index);
        for entry in &self.entries {
            write_entry(&mut writer, entry.as_ref());
        }
        bytes
    }

    /// The state kept under a fingerprint, if there is one.
    pub fn find(&self, fingerprint: NonZeroU64) -> Option<Result<State, BadState>> {
        let entry = self.entries.iter().flatten().find(|entry| entry.id.fingerprint == fingerprint)?;
        Some(State::from_bytes(&entry.state))
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

    /// Replaces the state of an entry that is there, and says whether it is.
    pub fn update(&mut self, entry: Entry) -> bool {
        let place = self
            .entries
            .iter_mut()
            .find(|place| place.is_some_and(|old| old.id.fingerprint == entry.id.fingerprint));
        place.is_some_and(|place| {
            *place = Some(entry);
            true
        })
    }

    /// Puts an entry in, displacing another if it must, but none of those `beside` it.
    pub fn put(&mut self, entry: Entry, now: Timestamp, beside: &[EntryId]) -> Placed {
        if self.update(entry) {
            return Placed::Free;
        }
        let free = self.entries.iter_mut().find(|place| !place.is_some_and(|old| old.lives(now)));
        if let Some(place) = free {
            *place = Some(entry);
            return Placed::Free;
        }
        let movable = |old: &Entry| !beside.iter().any(|id| id.fingerprint == old.id.fingerprint);
        let own = entry.id.rule_tag;
        if self.displace(entry, now, |old| movable(old) && old.id.rule_tag == own) {
            return Placed::EvictedOwn;
        }
        let Some(largest) = self.largest_rule(movable) else {
            return Placed::NoPlace;
        };
        if self.displace(entry, now, |old| movable(old) && old.id.rule_tag == largest) {
            Placed::EvictedForeign
        } else {
            Placed::NoPlace
        }
    }

    /// Displaces the least loaded of the eligible entries; among equals the one that ends first.
    fn displace(&mut self, entry: Entry, now: Timestamp, eligible: impl Fn(&Entry) -> bool) -> bool {
        let victim = self
            .entries
            .iter_mut()
            .flatten()
            .filter(|old| eligible(old))
            .min_by_key(|old| (old.load, old.expires_s));
        let Some(victim) = victim else {
            return false;
        };
        let gone = core::mem::replace(victim, entry);
        if gone.id.strict {
            let before = self.displaced(now).unwrap_or(Displaced { load: Load(0), until_s: 0 });
            self.displaced =
                Displaced { load: before.load.max(gone.load), until_s: before.until_s.max(gone.expires_s) };
        }
        true
    }

    /// The rule with the most eligible entries here.
    fn largest_rule(&self, eligible: impl Fn(&Entry) -> bool) -> Option<u16> {
        let tags = || self.entries.iter().flatten().filter(|old| eligible(old)).map(|old| old.id.rule_tag);
        tags().max_by_key(|tag| tags().filter(|other| other == tag).count())
    }
}

const STRICT_BIT: u8 = 0x80;

fn read_entry(reader: &mut Reader<'_>) -> Option<Entry> {
    let fingerprint = reader.u64();
    let rule_tag = reader.u16();
    let kind = reader.u8();
    let load = reader.u8();
    let expires_s = reader.u32();
    let contents = reader.array();
    Some(Entry {
        id: EntryId { fingerprint: NonZeroU64::new(fingerprint)?, rule_tag, strict: load & STRICT_BIT != 0 },
        load: Load(load & !STRICT_BIT),
        expires_s,
        state: StateBytes { kind, contents },
    })
}

fn write_entry(writer: &mut Writer<'_>, entry: Option<&Entry>) {
    let Some(entry) = entry else {
        writer.array([0; ENTRY_BYTES]);
        return;
    };
    writer.u64(entry.id.fingerprint.get());
    writer.u16(entry.id.rule_tag);
    writer.u8(entry.state.kind);
    writer.u8(entry.load.0 | if entry.id.strict { STRICT_BIT } else { 0 });
    writer.u32(entry.expires_s);
    writer.array(entry.state.contents);
}
