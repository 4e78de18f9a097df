//! `token_bucket`: a bucket of tokens that a steady rate refills. `leaky_bucket` is the same with a burst of 1.
//!
//! The bucket counts in units of which a token has as many as the period has milliseconds: then each
//! millisecond refills exactly `requests` units, and nothing is ever rounded. It keeps what is **missing**,
//! so that nothing is a full bucket.
//!
//! **Warm-up**, as in Guava's `SmoothWarmingUp`: a bucket that stays full cools, by as much as it would have
//! been refilled, and is cold after `warm_up_ms`. A token from a cold bucket costs three times as much as one
//! from a warm bucket, falling in a straight line to the plain price when half of the cold is used up; each
//! token uses up a token's worth. So a cold bucket starts with a third of the rate and reaches the whole of
//! it after `warm_up_ms` of steady demand. What is missing may pass the burst by that surcharge: the price is
//! paid by those who come after, in time.

use crate::limit::{BUCKET_UNITS_MAX, REQUESTS_MAX, WARM_UP_UNITS_MAX};
use crate::rounding::{ceil_div, floor_div};
use crate::{Limit, Outcome, Take, Timestamp};

/// What a bucket lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// When it was last looked at.
    pub at: Timestamp,
    /// Units that are missing; more than the bucket holds is debt.
    pub missing: u64,
    /// Units of cold, for a bucket that warms up.
    pub cold: Option<u64>,
}

/// The most that can be missing from a bucket that warms up: a full one, emptied at the cold price.
pub(crate) const WARMING_MISSING_MAX: u64 = (1 << 36) - 1;

const WEIGHT_ONE: u64 = 1 << 16;
const EXACT_IN_DOUBLES: u64 = 1 << 53;
const _: () = assert!(BUCKET_UNITS_MAX + BUCKET_UNITS_MAX <= EXACT_IN_DOUBLES, "what is missing and a take");
const _: () = assert!(WARM_UP_UNITS_MAX * 2 <= EXACT_IN_DOUBLES / WEIGHT_ONE, "the surcharge");
const _: () = assert!(WARM_UP_UNITS_MAX * 4 <= WARMING_MISSING_MAX + 1, "a bucket emptied at the cold price");

/// The numbers of a token bucket limit.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    /// Units that a millisecond refills.
    rate: u64,
    /// Units of a token.
    token: u64,
    burst: u64,
    cold_max: Option<u64>,
}

impl Numbers {
    pub(crate) fn of(limit: &Limit, burst: u64, warm_up_ms: u64) -> Self {
        let rate = limit.requests();
        let cold_max = (warm_up_ms > 0).then(|| warm_up_ms.saturating_mul(rate));
        Self { rate, token: limit.window_ms(), burst, cold_max }
    }

    /// Units that the bucket holds.
    fn holds(&self) -> u64 {
        self.burst.saturating_mul(self.token)
    }

    fn missing_max(&self) -> u64 {
        if self.cold_max.is_some() { WARMING_MISSING_MAX } else { BUCKET_UNITS_MAX }
    }

    /// What `tokens` cost, and how much cold they use up.
    fn price(&self, tokens: u64, cold: u64) -> (u64, u64) {
        let plain = tokens.min(floor_div(self.missing_max(), self.token)).saturating_mul(self.token);
        let Some(cold_max) = self.cold_max else { return (plain, 0) };
        let used_up = plain.min(cold);
        let warm = cold_max.div_euclid(2);
        let from = cold.saturating_sub(warm);
        let to = cold.saturating_sub(used_up).saturating_sub(warm);
        // The area under the line from `from` down to `to`: twice their difference by their sum's share.
        let share = ceil_div(from.saturating_add(to).saturating_mul(WEIGHT_ONE), cold_max);
        let surcharge = ceil_div(from.saturating_sub(to).saturating_mul(2).saturating_mul(share), WEIGHT_ONE);
        (plain.saturating_add(surcharge), used_up)
    }
}

impl TokenBucket {
    /// A full bucket; one that warms up is cold.
    pub(crate) fn fresh(numbers: &Numbers, now: Timestamp) -> Self {
        Self { at: now, missing: 0, cold: numbers.cold_max }
    }

