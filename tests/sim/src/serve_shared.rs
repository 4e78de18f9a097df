//! Answers calls on shared data, and tells the oracle what each write has done to its counters.

use crate::actor::Job;
use crate::calls::{CAS_MISMATCH, OK, Status, TRAPS};
use crate::identity::{self, Place, Region};
use crate::tally::Happened;
use crate::vm::{Asked, Trap};
use crate::world::World;
use std::num::NonZeroU64;
use tidegate_core::slot::{LargeSlot, SmallSlot};

/// Tries after which the filter gives a write up.
const TRIES_MAX: u32 = 32;

/// The byte form of a slot, as far as a foreign state needs it.
const SLOT_HEAD_BYTES: usize = 12;
const DISPLACED_LOAD_AT: usize = 3;
const ENTRY_HEAD_BYTES: usize = 16;
const SMALL_STATE_BYTES: usize = 14;
const KIND_AT: usize = 10;
/// Where a small slot's window has its count, from the entry's begin.
const COUNT_AT: usize = 20;

impl World<'_> {
    pub(crate) fn get_shared(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let key = self.text(actor, asked, 0)?;
        let proxy = self.actors[actor].proxy;
        match self.proxies[proxy].shared.get(&key) {
            Ok((told, cas)) => {
                let bytes = self.foreign_value(actor, &key).unwrap_or(told);
                let vm = self.vm(actor)?;
                vm.hand_over(&bytes, asked.arg32(2), asked.arg32(3))?;
                vm.write(asked.arg32(4), &cas.to_le_bytes())?;
                if key == identity::MARKER_KEY {
                    self.saw_marker(actor, job);
                }
                Ok(OK)
            }
            Err(TRAPS) => Err(no_zone()),
            Err(status) => {
                self.actors[actor].misread.remove(&key);
                Ok(status)
            }
        }
    }

    /// What a read of a slot gets instead of its value, if the fault hits it. Not the marker's: a VM that cannot
    /// read it lays the table out anew, which is a weakness of its own.
    fn foreign_value(&mut self, actor: usize, key: &[u8]) -> Option<Vec<u8>> {
        self.actors[actor].misread.remove(key);
        identity::slot_of_key(key)?;
        let per_million = self.scenario.rates.foreign_value;
        if !self.can_fail(actor) || !self.rng.chance(per_million) {
            return None;
        }
        let choice = self.rng.next();
        let bytes = self.proxies[self.actors[actor].proxy].shared.foreign(key, choice)?;
        self.tally.count(Happened::ForeignValue);
        self.note(actor, || "  fault: another key's value is handed out".to_owned());
        self.actors[actor].misread.insert(key.to_vec());
        Some(bytes)
    }

    pub(crate) fn set_shared(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let key = self.text(actor, asked, 0)?;
        let bytes = self.text(actor, asked, 2)?;
        let proxy = self.actors[actor].proxy;
        if let Some((until_ns, per_million)) = self.proxies[proxy].storm
            && identity::slot_of_key(&key).is_some()
            && self.now_ns < until_ns
            && self.can_fail(actor)
            && self.rng.chance(per_million)
        {
            self.tally.count(Happened::CasStorm);
            self.proxies[proxy].shared.touch(&key);
        }
        let before = self.proxies[proxy].shared.peek(&key).map(<[u8]>::to_vec);
        let status = self.proxies[proxy].shared.set(&key, bytes.clone(), asked.arg32(4));
        if status == TRAPS {
            return Err(no_zone());
        }
        self.see_zone(proxy);
        if identity::slot_of_key(&key).is_some() {
            self.see_write(actor, job, &key, before.as_deref(), &bytes, status);
        } else if key == identity::MARKER_KEY && status == OK {
            self.saw_marker(actor, job);
        }
        Ok(status)
    }

    /// What Kong's zone dropped is gone, strict or not.
    fn see_zone(&mut self, proxy: usize) {
        for (key, _) in self.proxies[proxy].shared.take_evicted() {
            self.tally.count(Happened::ZoneEviction);
            if let Some(slot) = identity::slot_of_key(&key) {
                self.empty_slot(proxy, slot, self.steps);
            } else if key == identity::MARKER_KEY {
                self.marker_dropped(proxy);
            }
        }
    }

    /// Whatever was written to a slot up to a step is gone.
    fn empty_slot(&mut self, proxy: usize, slot: Place, step: u64) {
        for (_, id, _) in self.proxies[proxy].slots.get(&slot).into_iter().flatten() {
            self.oracle.empty_one(step, id);
        }
    }

    fn see_write(
        &mut self,
        actor: usize,
        job: Job,
        key: &[u8],
        before: Option<&[u8]>,
        after: &[u8],
        status: Status,
    ) {
        let proxy = self.actors[actor].proxy;
        let Some(slot) = identity::slot_of_key(key) else { return };
        if status == OK && self.actors[actor].misread.remove(key) {
            self.note(actor, || format!("  {slot:?} is emptied: it was not shown as it is"));
            // What this write itself charges stays.
            self.empty_slot(proxy, slot, self.steps - 1);
        }
        match (job, status) {
            (Job::Request { request }, OK) => {
                let steps = self.steps;
                let journey = &mut self.journeys[request];
                journey.first_write_step.get_or_insert(steps);
                *journey.writes.entry(key.to_vec()).or_default() += 1;
                if journey.is_out_of_time {
                    // To the counters it is the clock that steps once more, and back again after it.
                    self.empty_slot(proxy, slot, self.steps);
                }
                self.see_displaced(proxy, slot, before, after);
            }
            (Job::Request { request }, CAS_MISMATCH) => {
                self.tally.count(Happened::CasMismatch);
                let journey = &mut self.journeys[request];
                let mismatches = journey.mismatches.entry(key.to_vec()).or_default();
                *mismatches += 1;
                if *mismatches == TRIES_MAX {
                    journey.is_faulty = true;
                    self.tally.count(Happened::GiveUp);
                }
            }
            (Job::Request { request }, _) => {
                self.tally.count(Happened::ZoneFull);
                self.journeys[request].is_faulty = true;
            }
            (Job::CallResponse { .. }, status) => self.see_write_for_all(actor, key, status),
            (Job::Tick { .. } | Job::DeleteRoot { .. }, OK) => {
                self.tally.count(Happened::TickWrite);
                self.see_displaced(proxy, slot, before, after);
            }
            _ => {}
        }
    }

    /// A write in the callback of an answer, for any of those that wait for it.
    fn see_write_for_all(&mut self, actor: usize, key: &[u8], status: Status) {
        let steps = self.steps;
        for request in self.paused_in(actor) {
            let journey = &mut self.journeys[request];
            match status {
                OK => {
                    journey.first_write_step.get_or_insert(steps);
                }
                CAS_MISMATCH => {
                    let mismatches = journey.mismatches.entry(key.to_vec()).or_default();
                    *mismatches += 1;
                    journey.is_faulty |= *mismatches == TRIES_MAX;
                }
                _ => journey.is_faulty = true,
            }
        }
        if status == CAS_MISMATCH {
            self.tally.count(Happened::CasMismatch);
        }
    }

    /// Counters that a write has pushed out of their slot: a lenient one starts again, a strict one must not.
    fn see_displaced(&mut self, proxy: usize, slot: Place, before: Option<&[u8]>, after: &[u8]) {
        if after.get(DISPLACED_LOAD_AT).is_some_and(|load| *load > 0) {
            self.proxies[proxy].overflowed.insert(slot);
        }
        let (Some(before), Some(after)) = (before.and_then(|bytes| held(slot, bytes)), held(slot, after))
        else {
            return;
        };
        for (fingerprint, id, is_strict) in self.proxies[proxy].slots.get(&slot).into_iter().flatten() {
            if before(*fingerprint) && !after(*fingerprint) {
                self.tally.count(Happened::Displaced);
                self.trace.add(|| format!("  displaced: {id:?}, strict {is_strict}"));
                if !is_strict {
                    self.oracle.empty_one(self.steps, id);
                }
            }
        }
    }

    /// A slot that is in use gets states as another version of the filter might write them: the version is
    /// another, and what stands where we keep the count is large.
    pub(crate) fn plant_alien_state(&mut self, proxy: usize) {
        let used: Vec<Vec<u8>> =
            self.proxies[proxy].slots.keys().map(|slot| identity::slot_key(*slot)).collect();
        if used.is_empty() {
            return;
        }
        let key = self.rng.pick(&used).clone();
        let Some(mut bytes) = self.proxies[proxy].shared.peek(&key).map(<[u8]>::to_vec) else { return };
        let Some(slot) = identity::slot_of_key(&key) else { return };
        let entries = taken_entries(slot, &bytes);
        for at in &entries {
            bytes[at + KIND_AT] = bytes[at + KIND_AT] & 0x0f | 0x70;
            if slot.region == Region::Small {
                bytes[at + COUNT_AT..at + COUNT_AT + 5].copy_from_slice(&[0x40, 0x42, 0x0f, 0, 0]);
            }
        }
        if !entries.is_empty() {
            self.tally.count(Happened::AlienState);
            self.proxies[proxy].shared.replace(&key, bytes);
            self.empty_slot(proxy, slot, self.steps);
        }
    }
}

