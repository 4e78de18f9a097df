//! The table of slots in the proxy's shared data.
//!
//! Envoy's shared data can neither create a value only if it is absent, nor delete, nor list. So the slots
//! are laid out before traffic runs, by the canary VM that a host configures first, and a marker is written
//! last; every later configuration costs one read of the marker. A host that can create if absent (Kong)
//! needs no layout: there a missing slot is an empty one, and two writers cannot both create it.
//!
//! There are two regions: small slots, for states of one size, and large ones, for rules with a log or with
//! many sub-windows, laid out only if a rule needs them.
//!
//! The marker carries the number of slots laid out and the secret of placement. It only ever grows: a
//! smaller table uses the first of the slots, and several plugins in one proxy share one table.

use crate::any_slot::AnySlot;
use crate::host::{Host, Status};
use crate::identity::{Identity, Secret};
use crate::planted::{self, Bug};
use core::fmt;
use tidegate_core::slot::{ENTRIES, SMALL_SLOT_BYTES};

/// The prefix of every key, with the version of the layout in it. No slash: in Kong the part before one
/// would choose the zone.
const SMALL_PREFIX: &[u8; 11] = b"tidegate.1.";
const LARGE_PREFIX: &[u8; 11] = b"tidegate.1:";
const MARKER_KEY: &[u8] = b"tidegate.1.marker";
const PROBE_KEY: &[u8] = b"tidegate.1.probe";
/// How many VMs have started so far.
const VMS_KEY: &[u8] = b"tidegate.1.vms";
/// What lies between the host's monotonic clock and the counter's, in milliseconds.
const FLEET_CLOCK_KEY: &[u8] = b"tidegate.1.clock";
/// Nobody knows yet.
const FLEET_CLOCK_UNKNOWN: i64 = i64::MIN;

const MARKER_MAGIC: [u8; 4] = *b"TGM1";
const MARKER_BYTES: usize = 28;

/// Measured in Envoy: a slot with its key and the host's own book-keeping.
const SLOT_MEMORY_BYTES: u64 = 373;

/// Above this a layout under traffic stalls the workers noticeably: the host's map grows in one step.
const SLOTS_WITHOUT_STALL_MAX: u32 = 32_768;

/// Tries at a marker that other VMs write too.
const MARKER_TRIES_MAX: usize = 8;
/// Tries at a number for a VM, which others draw at the same time.
const VM_NUMBER_TRIES_MAX: usize = 32;
/// Numbers from here on were drawn by lot, because they could not be counted.
const VM_NUMBER_BY_LOT: u32 = 1 << 31;

/// How many slots a table has in each region: a power of two, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) small: u32,
    pub(crate) large: u32,
}

/// The table, as this VM uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    host_kind: HostKind,
    size: Size,
    secret: Secret,
}

/// Which of the known hosts this is, by what its shared data does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// Slots must be laid out.
    Envoy,
    /// It creates a missing slot atomically.
    Kong,
}

/// Which slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Region {
    /// Those of one size.
    Small,
    /// Those of any size.
    Large,
}

/// Which slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) region: Region,
    pub(crate) index: u32,
}

/// A slot as it was read, and what it takes to write it back.
pub(crate) struct Versioned {
    pub(crate) slot: AnySlot,
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
    laid_out: LaidOut,
    secret: Secret,
}

/// Which slots exist.
#[derive(Clone, Copy)]
enum LaidOut {
    /// So many of each region.
    Slots(Size),
    /// None need be laid out: the host creates a missing one atomically.
    ByItself,
}

impl Table {
    /// Opens the table with at least as many slots as `size` says, laying out those that are missing.
    pub(crate) fn open(host: &impl Host, size: Size) -> Result<Self, TableError> {
        let mut tries = 0;
        let marker = loop {
            match read_marker(host)? {
                (Some(marker), _) if marker.has(size) => break marker,
                (found, cas) => {
                    let marker = extend(host, found, size)?;
                    match host.set_shared(MARKER_KEY, &marker.to_bytes(), cas) {
                        Ok(()) => {
                            // Only now: beside a marker that another VM wrote meanwhile its numbers would begin anew.
                            if found.is_none() && matches!(marker.laid_out, LaidOut::ByItself) {
                                lay_out_what_vms_share(host)?;
                            }
                            break marker;
                        }
                        // Another VM was first: its marker holds.
                        Err(Status::CasMismatch) if tries < MARKER_TRIES_MAX => {
                            tries = tries.saturating_add(1);
                        }
                        Err(status) => return Err(TableError { step: "writing the marker", status }),
                    }
                }
            }
        };
        let host_kind = match marker.laid_out {
            LaidOut::Slots(_) => HostKind::Envoy,
            LaidOut::ByItself => HostKind::Kong,
        };
        Ok(Self { host_kind, size, secret: marker.secret })
    }

