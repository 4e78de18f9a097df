use super::{Counter, every_algorithm, fixed};
use proptest::prelude::*;
use tidegate_core::slot::{LargeSlot, SMALL_SLOT_BYTES, SmallSlot};
use tidegate_core::{BadState, Moment, SMALL_STATE_BYTES, State, Take, Timestamp};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn trip(state: &State) -> Result<State, BadState> {
    State::from_bytes(state.kind(), &state.contents())
}

proptest! {
    #[test]
    fn a_state_survives_the_trip(takes in prop::collection::vec((0_u64..5_000, 1_u64..50), 1..40)) {
        for limit in every_algorithm(1_000, 60_000) {
            let mut counter = Counter::new(limit);
            let mut now_ms = 1_700_000_000_000;
            for (step_ms, cost) in &takes {
                now_ms += step_ms * 10;
                counter.all(now_ms, *cost);
                let state = counter.state.as_ref().expect("taken");
                prop_assert_eq!(trip(state), Ok(state.clone()));
                prop_assert_eq!(state.small_contents().is_some(), limit.has_small_state());
                if let Some(small) = state.small_contents() {
                    prop_assert_eq!(small.to_vec(), state.contents());
                }
            }
        }
    }

    #[test]
    fn arbitrary_state_bytes_are_refused_or_harmless(
        kind in prop_oneof![4 => 0x11_u8..=0x17, 1 => any::<u8>()],
        contents in prop_oneof![
            any::<[u8; SMALL_STATE_BYTES]>().prop_map(|bytes| bytes.to_vec()),
            prop::collection::vec(any::<u8>(), 0..40),
            prop::collection::vec(0_u8..=0x90, 0..60),
        ],
        now_ms in any::<u64>(),
        shift in any::<u64>(),
        cost in 1_u64..,
        receipt in any::<u64>(),
    ) {
        if let Ok(state) = State::from_bytes(kind, &contents) {
            prop_assert_eq!((state.kind(), state.contents()), (kind, contents), "one form for each state");
            let moment = Moment { now: Timestamp::from_ms(now_ms), shift };
            for limit in every_algorithm(1_000, 60_000) {
                for take in [Take::all, Take::some, Take::force] {
                    let (outcome, after) = limit.take(Some(state.clone()), moment, take(super::amount(cost)));
                    prop_assert!(outcome.remaining <= 1_000);
                    prop_assert_eq!(trip(&after), Ok(after.clone()));
                    limit.expires(&after, moment);
                    limit.used(&after, moment);
                    let refunded = limit.refund(after.clone(), moment, receipt, cost);
                    prop_assert_eq!(trip(&refunded), Ok(refunded.clone()));
                    limit.charge_denied(Some(after), moment, super::amount(cost));
                }
            }
        }
    }

    #[test]
    fn arbitrary_slot_bytes_are_refused_or_harmless(
        head in prop_oneof![Just(*b"TG\x01\x00"), any::<[u8; 4]>()],
        rest in prop::collection::vec(any::<u8>(), SMALL_SLOT_BYTES - 4),
        cut in prop_oneof![3 => Just(SMALL_SLOT_BYTES), 1 => 0..SMALL_SLOT_BYTES],
    ) {
        let mut bytes = head.to_vec();
        bytes.extend(rest);
        let index = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if let Ok(slot) = SmallSlot::from_bytes(index, &bytes[..cut]) {
            prop_assert_eq!(cut, SMALL_SLOT_BYTES);
            prop_assert_eq!(SmallSlot::from_bytes(index, &slot.to_bytes()), Ok(slot));
            prop_assert!(SmallSlot::from_bytes(index.wrapping_add(1), &bytes).is_err(), "another slot's value");
        }
        if let Ok(slot) = LargeSlot::from_bytes(index, &bytes[..cut]) {
            prop_assert_eq!(LargeSlot::from_bytes(index, &slot.to_bytes()), Ok(slot));
        }
    }
}

#[test]
fn another_version_is_refused() {
    for limit in every_algorithm(10, 60_000) {
        let mut counter = Counter::new(limit);
        counter.all(1_700_000_000_000, 1);
        let state = counter.state.expect("taken");
        assert!(State::from_bytes(state.kind() ^ 0x30, &state.contents()).is_err(), "{limit:?}");
    }
}

#[test]
fn impossible_counts_and_stray_bytes_are_refused() {
    let read = |count_high: u8, last: u8| {
        let mut contents = [0; SMALL_STATE_BYTES];
        contents[8] = count_high;
        contents[SMALL_STATE_BYTES - 1] = last;
        State::from_bytes(0x11, &contents)
    };
    assert!(read(0x10, 0).is_ok(), "2^36 is the most");
    assert!(read(0x11, 0).is_err(), "more than 2^36");
    assert!(read(0, 1).is_err(), "a byte that no fixed window has");
    assert!(State::from_bytes(0x11, &[0; 13]).is_err(), "cut short");
    assert!(State::from_bytes(0x15, &[5, 1, 0]).is_err(), "buckets with a zero at the end");
    assert!(State::from_bytes(0x16, &[5, 1, 0, 1]).is_err(), "a log with two runs at one time");
    assert!(State::from_bytes(0x16, &[5, 0]).is_err(), "a log with nothing taken");
    assert!(State::from_bytes(0x16, &[0x85]).is_err(), "half a number");
    let limit = fixed(1, 60_000);
    assert!(limit.has_small_state());
}
