//! What the config language can say, honoured by the filter.

use crate::mock::{Call, Flavour, MockHost};
use tidegate_filter::{Engine, Reply, Verdict};

fn config(rule: &str) -> String {
    format!(r#"{{ "rules": [{rule}] }}"#)
}

fn passes(host: &MockHost, engine: &mut Engine, method: &str, path: &str, headers: &[(&str, &[u8])]) -> bool {
    host.bring_to(method, path, headers);
    matches!(engine.on_request(host, 1), Verdict::Continue(_))
}

/// How many of ten GETs of a path pass.
fn of_ten(host: &MockHost, engine: &mut Engine, path: &str, headers: &[(&str, &[u8])]) -> usize {
    (0..10).filter(|_| passes(host, engine, "GET", path, headers)).count()
}

fn header(reply: &Reply, name: &str) -> Option<String> {
    reply.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
}

#[test]
fn each_plan_has_its_limit_and_a_changed_plan_keeps_the_count() {
    let rule = r#"{ "name": "plans", "key": [{ "header": "x-api-key" }], "plans": {
        "default": "free", "limits": { "free": ["2/1h"], "pro": ["5/1h"] }, "members": { "pro": ["ben"] } } }"#;
    let host = MockHost::new(&config(rule));
    let mut engine = host.engine();
    assert_eq!(of_ten(&host, &mut engine, "/", &[("x-api-key", b"ana")]), 2);
    assert_eq!(of_ten(&host, &mut engine, "/", &[("x-api-key", b"ben")]), 5);
    let host = host.sibling(&config(&rule.replace(r#"["ben"]"#, r#"["ana", "ben"]"#)));
    let mut engine = host.engine();
    assert_eq!(of_ten(&host, &mut engine, "/", &[("x-api-key", b"ana")]), 3, "two were taken as free");
}

#[test]
fn a_route_has_its_own_rules_on_either_host() {
    let config = r#"{ "routes": { "search": { "rules": [
        { "name": "search", "key": [{ "constant": "all" }], "limits": ["3/1h"] } ] } } }"#;
    for (flavour, property) in [(Flavour::Envoy, "xds.route_name"), (Flavour::Kong, "kong.route_name")] {
        let mut host = MockHost::new(config);
        host.flavour = flavour;
        let mut engine = host.engine();
        assert_eq!(of_ten(&host, &mut engine, "/", &[]), 10, "no route is another route");
        host.properties.borrow_mut().insert(property.into(), b"search".to_vec());
        assert_eq!(of_ten(&host, &mut engine, "/", &[]), 3);
    }
}

