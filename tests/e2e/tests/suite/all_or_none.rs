//! Several rules on one request are all charged or none is.

use serde_json::{Value, json};
use tidegate_e2e::http::{self, Request};
use tidegate_e2e::{Envoy, Setup, load};

use crate::common::{KEY, ask, assert_healthy, limit, rule, start};

const CONNECTIONS: usize = 32;
const SENT: usize = 10_000;
const ROOM: usize = 50_000;
const GROUP: &str = "x-group";

#[tokio::test]
async fn a_rule_that_always_denies_leaves_the_others_uncharged() {
    // On both sides of the rule that is not to be charged: the order of rules must not matter.
    let rules = [
        by_group("never-before", "/both/before", 0),
        rule("roomy", "/", &limit(ROOM)),
        by_group("never-after", "/both/after", 0),
    ];
    let envoy = start_with(&rules).await;
    for path in ["/both/before", "/both/after"] {
        // A group for each request, or all but the first would be denied from memory.
        let make = move |index| in_group(path, index);
        let answers = load::run(envoy.address(), CONNECTIONS, SENT, make).await.unwrap();
        assert_eq!(answers.count(429), SENT, "{path}");
    }
    assert_eq!(remaining_of_roomy(&envoy).await, ROOM - 1);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_rule_that_runs_out_charges_the_others_for_what_it_admitted() {
    // Of each group one is admitted, and the others race it. One that loses between its two writes must
    // undo the first, which is rare here; the filter's own tests make it happen.
    const SIZE: usize = 4;
    let rules = [rule("roomy", "/", &limit(ROOM)), by_group("tight", "/both", 1)];
    let envoy = start_with(&rules).await;
    let make = |index| in_group("/both", index / SIZE);
    let answers = load::run(envoy.address(), CONNECTIONS, SENT, make).await.unwrap();
    assert_eq!((answers.count(200), answers.strange()), (SENT / SIZE, 0));
    assert_eq!(remaining_of_roomy(&envoy).await, ROOM - SENT / SIZE - 1);
    envoy.rule_metrics_reach("tight", SENT).await.unwrap();
    assert_healthy(&envoy).await;
}

/// A rule with a key of its own, so that its counters lie in other slots than the roomy rule's.
fn by_group(name: &str, path_prefix: &str, requests: usize) -> Value {
    let mut rule = rule(name, path_prefix, &limit(requests));
    rule["key"] = json!([{ "header": GROUP }]);
    rule
}

fn in_group(path: &str, group: usize) -> Request {
    http::get(path, &[(KEY, b"ana"), (GROUP, group.to_string().as_bytes())])
}

async fn start_with(rules: &[Value]) -> Envoy {
    let limits = json!({ "response": { "headers": "ratelimit" }, "rules": rules });
    start(Setup::limits(limits).workers(4)).await
}

/// What is left to ana after one more request, which only `roomy` matches.
async fn remaining_of_roomy(envoy: &Envoy) -> usize {
    let reply = ask(envoy, "/alone", "ana").await;
    assert_eq!(reply.status, 200);
    let header = reply.header("ratelimit");
    let remaining = header.strip_prefix("\"roomy\";r=").and_then(|rest| rest.split(';').next());
    remaining.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no remaining in {header}"))
}
