//! Charges after the response: what is reserved, settled, given back.

use crate::mock::{Call, Fault, MockHost};
use tidegate_filter::{Engine, Passage, Status, Verdict};

/// Counts 401, 403 and failures of the upstream.
const LOGIN: &str = r#"{ "rules": [
    { "name": "login", "key": [{ "header": "x-api-key" }], "limits": ["3/1h"], "count_status": [401, 403, "5xx"] } ] }"#;

/// Counts what the response says, and takes 10 of 100 before.
const TOKENS: &str = r#"{ "rules": [
    { "name": "tokens", "key": [{ "header": "x-api-key" }], "limits": ["100/1h", "1000/1d"],
      "cost": { "response_header": "x-tokens", "max": 500, "default": 5, "reserve": 10 } } ] }"#;

fn request(host: &MockHost, engine: &mut Engine, key: &str) -> Option<Passage> {
    host.bring(&[("x-api-key", key.as_bytes())]);
    match engine.on_request(host, 1) {
        Verdict::Continue(passage) => Some(passage),
        Verdict::Answered | Verdict::Wait(_) => None,
    }
}

/// A request of ana's with this response; false if it was denied.
fn answered(host: &MockHost, engine: &mut Engine, status: &str, headers: &[(&str, &[u8])]) -> bool {
    let Some(mut passage) = request(host, engine, "ana") else { return false };
    host.respond(status, headers);
    engine.on_response(host, &mut passage);
    // The host deletes every stream.
    engine.on_no_response(host, &mut passage);
    true
}

