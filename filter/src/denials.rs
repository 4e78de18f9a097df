//! Denials that this VM remembers, so that a client who hammers at a closed gate costs no look at the
//! table, and no call to the counter. A key is remembered until its retry-after, and for a second at most, or five
//! if the counter said so: a refund or a raised limit takes effect within that time.

use crate::ask::{Ask, Home, Judged};
use crate::clock::Clock;
use crate::identity::Identity;
use core::num::NonZeroU64;
use tidegate_core::{Retry, Timestamp};

/// Places for keys, a power of two. Of two keys with one place the later is remembered, and the other costs its look
/// at the table. Nobody can aim at a place: the keys are hashed with the placement secret.
const PLACES: usize = 1024;
const REMEMBERED_MS_MAX: u64 = 1_000;
/// For denials by the counter: as often as a VM that has nothing to say asks it anyway.
const REMEMBERED_OF_COUNTER_MS_MAX: u64 = 5_000;

/// What this VM remembers.
pub(crate) struct Denials {
    places: Vec<Option<(u64, Denial)>>,
    /// At least as many as hold; 0 if none does.
    filled: usize,
}

/// A denial of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    since: Timestamp,
    until: Timestamp,
    /// When to retry; `None` is never.
    retry_at: Option<Timestamp>,
    /// How much is left of the limits that said no: less than was asked for.
    pub(crate) remaining: u64,
    /// Which of the rule's limits said no, a bit for each; none if the rule denies without a limit.
    violated: u8,
    /// Whether it is the counter that is missing, and no limit that is spent.
    pub(crate) is_for_want_of_capacity: bool,
    /// Whose clock its times are of.
    home: Home,
    /// Whom it is about: which of the rules with this name, the plan, and the least cost.
    variant: u32,
    limit_set: usize,
    cost: NonZeroU64,
}

impl Denial {
    /// What a judgement that said no means for the client.
    pub(crate) fn new(ask: &Ask, judged: &Judged, clock: &Clock) -> Self {
        let now = clock.of(ask.home);
        let remembered_ms_max = match ask.home {
            Home::Counter | Home::Leased => REMEMBERED_OF_COUNTER_MS_MAX,
            Home::Table | Home::Synced | Home::FallBack { .. } => REMEMBERED_MS_MAX,
        };
        let after = |wait_ms: u64| Timestamp::from_ms(now.ms().saturating_add(wait_ms));
        let (until, retry_at) = match judged.retry {
            Retry::Now => (now, Some(now)),
            Retry::After(wait_ms) => (after(wait_ms.min(remembered_ms_max)), Some(after(wait_ms))),
            Retry::Never => (after(remembered_ms_max), None),
        };
        let (mut violated, mut remaining) = (0, u64::MAX);
        for (bit, outcome) in (0..).zip(judged.outcomes()).filter(|(_, outcome)| outcome.is_refused()) {
            violated |= 1_u8.checked_shl(bit).unwrap_or(0);
            remaining = outcome.remaining.min(remaining);
        }
        let Ask { rule, limit_set, take, home, .. } = ask;
        Self {
            since: now,
            until,
            retry_at,
            remaining,
            violated,
            is_for_want_of_capacity: false,
            home: *home,
            variant: rule.variant,
            limit_set: *limit_set,
            cost: take.amount,
        }
    }

    /// Nobody can say how the limits stand, and the rule then says no: never remembered.
    pub(crate) fn for_want_of_capacity(retry_ms: u64, clock: &Clock) -> Self {
        let retry_at = Timestamp::from_ms(clock.wall.ms().saturating_add(retry_ms));
        Self { retry_at: Some(retry_at), is_for_want_of_capacity: true, ..Self::for_good(clock.wall) }
    }

    /// A denial that no wait ends, whatever the limits: never remembered.
    pub(crate) fn for_good(now: Timestamp) -> Self {
        let cost = NonZeroU64::MIN;
        Self {
            since: now,
            until: now,
            retry_at: None,
            remaining: 0,
            violated: 0,
            is_for_want_of_capacity: false,
            home: Home::Table,
            variant: 0,
            limit_set: 0,
            cost,
        }
    }

    /// Whether the rule's limit at this place said no.
    pub(crate) fn violates(&self, index: usize) -> bool {
        let bit = u32::try_from(index).ok().and_then(|bit| 1_u8.checked_shl(bit));
        bit.is_some_and(|bit| self.violated & bit != 0)
    }

    /// How long to wait, in whole seconds rounded up; `None` is for good.
    pub(crate) fn retry_after_s(&self, clock: &Clock) -> Option<u64> {
        self.retry_at.map(|at| at.ms_since(clock.of(self.home)).div_ceil(1_000))
    }

    /// A clock that stepped back out of it ends it too.
    fn holds(&self, clock: &Clock) -> bool {
        let now = clock.of(self.home);
        self.since <= now && now < self.until
    }
}

impl Denials {
    /// Makes all places at once, so that no request pays for it.
    pub(crate) fn new() -> Self {
        Self { places: vec![None; PLACES], filled: 0 }
    }

    /// The denial that an ask would meet again.
    pub(crate) fn find(&self, ask: &Ask, clock: &Clock) -> Option<Denial> {
        let key = ask.identity.key;
        let (_, denial) = self.places.get(place(key))?.filter(|(other, _)| *other == key)?;
        let is_same_limits = denial.variant == ask.rule.variant && denial.limit_set == ask.limit_set;
        let is_same = is_same_limits && denial.cost <= ask.take.amount;
        (is_same && denial.holds(clock)).then_some(denial)
    }

    pub(crate) fn remember(&mut self, identity: &Identity, denial: Denial) {
        if let Some(place) = self.places.get_mut(place(identity.key)) {
            *place = Some((identity.key, denial));
            self.filled = self.filled.saturating_add(1);
        }
    }

    /// The counter has lost what it knew, and with it the reasons of what it denied.
    pub(crate) fn forget_of_fleet(&mut self) {
        for place in &mut self.places {
            let home = place.map(|(_, denial)| denial.home);
            if matches!(home, Some(Home::Counter | Home::Leased | Home::Synced)) {
                *place = None;
            }
        }
    }

    /// Notices that nothing is remembered any more. Called from the tick, not from requests.
    pub(crate) fn forget_ended(&mut self, clock: &Clock) {
        self.filled = self.places.iter().flatten().filter(|(_, denial)| denial.holds(clock)).count();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }
}

/// Where a key's denial is kept.
fn place(key: u64) -> usize {
    let [low, high, ..] = key.to_le_bytes();
    usize::from(u16::from_le_bytes([low, high])) % PLACES
}
