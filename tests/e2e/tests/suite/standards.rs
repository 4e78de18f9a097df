//! What clients' libraries see: structured fields, problem documents, HEAD, gRPC.

use serde_json::{Value, json};
use sfv::{BareItem, List, ListEntry, Parser};
use tidegate_config::problem;
use tidegate_e2e::http::{self, Reply, Request};
use tidegate_e2e::{Envoy, Setup, repository};

use crate::common::{KEY, admitted_of, ask, assert_healthy, keyed, limit, rule, start};
use crate::markdown;

/// A policy as a client's parser understands it: its name, and the numbers behind it.
#[derive(Debug, PartialEq, Eq)]
struct Policy {
    name: String,
    numbers: Vec<(String, i64)>,
}

#[tokio::test]
async fn a_structured_fields_parser_reads_several_policies_the_most_constrained_first() {
    let day = json!({ "requests": 1_000, "per": "1d", "algorithm": "fixed_window" });
    let mut api = rule("api", "/", &limit(10));
    api["limits"] = json!([limit(10), day]);
    let rules = json!([api, rule("tight", "/tight", &limit(2))]);
    let envoy = start(Setup::limits(json!({ "response": { "headers": "both" }, "rules": rules }))).await;

    // 1 of 2 used is more than 1 of 10 and 1 of 1000.
    let allowed = ask(&envoy, "/tight", "ana").await;
    assert_eq!(allowed.status, 200);
    let policies = parsed(&allowed, "ratelimit-policy");
    let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(names[0], "tight");
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(number(&policies[0], "q"), 2);
    let quotas: Vec<i64> = policies.iter().map(|policy| number(policy, "q")).collect();
    assert!(quotas.contains(&10) && quotas.contains(&1_000), "{quotas:?}");
    assert!(policies.iter().all(|policy| number(policy, "w") >= 3_600), "{policies:?}");
    let left = parsed(&allowed, "ratelimit");
    let same: Vec<&str> = left.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(same, names, "both headers name the same policies in one order");
    for (policy, left) in policies.iter().zip(&left) {
        assert_eq!(number(left, "r"), number(policy, "q") - 1, "{left:?}");
        assert!(number(left, "t") >= 1);
    }
    // The older family has room for one: the same that stands first above.
    assert_eq!((allowed.header("x-ratelimit-limit"), allowed.header("x-ratelimit-remaining")), ("2", "1"));
    assert!(!allowed.has("x-ratelimit-retry-after"));

    // Elsewhere another is the most constrained.
    assert_eq!(number(&parsed(&ask(&envoy, "/", "ana").await, "ratelimit")[0], "r"), 8);

    // Denied: only what was violated, nothing left of it, and the same wait in every form.
    assert_eq!(admitted_of(&envoy, 3, |_| keyed("/tight", "ana")).await, 1);
    let denied = ask(&envoy, "/tight", "ana").await;
    assert_eq!(denied.status, 429);
    let left = parsed(&denied, "ratelimit");
    assert_eq!((left.len(), left[0].name.as_str(), number(&left[0], "r")), (1, "tight", 0));
    let wait: i64 = denied.header("retry-after").parse().expect("whole seconds");
    assert_eq!(number(&left[0], "t"), wait);
    assert_eq!(denied.header("x-ratelimit-retry-after"), denied.header("retry-after"));
    assert_eq!(denied.header("x-ratelimit-remaining"), "0");
    assert_eq!(denied.header("x-envoy-ratelimited"), "true");
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_rule_can_answer_in_its_own_words() {
    let mut custom = rule("custom", "/", &limit(3));
    custom["response"] = json!({
        "status": 503,
        "body": "{\"rule\": \"{rule}\", \"wait\": {retry_after}, \"limit\": {limit}}",
        "content_type": "application/json",
        "extra_headers": { "x-contact": "ops@example.com", "cache-control": "no-store" },
    });
    let envoy = start(Setup::limits(json!({ "rules": [custom] }))).await;
    for _ in 0..3 {
        assert_eq!(ask(&envoy, "/", "ana").await.status, 200);
    }
    let denied = ask(&envoy, "/", "ana").await;
    assert_eq!(denied.status, 503);
    assert_eq!(denied.header("content-type"), "application/json");
    assert_eq!(denied.header("x-contact"), "ops@example.com");
    assert_eq!(denied.header("cache-control"), "no-store");
    let body: Value = serde_json::from_slice(&denied.body).expect("JSON, as the config wrote it");
    let wait: u64 = denied.header("retry-after").parse().expect("whole seconds");
    assert_eq!(body, json!({ "rule": "custom", "wait": wait, "limit": 3 }));
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn head_gets_the_headers_of_get_and_no_body() {
    let limits = json!({ "response": { "headers": "both" }, "rules": [rule("api", "/", &limit(1))] });
    let envoy = start(Setup::limits(limits)).await;
    assert_eq!(ask(&envoy, "/", "ana").await.status, 200);
    let got = ask(&envoy, "/", "ana").await;
    let head = http::send(envoy.address(), http::request("HEAD", "/", &[(KEY, b"ana")])).await.unwrap();
    assert_eq!((got.status, head.status), (429, 429));
    assert!(!got.body.is_empty());
    assert!(head.body.is_empty() && head.ended_with_headers);
    assert_eq!(stable_headers(&head), stable_headers(&got));
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_grpc_client_gets_a_grpc_status_in_trailers_only() {
    let mut unavailable = rule("unavailable", "/test.Other/", &limit(0));
    unavailable["response"] = json!({ "grpc": "unavailable" });
    let rules = json!([rule("calls", "/test.Service/", &limit(1)), unavailable]);
    let envoy = start(Setup::limits(json!({ "response": { "headers": "ratelimit" }, "rules": rules }))).await;

    let allowed = call(&envoy, "/test.Service/Get").await;
    assert_eq!(allowed.status, 200);
    assert!(!allowed.has("x-envoy-ratelimited"));
    for path in ["/test.Service/Get", "/test.Service/List"] {
        let denied = call(&envoy, path).await;
        // gRPC has its own statuses, inside a 200; headers that are also the end are "trailers only".
        assert_eq!(denied.status, 200);
        assert!(denied.ended_with_headers && denied.body.is_empty(), "{denied:?}");
        assert_eq!(denied.header("content-type"), "application/grpc");
        assert_eq!(denied.header("grpc-status"), "8", "RESOURCE_EXHAUSTED");
        assert_eq!(denied.header("x-envoy-ratelimited"), "true");
        assert!(denied.header("retry-after").parse::<u64>().is_ok());
        assert_eq!(parsed(&denied, "ratelimit")[0].name, "calls");
    }
    assert_eq!(call(&envoy, "/test.Other/Get").await.header("grpc-status"), "14", "UNAVAILABLE");
    assert_healthy(&envoy).await;
}

#[test]
fn what_the_guide_shows_is_what_a_parser_reads_and_what_a_client_gets() {
    let page = repository::text("docs/clients.md").unwrap();
    let shown: Vec<String> = markdown::blocks(&page, "text").into_iter().map(|block| block.text).collect();
    let body = String::from_utf8(problem::quota_exceeded(429, &["api"])).expect("text");
    assert!(shown[0].lines().any(|line| line == body), "docs/clients.md does not show {body}");
    for line in shown.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("ratelimit")) {
        let (name, value) = line.split_once(": ").expect("a header");
        let policies = read(value);
        let names = if name == "ratelimit" { ["r", "t"] } else { ["q", "w"] };
        for policy in policies {
            for parameter in names {
                assert!(number(&policy, parameter) >= 0, "{line}");
            }
        }
    }
}

async fn call(envoy: &Envoy, method: &str) -> Reply {
    let request: Request = http::request(
        "POST",
        method,
        &[("content-type", b"application/grpc"), ("te", b"trailers"), (KEY, b"ana")],
    );
    http::send_http2(envoy.address(), request).await.unwrap()
}

/// Reads a list of strings with integer parameters, by a parser that is not ours.
fn parsed(reply: &Reply, name: &str) -> Vec<Policy> {
    read(reply.header(name))
}

fn read(value: &str) -> Vec<Policy> {
    let list: List = Parser::new(value).parse().expect("a structured field");
    let policy = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("{entry:?} is no item") };
        let BareItem::String(name) = &item.bare_item else { panic!("{item:?} is no string") };
        let number = |value: &BareItem| i64::from(value.as_integer().expect("an integer"));
        let numbers = item.params.iter().map(|(key, value)| (key.to_string(), number(value))).collect();
        Policy { name: name.to_string(), numbers }
    };
    list.iter().map(policy).collect()
}

fn number(policy: &Policy, name: &str) -> i64 {
    let found = policy.numbers.iter().find(|(other, _)| other == name);
    found.unwrap_or_else(|| panic!("no {name} in {policy:?}")).1
}

/// All headers but those that change with the time.
fn stable_headers(reply: &Reply) -> Vec<(String, Vec<u8>)> {
    let changing = ["date", "retry-after", "ratelimit", "x-ratelimit-reset", "x-ratelimit-retry-after"];
    let mut headers: Vec<_> =
        reply.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    for (name, value) in &mut headers {
        if changing.contains(&name.as_str()) {
            value.clear();
        }
    }
    headers
}
