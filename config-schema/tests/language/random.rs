//! Random configs over the whole language, as JSON; what is written reads back as the same.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tidegate_config::Config;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

type Json = BoxedStrategy<Value>;

fn one_of(values: &[Value]) -> Json {
    prop::sample::select(values.to_vec()).boxed()
}

fn words(words: &[&str]) -> Json {
    one_of(&words.iter().map(|word| json!(word)).collect::<Vec<_>>())
}

/// An object with some of these fields.
fn some_of(fields: Vec<(&'static str, Json)>) -> Json {
    let fields = fields.into_iter().map(|(name, value)| (Just(name), prop::option::weighted(0.4, value)));
    let object = |fields: Vec<(&str, Option<Value>)>| {
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(given.collect())
    };
    fields.collect::<Vec<_>>().prop_map(object).boxed()
}

fn with(base: Json, more: Json) -> Json {
    (base, more)
        .prop_map(|(mut base, more)| {
            base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            base
        })
        .boxed()
}

/// One, or a list of several different ones.
fn one_or_more(values: &'static [&'static str]) -> Json {
    let list = prop::sample::subsequence(values, 1..=values.len()).prop_map(|list| json!(list));
    prop_oneof![words(values), list].boxed()
}

fn condition() -> Json {
    prop_oneof![
        one_or_more(&["1", "", "é"]),
        any::<bool>().prop_map(|is| json!({ "present": is })),
        one_or_more(&["a", "ab"]).prop_map(|prefix| json!({ "prefix": prefix })),
        Just(json!({ "equals": "1" })),
        Just(json!({ "one_of": ["1", "2"] })),
    ]
    .boxed()
}

fn conditions(names: &'static [&'static str]) -> Json {
    prop::collection::btree_map(prop::sample::select(names), condition(), 1..3)
        .prop_map(|conditions| json!(conditions))
        .boxed()
}

fn path() -> Json {
    prop_oneof![
        Just(json!({})),
        one_or_more(&["/", "/a", "/a/b", "/b/"]).prop_map(|path| json!({ "path": path })),
        one_or_more(&["/", "/a", "/a/", "/a/b", "/aa"]).prop_map(|path| json!({ "path_prefix": path })),
        one_or_more(&["/{org}", "/a/{org}", "/{org}/*", "/{org}/**", "/a/b/{org}/"])
            .prop_map(|path| json!({ "path_template": path })),
        one_or_more(&["/**", "/a/*/**", "/*"]).prop_map(|path| json!({ "path_template": path })),
    ]
    .boxed()
}

fn plain_match(with_route: bool) -> Json {
    let mut fields = vec![
        ("virtual_host", one_or_more(&["v", "w"])),
        ("host", one_or_more(&["a.com", "*.a.com", "b.a.com", "[::1]"])),
        ("method", one_or_more(&["GET", "POST"])),
        ("headers", conditions(&["x-a", "x-b"])),
        ("query", conditions(&["q", "é"])),
    ];
    if with_route {
        fields.push(("route", one_or_more(&["r", "s"])));
    }
    with(path(), some_of(fields))
}

fn whole_match(with_route: bool) -> Json {
    let not =
        plain_match(true).prop_filter("excludes all", |not| !not.as_object().unwrap().is_empty()).boxed();
    let nots =
        prop_oneof![not.clone(), prop::collection::vec(not, 1..3).prop_map(|list| json!(list))].boxed();
    with(
        plain_match(with_route),
        prop::option::of(nots).prop_map(|not| not.map_or(json!({}), |not| json!({ "not": not }))).boxed(),
    )
}

/// Limits that do not share a counter.
fn limits() -> Json {
    let limit = |values: &[Value]| one_of(values);
    let long = json!({ "requests": 10, "per": "1m", "algorithm": "fixed_window", "align": "clock" });
    let sets = (
        limit(&[json!("100/1m"), json!("0/m"), json!({ "requests": 7, "per": "60s", "align": "clock" })]),
        limit(&[json!("5/day"), json!({ "requests": 1, "per": "day" }), json!("9/month"), long]),
        limit(&[
            json!({ "requests": 3, "per": "1m", "algorithm": "sliding_buckets" }),
            json!({ "requests": 3, "per": "1m", "algorithm": "sliding_buckets", "buckets": 60, "align": "clock" }),
            json!({ "requests": 1000, "per": "1500ms", "algorithm": "sliding_log" }),
        ]),
        limit(&[
            json!({ "requests": 3, "per": "1s", "algorithm": "token_bucket" }),
            json!({ "requests": 3, "per": "1s", "algorithm": "token_bucket", "burst": 9, "warm_up": "2s" }),
            json!({ "requests": 0, "per": "1s", "algorithm": "leaky_bucket" }),
            json!({ "requests": 3, "per": "1s", "algorithm": "leaky_bucket", "burst": 2 }),
        ]),
    );
    sets.prop_flat_map(|(one, two, three, four)| {
        prop::sample::subsequence(vec![one, two, three, four], 1..=4)
    })
    .prop_map(|limits| json!(limits))
    .boxed()
}

