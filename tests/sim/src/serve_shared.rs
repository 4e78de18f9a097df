//! Answers calls on shared data, and tells the oracle what each write has done to its counters.

use crate::actor::Job;
use crate::calls::{CAS_MISMATCH, OK, Status, TRAPS};
use crate::identity;
use crate::tally::Happened;
use crate::vm::{Asked, Trap};
use crate::world::World;
use tidegate_core::slot::SmallSlot;

/// Tries after which the filter gives a write up.
const TRIES_MAX: u32 = 32;

/// The byte form of a slot, as far as a foreign state needs it.
const SLOT_HEAD_BYTES: usize = 12;
const ENTRY_BYTES: usize = 30;
const KIND_AT: usize = 10;
const COUNT_AT: usize = 20;

impl World<'_> {
    pub(crate) fn get_shared(&mut self, actor: usize, asked: &Asked) -> Result<Status, Trap> {
        let key = self.text(actor, asked, 0)?;
        let proxy = self.actors[actor].proxy;
        match self.proxies[proxy].shared.get(&key) {
            Ok((told, cas)) => {
                let bytes = self.foreign_value(actor, &key).unwrap_or(told);
                let vm = self.vm(actor)?;
                vm.hand_over(&bytes, asked.arg32(2), asked.arg32(3))?;
                vm.write(asked.arg32(4), &cas.to_le_bytes())?;
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
        }
        Ok(status)
    }

    /// What Kong's zone dropped is gone, strict or not.
    fn see_zone(&mut self, proxy: usize) {
        for (key, _) in self.proxies[proxy].shared.take_evicted() {
            self.tally.count(Happened::ZoneEviction);
            if let Some(slot) = identity::slot_of_key(&key) {
                self.empty_slot(proxy, slot, self.steps);
            }
        }
    }

    /// Whatever was written to a slot up to a step is gone.
    fn empty_slot(&mut self, proxy: usize, slot: u32, step: u64) {
        let known = self.proxies[proxy].slots.get(&slot).cloned().unwrap_or_default();
        self.oracle.empty(step, |id| known.iter().any(|(_, other, _)| other == id));
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
            self.note(actor, || format!("  slot {slot} is emptied: it was not shown as it is"));
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
            (Job::Tick { .. } | Job::DeleteRoot { .. }, OK) => {
                self.tally.count(Happened::TickWrite);
                self.see_displaced(proxy, slot, before, after);
            }
            _ => {}
        }
    }

    /// Counters that a write has pushed out of their slot: a lenient one starts again, a strict one must not.
    fn see_displaced(&mut self, proxy: usize, slot: u32, before: Option<&[u8]>, after: &[u8]) {
        let read = |bytes: &[u8]| SmallSlot::from_bytes(slot, bytes).ok();
        let (Some(before), Some(after)) = (before.and_then(read), read(after)) else { return };
        let known = self.proxies[proxy].slots.get(&slot).cloned().unwrap_or_default();
        for (fingerprint, id, is_strict) in known {
            if before.find(fingerprint).is_some() && after.find(fingerprint).is_none() {
                self.tally.count(Happened::Displaced);
                self.trace.add(|| format!("  displaced: {id:?}, strict {is_strict}"));
                if !is_strict {
                    self.oracle.empty(self.steps, |other| *other == id);
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
        let mut is_changed = false;
        for entry in bytes[SLOT_HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES) {
            if entry[..8] != [0; 8] {
                entry[KIND_AT] = entry[KIND_AT] & 0x0f | 0x70;
                entry[COUNT_AT..COUNT_AT + 5].copy_from_slice(&[0x40, 0x42, 0x0f, 0, 0]);
                is_changed = true;
            }
        }
        let Some(slot) = identity::slot_of_key(&key) else { return };
        if is_changed {
            self.tally.count(Happened::AlienState);
            self.proxies[proxy].shared.replace(&key, bytes);
            self.empty_slot(proxy, slot, self.steps);
        }
    }
}

/// What Kong does without a zone for the filter's keys, at every call on shared data.
fn no_zone() -> Trap {
    Trap("no shm_kv zone matches the key, and Kong traps".to_owned())
}
