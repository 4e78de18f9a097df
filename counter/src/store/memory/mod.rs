//! Counters in this process's memory: fixed in size, gone with the process.
//!
//! The home is the filter's own: a table of slots ([`tidegate_core::slot`]), which never grows, and which displaces
//! and inherits as the filter's table does when it is full. It is cut into shards with a lock each; a group that
//! needs several locks takes them in order.

mod clock;
mod group;
mod proxies;
mod senders;
mod states_room;
mod table;

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tidegate_config::wire::{Batch, GroupAnswer};
use tidegate_core::Timestamp;

pub use clock::{Clock, ManualClock, SystemClock};
pub use table::{LARGE_KEYS_DEFAULT, LARGE_KEYS_MAX, MAX_KEYS_DEFAULT, MAX_KEYS_MAX, MAX_KEYS_MIN};

use super::{Answered, Store, StoreError};
use proxies::Proxies;
use senders::{Recalled, Senders};
use states_room::StatesRoom;
use table::Table;

/// How large a [`MemoryStore`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// How many counters have room, of algorithms with small states. Some are displaced before it is full: a
    /// quarter full, one slot in 5,000 overflows; half full, one in 50.
    pub keys: usize,
    /// How many counters of `sliding_log` and `sliding_buckets` have room.
    pub large_keys: usize,
}

impl Default for Size {
    fn default() -> Self {
        Self { keys: MAX_KEYS_DEFAULT, large_keys: LARGE_KEYS_DEFAULT }
    }
}

/// Counters in memory.
pub struct MemoryStore<C> {
    clock: C,
    epoch: u64,
    table: Table,
    senders: Senders,
    proxies: Proxies,
}

impl MemoryStore<SystemClock> {
    /// A store by the machine's clock.
    pub fn new(size: Size) -> Result<Self, StoreError> {
        Self::with_clock(size, SystemClock::new())
    }
}

impl<C: Clock> MemoryStore<C> {
    /// A store by a clock of the caller's.
    pub fn with_clock(size: Size, clock: C) -> Result<Self, StoreError> {
        let mut drawn = [0; 24];
        getrandom::fill(&mut drawn)
            .map_err(|error| StoreError::Broken(format!("the system gives no random numbers: {error}")))?;
        let (secret, epoch) = drawn.split_at(16);
        let secret = secret.try_into().map_err(|_| StoreError::Broken("no secret".to_owned()))?;
        let epoch = epoch.try_into().map_or(0, u64::from_le_bytes);
        Ok(Self {
            clock,
            epoch,
            table: Table::new(size, secret),
            senders: Senders::default(),
            proxies: Proxies::default(),
        })
    }

    /// How many bytes the table has, whatever is in it.
    pub fn table_bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Applies a batch at once: nothing here waits for anything but a short lock.
    pub fn apply(&self, batch: &Batch<'_>) -> Result<Answered, StoreError> {
        let now = self.clock.now();
        let answered =
            |proxies| Answered { now_ms: now.ms(), epoch: self.epoch, proxies, groups: Vec::new() };
        let Some(sender) = batch.sender else {
            let answered = answered(self.proxies.count(&batch.namespace, now));
            return Ok(Answered { groups: self.judge(batch, now), ..answered });
        };
        let proxies = self.proxies.see(&batch.namespace, sender.proxy, now);
        let fingerprint = batch.fingerprint();
        self.senders.once(&batch.namespace, sender, fingerprint, now, |recalled| match recalled {
            Recalled { now_ms, groups: Some(groups) } => {
                Ok(Answered { now_ms, groups: self.again(batch, groups, now)?, ..answered(proxies) })
            }
            Recalled { groups: None, .. } => {
                Ok(Answered { groups: self.judge(batch, now), ..answered(proxies) })
            }
        })
    }

    fn judge(&self, batch: &Batch<'_>, now: Timestamp) -> Vec<GroupAnswer> {
        let subjects = &mut self.table.subjects(batch);
        let mut room = StatesRoom::default();
        let judge = |group| {
            let mut answer = self.table.judge(group, subjects, now, batch.states);
            room.fit(&mut answer.states);
            answer
        };
        batch.groups.iter().map(judge).collect()
    }

    /// An answer that was given before, with the states as they are now.
    fn again(
        &self,
        batch: &Batch<'_>,
        mut groups: Vec<GroupAnswer>,
        now: Timestamp,
    ) -> Result<Vec<GroupAnswer>, StoreError> {
        let asked = batch.groups.iter().map(|group| group.takes.len());
        if !asked.eq(groups.iter().map(|answer| answer.takes.len())) {
            // The sequence was another batch's: whatever that took, this is not its answer.
            return Err(StoreError::TooOld);
        }
        if batch.states {
            let subjects = &mut self.table.subjects(batch);
            let mut room = StatesRoom::default();
            for (group, answer) in batch.groups.iter().zip(&mut groups) {
                answer.states = self.table.states(group, subjects, now);
                room.fit(&mut answer.states);
            }
        }
        Ok(groups)
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn take(&self, batch: &Batch<'_>, deadline: Instant) -> Result<Answered, StoreError> {
        if Instant::now() >= deadline {
            return Err(StoreError::Expired);
        }
        self.apply(batch)
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn metrics(&self, out: &mut String) {
        let displaced = self.table.displaced();
        // Writing into a text cannot fail.
        let _ = write!(
            out,
            "# HELP tidegate_memory_displaced_total Living counters that gave way in a full slot.\n\
             # TYPE tidegate_memory_displaced_total counter\n\
             tidegate_memory_displaced_total{{by=\"own_rule\"}} {}\n\
             tidegate_memory_displaced_total{{by=\"other_rule\"}} {}\n\
             tidegate_memory_displaced_total{{by=\"nobody\"}} {}\n\
             # HELP tidegate_memory_table_bytes What the table of counters takes, full or empty.\n\
             # TYPE tidegate_memory_table_bytes gauge\n\
             tidegate_memory_table_bytes {}\n\
             # HELP tidegate_memory_senders Senders whose latest batches are remembered.\n\
             # TYPE tidegate_memory_senders gauge\n\
             tidegate_memory_senders {}\n",
            displaced.own.load(Relaxed),
            displaced.foreign.load(Relaxed),
            displaced.no_place.load(Relaxed),
            self.table.bytes(),
            self.senders.count(),
        );
    }
}
