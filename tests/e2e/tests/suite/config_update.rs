//! Limits change while Envoy runs: counts stay, and bad limits change nothing.

use serde_json::{Value, json};
use tidegate_e2e::envoy::Update;
use tidegate_e2e::{Envoy, Fault, Setup, http, poll, window};
use tokio::task::JoinSet;

use crate::common::{KEY, admitted, assert_healthy, keyed, start};

#[tokio::test]
async fn a_new_limit_applies_to_the_old_counts_and_a_bad_one_is_refused() {
    let per = window::just_begun();
    let mut envoy = start(Setup::limits(limits(10, &per))).await;
    assert_eq!(admitted(&envoy, 4, "/", "ana").await, 4);

    assert_eq!(envoy.update(limits(6, &per)).await.unwrap(), Update::Accepted);
    wait_for_quota(&envoy, 6).await;
    assert_eq!(admitted(&envoy, 10, "/", "ana").await, 2, "4 of 6 were taken before the update");

    assert_eq!(envoy.update(limits(9, &per)).await.unwrap(), Update::Accepted);
    wait_for_quota(&envoy, 9).await;
    assert_gets_exactly(&envoy, 3, "ana").await;

    let mut bad = limits(100, &per);
    bad["rules"][0]["limits"][0]["requests"] = json!("a hundred");
    bad["rules"][0]["kye"] = json!([]);
    assert_eq!(envoy.update(bad).await.unwrap(), Update::Refused);
    let log = envoy.log();
    for place in ["rules[0].limits[0].requests", "rules[0].kye"] {
        assert!(log.contains(place), "the log should say what is wrong with {place}:\n{log}");
    }
    wait_for_quota(&envoy, 9).await;
    assert_eq!(admitted(&envoy, 5, "/", "ana").await, 0);
    assert_eq!(admitted(&envoy, 12, "/", "ben").await, 9);

    // A refused update stands in the way of no later one.
    assert_eq!(envoy.update(limits(12, &per)).await.unwrap(), Update::Accepted);
    wait_for_quota(&envoy, 12).await;
    assert_gets_exactly(&envoy, 3, "ana").await;
}

#[tokio::test]
async fn rules_in_another_order_keep_their_counts() {
    let per = window::just_begun();
    let rule = |name: &str, path: &str| {
        let mut rule = limits(5, &per)["rules"][0].clone();
        rule["name"] = json!(name);
        rule["match"] = json!({ "path": path });
        rule
    };
    let config = |rules: &[Value]| json!({ "response": { "headers": "ratelimit" }, "rules": rules });
    let first = config(&[rule("one", "/one"), rule("two", "/two"), limits(10, &per)["rules"][0].clone()]);
    let second = config(&[limits(11, &per)["rules"][0].clone(), rule("two", "/two"), rule("one", "/one")]);
    let mut envoy = start(Setup::limits(first)).await;
    assert_eq!(admitted(&envoy, 4, "/one", "ana").await, 4);
    assert_eq!(admitted(&envoy, 1, "/two", "ana").await, 1);

    assert_eq!(envoy.update(second).await.unwrap(), Update::Accepted);
    wait_for_quota(&envoy, 11).await;
    assert_eq!(admitted(&envoy, 3, "/one", "ana").await, 1);
    assert_eq!(admitted(&envoy, 5, "/two", "ana").await, 4);
    assert_healthy(&envoy).await;
}

/// One rule whose quota shows in every response.
fn limits(requests: u64, per: &str) -> Value {
    let limit = json!({ "requests": requests, "per": per, "algorithm": "fixed_window", "align": "clock" });
    json!({
        "response": { "headers": "ratelimit" },
        "rules": [{ "name": "per-key", "key": [{ "header": KEY }], "limits": [limit] }],
    })
}

/// Waits until new connections meet this quota. Several at once, because Envoy deals connections out to
/// the worker that has the fewest.
async fn wait_for_quota(envoy: &Envoy, quota: u64) {
    let expected = format!("\"per-key\";q={quota};");
    poll::until(&format!("a quota of {quota}"), async || {
        let mut probes = JoinSet::new();
        for probe in 0..8 {
            let request = keyed("/", &format!("probe-{quota}-{probe}"));
            probes.spawn(http::send(envoy.address(), request));
        }
        while let Some(reply) = probes.join_next().await {
            let reply = reply.expect("no probe panics")?;
            let policy = reply.headers.get("ratelimit-policy").and_then(|value| value.to_str().ok());
            if !policy.is_some_and(|policy| policy.contains(&expected)) {
                return Err(Fault::new(format!("{policy:?}")));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Asks until this many were admitted, for a VM may remember for a second that the key was denied; after
/// that none may be.
async fn assert_gets_exactly(envoy: &Envoy, count: usize, key: &str) {
    let mut so_far = 0;
    poll::until(&format!("{count} requests of {key} to be admitted"), async || {
        so_far += admitted(envoy, 1, "/", key).await;
        if so_far == count { Ok(()) } else { Err(Fault::new(so_far.to_string())) }
    })
    .await
    .unwrap();
    assert_eq!(admitted(envoy, 20, "/", key).await, 0);
}
