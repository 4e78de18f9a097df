//! Other VMs that get in between.

use crate::mock::{Call, Fault, MockHost, overwrite};
use std::cell::Cell;
use std::rc::Rc;
use tidegate_filter::{Status, Verdict};

const ONE: &str =
    r#"{ "rules": [{ "name": "api", "key": [{ "header": "x-api-key" }], "limits": ["3/1h"] }] }"#;

/// Before each of the next `times` writes of a slot, another VM charges the same key once.
fn interleave(host: &MockHost, config: &'static str, times: usize) -> Rc<Cell<usize>> {
    let other = host.sibling(config);
    let mut engine = other.engine();
    let left = Rc::new(Cell::new(times));
    let counted = Rc::clone(&left);
    *host.before_set.borrow_mut() = Some(Box::new(move |_, _| {
        if counted.get() > 0 {
            counted.set(counted.get() - 1);
            other.admits(&mut engine, "ana");
        }
    }));
    left
}

#[test]
fn a_lost_race_is_decided_again() {
    let host = MockHost::new(ONE);
    let mut engine = host.engine();
    assert!(host.admits(&mut engine, "ana"));
    interleave(&host, ONE, 1);
    assert!(host.admits(&mut engine, "ana"), "the other took the second, this is the third");
    assert!(!host.admits(&mut engine, "ana"));
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_cas_retries"), 1);
    assert_eq!(host.metric("tidegate_cas_give_ups"), 0);
}

#[test]
fn who_loses_the_last_one_is_denied() {
    let host = MockHost::new(ONE);
    let mut engine = host.engine();
    assert_eq!(host.admitted(&mut engine, "ana", 2), 2);
    interleave(&host, ONE, 1);
    assert!(!host.admits(&mut engine, "ana"), "the other took the last");
}

const TWO: &str = r#"{ "rules": [
    { "name": "first", "key": [{ "header": "x-api-key" }], "limits": ["9/1h"] },
    { "name": "second", "key": [{ "header": "x-api-key" }], "limits": ["9/1h"] } ] }"#;

/// How much of each rule's nine is left.
fn left(host: &MockHost) -> (usize, usize) {
    let left = |name: &str| {
        let rule =
            format!(r#"{{ "name": "{name}", "key": [{{ "header": "x-api-key" }}], "limits": ["9/1h"] }}"#);
        let host = host.sibling(&format!(r#"{{ "rules": [{rule}] }}"#));
        let data = host.data.borrow().clone();
        let admitted = host.admitted(&mut host.engine(), "ana", 20);
        *host.data.borrow_mut() = data;
        admitted
    };
    (left("first"), left("second"))
}

#[test]
fn what_was_written_is_undone_when_a_later_rule_loses() {
    let host = MockHost::new(TWO);
    let mut engine = host.engine();
    host.bring(&[("x-api-key", b"ana")]);
    assert_eq!(host.admitted(&mut engine, "ana", 4), 4);
    assert_eq!(left(&host), (5, 5));
    // Before the second slot is written, another VM uses up whatever that slot's rule has left.
    let others: Vec<_> = ["first", "second"]
        .iter()
        .map(|name| {
            let rule = format!(
                r#"{{ "name": "{name}", "key": [{{ "header": "x-api-key" }}], "limits": ["9/1h"] }}"#
            );
            let other = host.sibling(&format!(r#"{{ "rules": [{rule}] }}"#));
            let engine = other.engine();
            (other, engine)
        })
        .collect();
    let mut others = others;
    let writes = Rc::new(Cell::new(0));
    let counted = Rc::clone(&writes);
    *host.before_set.borrow_mut() = Some(Box::new(move |data, key| {
        counted.set(counted.get() + 1);
        if counted.get() != 2 {
            return;
        }
        for (other, engine) in &mut others {
            let before = data.borrow().clone();
            other.admitted(engine, "ana", 20);
            let touched = data.borrow().get(key) != before.get(key);
            if !touched {
                *data.borrow_mut() = before;
            }
        }
    }));
    assert!(!host.admits(&mut engine, "ana"));
    *host.before_set.borrow_mut() = None;
    assert!(writes.get() >= 3, "two charges and an undo, {} writes", writes.get());
    let left = left(&host);
    assert!(left == (5, 0) || left == (0, 5), "the rule that was charged first has its own back: {left:?}");
}

#[test]
fn a_charge_that_cannot_be_made_is_owed_and_paid() {
    let host = MockHost::new(ONE);
    let mut engine = host.engine();
    host.fault.set(Some(Fault { call: Call::Set, status: Status::CasMismatch, after: 0, times: 32 }));
    assert!(host.admits(&mut engine, "ana"), "decided on the last state read");
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_cas_give_ups"), 1);
    assert_eq!(host.metric("tidegate_cas_retries"), 32);
    let sibling = host.sibling(ONE);
    assert_eq!(sibling.admitted(&mut sibling.engine(), "ana", 9), 2, "the tick has paid");
}

#[test]
fn a_debt_is_paid_with_the_keys_next_charge() {
    let host = MockHost::new(ONE);
    let mut engine = host.engine();
    host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: 1 }));
    assert!(host.admits(&mut engine, "ana"));
    assert_eq!(host.admitted(&mut engine, "ana", 9), 2, "three in all, no tick in between");
    engine.on_tick(&host);
    let sibling = host.sibling(ONE);
    assert_eq!(sibling.admitted(&mut sibling.engine(), "ana", 9), 0, "and everybody knows");
    assert_eq!(host.metric("tidegate_errors"), 1);
}

#[test]
fn a_debt_ends_with_its_window() {
    let host = MockHost::new(ONE);
    let mut engine = host.engine();
    host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: 1 }));
    assert!(host.admits(&mut engine, "ana"));
    host.advance(3 * 3_600_000);
    assert_eq!(host.admitted(&mut engine, "ana", 9), 3);
}

