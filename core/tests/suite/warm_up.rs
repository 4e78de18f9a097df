//! The warm-up of a token bucket against Guava's `SmoothWarmingUp`, in doubles as Guava has it.

use super::{Counter, amount, at, valid};
use proptest::prelude::*;
use tidegate_core::{Limit, Retry, State, Take};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const T0: u64 = 1_700_000_040_000;

/// Guava's definition, with its cold factor of 3; times in milliseconds.
struct Guava {
    stable: f64,
    slope: f64,
    threshold: f64,
    max: f64,
    cool_down: f64,
    stored: f64,
    next_free: f64,
}

impl Guava {
    fn new(per_ms: f64, warm_up_ms: f64) -> Self {
        let stable = 1.0 / per_ms;
        let cold = 3.0 * stable;
        let threshold = 0.5 * warm_up_ms / stable;
        let max = threshold + 2.0 * warm_up_ms / (stable + cold);
        let slope = (cold - stable) / (max - threshold);
        Self { stable, slope, threshold, max, cool_down: warm_up_ms / max, stored: max, next_free: 0.0 }
    }

    fn admits(&mut self, now: f64) -> bool {
        if now > self.next_free {
            self.stored = self.max.min(self.stored + (now - self.next_free) / self.cool_down);
            self.next_free = now;
        }
        if self.next_free > now {
            return false;
        }
        let from_stored = self.stored.min(1.0);
        let above = (self.stored - self.threshold).max(0.0);
        let dear = above.min(from_stored);
        let height = |permits: f64| self.stable + permits * self.slope;
        let mut wait = 0.0;
        if above > 0.0 {
            wait += dear * (height(above) + height(above - dear)) / 2.0;
        }
        wait += self.stable * (1.0 - dear);
        self.next_free += wait;
        self.stored -= from_stored;
        true
    }
}

/// How many pass in each second of steady, ample demand.
fn per_second(limit: Limit, seconds: u64, start_ms: u64) -> Vec<u64> {
    let mut counter = Counter::new(limit);
    (0..seconds)
        .map(|second| {
            let tries = 0..1_000;
            tries.map(|ms| counter.all(start_ms + second * 1_000 + ms, 1).taken).sum()
        })
        .collect()
}

#[test]
fn a_cold_bucket_starts_with_a_third_and_reaches_the_whole_rate_in_its_time() {
    let passed = per_second(valid(Limit::token_bucket(100, 1_000, 1, 10_000)), 14, T0);
    assert!((33..=40).contains(&passed[0]), "{passed:?}");
    assert!(passed.windows(2).all(|pair| pair[0] <= pair[1]), "it only rises: {passed:?}");
    // Whoever asks once a millisecond wastes part of one at each token, so it takes a little longer than ten.
    assert!(passed[8] < 90, "{passed:?}");
    assert_eq!(passed[11..], [100; 3], "{passed:?}");
}

#[test]
fn a_warm_bucket_stays_warm_under_load_and_cools_when_idle() {
    let limit = valid(Limit::token_bucket(100, 1_000, 1, 10_000));
    let mut counter = Counter::new(limit);
    let burst = |counter: &mut Counter, start_ms: u64, seconds: u64| -> u64 {
        (0..seconds * 1_000).map(|ms| counter.all(start_ms + ms, 1).taken).sum()
    };
    burst(&mut counter, T0, 20);
    assert_eq!(burst(&mut counter, T0 + 20_000, 1), 100);
    let mut half = counter.clone();
    let after_half = burst(&mut half, T0 + 21_000 + 7_500, 1);
    assert!((45..=75).contains(&after_half), "cooled a while: {after_half}");
    let cold = burst(&mut counter, T0 + 21_000 + 60_000, 1);
    assert!((33..=40).contains(&cold), "cooled through: {cold}");
}

#[test]
fn a_burst_from_a_cold_bucket_is_dear() {
    let mut counter = Counter::new(valid(Limit::token_bucket(100, 1_000, 30, 60_000)));
    let passed = (0..100).filter(|_| !counter.all(T0, 1).is_refused()).count();
    assert!((9..=11).contains(&passed), "a third of the burst: {passed}");
    assert!(matches!(counter.all(T0, 1).retry, Retry::After(1..)));
}

proptest! {
    #[test]
    fn agrees_with_guava(
        requests in 1_u64..500,
        warm_up_ms in 1_000_u64..60_000,
        steps in prop::collection::vec(prop_oneof![8 => 0_u64..30, 1 => 0_u64..5_000, 1 => 0_u64..100_000], 50..400),
    ) {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let mut guava = Guava::new(requests as f64 / 1_000.0, warm_up_ms as f64);
        let mut counter = Counter::new(valid(Limit::token_bucket(requests, 1_000, 1, warm_up_ms)));
        let (mut ours, mut theirs, mut now_ms) = (0_i64, 0_i64, 0);
        for step in steps {
            now_ms += step;
            ours += i64::from(!counter.all(T0 + now_ms, 1).is_refused());
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let admitted = guava.admits(now_ms as f64);
            theirs += i64::from(admitted);
            // Time comes in whole milliseconds here: one that is refused a hair early comes a step later.
            prop_assert!((ours - theirs).abs() <= 1 + theirs / 50, "{} against {}", ours, theirs);
        }
    }
}

/// The same counter may be a plain bucket before a config changes and warm up after: a debt that only the plain one's
/// state has room for must not run over.
#[test]
fn a_plain_buckets_debt_fits_the_state_of_one_that_warms_up() {
    let plain = valid(Limit::token_bucket(1, 1_000, 1, 0));
    let warming = valid(Limit::token_bucket(1, 1_000, 1, 1_000));
    let (_, state) = plain.take(None, at(1_700_000_000_000), Take::force(amount(1 << 36)));
    let refunded = warming.refund(state.clone(), at(1_700_000_000_000), u64::MAX, 1);
    assert_eq!(State::from_bytes(refunded.kind(), &refunded.contents()), Ok(refunded));
    let (refused, _) = warming.take(Some(state), at(1_700_000_000_000), Take::all(amount(1)));
    assert_eq!(
        refused.retry,
        Retry::After(refused.reset_ms),
        "the debt that is kept is the one that is waited for"
    );
}
