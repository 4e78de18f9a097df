//! The table of slots in the proxy's shared data.
//!
//! Envoy's shared data can neither create a value only if it is absent, nor delete, nor list. So the slots
//! are laid out before traffic runs, by the canary VM that a host configures first, and a marker is written
//! last; every later configuration costs one read of the marker. A host that can create if absent (Kong)
//! needs no layout: there a missing slot is an empty one, and two writers cannot both create it.
//!
//! The marker carries the number of slots laid out and the secret of placement. It only ever grows: a
//! smaller table uses the first of the slots, and several plugins in one proxy share one table.

use crate::host::{Host, Status};
use crate::identity::{Identity, Secret};
use crate::planted::{self, Bug};
use core::fmt;
use tidegate_core::slot::{ENTRIES, SLOT_BYTES, Slot};

/// The prefix of every key, with the version of the layout in it. No slash: in Kong the part before one
/// would choose the zone.
const PREFIX: &[u8; 11] = b"tidegate.1.";
const MARKER_KEY: &[u8] = b"tidegate.1.marker";
const PROBE_KEY: &[u8] = b"tidegate.1.probe";

const MARKER_MAGIC: [u8; 4] = *b"TGM1";
const MARKER_BYTES: usize = 24;

/// Measured in Envoy: a slot with its key and the host's own book-keeping.
const SLOT_MEMORY_BYTES: u64 = 373;

/// Above this a layout under traffic stalls the workers noticeably: the host's map grows in one step.
const SLOTS_WITHOUT_STALL_MAX: u32 = 32_768;

/// Tries at a marker that other VMs write too.
const MARKER_TRIES_MAX: usize = 8;

/// The table, as this VM uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    index_mask: u32,
    secret: Secret,
}

/// A slot as it was read, and what it takes to write it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versioned {
    pub(crate) slot: Slot,
    pub(crate) cas: u32,
    /// Whether the stored bytes were no slot and were taken for an empty one.
    pub(crate) was_bad: bool,
}

/// Why the table could not be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableError {
    step: &'static str,
    status: Status,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, status } = self;
        write!(
            f,
            "the proxy's shared data could not be used: {step} gave {status:?}. On Kong, check that the \
             shm_kv zone exists and is large enough; else report this host's version"
        )
    }
}

impl core::error::Error for TableError {}

/// The marker's contents.
#[derive(Clone, Copy)]
struct Marker {
    /// Slots that exist; 0 where the host creates them atomically by itself.
    laid_out: u32,
    creates_if_absent: bool,
    secret: Secret,
}

impl Table {
    /// Opens the table with at least `slots` slots, a power of two, laying out those that are missing.
    pub(crate) fn open(host: &impl Host, slots: u32) -> Result<Self, TableError> {
        let mut tries = 0;
        let marker = loop {
            match read_marker(host)? {
                (Some(marker), _) if marker.creates_if_absent || marker.laid_out >= slots => break marker,
                (found, cas) => {
                    let marker = extend(host, found, slots)?;
                    match host.set_shared(MARKER_KEY, &marker.to_bytes(), cas) {
                        Ok(()) => break marker,
                        // Another VM was first: its marker holds.
                        Err(Status::CasMismatch) if tries < MARKER_TRIES_MAX => {
                            tries = tries.saturating_add(1);
                        }
                        Err(status) => return Err(TableError { step: "writing the marker", status }),
                    }
                }
            }
        };
        Ok(Self { index_mask: slots.saturating_sub(1), secret: marker.secret })
    }

    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The slot that holds a key's counters.
    pub(crate) fn index(&self, identity: &Identity) -> u32 {
        let [a, b, c, d, ..] = identity.place.to_le_bytes();
        u32::from_le_bytes([a, b, c, d]) & self.index_mask
    }

    /// Reads a slot. One that is missing is empty.
    pub(crate) fn read(host: &impl Host, index: u32) -> Result<Versioned, Status> {
        match host.shared(&slot_key(index)) {
            Ok((bytes, cas)) => match Slot::from_bytes(index, &planted::read(bytes)) {
                Ok(slot) => Ok(Versioned { slot, cas, was_bad: false }),
                Err(_) => Ok(Versioned { slot: Slot::empty(index), cas, was_bad: true }),
            },
            Err(Status::NotFound) => Ok(Versioned { slot: Slot::empty(index), cas: 0, was_bad: false }),
            Err(status) => Err(status),
        }
    }

