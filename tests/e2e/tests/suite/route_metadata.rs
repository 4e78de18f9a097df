//! Limits that routes carry in their own metadata, as `envoy/route-metadata.yaml` shows.

use serde_json::{Value, json};
use tidegate_e2e::upstream::Upstream;
use tidegate_e2e::{Envoy, Setup, http, repository};

use crate::common::{assert_healthy, start};

const EXAMPLE: &str = "envoy/route-metadata.yaml";

/// The example's limits and routes.
fn example() -> (Value, Value) {
    let listeners: Value = serde_saphyr::from_str(&repository::text(EXAMPLE).unwrap()).unwrap();
    let manager = &listeners["resources"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    let filter = &manager["http_filters"][0]["typed_config"]["config"];
    let limits = filter["configuration"]["value"].as_str().expect("JSON text");
    (serde_json::from_str(limits).unwrap(), manager["route_config"].clone())
}

async fn start_with(limits: Value, routes: Value, upstream: &Upstream) -> Envoy {
    start(Setup::limits(limits).upstream(upstream.address()).connection_manager("route_config", routes)).await
}

/// How many of so many requests pass. Everything else must be a 429.
async fn admitted(envoy: &Envoy, times: usize, path: &str, key: &str) -> usize {
    let mut admitted = 0;
    for _ in 0..times {
        let request = http::get(path, &[("x-api-key", key.as_bytes())]);
        match http::send(envoy.address(), request).await.unwrap().status {
            200 => admitted += 1,
            status => assert_eq!(status, 429, "{path}"),
        }
    }
    admitted
}

#[tokio::test]
async fn three_routes_have_three_limits_and_one_has_none() {
    let upstream = Upstream::start().await.unwrap();
    let (limits, routes) = example();
    let envoy = start_with(limits, routes, &upstream).await;
    for (path, key, expected) in
        [("/search", "ana", 20), ("/export", "ben", 5), ("/login", "cleo", 10), ("/", "dora", 100)]
    {
        assert_eq!(admitted(&envoy, expected + 3, path, key).await, expected, "{path}");
    }
    assert_eq!(
        admitted(&envoy, 130, "/health", "dora").await,
        130,
        "where the filter is off nothing is limited"
    );
    // Tightened on one route, the rule counts for all: 90 are left elsewhere.
    assert_eq!(admitted(&envoy, 100, "/", "cleo").await, 90);
    envoy.metric_reaches("tidegate_denied_rule__route_metadata", 3).await.unwrap();
    envoy.metric_reaches("tidegate_denied_rule_per_key", 3 + 3 + 10).await.unwrap();
    assert_eq!(envoy.metric("tidegate_route_metadata_errors").await.unwrap(), 0);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn bad_metadata_leaves_the_rules_standing_is_counted_and_said_once() {
    let upstream = Upstream::start().await.unwrap();
    let (limits, mut routes) = example();
    let metadata = "/virtual_hosts/0/routes/2/metadata/filter_metadata/tidegate/limits";
    *routes.pointer_mut(metadata).expect("the login route") =
        json!(r#"{ "tighten": { "per-key": ["1000/1h"] } }"#);
    // A struct in the place of text.
    let export = "/virtual_hosts/0/routes/1/metadata/filter_metadata/tidegate/limits";
    *routes.pointer_mut(export).expect("the export route") = json!({ "rules": [] });
    let envoy = start_with(limits, routes, &upstream).await;
    for (path, key) in [("/login", "ana"), ("/export", "ben")] {
        assert_eq!(admitted(&envoy, 105, path, key).await, 100, "{path}: the rule of the config stands");
    }
    envoy.metric_reaches("tidegate_route_metadata_errors", 210).await.unwrap();
    let log = envoy.log();
    let said = log.matches("tighten.per-key: allows more than the rule does").count();
    assert!((1..=2).contains(&said), "once in each of two workers at most, not {said} times");
    assert_healthy(&envoy).await;
}
