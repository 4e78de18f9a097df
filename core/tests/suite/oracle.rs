//! Oracles that keep every take's time, count from scratch at each decision, and know nothing of states.

use super::{Counter, every_algorithm, fixed, sliding, valid};
use proptest::prelude::*;
use tidegate_core::{Algorithm, Limit, Retry, Take, Timestamp, Window};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

struct Oracle {
    limit: Limit,
    shift: u64,
    taken: Vec<(u64, u64)>,
}

impl Oracle {
    /// What is used, in parts of which a request has [`Self::unit`].
    fn used(&self, now_ms: u64) -> u128 {
        let window_ms = self.limit.window_ms();
        match self.limit.algorithm() {
            Algorithm::FixedWindow => self.in_windows(now_ms, window_ms, 0..=0),
            Algorithm::SlidingWindow => {
                let left_ms = u128::from(window_ms - (now_ms + self.shift % window_ms) % window_ms);
                let weight = (left_ms * 65_536).div_ceil(u128::from(window_ms));
                let previous = self.in_windows(now_ms, window_ms, 1..=1);
                self.in_windows(now_ms, window_ms, 0..=0) + (previous * weight).div_ceil(65_536)
            }
            Algorithm::SlidingBuckets { buckets } => {
                self.in_windows(now_ms, window_ms / u64::from(buckets), 0..=buckets.into())
            }
            Algorithm::SlidingLog => {
                let counts = |time_ms: u64| time_ms + window_ms > now_ms;
                self.taken
                    .iter()
                    .filter(|(time_ms, _)| counts(*time_ms))
                    .map(|(_, cost)| u128::from(*cost))
                    .sum()
            }
            // The textbook: a level that falls by the takes and rises with time up to the brim.
            Algorithm::TokenBucket { .. } => {
                let (rate, mut missing, mut then_ms) = (u128::from(self.limit.requests()), 0_u128, 0);
                for (time_ms, cost) in self.taken.iter().copied().chain([(now_ms, 0)]) {
                    missing = missing.saturating_sub(u128::from(time_ms - then_ms) * rate);
                    missing += u128::from(cost) * self.unit();
                    then_ms = time_ms;
                }
                missing
            }
        }
    }

    fn unit(&self) -> u128 {
        match self.limit.algorithm() {
            Algorithm::TokenBucket { .. } => self.limit.window_ms().into(),
            _ => 1,
        }
    }

    /// What was taken in windows of these ages.
    fn in_windows(&self, now_ms: u64, window_ms: u64, ages: std::ops::RangeInclusive<u64>) -> u128 {
        let window = |time_ms: u64| (time_ms + self.shift % window_ms) / window_ms;
        let counts = |time_ms: u64| ages.contains(&(window(now_ms) - window(time_ms)));
        self.taken.iter().filter(|(time_ms, _)| counts(*time_ms)).map(|(_, cost)| u128::from(*cost)).sum()
    }

    fn admits(&mut self, now_ms: u64, cost: u64) -> bool {
        let capacity = u128::from(self.limit.capacity()) * self.unit();
        let admitted = self.used(now_ms) + u128::from(cost) * self.unit() <= capacity;
        if admitted {
            self.taken.push((now_ms, cost));
        }
        admitted
    }

    fn remaining(&self, now_ms: u64) -> u128 {
        let capacity = u128::from(self.limit.capacity()) * self.unit();
        capacity.saturating_sub(self.used(now_ms)) / self.unit()
    }
}

/// Any limit without a warm-up, which has a test of its own.
fn limits() -> impl Strategy<Value = Limit> {
    let window_ms = prop_oneof![1_000_u64..5_000, Just(60_000), 1_000_u64..10_000_000];
    (0..5, 0_u64..200, window_ms, 1_u8..=60, 1_u64..300).prop_map(
        |(algorithm, requests, window_ms, buckets, burst)| {
            valid(match algorithm {
                0 => Limit::fixed_window(requests, Window::Ms(window_ms)),
                1 => Limit::sliding_window(requests, window_ms),
                2 => Limit::sliding_buckets(requests, window_ms.max(1_000) * u64::from(buckets), buckets),
                3 => Limit::sliding_log(requests, window_ms),
                _ => Limit::token_bucket(requests, window_ms, if requests == 0 { 0 } else { burst }, 0),
            })
        },
    )
}

