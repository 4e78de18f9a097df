use super::{Came, Vm, config, counter};
use crate::mock::Call;

fn exact() -> String {
    config(r#"{ "mode": "exact" }"#, "")
}

#[test]
fn two_proxies_admit_the_limit_together_and_not_one_more() {
    let mut counter = counter();
    let mut proxies = [Vm::new(&exact()), Vm::new(&exact())];
    let mut admitted = 0;
    for turn in 0..30 {
        admitted += u32::from(proxies[turn % 2].admits("ana", &mut counter));
    }
    assert_eq!(admitted, 10);
    assert!(proxies[0].admits("bob", &mut counter), "another key counts apart");
    assert_eq!(counter.used("api"), 11);
}

#[test]
fn a_client_key_does_not_leave_the_proxy() {
    let mut vm = Vm::new(&exact());
    assert!(matches!(vm.request("secret-of-ana"), Came::Waits(..)));
    let sent = vm.host.sent.borrow();
    let body = &sent[0].2;
    assert!(!body.windows(6).any(|part| part == b"secret"));
}

#[test]
fn those_who_wait_meanwhile_share_the_next_call_at_most_32_of_them() {
    let mut counter = counter();
    let mut vm = Vm::new(&exact());
    let waiting: Vec<Came> = (0..70).map(|index| vm.request(&format!("key-{index}"))).collect();
    assert_eq!(vm.host.sent.borrow().len(), 1, "one call at a time");
    counter.serve(&vm.host, &mut vm.engine);
    assert_eq!(counter.senders.len(), 4, "1, 32, 32 and 5");
    for came in waiting {
        let Came::Waits(stream, _) = came else { panic!("it waits") };
        assert!(vm.came_through(stream));
    }
    assert_eq!(counter.used("api"), 70);
}

#[test]
fn a_client_that_left_is_not_answered_and_its_charge_goes_back() {
    let mut counter = counter();
    let mut vm = Vm::new(&exact());
    let Came::Waits(first, gone) = vm.request("ana") else { panic!("it waits") };
    let Came::Waits(second, queued) = vm.request("ana") else { panic!("it waits") };
    gone.leave();
    queued.leave();
    counter.serve(&vm.host, &mut vm.engine);
    assert!(vm.host.resumed.borrow().is_empty() && vm.host.answered.borrow().is_empty(), "{first} {second}");
    assert_eq!(counter.used("api"), 0, "what was asked for is given back; the queued one never was");
    assert_eq!(vm.metric("tidegate_waiting_left"), 2);
}

#[test]
fn a_denial_is_remembered_and_costs_no_call() {
    let mut counter = counter();
    let mut vm = Vm::new(&exact());
    for _ in 0..11 {
        vm.admits("ana", &mut counter);
    }
    let calls = counter.senders.len();
    for _ in 0..100 {
        assert!(!vm.admits("ana", &mut counter));
    }
    assert_eq!(counter.senders.len(), calls);
    let reply = vm.host.last_reply();
    assert_eq!(reply.status, 429);
    vm.host.advance(5_001);
    counter.now_ms += 5_001;
    assert!(!vm.admits("ana", &mut counter));
    assert_eq!(counter.senders.len(), calls + 1, "five seconds later it is asked again");
}

#[test]
fn those_who_queued_behind_a_refusal_need_no_call() {
    let mut counter = counter();
    let mut vm = Vm::new(&exact());
    for _ in 0..10 {
        assert!(vm.admits("ana", &mut counter));
    }
    let calls = counter.senders.len();
    let waiting: Vec<Came> = (0..20).map(|_| vm.request("ana")).collect();
    counter.serve(&vm.host, &mut vm.engine);
    for came in waiting {
        let Came::Waits(stream, _) = came else { panic!("it waits") };
        assert!(!vm.came_through(stream));
    }
    assert_eq!(counter.senders.len(), calls + 1, "the first was asked for all of them");
}

const WITH_LOCAL: &str = r#", { "name": "local", "key": ["client_ip"],
    "limits": [{ "requests": 3, "per": "1h", "algorithm": "fixed_window" }] }"#;

#[test]
fn local_and_global_rules_are_all_charged_or_none() {
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "exact" }"#, WITH_LOCAL));
    let admitted = (0..8).filter(|_| vm.admits("ana", &mut counter)).count();
    assert_eq!(admitted, 3);
    assert_eq!(counter.used("api"), 3, "a local no asks nobody");
}