    /// Writes a slot back if nobody else has since it was read.
    pub(crate) fn write(host: &impl Host, index: u32, slot: &Slot, cas: u32) -> Result<(), Status> {
        let cas = if planted::has(Bug::BlindWrite) { 0 } else { cas };
        host.set_shared(&slot_key(index), &slot.to_bytes(), cas)
    }
}

/// Says what the table costs, for the log.
pub(crate) fn describe(slots: u32) -> String {
    let entries = u64::from(slots).saturating_mul(u64::try_from(ENTRIES).unwrap_or(0));
    let megabytes = u64::from(slots).saturating_mul(SLOT_MEMORY_BYTES).div_ceil(1_000_000);
    let warning = if slots > SLOTS_WITHOUT_STALL_MAX {
        "; laying out so many while traffic runs stalls every worker for some milliseconds"
    } else {
        ""
    };
    format!("{slots} slots for {entries} counters, about {megabytes} MB of shared data{warning}")
}

/// Makes what `found` lacks: the secret, and slots up to `slots` where the host needs them laid out.
fn extend(host: &impl Host, found: Option<Marker>, slots: u32) -> Result<Marker, TableError> {
    let mut marker = match found {
        Some(marker) => marker,
        None => Marker {
            laid_out: 0,
            creates_if_absent: creates_if_absent(host)?,
            secret: {
                let mut secret = Secret::default();
                host.random(&mut secret)
                    .map_err(|status| TableError { step: "drawing the placement secret", status })?;
                secret
            },
        },
    };
    if !marker.creates_if_absent {
        log::info!("laying out the table: {}", describe(slots));
        for index in marker.laid_out..slots {
            Table::write(host, index, &Slot::empty(index), 0)
                .map_err(|status| TableError { step: "laying out a slot", status })?;
        }
        marker.laid_out = slots;
    }
    Ok(marker)
}

/// Whether writing without a version creates only if absent: then the second write is refused.
fn creates_if_absent(host: &impl Host) -> Result<bool, TableError> {
    for _ in 0..2 {
        match host.set_shared(PROBE_KEY, b"?", 0) {
            Ok(()) => {}
            Err(Status::CasMismatch) => return Ok(true),
            Err(status) => return Err(TableError { step: "the first write", status }),
        }
    }
    Ok(false)
}

fn read_marker(host: &impl Host) -> Result<(Option<Marker>, u32), TableError> {
    match host.shared(MARKER_KEY) {
        Ok((bytes, cas)) => Ok((Marker::from_bytes(&bytes), cas)),
        Err(Status::NotFound) => Ok((None, 0)),
        Err(status) => Err(TableError { step: "reading the marker", status }),
    }
}

impl Marker {
    fn to_bytes(self) -> [u8; MARKER_BYTES] {
        // The flag stands beside the count: a count of all ones is never laid out.
        let laid_out = if self.creates_if_absent { u32::MAX } else { self.laid_out };
        let mut bytes = [0; MARKER_BYTES];
        let parts = MARKER_MAGIC.into_iter().chain(laid_out.to_le_bytes()).chain(self.secret);
        for (byte, part) in bytes.iter_mut().zip(parts) {
            *byte = part;
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (laid_out, secret) = rest.split_first_chunk::<4>()?;
        let laid_out = u32::from_le_bytes(*laid_out);
        let creates_if_absent = laid_out == u32::MAX;
        (*magic == MARKER_MAGIC).then_some(())?;
        Some(Self {
            laid_out: if creates_if_absent { 0 } else { laid_out },
            creates_if_absent,
            secret: secret.try_into().ok()?,
        })
    }
}

/// The prefix and the index, as bytes: keys of one length that differ in 32 consecutive bits have different
/// CRC-32s, and Kong knows keys by nothing else.
fn slot_key(index: u32) -> [u8; 15] {
    let mut key = [0; 15];
    for (byte, part) in key.iter_mut().zip(PREFIX.iter().copied().chain(index.to_be_bytes())) {
        *byte = part;
    }
    key
}

const _: () = assert!(SLOT_BYTES <= 256, "SLOT_MEMORY_BYTES was measured with values of 256 bytes");