/// Found by the simulation: a debt was charged to a rule's short windows for as long as its longest lasts.
#[test]
fn a_debt_ends_in_each_limit_with_its_own_window() {
    const BOTH: &str = r#"{ "rules": [{ "name": "both", "key": [{ "header": "x-api-key" }], "limits": [
        { "requests": 2, "per": "1s", "algorithm": "fixed_window", "align": "clock" },
        { "requests": 9, "per": "1h", "algorithm": "fixed_window", "align": "clock" }] }] }"#;
    let host = MockHost::new(BOTH);
    let mut engine = host.engine();
    host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: 2 }));
    assert_eq!(host.admitted(&mut engine, "ana", 2), 2, "both are owed");
    assert_eq!(host.admitted(&mut engine, "ana", 1), 0, "and count at once");
    host.advance(1_000);
    assert_eq!(host.admitted(&mut engine, "ana", 9), 2, "the second at hand is free of them");
    for _ in 0..2 {
        host.advance(1_000);
        assert_eq!(host.admitted(&mut engine, "ana", 9), 2);
    }
    host.advance(1_000);
    assert_eq!(host.admitted(&mut engine, "ana", 9), 1, "the hour has all nine");
    host.advance(3_600_000);
    host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: 2 }));
    assert_eq!(host.admitted(&mut engine, "ana", 2), 2);
    host.advance(1_000);
    engine.on_tick(&host);
    let sibling = host.sibling(BOTH);
    sibling.now_ms.set(host.now_ms.get());
    let mut other = sibling.engine();
    assert_eq!(sibling.admitted(&mut other, "ana", 9), 2, "a tick pays the hour and not the second");
    for _ in 0..3 {
        sibling.advance(1_000);
        sibling.admitted(&mut other, "ana", 9);
    }
    sibling.advance(1_000);
    assert_eq!(sibling.admitted(&mut other, "ana", 9), 0, "2 by the tick, 7 since");
}

#[test]
fn debts_are_bounded_and_what_is_dropped_is_counted() {
    let host = MockHost::new(ONE);
    let mut engine = host.engine();
    host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: usize::MAX }));
    for key in 0..1_100 {
        assert!(host.admits(&mut engine, &key.to_string()));
    }
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_debt_dropped"), 1_100 - 1_024);
}

#[test]
fn nothing_is_lost_between_many_vms() {
    let host = MockHost::new(ONE);
    let mut vms: Vec<_> = (0..4)
        .map(|_| {
            let vm = host.sibling(ONE);
            let engine = vm.engine();
            (vm, engine)
        })
        .collect();
    for key in ["ana", "ben", "cleo"] {
        let admitted: usize = vms.iter_mut().map(|(vm, engine)| vm.admitted(engine, key, 2)).sum();
        assert_eq!(admitted, 3, "{key}");
    }
}

#[test]
fn a_slot_that_is_overwritten_with_nonsense_starts_afresh_and_is_counted() {
    let host = MockHost::new(ONE);
    let mut engine = host.engine();
    assert!(host.admits(&mut engine, "ana"));
    let keys: Vec<Vec<u8>> =
        host.data.borrow().keys().filter(|key| !key.ends_with(b"marker")).cloned().collect();
    for key in keys {
        overwrite(&host.data, &key, b"nonsense");
    }
    host.bring(&[("x-api-key", b"ana")]);
    assert!(matches!(engine.on_request(&host, 1), Verdict::Continue(_)));
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_bad_states"), 1);
}

/// Found by the simulation: only slots that a request was judged on were counted.
#[test]
fn nonsense_that_is_met_while_a_debt_is_paid_is_counted_too() {
    let host = MockHost::new(ONE);
    let mut engine = host.engine();
    host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: 1 }));
    assert!(host.admits(&mut engine, "ana"));
    let slots: Vec<Vec<u8>> =
        host.data.borrow().keys().filter(|key| !key.ends_with(b"marker")).cloned().collect();
    for key in slots {
        overwrite(&host.data, &key, b"nonsense");
    }
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_bad_states"), 1);
    assert_eq!(host.admitted(&mut engine, "ana", 9), 2, "and the debt is paid");
}
