//! What routes say themselves, by their metadata.

use crate::mock::{Call, Flavour, MockHost};
use tidegate_filter::{Engine, Verdict};

const CONFIG: &str = r#"{ "route_metadata": true, "rules": [
    { "name": "all", "key": [{ "header": "x-api-key" }], "limits": ["5/1h"], "overridable": true },
    { "name": "firm", "key": [{ "header": "x-api-key" }], "limits": ["9/1h"] } ] }"#;

const PROPERTY: &str = "xds.route_metadata.filter_metadata.tidegate.limits";

fn route(host: &MockHost, text: &str) {
    let mut properties = host.properties.borrow_mut();
    if text.is_empty() {
        properties.remove(PROPERTY);
    } else {
        properties.insert(PROPERTY.into(), text.into());
    }
}

/// How many of 20 requests of a key pass on a route with this metadata.
fn of_twenty(host: &MockHost, engine: &mut Engine, text: &str, key: &str) -> usize {
    route(host, text);
    host.admitted(engine, key, 20)
}

const TIGHT: &str = r#"{ "tighten": { "all": ["2/1h"] } }"#;
const ADDED: &str =
    r#"{ "rules": [{ "name": "own", "key": [{ "header": "x-api-key" }], "limits": ["3/1h"] }] }"#;

#[test]
fn three_routes_have_three_limits() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    assert_eq!(of_twenty(&host, &mut engine, "", "ana"), 5);
    assert_eq!(of_twenty(&host, &mut engine, TIGHT, "ben"), 2);
    assert_eq!(of_twenty(&host, &mut engine, ADDED, "cleo"), 3);
    let reply = String::from_utf8(host.last_reply().body).expect("text");
    assert!(reply.contains(r#"["own"]"#), "{reply}");
}

#[test]
fn a_tightened_limit_counts_where_the_rule_does_and_holds_on_its_route_only() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    assert_eq!(of_twenty(&host, &mut engine, TIGHT, "ana"), 2);
    // Denied a moment ago there, but here there are three left.
    assert_eq!(of_twenty(&host, &mut engine, "", "ana"), 3);
    assert_eq!(of_twenty(&host, &mut engine, TIGHT, "ana"), 0);
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_allowed_rule_all"), 5, "with the metrics of the rule");
}

#[test]
fn added_rules_of_one_name_count_together_each_with_its_own_limit() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    let more = ADDED.replace("3/1h", "4/1h");
    assert_eq!(of_twenty(&host, &mut engine, ADDED, "ana"), 3);
    assert_eq!(of_twenty(&host, &mut engine, &more, "ana"), 1);
    assert_eq!(of_twenty(&host, &mut engine, ADDED, "ana"), 0);
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_allowed_rule__route_metadata"), 4);
    assert_eq!(host.metric("tidegate_denied_rule__route_metadata"), 17 + 19 + 20);
}

#[test]
fn bad_metadata_leaves_the_rules_standing_and_is_counted() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    let bad = [
        "{",
        r#"{ "tighten": { "all": ["6/1h"] } }"#,
        r#"{ "tighten": { "firm": ["1/1h"] } }"#,
        r#"{ "rules": [{ "name": "own", "key": ["client_ip"], "limits": ["0/1h"] }], "enabled": false }"#,
        r#"{ "rules": [{ "name": "own", "key": ["client_ip"], "limits": ["0/1h"], "global": { "mode": "exact" } }] }"#,
    ];
    for (key, text) in bad.iter().enumerate() {
        assert_eq!(of_twenty(&host, &mut engine, text, &key.to_string()), 5, "{text}");
    }
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_route_metadata_errors"), 100);
    assert_eq!(host.metric("tidegate_errors"), 0);
}

#[test]
fn a_route_can_add_what_needs_a_large_slot_and_what_charges_after_the_response() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    let log = r#"{ "rules": [{ "name": "log", "key": [{ "header": "x-api-key" }],
        "limits": [{ "requests": 2, "per": "1h", "algorithm": "sliding_log" }] }] }"#;
    assert_eq!(of_twenty(&host, &mut engine, log, "ana"), 2);
    let after = ADDED.replace(r#""limits""#, r#""count_status": [401], "limits""#);
    route(&host, &after);
    for status in ["200", "200", "200", "200"] {
        host.bring(&[("x-api-key", b"ben")]);
        let Verdict::Continue(mut passage) = engine.on_request(&host, 1) else { panic!("denied") };
        // The route's text may be forgotten meanwhile.
        for number in 0..100 {
            of_twenty(&host, &mut engine, &ADDED.replace("own", &format!("own{number}")), "other");
        }
        route(&host, &after);
        host.respond(status, &[]);
        engine.on_response(&host, &mut passage);
    }
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_route_metadata_errors"), 0);
}

#[test]
fn metadata_alone_will_do() {
    let host = MockHost::new(r#"{ "route_metadata": true, "rules": [] }"#);
    let mut engine = host.engine();
    assert_eq!(of_twenty(&host, &mut engine, "", "ana"), 20);
    assert_eq!(of_twenty(&host, &mut engine, ADDED, "ana"), 3);
}

#[test]
fn it_costs_one_property_and_only_where_asked() {
    let expected = [Call::Headers, Call::Property, Call::Time, Call::Get, Call::Get, Call::Set, Call::Set];
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    route(&host, TIGHT);
    host.take_calls();
    assert!(host.admits(&mut engine, "ana"));
    assert_eq!(host.take_calls(), expected);
    let host = MockHost::new(&CONFIG.replace("true", "false"));
    let mut engine = host.engine();
    route(&host, TIGHT);
    host.take_calls();
    assert_eq!(host.admitted(&mut engine, "ana", 20), 5);
    assert!(!host.take_calls().contains(&Call::Property));
}

#[test]
fn a_text_is_read_once_and_again_only_after_many_others() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    assert_eq!(of_twenty(&host, &mut engine, TIGHT, "ana"), 2);
    // The VM remembers a denial by the rule that it read then; read anew it would be another.
    let remembers = |engine: &mut Engine| {
        route(&host, TIGHT);
        host.take_calls();
        assert!(!host.admits(engine, "ana"));
        !host.take_calls().contains(&Call::Get)
    };
    let mut others = 0..;
    let mut others = |engine: &mut Engine, count: usize| {
        for number in others.by_ref().take(count) {
            of_twenty(&host, engine, &ADDED.replace("own", &format!("own{number}")), "ben");
        }
    };
    assert!(remembers(&mut engine));
    others(&mut engine, 63);
    assert!(remembers(&mut engine), "63 others: still known");
    others(&mut engine, 1);
    assert!(!remembers(&mut engine), "64 others: forgotten, and read again");
    assert!(remembers(&mut engine));
}

#[test]
fn kong_has_none_and_is_not_asked() {
    let mut host = MockHost::new(CONFIG);
    host.flavour = Flavour::Kong;
    let mut engine = host.engine();
    host.take_calls();
    assert_eq!(of_twenty(&host, &mut engine, TIGHT, "ana"), 5);
    assert!(!host.take_calls().contains(&Call::Property));
}

#[test]
fn a_config_that_is_switched_off_asks_for_none() {
    let host = MockHost::new(&CONFIG.replacen('{', r#"{ "enabled": false,"#, 1));
    let mut engine = host.engine();
    host.take_calls();
    assert_eq!(of_twenty(&host, &mut engine, TIGHT, "ana"), 20);
    assert_eq!(host.take_calls(), []);
}
