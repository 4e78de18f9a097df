//! Files that are accepted, and what they mean.

use tidegate_config::{
    Align, ClientAddress, Config, Cost, HeaderFamily, KeyMissing, KeyPart, KeySource, LimitSet, Match, Mode,
    Response, Rule, RuleLimit, Table, WhenFull,
};
use tidegate_core::{Algorithm, Limit, Window};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

pub(crate) const MINIMAL: &str = include_str!("../good/minimal.json");
pub(crate) const NO_RULES: &str = include_str!("../good/no_rules.json");
pub(crate) const EVERY_FIELD: &str = include_str!("../good/every_field.json");
pub(crate) const BOUNDS: &str = include_str!("../good/bounds.json");
pub(crate) const ONLY_ROUTES: &str = include_str!("../good/only_routes.json");
pub(crate) const ALL: [&str; 5] = [MINIMAL, NO_RULES, EVERY_FIELD, BOUNDS, ONLY_ROUTES];

pub(crate) fn read(json: &str) -> Config {
    Config::from_json(json.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn a_minimal_config_has_its_defaults() {
    let limit =
        RuleLimit { limit: Limit::sliding_window(100, 60_000).unwrap(), align: Align::Key, is_leaky: false };
    let rule = Rule {
        name: "login".to_owned(),
        route: None,
        matches: Match::default(),
        key: vec![KeyPart { source: KeySource::ClientIp, lowercase: false }],
        key_missing: KeyMissing::Shared,
        limit_sets: vec![LimitSet { plan: None, limits: vec![limit] }],
        plans: None,
        exempt: None,
        deny: None,
        cost: Cost::default(),
        count_denied: false,
        count_status: None,
        mode: Mode::Enforce,
        enforced_percent: 100,
        response: None,
        when_full: WhenFull::Strict,
        overridable: false,
        global: None,
    };
    let expected = Config {
        enabled: true,
        namespace: None,
        client_ip: ClientAddress { trusted_hops: 0, ipv4_prefix: 32, ipv6_prefix: 64 },
        table: Table { slots: 16_384, large_keys: 1_024 },
        response: Response::default(),
        counter: None,
        rules: vec![rule],
        route_metadata: false,
    };
    assert_eq!(read(MINIMAL), expected);
}

#[test]
fn a_config_without_rules_is_the_default_one() {
    assert_eq!(read(NO_RULES), Config::default());
}

#[test]
fn every_field_arrives_and_is_written_again() {
    let config = read(EVERY_FIELD);
    assert_eq!((config.enabled, config.route_metadata, config.rules.len()), (false, true, 6));
    assert_eq!(config.response.with(config.rules[0].response.as_ref().unwrap()).status, 429);
    assert_eq!(config.response.headers, HeaderFamily::RateLimit);
    assert_eq!(config.rules[5].route.as_deref(), Some("search"));
    let windows: Vec<Window> = config.rules[0].limits(0).iter().map(|limit| limit.limit.window()).collect();
    assert_eq!(windows, [Window::Ms(60_000), Window::Day, Window::Month]);
    let leaky = config.rules[2].limits(1)[1];
    assert_eq!(leaky.limit.algorithm(), Algorithm::TokenBucket { burst: 1, warm_up_ms: 0 });
    for text in ALL {
        let config = read(text);
        assert_eq!(read(&config.to_json()), config);
    }
    assert!(!format!("{config:?}").contains("s3cret"), "a secret must not be shown");
}

#[test]
fn every_bound_can_be_reached() {
    let config = read(BOUNDS);
    assert_eq!(config.table.slots, tidegate_config::SLOTS_MAX);
    let [rule] = config.rules.as_slice() else { panic!("one rule expected") };
    assert_eq!(rule.limits(0).len(), tidegate_config::LIMITS_MAX);
    assert_eq!(rule.key.len(), tidegate_config::KEY_PARTS_MAX);
    assert_eq!((rule.mode, rule.when_full), (Mode::Off, WhenFull::Strict));
}

#[test]
fn header_families() {
    let cases = [
        ("none", false, false),
        ("ratelimit", true, false),
        ("x-ratelimit", false, true),
        ("both", true, true),
    ];
    for (word, has_ratelimit, has_x_ratelimit) in cases {
        let config = read(&format!(r#"{{"response": {{"headers": "{word}"}}, "rules": []}}"#));
        let family = config.response.headers;
        assert_eq!(
            (family.has_ratelimit(), family.has_x_ratelimit()),
            (has_ratelimit, has_x_ratelimit),
            "{word}"
        );
    }
}
