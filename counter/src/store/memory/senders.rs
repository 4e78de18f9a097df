//! Batches that were applied, so that a retry counts once and gets the same answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use tidegate_config::wire::{Answer, GroupAnswer, REMEMBERED_MS, SEQUENCES_KEPT, Sender};
use tidegate_core::Timestamp;

use crate::store::{Answered, StoreError};

/// The most senders that are remembered at once: VMs of all proxies that sent a batch within a minute.
pub(super) const SENDERS_MAX: usize = 16_384;
/// The most bytes of answers that are kept for one sender; the latest is kept in any case, and has at most 35 kB. So all
/// senders together take at most about 300 MB, or 600 MB if all send batches as large as can be; a fleet that asks for
/// few takes at a time takes far less.
const ANSWERS_BYTES_MAX: usize = 16 * 1024;
/// How often senders that were not heard of for long are forgotten.
const SWEEP_MS: u64 = 10_000;
const SHARDS: usize = 16;

/// Who sends: namespace, proxy, VM.
type SenderKey = (Box<str>, u64, u32);

#[derive(Default)]
pub(super) struct Senders {
    shards: [Mutex<Shard>; SHARDS],
    count: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    rings: HashMap<SenderKey, Ring>,
    swept_ms: u64,
}

/// The latest batches of one sender.
struct Ring {
    places: Box<[Remembered]>,
    bytes: usize,
    last_ms: u64,
}

#[derive(Clone, Default)]
struct Remembered {
    sequence: u64,
    /// Of the batch.
    fingerprint: u64,
    at_ms: u64,
    /// The groups of the answer, without states; empty if nothing is remembered here, or no longer.
    answer: Box<[u8]>,
}

/// A batch that was applied before, or not.
pub(super) struct Recalled {
    /// When it was applied.
    pub(super) now_ms: u64,
    /// What came of it; `None` if it was not applied yet.
    pub(super) groups: Option<Vec<GroupAnswer>>,
}

impl Senders {
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Applies a batch once. The sender's lock is held meanwhile, so that a retry on another connection waits.
    pub(super) fn once(
        &self,
        namespace: &str,
        sender: Sender,
        fingerprint: u64,
        now: Timestamp,
        apply: impl FnOnce(Recalled) -> Result<Answered, StoreError>,
    ) -> Result<Answered, StoreError> {
        let now_ms = now.ms();
        let spread = sender.proxy ^ u64::from(sender.vm);
        let Some(shard) = self.shards.get(usize::try_from(spread).unwrap_or(0) % SHARDS) else {
            return Err(StoreError::Broken("no shard".to_owned()));
        };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        self.sweep(&mut shard, now_ms);
        let key = (namespace.into(), sender.proxy, sender.vm);
        if !shard.rings.contains_key(&key) && !self.enter(now_ms) {
            let why = format!("{SENDERS_MAX} senders are remembered already, the most that can be");
            return Err(StoreError::Full(why));
        }
        let ring = shard.rings.entry(key).or_insert_with(Ring::new);
        if let Some(recalled) = ring.recall(sender.sequence, fingerprint, now_ms)? {
            return apply(recalled);
        }
        let answered = apply(Recalled { now_ms, groups: None })?;
        ring.remember(sender.sequence, fingerprint, now_ms, &answered);
        Ok(answered)
    }

    /// Counts one more sender, if there is room, or can be made among those of shards that nobody has asked for long.
    fn enter(&self, now_ms: u64) -> bool {
        let has_room = || {
            self.count
                .fetch_update(Relaxed, Relaxed, |count| Some(count + 1).filter(|count| *count <= SENDERS_MAX))
        };
        if has_room().is_ok() {
            return true;
        }
        // One that is locked is being asked, and swept by whoever does: the caller's own too.
        for mut shard in self.shards.iter().filter_map(|shard| shard.try_lock().ok()) {
            self.sweep(&mut shard, now_ms);
        }
        has_room().is_ok()
    }

    fn sweep(&self, shard: &mut Shard, now_ms: u64) {
        if now_ms.saturating_sub(shard.swept_ms) < SWEEP_MS {
            return;
        }
        shard.swept_ms = now_ms;
        let before = shard.rings.len();
        shard.rings.retain(|_, ring| now_ms.saturating_sub(ring.last_ms) < REMEMBERED_MS);
        self.count.fetch_sub(before - shard.rings.len(), Relaxed);
    }
}

impl Ring {
    fn new() -> Self {
        let kept = usize::try_from(SEQUENCES_KEPT).unwrap_or(1);
        Self { places: vec![Remembered::default(); kept].into(), bytes: 0, last_ms: 0 }
    }

    fn place(&mut self, sequence: u64) -> &mut Remembered {
        let index = usize::try_from(sequence % SEQUENCES_KEPT).unwrap_or(0);
        &mut self.places[index]
    }

    /// What is known of a sequence: nothing, its answer, or that it is too old to know.
    fn recall(
        &mut self,
        sequence: u64,
        fingerprint: u64,
        now_ms: u64,
    ) -> Result<Option<Recalled>, StoreError> {
        let place = self.place(sequence);
        let is_known = place.at_ms > 0 && now_ms.saturating_sub(place.at_ms) < REMEMBERED_MS;
        if !is_known || place.sequence < sequence {
            return Ok(None);
        }
        if place.sequence > sequence || place.fingerprint != fingerprint || place.answer.is_empty() {
            return Err(StoreError::TooOld);
        }
        match Answer::from_postcard(&place.answer) {
            Ok(answer) => Ok(Some(Recalled { now_ms: answer.now_ms, groups: Some(answer.groups) })),
            Err(_) => Err(StoreError::Broken("an answer that was kept cannot be read".to_owned())),
        }
    }

    fn remember(&mut self, sequence: u64, fingerprint: u64, now_ms: u64, answered: &Answered) {
        let mut answer = answered.clone().with_rules_off(Vec::new());
        for group in &mut answer.groups {
            // They may be long, and a retry wants them as they are then.
            group.states = Vec::new();
        }
        let answer = answer.to_postcard().into_boxed_slice();
        self.last_ms = now_ms;
        self.bytes += answer.len();
        let place = self.place(sequence);
        let gone = std::mem::replace(place, Remembered { sequence, fingerprint, at_ms: now_ms, answer });
        self.bytes -= gone.answer.len();
        while self.bytes > ANSWERS_BYTES_MAX {
            let others = self.places.iter_mut().filter(|place| place.sequence != sequence);
            let Some(oldest) =
                others.filter(|place| !place.answer.is_empty()).min_by_key(|place| place.sequence)
            else {
                break;
            };
            // The sequence stays: a retry of it is refused, not counted twice.
            self.bytes -= std::mem::take(&mut oldest.answer).len();
        }
    }
}
