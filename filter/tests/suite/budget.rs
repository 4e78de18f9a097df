//! The hot path's budget: a host call that returns data costs as much as everything else together.

use crate::mock::{Call, MockHost};
use tidegate_filter::{Engine, Verdict};

const CONFIG: &str = r#"{
    "rules": [
        { "name": "api", "match": { "path_prefix": "/api/" }, "key": [{ "header": "x-api-key" }], "limits": ["2/1h"] },
        { "name": "several", "match": { "path": "/several" }, "key": [{ "header": "x-api-key" }],
          "limits": ["2/1h", "20/1d", { "requests": 2, "per": "1h", "algorithm": "fixed_window" }] },
        { "name": "ip", "match": { "path": "/ip" }, "key": ["client_ip"], "limits": ["2/1h"] },
        { "name": "shadow", "match": { "path": "/shadow" }, "key": ["client_ip"], "limits": ["0/1h"], "mode": "shadow" },
        { "name": "off", "match": { "path": "/off" }, "key": ["client_ip"], "limits": ["0/1h"], "mode": "off" }
    ]
}"#;

/// The calls of one `GET` to a path, and of its response.
fn calls(host: &MockHost, engine: &mut Engine, path: &str) -> (Vec<Call>, Vec<Call>) {
    host.bring_to("GET", path, &[("x-api-key", b"ana")]);
    host.take_calls();
    let verdict = engine.on_request(host, 1);
    let on_request = host.take_calls();
    if let Verdict::Continue(mut passage) = verdict {
        engine.on_response(host, &mut passage);
    }
    (on_request, host.take_calls())
}

fn with_headers(family: &str) -> String {
    CONFIG.replacen('{', &format!(r#"{{ "response": {{ "headers": "{family}" }},"#), 1)
}

const ALLOWED: [Call; 4] = [Call::Headers, Call::Time, Call::Get, Call::Set];
const DENIED_FIRST: [Call; 5] = [Call::Headers, Call::Time, Call::Get, Call::SetProperty, Call::Reply];
const DENIED_AGAIN: [Call; 4] = [Call::Headers, Call::Time, Call::SetProperty, Call::Reply];

#[test]
fn no_rules_read_nothing() {
    let host = MockHost::new(r#"{ "rules": [] }"#);
    let mut engine = host.engine();
    assert_eq!(calls(&host, &mut engine, "/"), (vec![], vec![]));
}

#[test]
fn no_rule_that_matches_reads_the_headers_only() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    assert_eq!(calls(&host, &mut engine, "/other"), (vec![Call::Headers], vec![]));
    assert_eq!(calls(&host, &mut engine, "/off"), (vec![Call::Headers], vec![]));
}

#[test]
fn allowed_then_denied_then_denied_again() {
    for path in ["/api/x", "/several"] {
        let host = MockHost::new(CONFIG);
        let mut engine = host.engine();
        assert_eq!(calls(&host, &mut engine, path), (ALLOWED.to_vec(), vec![]), "{path}, first");
        assert_eq!(calls(&host, &mut engine, path), (ALLOWED.to_vec(), vec![]), "{path}, second");
        assert_eq!(calls(&host, &mut engine, path), (DENIED_FIRST.to_vec(), vec![]), "{path}, denied");
        assert_eq!(calls(&host, &mut engine, path), (DENIED_AGAIN.to_vec(), vec![]), "{path}, again");
        host.advance(1_000);
        assert_eq!(calls(&host, &mut engine, path), (DENIED_FIRST.to_vec(), vec![]), "{path}, forgotten");
    }
}

#[test]
fn the_clients_address_costs_one_property() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    let expected = vec![Call::Headers, Call::Property, Call::Time, Call::Get, Call::Set];
    assert_eq!(calls(&host, &mut engine, "/ip").0, expected);
}

#[test]
fn a_shadow_denial_is_remembered_too() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    let first = vec![Call::Headers, Call::Property, Call::Time, Call::Get, Call::SetProperty];
    assert_eq!(calls(&host, &mut engine, "/shadow").0, first);
    let again = vec![Call::Headers, Call::Property, Call::Time, Call::SetProperty];
    assert_eq!(calls(&host, &mut engine, "/shadow").0, again);
}

#[test]
fn each_response_header_costs_one_call_and_only_where_asked() {
    for (family, count) in [("none", 0), ("ratelimit", 2), ("x-ratelimit", 3), ("both", 5)] {
        let host = MockHost::new(&with_headers(family));
        let mut engine = host.engine();
        let (on_request, on_response) = calls(&host, &mut engine, "/api/x");
        assert_eq!(on_request, ALLOWED, "{family}");
        assert_eq!(on_response, vec![Call::AddResponseHeader; count], "{family}");
        calls(&host, &mut engine, "/api/x");
        assert_eq!(calls(&host, &mut engine, "/api/x"), (DENIED_FIRST.to_vec(), vec![]), "{family}");
    }
}

#[test]
fn a_thousand_rules_that_cannot_match_cost_no_call() {
    let rule = |index| {
        format!(
            r#"{{ "name": "r{index}", "match": {{ "path": "/r{index}" }}, "key": ["client_ip"], "limits": ["1/1h"] }}"#
        )
    };
    let rules: Vec<String> = (0..1_000).map(rule).collect();
    let host = MockHost::new(&format!(r#"{{ "rules": [{}] }}"#, rules.join(",")));
    let mut engine = host.engine();
    assert_eq!(calls(&host, &mut engine, "/api/x").0, [Call::Headers]);
}

#[test]
fn an_idle_tick_costs_nothing_and_a_busy_one_a_call_per_metric() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    host.take_calls();
    engine.on_tick(&host);
    assert_eq!(host.take_calls(), []);
    for _ in 0..100 {
        calls(&host, &mut engine, "/api/x");
    }
    engine.on_tick(&host);
    let expected = [Call::Time, Call::AddToCounter, Call::AddToCounter];
    assert_eq!(host.take_calls(), expected, "the time to forget denials by, allowed, denied");
    assert_eq!(host.metric("tidegate_allowed_rule_api"), 2);
    assert_eq!(host.metric("tidegate_denied_rule_api"), 98);
}

/// A rule of the fleet costs a request what another does, as long as nobody must be asked.
#[test]
fn a_lease_with_a_grant_and_a_sync_cost_what_an_allowed_request_does() {
    for mode in ["lease", "sync"] {
        let config = format!(
            r#"{{ "counter": {{ "cluster": "tidegate" }}, "rules": [{{ "name": "api", "key": [{{ "header": "x-api-key" }}],
                 "limits": ["1000/1h"], "global": {{ "mode": "{mode}" }} }}] }}"#
        );
        let mut counter = crate::fleet::counter();
        let mut vm = crate::fleet::Vm::new(&config);
        assert!(vm.admits("ana", &mut counter));
        vm.tick(100, &mut counter);
        vm.host.take_calls();
        assert!(vm.admits("ana", &mut counter));
        assert_eq!(vm.host.take_calls(), [Call::Headers, Call::Monotonic, Call::Get, Call::Set], "{mode}");
    }
}