#[test]
fn a_local_no_after_the_counters_yes_gives_the_charge_back() {
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "exact" }"#, WITH_LOCAL));
    // All five see room in the local rule, and wait together.
    let waiting: Vec<Came> = (0..5).map(|_| vm.request("ana")).collect();
    counter.serve(&vm.host, &mut vm.engine);
    let through = waiting.iter().filter(|came| match came {
        Came::Waits(stream, _) => vm.came_through(*stream),
        _ => panic!("it waits"),
    });
    assert_eq!(through.count(), 3);
    vm.tick(100, &mut counter);
    assert_eq!(counter.used("api"), 3, "two went back");
}

#[test]
fn a_rule_in_shadow_is_counted_and_denies_nobody() {
    let mut counter = counter();
    let shadow = r#", { "name": "shadow", "key": ["client_ip"], "mode": "shadow",
        "limits": [{ "requests": 2, "per": "1h", "algorithm": "fixed_window" }], "global": { "mode": "exact" } }"#;
    let mut vm = Vm::new(&config(r#"{ "mode": "exact" }"#, shadow));
    let admitted = (0..12).filter(|_| vm.admits("ana", &mut counter)).count();
    assert_eq!(admitted, 10);
    assert_eq!((counter.used("api"), counter.used("shadow")), (10, 2));
    assert!(vm.host.access_log.borrow().iter().any(|line| line.contains("shadow_denied rule=shadow")));
}

#[test]
fn the_counters_clock_rules_whatever_the_proxies_say() {
    let mut counter = counter();
    let mut slow = Vm::new(&exact());
    let fast = super::proxy(&exact());
    fast.now_ms.set(crate::mock::T0 + 59 * 60_000);
    let mut fast = Vm::on(fast);
    let admitted = (0..30).filter(|turn| {
        let vm = if turn % 2 == 0 { &mut slow } else { &mut fast };
        // The proxies' clocks are set to and fro meanwhile.
        vm.host.now_ms.set(crate::mock::T0 + (turn * 17 % 13) * 600_000);
        vm.admits("ana", &mut counter)
    });
    assert_eq!(admitted.count(), 10);
}

#[test]
fn rules_that_the_counter_switches_off_stop_with_the_next_reply() {
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "exact" }"#, WITH_LOCAL));
    counter.rules_off = vec!["local".into()];
    assert!(vm.admits("ana", &mut counter));
    let admitted = (0..20).filter(|_| vm.admits("ana", &mut counter)).count();
    assert_eq!(admitted, 9, "only the rule of the fleet denies any more");
    counter.rules_off = vec!["api".into()];
    vm.tick(5_200, &mut counter);
    let admitted = (0..20).filter(|_| vm.admits("ana", &mut counter)).count();
    assert_eq!(admitted, 2, "the poll of an idle VM brought the news, and local counts again");
}

/// On Kong a call belongs to the request that makes it.
#[test]
fn on_kong_each_request_makes_its_own_call() {
    let mut counter = counter();
    let mut host = crate::mock::MockHost::new(&exact());
    host.flavour = crate::mock::Flavour::Kong;
    let mut vm = Vm::on(host);
    let waiting: Vec<Came> = (0..12).map(|_| vm.request("ana")).collect();
    assert_eq!(vm.host.sent.borrow().len(), 12);
    counter.serve(&vm.host, &mut vm.engine);
    let through = waiting.iter().filter(|came| match came {
        Came::Waits(stream, _) => vm.came_through(*stream),
        _ => panic!("it waits"),
    });
    assert_eq!(through.count(), 10);
}

#[test]
fn a_denial_that_is_counted_is_told_to_the_counter() {
    for mode in ["exact", "sync"] {
        let mut counter = counter();
        let config = config(&format!(r#"{{ "mode": "{mode}" }}"#), "");
        let mut vm = Vm::new(&config.replace(r#""global""#, r#""count_denied": true, "global""#));
        let admitted = (0..25).filter(|_| vm.admits("ana", &mut counter)).count();
        assert_eq!(admitted, 10, "{mode}");
        vm.tick(100, &mut counter);
        assert_eq!(counter.used("api"), 25, "{mode}");
    }
}

/// A denial by the proxy's own rules asks nobody, but counts where its rule says so.
#[test]
fn a_denial_that_counts_is_counted_also_beside_a_rule_of_the_fleet() {
    let counts = r#", { "name": "here", "key": ["client_ip"], "limits": ["1/1h"], "count_denied": true }"#;
    let mut counter = counter();
    let mut vm = Vm::new(&config(r#"{ "mode": "exact" }"#, counts));
    assert!(vm.admits("ana", &mut counter));
    for _ in 0..2 {
        vm.host.take_calls();
        assert!(matches!(vm.request("ana"), Came::Denied));
        assert!(vm.host.take_calls().contains(&Call::Set), "written");
    }
}