/// How many tokens of its hundred a key has left, found out by a rule of the same name that takes them one by one.
fn tokens_left(host: &MockHost) -> usize {
    let rule = r#"{ "name": "tokens", "key": [{ "header": "x-api-key" }], "limits": ["100/1h", "1000/1d"] }"#;
    let sibling = host.sibling(&format!(r#"{{ "rules": [{rule}] }}"#));
    let data = host.data.borrow().clone();
    let left = sibling.admitted(&mut sibling.engine(), "ana", 200);
    *host.data.borrow_mut() = data;
    left
}

#[test]
fn only_the_listed_statuses_are_counted() {
    let host = MockHost::new(LOGIN);
    let mut engine = host.engine();
    for _ in 0..20 {
        assert!(answered(&host, &mut engine, "200", &[]));
        assert!(answered(&host, &mut engine, "302", &[]));
    }
    for status in ["401", "403", "502"] {
        assert!(answered(&host, &mut engine, status, &[]), "{status}");
    }
    assert!(!answered(&host, &mut engine, "200", &[]), "three wrong passwords are enough");
    assert!(request(&host, &mut engine, "ben").is_some(), "others are not concerned");
    engine.on_tick(&host);
    for metric in ["errors", "undos_lost", "cas_give_ups"] {
        assert_eq!(host.metric(&format!("tidegate_{metric}")), 0, "{metric}");
    }
}

#[test]
fn what_runs_at_once_is_bounded_by_the_reservation_and_a_denial_ends_with_a_refund() {
    let host = MockHost::new(LOGIN);
    let mut engine = host.engine();
    let mut running: Vec<Passage> = (0..10).filter_map(|_| request(&host, &mut engine, "ana")).collect();
    assert_eq!(running.len(), 3, "as many guesses at once as may be wrong");
    host.respond("200", &[]);
    engine.on_response(&host, &mut running[0]);
    assert!(request(&host, &mut engine, "ana").is_some(), "at once: the denial was not remembered");
    assert!(request(&host, &mut engine, "ana").is_none());
}

#[test]
fn a_response_is_settled_once() {
    let host = MockHost::new(LOGIN);
    let mut engine = host.engine();
    let mut first = request(&host, &mut engine, "ana").expect("admitted");
    for _ in 0..2 {
        assert!(answered(&host, &mut engine, "401", &[]));
    }
    host.respond("200", &[]);
    for _ in 0..5 {
        engine.on_response(&host, &mut first);
        engine.on_no_response(&host, &mut first);
    }
    assert!(answered(&host, &mut engine, "401", &[]), "one was given back");
    assert!(!answered(&host, &mut engine, "401", &[]), "and no more than one");
}

#[test]
fn who_leaves_before_the_response_gets_a_status_rule_back_but_pays_what_a_cost_reserved() {
    let host = MockHost::new(LOGIN);
    let mut engine = host.engine();
    for _ in 0..10 {
        let mut passage = request(&host, &mut engine, "ana").expect("given back each time");
        engine.on_no_response(&host, &mut passage);
    }
    let host = MockHost::new(TOKENS);
    let mut engine = host.engine();
    let mut passage = request(&host, &mut engine, "ana").expect("admitted");
    engine.on_no_response(&host, &mut passage);
    assert_eq!(tokens_left(&host), 90);
}

#[test]
fn the_response_names_the_cost() {
    let cases: [(&str, &[&[u8]], usize); 8] = [
        ("200", &[b"40"], 60),
        ("200", &[b"10"], 90),
        ("200", &[b"0"], 100),
        ("200", &[], 95),
        ("200", &[b"4", b"4"], 95),
        ("500", &[], 100),
        ("500", &[b"7"], 93),
        ("200", &[b"100"], 0),
    ];
    for (status, tokens, left) in cases {
        let host = MockHost::new(TOKENS);
        let mut engine = host.engine();
        let headers: Vec<(&str, &[u8])> = tokens.iter().map(|value| ("x-tokens", *value)).collect();
        assert!(answered(&host, &mut engine, status, &headers));
        assert_eq!(tokens_left(&host), left, "{status} {headers:?}");
    }
}

#[test]
fn more_than_there_is_becomes_a_debt_up_to_the_maximum() {
    let host = MockHost::new(
        TOKENS
            .replace(
                r#"["100/1h", "1000/1d"]"#,
                r#"[{ "requests": 100, "per": "1h", "algorithm": "token_bucket" }]"#,
            )
            .as_str(),
    );
    let mut engine = host.engine();
    assert!(answered(&host, &mut engine, "200", &[("x-tokens", b"99999")]));
    assert!(!answered(&host, &mut engine, "200", &[]));
    // 500 of 100 an hour: 400 must come back before 10 can be reserved.
    host.advance(4 * 3_600_000 + 300_000);
    assert!(!answered(&host, &mut engine, "200", &[]));
    host.advance(60_000);
    assert!(answered(&host, &mut engine, "200", &[]));
}

#[test]
fn a_refund_goes_to_the_window_that_it_was_taken_from() {
    let config = LOGIN.replace(
        r#"["3/1h"]"#,
        r#"[{ "requests": 3, "per": "1h", "algorithm": "fixed_window", "align": "clock" }]"#,
    );
    let host = MockHost::new(&config);
    let mut engine = host.engine();
    let mut old = request(&host, &mut engine, "ana").expect("admitted");
    host.advance(3_600_000);
    for _ in 0..3 {
        assert!(answered(&host, &mut engine, "401", &[]));
    }
    host.respond("200", &[]);
    engine.on_response(&host, &mut old);
    assert!(!answered(&host, &mut engine, "401", &[]), "the old window's refund is no gift to the new one");
}

#[test]
fn shadow_rules_reserve_and_settle_too() {
    let host = MockHost::new(&LOGIN.replace(r#""count_status""#, r#""mode": "shadow", "count_status""#));
    let mut engine = host.engine();
    for status in ["200", "401", "200", "401", "401", "200", "200"] {
        assert!(answered(&host, &mut engine, status, &[]));
    }
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_shadow_denied_rule_login"), 2);
}

#[test]
fn a_request_that_another_rule_denies_reserves_nothing() {
    let config = LOGIN.replace(
        r#""rules": ["#,
        r#""rules": [{ "name": "closed", "match": { "path": "/closed" }, "key": ["client_ip"], "limits": ["0/1h"] },"#,
    );
    let host = MockHost::new(&config);
    let mut engine = host.engine();
    for _ in 0..5 {
        host.bring_to("GET", "/closed", &[("x-api-key", b"ana")]);
        assert!(matches!(engine.on_request(&host, 1), Verdict::Answered));
    }
    assert_eq!((0..5).filter(|_| answered(&host, &mut engine, "401", &[])).count(), 3);
}

#[test]
fn the_budget_of_a_settlement() {
    let host = MockHost::new(LOGIN);
    let mut engine = host.engine();
    let mut calls = |status: &str| {
        host.take_calls();
        let mut passage = request(&host, &mut engine, "ana").expect("admitted");
        assert_eq!(host.take_calls(), [Call::Headers, Call::Time, Call::Get, Call::Set]);
        host.respond(status, &[]);
        engine.on_response(&host, &mut passage);
        let calls = host.take_calls();
        assert!(passage.is_empty());
        calls
    };
    assert_eq!(calls("401"), [Call::ResponseHeaders], "what was reserved is what is charged");
    assert_eq!(calls("200"), [Call::ResponseHeaders, Call::Time, Call::Get, Call::Set]);
}

#[test]
fn a_refund_that_cannot_be_made_waits_for_a_tick() {
    for call in [Call::Time, Call::Get, Call::Set] {
        for status in [Status::CasMismatch, Status::Other(10)] {
            let host = MockHost::new(LOGIN);
            let mut engine = host.engine();
            let mut running: Vec<Passage> =
                (0..3).map(|_| request(&host, &mut engine, "ana").expect("admitted")).collect();
            host.fault.set(Some(Fault { call, status, after: 0, times: 32 }));
            host.respond("200", &[]);
            engine.on_response(&host, &mut running[0]);
            host.fault.set(None);
            assert!(request(&host, &mut engine, "ana").is_none(), "{call:?} {status:?}");
            engine.on_tick(&host);
            assert!(request(&host, &mut engine, "ana").is_some(), "{call:?} {status:?}");
            assert!(request(&host, &mut engine, "ana").is_none(), "{call:?} {status:?}");
            engine.on_end(&host);
            assert_eq!(host.metric("tidegate_undos_lost"), 0);
        }
    }
}

#[test]
fn a_refund_that_is_lost_with_the_plugin_is_counted() {
    let host = MockHost::new(LOGIN);
    let mut engine = host.engine();
    let mut passage = request(&host, &mut engine, "ana").expect("admitted");
    host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: usize::MAX }));
    host.respond("200", &[]);
    engine.on_response(&host, &mut passage);
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_undos_lost"), 0, "it still waits");
    engine.on_end(&host);
    assert_eq!(host.metric("tidegate_undos_lost"), 1);
}

#[test]
fn refunds_are_bounded_and_what_is_dropped_is_counted() {
    let host = MockHost::new(LOGIN);
    let mut engine = host.engine();
    let mut running: Vec<Passage> =
        (0..1_100).map(|key| request(&host, &mut engine, &key.to_string()).expect("admitted")).collect();
    host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: usize::MAX }));
    host.respond("200", &[]);
    for passage in &mut running {
        engine.on_response(&host, passage);
    }
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_undos_lost"), 1_100 - 1_024);
}

