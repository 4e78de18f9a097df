//! What proxies and the counter say to each other: a [`Batch`] of takes, and its [`Answer`].
//!
//! One set of types, two encodings that a content type tells apart: JSON ([`JSON`]), which people can read and
//! write, and a compact one ([`POSTCARD`]), which is what the crate `postcard` makes of the same fields in the same
//! order. Limits travel with the takes, so the counter needs no rules of its own.
//!
//! A [`Batch`] that was read is within all bounds below. What is not is refused with its place.

mod answer_json;
mod batch_json;
mod batch_walk;
mod fingerprint;
#[cfg(feature = "schema")]
pub mod form;
mod identity;
#[cfg(feature = "schema")]
pub mod openapi;
mod postcard;
mod problem;

use std::borrow::Cow;
use std::num::NonZeroU64;

use tidegate_core::{Manner, Outcome, REQUESTS_MAX, Retry, State};

pub use crate::config::NAMESPACE_LEN_MAX;
pub use crate::rule_json::NAME_LEN_MAX as RULE_LEN_MAX;

use crate::limit::RuleLimit;
use crate::rule::WhenFull;

pub use crate::rule_json::is_rule_name;
pub use identity::{PUBLIC_KEY, Subjects, counter_hash, limit_tag, window_shift};
pub use postcard::BadAnswer;
pub use problem::{PROBLEM_JSON, Problem};

/// The content type of JSON.
pub const JSON: &str = "application/json";
/// The content type of the compact encoding.
pub const POSTCARD: &str = "application/vnd.tidegate.v1+postcard";

/// The namespace of a batch that names none.
pub const NAMESPACE_DEFAULT: &str = "default";
/// The longest body of a request, in either encoding.
pub const BODY_BYTES_MAX: usize = 512 * 1024;
/// The most groups in a batch.
pub const GROUPS_MAX: usize = 256;
/// The most takes in a batch, over all its groups.
pub const TAKES_MAX: usize = 1_024;
/// The longest key. Whoever has a longer one sends a hash of it.
pub const KEY_BYTES_MAX: usize = 256;
/// The most that one take asks for.
pub const N_MAX: u64 = REQUESTS_MAX;
/// The longest that a caller can say it waits.
pub const WAIT_MS_MAX: u32 = 60_000;
/// The highest number that every party can count to: sequences and receipts go no further.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// How many batches of a sender are remembered: one more, and the oldest is forgotten.
pub const SEQUENCES_KEPT: u64 = 32;
/// For how long a batch is remembered.
pub const REMEMBERED_MS: u64 = 60_000;
/// The most bytes of states that one answer tells.
pub const STATES_BYTES_MAX: usize = 256 * 1024;
/// For how long a proxy that sent a batch counts as one of the fleet.
pub const PROXY_SEEN_MS: u64 = 10_000;

/// Groups of takes that travel together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Keeps the counters of two fleets apart.
    pub namespace: Cow<'a, str>,
    /// Who sends it; without it a retry is not recognised, and counts again.
    pub sender: Option<Sender>,
    /// For how long the caller waits.
    pub wait_ms: Option<u32>,
    /// Whether the answer is to tell the counters' states too, for whoever decides by itself until it asks again.
    pub states: bool,
    /// What is asked for. Groups are judged one after the other.
    pub groups: Vec<Group<'a>>,
}

/// Who sends a batch, and which of its batches it is. A batch that was sent before is not charged again: it gets
/// the answer that it got then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    /// A number that the proxy drew when it started.
    pub proxy: u64,
    /// The number of the VM in that proxy.
    pub vm: u32,
    /// The number of the batch among the VM's.
    pub sequence: u64,
}

/// Takes of which all are made or none. Each sees what those before it do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// At least one.
    pub takes: Vec<Take<'a>>,
}

/// Asks one limit of one key for an amount, or gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take<'a> {
    /// The name of the rule that the limit belongs to.
    pub rule: Cow<'a, str>,
    /// The limit.
    pub limit: RuleLimit,
    /// Who is counted.
    pub key: Cow<'a, [u8]>,
    /// How much.
    pub n: NonZeroU64,
    /// What to do with it.
    pub act: Act,
    /// Where a key begins that finds its place in a bounded store taken.
    pub when_full: WhenFull,
}

/// What a [`Take`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It takes. Only one that wants all can fail its group.
    Take(Manner),
    /// It gives back what an earlier one took.
    Refund {
        /// The receipt of that take.
        receipt: u64,
    },
}

/// What came of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The counter's clock, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// A number that changes when the counter has lost what it counted.
    pub epoch: u64,
    /// How many proxies of this namespace sent a batch lately; at least 1.
    pub proxies: u32,
    /// Rules that are switched off.
    pub rules_off: Vec<String>,
    /// As many as the batch had.
    pub groups: Vec<GroupAnswer>,
}

/// What came of a group.
///
/// If a take that wanted all got nothing, nothing of the group is charged or given back: every take says `taken` 0
/// and `receipt` 0, and tells the counter as it stands. One that was refused then says how long to wait; `retry` of
/// the others is [`Retry::Now`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupAnswer {
    /// As many as the group had. A refund says `taken` 0, `receipt` 0, [`Retry::Now`] and what is left.
    pub takes: Vec<Outcome>,
    /// If the batch asked for states, one for each take: what the next take of that limit and key would start from
    /// once the whole group was applied or refused. `None`: nothing is kept of it. Otherwise empty.
    pub states: Vec<Option<State>>,
}

impl Batch<'_> {
    /// How many takes all groups have together.
    pub fn take_count(&self) -> usize {
        self.groups.iter().map(|group| group.takes.len()).sum()
    }
}

/// How a retry travels: 0 is at once, none is never.
fn retry_after_ms(retry: Retry) -> Option<u64> {
    match retry {
        Retry::Now => Some(0),
        // Whoever was refused waits at least a little.
        Retry::After(ms) => Some(ms.max(1)),
        Retry::Never => None,
    }
}

#[cfg(test)]
mod tests;