#[test]
fn keys_come_from_every_source() {
    let claim = "metadata.filter_metadata.envoy.filters.http.jwt_authn.jwt_payload.org";
    let parts = [
        (r#"{ "query": "user" }"#, "/?user=A", "/?user=B"),
        (r#"{ "path_segment": "org" }"#, "/orgs/A", "/orgs/B"),
        (r#""method""#, "/", "/"),
    ];
    for (part, one, other) in parts {
        let matches = if part.contains("path_segment") {
            r#""match": { "path_template": "/orgs/{org}" },"#
        } else {
            ""
        };
        let rule = format!(r#"{{ "name": "r", {matches} "key": [{part}], "limits": ["1/1h"] }}"#);
        let host = MockHost::new(&config(&rule));
        let mut engine = host.engine();
        assert!(passes(&host, &mut engine, "GET", one, &[]), "{part}");
        assert!(!passes(&host, &mut engine, "GET", one, &[]), "{part}");
        let method = if part.contains("method") { "PUT" } else { "GET" };
        assert!(passes(&host, &mut engine, method, other, &[]), "{part}");
    }
    for (part, property) in
        [(r#"{ "jwt": "org" }"#, claim), (r#""mtls_uri_san""#, "connection.uri_san_peer_certificate")]
    {
        let host =
            MockHost::new(&config(&format!(r#"{{ "name": "r", "key": [{part}], "limits": ["1/1h"] }}"#)));
        let mut engine = host.engine();
        for value in ["one", "two"] {
            host.properties.borrow_mut().insert(property.into(), value.into());
            assert!(passes(&host, &mut engine, "GET", "/", &[]), "{part} {value}");
            assert!(!passes(&host, &mut engine, "GET", "/", &[]), "{part} {value}");
        }
    }
    let host =
        MockHost::new(&config(r#"{ "name": "r", "key": [{ "cookie": "id" }, "host"], "limits": ["1/1h"] }"#));
    let mut engine = host.engine();
    let mut asks = |cookie: &[u8], authority: &[u8]| {
        passes(&host, &mut engine, "GET", "/", &[("cookie", cookie), (":authority", authority)])
    };
    assert!(asks(b"a=b; id=7", b"example.com"));
    assert!(!asks(b"id=7", b"EXAMPLE.com:8080"));
    assert!(asks(b"id=8", b"example.com"));
    assert!(asks(b"id=7", b"example.org"));
}

#[test]
fn exempt_and_denied_clients_meet_no_counter() {
    let rule = r#"{ "name": "r", "key": [{ "header": "x-api-key" }], "limits": ["1/1h"],
        "exempt": { "values": ["vip"], "cidrs": ["10.9.0.0/16"] }, "deny": { "values": ["banned"] } }"#;
    let host = MockHost::new(&config(rule));
    let mut engine = host.engine();
    assert_eq!(of_ten(&host, &mut engine, "/", &[("x-api-key", b"vip")]), 10);
    host.take_calls();
    assert_eq!(of_ten(&host, &mut engine, "/", &[("x-api-key", b"banned")]), 0);
    assert!(!host.take_calls().contains(&Call::Get));
    let reply = host.last_reply();
    assert_eq!(header(&reply, "retry-after"), None, "waiting does not help");
    let body = String::from_utf8(reply.body).expect("text");
    assert!(body.contains("#abnormal-usage-detected") && body.contains(r#"["r"]"#), "{body}");
    assert_eq!(of_ten(&host, &mut engine, "/", &[("x-api-key", b"ana")]), 1);
    *host.client.borrow_mut() = "10.9.8.7:1".into();
    assert_eq!(of_ten(&host, &mut engine, "/", &[("x-api-key", b"ana")]), 10);
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_denied_rule_r"), 19);
}

#[test]
fn a_missing_key_is_shared_skipped_or_denied() {
    for (key_missing, expected) in [("shared", 2), ("skip", 10), ("deny", 0)] {
        let rule = format!(
            r#"{{ "name": "r", "key": [{{ "header": "x-api-key" }}], "limits": ["2/1h"], "key_missing": "{key_missing}" }}"#
        );
        let host = MockHost::new(&config(&rule));
        let mut engine = host.engine();
        assert_eq!(of_ten(&host, &mut engine, "/", &[]), expected, "{key_missing}");
        assert_eq!(of_ten(&host, &mut engine, "/", &[("x-api-key", b"ana")]), 2, "{key_missing}");
    }
}

#[test]
fn a_cost_is_charged_whole_or_not_at_all() {
    let rule = r#"{ "name": "r", "key": ["client_ip"], "limits": ["10/1h"],
        "cost": { "header": "x-cost", "default": 1, "max": 8 } }"#;
    let host = MockHost::new(&config(rule));
    let mut engine = host.engine();
    let mut costs = |cost: &[u8]| passes(&host, &mut engine, "GET", "/", &[("x-cost", cost)]);
    assert!(costs(b"7"));
    assert!(!costs(b"4"), "three are left");
    let said = host.access_log.borrow().last().cloned().unwrap_or_default();
    assert!(said.starts_with("tidegate: outcome=denied rule=r remaining=3 retry_after="), "{said}");
    assert!(costs(b"2"), "a smaller one passes, though a larger was denied just before");
    assert!(costs(b"what?"), "nonsense costs the default");
    assert!(!costs(b"1"));
}

#[test]
fn who_is_counted_when_denied_never_gets_in_without_a_pause() {
    let limit = r#"[{ "requests": 2, "per": "10s", "algorithm": "sliding_log" }]"#;
    let admitted = |count_denied: bool| {
        let rule = format!(
            r#"{{ "name": "r", "key": ["client_ip"], "limits": {limit}, "count_denied": {count_denied} }}"#
        );
        let host = MockHost::new(&config(&rule));
        let mut engine = host.engine();
        let mut admitted = 0;
        for _ in 0..100 {
            admitted += usize::from(passes(&host, &mut engine, "GET", "/", &[]));
            host.advance(1_000);
        }
        host.advance(10_000);
        assert!(passes(&host, &mut engine, "GET", "/", &[]), "who pauses gets in");
        admitted
    };
    assert_eq!(admitted(false), 20);
    assert_eq!(admitted(true), 2);
}

#[test]
fn a_denial_that_is_counted_costs_one_write() {
    let rule = r#"{ "name": "r", "key": [{ "constant": "x" }], "limits": ["0/1h"], "count_denied": true }"#;
    let host = MockHost::new(&config(rule));
    let mut engine = host.engine();
    host.take_calls();
    for _ in 0..2 {
        assert!(!passes(&host, &mut engine, "GET", "/", &[]));
        let expected = [Call::Headers, Call::Time, Call::Get, Call::Set, Call::SetProperty, Call::Reply];
        assert_eq!(host.take_calls(), expected);
    }
}

#[test]
fn a_share_of_keys_is_enforced_and_the_rest_in_shadow() {
    let rule =
        r#"{ "name": "r", "key": [{ "header": "x-api-key" }], "limits": ["1/1h"], "enforced_percent": 30 }"#;
    let host = MockHost::new(&config(rule));
    let mut engine = host.engine();
    let enforced = (0..1_000).filter(|key| host.admitted(&mut engine, &key.to_string(), 3) == 1).count();
    assert!((250..350).contains(&enforced), "{enforced} of 1000");
    engine.on_tick(&host);
    assert!(host.metric("tidegate_shadow_denied_rule_r") > 1_000);
}

#[test]
fn a_rule_answers_as_its_response_says() {
    let rule = r#"{ "name": "r", "key": ["client_ip"], "limits": ["1/1h"], "response": {
        "status": 503, "body": "{rule}: wait {retry_after} s, {limit} an hour", "extra_headers": { "x-why": "limits" },
        "headers": "x-ratelimit", "grpc": "unavailable" } }"#;
    let host = MockHost::new(&config(rule));
    let mut engine = host.engine();
    assert_eq!(of_ten(&host, &mut engine, "/", &[]), 1);
    let reply = host.last_reply();
    let wait = header(&reply, "retry-after").expect("there");
    assert_eq!((reply.status, reply.grpc_status), (503, 14));
    assert_eq!(String::from_utf8(reply.body.clone()).expect("text"), format!("r: wait {wait} s, 1 an hour"));
    assert_eq!(header(&reply, "x-why").as_deref(), Some("limits"));
    assert_eq!(header(&reply, "content-type").as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(header(&reply, "x-ratelimit-limit").as_deref(), Some("1"));
    assert_eq!(header(&reply, "ratelimit"), None);
}

#[test]
fn a_config_that_is_switched_off_costs_nothing() {
    let host = MockHost::new(
        r#"{ "enabled": false, "rules": [{ "name": "r", "key": ["client_ip"], "limits": ["0/1h"] }] }"#,
    );
    let mut engine = host.engine();
    host.take_calls();
    assert_eq!(of_ten(&host, &mut engine, "/", &[]), 10);
    assert_eq!(host.take_calls(), []);
}