#[test]
fn a_charge_that_cannot_be_made_is_owed_and_paid() {
    for call in [Call::Time, Call::Get, Call::Set] {
        let host = MockHost::new(TOKENS);
        let mut engine = host.engine();
        let mut passage = request(&host, &mut engine, "ana").expect("admitted");
        host.fault.set(Some(Fault { call, status: Status::Other(10), after: 0, times: 1 }));
        host.respond("200", &[("x-tokens", b"95")]);
        engine.on_response(&host, &mut passage);
        assert!(request(&host, &mut engine, "ana").is_none(), "{call:?}: this VM knows");
        engine.on_tick(&host);
        assert_eq!(tokens_left(&host), 5, "{call:?}: and now all do");
    }
}

#[test]
fn a_reservation_that_is_only_owed_is_forgiven_and_not_given_back() {
    let host = MockHost::new(LOGIN);
    let mut engine = host.engine();
    assert!(answered(&host, &mut engine, "401", &[]));
    host.fault.set(Some(Fault { call: Call::Set, status: Status::Other(10), after: 0, times: 1 }));
    let mut passage = request(&host, &mut engine, "ana").expect("admitted, and its charge owed");
    host.take_calls();
    host.respond("200", &[]);
    engine.on_response(&host, &mut passage);
    assert_eq!(host.take_calls(), [Call::ResponseHeaders, Call::Time], "nothing was taken from the table");
    engine.on_tick(&host);
    assert_eq!((0..5).filter(|_| answered(&host, &mut engine, "401", &[])).count(), 2);
}

#[test]
fn a_response_that_the_host_does_not_show_settles_as_if_there_were_none() {
    for (config, left) in [(LOGIN, 3), (TOKENS, 9)] {
        let host = MockHost::new(config);
        let mut engine = host.engine();
        let mut passage = request(&host, &mut engine, "ana").expect("admitted");
        host.fault.set(Some(Fault {
            call: Call::ResponseHeaders,
            status: Status::Other(10),
            after: 0,
            times: 1,
        }));
        engine.on_response(&host, &mut passage);
        let running = (0..20).filter(|_| request(&host, &mut engine, "ana").is_some()).count();
        assert_eq!(running, left);
        engine.on_tick(&host);
        assert_eq!(host.metric("tidegate_errors"), 1);
    }
}

#[test]
fn ratelimit_headers_come_with_a_settlement_too() {
    let host = MockHost::new(&LOGIN.replacen('{', r#"{ "response": { "headers": "ratelimit" },"#, 1));
    let mut engine = host.engine();
    let mut passage = request(&host, &mut engine, "ana").expect("admitted");
    host.respond("200", &[]);
    engine.on_response(&host, &mut passage);
    assert_eq!(host.response_headers.borrow().len(), 2);
}
