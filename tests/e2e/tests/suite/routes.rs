//! Limits by route: `envoy/routes.yaml`, as users read it.

use tidegate_e2e::upstream::Upstream;
use tidegate_e2e::{Envoy, Setup, http};

use crate::common::{admitted_of, assert_healthy, start};

const KEY: &str = "x-api-key";

#[tokio::test]
async fn three_routes_have_three_limits_and_a_fourth_has_none() {
    let upstream = Upstream::start().await.unwrap();
    let envoy = start(Setup::example("envoy/routes.yaml").upstream(upstream.address())).await;

    assert_eq!(asked(&envoy, "/login", "ana", 8).await, 5, "the route login");
    assert_eq!(asked(&envoy, "/reports/2026", "ana", 4).await, 2, "the route reports");
    assert_eq!(asked(&envoy, "/reports/2026", "ben", 4).await, 2, "the same for another key");
    assert_eq!(asked(&envoy, "/search?q=x", "ana", 24).await, 20, "the route search");
    // However its path is written, the route and its limit are the same.
    for path in ["//login", "/./login", "/%6cogin"] {
        assert_eq!(asked(&envoy, path, "ana", 1).await, 0, "{path}");
    }
    // The rule without a route has counted all that passed so far: 29 of 60.
    assert_eq!(asked(&envoy, "/else", "ana", 40).await, 31);
    // Tidegate is off on this route: it passes where everything else is denied, and is not counted.
    assert_eq!(asked(&envoy, "/healthz", "ana", 20).await, 20);
    assert_eq!(asked(&envoy, "/else", "ben", 1).await, 0);
    assert_eq!(upstream.served(), 60 + 20);

    for (rule, decided) in [("login", 8 + 3), ("reports", 8), ("search", 24)] {
        envoy.rule_metrics_reach(rule, decided).await.unwrap();
    }
    assert_healthy(&envoy).await;
}

async fn asked(envoy: &Envoy, path: &str, key: &str, times: usize) -> usize {
    admitted_of(envoy, times, |_| http::get(path, &[(KEY, key.as_bytes())])).await
}
