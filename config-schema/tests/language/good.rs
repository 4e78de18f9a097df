//! Files that are accepted, and what they mean.

use tidegate_config::{
    Align, Config, HeaderFamily, KeyPart, Match, Mode, PathMatch, Response, Rule, RuleLimit, Table, WhenFull,
};
use tidegate_core::{Algorithm, Limit};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

pub(crate) const MINIMAL: &str = include_str!("../good/minimal.json");
pub(crate) const NO_RULES: &str = include_str!("../good/no_rules.json");
pub(crate) const EVERY_FIELD: &str = include_str!("../good/every_field.json");
pub(crate) const BOUNDS: &str = include_str!("../good/bounds.json");
pub(crate) const ALL: [&str; 4] = [MINIMAL, NO_RULES, EVERY_FIELD, BOUNDS];

pub(crate) fn read(json: &str) -> Config {
    Config::from_json(json.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn limit(algorithm: Algorithm, requests: u64, window_ms: u64, align: Align) -> RuleLimit {
    RuleLimit { limit: Limit::new(algorithm, requests, window_ms).unwrap(), align }
}

#[test]
fn a_minimal_config_has_its_defaults() {
    let rule = Rule {
        name: "login".to_owned(),
        matches: Match { path: None, methods: Vec::new() },
        key: vec![KeyPart::ClientIp],
        limits: vec![limit(Algorithm::SlidingWindow, 100, 60_000, Align::Key)],
        mode: Mode::Enforce,
        when_full: WhenFull::Strict,
    };
    let expected = Config {
        namespace: None,
        table: Table { slots: 16_384 },
        response: Response { headers: HeaderFamily::None },
        rules: vec![rule],
    };
    assert_eq!(read(MINIMAL), expected);
}

#[test]
fn a_config_without_rules_is_the_default_one() {
    assert_eq!(read(NO_RULES), Config::default());
}

#[test]
fn every_field_arrives() {
    let login = Rule {
        name: "login".to_owned(),
        matches: Match {
            path: Some(PathMatch::Exact("/login".to_owned())),
            methods: vec!["POST".to_owned()],
        },
        key: vec![KeyPart::ClientIp],
        limits: vec![limit(Algorithm::SlidingWindow, 100, 60_000, Align::Key)],
        mode: Mode::Shadow,
        when_full: WhenFull::Lenient,
    };
    let per_key = Rule {
        name: "per-key".to_owned(),
        matches: Match {
            path: Some(PathMatch::Prefix("/api/".to_owned())),
            methods: vec!["GET".to_owned(), "POST".to_owned()],
        },
        key: vec![KeyPart::Header("x-api-key".to_owned()), KeyPart::ClientIp],
        limits: vec![
            limit(Algorithm::SlidingWindow, 10, 1_000, Align::Key),
            limit(Algorithm::FixedWindow, 1_000, 3_600_000, Align::Clock),
        ],
        mode: Mode::Enforce,
        when_full: WhenFull::Lenient,
    };
    let expected = Config {
        namespace: Some("edge".to_owned()),
        table: Table { slots: 1_024 },
        response: Response { headers: HeaderFamily::RateLimit },
        rules: vec![login, per_key],
    };
    assert_eq!(read(EVERY_FIELD), expected);
}

#[test]
fn every_bound_can_be_reached() {
    let config = read(BOUNDS);
    assert_eq!(config.table.slots, tidegate_config::SLOTS_MAX);
    let [rule] = config.rules.as_slice() else { panic!("one rule expected") };
    assert_eq!(rule.limits.len(), tidegate_config::LIMITS_MAX);
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
