use crate::mock::{Call, Flavour, MockHost};
use tidegate_filter::Engine;

fn config(slots: u32, rules: &str) -> String {
    format!(r#"{{ "table": {{ "slots": {slots} }}, "rules": [{rules}] }}"#)
}

/// A rule on its own path, with windows on the clock: the tests begin with a whole hour.
fn rule(name: &str, limit: &str, when_full: &str) -> String {
    let (requests, per) = limit.split_once('/').expect("requests/per");
    format!(
        r#"{{ "name": "{name}", "match": {{ "path": "/{name}" }}, "key": [{{ "header": "x-api-key" }}],
             "limits": [{{ "requests": {requests}, "per": "{per}", "algorithm": "fixed_window", "align": "clock" }}],
             "when_full": "{when_full}" }}"#
    )
}

fn admits(host: &MockHost, engine: &mut Engine, rule: &str, key: &str) -> bool {
    host.bring_to("GET", &format!("/{rule}"), &[("x-api-key", key.as_bytes())]);
    matches!(engine.on_request(host, 1), tidegate_filter::Verdict::Continue(_))
}

#[test]
fn the_first_vm_lays_out_and_the_others_read_the_marker() {
    let config = config(128, "");
    let host = MockHost::new(&config);
    host.engine();
    let calls = host.take_calls();
    let sets = calls.iter().filter(|call| **call == Call::Set).count();
    assert_eq!(sets, 2 + 128 + 3, "a probe, the slots, what VMs share, the marker");
    assert_eq!(host.data.borrow().len(), 128 + 4);
    let worker = host.sibling(&config);
    worker.engine();
    let calls = worker.take_calls();
    assert_eq!(calls.iter().filter(|call| **call == Call::Get).count(), 1);
    assert!(!calls.contains(&Call::Set) && !calls.contains(&Call::Random), "{calls:?}");
}

#[test]
fn traffic_creates_no_key() {
    let host = MockHost::new(&config(64, &rule("api", "1/1h", "lenient")));
    let mut engine = host.engine();
    let keys = host.data.borrow().len();
    for key in 0..5_000 {
        admits(&host, &mut engine, "api", &key.to_string());
    }
    assert_eq!(host.data.borrow().len(), keys);
}

#[test]
fn growing_lays_out_only_what_is_missing_and_shrinking_nothing() {
    let host = MockHost::new(&config(64, ""));
    host.engine();
    let grown = host.sibling(&config(256, ""));
    grown.engine();
    let sets = grown.take_calls().into_iter().filter(|call| *call == Call::Set).count();
    assert_eq!(sets, 192 + 1);
    let shrunk = host.sibling(&config(64, ""));
    shrunk.engine();
    assert!(!shrunk.take_calls().contains(&Call::Set));
    let back = host.sibling(&config(256, ""));
    back.engine();
    assert!(!back.take_calls().contains(&Call::Set), "the marker remembers the most there ever was");
}

#[test]
fn on_kong_nothing_is_laid_out() {
    let mut host = MockHost::new(&config(1 << 20, &rule("api", "3/1h", "lenient")));
    host.flavour = Flavour::Kong;
    let mut engine = host.engine();
    assert_eq!(host.data.borrow().len(), 4, "the probe, the marker, the number of VMs, the clock");
    let worker = host.sibling(&config(1 << 20, &rule("api", "3/1h", "lenient")));
    let mut other = worker.engine();
    let admitted = (0..4).filter(|_| admits(&host, &mut engine, "api", "ana")).count()
        + (0..4).filter(|_| admits(&worker, &mut other, "api", "ana")).count();
    assert_eq!(admitted, 3);
}

#[test]
fn on_kong_two_vms_that_start_at_once_agree_on_the_secret() {
    let config = config(64, &rule("api", "3/1h", "lenient"));
    let mut host = MockHost::new(&config);
    host.flavour = Flavour::Kong;
    let other = host.sibling(&config);
    let mut raced = false;
    *host.before_set.borrow_mut() = Some(Box::new(move |_, key| {
        if key.ends_with(b"marker") && !raced {
            raced = true;
            other.engine();
        }
    }));
    let mut engine = host.engine();
    assert!(admits(&host, &mut engine, "api", "ana"));
}

/// A worker of a proxy on Kong, which draws other random bytes than the others.
fn kong_worker(first: Option<&MockHost>, config: &str, random: u8) -> (MockHost, Engine) {
    let mut host = first.map_or_else(|| MockHost::new(config), |first| first.sibling(config));
    host.flavour = Flavour::Kong;
    host.random.set(random);
    let engine = host.engine();
    (host, engine)
}

fn is_marker(key: &[u8]) -> bool {
    key.ends_with(b"marker")
}

/// Found by the simulation: who started after Kong had dropped the marker counted elsewhere than the others, for good.
#[test]
fn on_kong_workers_agree_again_after_the_marker_was_dropped() {
    let config = config(64, &rule("api", "3/1h", "lenient"));
    let (host, mut engine) = kong_worker(None, &config, 1);
    let (second, mut of_second) = kong_worker(Some(&host), &config, 2);
    assert!(admits(&host, &mut engine, "api", "ana"));
    host.data.borrow_mut().retain(|key, _| !is_marker(key));
    let (third, mut of_third) = kong_worker(Some(&host), &config, 3);
    assert!(admits(&third, &mut of_third, "api", "ana"));
    for (host, engine) in [(&host, &mut engine), (&second, &mut of_second), (&third, &mut of_third)] {
        engine.on_tick(host);
    }
    let admitted = [(&host, &mut engine), (&second, &mut of_second), (&third, &mut of_third)]
        .into_iter()
        .map(|(host, engine)| (0..4).filter(|_| admits(host, engine, "api", "ana")).count());
    assert_eq!(admitted.sum::<usize>(), 2, "one limit for all, less what the third has let through");
}

