use super::{amount, at, every_algorithm, fixed, valid};
use proptest::prelude::*;
use tidegate_core::slot::{
    Contents, Displaced, ENTRIES, Entry, EntryId, LargeSlot, Load, Placed, Slot, SmallSlot,
};
use tidegate_core::{Limit, Moment, State, Take, Timestamp};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const T0: u64 = 1_700_000_040_000;
const LENIENT: bool = false;
const STRICT: bool = true;

fn per_minute() -> Limit {
    fixed(100, 60_000)
}

fn id(fingerprint: u64, rule_tag: u16, strict: bool) -> EntryId {
    EntryId { fingerprint: amount(fingerprint), rule_tag, strict }
}

fn used(limit: &Limit, used: u64, moment: Moment) -> State {
    limit.take(None, moment, Take::force(amount(used))).1
}

/// A client of a rule that has used so much of 100 a minute.
fn entry<C: Contents>(fingerprint: u64, rule_tag: u16, strict: bool, count: u64) -> Entry<C> {
    let limit = per_minute();
    new(id(fingerprint, rule_tag, strict), &limit, &used(&limit, count, at(T0)), at(T0))
}

fn new<C: Contents>(id: EntryId, limit: &Limit, state: &State, moment: Moment) -> Entry<C> {
    Entry::new(id, limit, state, moment).expect("it fits")
}

fn now() -> Timestamp {
    at(T0).now
}

/// A slot with one entry for each count, of the rule given with it.
fn filled(entries: &[(u16, bool, u64)]) -> SmallSlot {
    let mut slot = Slot::empty(7);
    for (fingerprint, (rule_tag, strict, count)) in (1..).zip(entries) {
        assert_eq!(slot.put(entry(fingerprint, *rule_tag, *strict, *count), now(), &[]), Placed::Free);
    }
    slot
}

#[test]
fn what_was_put_is_found_also_after_the_trip() {
    let slot = filled(&[(1, STRICT, 5), (2, LENIENT, 6)]);
    let again = SmallSlot::from_bytes(7, &slot.to_bytes()).expect("its own bytes");
    assert_eq!(again, slot);
    let limit = per_minute();
    assert_eq!(again.find(amount(2)), Some(Ok(used(&limit, 6, at(T0)))));
    assert_eq!(again.find(amount(3)), None);
    assert_eq!(again.living(now()), 2);
    assert_eq!(again.living(at(T0 + 60_000).now), 0);
}

#[test]
fn an_expired_entry_gives_way_first() {
    let mut slot = filled(&[(1, STRICT, 90); ENTRIES]);
    let later = at(T0 + 60_000);
    let limit = per_minute();
    let newcomer = new(id(99, 2, STRICT), &limit, &used(&limit, 1, later), later);
    assert_eq!(slot.put(newcomer, later.now, &[]), Placed::Free);
    assert_eq!(slot.displaced(later.now), None, "what had expired was not displaced");
}

#[test]
fn the_least_loaded_of_its_own_rule_goes() {
    let rules = [1, 1, 2, 2, 2, 2, 2, 1];
    let counts = [50, 40, 1, 2, 3, 4, 5, 60];
    let entries: Vec<_> = rules.into_iter().zip(counts).map(|(rule, count)| (rule, LENIENT, count)).collect();
    let mut slot = filled(&entries);
    assert_eq!(slot.put(entry(99, 1, LENIENT, 1), now(), &[]), Placed::EvictedOwn);
    assert_eq!(slot.find(amount(2)), None, "40 was the least of rule 1");
    assert!(slot.find(amount(3)).is_some(), "1 is less, but of another rule");
}

#[test]
fn a_rule_with_no_entry_here_displaces_one_of_the_largest() {
    let rules = [1, 1, 1, 2, 2, 2, 2, 3];
    let counts = [1, 1, 1, 9, 8, 7, 9, 1];
    let entries: Vec<_> = rules.into_iter().zip(counts).map(|(rule, count)| (rule, LENIENT, count)).collect();
    let mut slot = filled(&entries);
    assert_eq!(slot.put(entry(99, 4, LENIENT, 1), now(), &[]), Placed::EvictedForeign);
    assert_eq!(slot.find(amount(6)), None, "7 was the least of rule 2, which has the most entries");
    // Now it holds one: the next of its kind displaces that, and nobody else.
    let before = slot;
    assert_eq!(slot.put(entry(100, 4, LENIENT, 1), now(), &[]), Placed::EvictedOwn);
    assert_eq!(slot.find(amount(99)), None);
    for fingerprint in 1..=8 {
        assert_eq!(slot.find(amount(fingerprint)), before.find(amount(fingerprint)));
    }
}

#[test]
fn limits_of_one_key_do_not_displace_each_other() {
    let mut slot = filled(&[(1, LENIENT, 10); ENTRIES]);
    let siblings = [id(91, 2, LENIENT), id(92, 2, LENIENT), id(93, 2, LENIENT), id(94, 2, LENIENT)];
    for sibling in siblings {
        let placed = slot.put(entry(sibling.fingerprint.get(), 2, LENIENT, 1), now(), &siblings);
        assert_eq!(placed, Placed::EvictedForeign);
    }
    for sibling in siblings {
        assert!(slot.find(sibling.fingerprint).is_some());
    }
}

