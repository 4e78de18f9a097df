//! What a VM keeps is bounded, and beyond a bound nothing is forgotten silently, starved or left to wait.

use super::{Came, Vm, config, counter, land, see_to};
use crate::mock::{Call, Fault};
use std::collections::BTreeSet;
use tidegate_filter::Status;

/// Keys that a VM reports about at once.
const REPORTS_MAX: usize = 4_096;
/// Requests that wait at once in one VM.
const WAITERS_MAX: usize = 1_024;

#[test]
fn reports_are_bounded_and_what_is_dropped_is_counted() {
    let mut vm = Vm::new(&config(r#"{ "mode": "sync" }"#, ""));
    for key in 0..REPORTS_MAX + 104 {
        assert!(matches!(vm.request(&format!("key-{key}")), Came::Through));
    }
    assert_eq!(vm.flushed("tidegate_reports_dropped"), 104);
}

#[test]
fn as_many_wait_as_are_allowed_and_the_next_is_decided_at_once() {
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "exact", "on_failure": "open" }"#, ""));
    let came: Vec<Came> = (0..1_200).map(|key| vm.request(&format!("key-{key}"))).collect();
    let waiting = came.iter().filter(|came| matches!(came, Came::Waits(..))).count();
    // One more is under way, and waits too.
    assert!((WAITERS_MAX..=WAITERS_MAX + 32).contains(&waiting), "{waiting}");
    assert!(came.iter().skip(waiting).all(|came| matches!(came, Came::Through)));
    counter.serve(&vm.host, &mut vm.engine);
    for came in &came {
        if let Came::Waits(stream, _) = came {
            assert!(vm.came_through(*stream), "{stream}");
        }
    }
}

/// With more keys than one call carries each has its turn: those with large hashes were never told.
#[test]
fn all_keys_are_reported_when_there_are_more_than_a_call_carries() {
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "sync", "sync_every": "100ms" }"#, ""));
    for _ in 0..5 {
        for key in 0..1_000 {
            vm.request(&format!("key-{key}"));
        }
        vm.tick(100, &mut counter);
    }
    assert_eq!(counter.states.len(), 1_000, "known after five intervals");
    assert_eq!(counter.senders.len(), 5, "one call in each");
}

#[test]
fn all_keys_get_grants_and_reports_go_beside_them() {
    let mut counter = counter();
    let synced = r#", { "name": "tenant", "key": ["client_ip"], "limits": ["100000/1h"], "global": { "mode": "sync" } }"#;
    let mut vm = Vm::new(&config(r#"{ "mode": "lease", "when_empty": "deny" }"#, synced));
    let ask = |vm: &mut Vm, key: usize| matches!(vm.request(&format!("key-{key}")), Came::Through);
    let mut granted = BTreeSet::new();
    for _ in 0..4 {
        granted.extend((0..600).filter(|key| ask(&mut vm, *key)));
        vm.tick(100, &mut counter);
    }
    assert_eq!(granted.len(), 600, "after three calls");
    assert!(counter.states.keys().any(|(rule, ..)| rule == "tenant"), "reported too");
}

/// Only as many as a call carries were decided about; the others waited for the next try.
#[test]
fn nobody_stays_in_the_queue_when_a_call_cannot_be_made() {
    let mut vm = Vm::new(&config(r#"{ "mode": "exact", "on_failure": "open" }"#, ""));
    let waiting: Vec<u32> = (0..100)
        .map(|key| match vm.request(&format!("key-{key}")) {
            Came::Waits(stream, _) => stream,
            Came::Through | Came::Denied => panic!("it waits"),
        })
        .collect();
    let (token, _, body) = vm.host.sent.borrow_mut().pop().expect("a call is under way");
    let fault = Fault { call: Call::Dispatch, status: Status::Other(10), after: 0, times: 1 };
    vm.host.fault.set(Some(fault));
    land(&vm.host, &mut vm.engine, token, "200", &counter().apply(&body).to_postcard());
    see_to(&vm.host, &mut vm.engine);
    assert!(waiting.iter().all(|stream| vm.came_through(*stream)));
}

/// A request that asks for many rules at once must not make a batch that the counter refuses for all.
#[test]
fn a_call_carries_no_more_than_the_counter_takes() {
    let four = r#""limits": ["9000/1s", "9000/1m", "9000/1h", "9000/1d"], "global": { "mode": "exact" }"#;
    let rule = |number| format!(r#", {{ "name": "r{number}", "key": ["client_ip"], {four} }}"#);
    let rules = (0..11).map(rule).collect::<Vec<_>>().concat();
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "exact", "on_failure": "closed" }"#, &rules));
    let waiting: Vec<u32> = (0..40)
        .filter_map(|key| match vm.request(&format!("key-{key}")) {
            Came::Waits(stream, _) => Some(stream),
            Came::Through | Came::Denied => None,
        })
        .collect();
    assert_eq!(waiting.len(), 40);
    // The counter of these tests reads batches with the bounds of the real one.
    counter.serve(&vm.host, &mut vm.engine);
    assert!(waiting.iter().all(|stream| vm.came_through(*stream)));
}

#[test]
fn ticks_come_faster_while_more_wait_than_one_callback_sees_to() {
    let mut vm = Vm::new(&config(r#"{ "mode": "exact", "on_failure": "open" }"#, ""));
    assert_eq!(vm.engine.new_tick_ms(), None);
    for key in 0..100 {
        assert!(matches!(vm.request(&format!("key-{key}")), Came::Waits(..)));
    }
    let (token, ..) = vm.host.sent.borrow_mut().pop().expect("a call is under way");
    assert!(vm.engine.on_answer(&vm.host, token, 0, 0));
    assert_eq!(vm.engine.new_tick_ms(), Some(4));
    assert_eq!(vm.engine.new_tick_ms(), None, "once");
    // Between two ticks of the usual length there is nothing else to do.
    vm.host.take_calls();
    for _ in 0..24 {
        vm.engine.on_tick(&vm.host);
    }
    assert_eq!(vm.host.take_calls(), []);
    vm.engine.on_tick(&vm.host);
    assert!(!vm.host.take_calls().is_empty(), "it has been 100 ms");
    see_to(&vm.host, &mut vm.engine);
    assert_eq!(vm.engine.new_tick_ms(), Some(100));
}

#[test]
fn what_was_taken_for_one_that_left_before_it_was_seen_to_goes_back() {
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "exact" }"#, ""));
    let Came::Waits(_, slip) = vm.request("ana") else { panic!("it waits") };
    let (token, _, body) = vm.host.sent.borrow_mut().pop().expect("a call is under way");
    let answer = counter.apply(&body).to_postcard();
    let headers = crate::mock::serialise(&[(":status", b"200")]);
    *vm.host.answer.borrow_mut() = (headers, answer.clone());
    assert!(vm.engine.on_answer(&vm.host, token, 1, answer.len()));
    assert_eq!(counter.used("api"), 1);
    slip.leave();
    see_to(&vm.host, &mut vm.engine);
    vm.tick(100, &mut counter);
    assert_eq!(counter.used("api"), 0);
    assert!(vm.host.sent.borrow().is_empty());
}
