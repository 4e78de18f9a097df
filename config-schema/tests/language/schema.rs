//! The golden JSON Schema is current, and agrees with the parser.

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_config::{Config, ConfigErrors, schema};

use crate::{bad, good, random};

const GOLDEN: &str = include_str!("../../tidegate.schema.json");

/// What the parser refuses and a schema cannot say, by what the message says.
const PARSER_ONLY: &[(&str, &str)] = &[
    ("a field written twice", "is written more than once"),
    ("a number that is whole, but not in digits", "in digits without a sign, point or exponent"),
    ("rule names that clash", "; names must differ"),
    ("policy names that clash", "clients would see its limit"),
    ("a lease of what cannot be leased", "cannot lease a sliding_log"),
    ("limits that would share a counter", "would share its counter"),
    ("a header named twice in different letters", "is in this key already"),
    ("a header that is none in the proxy", "is kept outside the headers"),
    ("a path that is not in normal form", "is not in normal form"),
    ("a template that is none", "is not a segment of a template"),
    ("a template that is none", "has two segments named"),
    ("a template that is none", "has too many segments"),
    ("a bound inside a text", "requests are too many"),
    ("a bound inside a text", "ms is too short"),
    ("a bound inside a text", "ms is too long"),
    ("a bound inside a text", "must last from"),
    ("a bound across fields", "are too many; the most is 1000,"),
    ("a bound across fields", "buckets do not divide"),
    ("a bound across fields", "with a burst of"),
    ("a bound across fields", "is too large; with this period"),
    ("a bound across fields", "is too long; at this rate"),
    ("a bound across fields", "must not be above"),
    ("a field that does not belong to another's choice", "belong to"),
    ("a field that does not belong to another's choice", "belongs to"),
    ("a field that does not belong to another's choice", "cannot count a day or a month"),
    ("a field that does not belong to another", "a rule that charges after the response"),
    ("a field that needs another", "needs a \"counter\""),
    ("a field that needs another", "which is not there"),
    ("a field that needs another", "but the rule is under one already"),
    ("a plan that is missing", "has no limits; add it"),
    ("a plan that nobody can get", "nobody can get the plan"),
    ("a key that stands for two things", "is a member of another plan"),
    ("a key that stands for two things", "names someone whom"),
    ("a key that is none", "does not fit the rule's key"),
    ("a key that is none", "is not a digest"),
    ("a key that is none", "all its parts as"),
    ("a key that is none", "is not an address"),
    ("a key that is none", "is not how the key has that address"),
    ("a network that is none", "is not a network"),
    ("a network that is none", "has bits beyond its prefix"),
    ("a network that is none", "in IPv6 dress"),
    ("a name twice in different letters", "is in this list already"),
    ("a header of the filter's own", "is set by the filter or the proxy"),
    ("a placeholder that is none", "is not filled in"),
];

fn validator() -> Validator {
    jsonschema::draft202012::new(&serde_json::from_str(GOLDEN).unwrap()).unwrap()
}

fn is_parser_only(errors: &ConfigErrors) -> bool {
    let is_listed = |message: &str| PARSER_ONLY.iter().any(|(_, text)| message.contains(text));
    errors.errors().iter().all(|error| is_listed(error.message()))
}

/// Why the two disagree, if they do.
fn disagreement(validator: &Validator, json: &str) -> Option<String> {
    let value: Value = serde_json::from_str(json).unwrap();
    let schema_errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
    match Config::from_json(json.as_bytes()) {
        Ok(_) if schema_errors.is_empty() => None,
        Ok(_) => Some(format!("only the schema refuses {json}: {schema_errors:?}")),
        Err(errors) if schema_errors.is_empty() && !is_parser_only(&errors) => {
            Some(format!("only the parser refuses {json}: {errors}"))
        }
        Err(_) => None,
    }
}

#[test]
fn the_golden_file_is_current() {
    assert!(GOLDEN == schema::text(), "tidegate.schema.json is out of date: run `make schema`");
}

