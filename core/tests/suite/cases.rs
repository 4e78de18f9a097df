use super::{BOTH, Counter, amount, limit};
use tidegate_core::{
    Algorithm, Limit, LimitError, Outcome, REQUESTS_MAX, Retry, State, Take, WINDOW_MS_MAX, WINDOW_MS_MIN,
};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const YEAR_MS: u64 = 365 * 86_400_000;
/// A time that is a whole number of minutes.
const T0: u64 = 1_700_000_040_000;

/// A row: when, at what cost, what is taken, what remains, when to retry.
type Row = (u64, u64, u64, u64, Retry);

fn check(name: &str, algorithm: Algorithm, requests: u64, window_ms: u64, rows: &[Row]) {
    let mut counter = Counter::new(limit(algorithm, requests, window_ms));
    for (index, (now_ms, cost, taken, remaining, retry)) in rows.iter().enumerate() {
        let outcome = counter.all(T0 + now_ms, *cost);
        assert_eq!(
            (outcome.taken, outcome.remaining, outcome.retry),
            (*taken, *remaining, *retry),
            "{name}, row {index}"
        );
    }
}

#[test]
fn fixed_window_starts_again_with_each_window() {
    check(
        "three a minute",
        Algorithm::FixedWindow,
        3,
        60_000,
        &[
            (0, 1, 1, 2, Retry::Now),
            (59_000, 2, 2, 0, Retry::Now),
            (59_000, 1, 0, 0, Retry::After(1_000)),
            (59_999, 1, 0, 0, Retry::After(1)),
            (60_000, 1, 1, 2, Retry::Now),
            (600_000, 3, 3, 0, Retry::Now),
        ],
    );
}

#[test]
fn sliding_window_forgets_the_previous_window_by_and_by() {
    check(
        "four a minute",
        Algorithm::SlidingWindow,
        4,
        60_000,
        &[
            (30_000, 4, 4, 0, Retry::Now),
            // The next window begins with all four still counted; a quarter of it later one is forgotten.
            (30_000, 1, 0, 0, Retry::After(30_000 + 15_000)),
            (60_000, 1, 0, 0, Retry::After(15_000)),
            (74_999, 1, 0, 0, Retry::After(1)),
            (75_000, 1, 1, 0, Retry::Now),
            (75_000, 2, 0, 0, Retry::After(30_000)),
            (105_000, 2, 2, 0, Retry::Now),
            (240_000, 4, 4, 0, Retry::Now),
        ],
    );
}

#[test]
fn a_cost_above_the_limit_is_refused_for_good_and_charges_nothing() {
    for algorithm in BOTH {
        check(
            "cost above the limit",
            algorithm,
            3,
            60_000,
            &[(0, 4, 0, 3, Retry::Never), (0, u64::MAX, 0, 3, Retry::Never), (0, 3, 3, 0, Retry::Now)],
        );
    }
}

#[test]
fn a_limit_of_zero_lets_nothing_pass() {
    for algorithm in BOTH {
        let mut counter = Counter::new(limit(algorithm, 0, 60_000));
        assert_eq!(counter.all(T0, 1).retry, Retry::Never);
        let outcome = counter.take(T0, Take::some(amount(5)));
        assert_eq!((outcome.taken, outcome.remaining, outcome.retry), (0, 0, Retry::Never));
    }
}

#[test]
fn some_takes_what_there_is() {
    for algorithm in BOTH {
        let mut counter = Counter::new(limit(algorithm, 10, 60_000));
        counter.all(T0, 7);
        assert_eq!(counter.take(T0, Take::some(amount(5))).taken, 3);
        let empty = counter.take(T0, Take::some(amount(5)));
        assert_eq!(empty.taken, 0);
        assert!(empty.is_refused());
        // It promises one, not five: that is the soonest at which it gets anything.
        let Retry::After(wait_ms) = empty.retry else { panic!("{empty:?}") };
        assert!(counter.take(T0 + wait_ms, Take::some(amount(5))).taken >= 1);
    }
}