fn key_part() -> Json {
    let jwt = some_of(vec![
        ("payload", words(&["p", "jwt_payload"])),
        ("lowercase", one_of(&[json!(true), json!(false)])),
    ]);
    let claim = one_of(&[json!({ "jwt": "a" }), json!({ "jwt": "a.b" }), json!({ "jwt": ["a.b", "c"] })]);
    prop_oneof![
        words(&["client_ip", "mtls_uri_san", "route", "host", "method"]),
        one_of(&[
            json!({ "header": "X-A" }),
            json!({ "query": "q", "lowercase": true }),
            json!({ "cookie": "c" })
        ]),
        one_of(&[json!({ "constant": "k" }), json!({ "header": "x-b", "lowercase": true })]),
        with(claim, jwt),
    ]
    .boxed()
}

/// A value that fits a key, or its digest.
fn key_value(key: &Value, letter: &str, is_hashed: bool) -> Value {
    let text = |part: &Value| match part.as_str() {
        _ if is_hashed => format!("sha256:{}", letter.repeat(64)),
        Some("client_ip") => format!("{letter}::"),
        _ => format!("{letter}X"),
    };
    let texts: Vec<String> = key.as_array().unwrap().iter().map(text).collect();
    if let [one] = texts.as_slice() { json!(one) } else { json!(texts) }
}

fn allowance(key: &Value) -> Json {
    let [a, b, c] = ["a", "b", "c"].map(|letter| key_value(key, letter, letter == "c"));
    let by = one_of(&[json!({ "header": "x-plan" }), json!({ "jwt": "plan", "lowercase": true })]);
    let plans = (limits(), limits(), prop::option::of(by)).prop_map(move |(free, pro, by)| {
        let mut plans = json!({ "default": "free", "limits": { "free": free, "Pro.1": pro }, "members": { "free": [a], "Pro.1": [b, c] } });
        if let Some(by) = by {
            plans["by"] = by;
        }
        json!({ "plans": plans })
    });
    prop_oneof![2 => limits().prop_map(|limits| json!({ "limits": limits })), 1 => plans].boxed()
}

fn response() -> Json {
    some_of(vec![
        ("status", one_of(&[json!(400), json!(429), json!(599)])),
        ("headers", words(&["none", "ratelimit", "x-ratelimit", "both"])),
        ("body", words(&["", "{rule} {retry_after} {limit}", "{\"a\": {}}"])),
        ("content_type", words(&["text/plain", "a/b; c=d"])),
        ("extra_headers", one_of(&[json!({}), json!({ "x-a": "", "X-B": "~ !" })])),
        ("grpc", words(&["resource_exhausted", "unavailable"])),
    ])
}

fn global() -> Json {
    let mode = prop_oneof![
        Just(json!({ "mode": "exact" })),
        with(
            Just(json!({ "mode": "sync" })).boxed(),
            some_of(vec![("sync_every", words(&["10ms", "1m", "100ms"]))])
        ),
        with(
            Just(json!({ "mode": "lease" })).boxed(),
            some_of(vec![
                ("overshoot", words(&["0%", "100%", "7%"])),
                ("when_empty", words(&["wait", "deny"]))
            ])
        ),
    ];
    with(mode.boxed(), some_of(vec![("on_failure", words(&["share", "local", "open", "closed"]))]))
}

fn settings(key: &Value) -> Json {
    let list = |letter: &'static str| {
        let (plain, hashed) = (key_value(key, letter, false), key_value(key, letter, true));
        prop_oneof![
            Just(json!({ "values": [plain, hashed], "cidrs": [format!("{letter}::/16")] })),
            Just(json!({ "cidrs": [format!("10.{}.0.0/16", letter.len() + usize::from(letter == "d")), format!("{letter}:1::1")] })),
        ]
        .boxed()
    };
    let numbers = |numbers: &[u64]| one_of(&numbers.iter().map(|number| json!(number)).collect::<Vec<_>>());
    some_of(vec![
        ("key_missing", words(&["shared", "skip", "deny"])),
        ("exempt", list("e")),
        ("deny", list("d")),
        (
            "cost",
            one_of(&[
                json!(1),
                json!(5),
                json!({ "header": "x-c", "max": 9 }),
                json!({ "header": "x-c", "default": 2, "max": 2 }),
            ]),
        ),
        ("count_denied", one_of(&[json!(true), json!(false)])),
        ("mode", words(&["enforce", "shadow", "off"])),
        ("enforced_percent", numbers(&[0, 1, 99, 100])),
        ("response", response()),
        ("when_full", words(&["strict", "lenient"])),
        ("global", global()),
    ])
}

