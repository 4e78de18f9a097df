//! An oracle that keeps every take's time, counts from scratch at each decision, and knows nothing of
//! states.

use super::{BOTH, Counter, limit};
use proptest::prelude::*;
use tidegate_core::{Algorithm, Limit, Retry};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

struct Oracle {
    limit: Limit,
    shift: u64,
    taken: Vec<(u64, u64)>,
}

impl Oracle {
    fn used(&self, now_ms: u64) -> u128 {
        let window_ms = self.limit.window_ms();
        let grid = |time_ms: u64| time_ms + self.shift % window_ms;
        let window = |time_ms: u64| grid(time_ms) / window_ms;
        let count = |wanted: Option<u64>| -> u128 {
            let inside = self.taken.iter().filter(|(time_ms, _)| Some(window(*time_ms)) == wanted);
            inside.map(|(_, cost)| u128::from(*cost)).sum()
        };
        let current = count(Some(window(now_ms)));
        match self.limit.algorithm() {
            Algorithm::FixedWindow => current,
            Algorithm::SlidingWindow => {
                let left_ms = u128::from(window_ms - grid(now_ms) % window_ms);
                let weight = (left_ms * 65_536).div_ceil(u128::from(window_ms));
                let previous = count(window(now_ms).checked_sub(1));
                current + (previous * weight).div_ceil(65_536)
            }
        }
    }

    fn admits(&mut self, now_ms: u64, cost: u64) -> bool {
        let admitted = self.used(now_ms) + u128::from(cost) <= u128::from(self.limit.requests());
        if admitted {
            self.taken.push((now_ms, cost));
        }
        admitted
    }

    fn remaining(&self, now_ms: u64) -> u128 {
        u128::from(self.limit.requests()).saturating_sub(self.used(now_ms))
    }
}

fn limits() -> impl Strategy<Value = Limit> {
    let window_ms = prop_oneof![1_000_u64..5_000, Just(60_000), 1_000_u64..10_000_000];
    (any::<bool>(), 0_u64..200, window_ms).prop_map(|(fixed, requests, window_ms)| {
        let algorithm = if fixed { Algorithm::FixedWindow } else { Algorithm::SlidingWindow };
        limit(algorithm, requests, window_ms)
    })
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
        limit in limits(),
        shift in any::<u32>(),
        history in history(),
        step_back_ms in prop_oneof![3 => Just(0_u64), 1 => 0_u64..2_000],
    ) {
        let mut counter = Counter { limit, state: None, shift: u64::from(shift) };
        let mut now_ms = 1_700_000_000_000;
        for (step, cost) in history {
            now_ms += step * limit.window_ms() / 1_000;
            let asked_ms = now_ms - step_back_ms;
            let before = counter.state;
            match counter.all(asked_ms, cost).retry {
                Retry::Now => {}
                Retry::Never => prop_assert!(cost > limit.requests()),
                Retry::After(wait_ms) => {
                    prop_assert!(wait_ms > 0);
                    let mut then = Counter { limit, state: before, shift: counter.shift };
                    prop_assert!(then.all(asked_ms + wait_ms - 1, cost).is_refused(), "just before");
                    let mut then = Counter { limit, state: before, shift: counter.shift };
                    prop_assert!(!then.all(asked_ms + wait_ms, cost).is_refused(), "at it");
                }
            }
        }
    }

    #[test]
    fn a_refused_take_changes_nothing_that_counts(limit in limits(), history in history()) {
        let mut counter = Counter::new(limit);
        let mut now_ms = 1_700_000_000_000;
        for (step, cost) in history {
            now_ms += step * limit.window_ms() / 1_000;
            let moment = super::at(now_ms);
            let before = counter.state.map_or(0, |state| limit.used(state, moment));
            let outcome = counter.all(now_ms, cost);
            let after = counter.state.map_or(0, |state| limit.used(state, moment));
            prop_assert_eq!(after, before + outcome.taken);
        }
    }

    #[test]
    fn whatever_the_clock_does_nothing_panics_and_a_window_admits_no_more(
        limit in limits(),
        clock in prop::collection::vec(any::<u64>(), 1..60),
    ) {
        let mut counter = Counter::new(limit);
        for now_ms in clock {
            let first = counter.all(now_ms, 1);
            let used = counter.state.map_or(0, |state| limit.used(state, super::at(now_ms)));
            prop_assert!(used <= limit.requests());
            prop_assert!(first.remaining <= limit.requests());
        }
    }

    #[test]
    fn expired_means_as_good_as_fresh(limit in limits(), shift in any::<u32>(), cost in 1_u64..200) {
        let mut counter = Counter { limit, state: None, shift: u64::from(shift) };
        let now_ms = 1_700_000_000_000;
        if counter.all(now_ms, cost).is_refused() {
            return Ok(());
        }
        let state = counter.state.expect("taken");
        let mut moment = super::at(now_ms);
        moment.shift = counter.shift;
        let expires = limit.expires(state, moment);
        prop_assert!(expires > moment.now);
        moment.now = expires;
        prop_assert_eq!(limit.used(state, moment), 0);
        moment.now = tidegate_core::Timestamp::from_ms(expires.ms() - 1);
        prop_assert!(limit.used(state, moment) > 0, "and not a millisecond earlier");
    }
}

#[test]
fn a_fixed_seam_lets_twice_the_limit_pass_and_a_sliding_one_does_not() {
    for algorithm in BOTH {
        let mut counter = Counter::new(limit(algorithm, 100, 60_000));
        let seam_ms = 1_700_000_040_000;
        let before = (0..150).filter(|_| !counter.all(seam_ms - 1, 1).is_refused()).count();
        let after = (0..150).filter(|_| !counter.all(seam_ms, 1).is_refused()).count();
        let expected = if algorithm == Algorithm::FixedWindow { (100, 100) } else { (100, 0) };
        assert_eq!((before, after), expected, "{algorithm:?}");
    }
}
