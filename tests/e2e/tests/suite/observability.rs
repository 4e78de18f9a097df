//! `docs/observability.md`: metrics under their Prometheus names, and the decision in the access log.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tidegate_e2e::{Envoy, Fault, Setup, poll, repository};

use crate::common::{admitted, assert_healthy, limit, rule, start, with};

const PAGE: &str = "docs/observability.md";

#[tokio::test]
async fn prometheus_shows_the_metrics_that_the_docs_list_with_the_rule_as_a_label() {
    let limits = json!({ "rules": [
        rule("log-in", "/login", &limit(2)),
        with(rule("on-trial", "/", &limit(1)), "mode", "shadow"),
    ] });
    let envoy = start(Setup::limits(limits)).await;
    assert_eq!(admitted(&envoy, 5, "/login", "ana").await, 2);
    envoy.rule_metrics_reach("log-in", 5).await.unwrap();

    let page = envoy.admin("/stats/prometheus").await.unwrap();
    let samples: BTreeMap<&str, &str> = page
        .lines()
        .filter(|line| line.starts_with("tidegate"))
        .filter_map(|line| line.rsplit_once(' '))
        .collect();
    for (sample, value) in [
        ("tidegate_allowed{rule=\"log_in\"}", "2"),
        ("tidegate_denied{rule=\"log_in\"}", "3"),
        ("tidegate_shadow_denied{rule=\"log_in\"}", "0"),
        ("tidegate_denied{rule=\"on_trial\"}", "0"),
    ] {
        assert_eq!(samples.get(sample), Some(&value), "{sample} in {samples:#?}");
    }
    let shown: BTreeSet<String> =
        samples.keys().map(|sample| sample.split('{').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(documented(), shown, "{PAGE} lists on the left what Envoy shows on the right");
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn the_access_log_says_who_denied_and_why() {
    let banned = json!({ "name": "banned", "match": { "path": "/banned" }, "key": [{ "header": "x-key" }],
        "limits": [limit(100)], "deny": { "values": ["mallory"] } });
    let limits = json!({ "rules": [
        rule("strict", "/strict", &limit(2)),
        with(rule("on-trial", "/trial", &limit(1)), "mode", "shadow"),
        banned,
    ] });
    let envoy = start(Setup::limits(limits).access_log()).await;
    assert_eq!(admitted(&envoy, 4, "/strict", "ana").await, 2);
    assert_eq!(admitted(&envoy, 3, "/trial", "ana").await, 3);
    assert_eq!(admitted(&envoy, 1, "/banned", "mallory").await, 0);

    let log = access_log(&envoy, 8).await;
    let decisions = |path: &str| -> Vec<BTreeMap<String, String>> {
        let lines = log.lines().filter(|line| line.contains(&format!(" {path} ")));
        lines.map(decision).collect()
    };
    // No field that the page does not explain.
    let page = repository::text(PAGE).unwrap();
    for field in log.lines().flat_map(|line| decision(line).into_keys()) {
        assert!(page.contains(&format!("| `{field}` |")), "{PAGE} does not explain {field}");
    }
    let strict = decisions("/strict");
    assert_eq!(strict.iter().filter(|decision| decision.is_empty()).count(), 2, "{log}");
    for denied in strict.iter().filter(|decision| !decision.is_empty()) {
        assert_eq!((&*denied["outcome"], &*denied["rule"]), ("denied", "strict"), "{log}");
        assert!(denied["retry_after"].parse::<u64>().is_ok_and(|seconds| seconds > 0), "{log}");
        // What is left of the limit that said no.
        assert_eq!(denied["remaining"], "0", "{log}");
    }
    let trial: Vec<_> = decisions("/trial").into_iter().filter(|decision| !decision.is_empty()).collect();
    assert_eq!(trial.len(), 2, "{log}");
    for shadow in trial {
        assert_eq!((&*shadow["outcome"], &*shadow["rule"]), ("shadow_denied", "on-trial"), "{log}");
    }
    let banned = decisions("/banned").remove(0);
    assert_eq!((&*banned["outcome"], &*banned["rule"]), ("denied", "banned"), "{log}");
    assert_eq!(banned.get("retry_after"), None, "waiting does not help: {log}");
    assert_healthy(&envoy).await;
}

/// The last field of a line: `name=value` pairs, or `-` for none.
fn decision(line: &str) -> BTreeMap<String, String> {
    let words = line.split_whitespace().filter_map(|word| word.split_once('='));
    words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn access_log(envoy: &Envoy, lines: usize) -> String {
    poll::until(&format!("{lines} lines of access log"), async || {
        let log = envoy.access_log();
        if log.lines().count() == lines { Ok(log) } else { Err(Fault::new(log)) }
    })
    .await
    .unwrap()
}

/// The metrics in the page's tables: the first column, in back-ticks.
fn documented() -> BTreeSet<String> {
    let page = repository::text(PAGE).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `tidegate_"));
    rows.filter_map(|row| row.split(['`', '{']).next()).map(|name| format!("tidegate_{name}")).collect()
}
