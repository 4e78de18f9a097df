//! What tests of limits across proxies say.

use serde_json::{Value, json};
use tidegate_e2e::setup::COUNTER_CLUSTER;
use tidegate_e2e::{Counter, Envoy, Fault, Fleet, Link, Redis, Relay, Setup, fleet, poll};

use crate::common::{assert_healthy, keyed, limit, rule};

/// How long filters wait for the counter where a test is not about its absence: a busy machine is no fault.
pub(crate) const PATIENT: &str = "10s";
/// How long they wait where it is. A connection that is refused or reset is noticed at once, however long this is, and a
/// machine that stalls for less is no fault: a proxy that falls back by mistake admits too much.
pub(crate) const HURRIED: &str = "2s";

/// A config with a counter.
pub(crate) fn config(timeout: &str, rules: &[Value]) -> Value {
    json!({ "counter": { "cluster": COUNTER_CLUSTER, "timeout": timeout }, "rules": rules })
}

/// A rule of the fleet on all paths that begin so, so many requests in a window that began just now.
pub(crate) fn global(name: &str, path_prefix: &str, requests: usize, how: Value) -> Value {
    let mut rule = rule(name, path_prefix, &limit(requests));
    rule["global"] = how;
    rule
}

/// The mode `exact`.
pub(crate) fn exact() -> Value {
    json!({ "mode": "exact" })
}

/// A rule that no test is about, for [`all_know_each_other`].
pub(crate) fn warm() -> Value {
    global("warm", "/warm", 100_000, exact())
}

/// Every worker has an answer of the counter that names all proxies. For fleets with [`warm`].
pub(crate) async fn all_know_each_other(envoys: &[Envoy]) {
    for _ in 0..2 {
        admitted_together(envoys, 16, 64, "/warm", "warm").await;
    }
}

/// So many Envoys with a counter in memory.
pub(crate) async fn in_memory(config: Value, proxies: usize) -> (Fleet, Counter) {
    let counter = Counter::in_memory().await.unwrap();
    let fleet = start_fleet(&Setup::global(config).counters(&[counter.address()]), proxies).await;
    (fleet, counter)
}

/// So many Envoys with two counters on one Redis.
pub(crate) async fn on_redis(config: Value, proxies: usize) -> (Fleet, [Counter; 2], Redis) {
    let redis = Redis::start().await.unwrap();
    let counters = [Counter::on(&redis).await.unwrap(), Counter::on(&redis).await.unwrap()];
    let addresses = [counters[0].address(), counters[1].address()];
    let fleet = start_fleet(&Setup::global(config).counters(&addresses), proxies).await;
    (fleet, counters, redis)
}

/// So many Envoys with a counter in memory, and somebody between who reads along.
pub(crate) async fn relayed(config: Value, proxies: usize) -> (Fleet, Relay, Counter) {
    let counter = Counter::in_memory().await.unwrap();
    let relay = Relay::to(counter.address()).await.unwrap();
    let fleet = start_fleet(&Setup::global(config).counters(&[relay.address()]), proxies).await;
    (fleet, relay, counter)
}

/// Two Envoys with a counter in memory, each by a way of its own.
pub(crate) async fn linked(config: Value) -> (Fleet, [Link; 2], Relay, Counter) {
    let counter = Counter::in_memory().await.unwrap();
    let relay = Relay::to(counter.address()).await.unwrap();
    let links = [Link::to(relay.address()).await.unwrap(), Link::to(relay.address()).await.unwrap()];
    let setup = Setup::global(config);
    let setups = links.iter().map(|link| setup.clone().counters(&[link.address()])).collect();
    let fleet = Fleet::start_each(setups).await.unwrap_or_else(|fault| panic!("{fault}"));
    (fleet, links, relay, counter)
}

/// Starts Envoys, or fails the test with the log of the one that does not start.
pub(crate) async fn start_fleet(setup: &Setup, proxies: usize) -> Fleet {
    Fleet::start(setup, proxies).await.unwrap_or_else(|fault| panic!("{fault}"))
}

/// Sends so many requests with a key to each of these proxies at once, and says how many each let through. All others
/// must be 429.
pub(crate) async fn admitted_by(
    envoys: &[Envoy],
    connections: usize,
    requests: usize,
    path: &'static str,
    key: &str,
) -> Vec<usize> {
    let (addresses, key): (Vec<_>, _) = (envoys.iter().map(Envoy::address).collect(), key.to_owned());
    let make = move |_| keyed(path, &key);
    let answers = fleet::hammer(&addresses, connections, requests, make).await.unwrap();
    assert_eq!(answers.strange(), 0, "{answers:?}");
    answers.count_each(200)
}

/// The sum of [`admitted_by`].
pub(crate) async fn admitted_together(
    envoys: &[Envoy],
    connections: usize,
    requests: usize,
    path: &'static str,
    key: &str,
) -> usize {
    admitted_by(envoys, connections, requests, path, key).await.iter().sum()
}

/// Checks that every request was decided as it should be, by asking or by grants, and by no fall-back.
pub(crate) async fn assert_never_fell_back(envoys: &[Envoy]) {
    for envoy in envoys {
        for metric in ["counter_failures", "fallbacks", "reports_dropped", "counter_epochs"] {
            assert_eq!(envoy.metric(&format!("tidegate_{metric}")).await.unwrap(), 0, "{metric}");
        }
    }
}

/// Checks of all proxies that nothing went wrong inside the filter.
pub(crate) async fn assert_all_healthy(envoys: &[Envoy]) {
    for envoy in envoys {
        assert_healthy(envoy).await;
    }
}

/// Waits until a metric of Tidegate's has at least this value.
pub(crate) async fn metric_is_at_least(envoy: &Envoy, name: &str, value: u64) {
    poll::until(&format!("{name} to be {value} at least"), async || match envoy.metric(name).await? {
        seen if seen >= value => Ok(()),
        seen => Err(Fault::new(seen.to_string())),
    })
    .await
    .unwrap();
}