    /// The state as it stands now. A clock that stepped back a little stands still until it has caught up.
    pub(crate) fn at(self, numbers: &Numbers, now: Timestamp) -> Self {
        if self.at.ms_since(now) > numbers.token {
            return Self::fresh(numbers, now);
        }
        let elapsed_ms = now.ms_since(self.at);
        let to_full_ms = ceil_div(self.missing, numbers.rate);
        let cold_max = numbers.cold_max.unwrap_or(0);
        // Clamped before it is multiplied: more than fills and cools it changes nothing.
        let useful_ms = elapsed_ms.min(to_full_ms.saturating_add(ceil_div(cold_max, numbers.rate)));
        let refill = useful_ms.saturating_mul(numbers.rate);
        let idle = refill.saturating_sub(self.missing);
        Self {
            at: self.at.max(now),
            // One that begins to warm up may come with more than its state has room for.
            missing: self.missing.saturating_sub(refill).min(numbers.missing_max()),
            cold: numbers.cold_max.map(|max| self.cold.unwrap_or(0).saturating_add(idle).min(max)),
        }
    }

    /// Tokens that are missing, rounded up.
    pub(crate) fn used(&self, numbers: &Numbers) -> u64 {
        ceil_div(self.missing, numbers.token).min(REQUESTS_MAX)
    }

    pub(crate) fn take(self, numbers: &Numbers, now: Timestamp, take: Take) -> (Outcome, Self) {
        let before = self.at(numbers, now);
        let holds = numbers.holds();
        let free = floor_div(holds.saturating_sub(before.missing), numbers.token);
        let taken = take.taken_of(free);
        let (price, used_up) = numbers.price(taken, before.cold.unwrap_or(0));
        let after = Self {
            missing: before.missing.saturating_add(price).min(numbers.missing_max()),
            cold: before.cold.map(|cold| cold.saturating_sub(used_up)),
            ..before
        };
        let behind_ms = before.at.ms_since(now);
        let full_in_ms = |missing: u64| behind_ms.saturating_add(ceil_div(missing, numbers.rate));
        let outcome = Outcome {
            taken,
            remaining: floor_div(holds.saturating_sub(after.missing), numbers.token),
            reset_ms: if after.missing == 0 { 0 } else { full_in_ms(after.missing) },
            retry: take.retry(taken, numbers.burst, |amount| {
                let needed = before.missing.saturating_add(amount.saturating_mul(numbers.token));
                full_in_ms(needed.saturating_sub(holds))
            }),
            // When the last of it is refilled, if first taken is first refilled.
            receipt: before.at.ms().saturating_add(ceil_div(after.missing, numbers.rate)),
        };
        (outcome, after)
    }

    /// Gives back as many of `amount` tokens as are not refilled yet, to the millisecond, if those before
    /// them were refilled first. At the plain price: the surcharge of a warm-up stays paid.
    pub(crate) fn refund(self, numbers: &Numbers, now: Timestamp, refilled_at_ms: u64, amount: u64) -> Self {
        let state = self.at(numbers, now);
        let outstanding_ms = refilled_at_ms.saturating_sub(state.at.ms());
        let outstanding = if numbers.rate == 0 {
            // Nothing is ever refilled.
            state.missing
        } else {
            outstanding_ms.min(ceil_div(state.missing, numbers.rate)).saturating_mul(numbers.rate)
        };
        let given = amount.min(floor_div(BUCKET_UNITS_MAX, numbers.token)).saturating_mul(numbers.token);
        Self { missing: state.missing.saturating_sub(given.min(outstanding)), ..state }
    }

    /// When it will be full, and cold if it warms up.
    pub(crate) fn expires(&self, numbers: &Numbers) -> Timestamp {
        let to_cool = numbers.cold_max.unwrap_or(0).saturating_sub(self.cold.unwrap_or(0));
        let to_fresh_ms = ceil_div(self.missing.saturating_add(to_cool), numbers.rate);
        Timestamp::from_ms(self.at.ms().saturating_add(to_fresh_ms))
    }
}
