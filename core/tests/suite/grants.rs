use super::{at, every_algorithm, fixed, valid};
use tidegate_core::{Algorithm, Grant, Limit, State, Take, Timestamp, Window};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const T0: u64 = 1_700_000_040_000;

fn grant(left: u64, until_ms: u64) -> Grant {
    Grant { left, until: Timestamp::from_ms(until_ms), window: 0 }
}

#[test]
fn a_grant_is_spent_until_nothing_is_left_or_its_time_is_over() {
    let now = Timestamp::from_ms(999);
    assert_eq!(grant(3, 1_000).spend(2, now), Some(grant(1, 1_000)));
    assert_eq!(grant(3, 1_000).spend(3, now), Some(grant(0, 1_000)));
    assert_eq!(grant(3, 1_000).spend(4, now), None);
    assert_eq!(grant(3, 1_000).spend(1, Timestamp::from_ms(1_000)), None, "its end is no part of it");
}

#[test]
fn two_grants_end_with_the_earlier_and_what_has_ended_is_not_carried_along() {
    let now = Timestamp::from_ms(500);
    assert_eq!(grant(3, 1_000).joined(grant(4, 900), now), grant(7, 900));
    assert_eq!(grant(3, 1_000).joined(grant(4, 2_000), now), grant(7, 1_000));
    assert_eq!(
        grant(0, 1_000).joined(grant(4, 2_000), now),
        grant(4, 2_000),
        "an empty one has no end to keep"
    );
    assert_eq!(grant(3, 500).joined(grant(4, 2_000), now), grant(4, 2_000));
}

#[test]
fn grants_of_one_window_last_as_long_as_the_later_and_those_of_two_do_not_mix() {
    let now = Timestamp::from_ms(500);
    let of = |window: u64, grant: Grant| Grant { window: Grant::window(window), ..grant };
    assert_eq!(of(7, grant(3, 400)).joined(of(7, grant(4, 900)), now), of(7, grant(7, 900)));
    assert_eq!(of(7, grant(3, 1_000)).joined(of(7, grant(4, 900)), now), of(7, grant(7, 1_000)));
    assert_eq!(of(7, grant(3, 1_000)).joined(of(8, grant(4, 900)), now), of(8, grant(4, 900)));
    assert_ne!(Grant::window(0), 0);
    assert_ne!(Grant::window(u64::from(u32::MAX)), Grant::window(u64::from(u32::MAX) + 1));
}

#[test]
fn only_the_grant_that_was_spent_from_gets_it_back() {
    assert_eq!(grant(3, 1_000).unspend(2, Timestamp::from_ms(1_000)), grant(5, 1_000));
    assert_eq!(grant(3, 1_000).unspend(2, Timestamp::from_ms(999)), grant(3, 1_000));
}

#[test]
fn a_grant_survives_the_trip() {
    let state = State::Grant(Grant { window: 0xff_fffe, ..grant(12_345, T0) });
    assert_eq!(State::from_bytes(state.kind(), &state.contents()), Ok(state));
}

/// A counter that meets a grant under its own name takes it for no state at all.
#[test]
fn a_grant_is_no_state_of_any_algorithm() {
    for limit in every_algorithm(10, 60_000) {
        let take = Take::all(super::amount(4));
        let (outcome, _) = limit.take(Some(State::Grant(grant(1, T0))), at(T0), take);
        assert_eq!(outcome, limit.take(None, at(T0), take).0);
    }
}

#[test]
fn the_window_of_a_receipt_ends_where_the_next_begins() {
    for limit in every_algorithm(10, 60_000) {
        let (outcome, state) = limit.take(None, at(T0 + 100), Take::all(super::amount(1)));
        let end = limit.window_end(outcome.receipt, at(T0 + 100));
        match limit.algorithm() {
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingBuckets { .. } => {
                let end = end.expect("it has windows");
                assert!(end.ms() > T0 + 100 && end.ms() <= T0 + 60_100);
                let before = Timestamp::from_ms(end.ms() - 1);
                let receipt = |now| {
                    limit
                        .take(
                            Some(state.clone()),
                            tidegate_core::Moment { now, shift: 0 },
                            Take::all(super::amount(1)),
                        )
                        .0
                        .receipt
                };
                assert_eq!(receipt(before), outcome.receipt);
                assert_eq!(receipt(end), outcome.receipt + 1);
            }
            Algorithm::SlidingLog | Algorithm::TokenBucket { .. } => assert_eq!(end, None),
        }
    }
    let month = valid(Limit::fixed_window(10, Window::Month));
    let (outcome, _) = month.take(None, at(T0), Take::all(super::amount(1)));
    assert_eq!(month.window_end(outcome.receipt, at(T0)).map(Timestamp::ms), Some(T0 + outcome.reset_ms));
}

#[test]
fn a_limit_is_raised_by_percents_and_divided_into_parts() {
    let requests = |limit: Limit| limit.requests();
    assert_eq!(requests(fixed(1_000, 60_000).raised(10)), 1_100);
    assert_eq!(requests(fixed(9, 60_000).raised(10)), 9, "rounded down");
    assert_eq!(requests(fixed(10, 60_000).divided(3)), 3);
    assert_eq!(requests(fixed(10, 60_000).divided(11)), 1);
    assert_eq!(requests(fixed(0, 60_000).divided(11)), 0, "a limit that nothing passes stays one");
    let bucket = valid(Limit::token_bucket(100, 1_000, 20, 0));
    assert_eq!(bucket.divided(4), valid(Limit::token_bucket(25, 1_000, 5, 0)));
    assert_eq!(bucket.raised(50), valid(Limit::token_bucket(150, 1_000, 30, 0)));
    let log = valid(Limit::sliding_log(1_000, 60_000));
    assert_eq!(log.raised(10), log, "what a limit cannot be it does not become");
}