#[test]
fn force_goes_into_debt_which_is_paid_back() {
    let mut fixed = Counter::new(limit(Algorithm::FixedWindow, 10, 60_000));
    assert_eq!(fixed.take(T0, Take::force(amount(25))).taken, 25);
    assert_eq!(fixed.all(T0 + 59_999, 1).retry, Retry::After(1));
    assert_eq!(fixed.all(T0 + 60_000, 1).remaining, 9, "a fixed window forgives at its end");

    let mut sliding = Counter::new(limit(Algorithm::SlidingWindow, 10, 60_000));
    sliding.take(T0, Take::force(amount(20)));
    let refused = sliding.all(T0, 10);
    assert_eq!(refused.retry, Retry::After(120_000), "twenty are forgotten when the second window ends");
    assert_eq!(sliding.all(T0, 1).retry, Retry::After(60_000 + 33_000 + 1), "21 of 40 parts are too many");
}

#[test]
fn a_refund_goes_to_the_window_it_was_taken_from() {
    let give_back = |counter: &mut Counter, taken: &Outcome| {
        counter.state = counter.state.map(|state| state.refund(taken.window, taken.taken));
    };
    for algorithm in BOTH {
        let mut counter = Counter::new(limit(algorithm, 10, 60_000));
        let taken = counter.all(T0, 4);
        give_back(&mut counter, &taken);
        assert_eq!(counter.all(T0, 1).remaining, 9, "{algorithm:?}: the same window");

        let old = counter.all(T0, 5);
        counter.all(T0 + 180_000, 2);
        give_back(&mut counter, &old);
        assert_eq!(counter.all(T0 + 180_000, 1).remaining, 7, "{algorithm:?}: a window long gone");
    }
    let mut sliding = Counter::new(limit(Algorithm::SlidingWindow, 10, 60_000));
    let taken = sliding.all(T0, 10);
    sliding.all(T0 + 60_000, 1);
    give_back(&mut sliding, &taken);
    assert_eq!(sliding.all(T0 + 60_000, 1).remaining, 9, "the previous window is lighter by the refund");
}

#[test]
fn a_clock_that_steps_back_a_little_stands_still() {
    for algorithm in BOTH {
        let mut counter = Counter::new(limit(algorithm, 3, 60_000));
        counter.all(T0, 3);
        assert!(counter.all(T0 - 1, 1).is_refused(), "{algorithm:?}: one window back");
        assert!(counter.all(T0 - 60_000, 1).is_refused(), "{algorithm:?}: one whole window back");
        let Retry::After(wait_ms) = counter.all(T0 - 1, 1).retry else { panic!("refused for good") };
        assert!(counter.all(T0 - 1 + wait_ms - 1, 1).is_refused());
        assert!(!counter.all(T0 - 1 + wait_ms, 1).is_refused(), "retry-after holds across the step");
    }
}

#[test]
fn a_clock_that_steps_back_by_more_starts_afresh() {
    for algorithm in BOTH {
        for back_ms in [60_001, 86_400_000, 10 * YEAR_MS] {
            let mut counter = Counter::new(limit(algorithm, 3, 60_000));
            counter.all(T0, 3);
            assert_eq!(counter.all(T0 - back_ms, 1).remaining, 2, "{algorithm:?}, {back_ms} ms back");
        }
    }
}

#[test]
fn a_clock_that_jumps_by_years_starts_afresh() {
    for algorithm in BOTH {
        for ahead_ms in [180_000, 30 * YEAR_MS, 500 * YEAR_MS, u64::MAX - T0] {
            let mut counter = Counter::new(limit(algorithm, 3, 60_000));
            counter.all(T0, 3);
            assert_eq!(counter.all(T0 + ahead_ms, 1).remaining, 2, "{algorithm:?}, {ahead_ms} ms ahead");
            counter.all(T0 + ahead_ms, 2);
            assert!(counter.all(T0 + ahead_ms, 1).is_refused(), "{algorithm:?}: and limits there");
        }
    }
}