/// Tells which fingerprints a slot holds; `None` if the bytes are no slot.
fn held(slot: Place, bytes: &[u8]) -> Option<Box<dyn Fn(NonZeroU64) -> bool>> {
    match slot.region {
        Region::Small => {
            let slot = SmallSlot::from_bytes(slot.index, bytes).ok()?;
            Some(Box::new(move |fingerprint| slot.find(fingerprint).is_some()))
        }
        Region::Large => {
            let slot = LargeSlot::from_bytes(slot.index, bytes).ok()?;
            Some(Box::new(move |fingerprint| slot.find(fingerprint).is_some()))
        }
    }
}

/// Where the entries that are in use begin.
fn taken_entries(slot: Place, bytes: &[u8]) -> Vec<usize> {
    let mut taken = Vec::new();
    let mut at = SLOT_HEAD_BYTES;
    while at + ENTRY_HEAD_BYTES <= bytes.len() {
        let is_taken = bytes[at..at + 8] != [0; 8];
        if is_taken {
            taken.push(at);
        }
        let state_at = at + ENTRY_HEAD_BYTES;
        at = state_at
            + match slot.region {
                Region::Small => SMALL_STATE_BYTES,
                // Its length stands before it.
                Region::Large if is_taken => {
                    2 + usize::from(u16::from_le_bytes([bytes[state_at], bytes[state_at + 1]]))
                }
                Region::Large => 0,
            };
    }
    taken
}

/// What Kong does without a zone for the filter's keys, at every call on shared data.
fn no_zone() -> Trap {
    Trap("no shm_kv zone matches the key, and Kong traps".to_owned())
}
