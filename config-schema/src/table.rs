//! The size of the store of counters.

use crate::errors::Report;
use crate::reader::Node;

/// The fewest slots a table may have.
pub const SLOTS_MIN: u32 = 64;
/// The most slots a table may have: about 400 MB.
pub const SLOTS_MAX: u32 = 1 << 20;
/// The slots of a table whose size the config leaves open: about 6 MB.
pub const SLOTS_DEFAULT: u32 = 16_384;

const FIELDS: &[&str] = &["slots"];

/// The store of counters in the proxy's memory. Its size is fixed: no number of clients makes it grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Table {
    /// How many slots the table has, a power of two. A slot holds 8 counters and takes about 400 bytes; four
    /// times as many counters as are in use at once is a good size. Counters that move start again when it
    /// changes.
    #[cfg_attr(
        feature = "schema",
        schemars(default = "slots_default", range(min = SLOTS_MIN, max = SLOTS_MAX)),
        schemars(extend("enum" = slots_choices()))
    )]
    pub slots: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self { slots: SLOTS_DEFAULT }
    }
}

impl Table {
    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let slots = object.optional("slots", SLOTS_DEFAULT, report, read_slots)?;
        Some(Self { slots })
    }
}

fn read_slots(node: &Node, report: &mut Report) -> Option<u32> {
    let number = node.whole(SLOTS_MIN.into()..=SLOTS_MAX.into(), report)?;
    let slots = u32::try_from(number).ok()?;
    if slots.is_power_of_two() {
        return Some(slots);
    }
    let above = slots.next_power_of_two();
    let below = above >> 1;
    node.report(report, format!("must be a power of two; near {slots} are {below} and {above}"));
    None
}

#[cfg(feature = "schema")]
fn slots_default() -> u32 {
    SLOTS_DEFAULT
}

#[cfg(feature = "schema")]
fn slots_choices() -> Vec<u32> {
    (0..u32::BITS).map(|shift| 1 << shift).filter(|slots| (SLOTS_MIN..=SLOTS_MAX).contains(slots)).collect()
}