#[test]
fn counts_saturate_at_their_maxima() {
    for algorithm in BOTH {
        let mut counter = Counter::new(limit(algorithm, REQUESTS_MAX, WINDOW_MS_MAX));
        counter.take(0, Take::force(amount(u64::MAX)));
        counter.take(0, Take::force(amount(u64::MAX)));
        let state = counter.state.expect("a take leaves a state");
        assert_eq!(counter.limit.used(state, super::at(0)), REQUESTS_MAX);
        assert!(counter.all(0, 1).is_refused(), "{algorithm:?}");
        let next = counter.all(2 * WINDOW_MS_MAX, REQUESTS_MAX);
        assert_eq!((next.taken, next.remaining), (REQUESTS_MAX, 0), "{algorithm:?}");
    }
}

#[test]
fn the_largest_numbers_keep_retry_after_exact() {
    let mut counter = Counter::new(limit(Algorithm::SlidingWindow, REQUESTS_MAX, WINDOW_MS_MAX));
    counter.all(0, REQUESTS_MAX);
    let Retry::After(wait_ms) = counter.all(1, 1).retry else { panic!("not refused") };
    assert!(counter.all(wait_ms, 1).is_refused());
    assert!(!counter.all(1 + wait_ms, 1).is_refused());
}

#[test]
fn a_changed_limit_applies_to_the_same_counts() {
    for algorithm in BOTH {
        let mut counter = Counter::new(limit(algorithm, 10, 60_000));
        counter.all(T0, 6);
        counter.limit = limit(algorithm, 8, 60_000);
        assert_eq!(counter.all(T0, 1).remaining, 1, "{algorithm:?}: raised or lowered, six are counted");
        counter.limit = limit(algorithm, 2, 60_000);
        let outcome = counter.all(T0, 1);
        assert_eq!((outcome.taken, outcome.remaining), (0, 0), "{algorithm:?}: lowered below the count");
    }
}

#[test]
fn a_state_of_another_algorithm_is_fresh() {
    let mut counter = Counter::new(limit(Algorithm::FixedWindow, 3, 60_000));
    counter.all(T0, 3);
    counter.limit = limit(Algorithm::SlidingWindow, 3, 60_000);
    assert_eq!(counter.all(T0, 1).remaining, 2);
    assert!(matches!(counter.state, Some(State::SlidingWindow(_))));
}

#[test]
fn the_shift_moves_the_window_and_nothing_else() {
    let mut counter = Counter::new(limit(Algorithm::FixedWindow, 1, 60_000));
    counter.shift = 7 * 60_000 + 20_000;
    assert_eq!(counter.all(T0, 1).reset_ms, 40_000, "T0 is 20 s into the shifted window");
    assert!(counter.all(T0 + 39_999, 1).is_refused());
    assert!(!counter.all(T0 + 40_000, 1).is_refused());
}

#[test]
fn reset_says_when_the_whole_limit_is_free_again() {
    let mut fixed = Counter::new(limit(Algorithm::FixedWindow, 5, 60_000));
    assert_eq!(fixed.all(T0 + 10_000, 1).reset_ms, 50_000);
    let mut sliding = Counter::new(limit(Algorithm::SlidingWindow, 5, 60_000));
    assert_eq!(sliding.all(T0 + 10_000, 5).reset_ms, 110_000);
    assert_eq!(sliding.all(T0 + 60_000, 1).reset_ms, 60_000, "only the previous window still counts");
    assert_eq!(sliding.all(T0 + 120_000, 6).reset_ms, 0, "nothing is used, and nothing was taken");
}

#[test]
fn bounds_are_refused_with_their_numbers() {
    let new = |requests, window_ms| Limit::new(Algorithm::FixedWindow, requests, window_ms);
    assert!(new(REQUESTS_MAX, WINDOW_MS_MAX).is_ok());
    assert!(new(0, WINDOW_MS_MIN).is_ok());
    assert_eq!(
        new(REQUESTS_MAX + 1, WINDOW_MS_MIN),
        Err(LimitError::TooManyRequests { requests: REQUESTS_MAX + 1, max: REQUESTS_MAX })
    );
    assert_eq!(new(1, 999), Err(LimitError::WindowTooShort { window_ms: 999, min: 1_000 }));
    assert_eq!(
        new(1, WINDOW_MS_MAX + 1),
        Err(LimitError::WindowTooLong { window_ms: WINDOW_MS_MAX + 1, max: WINDOW_MS_MAX })
    );
}
