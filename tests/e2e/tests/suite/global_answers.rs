//! Every answer that a call to the counter can come to (hosts.md 10), and each way to go on without one.

use serde_json::{Value, json};
use tidegate_e2e::{Counter, Envoy, Fault, Relay, Script, Setup, poll};

use crate::common::{admitted, ask, assert_healthy};
use crate::global_common::{HURRIED, config, global, metric_is_at_least, start_fleet};

const LIMIT: usize = 6;
const ASKED: usize = 10;
const PATHS: [&str; 4] = ["/share", "/local", "/open", "/closed"];
/// More than Envoy keeps of an answer.
const LARGE_BYTES: usize = 8 << 20;

#[tokio::test]
async fn whatever_the_counter_answers_the_config_decides() {
    let mut counter = Counter::in_memory().await.unwrap();
    let relay = Relay::to(counter.address()).await.unwrap();
    // One worker, so that whoever decides has heard how many proxies there are.
    let setup = Setup::global(limits()).counters(&[relay.address()]).workers(1);
    let fleet = start_fleet(&setup, 1).await;
    let envoy = &fleet.envoys()[0];
    let cases = [
        ("hang up", Script::HangUp),
        ("lost", Script::Lose),
        ("503", Script::Say(503, "busy".into())),
        ("504", Script::Say(504, "late".into())),
        ("401", Script::Say(401, "who are you".into())),
        ("late", Script::Hold),
        ("malformed", Script::Say(200, "this is no answer".into())),
        ("empty", Script::Say(200, "".into())),
        ("too large", Script::Say(200, vec![b'x'; LARGE_BYTES].into())),
    ];
    for (name, script) in cases {
        answers_again(&counter, envoy, name).await;
        relay.set(script);
        on_failure_decides(envoy, name, LIMIT / 2).await;
        relay.set(Script::Pass);
    }
    // Refused: nobody listens.
    answers_again(&counter, envoy, "refused").await;
    counter.kill().unwrap();
    on_failure_decides(envoy, "refused", LIMIT / 2).await;
    counter.restart().await.unwrap();
    answers_again(&counter, envoy, "again").await;
    assert_healthy(envoy).await;
}

#[tokio::test]
async fn without_a_cluster_the_config_decides() {
    alone(Setup::global(limits()).without_counter_cluster()).await;
}

#[tokio::test]
async fn without_a_host_the_config_decides() {
    alone(Setup::global(limits()).counters(&[])).await;
}

/// A proxy that never heard of the counter takes itself for the only one.
async fn alone(setup: Setup) {
    let fleet = start_fleet(&setup.workers(1), 1).await;
    on_failure_decides(&fleet.envoys()[0], "alone", LIMIT).await;
    assert_healthy(&fleet.envoys()[0]).await;
}

/// Nothing but `on_failure` decides: the share, the whole limit, everything, nothing.
async fn on_failure_decides(envoy: &Envoy, key: &str, share: usize) {
    let before = envoy.metric("tidegate_fallbacks").await.unwrap();
    for (path, expected) in PATHS.into_iter().zip([share, LIMIT, ASKED, 0]) {
        assert_eq!(
            admitted(envoy, ASKED, path, key).await,
            expected,
            "{path} when the counter is away: {key}"
        );
    }
    let denied = ask(envoy, "/closed", key).await;
    let body = String::from_utf8_lossy(&denied.body).into_owned();
    assert_eq!(denied.status, 429, "{key}");
    assert!(body.contains("temporary-reduced-capacity"), "{key}: {body}");
    // All that passed, and at least one that did not on each path: a VM remembers a denial for a while.
    metric_is_at_least(envoy, "tidegate_fallbacks", before + (share + LIMIT + ASKED + 3) as u64).await;
}

/// Waits until the counter decides again, and has heard of one more proxy: so the share is a half.
async fn answers_again(counter: &Counter, envoy: &Envoy, name: &str) {
    let other = json!({
        "namespace": "tidegate",
        "sender": { "proxy": "00000000000000ff", "vm": 0, "sequence": sequence() },
        "groups": [{ "takes": [{ "rule": "other", "limit": "10/1h", "key": "other" }] }],
    });
    counter.take(&other).await.unwrap();
    poll::until("the counter to decide again", async || {
        let before = envoy.metric("tidegate_fallbacks").await?;
        let allowed = counter.counted().await?.taken;
        ask(envoy, "/closed", &format!("probe-{name}")).await;
        match counter.counted().await?.taken {
            taken if taken > allowed && envoy.metric("tidegate_fallbacks").await? == before => Ok(()),
            taken => Err(Fault::new(format!("{taken} taken"))),
        }
    })
    .await
    .unwrap();
}

/// A new number for each batch of the other proxy.
fn sequence() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn limits() -> Value {
    let how = |on_failure: &str| json!({ "mode": "exact", "on_failure": on_failure });
    let rules: Vec<Value> = PATHS
        .into_iter()
        .map(|path| {
            let name = path.trim_start_matches('/');
            // Enough for the probes of all cases.
            let requests = if name == "closed" { 1_000 } else { LIMIT };
            global(name, path, requests, how(name))
        })
        .collect();
    config(HURRIED, &rules)
}
