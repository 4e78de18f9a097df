use super::{Came, Vm, config, counter};
use crate::mock::{Call, Fault};
use tidegate_filter::Status;

fn sync() -> String {
    config(r#"{ "mode": "sync", "sync_every": "100ms" }"#, "")
}

#[test]
fn nobody_waits_and_what_was_admitted_is_reported_once() {
    let mut counter = counter();
    let mut vm = Vm::new(&sync());
    let through = (0..12).filter(|_| matches!(vm.request("ana"), Came::Through)).count();
    assert_eq!(through, 10, "its own takes count before anybody hears of them");
    assert!(vm.host.sent.borrow().is_empty(), "reports go from the tick");
    vm.tick(100, &mut counter);
    assert_eq!(counter.used("api"), 10);
    for _ in 0..5 {
        vm.tick(100, &mut counter);
    }
    assert_eq!(counter.used("api"), 10);
    assert_eq!(counter.senders.len(), 1, "what is said is not said again");
}

#[test]
fn two_proxies_learn_of_each_other() {
    let mut counter = counter();
    let (mut one, mut two) = (Vm::new(&sync()), Vm::new(&sync()));
    let through =
        |vm: &mut Vm, count: usize| (0..count).filter(|_| matches!(vm.request("ana"), Came::Through)).count();
    assert_eq!(through(&mut one, 4), 4);
    assert_eq!(through(&mut two, 4), 4);
    one.tick(100, &mut counter);
    two.tick_too(100, &mut counter);
    // Two has heard of all eight, one only of its own four.
    assert_eq!(through(&mut two, 4), 2);
    assert_eq!(through(&mut one, 1), 1);
    two.tick(100, &mut counter);
    one.tick_too(100, &mut counter);
    assert_eq!(counter.used("api"), 11, "over by what one admitted before it had heard");
    assert_eq!(through(&mut one, 5), 0);
    assert_eq!(through(&mut two, 5), 0);
}

#[test]
fn the_workers_of_a_proxy_share_what_they_know() {
    let mut counter = counter();
    let mut one = Vm::new(&sync());
    let mut two = one.sibling();
    for _ in 0..5 {
        assert!(matches!(one.request("ana"), Came::Through));
        assert!(matches!(two.request("ana"), Came::Through));
    }
    assert!(matches!(one.request("ana"), Came::Denied));
    one.tick(100, &mut counter);
    two.tick_too(100, &mut counter);
    assert_eq!(counter.used("api"), 10, "each reports its own");
    assert!(matches!(two.request("ana"), Came::Denied));
}

#[test]
fn a_lost_answer_does_not_count_twice() {
    let mut counter = counter();
    let mut vm = Vm::new(&sync());
    for _ in 0..4 {
        vm.request("ana");
    }
    vm.host.advance(100);
    vm.engine.on_tick(&vm.host);
    // The counter has counted, and its answer is lost.
    let body = vm.host.sent.borrow()[0].2.clone();
    counter.apply(&body);
    super::fail(&vm.host, &mut vm.engine);
    assert_eq!(counter.used("api"), 4);
    vm.tick(100, &mut counter);
    assert_eq!(counter.used("api"), 4);
    assert_eq!(counter.senders[0], counter.senders[1], "the same call again");
    // And it is all acknowledged: the window's rest is free.
    assert_eq!((0..10).filter(|_| matches!(vm.request("ana"), Came::Through)).count(), 6);
}

#[test]
fn an_exhausted_limit_needs_no_calls_but_the_poll() {
    let mut counter = counter();
    let mut vm = Vm::new(&sync());
    for _ in 0..10 {
        vm.request("ana");
    }
    vm.tick(100, &mut counter);
    let calls = counter.senders.len();
    for _ in 0..51 {
        assert!(matches!(vm.request("ana"), Came::Denied));
        vm.tick(100, &mut counter);
    }
    assert_eq!(counter.senders.len(), calls);
    vm.tick(100, &mut counter);
    assert_eq!(counter.senders.len(), calls + 1, "after five seconds it asks what is new");
}

#[test]
fn a_vm_that_starts_knows_the_clock_that_its_proxy_has_learned() {
    let mut counter = counter();
    counter.now_ms += 3 * 3_600_000;
    let mut one = Vm::new(&sync());
    one.tick(100, &mut counter);
    for _ in 0..10 {
        one.request("ana");
    }
    one.tick(100, &mut counter);
    let mut two = one.sibling();
    assert!(matches!(two.request("ana"), Came::Denied), "before it has heard of the counter itself");
}

/// Found end to end: keys that are used at different times must not each make a call of their own.
#[test]
fn all_keys_of_an_interval_travel_in_one_call() {
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "sync", "sync_every": "200ms" }"#, ""));
    for tick in 0..20 {
        for key in 0..4 {
            vm.request(&format!("key-{tick}-{key}"));
            vm.host.advance(7);
            counter.now_ms += 7;
        }
        vm.tick(72, &mut counter);
    }
    assert!(counter.senders.len() <= 11, "{} calls in 10 intervals", counter.senders.len());
    vm.tick(200, &mut counter);
    assert_eq!(counter.used("api"), 80);
}

/// Found by the simulation: what is decided in the callback of the first answer goes by the clock that it told.
#[test]
fn the_first_answer_sets_the_clock_before_anything_is_decided_by_it() {
    let mut counter = counter();
    counter.now_ms += 3 * 3_600_000;
    let exact =
        r#", { "name": "exact", "key": ["client_ip"], "limits": ["100/1h"], "global": { "mode": "exact" } }"#;
    let mut vm = Vm::new(&config(r#"{ "mode": "sync" }"#, exact));
    let admitted = (0..30).filter(|_| vm.admits("ana", &mut counter)).count();
    assert_eq!(admitted, 10);
}

/// What could not be written is not taken away again when it is acknowledged: that would be a neighbour's.
#[test]
fn an_acknowledgement_of_what_the_table_never_had_takes_nothing_away() {
    let mut counter = counter();
    let mut one = Vm::new(&sync());
    let mut two = one.sibling();
    for _ in 0..3 {
        assert!(matches!(two.request("ana"), Came::Through));
    }
    one.host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: 1 }));
    assert!(matches!(one.request("ana"), Came::Through));
    one.tick(100, &mut counter);
    assert_eq!(counter.used("api"), 1);
    assert_eq!((0..9).filter(|_| matches!(one.request("ana"), Came::Through)).count(), 6);
}