#[test]
fn no_default_is_null() {
    assert!(!GOLDEN.contains(r#""default": null"#), "an absent field is not null, which the parser refuses");
}

#[test]
fn the_schema_is_a_valid_schema() {
    jsonschema::meta::validate(&serde_json::from_str(GOLDEN).unwrap()).unwrap();
}

#[test]
fn schema_and_parser_agree_on_good_files() {
    let validator = validator();
    for json in good::ALL {
        assert_eq!(disagreement(&validator, json), None);
        assert!(Config::from_json(json.as_bytes()).is_ok());
    }
}

#[test]
fn schema_and_parser_agree_on_bad_files() {
    let validator = validator();
    let is_json = |case: &&bad::Case| serde_json::from_str::<Value>(case.json).is_ok();
    let found: Vec<String> = bad::CASES
        .iter()
        .filter(is_json)
        .filter_map(|case| Some(format!("{}: {}", case.name, disagreement(&validator, case.json)?)))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_kind_that_only_the_parser_refuses_has_a_bad_file() {
    let validator = validator();
    for (kind, text) in PARSER_ONLY {
        let is_example = |case: &&bad::Case| {
            let value = serde_json::from_str(case.json);
            let errors = Config::from_json(case.json.as_bytes()).unwrap_err();
            value.is_ok_and(|value: Value| validator.is_valid(&value)) && errors.to_string().contains(text)
        };
        assert!(bad::CASES.iter().any(|case| is_example(&case)), "no bad file for {kind} ({text})");
    }
}

#[test]
fn every_field_and_choice_is_described() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let mut bare = Vec::new();
    find_bare(&golden, "schema", &mut bare);
    assert!(bare.is_empty(), "without a description: {}", bare.join(", "));
}

fn find_bare(value: &Value, place: &str, bare: &mut Vec<String>) {
    let is_bare = |value: &Value| value["description"].as_str().is_none_or(|text| text.contains('\n'));
    if let Some(fields) = value["properties"].as_object() {
        bare.extend(
            fields.iter().filter(|(_, field)| is_bare(field)).map(|(name, _)| format!("{place}.{name}")),
        );
    }
    for one in ["oneOf", "anyOf"].iter().filter_map(|name| value[*name].as_array()).flatten() {
        bare.extend(is_bare(one).then(|| format!("{place}: {one}")));
    }
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| find_bare(value, &format!("{place}.{name}"), bare));
        }
        Value::Array(items) => items.iter().for_each(|value| find_bare(value, place, bare)),
        _ => (),
    }
}

/// Values that mean something somewhere in the language, or nearly do.
fn values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.0),
        json!(1.5),
        json!(64),
        json!(1_000),
        json!(1_u64 << 20),
        json!((1_u64 << 36) + 1),
        json!(u64::MAX),
        json!(""),
        json!("login"),
        json!("Login"),
        json!("per_key"),
        json!("per-key-1h"),
        json!("/login"),
        json!("//login"),
        json!("/login?x"),
        json!("/a b"),
        json!("POST"),
        json!("M-SEARCH"),
        json!("client_ip"),
        json!("100/1m"),
        json!("0/s"),
        json!("5/0s"),
        json!("1/1ms"),
        json!("99999999999/1d"),
        json!("1s"),
        json!("0s"),
        json!("01s"),
        json!("90000000000d"),
        json!("1d\n"),
        json!("enforce"),
        json!("strict"),
        json!("clock"),
        json!("fixed_window"),
        json!("x-ratelimit"),
        json!("host"),
        json!("x-api-key\n"),
        json!(format!("/{}", "é".repeat(4_000))),
        json!(["client_ip"]),
        json!([{ "header": "x-api-key" }, { "header": "X-API-KEY" }]),
        json!(["GET", "GET"]),
        json!(["1/s", "1/s"]),
        json!([]),
        json!({}),
        json!({ "header": "x" }),
        json!({ "requests": 1, "per": "1m" }),
        json!({ "path": "/", "path_prefix": "/" }),
        json!({ "slots": 4096 }),
        json!("exact"),
        json!("lease"),
        json!("5%"),
        json!("day"),
        json!("token_bucket"),
        json!("sliding_log"),
        json!("free"),
        json!("10.0.0.0/8"),
        json!("*.example.com"),
        json!("/{org}/*"),
        json!("sha256:00"),
        json!("{x}"),
        json!(["a", "b"]),
        json!([["a", "b"]]),
        json!({ "jwt": "a.b" }),
        json!({ "path_segment": "org" }),
        json!({ "mode": "exact" }),
        json!({ "x-a": { "present": true } }),
        json!({ "free": ["1/s"] }),
        json!({ "values": ["a"] }),
        json!({ "cluster": "c" }),
    ]
}

