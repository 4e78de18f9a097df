//! What most tests say.

use serde_json::{Value, json};
use tidegate_e2e::http::{self, Reply, Request};
use tidegate_e2e::{Envoy, Setup, window};

/// The header that is the key wherever a test needs one.
pub(crate) const KEY: &str = "x-key";

/// Starts Envoy, or fails the test with its log.
pub(crate) async fn start(setup: Setup) -> Envoy {
    Envoy::start(setup).await.unwrap_or_else(|fault| panic!("{fault}"))
}

/// A limit on a window that began just now, for every key at once.
pub(crate) fn limit(requests: usize) -> Value {
    limit_by("sliding_window", requests)
}

/// The same with an algorithm.
pub(crate) fn limit_by(algorithm: &str, requests: usize) -> Value {
    json!({ "requests": requests, "per": window::just_begun(), "algorithm": algorithm, "align": "clock" })
}

/// A rule on all paths that begin so, keyed by [`KEY`].
pub(crate) fn rule(name: &str, path_prefix: &str, limit: &Value) -> Value {
    json!({
        "name": name,
        "match": { "path_prefix": path_prefix },
        "key": [{ "header": KEY }],
        "limits": [limit],
    })
}

/// A rule with one field more.
pub(crate) fn with(mut rule: Value, field: &str, value: &str) -> Value {
    rule[field] = json!(value);
    rule
}

/// A GET with a key.
pub(crate) fn keyed(path: &str, key: &str) -> Request {
    http::get(path, &[(KEY, key.as_bytes())])
}

/// Sends a GET with a key on a connection of its own.
pub(crate) async fn ask(envoy: &Envoy, path: &str, key: &str) -> Reply {
    http::send(envoy.address(), keyed(path, key)).await.unwrap()
}

/// Asks so often, one after another, and counts what was let through. Everything else must be a 429.
pub(crate) async fn admitted(envoy: &Envoy, times: usize, path: &str, key: &str) -> usize {
    let mut admitted = 0;
    for _ in 0..times {
        match ask(envoy, path, key).await.status {
            200 => admitted += 1,
            status => assert_eq!(status, 429, "{path} for {key}"),
        }
    }
    admitted
}

/// Sends so many requests, each on a connection of its own, and counts what was let through. Everything else must
/// be a 429.
pub(crate) async fn admitted_of(envoy: &Envoy, times: usize, make: impl Fn(usize) -> Request) -> usize {
    let mut admitted = 0;
    for index in 0..times {
        let reply = http::send(envoy.address(), make(index)).await.unwrap();
        match reply.status {
            200 => admitted += 1,
            status => assert_eq!(status, 429, "{:?}", reply.headers),
        }
    }
    admitted
}

/// A rule with this key on every path, two requests for each.
pub(crate) fn two_each(key: &Value) -> Value {
    json!({ "name": "two-each", "key": key, "limits": [limit(2)] })
}

/// Checks that nothing went wrong inside the filter: no error counted, no give-up, and no VM that died.
pub(crate) async fn assert_healthy(envoy: &Envoy) {
    for metric in ["errors", "cas_give_ups", "debt_dropped", "undos_lost", "bad_states"] {
        assert_eq!(envoy.metric(&format!("tidegate_{metric}")).await.unwrap(), 0, "{metric}");
    }
    let log = envoy.log();
    // What Envoy logs at these levels about a module comes from a trap, a panic or a failed callback.
    let complaint = log
        .lines()
        .find(|line| line.contains("[wasm]") && (line.contains("[error]") || line.contains("[critical]")));
    assert_eq!(complaint, None);
}