/// Any limit at all.
fn any_limit() -> impl Strategy<Value = Limit> {
    let warming = (1_u64..200, 1_000_u64..100_000, 1_u64..100, 1_000_u64..1_000_000).prop_map(
        |(requests, period_ms, burst, warm_up_ms)| {
            valid(Limit::token_bucket(requests, period_ms, burst, warm_up_ms))
        },
    );
    prop_oneof![5 => limits(), 1 => warming]
}

/// Steps as thousandths of the window, so that every history crosses some seams, and costs.
fn history() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let step = prop_oneof![4 => 0_u64..50, 2 => 0_u64..1_500, 1 => 0_u64..5_000];
    let cost = prop_oneof![6 => Just(1_u64), 2 => 1_u64..20, 1 => 1_u64..300];
    prop::collection::vec((step, cost), 1..120)
}

proptest! {
    #[test]
    fn agrees_with_the_oracle(
        limit in limits(),
        shift in any::<u32>(),
        start_ms in 0_u64..4_000_000_000_000,
        history in history(),
    ) {
        let shift = u64::from(shift);
        let mut oracle = Oracle { limit, shift, taken: Vec::new() };
        let mut counter = Counter { limit, state: None, shift };
        let mut now_ms = start_ms;
        for (step, cost) in history {
            now_ms += step * limit.window_ms() / 1_000;
            let outcome = counter.all(now_ms, cost);
            prop_assert_eq!(oracle.admits(now_ms, cost), !outcome.is_refused(), "at {}", now_ms);
            prop_assert_eq!(oracle.remaining(now_ms), u128::from(outcome.remaining), "at {}", now_ms);
        }
    }

    #[test]
    fn refused_just_before_retry_after_and_admitted_at_it(
        limit in any_limit(),
        shift in any::<u32>(),
        history in history(),
        step_back_ms in prop_oneof![3 => Just(0_u64), 1 => 0_u64..2_000],
    ) {
        let mut counter = Counter { limit, state: None, shift: u64::from(shift) };
        let mut now_ms = 1_700_000_000_000;
        for (step, cost) in history {
            now_ms += step * limit.window_ms() / 1_000;
            let asked_ms = now_ms - step_back_ms;
            let before = counter.clone();
            match counter.all(asked_ms, cost).retry {
                Retry::Now => {}
                Retry::Never => prop_assert!(cost > limit.capacity()),
                Retry::After(wait_ms) => {
                    prop_assert!(wait_ms > 0);
                    let just_before = before.clone().all(asked_ms + wait_ms - 1, cost);
                    prop_assert!(just_before.is_refused(), "just before");
                    prop_assert!(!before.clone().all(asked_ms + wait_ms, cost).is_refused(), "at it");
                }
            }
        }
    }

    #[test]
    fn what_is_used_grows_by_what_is_taken(
        limit in limits(),
        history in history(),
        manners in prop::collection::vec(0..3_u8, 120),
    ) {
        let mut counter = Counter::new(limit);
        let mut now_ms = 1_700_000_000_000;
        for ((step, cost), manner) in history.into_iter().zip(manners) {
            now_ms += step * limit.window_ms() / 1_000;
            let before = counter.used(now_ms);
            let take = [Take::all, Take::some, Take::force][usize::from(manner)](super::amount(cost));
            let outcome = counter.take(now_ms, take);
            prop_assert_eq!(counter.used(now_ms), before + outcome.taken);
            prop_assert_eq!(outcome.is_refused(), outcome.taken == 0);
            prop_assert!(manner == 2 || counter.used(now_ms) <= before.max(limit.capacity()));
            // A refund at once is as if it had never been.
            let mut refunded = counter.clone();
            refunded.refund(now_ms, &outcome);
            prop_assert_eq!(refunded.used(now_ms), before);
        }
    }

    /// A refund never gives back more than the take still weighs: with it or without the take, no more is free.
    /// A bucket knows that to the millisecond.
    #[test]
    fn a_late_refund_gives_back_no_more_than_was_taken(
        limit in limits(),
        history in history(),
        refunded in any::<prop::sample::Index>(),
    ) {
        let mut with = Counter::new(limit);
        let mut without = Counter::new(limit);
        let refunded = refunded.index(history.len());
        let mut now_ms = 1_700_000_000_000;
        let mut receipt = None;
        for (index, (step, cost)) in history.into_iter().enumerate() {
            now_ms += step * limit.window_ms() / 1_000;
            let take = Take::force(super::amount(cost));
            let outcome = with.take(now_ms, take);
            if index == refunded {
                receipt = Some(outcome);
            } else {
                without.take(now_ms, take);
            }
        }
        with.refund(now_ms, &receipt.expect("one was chosen"));
        let precision = match limit.algorithm() {
            Algorithm::TokenBucket { .. } => limit.requests().div_ceil(limit.window_ms()),
            _ => 0,
        };
        prop_assert!(with.used(now_ms) + precision >= without.used(now_ms));
    }

    #[test]
    fn whatever_the_clock_does_nothing_panics_and_a_window_admits_no_more(
        limit in any_limit(),
        clock in prop::collection::vec(any::<u64>(), 1..60),
    ) {
        let mut counter = Counter::new(limit);
        for now_ms in clock {
            let first = counter.all(now_ms, 1);
            prop_assert!(first.remaining <= limit.capacity());
            prop_assert!(first.taken <= limit.capacity());
        }
    }

    #[test]
    fn expired_means_as_good_as_fresh(limit in limits(), shift in any::<u32>(), cost in 1_u64..200) {
        let mut counter = Counter { limit, state: None, shift: u64::from(shift) };
        let now_ms = 1_700_000_000_000;
        if counter.all(now_ms, cost).is_refused() {
            return Ok(());
        }
        let state = counter.state.clone().expect("taken");
        let mut moment = super::at(now_ms);
        moment.shift = counter.shift;
        let expires = limit.expires(&state, moment);
        prop_assert!(expires > moment.now);
        moment.now = expires;
        prop_assert_eq!(limit.used(&state, moment), 0);
        moment.now = Timestamp::from_ms(expires.ms() - 1);
        prop_assert!(limit.used(&state, moment) > 0, "and not a millisecond earlier");
    }

    /// `sliding_buckets` promises more than its definition: no window of that length sees more than the limit.
    #[test]
    fn sliding_buckets_are_never_over_in_any_window(
        requests in 1_u64..50,
        buckets in 1_u8..=12,
        shift in any::<u32>(),
        history in history(),
    ) {
        let limit = valid(Limit::sliding_buckets(requests, 5_000 * u64::from(buckets), buckets));
        let mut counter = Counter { limit, state: None, shift: u64::from(shift) };
        let mut now_ms = 1_700_000_000_000;
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (step, cost) in history {
            now_ms += step * limit.window_ms() / 1_000;
            taken.push((now_ms, counter.all(now_ms, cost).taken));
            let inside = taken.iter().filter(|(time_ms, _)| time_ms + limit.window_ms() > now_ms);
            let sum: u64 = inside.map(|(_, cost)| cost).sum();
            prop_assert!(sum <= requests, "{} in one window", sum);
        }
    }
}

#[test]
fn a_seam_lets_pass_what_its_algorithm_says() {
    let expected = |limit: &Limit| match limit.algorithm() {
        Algorithm::FixedWindow => (100, 100),
        _ => (100, 0),
    };
    for limit in
        [fixed(100, 60_000), sliding(100, 60_000)].into_iter().chain(every_algorithm(100, 60_000)).take(6)
    {
        let mut counter = Counter::new(limit);
        let seam_ms = 1_700_000_040_000;
        let before = (0..150).filter(|_| !counter.all(seam_ms - 1, 1).is_refused()).count();
        let after = (0..150).filter(|_| !counter.all(seam_ms, 1).is_refused()).count();
        assert_eq!((before, after), expected(&limit), "{limit:?}");
    }
}
