//! Where counters are kept: one trait, several homes.

pub mod memory;
pub mod redis;

use std::fmt;
use std::future::Future;
use std::time::Instant;

use tidegate_config::wire::{Answer, Batch, GroupAnswer};

/// Keeps counters and applies batches to them.
///
/// What every store does, and one suite of scenarios checks (`counter/tests/suite`):
///
/// - **Order.** Groups are judged in order, takes of a group in order; each sees what those before it did, also on the
///   same counter. Each group is one step: nothing else happens in its middle.
/// - **All or none.** Every take of a group is judged, also after one was refused; a refused one changes nothing for
///   those after it. If a take with the manner `all` was refused, nothing of the group is charged or refunded. Then
///   each outcome has `taken` 0 and `receipt` 0; `remaining` and `reset_ms` are of the counter as it stands without
///   the group; `retry` is what was judged: `Now` for a take that would have been made and for a refund, else how
///   long to wait.
/// - **A take that got nothing** (`some` that yields 0, or a failed group) writes nothing. Its receipt is 0.
/// - **A refund** of a counter that is not there does nothing. Its outcome: `taken` 0, `receipt` 0, `retry` `Now`,
///   `remaining` and `reset_ms` as the counter stands after it.
/// - **A retry.** A batch with a sender is remembered by (namespace, proxy, vm, sequence) for `REMEMBERED_MS`, in a
///   ring of `SEQUENCES_KEPT` places (sequence modulo that). If its place holds the same sequence, it is not applied
///   again: `now_ms` and `groups` are those of the first time (`epoch`, `proxies` and states are told anew). If the
///   place holds a higher sequence, the answer is no longer kept, or it has not as many takes:
///   [`StoreError::TooOld`], and nothing is charged.
/// - **States**, if the batch asks for them: after each group, whether it was applied or refused, what the next take of
///   each of its counters would start from; for all takes of one counter the same.
/// - **The clock** is the store's, and its counters never see it go back.
/// - **The epoch** changes when the store's counters were lost.
/// - **Proxies** are counted for each namespace: distinct proxies whose batches came within `PROXY_SEEN_MS`, at
///   least 1. It may lag by a second or so.
pub trait Store: Send + Sync + 'static {
    /// Applies a batch. A batch whose deadline has passed is not applied.
    fn take(
        &self,
        batch: &Batch<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answered, StoreError>> + Send;

    /// Whether the store can apply a batch now: the truth, with a short deadline of its own.
    fn ready(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Adds the store's own metrics, in Prometheus' text format.
    fn metrics(&self, _out: &mut String) {}
}

/// What a store says to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The store's clock when the batch was applied.
    pub now_ms: u64,
    /// The store's epoch.
    pub epoch: u64,
    /// How many proxies of the batch's namespace were seen lately.
    pub proxies: u32,
    /// As many as the batch had.
    pub groups: Vec<GroupAnswer>,
}

impl Answered {
    /// The answer with what the service adds.
    pub fn with_rules_off(self, rules_off: Vec<String>) -> Answer {
        let Self { now_ms, epoch, proxies, groups } = self;
        Answer { now_ms, epoch, proxies, rules_off, groups }
    }
}

/// Why a store did not apply a batch, or cannot say whether it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The deadline passed before the store was asked: nothing is charged.
    Expired,
    /// The deadline passed while the store was at it: it may be charged. A retry with the same sequence is safe.
    Deadline,
    /// The store cannot be reached, or the connection broke on the way; it may be charged.
    Unreachable(String),
    /// The store has no room: nothing is charged.
    Full(String),
    /// More is under way than the store takes on at once: nothing is charged.
    Busy,
    /// The sequence is too old to know whether it was applied: nothing is charged now.
    TooOld,
    /// The store answered what it never should.
    Broken(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the caller's deadline passed before the store was asked"),
            Self::Deadline => f.write_str("the store did not answer in time"),
            Self::Unreachable(why) => write!(f, "the store cannot be reached: {why}"),
            Self::Full(why) => write!(f, "the store has no room: {why}"),
            Self::Busy => f.write_str("the store has too much to do at once"),
            Self::TooOld => f.write_str("the sequence is too old to be recognised"),
            Self::Broken(why) => write!(f, "the store answered what it never should: {why}"),
        }
    }
}

impl std::error::Error for StoreError {}
