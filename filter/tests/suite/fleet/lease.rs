use super::{Came, FakeCounter, Vm, counter};

/// A thousand per hour for each key, leased.
fn lease(more: &str) -> String {
    super::config(&format!(r#"{{ "mode": "lease"{more} }}"#), "")
        .replace(r#""requests": 10"#, r#""requests": 1000"#)
}

/// Requests of one key in turn on all VMs, with a tick of all after every ten; how many were admitted.
fn hammer(vms: &mut [Vm], counter: &mut FakeCounter, requests: usize) -> usize {
    let mut admitted = 0;
    for turn in 0..requests {
        let index = turn % vms.len();
        admitted += usize::from(vms[index].admits("ana", counter));
        if turn % 10 == 9 {
            counter.now_ms += 100;
            for vm in &mut *vms {
                vm.tick_too(100, counter);
            }
        }
    }
    admitted
}

#[test]
fn a_fleet_that_leases_admits_the_limit_and_not_one_more() {
    let mut counter = counter();
    let one = Vm::new(&lease(""));
    let mut vms = [one.sibling(), one, Vm::new(&lease("")), Vm::new(&lease(""))];
    let admitted = hammer(&mut vms, &mut counter, 3_000);
    assert!(admitted <= 1_000, "{admitted}");
    assert!(admitted >= 990, "{admitted} of 1000: the rest lies about as grants");
    assert!(counter.used("api") <= 1_000);
}

#[test]
fn most_requests_do_not_wait() {
    let mut counter = counter();
    let mut vm = Vm::new(&lease(""));
    let mut waited = 0;
    for turn in 0..600 {
        match vm.request("ana") {
            Came::Through => {}
            Came::Denied => panic!("there is room"),
            Came::Waits(..) => {
                waited += 1;
                counter.serve(&vm.host, &mut vm.engine);
            }
        }
        if turn % 5 == 4 {
            vm.tick(100, &mut counter);
        }
    }
    assert!(waited < 30, "{waited} of 600 waited");
}

#[test]
fn with_an_overshoot_the_fleet_may_pass_the_limit_by_so_much() {
    let mut counter = counter();
    let mut vms = [Vm::new(&lease(r#", "overshoot": "10%""#)), Vm::new(&lease(r#", "overshoot": "10%""#))];
    let admitted = hammer(&mut vms, &mut counter, 3_000);
    assert!((1_090..=1_100).contains(&admitted), "{admitted}");
}

#[test]
fn what_is_not_spent_goes_back() {
    let mut counter = counter();
    let mut vm = Vm::new(&lease(""));
    let admitted = hammer(std::slice::from_mut(&mut vm), &mut counter, 100);
    assert_eq!(admitted, 100);
    assert!(counter.used("api") >= 100);
    for _ in 0..30 {
        vm.tick(100, &mut counter);
    }
    assert_eq!(counter.used("api"), 100, "three seconds later the counter has it all back");
}

#[test]
fn a_grant_is_not_spent_after_its_time() {
    let mut counter = counter();
    let mut vm = Vm::new(&lease(""));
    hammer(std::slice::from_mut(&mut vm), &mut counter, 100);
    // The VM stands still, without a tick, for longer than a grant lives.
    vm.host.advance(2_001);
    counter.now_ms += 2_001;
    assert!(matches!(vm.request("ana"), Came::Waits(..)));
}

#[test]
fn whoever_would_rather_deny_than_wait_does() {
    let mut counter = counter();
    let mut vm = Vm::new(&lease(r#", "when_empty": "deny""#));
    assert!(matches!(vm.request("ana"), Came::Denied));
    assert_eq!(vm.host.last_reply().status, 429);
    vm.tick(100, &mut counter);
    assert!(matches!(vm.request("ana"), Came::Through), "the tick has asked for a grant");
}

#[test]
fn when_the_plugin_ends_its_grants_go_back() {
    let mut counter = counter();
    let mut vm = Vm::new(&lease(""));
    let admitted = hammer(std::slice::from_mut(&mut vm), &mut counter, 95);
    assert_eq!(admitted, 95);
    vm.engine.on_end(&vm.host);
    let (_, _, body) = vm.host.sent.borrow_mut().pop().expect("a last call");
    counter.apply(&body);
    assert_eq!(counter.used("api"), 95);
}

#[test]
fn an_exhausted_limit_needs_no_calls_but_the_poll() {
    let mut counter = counter();
    let mut vm = Vm::new(&lease(""));
    hammer(std::slice::from_mut(&mut vm), &mut counter, 1_500);
    for _ in 0..60 {
        vm.request("ana");
        counter.serve(&vm.host, &mut vm.engine);
        vm.tick(100, &mut counter);
    }
    let calls = counter.senders.len();
    for _ in 0..100 {
        assert!(!vm.admits("ana", &mut counter));
        vm.tick(100, &mut counter);
    }
    let more = counter.senders.len() - calls;
    assert!(more <= 2, "{more} calls in ten seconds");
}

#[test]
fn a_grant_on_a_window_ends_with_it() {
    let config = lease("").replace(r#""per": "1h""#, r#""per": "1s", "align": "clock""#);
    let mut counter = counter();
    let mut vm = Vm::new(&config);
    // The grant is taken 100 ms before the window ends.
    counter.now_ms += 800;
    for _ in 0..5 {
        assert!(vm.admits("ana", &mut counter));
    }
    vm.tick(100, &mut counter);
    assert!(matches!(vm.request("ana"), Came::Through));
    vm.host.advance(100);
    counter.now_ms += 100;
    assert!(matches!(vm.request("ana"), Came::Waits(..)), "another window, another grant");
}

/// Found by reading: with a chunk of a 32nd a short window's grants did not last from tick to tick.
#[test]
fn a_short_window_needs_one_call_a_tick_too() {
    let config = lease("").replace(r#""per": "1h""#, r#""per": "1s""#);
    let mut counter = counter();
    let mut vm = Vm::new(&config);
    let mut waited = 0;
    for _ in 0..100 {
        for _ in 0..70 {
            if let Came::Waits(..) = vm.request("ana") {
                waited += 1;
                counter.serve(&vm.host, &mut vm.engine);
            }
        }
        vm.tick(100, &mut counter);
    }
    // Ten windows: in each the first requests may come before the first grant.
    assert!(waited <= 40, "{waited} of 7,000 waited");
    assert!(counter.senders.len() <= 100 + waited, "{} calls in 100 ticks", counter.senders.len());
}

#[test]
fn chunks_follow_demand_and_shrink_near_the_limit() {
    let largest = |per_tick: usize| {
        let mut counter = counter();
        let mut vm = Vm::new(&lease(""));
        for _ in 0..10 {
            for _ in 0..per_tick {
                assert!(vm.admits("ana", &mut counter));
            }
            vm.tick(100, &mut counter);
        }
        counter.chunks.iter().copied().max().expect("it asks for chunks")
    };
    let (one, three, many) = (largest(1), largest(3), largest(40));
    assert!(one < three && three < many && many <= 1_000 / 32, "{one}, {three}, {many}");
    let mut counter = counter();
    let mut vm = Vm::new(&lease(""));
    assert_eq!(hammer(std::slice::from_mut(&mut vm), &mut counter, 1_000), 1_000);
    let last: Vec<u64> = counter.chunks.iter().rev().take(5).copied().collect();
    assert!(last.iter().all(|n| *n <= 3), "{last:?}");
}

/// The slot was empty when the second chunk came, so its grant lasted as long as that chunk; who had asked for both
/// looked after it at the end of the first only.
#[test]
fn what_is_left_of_a_buckets_last_chunk_goes_back() {
    let config = lease("").replace("fixed_window", "token_bucket");
    let mut counter = counter();
    let mut vm = Vm::new(&config);
    let mut spent = 0;
    for _ in 0..2 {
        // Who finds nothing asks for itself, and the tick for a chunk.
        while let Came::Through = vm.request("ana") {
            spent += 1;
        }
        counter.serve(&vm.host, &mut vm.engine);
        vm.tick(100, &mut counter);
    }
    for _ in 0..60 {
        vm.tick(100, &mut counter);
    }
    assert!(counter.refunded > 0, "all was spent: the test shows nothing");
    assert_eq!(counter.granted - counter.refunded, spent);
}

/// A rule in shadow that would rather deny than wait let requests pass without a look at the other rules.
#[test]
fn a_rule_in_shadow_that_has_nothing_granted_is_no_way_round_the_others() {
    let enforced = r#", { "name": "here", "key": ["client_ip"], "limits": ["3/1h"] }"#;
    let both = super::config(r#"{ "mode": "lease", "when_empty": "deny" }, "mode": "shadow""#, enforced);
    let mut vm = Vm::new(&both);
    let through = (0..9).filter(|_| matches!(vm.request("ana"), Came::Through)).count();
    assert_eq!(through, 3);
    assert_eq!(vm.flushed("tidegate_shadow_denied_rule_api"), 3, "of those that went on");
    let leased = r#", { "name": "b", "key": ["client_ip"], "limits": ["3/1h"],
        "global": { "mode": "lease", "when_empty": "deny" } }"#;
    let mut vm =
        Vm::new(&super::config(r#"{ "mode": "lease", "when_empty": "deny" }, "mode": "shadow""#, leased));
    assert!(matches!(vm.request("ana"), Came::Denied), "the other has nothing granted either");
}

/// What cannot be given back is not taken out of the table either: those who come after spend it.
#[test]
fn when_the_plugin_ends_during_a_call_its_grants_stay_in_the_table() {
    let mut counter = counter();
    let mut vm = Vm::new(&lease(""));
    hammer(std::slice::from_mut(&mut vm), &mut counter, 95);
    assert!(matches!(vm.request("ana"), Came::Through), "something is granted");
    let mut next = vm.sibling();
    assert!(matches!(vm.request("ben"), Came::Waits(..)));
    vm.engine.on_end(&vm.host);
    assert!(matches!(next.request("ana"), Came::Through));
    assert_eq!(vm.host.metric("tidegate_reports_dropped"), 0);
}

/// Found end to end: after an update the old plugin took out of the table what the new one had been granted.
#[test]
fn a_vm_that_ends_leaves_what_another_holds() {
    let mut counter = counter();
    let mut one = Vm::new(&lease(""));
    let mut two = one.sibling();
    hammer(std::slice::from_mut(&mut one), &mut counter, 20);
    // The other asks later, and what both hold lasts as long as its chunk.
    counter.now_ms += 500;
    one.host.advance(500);
    two.host.advance(700);
    while matches!(two.request("ana"), Came::Through) {}
    counter.serve(&two.host, &mut two.engine);
    two.tick(100, &mut counter);
    assert!(matches!(two.request("ana"), Came::Through), "something is granted");
    one.engine.on_end(&one.host);
    assert!(matches!(two.request("ana"), Came::Through));
}
