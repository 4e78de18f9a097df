//! Shadow mode lets through what it would deny, counts it, and says so.

use serde_json::json;
use tidegate_e2e::{Fault, Setup, poll};

use crate::common::{admitted, assert_healthy, limit, rule, start, with};

#[tokio::test]
async fn a_shadow_rule_lets_through_counts_and_says_so() {
    let limits = json!({ "rules": [
        with(rule("on-trial", "/", &limit(3)), "mode", "shadow"),
        rule("real", "/real", &limit(2)),
        with(rule("switched-off", "/", &limit(0)), "mode", "off"),
    ] });
    let envoy = start(Setup::limits(limits).access_log()).await;

    assert_eq!(admitted(&envoy, 10, "/", "ana").await, 10);
    // Beside a rule in shadow, one that is enforced still is.
    assert_eq!(admitted(&envoy, 5, "/real", "ben").await, 2);

    envoy.rule_metrics_reach("on-trial", 12).await.unwrap();
    envoy.rule_metrics_reach("real", 5).await.unwrap();
    let metrics = envoy.counters("wasmcustom").await.unwrap();
    for (name, value) in [
        ("tidegate_shadow_denied_rule_on_trial", 7),
        ("tidegate_denied_rule_on_trial", 0),
        ("tidegate_shadow_denied_rule_real", 0),
        ("tidegate_denied_rule_real", 3),
        ("tidegate_allowed_rule_real", 2),
    ] {
        assert_eq!(metrics.get(&format!("wasmcustom.{name}")), Some(&value), "{name} in {metrics:?}");
    }
    let prometheus = envoy.admin("/stats/prometheus").await.unwrap();
    let ours: Vec<_> = prometheus.lines().filter(|line| line.starts_with("tidegate")).collect();
    assert!(ours.contains(&"tidegate_shadow_denied{rule=\"on_trial\"} 7"), "{ours:#?}");

    let log = whole_access_log(&envoy, 15).await;
    let says = |path: &str, outcome: &str| {
        let lines = log.lines().filter(|line| line.contains(&format!(" {path} ")));
        lines.filter(|line| line.contains(outcome)).count()
    };
    assert_eq!(says("/", "200 outcome=shadow_denied rule=on-trial "), 7, "{log}");
    assert_eq!(says("/", "200 -"), 3, "{log}");
    assert_eq!(says("/real", "429 outcome=denied rule=real "), 3, "{log}");
    assert_eq!(says("/real", "200 -"), 2, "{log}");
    assert_healthy(&envoy).await;
}

async fn whole_access_log(envoy: &tidegate_e2e::Envoy, lines: usize) -> String {
    poll::until(&format!("{lines} lines of access log"), async || {
        let log = envoy.access_log();
        if log.lines().count() == lines { Ok(log) } else { Err(Fault::new(log)) }
    })
    .await
    .unwrap()
}
