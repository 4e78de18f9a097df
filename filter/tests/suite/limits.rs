use crate::mock::MockHost;
use tidegate_filter::{HeaderPair, Passage, Verdict};

fn rule(name: &str, limits: &str, more: &str) -> String {
    format!(r#"{{ "name": "{name}", "key": [{{ "header": "x-api-key" }}], "limits": {limits} {more} }}"#)
}

fn config(rules: &[String]) -> String {
    format!(r#"{{ "response": {{ "headers": "both" }}, "rules": [{}] }}"#, rules.join(","))
}

fn header<'a>(headers: &'a [HeaderPair], name: &str) -> Option<&'a str> {
    headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

#[test]
fn each_key_gets_its_limit() {
    let host = MockHost::new(&config(&[rule("api", r#"["5/1h"]"#, "")]));
    let mut engine = host.engine();
    for key in ["ana", "ben", "cleo"] {
        assert_eq!(host.admitted(&mut engine, key, 20), 5, "{key}");
    }
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_allowed_rule_api"), 15);
    assert_eq!(host.metric("tidegate_denied_rule_api"), 45);
}

#[test]
fn the_vm_forgets_a_denial_at_its_retry_after() {
    let limit = r#"[{ "requests": 1, "per": "1s", "algorithm": "fixed_window", "align": "clock" }]"#;
    let host = MockHost::new(&config(&[rule("api", limit, "")]));
    let mut engine = host.engine();
    host.advance(700);
    assert_eq!(host.admitted(&mut engine, "ana", 3), 1);
    host.advance(299);
    assert!(!host.admits(&mut engine, "ana"));
    host.advance(1);
    assert!(host.admits(&mut engine, "ana"), "the window is over, 300 ms after the denial");
}

#[test]
fn all_rules_are_charged_or_none() {
    let rules = [rule("closed", r#"["0/1h"]"#, ""), rule("open", r#"["5/1h"]"#, "")];
    let host = MockHost::new(&config(&rules));
    let mut engine = host.engine();
    assert_eq!(host.admitted(&mut engine, "ana", 100), 0);
    let host = host.sibling(&config(&rules[1..]));
    let mut engine = host.engine();
    assert_eq!(host.admitted(&mut engine, "ana", 100), 5, "the rule that said yes was not charged");
}

#[test]
fn all_limits_of_a_rule_are_charged_or_none() {
    let host = MockHost::new(&config(&[rule("api", r#"["3/1h", "5/1d"]"#, "")]));
    let mut engine = host.engine();
    assert_eq!(host.admitted(&mut engine, "ana", 50), 3);
    host.advance(3 * 3_600_000);
    assert_eq!(host.admitted(&mut engine, "ana", 50), 2, "47 denied requests did not eat the day's limit");
}

#[test]
fn a_denial_says_which_limit_and_when() {
    let host = MockHost::new(&config(&[rule("login", r#"["1/1m", "9/1d"]"#, "")]));
    let mut engine = host.engine();
    assert_eq!(host.admitted(&mut engine, "ana", 2), 1);
    let reply = host.last_reply();
    assert_eq!(reply.status, 429);
    let retry_after: u64 = header(&reply.headers, "retry-after").expect("there").parse().expect("a number");
    assert!((1..=120).contains(&retry_after), "{retry_after}");
    assert_eq!(header(&reply.headers, "x-envoy-ratelimited"), Some("true"));
    assert_eq!(header(&reply.headers, "content-type"), Some("application/problem+json"));
    assert_eq!(header(&reply.headers, "ratelimit-policy"), Some(r#""login-1m";q=1;w=60"#));
    let expected = format!(r#""login-1m";r=0;t={retry_after}"#);
    assert_eq!(header(&reply.headers, "ratelimit"), Some(expected.as_str()));
    assert_eq!(header(&reply.headers, "x-ratelimit-limit"), Some("1"));
    assert_eq!(header(&reply.headers, "x-ratelimit-remaining"), Some("0"));
    let body = String::from_utf8(reply.body).expect("text");
    assert!(body.contains(r#""violated-policies": ["login-1m"]"#), "{body}");
    assert!(body.contains("#quota-exceeded"), "{body}");
    assert_eq!(
        *host.access_log.borrow(),
        [format!("tidegate: outcome=denied rule=login remaining=0 retry_after={retry_after}")]
    );
}

#[test]
fn a_denial_for_good_has_no_retry_after() {
    let host = MockHost::new(&config(&[rule("closed", r#"["0/1h"]"#, "")]));
    let mut engine = host.engine();
    assert!(!host.admits(&mut engine, "ana"));
    let reply = host.last_reply();
    assert_eq!(header(&reply.headers, "retry-after"), None);
    assert_eq!(*host.access_log.borrow(), ["tidegate: outcome=denied rule=closed remaining=0"]);
}

#[test]
fn an_allowed_response_names_every_limit_the_most_constrained_first() {
    let host =
        MockHost::new(&config(&[rule("wide", r#"["100/1h"]"#, ""), rule("narrow", r#"["2/1m"]"#, "")]));
    let mut engine = host.engine();
    host.bring(&[("x-api-key", b"ana")]);
    let Verdict::Continue(Passage { headers, .. }) = engine.on_request(&host, 1) else { panic!("denied") };
    assert_eq!(header(&headers, "ratelimit-policy"), Some(r#""narrow";q=2;w=60, "wide";q=100;w=3600"#));
    let ratelimit = header(&headers, "ratelimit").expect("there");
    assert!(
        ratelimit.starts_with(r#""narrow";r=1;t="#) && ratelimit.contains(r#", "wide";r=99;t="#),
        "{ratelimit}"
    );
    assert_eq!(header(&headers, "x-ratelimit-remaining"), Some("1"));
}

#[test]
fn the_rule_that_holds_longest_answers() {
    let rules = [rule("minute", r#"["1/1m"]"#, ""), rule("day", r#"["1/1d"]"#, "")];
    let host = MockHost::new(&config(&rules));
    let mut engine = host.engine();
    assert_eq!(host.admitted(&mut engine, "ana", 2), 1);
    let body = String::from_utf8(host.last_reply().body).expect("text");
    assert!(body.contains(r#"["day"]"#), "{body}");
}

#[test]
fn shadow_lets_through_counts_and_says_so() {
    let rules = [rule("tried", r#"["2/1h"]"#, r#", "mode": "shadow""#), rule("real", r#"["9/1h"]"#, "")];
    let host = MockHost::new(&config(&rules));
    let mut engine = host.engine();
    assert_eq!(host.admitted(&mut engine, "ana", 12), 9);
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_allowed_rule_tried"), 2);
    assert_eq!(host.metric("tidegate_shadow_denied_rule_tried"), 10, "whether the other rule denies or not");
    assert_eq!(host.metric("tidegate_denied_rule_tried"), 0);
    assert_eq!(host.metric("tidegate_denied_rule_real"), 3);
    let log = host.access_log.borrow();
    assert!(
        log[0].starts_with("tidegate: outcome=shadow_denied rule=tried remaining=0 retry_after="),
        "{}",
        log[0]
    );
}

#[test]
fn requests_without_one_clear_key_share_a_bucket() {
    let host = MockHost::new(&config(&[rule("api", r#"["2/1h"]"#, "")]));
    let mut engine = host.engine();
    let mut admitted = 0;
    let requests: [&[(&str, &[u8])]; 6] = [
        &[],
        &[("x-api-key", b"")],
        &[("x-api-key", b"a"), ("x-api-key", b"real")],
        &[("x-api-key", b"b"), ("x-api-key", b"real")],
        &[("x-api-key", b"c"), ("x-api-key", b"real")],
        &[("cookie", b"x")],
    ];
    for headers in requests {
        host.bring(headers);
        admitted += usize::from(matches!(engine.on_request(&host, 1), Verdict::Continue(_)));
    }
    assert_eq!(admitted, 2);
    assert!(host.admits(&mut engine, "real"), "who names one key has its own bucket");
}

#[test]
fn a_path_cannot_be_written_round_its_rule() {
    let login = r#", "match": { "path": "/login", "method": "POST" }"#;
    let host = MockHost::new(&config(&[rule("login", r#"["1/1h"]"#, login)]));
    let mut engine = host.engine();
    let mut admitted = 0;
    for path in ["/login", "//login", "/%6cogin", "/./login", "/x/../login", "/login?a=b", "/%6Cogin#x"] {
        host.bring_to("POST", path, &[]);
        admitted += usize::from(matches!(engine.on_request(&host, 1), Verdict::Continue(_)));
    }
    assert_eq!(admitted, 1);
}

#[test]
fn addresses_of_one_network_are_one_client() {
    let config = r#"{ "rules": [{ "name": "ip", "key": ["client_ip"], "limits": ["1/1h"] }] }"#;
    let host = MockHost::new(config);
    let mut engine = host.engine();
    let mut admits = |address: &str| {
        *host.client.borrow_mut() = address.to_owned();
        host.admits(&mut engine, "-")
    };
    assert!(admits("10.0.0.1:1"));
    assert!(!admits("10.0.0.1:2"), "another port is the same client");
    assert!(admits("10.0.0.2:1"));
    assert!(admits("[2001:db8::1]:1"));
    assert!(!admits("[2001:db8::2]:1"), "one /64");
    assert!(admits("[2001:db8:0:1::1]:1"));
    assert!(!admits("[::ffff:10.0.0.2]:1"), "an IPv4 address written as IPv6");
}