#[test]
fn a_displaced_strict_load_is_remembered_until_it_ends() {
    let mut slot = filled(&[(1, STRICT, 30); ENTRIES]);
    slot.put(entry(99, 1, STRICT, 1), now(), &[]);
    let displaced = slot.displaced(now()).expect("one was displaced");
    let limit = per_minute();
    let restart = displaced.load.state(&limit, at(T0)).expect("a load");
    assert!(limit.used(&restart, at(T0)) >= 30, "never less than what was displaced");
    assert!(limit.used(&restart, at(T0)) <= 31, "and hardly more");
    assert_eq!(displaced.until_s, u32::try_from(T0 / 1000 + 60).expect("fits"));
    assert!(slot.displaced(at(T0 + 59_999).now).is_some());
    assert_eq!(slot.displaced(at(T0 + 60_000).now), None);
}

#[test]
fn a_displaced_lenient_load_is_not_remembered() {
    let mut slot = filled(&[(1, LENIENT, 100); ENTRIES]);
    assert_eq!(slot.put(entry(99, 2, STRICT, 1), now(), &[]), Placed::EvictedForeign);
    assert_eq!(slot.displaced(now()), None, "an innocent strict newcomer must not inherit it");
}

#[test]
fn the_highest_displaced_load_and_the_latest_end_stand() {
    let mut slot = filled(&[(1, STRICT, 20); ENTRIES]);
    slot.put(entry(98, 1, STRICT, 90), now(), &[]);
    let first = slot.displaced(now()).expect("displaced");
    let hour = fixed(100, 3_600_000);
    let mut slot = filled(&[(1, STRICT, 90); ENTRIES]);
    slot.put(entry(98, 1, STRICT, 95), now(), &[]);
    let long = new(id(97, 3, STRICT), &hour, &used(&hour, 1, at(T0)), at(T0));
    slot.put(long, now(), &[]);
    slot.put(entry(96, 3, STRICT, 1), now(), &[]);
    let Displaced { load, until_s } = slot.displaced(now()).expect("displaced");
    assert!(load > first.load, "90 outweighs 1 and 20");
    assert_eq!(
        until_s,
        hour.expires(&used(&hour, 1, at(T0)), at(T0)).s_ceil(),
        "the hour outlasts the minute"
    );
}

#[test]
fn a_load_is_never_less_than_the_truth() {
    for requests in [1, 2, 3, 10, 127, 128, 1_000] {
        for limit in
            every_algorithm(requests, 60_000).into_iter().filter(|limit| limit.capacity() == requests)
        {
            for count in
                [1, requests / 3, requests / 2, requests - 1, requests].into_iter().filter(|n| *n > 0)
            {
                let state = used(&limit, count, at(T0));
                let truth = limit.used(&state, at(T0));
                let load = Load::of(&limit, &state, at(T0));
                let restart = load.state(&limit, at(T0)).expect("a load above zero");
                let restarted = limit.used(&restart, at(T0));
                assert!(restarted >= truth.min(requests), "{limit:?}, {count}: {restarted} of {truth}");
            }
        }
    }
}

#[test]
fn a_large_slot_keeps_states_of_any_size() {
    let limits = every_algorithm(1_000, 60_000);
    let mut slot = LargeSlot::empty(3);
    let mut states = Vec::new();
    for (fingerprint, limit) in (1..).zip(&limits) {
        let mut state = None;
        for step in 0..300 {
            state = Some(limit.take(state, at(T0 + step * 7), Take::all(amount(1))).1);
        }
        let state = state.expect("taken");
        let moment = at(T0 + 3_000);
        assert_eq!(
            slot.put(new(id(fingerprint, 1, STRICT), limit, &state, moment), moment.now, &[]),
            Placed::Free
        );
        states.push(state);
    }
    let again = LargeSlot::from_bytes(3, &slot.to_bytes()).expect("its own bytes");
    for (fingerprint, state) in (1..).zip(states) {
        assert_eq!(again.find(amount(fingerprint)), Some(Ok(state)));
    }
    for cut in 0..slot.to_bytes().len() {
        assert!(LargeSlot::from_bytes(3, &slot.to_bytes()[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_large_state_does_not_fit_a_small_slot() {
    let limit = valid(Limit::sliding_log(5, 60_000));
    let state = used(&limit, 1, at(T0));
    assert!(Entry::<[u8; 14]>::new(id(1, 1, STRICT), &limit, &state, at(T0)).is_none());
}

#[test]
fn the_largest_log_fits_a_large_slot() {
    let limit = valid(Limit::sliding_log(1_000, 1 << 36));
    let mut state = None;
    for step in 0..1_000 {
        state = Some(limit.take(state, at(T0 + step * 60_000_000), Take::all(amount(1))).1);
    }
    let state = state.expect("taken");
    assert!(state.contents().len() < 8_000, "{}", state.contents().len());
    assert!(Entry::<Vec<u8>>::new(id(1, 1, STRICT), &limit, &state, at(T0)).is_some());
}

proptest! {
    /// However strict keys come and go, a key that comes back after its displacement is never short.
    #[test]
    fn strict_is_never_over(history in prop::collection::vec((1_u64..40, 0_u64..400), 1..400)) {
        let limit = fixed(5, 10_000);
        let mut slot = SmallSlot::empty(0);
        let mut admitted = std::collections::HashMap::new();
        let mut now_ms = T0;
        for (key, step_ms) in history {
            now_ms += step_ms;
            let moment = at(now_ms);
            let state = match slot.find(amount(key)) {
                Some(found) => found.ok(),
                None => slot.displaced(moment.now).and_then(|gone| gone.load.state(&limit, moment)),
            };
            let (outcome, state) = limit.take(state, moment, Take::all(amount(1)));
            if outcome.is_refused() {
                continue;
            }
            slot.put(new(id(key, 1, STRICT), &limit, &state, moment), moment.now, &[]);
            let count = admitted.entry((key, now_ms / 10_000)).or_insert(0);
            *count += 1;
            prop_assert!(*count <= 5, "key {} got {}", key, count);
        }
    }
}
