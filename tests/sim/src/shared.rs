//! A proxy's shared data, as each host keeps it (the facts are measured; see docs/simulation.md).

use crate::calls::{CAS_MISMATCH, INTERNAL_FAILURE, NOT_FOUND, OK, Status, TRAPS};
use crate::identity::MARKER_KEY;
use std::collections::BTreeMap;

/// Which host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Envoy,
    Kong,
}

/// The bounds of a zone in Kong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) bytes_max: u64,
    /// Whether the longest unused value gives way to a new one; else the write fails.
    pub(crate) evicts: bool,
    /// Whether the table's marker never gives way. Kong makes no such exception: this is how runs step
    /// around a weakness of the filter that a test of its own shows.
    pub(crate) spares_marker: bool,
}

/// What a zone spends on each value beside key and value.
const ZONE_OVERHEAD_BYTES: u64 = 96;

#[derive(Clone, Debug)]
struct Value {
    /// For the oracle: Kong itself knows only the checksum.
    key: Vec<u8>,
    bytes: Vec<u8>,
    cas: u32,
    used: u64,
}

/// All values that VMs of one proxy share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    flavour: Flavour,
    zone: Zone,
    has_zone: bool,
    values: BTreeMap<Vec<u8>, Value>,
    /// What they take of the zone.
    used_bytes: u64,
    last_cas: u32,
    uses: u64,
    /// Whether the zone has ever dropped a value: from then on its memory is reused.
    has_dropped: bool,
    /// Values that the zone has dropped to make room, until somebody asks.
    evicted: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Shared {
    pub(crate) fn new(flavour: Flavour, zone: Zone) -> Self {
        Self {
            flavour,
            zone,
            has_zone: true,
            values: BTreeMap::new(),
            used_bytes: 0,
            last_cas: 0,
            uses: 0,
            has_dropped: false,
            evicted: Vec::new(),
        }
    }

    /// Kong without a zone that matches the keys: it traps at every use. Envoy has no zones.
    pub(crate) fn without_zone(self) -> Self {
        Self { has_zone: self.flavour == Flavour::Envoy, ..self }
    }

    /// What tells values apart: the key in Envoy, only its CRC-32 in Kong.
    fn identity(&self, key: &[u8]) -> Vec<u8> {
        match self.flavour {
            Flavour::Envoy => key.to_vec(),
            Flavour::Kong => crc32(key).to_be_bytes().to_vec(),
        }
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<(Vec<u8>, u32), Status> {
        if !self.has_zone {
            return Err(TRAPS);
        }
        let identity = self.identity(key);
        self.uses += 1;
        let value = self.values.get_mut(&identity).ok_or(NOT_FOUND)?;
        value.used = self.uses;
        Ok((value.bytes.clone(), value.cas))
    }

    /// Another key's value, as a read in a zone that drops values may get it: what it points at has been given to
    /// somebody else before it is copied. `choice` picks one.
    pub(crate) fn foreign(&self, key: &[u8], choice: u64) -> Option<Vec<u8>> {
        let identity = self.identity(key);
        if !self.has_dropped || !self.values.contains_key(&identity) || self.values.len() < 2 {
            return None;
        }
        let nth = choice % (self.values.len() as u64 - 1);
        let mut others = self.values.iter().filter(|(other, _)| **other != identity);
        others.nth(nth as usize).map(|(_, value)| value.bytes.clone())
    }

    /// What is there, without using it.
    pub(crate) fn peek(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(&self.identity(key)).map(|value| value.bytes.as_slice())
    }

    pub(crate) fn set(&mut self, key: &[u8], bytes: Vec<u8>, cas: u32) -> Status {
        if !self.has_zone {
            return TRAPS;
        }
        let identity = self.identity(key);
        let found = self.values.get(&identity).map(|value| value.cas);
        let may = match (self.flavour, found) {
            // No version asked for: written over whatever is there.
            (Flavour::Envoy, Some(found)) => cas == 0 || cas == found,
            // A version of a value that is not there is no obstacle either.
            (Flavour::Envoy, None) => true,
            // No version asked for: only where nothing is.
            (Flavour::Kong, Some(found)) => cas != 0 && cas == found,
            (Flavour::Kong, None) => cas == 0,
        };
        if !may {
            return CAS_MISMATCH;
        }
        if self.flavour == Flavour::Kong && bytes.is_empty() {
            self.remove(&identity);
            return OK;
        }
        if self.flavour == Flavour::Kong && !self.make_room(&identity, key, &bytes) {
            return INTERNAL_FAILURE;
        }
        self.last_cas = self.last_cas.wrapping_add(1).max(1);
        self.uses += 1;
        let value = Value { key: key.to_vec(), bytes, cas: self.last_cas, used: self.uses };
        self.used_bytes += cost(key, &value.bytes);
        if let Some(before) = self.values.insert(identity, value) {
            self.used_bytes -= cost(&before.key, &before.bytes);
        }
        OK
    }

    fn remove(&mut self, identity: &[u8]) -> Option<Value> {
        let gone = self.values.remove(identity)?;
        self.used_bytes -= cost(&gone.key, &gone.bytes);
        Some(gone)
    }

    fn make_room(&mut self, identity: &[u8], key: &[u8], bytes: &[u8]) -> bool {
        let needed = cost(key, bytes);
        let replaced = self.values.get(identity).map_or(0, |value| cost(&value.key, &value.bytes));
        loop {
            if self.used_bytes - replaced + needed <= self.zone.bytes_max {
                return true;
            }
            let others = self.values.iter().filter(|(other, _)| other.as_slice() != identity);
            let spared = |key: &[u8]| self.zone.spares_marker && key == MARKER_KEY;
            let movable = others.filter(|(_, value)| !spared(&value.key));
            let oldest = movable.min_by_key(|(_, value)| value.used).map(|(oldest, _)| oldest.clone());
            let Some(oldest) = oldest.filter(|_| self.zone.evicts) else { return false };
            if let Some(gone) = self.remove(&oldest) {
                self.has_dropped = true;
                self.evicted.push((gone.key, gone.bytes));
            }
        }
    }

    /// The keys and values that have been dropped since this was last asked.
    pub(crate) fn take_evicted(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.evicted)
    }

    /// Somebody else writes the same value again: only the version changes.
    pub(crate) fn touch(&mut self, key: &[u8]) {
        let identity = self.identity(key);
        if let Some(value) = self.values.get_mut(&identity) {
            self.last_cas = self.last_cas.wrapping_add(1).max(1);
            value.cas = self.last_cas;
        }
    }

    /// Replaces a value from outside, under a new version.
    pub(crate) fn replace(&mut self, key: &[u8], bytes: Vec<u8>) {
        self.touch(key);
        let identity = self.identity(key);
        if let Some(value) = self.values.get_mut(&identity) {
            self.used_bytes += cost(&value.key, &bytes);
            self.used_bytes -= cost(&value.key, &value.bytes);
            value.bytes = bytes;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.used_bytes = 0;
        self.has_dropped = false;
        self.evicted.clear();
    }
}

fn cost(key: &[u8], bytes: &[u8]) -> u64 {
    (ZONE_OVERHEAD_BYTES + key.len() as u64 + bytes.len() as u64).next_power_of_two()
}

/// The checksum by which Kong knows a key.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}
