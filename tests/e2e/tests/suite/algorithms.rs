//! Every algorithm's state lives in shared data: four workers that hammer one key admit what one oracle does.

use std::num::NonZeroU64;

use serde_json::{Value, json};
use tidegate_config::Config;
use tidegate_core::{Moment, Take, Timestamp};
use tidegate_e2e::{Setup, load, window};

use crate::common::{assert_healthy, keyed, rule, start};

const ROUNDS: usize = 5;
const SENT: usize = 700;
const LIMIT: usize = 400;

/// A limit of each algorithm. Windows began just now and buckets refill once an hour: the clock plays no part.
fn limits() -> Vec<(&'static str, Value)> {
    let window = window::just_begun();
    vec![
        (
            "fixed-window",
            json!({ "requests": LIMIT, "per": window, "algorithm": "fixed_window", "align": "clock" }),
        ),
        (
            "sliding-window",
            json!({ "requests": LIMIT, "per": window, "algorithm": "sliding_window", "align": "clock" }),
        ),
        (
            "sliding-buckets",
            json!({ "requests": LIMIT, "per": window, "algorithm": "sliding_buckets", "buckets": 4 }),
        ),
        ("sliding-log", json!({ "requests": LIMIT, "per": window, "algorithm": "sliding_log" })),
        ("token-bucket", json!({ "requests": 1, "per": "1h", "algorithm": "token_bucket", "burst": LIMIT })),
        ("leaky-bucket", json!({ "requests": 1, "per": "1h", "algorithm": "leaky_bucket" })),
        (
            "warming",
            json!({ "requests": 1, "per": "1h", "algorithm": "token_bucket", "burst": LIMIT, "warm_up": "100d" }),
        ),
    ]
}

#[tokio::test]
async fn each_admits_its_oracles_count_under_four_workers() {
    let limits = limits();
    let rules: Vec<Value> =
        limits.iter().map(|(name, limit)| rule(name, &format!("/{name}"), limit)).collect();
    let config = json!({ "rules": rules });
    let envoy = start(Setup::limits(config.clone()).workers(4)).await;

    for (name, limit) in &limits {
        let expected = oracle(&config, name);
        assert!((1..=LIMIT).contains(&expected), "{name}: {expected}");
        for round in 0..ROUNDS {
            let path = format!("/{name}");
            let make = move |_| keyed(&path, &format!("round-{round}"));
            let answers = load::run(envoy.address(), 32, SENT, make).await.unwrap();
            assert_eq!(answers.strange(), 0, "{limit} in round {round}");
            assert_eq!(answers.count(200), expected, "{limit} in round {round}");
        }
    }
    assert_eq!(envoy.metric("tidegate_evictions").await.unwrap(), 0);
    assert_healthy(&envoy).await;
}

/// How many the core admits at one moment.
fn oracle(config: &Value, rule: &str) -> usize {
    let config = Config::from_json(config.to_string().as_bytes()).expect("the config is right");
    let rule = config.rules.iter().find(|other| other.name == rule).expect("the rule is there");
    let limit = rule.limits(0).first().expect("it has a limit").limit;
    let at = Moment { now: Timestamp::from_ms(1_700_000_000_000), shift: 0 };
    let mut state = None;
    let mut admitted = 0;
    loop {
        let (outcome, after) = limit.take(state, at, Take::all(NonZeroU64::MIN));
        if outcome.is_refused() {
            return admitted;
        }
        admitted += 1;
        state = Some(after);
    }
}