const NAMES: [&str; 30] = [
    "version",
    "enabled",
    "counter",
    "routes",
    "route",
    "host",
    "headers",
    "not",
    "plans",
    "members",
    "default",
    "exempt",
    "values",
    "cost",
    "global",
    "algorithm",
    "burst",
    "response",
    "$schema",
    "namespace",
    "name",
    "match",
    "key",
    "limits",
    "header",
    "per",
    "path",
    "path_prefix",
    "requests",
    "x",
];

#[derive(Clone, Debug)]
enum Edit {
    Replace(Value),
    Put(&'static str, Value),
    Remove(prop::sample::Index),
    Append(Value),
}

fn edit() -> impl Strategy<Value = (prop::sample::Index, Edit)> {
    let value = || prop::sample::select(values());
    let edit = prop_oneof![
        3 => value().prop_map(Edit::Replace),
        2 => (prop::sample::select(NAMES.to_vec()), value()).prop_map(|(name, value)| Edit::Put(name, value)),
        1 => any::<prop::sample::Index>().prop_map(Edit::Remove),
        1 => value().prop_map(Edit::Append),
    ];
    (any::<prop::sample::Index>(), edit)
}

/// Changes the node whose number this is, counted in the order of a walk.
fn apply(value: &mut Value, number: &mut usize, edit: &Edit) {
    if *number == 0 {
        match (edit, &mut *value) {
            (Edit::Put(name, new), Value::Object(fields)) => {
                drop(fields.insert((*name).to_owned(), new.clone()));
            }
            (Edit::Append(new), Value::Array(items)) => items.push(new.clone()),
            (Edit::Remove(index), Value::Array(items)) if !items.is_empty() => {
                drop(items.remove(index.index(items.len())));
            }
            (Edit::Remove(index), Value::Object(fields)) if !fields.is_empty() => {
                let name = fields.keys().nth(index.index(fields.len())).unwrap().clone();
                fields.remove(&name);
            }
            (Edit::Replace(new) | Edit::Put(_, new) | Edit::Append(new), _) => *value = new.clone(),
            (Edit::Remove(_), _) => *value = Value::Null,
        }
    }
    *number = number.wrapping_sub(1);
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| apply(value, number, edit)),
        Value::Array(items) => items.iter_mut().for_each(|value| apply(value, number, edit)),
        _ => (),
    }
}

fn node_count(value: &Value) -> usize {
    1 + match value {
        Value::Object(fields) => fields.values().map(node_count).sum(),
        Value::Array(items) => items.iter().map(node_count).sum(),
        _ => 0_usize,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn schema_and_parser_agree_on_changed_configs(
        text in prop_oneof![prop::sample::select(good::ALL.to_vec()).prop_map(str::to_owned), random::config().prop_map(|config| config.to_string())],
        edits in prop::collection::vec(edit(), 1..3),
    ) {
        thread_local!(static VALIDATOR: Validator = validator());
        let mut value: Value = serde_json::from_str(&text).unwrap();
        for (place, edit) in edits {
            let mut number = place.index(node_count(&value));
            apply(&mut value, &mut number, &edit);
        }
        let found = VALIDATOR.with(|validator| disagreement(validator, &value.to_string()));
        prop_assert_eq!(found, None);
    }

    #[test]
    fn the_schema_accepts_what_the_parser_accepts(value in random::config()) {
        thread_local!(static VALIDATOR: Validator = validator());
        let config = Config::from_json(value.to_string().as_bytes());
        let written: Value = serde_json::from_str(&config.unwrap().to_json()).unwrap();
        for value in [value, written] {
            let errors: Vec<String> =
                VALIDATOR.with(|validator| validator.iter_errors(&value).map(|error| error.to_string()).collect());
            prop_assert!(errors.is_empty(), "{errors:?} in {value}");
        }
    }
}

#[test]
fn the_reference_is_current() {
    let reference = include_str!("../../../docs/config.md");
    assert!(
        reference == tidegate_config::reference::text(),
        "docs/config.md is out of date: run `make schema`"
    );
}