/// What only rules have that charge after the response, in the place of what they cannot have.
fn charging_after(rule: Value) -> Json {
    let statuses = one_of(&[json!([401, 403]), json!(["5xx"]), json!([100, "1xx", 599, "3xx"])]);
    let cost = one_of(&[
        json!({ "response_header": "X-T", "max": 9 }),
        json!({ "response_header": "x-t", "max": 9, "default": 2, "reserve": 3 }),
        json!({ "response_header": "x-t", "max": 9, "default": 3, "reserve": 3 }),
    ]);
    (statuses, cost, 0..3)
        .prop_map(move |(statuses, cost, which)| {
            let mut rule = rule.clone();
            let fields = rule.as_object_mut().unwrap();
            fields.remove("count_denied");
            fields.remove("global");
            if which != 1 {
                fields.insert("count_status".to_owned(), statuses);
            }
            if which != 0 {
                fields.insert("cost".to_owned(), cost);
            }
            rule
        })
        .boxed()
}

/// A rule without a name.
fn rule(with_route: bool) -> Json {
    let key = prop::collection::vec(key_part(), 1..4).prop_map(|parts| {
        let mut different: Vec<Value> = Vec::new();
        for mut part in parts {
            if part["lowercase"] == json!(false) {
                part.as_object_mut().unwrap().remove("lowercase");
            }
            if part["payload"] == json!("jwt_payload") {
                part.as_object_mut().unwrap().remove("payload");
            }
            if !different.contains(&part) {
                different.push(part);
            }
        }
        json!(different)
    });
    (key, whole_match(with_route))
        .prop_flat_map(|(key, matches)| {
            let base = json!({ "key": key, "match": matches });
            with(Just(base).boxed(), with(allowance(&key), settings(&key)))
        })
        .prop_map(without_leased_logs)
        .prop_flat_map(|rule| prop_oneof![3 => Just(rule.clone()), 1 => charging_after(rule)])
        .boxed()
}

/// A log cannot be leased: such a rule is exact instead.
fn without_leased_logs(mut rule: Value) -> Value {
    if rule["global"]["mode"] == "lease" && rule.to_string().contains("sliding_log") {
        rule["global"] = json!({ "mode": "exact" });
    }
    rule
}

fn named(rules: Vec<Value>, prefix: &str) -> Value {
    let name = |(index, mut rule): (usize, Value)| {
        rule["name"] = json!(format!("{prefix}{index}"));
        rule
    };
    Value::Array(rules.into_iter().enumerate().map(name).collect())
}

/// A whole config that the parser accepts.
pub(crate) fn config() -> Json {
    let top = some_of(vec![
        ("$schema", words(&["x"])),
        ("version", one_of(&[json!(1)])),
        ("enabled", one_of(&[json!(true), json!(false)])),
        ("namespace", words(&["n", "a.b_c-D"])),
        (
            "client_ip",
            one_of(&[json!({}), json!({ "trusted_hops": 16, "ipv4_prefix": 8, "ipv6_prefix": 128 })]),
        ),
        ("table", one_of(&[json!({}), json!({ "slots": 64, "large_keys": 65536 })])),
        ("response", response()),
        ("route_metadata", one_of(&[json!(true), json!(false)])),
    ]);
    let counter = one_of(&[
        json!({ "cluster": "c" }),
        json!({ "cluster": "c", "authority": "h:1", "timeout": "10s", "token": "~!", "namespace": "n" }),
    ]);
    let rules = prop::collection::vec(rule(true), 0..4);
    let of_route = || prop::collection::vec(rule(false), 1..3);
    (top, counter, rules, prop::option::of(of_route()), prop::option::of(of_route()))
        .prop_map(|(mut config, counter, rules, one, two)| {
            config["counter"] = counter;
            let mut routes = Map::new();
            for (rules, route, prefix) in [(one, "z é", "one"), (two, "b.c", "two")] {
                if let Some(rules) = rules {
                    routes.insert(route.to_owned(), json!({ "rules": named(rules, prefix) }));
                }
            }
            if routes.is_empty() || !rules.is_empty() {
                config["rules"] = named(rules, "r");
            }
            if !routes.is_empty() {
                config["routes"] = Value::Object(routes);
            }
            config
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn what_is_written_reads_back_as_the_same(value in config()) {
        let text = value.to_string();
        let config = Config::from_json(text.as_bytes());
        prop_assert!(config.is_ok(), "{} in {text}", config.unwrap_err());
        let config = config.unwrap();
        let written = config.to_json();
        let again = Config::from_json(written.as_bytes());
        prop_assert_eq!(again.as_ref(), Ok(&config), "{}", written);
        prop_assert_eq!(again.unwrap().to_json(), written);
    }
}