#[test]
fn on_kong_a_dropped_marker_is_written_again_by_who_still_knows() {
    let config = config(64, &rule("api", "3/1h", "lenient"));
    let (host, mut engine) = kong_worker(None, &config, 1);
    assert_eq!((0..2).filter(|_| admits(&host, &mut engine, "api", "ana")).count(), 2);
    host.data.borrow_mut().retain(|key, _| !is_marker(key));
    engine.on_tick(&host);
    let (second, mut of_second) = kong_worker(Some(&host), &config, 2);
    assert_eq!((0..4).filter(|_| admits(&second, &mut of_second, "api", "ana")).count(), 1);
    // Another key's value in its place is not believed.
    let marker = host.data.borrow().keys().find(|key| is_marker(key)).cloned().expect("a marker");
    crate::mock::overwrite(&host.data, &marker, b"somebody else's");
    engine.on_tick(&host);
    assert!(!admits(&host, &mut engine, "api", "ana"), "counted where it was");
}

/// Numbers of VMs that begin anew beside a marker that does not would be given out twice.
#[test]
fn on_kong_numbers_of_vms_begin_only_beside_a_marker_of_ones_own() {
    let config = config(64, &rule("api", "3/1h", "lenient"));
    let (host, mut engine) = kong_worker(None, &config, 1);
    host.data.borrow_mut().retain(|key, _| !is_marker(key) && !key.ends_with(b"vms"));
    let mut second = host.sibling(&config);
    second.flavour = Flavour::Kong;
    second.random.set(2);
    // The first writes its marker again just before the second would.
    let mut is_first = true;
    *second.before_set.borrow_mut() = Some(Box::new(move |_, key| {
        if is_marker(key) && std::mem::take(&mut is_first) {
            engine.on_tick(&host);
        }
    }));
    second.engine();
    let data = second.data.borrow();
    assert!(!data.keys().any(|key| key.ends_with(b"vms")), "{:?}", data.keys());
}

#[test]
fn a_changed_limit_or_order_keeps_the_counts() {
    let before = config(64, &[rule("a", "10/1h", "lenient"), rule("b", "1/1h", "lenient")].join(","));
    let host = MockHost::new(&before);
    let mut engine = host.engine();
    assert_eq!((0..4).filter(|_| admits(&host, &mut engine, "a", "ana")).count(), 4);
    let after = config(64, &[rule("b", "1/1h", "lenient"), rule("a", "6/1h", "lenient")].join(","));
    let host = host.sibling(&after);
    let mut engine = host.engine();
    assert_eq!((0..9).filter(|_| admits(&host, &mut engine, "a", "ana")).count(), 2);
}

#[test]
fn plugins_share_counts_only_by_namespace() {
    let rules = rule("api", "1/1h", "lenient");
    let named = format!(r#"{{ "namespace": "edge", "rules": [{rules}] }}"#);
    for (config, expected) in [(config(16_384, &rules), 2), (named, 1)] {
        let host = MockHost::new(&config);
        let other = host.sibling(&config);
        *other.plugin_name.borrow_mut() = "another".into();
        let (mut engine, mut another) = (host.engine(), other.engine());
        let admitted = usize::from(admits(&host, &mut engine, "api", "ana"))
            + usize::from(admits(&other, &mut another, "api", "ana"));
        assert_eq!(admitted, expected, "{config}");
    }
}

#[test]
fn a_strict_client_stays_denied_after_its_displacement() {
    let host = MockHost::new(&config(64, &rule("login", "2/1h", "strict")));
    let mut engine = host.engine();
    while admits(&host, &mut engine, "login", "mallory") {}
    // Other clients use up their limits too: as loaded as she is, and later in the slot, they push her out.
    for key in 0..4_000 {
        while admits(&host, &mut engine, "login", &format!("k{key}")) {}
    }
    host.advance(1_500);
    for round in 0..50 {
        host.advance(60_000);
        assert!(!admits(&host, &mut engine, "login", "mallory"), "after {round} minutes");
    }
    engine.on_tick(&host);
    assert!(host.metric("tidegate_evictions") > 0, "nothing was displaced: the test shows nothing");
    host.advance(2 * 3_600_000);
    assert!(admits(&host, &mut engine, "login", "mallory"), "the window is over");
}

#[test]
fn a_lenient_flood_displaces_nobody_who_was_there_before() {
    let rules = [rule("quiet", "5/1h", "lenient"), rule("flood", "1/1h", "lenient")].join(",");
    let host = MockHost::new(&config(64, &rules));
    let mut engine = host.engine();
    let quiet: Vec<String> = (0..64).map(|key| format!("q{key}")).collect();
    for key in &quiet {
        for _ in 0..5 {
            assert!(admits(&host, &mut engine, "quiet", key));
        }
    }
    for key in 0..20_000 {
        assert!(admits(&host, &mut engine, "flood", &key.to_string()), "an innocent newcomer");
    }
    host.advance(1_500);
    for key in &quiet {
        assert!(!admits(&host, &mut engine, "quiet", key), "{key} was displaced");
    }
    engine.on_tick(&host);
    assert!(host.metric("tidegate_evictions") > 10_000);
    assert_eq!(host.metric("tidegate_foreign_evictions"), 0);
}
