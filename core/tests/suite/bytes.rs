use super::{BOTH, Counter, limit};
use proptest::prelude::*;
use tidegate_core::slot::{SLOT_BYTES, Slot};
use tidegate_core::{Moment, STATE_BYTES, State, StateBytes, Take, Timestamp};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

proptest! {
    #[test]
    fn a_state_survives_the_trip(takes in prop::collection::vec((0_u64..5_000, 1_u64..50), 1..20)) {
        for algorithm in BOTH {
            let mut counter = Counter::new(limit(algorithm, 1_000, 60_000));
            let mut now_ms = 1_700_000_000_000;
            for (step_ms, cost) in &takes {
                now_ms += step_ms * 10;
                counter.all(now_ms, *cost);
                let state = counter.state.expect("taken");
                prop_assert_eq!(State::from_bytes(&state.to_bytes()), Ok(state));
            }
        }
    }

    #[test]
    fn arbitrary_state_bytes_are_refused_or_harmless(
        kind in prop_oneof![Just(0x11_u8), Just(0x12), any::<u8>()],
        contents in any::<[u8; STATE_BYTES]>(),
        now_ms in any::<u64>(),
        shift in any::<u64>(),
        cost in 1_u64..,
    ) {
        if let Ok(state) = State::from_bytes(&StateBytes { kind, contents }) {
            prop_assert_eq!(state.to_bytes(), StateBytes { kind, contents }, "one form per state");
            let moment = Moment { now: Timestamp::from_ms(now_ms), shift };
            for algorithm in BOTH {
                let limit = limit(algorithm, 1_000, 60_000);
                for take in [Take::all, Take::some, Take::force] {
                    let (outcome, after) = limit.take(Some(state), moment, take(super::amount(cost)));
                    prop_assert!(outcome.remaining <= 1_000);
                    prop_assert_eq!(State::from_bytes(&after.to_bytes()), Ok(after));
                    limit.expires(after, moment);
                }
                let after = state.refund(outcome_window(now_ms), cost);
                prop_assert_eq!(State::from_bytes(&after.to_bytes()), Ok(after));
            }
        }
    }

    #[test]
    fn arbitrary_slot_bytes_are_refused_or_harmless(
        head in prop_oneof![Just(*b"TG\x01\x00"), any::<[u8; 4]>()],
        rest in prop::collection::vec(any::<u8>(), SLOT_BYTES - 4),
        cut in prop_oneof![3 => Just(SLOT_BYTES), 1 => 0..SLOT_BYTES],
    ) {
        let mut bytes = head.to_vec();
        bytes.extend(rest);
        let index = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if let Ok(slot) = Slot::from_bytes(index, &bytes[..cut]) {
            prop_assert_eq!(cut, SLOT_BYTES);
            prop_assert_eq!(Slot::from_bytes(index, &slot.to_bytes()), Ok(slot));
            prop_assert!(Slot::from_bytes(index.wrapping_add(1), &bytes).is_err(), "another slot's value");
        }
    }
}

fn outcome_window(now_ms: u64) -> u32 {
    u32::try_from(now_ms % 97).unwrap_or(0)
}

#[test]
fn another_version_is_refused() {
    let mut counter = Counter::new(limit(BOTH[0], 10, 60_000));
    counter.all(1_700_000_000_000, 1);
    let mut bytes = counter.state.expect("taken").to_bytes();
    bytes.kind ^= 0x30;
    assert!(State::from_bytes(&bytes).is_err());
}

#[test]
fn impossible_counts_and_stray_bytes_are_refused() {
    let contents = |count_high: u8, last: u8| {
        let mut contents = [0; STATE_BYTES];
        contents[8] = count_high;
        contents[STATE_BYTES - 1] = last;
        StateBytes { kind: 0x11, contents }
    };
    assert!(State::from_bytes(&contents(0x10, 0)).is_ok(), "2^36 is the most");
    assert!(State::from_bytes(&contents(0x11, 0)).is_err(), "more than 2^36");
    assert!(State::from_bytes(&contents(0, 1)).is_err(), "a byte that no fixed window has");
}