    /// Looks after the marker where it may be dropped: Kong's zone drops what was unused longest, and nothing else reads
    /// it. One that is gone is written again. If another VM has written one of its own meanwhile, that one holds for all;
    /// says whether it did.
    pub(crate) fn keep_marker(&mut self, host: &impl Host) -> Result<bool, Status> {
        if self.host_kind == HostKind::Envoy {
            return Ok(false);
        }
        match host.shared(MARKER_KEY) {
            // What is no marker is another key's value, which Kong may hand out while it drops some.
            Ok((bytes, _)) => {
                let other = Marker::from_bytes(&bytes).filter(|marker| marker.secret != self.secret);
                self.secret = other.map_or(self.secret, |marker| marker.secret);
                Ok(other.is_some())
            }
            Err(Status::NotFound) => {
                let marker = Marker { laid_out: LaidOut::ByItself, secret: self.secret };
                match host.set_shared(MARKER_KEY, &marker.to_bytes(), 0) {
                    // Who was first is heard of at the next look.
                    Ok(()) | Err(Status::CasMismatch) => Ok(false),
                    Err(status) => Err(status),
                }
            }
            Err(status) => Err(status),
        }
    }

    pub(crate) const fn host_kind(&self) -> HostKind {
        self.host_kind
    }

    pub(crate) const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The slot that holds a key's counters.
    pub(crate) fn place(&self, region: Region, identity: &Identity) -> Place {
        let slots = match region {
            Region::Small => self.size.small,
            Region::Large => self.size.large,
        };
        let [a, b, c, d, ..] = identity.place.to_le_bytes();
        Place { region, index: u32::from_le_bytes([a, b, c, d]) & slots.saturating_sub(1) }
    }

    /// A number that no other VM of this proxy has or ever had. If they cannot be counted it is drawn by lot: two that
    /// draw the same would take each other's reports for their own.
    pub(crate) fn vm_number(host: &impl Host) -> Result<u32, TableError> {
        for _ in 0..VM_NUMBER_TRIES_MAX {
            let Ok((bytes, cas)) = host.shared(VMS_KEY) else { break };
            let Ok(bytes) = bytes.as_slice().try_into() else { break };
            let number = u32::from_le_bytes(bytes).saturating_add(1);
            match host.set_shared(VMS_KEY, &number.to_le_bytes(), cas) {
                Ok(()) if number < VM_NUMBER_BY_LOT => return Ok(number),
                Err(Status::CasMismatch) => {}
                Ok(()) | Err(_) => break,
            }
        }
        Self::vm_number_by_lot(host)
            .map_err(|status| TableError { step: "drawing a number for this VM", status })
    }

    pub(crate) fn vm_number_by_lot(host: &impl Host) -> Result<u32, Status> {
        let mut bytes = [0; 4];
        host.random(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes) | VM_NUMBER_BY_LOT)
    }

    /// What lies between the host's monotonic clock and the counter's, if a VM of this proxy knows.
    pub(crate) fn fleet_clock(host: &impl Host) -> Option<i64> {
        let (bytes, _) = host.shared(FLEET_CLOCK_KEY).ok()?;
        Some(i64::from_le_bytes(bytes.as_slice().try_into().ok()?)).filter(|ms| *ms != FLEET_CLOCK_UNKNOWN)
    }

    /// Tells the other VMs.
    pub(crate) fn set_fleet_clock(host: &impl Host, ms: i64) -> Result<(), Status> {
        let cas = host.shared(FLEET_CLOCK_KEY).map_or(0, |(_, cas)| cas);
        host.set_shared(FLEET_CLOCK_KEY, &ms.to_le_bytes(), cas)
    }

    /// Reads a slot. One that is missing is empty.
    pub(crate) fn read(host: &impl Host, place: Place) -> Result<Versioned, Status> {
        match host.shared(&slot_key(place)) {
            Ok((bytes, cas)) => Ok(match AnySlot::from_bytes(place, &planted::read(place.region, bytes)) {
                Some(slot) => Versioned { slot, cas, was_bad: false },
                None => Versioned { slot: AnySlot::empty(place), cas, was_bad: true },
            }),
            Err(Status::NotFound) => Ok(Versioned { slot: AnySlot::empty(place), cas: 0, was_bad: false }),
            Err(status) => Err(status),
        }
    }

    /// Writes a slot back if nobody else has since it was read.
    pub(crate) fn write(host: &impl Host, place: Place, slot: &AnySlot, cas: u32) -> Result<(), Status> {
        let cas = if planted::has(Bug::BlindWrite) { 0 } else { cas };
        host.set_shared(&slot_key(place), &slot.to_bytes(), cas)
    }
}

/// Says what the table costs, for the log.
pub(crate) fn describe(size: Size) -> String {
    let entries = |slots: u32| u64::from(slots).saturating_mul(u64::try_from(ENTRIES).unwrap_or(0));
    let megabytes = u64::from(size.small).saturating_mul(SLOT_MEMORY_BYTES).div_ceil(1_000_000);
    let small = format!(
        "{} slots for {} counters, about {megabytes} MB of shared data",
        size.small,
        entries(size.small)
    );
    let large = match size.large {
        0 => String::new(),
        large => {
            format!(", and {large} large slots for {} counters, as much as their logs need", entries(large))
        }
    };
    let warning = if size.small.max(size.large) > SLOTS_WITHOUT_STALL_MAX {
        "; laying out so many while traffic runs stalls every worker for some milliseconds"
    } else {
        ""
    };
    format!("{small}{large}{warning}")
}

