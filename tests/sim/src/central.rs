//! The counter of the simulated fleet: the real one, on its memory store, under the simulation's own clock.

use crate::ledger::{LimitId, limit_id};
use crate::spec::NAMESPACE;
use std::num::NonZeroU64;
use std::sync::Arc;
use tidegate_config::wire::{Act, Batch, Group, Sender, Take};
use tidegate_config::{Align, RuleLimit, WhenFull};
use tidegate_core::{Limit, Manner, Outcome, Window};
use tidegate_counter::store::StoreError;
use tidegate_counter::store::memory::{ManualClock, MemoryStore, Size};

/// Room for so many counters that no two ever meet in a full slot: the store draws its placement by chance, and a
/// history must not depend on that.
const SIZE: Size = Size { keys: 65_536, large_keys: 2_048 };
/// A limit that nobody reaches, to look at a counter with: the number is no part of its name.
const LOOK_REQUESTS: u64 = 1 << 30;

pub(crate) struct Central {
    store: MemoryStore<Arc<ManualClock>>,
    clock: Arc<ManualClock>,
    shown_ms: u64,
    /// Told instead of the store's own, which is drawn by chance.
    epoch: u64,
}

/// What came of one take, as the oracle is told it.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) rule: String,
    pub(crate) key: Vec<u8>,
    pub(crate) limit: LimitId,
    /// Whether it is its group's first of this rule: the others are further limits of the same.
    pub(crate) is_first: bool,
    pub(crate) n: u64,
    pub(crate) act: Act,
    pub(crate) outcome: Outcome,
}

/// A batch that the counter has heard, and the body of its answer.
pub(crate) struct Heard {
    pub(crate) sender: Option<Sender>,
    pub(crate) judged: Vec<Judged>,
    pub(crate) body: Vec<u8>,
}

impl Central {
    pub(crate) fn new(now_ms: u64) -> Result<Self, String> {
        let clock = Arc::new(ManualClock::at_ms(now_ms));
        let store = MemoryStore::with_clock(SIZE, Arc::clone(&clock)).map_err(|error| error.to_string())?;
        Ok(Self { store, clock, shown_ms: now_ms, epoch: 1 })
    }

    /// It ends and starts again, with nothing of what it knew.
    pub(crate) fn lose_state(&mut self, now_ms: u64) -> Result<(), String> {
        *self = Self { epoch: self.epoch + 1, ..Self::new(now_ms)? };
        Ok(())
    }

    /// Hears a batch in the compact encoding. A refusal is a status of HTTP; a batch that is none is a failure of
    /// whoever wrote it.
    pub(crate) fn hear(&mut self, now_ms: u64, body: &[u8]) -> Result<Result<Heard, u16>, String> {
        self.show(now_ms);
        let batch = Batch::from_postcard(body).map_err(|errors| format!("the counter refuses: {errors}"))?;
        let answered = match self.store.apply(&batch) {
            Ok(answered) => answered,
            Err(StoreError::TooOld) => return Ok(Err(409)),
            Err(_) => return Ok(Err(503)),
        };
        let mut answer = answered.with_rules_off(Vec::new());
        answer.epoch = self.epoch;
        let takes = batch.groups.iter().flat_map(|group| {
            let is_first = |at: usize| at == 0 || group.takes[at - 1].rule != group.takes[at].rule;
            group.takes.iter().enumerate().map(move |(at, take)| (take, is_first(at)))
        });
        let outcomes = answer.groups.iter().flat_map(|group| &group.takes);
        let judged = takes.zip(outcomes).map(|((take, is_first), outcome)| Judged {
            rule: take.rule.to_string(),
            key: take.key.to_vec(),
            limit: limit_id(take.limit.limit.window_ms(), take.limit.limit.algorithm()),
            is_first,
            n: take.n.get(),
            act: take.act,
            outcome: *outcome,
        });
        Ok(Ok(Heard { sender: batch.sender, judged: judged.collect(), body: answer.to_postcard() }))
    }

    /// How much of a fixed window that begins by the clock is charged to a key.
    pub(crate) fn charged(&mut self, now_ms: u64, rule: &str, key: &[u8], window_ms: u64) -> Option<u64> {
        self.show(now_ms);
        let limit = Limit::fixed_window(LOOK_REQUESTS, Window::Ms(window_ms)).ok()?;
        let take = Take {
            rule: rule.into(),
            limit: RuleLimit { limit, align: Align::Clock, is_leaky: false },
            key: key.into(),
            // More than there ever is, so that nothing is taken.
            n: NonZeroU64::new(2 * LOOK_REQUESTS)?,
            act: Act::Take(Manner::All),
            when_full: WhenFull::Strict,
        };
        let batch = Batch {
            namespace: NAMESPACE.into(),
            sender: None,
            wait_ms: None,
            states: false,
            groups: vec![Group { takes: vec![take] }],
        };
        let answered = self.store.apply(&batch).ok()?;
        let remaining = answered.groups.first()?.takes.first()?.remaining;
        Some(LOOK_REQUESTS - remaining)
    }

    fn show(&mut self, now_ms: u64) {
        self.clock.advance_ms(now_ms.saturating_sub(self.shown_ms));
        self.shown_ms = self.shown_ms.max(now_ms);
    }
}
