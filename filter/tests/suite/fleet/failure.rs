use super::{Came, FakeCounter, Vm, config, counter, fail, land};
use crate::mock::{Call, Fault};
use tidegate_filter::Status;

fn exact(on_failure: &str) -> String {
    config(&format!(r#"{{ "mode": "exact", "on_failure": "{on_failure}" }}"#), "")
}

/// A VM whose counter named four proxies and then went away.
fn cut_off(on_failure: &str) -> Vm {
    let mut counter = counter();
    counter.proxies = 4;
    let mut vm = Vm::new(&exact(on_failure));
    assert!(vm.admits("eve", &mut counter));
    let Came::Waits(..) = vm.request("eve") else { panic!("it waits") };
    fail(&vm.host, &mut vm.engine);
    vm
}

fn through(vm: &mut Vm, count: usize) -> usize {
    let mut through = 0;
    for _ in 0..count {
        match vm.request("ana") {
            Came::Through => through += 1,
            Came::Denied => {}
            Came::Waits(..) => panic!("nobody waits for a counter that is away"),
        }
    }
    through
}

#[test]
fn on_failure_says_what_holds() {
    for (on_failure, expected) in [("share", 2), ("local", 10), ("open", 20), ("closed", 0)] {
        assert_eq!(through(&mut cut_off(on_failure), 20), expected, "{on_failure}");
    }
}

#[test]
fn closed_says_that_it_is_for_want_of_capacity() {
    let mut vm = cut_off("closed");
    assert_eq!(through(&mut vm, 1), 0);
    let reply = vm.host.last_reply();
    let body = String::from_utf8(reply.body).expect("text");
    assert!(body.contains("temporary-reduced-capacity"), "{body}");
    assert!(reply.headers.iter().any(|(name, _)| name == "retry-after"));
}

#[test]
fn one_request_waits_for_nothing_and_the_circuit_opens_for_a_growing_while() {
    let mut counter = counter();
    let mut vm = cut_off("share");
    let mut tries = Vec::new();
    for tick in 1..=100_u64 {
        vm.host.advance(100);
        vm.engine.on_tick(&vm.host);
        if !vm.host.sent.borrow().is_empty() {
            tries.push(tick);
            fail(&vm.host, &mut vm.engine);
        }
    }
    assert_eq!(tries, [1, 3, 7, 15, 31, 63], "after 100, 200, 400 ms and so on");
    vm.tick(5_000, &mut counter);
    assert!(matches!(vm.request("ana"), Came::Waits(..)), "it answers again");
}

#[test]
fn every_way_that_a_call_can_fail_is_survived() {
    let statuses = ["503", "504", "500", "401", "413", "409", "429", "200", "204", "x", ""];
    for status in statuses {
        let mut vm = Vm::new(&exact("local"));
        let Came::Waits(stream, _) = vm.request("ana") else { panic!("it waits") };
        let token = vm.host.sent.borrow_mut().pop().expect("sent").0;
        land(&vm.host, &mut vm.engine, token, status, b"\xff\xffno answer");
        assert!(vm.came_through(stream), "{status}: decided locally");
        assert_eq!(through(&mut vm, 20), 9, "{status}");
        assert!(vm.metric("tidegate_counter_failures") > 0);
    }
    for status in [Status::Other(2), Status::Other(10), Status::NotFound, Status::CasMismatch] {
        let mut vm = Vm::new(&exact("local"));
        let fault = Fault { call: Call::Dispatch, status, after: 0, times: 1 };
        vm.host.fault.set(Some(fault));
        assert!(matches!(vm.request("ana"), Came::Through), "decided at once");
        assert_eq!(through(&mut vm, 20), 9);
    }
}

#[test]
fn an_answer_that_does_not_fit_the_question_is_no_answer() {
    let mut vm = Vm::new(&exact("local"));
    let Came::Waits(stream, _) = vm.request("ana") else { panic!("it waits") };
    let token = vm.host.sent.borrow_mut().pop().expect("sent").0;
    let mut other = counter();
    let empty = tidegate_config::wire::Batch {
        namespace: "edge".into(),
        sender: None,
        wait_ms: None,
        states: false,
        groups: Vec::new(),
    };
    let answer = other.apply(&empty.to_postcard()).to_postcard();
    land(&vm.host, &mut vm.engine, token, "200", &answer);
    assert!(vm.came_through(stream));
    assert_eq!(vm.metric("tidegate_counter_failures"), 1);
}

/// Whatever the counter did with a call whose answer was lost, in the end each admission is counted once.
#[test]
fn what_was_decided_without_the_counter_is_put_right() {
    for (has_counted, on_failure, admitted) in
        [(true, "local", 1), (false, "local", 1), (true, "closed", 0), (false, "closed", 0)]
    {
        let mut counter = counter();
        let mut vm = Vm::new(&exact(on_failure));
        let Came::Waits(stream, _) = vm.request("ana") else { panic!("it waits") };
        let body = vm.host.sent.borrow()[0].2.clone();
        if has_counted {
            counter.apply(&body);
        }
        fail(&vm.host, &mut vm.engine);
        assert_eq!(vm.came_through(stream), admitted == 1);
        for _ in 0..5 {
            vm.tick(100, &mut counter);
        }
        assert_eq!(counter.used("api"), admitted, "counted before: {has_counted}, {on_failure}");
    }
}

#[test]
fn what_was_admitted_meanwhile_is_reported() {
    let mut counter = counter();
    let mut vm = cut_off("local");
    assert_eq!(through(&mut vm, 20), 10);
    for _ in 0..5 {
        vm.tick(200, &mut counter);
    }
    // Eve's second request was decided here and its call repeated; Ana's ten were reported.
    assert_eq!(counter.used("api"), 11);
    assert!(!vm.admits("ana", &mut counter));
}

#[test]
fn a_counter_that_lost_its_state_is_noticed() {
    let mut counter = counter();
    let mut vm = Vm::new(&exact("share"));
    vm.admits("ana", &mut counter);
    counter.epoch = 8;
    counter.states.clear();
    vm.admits("ana", &mut counter);
    assert_eq!(vm.metric("tidegate_counter_epochs"), 1);
}

#[test]
fn what_a_counter_denied_that_lost_its_state_is_forgotten() {
    for mode in ["exact", "lease"] {
        let mut counter = counter();
        let mut vm = Vm::new(&config(&format!(r#"{{ "mode": "{mode}" }}"#), ""));
        let admitted =
            |vm: &mut Vm, counter: &mut FakeCounter| (0..40).filter(|_| vm.admits("ana", counter)).count();
        assert_eq!(admitted(&mut vm, &mut counter), 10, "{mode}");
        vm.tick(100, &mut counter);
        counter.epoch = 8;
        counter.states.clear();
        assert_eq!(admitted(&mut vm, &mut counter), 0, "{mode}: nobody has heard of it");
        assert!(vm.admits("ben", &mut counter));
        vm.tick(100, &mut counter);
        assert_eq!(admitted(&mut vm, &mut counter), 10, "{mode}");
    }
}

#[test]
fn a_call_whose_answer_never_comes_is_given_up() {
    let mut vm = Vm::new(&exact("local"));
    let Came::Waits(stream, _) = vm.request("ana") else { panic!("it waits") };
    vm.host.sent.borrow_mut().clear();
    for _ in 0..60 {
        vm.host.advance(100);
        vm.engine.on_tick(&vm.host);
        super::see_to(&vm.host, &mut vm.engine);
    }
    assert!(vm.came_through(stream));
}

/// Found by the simulation: on Kong a request that is not seen to in the callback of its call hangs.
#[test]
fn on_kong_a_request_is_seen_to_in_the_callback_whatever_fails() {
    for call in [Call::Monotonic, Call::Enter, Call::AnswerHeaders, Call::AnswerBody] {
        let mut host = super::proxy(&exact("local"));
        host.flavour = crate::mock::Flavour::Kong;
        let mut counter = counter();
        let mut vm = Vm::on(host);
        let Came::Waits(stream, _) = vm.request("ana") else { panic!("it waits") };
        vm.host.context.set(stream);
        vm.host.fault.set(Some(Fault { call, status: Status::Other(10), after: 0, times: 1 }));
        counter.serve(&vm.host, &mut vm.engine);
        assert!(vm.came_through(stream), "{call:?}");
    }
}

/// Found by the simulation: what is decided here is no part of the call that failed, and is reported.
#[test]
fn what_a_waiting_request_took_of_another_rule_is_reported() {
    let mut counter = counter();
    let synced = r#", { "name": "tenant", "key": ["client_ip"],
        "limits": [{ "requests": 50, "per": "1h", "algorithm": "fixed_window" }],
        "global": { "mode": "sync", "on_failure": "open" } }"#;
    let mut vm = Vm::new(&config(r#"{ "mode": "exact", "on_failure": "open" }"#, synced));
    let Came::Waits(stream, _) = vm.request("ana") else { panic!("it waits") };
    fail(&vm.host, &mut vm.engine);
    assert!(vm.came_through(stream));
    for _ in 0..5 {
        vm.tick(100, &mut counter);
    }
    assert_eq!((counter.used("api"), counter.used("tenant")), (1, 1));
}

/// Found by the simulation: a VM that never heard of the counter's clock and one that did share their counts.
#[test]
fn vms_that_know_different_clocks_count_together_while_the_counter_is_away() {
    let mut counter = counter();
    counter.now_ms += 3 * 3_600_000;
    let mut one = Vm::new(&exact("local"));
    assert!(one.admits("eve", &mut counter));
    let mut two = one.sibling();
    for vm in [&mut one, &mut two] {
        let Came::Waits(..) = vm.request("eve") else { panic!("it waits") };
        fail(&vm.host, &mut vm.engine);
    }
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += through(&mut one, 1) + through(&mut two, 1);
    }
    assert_eq!(admitted, 10);
}

/// A request's own call found the counter again while the tick's failed call waited to be made again.
#[test]
fn on_kong_a_failed_call_of_the_tick_is_made_again_also_when_another_found_the_counter() {
    let synced = r#", { "name": "tenant", "key": ["client_ip"],
        "limits": [{ "requests": 50, "per": "1h", "algorithm": "fixed_window" }],
        "global": { "mode": "sync" } }"#;
    let mut host = super::proxy(&config(r#"{ "mode": "exact", "on_failure": "open" }"#, synced));
    host.flavour = crate::mock::Flavour::Kong;
    let mut counter = counter();
    let mut vm = Vm::on(host);
    assert!(vm.admits("ana", &mut counter));
    let Came::Waits(stream, _) = vm.request("ana") else { panic!("it waits") };
    vm.host.advance(100);
    vm.engine.on_tick(&vm.host);
    // The tick's call fails, and then the request's own is answered.
    fail(&vm.host, &mut vm.engine);
    vm.host.context.set(stream);
    counter.serve(&vm.host, &mut vm.engine);
    assert!(vm.came_through(stream));
    for _ in 0..3 {
        vm.tick(100, &mut counter);
    }
    assert_eq!(counter.used("tenant"), 2, "and both are reported");
}

#[test]
fn on_kong_an_admission_that_the_counter_may_never_hear_of_is_counted() {
    let mut host = super::proxy(&exact("open"));
    host.flavour = crate::mock::Flavour::Kong;
    let mut vm = Vm::on(host);
    let Came::Waits(stream, _) = vm.request("ana") else { panic!("it waits") };
    vm.host.context.set(stream);
    fail(&vm.host, &mut vm.engine);
    assert!(vm.came_through(stream));
    assert_eq!(vm.flushed("tidegate_reports_dropped"), 1);
}

#[test]
fn what_was_taken_before_the_counter_lost_its_state_is_not_given_back() {
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "lease" }"#, "").replace("10,", "1000,"));
    for _ in 0..40 {
        assert!(vm.admits("ana", &mut counter));
    }
    vm.tick(100, &mut counter);
    assert!(counter.granted > 0, "nothing to give back: the test shows nothing");
    counter.epoch = 8;
    counter.states.clear();
    (counter.granted, counter.refunded) = (0, 0);
    assert!(vm.admits("ben", &mut counter), "it hears of the new epoch");
    for _ in 0..40 {
        vm.tick(100, &mut counter);
    }
    assert!(counter.granted > 0);
    assert_eq!(counter.refunded, counter.granted, "what was granted since, and no more");
}
