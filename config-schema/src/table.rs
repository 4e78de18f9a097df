//! The size of the store of counters.

use crate::errors::Report;
use crate::json::Json;
use crate::json_text::Fields;
use crate::reader::Node;

/// The fewest slots a table may have.
pub const SLOTS_MIN: u32 = 64;
/// The most slots a table may have: about 400 MB.
pub const SLOTS_MAX: u32 = 1 << 20;
/// The slots of a table whose size the config leaves open: about 6 MB.
pub const SLOTS_DEFAULT: u32 = 16_384;
/// The fewest keys with large counters.
pub const LARGE_KEYS_MIN: u32 = 64;
/// The most keys with large counters.
pub const LARGE_KEYS_MAX: u32 = 65_536;
/// The keys with large counters if the config leaves it open.
pub const LARGE_KEYS_DEFAULT: u32 = 1_024;

const FIELDS: &[&str] = &["slots", "large_keys"];

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
    /// How many keys of rules with `sliding_log` or `sliding_buckets` have room: their counters do not fit a
    /// slot and have a place of their own, laid out only if a rule needs it.
    #[cfg_attr(
        feature = "schema",
        schemars(default = "large_keys_default", range(min = LARGE_KEYS_MIN, max = LARGE_KEYS_MAX))
    )]
    pub large_keys: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self { slots: SLOTS_DEFAULT, large_keys: LARGE_KEYS_DEFAULT }
    }
}

impl Table {
    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let slots = object.optional("slots", SLOTS_DEFAULT, report, read_slots);
        let large_keys = object.optional("large_keys", LARGE_KEYS_DEFAULT, report, |node, report| {
            let number = node.whole(LARGE_KEYS_MIN.into()..=LARGE_KEYS_MAX.into(), report)?;
            u32::try_from(number).ok()
        });
        Some(Self { slots: slots?, large_keys: large_keys? })
    }

    pub(crate) fn json(self) -> Json {
        let mut fields = Fields::default();
        fields.put_if(self.slots != SLOTS_DEFAULT, "slots", || u64::from(self.slots).into());
        fields.put_if(self.large_keys != LARGE_KEYS_DEFAULT, "large_keys", || {
            u64::from(self.large_keys).into()
        });
        fields.into()
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
fn large_keys_default() -> u32 {
    LARGE_KEYS_DEFAULT
}

#[cfg(feature = "schema")]
fn slots_choices() -> Vec<u32> {
    (0..u32::BITS).map(|shift| 1 << shift).filter(|slots| (SLOTS_MIN..=SLOTS_MAX).contains(slots)).collect()
}
