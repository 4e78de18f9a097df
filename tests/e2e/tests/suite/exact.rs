//! Several workers never admit more or less than a limit.

use serde_json::json;
use tidegate_e2e::{Envoy, Setup, load};

use crate::common::{assert_healthy, keyed, limit, limit_by, rule, start};

const WORKERS: usize = 4;
const CONNECTIONS: usize = 32;

#[tokio::test]
async fn one_hot_key_gets_exactly_its_limit() {
    const ROUNDS: usize = 20;
    const LIMIT: usize = 500;
    const SENT: usize = 900;
    let limits = json!({ "rules": [
        rule("fixed", "/fixed", &limit_by("fixed_window", LIMIT)),
        rule("sliding", "/sliding", &limit_by("sliding_window", LIMIT)),
    ] });
    let envoy = start(Setup::limits(limits).workers(WORKERS)).await;

    for round in 0..ROUNDS {
        for path in ["/fixed", "/sliding"] {
            let make = move |_| keyed(path, &format!("round-{round}"));
            let answers = load::run(envoy.address(), CONNECTIONS, SENT, make).await.unwrap();
            assert_eq!(answers.strange(), 0, "{path} in round {round}");
            assert_eq!(answers.count(200), LIMIT, "{path} in round {round}");
        }
    }

    for name in ["fixed", "sliding"] {
        envoy.rule_metrics_reach(name, ROUNDS * SENT).await.unwrap();
        let allowed = envoy.metric(&format!("tidegate_allowed_rule_{name}")).await.unwrap();
        assert_eq!(allowed, (ROUNDS * LIMIT) as u64, "{name}");
    }
    assert_healthy(&envoy).await;
    assert_all_workers_took_part(&envoy).await;
}

#[tokio::test]
async fn each_of_many_fresh_keys_gets_exactly_its_limit() {
    const KEYS: usize = 20_000;
    const LIMIT: usize = 3;
    const ASKED: usize = LIMIT + 2;
    let limits = json!({ "table": { "slots": 65_536 }, "rules": [rule("many", "/", &limit(LIMIT))] });
    let envoy = start(Setup::limits(limits).workers(WORKERS)).await;

    // Neighbouring requests have the same key and travel on different connections at once.
    let make = |index| keyed("/", &format!("key-{}", index / ASKED));
    let answers = load::run(envoy.address(), CONNECTIONS, KEYS * ASKED, make).await.unwrap();

    assert_eq!(answers.strange(), 0);
    for (key, admitted) in answers.admitted_per_group(ASKED).into_iter().enumerate() {
        assert_eq!(admitted, LIMIT, "key {key}");
    }
    envoy.rule_metrics_reach("many", KEYS * ASKED).await.unwrap();
    assert_eq!(envoy.metric("tidegate_evictions").await.unwrap(), 0);
    assert_healthy(&envoy).await;
    assert_all_workers_took_part(&envoy).await;
}

async fn assert_all_workers_took_part(envoy: &Envoy) {
    for worker in 0..WORKERS {
        let connections = format!("listener.127.0.0.1_0.worker_{worker}.downstream_cx_total");
        let connections = envoy.counter(&connections).await.unwrap();
        assert!(connections >= (CONNECTIONS / WORKERS) as u64, "worker {worker}: {connections}");
    }
}
