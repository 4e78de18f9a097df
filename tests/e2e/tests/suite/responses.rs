//! What a client sees.

use serde_json::{Value, json};
use tidegate_e2e::http::Reply;
use tidegate_e2e::upstream::Upstream;
use tidegate_e2e::{Envoy, Fault, Setup, poll};

use crate::common::{admitted, ask, assert_healthy, limit, rule, start};

const RATELIMIT: [&str; 2] = ["ratelimit", "ratelimit-policy"];
const X_RATELIMIT: [&str; 3] = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

#[tokio::test]
async fn a_denied_request_learns_why_and_how_long_and_goes_no_further() {
    let upstream = Upstream::start().await.unwrap();
    let limits =
        json!({ "rules": [rule("login", "/login", &limit(2)), rule("closed", "/closed", &limit(0))] });
    let envoy = start(Setup::limits(limits).upstream(upstream.address())).await;

    assert_eq!(admitted(&envoy, 2, "/login", "ana").await, 2);
    // The first comes from the table, the second from what the VM remembers: a client sees no difference.
    for _ in 0..8 {
        let reply = ask(&envoy, "/login", "ana").await;
        assert_is_a_proper_429(&reply, "login");
        let seconds: u64 = reply.header("retry-after").parse().expect("whole seconds");
        assert!((1..=2 * 7_200).contains(&seconds), "{seconds} s");
        assert_no_headers(&reply, RATELIMIT.iter().chain(&X_RATELIMIT));
    }
    // What can never succeed names no time to come back.
    let never = ask(&envoy, "/closed", "ana").await;
    assert_is_a_proper_429(&never, "closed");
    assert!(!never.has("retry-after"), "{never:?}");

    let allowed = ask(&envoy, "/elsewhere", "ana").await;
    assert_eq!(allowed.status, 200);
    assert_no_headers(&allowed, RATELIMIT.iter().chain(&X_RATELIMIT));
    assert!(!allowed.has("retry-after") && !allowed.has("x-envoy-ratelimited"), "{allowed:?}");
    assert_eq!(upstream.served(), 3);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn the_ratelimit_headers_count_down_where_asked() {
    let envoy = start_with_headers("ratelimit").await;
    for expected in [1, 0, 0] {
        let reply = ask(&envoy, "/api", "ana").await;
        let policy = reply.header("ratelimit-policy");
        let window = policy.strip_prefix("\"api\";q=2;w=").unwrap_or_else(|| panic!("{policy}"));
        let window: u64 = window.parse().expect("the window in seconds");
        let left = reply.header("ratelimit");
        let reset =
            left.strip_prefix(&format!("\"api\";r={expected};t=")).unwrap_or_else(|| panic!("{left}"));
        let reset: u64 = reset.parse().expect("seconds until the reset");
        assert!((1..=2 * window).contains(&reset), "{left} in a window of {window} s");
        assert_no_headers(&reply, &X_RATELIMIT);
    }
    assert_eq!(ask(&envoy, "/api", "ana").await.status, 429);
    assert_no_headers(&ask(&envoy, "/elsewhere", "ana").await, &RATELIMIT);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn the_older_headers_count_down_where_asked() {
    let envoy = start_with_headers("x-ratelimit").await;
    for (status, remaining) in [(200, "1"), (200, "0"), (429, "0")] {
        let reply = ask(&envoy, "/api", "ana").await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("x-ratelimit-limit"), "2");
        assert_eq!(reply.header("x-ratelimit-remaining"), remaining);
        let reset: u64 = reply.header("x-ratelimit-reset").parse().expect("whole seconds");
        assert!(reset >= 1);
        assert_no_headers(&reply, &RATELIMIT);
    }
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn both_kinds_of_headers_go_together() {
    let envoy = start_with_headers("both").await;
    for status in [200, 200, 429] {
        let reply = ask(&envoy, "/api", "ana").await;
        assert_eq!(reply.status, status);
        for name in RATELIMIT.iter().chain(&X_RATELIMIT) {
            reply.header(name);
        }
    }
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn who_waits_is_let_in_again() {
    let envoy = start(Setup::limits(json!({ "rules": [rule("api", "/api", &json!("2/1s"))] }))).await;
    for expected in [429, 200, 429, 200] {
        poll::until(&format!("a {expected}"), async || match ask(&envoy, "/api", "ana").await.status {
            seen if seen == expected => Ok(()),
            seen => Err(Fault::new(seen.to_string())),
        })
        .await
        .unwrap();
    }
    assert_healthy(&envoy).await;
}

async fn start_with_headers(family: &str) -> Envoy {
    let limits = json!({ "response": { "headers": family }, "rules": [rule("api", "/api", &limit(2))] });
    start(Setup::limits(limits)).await
}

fn assert_is_a_proper_429(reply: &Reply, rule: &str) {
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("x-envoy-ratelimited"), "true");
    assert_eq!(reply.header("content-type"), "application/problem+json");
    let problem: Value = serde_json::from_slice(&reply.body).expect("a body of JSON");
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{problem}");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], json!([rule]));
}

fn assert_no_headers<'a>(reply: &Reply, names: impl IntoIterator<Item = &'a &'a str>) {
    for name in names {
        assert!(!reply.has(name), "{name} in {reply:?}");
    }
}
