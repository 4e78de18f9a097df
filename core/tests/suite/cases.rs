use super::{Counter, amount, every_algorithm, fixed, sliding, valid};
use tidegate_core::{
    BUCKETS_MAX, LOG_REQUESTS_MAX, Limit, LimitError, REQUESTS_MAX, Retry, State, Take, WINDOW_MS_MAX,
    WINDOW_MS_MIN, Window,
};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const YEAR_MS: u64 = 365 * 86_400_000;
/// A time that is a whole number of minutes.
const T0: u64 = 1_700_000_040_000;

/// A row: when, at what cost, what is taken, what remains, when to retry.
type Row = (u64, u64, u64, u64, Retry);

fn check(limit: Limit, rows: &[Row]) {
    let mut counter = Counter::new(limit);
    for (index, (now_ms, cost, taken, remaining, retry)) in rows.iter().enumerate() {
        let outcome = counter.all(T0 + now_ms, *cost);
        assert_eq!(
            (outcome.taken, outcome.remaining, outcome.retry),
            (*taken, *remaining, *retry),
            "{limit:?}, row {index}"
        );
    }
}

#[test]
fn fixed_window_starts_again_with_each_window() {
    check(
        fixed(3, 60_000),
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
        sliding(4, 60_000),
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
fn sliding_buckets_forget_a_sub_window_at_a_time() {
    check(
        valid(Limit::sliding_buckets(4, 60_000, 4)),
        &[
            (14_999, 3, 3, 1, Retry::Now),
            (15_000, 1, 1, 0, Retry::Now),
            // What was taken in the first sub-window counts until the window behind it has passed whole.
            (59_999, 1, 0, 0, Retry::After(15_001)),
            (74_999, 3, 0, 0, Retry::After(1)),
            (75_000, 3, 3, 0, Retry::Now),
            (75_000, 1, 0, 0, Retry::After(15_000)),
            (90_000, 1, 1, 0, Retry::Now),
            (400_000, 4, 4, 0, Retry::Now),
        ],
    );
}

#[test]
fn sliding_log_forgets_each_at_its_time() {
    check(
        valid(Limit::sliding_log(3, 60_000)),
        &[
            (0, 1, 1, 2, Retry::Now),
            (10_000, 2, 2, 0, Retry::Now),
            (10_000, 1, 0, 0, Retry::After(50_000)),
            (10_000, 2, 0, 0, Retry::After(60_000)),
            (59_999, 1, 0, 0, Retry::After(1)),
            (60_000, 1, 1, 0, Retry::Now),
            (70_000, 2, 2, 0, Retry::Now),
        ],
    );
}

#[test]
fn token_bucket_refills_steadily() {
    // Three a minute is one each twenty seconds.
    check(
        valid(Limit::token_bucket(3, 60_000, 2, 0)),
        &[
            (0, 2, 2, 0, Retry::Now),
            (0, 1, 0, 0, Retry::After(20_000)),
            (0, 2, 0, 0, Retry::After(40_000)),
            (0, 3, 0, 0, Retry::Never),
            (19_999, 1, 0, 0, Retry::After(1)),
            (20_000, 1, 1, 0, Retry::Now),
            (600_000, 2, 2, 0, Retry::Now),
        ],
    );
    // Seven a second: 142.857 ms each, and none is lost to rounding.
    let mut counter = Counter::new(valid(Limit::token_bucket(7, 1_000, 1, 0)));
    let admitted = (0..10_000).filter(|ms| !counter.all(T0 + ms, 1).is_refused()).count();
    assert_eq!(admitted, 70);
}

#[test]
fn calendar_windows_end_with_the_day_and_the_month_in_utc() {
    const DAY: u64 = 86_400_000;
    let last_of_february_2024 = 19_782 * DAY;
    let mut day = Counter::new(valid(Limit::fixed_window(1, Window::Day)));
    day.shift = 12_345_678;
    assert_eq!(day.all(last_of_february_2024 + 1, 1).reset_ms, DAY - 1, "and no shift moves it");
    let mut month = Counter::new(valid(Limit::fixed_window(1, Window::Month)));
    month.shift = 12_345_678;
    assert_eq!(month.all(last_of_february_2024 - DAY, 1).reset_ms, 2 * DAY, "2024 is a leap year");
    assert!(month.all(last_of_february_2024 + DAY - 1, 1).is_refused());
    let march = month.all(last_of_february_2024 + DAY, 1);
    assert_eq!((march.taken, march.reset_ms), (1, 31 * DAY));
}

#[test]
fn every_month_until_2106_begins_where_the_calendar_says() {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut day = 0_u64;
    let limit = valid(Limit::fixed_window(5, Window::Month));
    for year in 1970..2106 {
        for month in 0..12 {
            let february = if is_leap(year) { 29 } else { 28 };
            let days = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month];
            for (at_ms, left_ms) in [(0, days * 86_400_000), (days * 86_400_000 - 1, 1)] {
                let outcome = Counter::new(limit).all(day * 86_400_000 + at_ms, 1);
                assert_eq!(outcome.reset_ms, left_ms, "{year}-{}", month + 1);
                assert_eq!(outcome.receipt, (year - 1970) * 12 + u64::try_from(month).expect("small"));
            }
            day += days;
        }
    }
}

#[test]
fn a_cost_above_the_limit_is_refused_for_good_and_charges_nothing() {
    for limit in every_algorithm(3, 60_000) {
        let mut counter = Counter::new(limit);
        for cost in [4, u64::MAX] {
            let outcome = counter.all(T0, cost);
            assert_eq!((outcome.taken, outcome.remaining, outcome.retry), (0, 3, Retry::Never), "{limit:?}");
        }
        assert_eq!(counter.all(T0, 3).taken, 3, "{limit:?}");
    }
}

#[test]
fn a_limit_of_zero_lets_nothing_pass() {
    for limit in every_algorithm(0, 60_000) {
        let mut counter = Counter::new(limit);
        assert_eq!(counter.all(T0, 1).retry, Retry::Never, "{limit:?}");
        let outcome = counter.take(T0, Take::some(amount(5)));
        assert_eq!((outcome.taken, outcome.remaining, outcome.retry), (0, 0, Retry::Never), "{limit:?}");
    }
}

#[test]
fn some_takes_what_there_is() {
    for limit in every_algorithm(10, 60_000) {
        let mut counter = Counter::new(limit);
        counter.all(T0, 7);
        let rest = counter.take(T0, Take::some(amount(5)));
        assert!(rest.taken <= 3, "{limit:?}");
        let empty = loop {
            let outcome = counter.take(T0, Take::some(amount(5)));
            if outcome.taken == 0 {
                break outcome;
            }
        };
        assert!(empty.is_refused(), "{limit:?}");
        // It promises one, not five: that is the soonest at which it gets anything.
        let Retry::After(wait_ms) = empty.retry else { panic!("{empty:?}") };
        assert!(counter.clone().take(T0 + wait_ms - 1, Take::some(amount(5))).taken == 0, "{limit:?}");
        assert!(counter.take(T0 + wait_ms, Take::some(amount(5))).taken >= 1, "{limit:?}");
    }
}

#[test]
fn force_goes_into_debt_which_is_paid_back() {
    let after = |limit: Limit, forced: u64, asked: u64| {
        let mut counter = Counter::new(limit);
        assert_eq!(counter.take(T0, Take::force(amount(forced))).taken, forced);
        counter.all(T0, asked).retry
    };
    assert_eq!(after(fixed(10, 60_000), 25, 1), Retry::After(60_000), "a fixed window forgives at its end");
    assert_eq!(after(sliding(10, 60_000), 20, 10), Retry::After(120_000));
    assert_eq!(after(sliding(10, 60_000), 20, 1), Retry::After(60_000 + 33_000 + 1), "nine of twenty");
    let buckets = valid(Limit::sliding_buckets(10, 60_000, 4));
    assert_eq!(after(buckets, 25, 1), Retry::After(75_000));
    assert_eq!(after(valid(Limit::sliding_log(10, 60_000)), 25, 1), Retry::After(60_000));
    // Ten a minute: 25 taken of 10 is 15 short, and one more must be there.
    assert_eq!(after(valid(Limit::token_bucket(10, 60_000, 10, 0)), 25, 1), Retry::After(16 * 6_000));
}

#[test]
fn a_refund_goes_to_the_window_it_was_taken_from() {
    for limit in every_algorithm(10, 60_000) {
        let mut counter = Counter::new(limit);
        counter.all(T0, 1);
        let before = counter.used(T0);
        let taken = counter.all(T0, 4);
        counter.refund(T0, &taken);
        let surcharge = counter.used(T0) - before;
        assert!(surcharge <= 8, "{limit:?}: {surcharge}");
        if !matches!(counter.state, Some(State::TokenBucket(bucket)) if bucket.cold.is_some()) {
            assert_eq!(surcharge, 0, "{limit:?}: all of it is back");
        }
        let old = counter.all(T0 + 1_000_000, 5);
        let much_later = T0 + 4_000_000;
        counter.all(much_later, 2);
        let before = counter.used(much_later);
        counter.refund(much_later, &old);
        assert_eq!(counter.used(much_later), before, "{limit:?}: that window is gone");
    }
    let mut sliding = Counter::new(sliding(10, 60_000));
    let taken = sliding.all(T0, 10);
    sliding.all(T0 + 60_000, 1);
    sliding.refund(T0 + 60_000, &taken);
    assert_eq!(sliding.all(T0 + 60_000, 1).remaining, 9, "the previous window is lighter by the refund");
}

#[test]
fn a_bucket_refunds_only_what_is_not_refilled_yet() {
    // One token each second.
    let mut counter = Counter::new(valid(Limit::token_bucket(10, 10_000, 10, 0)));
    let first = counter.all(T0, 4);
    assert_eq!(counter.all(T0 + 3_000, 5).remaining, 4, "three of four are back, five are taken");
    counter.refund(T0 + 3_000, &first);
    assert_eq!(counter.used(T0 + 3_000), 5, "one of the four was still out");
}

#[test]
fn a_bucket_that_is_never_refilled_gives_back_what_was_reported() {
    let mut counter = Counter::new(valid(Limit::token_bucket(0, 1_000, 0, 0)));
    let reported = counter.take(T0, Take::force(amount(3)));
    assert_eq!(counter.used(T0), 3);
    counter.refund(T0 + 5_000, &reported);
    assert_eq!(counter.used(T0 + 5_000), 0);
}

#[test]
fn a_denied_attempt_that_is_charged_keeps_out_who_never_pauses() {
    for limit in every_algorithm(10, 60_000) {
        if limit.algorithm() == tidegate_core::Algorithm::FixedWindow {
            // A fixed window forgives everything at its end, denied attempts too.
            continue;
        }
        let mut counter = Counter::new(limit);
        let mut now_ms = T0;
        let mut admitted = 0;
        for _ in 0..5_000 {
            let outcome = counter.all(now_ms, 1);
            admitted += outcome.taken;
            if outcome.is_refused() {
                let state = limit.charge_denied(counter.state.take(), super::at(now_ms), amount(1));
                counter.state = Some(state);
            }
            now_ms += 1_000;
        }
        assert!(admitted <= 12, "{limit:?} admitted {admitted} in more than an hour");
        now_ms += 3 * 60_000;
        assert!(!counter.all(now_ms, 1).is_refused(), "{limit:?}: who pauses is let in");
    }
}

#[test]
fn a_clock_that_steps_back_a_little_stands_still() {
    for limit in every_algorithm(3, 60_000) {
        for back_ms in [1, 30_000, 60_000] {
            let mut counter = Counter::new(limit);
            while !counter.all(T0, 1).is_refused() {}
            let Retry::After(wait_ms) = counter.all(T0 - back_ms, 1).retry else {
                panic!("{limit:?}: {back_ms} ms back")
            };
            let then_ms = T0 - back_ms + wait_ms;
            assert!(counter.clone().all(then_ms - 1, 1).is_refused(), "{limit:?}, {back_ms} ms back");
            assert!(!counter.all(then_ms, 1).is_refused(), "{limit:?}: retry-after holds across the step");
        }
    }
}

#[test]
fn a_clock_that_steps_back_by_more_starts_afresh() {
    for limit in every_algorithm(3, 60_000) {
        for back_ms in [150_000, 86_400_000, 10 * YEAR_MS] {
            let mut counter = Counter::new(limit);
            while !counter.all(T0, 1).is_refused() {}
            assert!(!counter.all(T0 - back_ms, 1).is_refused(), "{limit:?}, {back_ms} ms back");
        }
    }
}

#[test]
fn a_clock_that_jumps_by_years_starts_afresh() {
    for limit in every_algorithm(3, 60_000) {
        for ahead_ms in [1_200_000, 30 * YEAR_MS, 500 * YEAR_MS, u64::MAX - T0] {
            let mut counter = Counter::new(limit);
            while !counter.all(T0, 1).is_refused() {}
            let then_ms = T0 + ahead_ms;
            assert_eq!(counter.used(then_ms), 0, "{limit:?}, {ahead_ms} ms ahead");
            let mut admitted = 0;
            while !counter.all(then_ms, 1).is_refused() {
                admitted += 1;
            }
            assert!((1..=3).contains(&admitted), "{limit:?}: and limits there");
        }
    }
}

#[test]
fn counts_saturate_at_their_maxima() {
    let month = WINDOW_MS_MAX / 60 * 60;
    let bucket_max = valid(Limit::token_bucket(REQUESTS_MAX, 60_000, (1 << 52) / 60_000, 0));
    let limits = [
        fixed(REQUESTS_MAX, WINDOW_MS_MAX),
        sliding(REQUESTS_MAX, WINDOW_MS_MAX),
        valid(Limit::sliding_buckets(REQUESTS_MAX, month, BUCKETS_MAX)),
        valid(Limit::sliding_log(LOG_REQUESTS_MAX, WINDOW_MS_MAX)),
        bucket_max,
    ];
    for limit in limits {
        let mut counter = Counter::new(limit);
        for _ in 0..3 {
            counter.take(T0, Take::force(amount(u64::MAX)));
        }
        assert!(counter.used(T0) >= limit.capacity().min(REQUESTS_MAX), "{limit:?}");
        assert!(counter.all(T0, 1).is_refused(), "{limit:?}");
        let next = counter.all(u64::MAX, limit.capacity());
        assert_eq!((next.taken, next.remaining), (limit.capacity(), 0), "{limit:?}");
    }
}

#[test]
fn the_largest_numbers_keep_retry_after_exact() {
    let mut counter = Counter::new(sliding(REQUESTS_MAX, WINDOW_MS_MAX));
    counter.all(0, REQUESTS_MAX);
    let Retry::After(wait_ms) = counter.all(1, 1).retry else { panic!("not refused") };
    assert!(counter.all(wait_ms, 1).is_refused());
    assert!(!counter.all(1 + wait_ms, 1).is_refused());
}

#[test]
fn a_changed_limit_applies_to_the_same_counts() {
    let pairs = every_algorithm(10, 60_000).into_iter().zip(every_algorithm(8, 60_000));
    for ((before, after), below) in pairs.zip(every_algorithm(2, 60_000)).take(5) {
        let mut counter = Counter::new(before);
        counter.all(T0, 6);
        counter.limit = after;
        assert_eq!(counter.all(T0, 1).remaining, 1, "{after:?}: raised or lowered, six are counted");
        counter.limit = below;
        let outcome = counter.all(T0, 1);
        assert_eq!((outcome.taken, outcome.remaining), (0, 0), "{below:?}: lowered below the count");
    }
}

#[test]
fn a_state_of_another_algorithm_is_fresh() {
    for one in every_algorithm(3, 60_000).iter().take(5) {
        for other in every_algorithm(3, 60_000).iter().take(5) {
            let mut counter = Counter::new(*one);
            counter.all(T0, 3);
            counter.limit = *other;
            assert_eq!(counter.all(T0, 1).is_refused(), one == other, "{one:?} as {other:?}");
        }
    }
}

#[test]
fn the_shift_moves_the_window_and_nothing_else() {
    let mut counter = Counter::new(fixed(1, 60_000));
    counter.shift = 7 * 60_000 + 20_000;
    assert_eq!(counter.all(T0, 1).reset_ms, 40_000, "T0 is 20 s into the shifted window");
    assert!(counter.all(T0 + 39_999, 1).is_refused());
    assert!(!counter.all(T0 + 40_000, 1).is_refused());
}

#[test]
fn reset_says_when_the_whole_limit_is_free_again() {
    let mut fixed = Counter::new(fixed(5, 60_000));
    assert_eq!(fixed.all(T0 + 10_000, 1).reset_ms, 50_000);
    let mut sliding = Counter::new(sliding(5, 60_000));
    assert_eq!(sliding.all(T0 + 10_000, 5).reset_ms, 110_000);
    assert_eq!(sliding.all(T0 + 60_000, 1).reset_ms, 60_000, "only the previous window still counts");
    assert_eq!(sliding.all(T0 + 120_000, 6).reset_ms, 0, "nothing is used, and nothing was taken");
    for limit in every_algorithm(5, 60_000) {
        let mut counter = Counter::new(limit);
        assert_eq!(counter.all(T0, 9).reset_ms, 0, "{limit:?}");
        let reset_ms = counter.all(T0, 3).reset_ms;
        assert!(counter.used(T0 + reset_ms - 1) > 0, "{limit:?}");
        assert_eq!(counter.used(T0 + reset_ms), 0, "{limit:?}");
    }
}

#[test]
fn bounds_are_refused_with_their_numbers() {
    use LimitError as E;
    let fixed = |requests, window_ms| Limit::fixed_window(requests, Window::Ms(window_ms));
    assert!(fixed(REQUESTS_MAX, WINDOW_MS_MAX).is_ok());
    assert!(fixed(0, WINDOW_MS_MIN).is_ok());
    let over = REQUESTS_MAX + 1;
    assert_eq!(fixed(over, 1_000), Err(E::TooManyRequests { requests: over, max: REQUESTS_MAX }));
    assert_eq!(fixed(1, 999), Err(E::WindowTooShort { window_ms: 999, min: 1_000 }));
    let long = WINDOW_MS_MAX + 1;
    assert_eq!(fixed(1, long), Err(E::WindowTooLong { window_ms: long, max: WINDOW_MS_MAX }));
    let buckets = Limit::sliding_buckets;
    assert!(buckets(1, 60_000, 60).is_ok());
    assert_eq!(buckets(1, 60_000, 0), Err(E::Buckets { buckets: 0, max: 60 }));
    assert_eq!(buckets(1, 60_000, 61), Err(E::Buckets { buckets: 61, max: 60 }));
    assert_eq!(buckets(1, 60_000, 7), Err(E::BucketsDoNotFit { buckets: 7, window_ms: 60_000 }));
    assert_eq!(buckets(1, 30_000, 60), Err(E::BucketsDoNotFit { buckets: 60, window_ms: 30_000 }));
    assert!(Limit::sliding_log(1_000, WINDOW_MS_MAX).is_ok());
    assert_eq!(Limit::sliding_log(1_001, 1_000), Err(E::TooManyToLog { requests: 1_001, max: 1_000 }));
    let bucket = Limit::token_bucket;
    assert_eq!(bucket(0, 1_000, 5, 0), Err(E::BurstWithoutRate { requests: 0, burst: 5 }));
    assert_eq!(bucket(5, 1_000, 0, 0), Err(E::BurstWithoutRate { requests: 5, burst: 0 }));
    let most = (1 << 52) / 60_000;
    assert!(bucket(5, 60_000, most, 0).is_ok());
    assert_eq!(bucket(5, 60_000, most + 1, 0), Err(E::BurstTooLarge { burst: most + 1, max: most }));
    let most = ((1 << 34) - 1) / 1_000;
    assert!(bucket(1_000, 1_000, most, most).is_ok());
    assert_eq!(bucket(1_000, 1_000, most + 1, 1), Err(E::BurstTooLarge { burst: most + 1, max: most }));
    assert_eq!(bucket(1_000, 1_000, 1, most + 1), Err(E::WarmUpTooLong { warm_up_ms: most + 1, max: most }));
}