/// Makes what `found` lacks: the secret, and slots where the host needs them laid out.
fn extend(host: &impl Host, found: Option<Marker>, size: Size) -> Result<Marker, TableError> {
    let marker = match found {
        Some(marker) => marker,
        None => Marker { laid_out: laid_out_at_first(host)?, secret: draw_secret(host)? },
    };
    let LaidOut::Slots(before) = marker.laid_out else {
        return Ok(marker);
    };
    if found.is_none() {
        lay_out_what_vms_share(host)?;
    }
    log::info!("laying out the table: {}", describe(size));
    lay_out(host, Region::Small, before.small..size.small)?;
    lay_out(host, Region::Large, before.large..size.large)?;
    let size = Size { small: before.small.max(size.small), large: before.large.max(size.large) };
    Ok(Marker { laid_out: LaidOut::Slots(size), ..marker })
}

/// The number of VMs and the fleet's clock. On a host that creates only if absent another VM may have been first, and
/// what it wrote stands.
fn lay_out_what_vms_share(host: &impl Host) -> Result<(), TableError> {
    let vms = 0_u32.to_le_bytes();
    let clock = FLEET_CLOCK_UNKNOWN.to_le_bytes();
    for (key, value) in [(VMS_KEY, vms.as_slice()), (FLEET_CLOCK_KEY, &clock)] {
        match host.set_shared(key, value, 0) {
            Ok(()) | Err(Status::CasMismatch) => {}
            Err(status) => return Err(TableError { step: "laying out what VMs share", status }),
        }
    }
    Ok(())
}

fn lay_out(host: &impl Host, region: Region, indexes: core::ops::Range<u32>) -> Result<(), TableError> {
    for index in indexes {
        let place = Place { region, index };
        Table::write(host, place, &AnySlot::empty(place), 0)
            .map_err(|status| TableError { step: "laying out a slot", status })?;
    }
    Ok(())
}

fn draw_secret(host: &impl Host) -> Result<Secret, TableError> {
    let mut secret = Secret::default();
    host.random(&mut secret).map_err(|status| TableError { step: "drawing the placement secret", status })?;
    Ok(secret)
}

/// A host that creates only if absent when it writes without a version refuses the second such write.
fn laid_out_at_first(host: &impl Host) -> Result<LaidOut, TableError> {
    for _ in 0..2 {
        match host.set_shared(PROBE_KEY, b"?", 0) {
            Ok(()) => {}
            Err(Status::CasMismatch) => return Ok(LaidOut::ByItself),
            Err(status) => return Err(TableError { step: "the first write", status }),
        }
    }
    Ok(LaidOut::Slots(Size { small: 0, large: 0 }))
}

fn read_marker(host: &impl Host) -> Result<(Option<Marker>, u32), TableError> {
    match host.shared(MARKER_KEY) {
        Ok((bytes, cas)) => Ok((Marker::from_bytes(&bytes), cas)),
        Err(Status::NotFound) => Ok((None, 0)),
        Err(status) => Err(TableError { step: "reading the marker", status }),
    }
}

impl Marker {
    /// How [`LaidOut::ByItself`] is written: no table has so many slots.
    const BY_ITSELF: Size = Size { small: u32::MAX, large: u32::MAX };

    fn has(&self, size: Size) -> bool {
        match self.laid_out {
            LaidOut::ByItself => true,
            LaidOut::Slots(slots) => slots.small >= size.small && slots.large >= size.large,
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        let size = match self.laid_out {
            LaidOut::Slots(size) => size,
            LaidOut::ByItself => Self::BY_ITSELF,
        };
        [&MARKER_MAGIC[..], &size.small.to_le_bytes(), &size.large.to_le_bytes(), &self.secret].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MARKER_BYTES] = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (small, rest) = rest.split_first_chunk::<4>()?;
        let (large, secret) = rest.split_first_chunk::<4>()?;
        let size = Size { small: u32::from_le_bytes(*small), large: u32::from_le_bytes(*large) };
        let laid_out = if size == Self::BY_ITSELF { LaidOut::ByItself } else { LaidOut::Slots(size) };
        let secret = secret.try_into().ok()?;
        (*magic == MARKER_MAGIC).then_some(Self { laid_out, secret })
    }
}

/// The prefix and the index, as bytes: keys of one length that differ in 32 consecutive bits have different
/// CRC-32s, and Kong knows keys by nothing else.
fn slot_key(place: Place) -> [u8; 15] {
    let prefix = match place.region {
        Region::Small => SMALL_PREFIX,
        Region::Large => LARGE_PREFIX,
    };
    let mut key = [0; 15];
    for (byte, part) in key.iter_mut().zip(prefix.iter().copied().chain(place.index.to_be_bytes())) {
        *byte = part;
    }
    key
}

const _: () = assert!(SMALL_SLOT_BYTES <= 256, "SLOT_MEMORY_BYTES was measured with values of 256 bytes");
