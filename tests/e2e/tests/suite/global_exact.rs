//! `exact`: a fleet admits exactly the limit, however its clients spread their requests, wherever it is counted.

use serde_json::Value;
use tidegate_e2e::Envoy;

use crate::global_common::{
    PATIENT, admitted_by, assert_all_healthy, assert_never_fell_back, config, exact, global, in_memory,
    on_redis,
};

const ROUNDS: usize = 20;
const LIMIT: usize = 200;
/// More than the limit even for one proxy alone, so that any that counts by itself is found out.
const SENT_EACH: usize = 240;
const CONNECTIONS_EACH: usize = 16;

#[tokio::test]
async fn in_memory_two_and_three_proxies_admit_exactly_the_limit() {
    let (fleet, _counter) = in_memory(limits(), 3).await;
    admit_exactly(&fleet.envoys()[..2], "two").await;
    admit_exactly(fleet.envoys(), "three").await;
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

#[tokio::test]
async fn with_two_counters_on_one_redis_two_and_three_proxies_admit_exactly_the_limit() {
    let (fleet, counters, _redis) = on_redis(limits(), 3).await;
    admit_exactly(&fleet.envoys()[..2], "two").await;
    admit_exactly(fleet.envoys(), "three").await;
    for counter in &counters {
        assert!(counter.counted().await.unwrap().taken > 0, "both counters should have been asked");
    }
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

fn limits() -> Value {
    config(PATIENT, &[global("exact", "/", LIMIT, exact())])
}

async fn admit_exactly(envoys: &[Envoy], name: &str) {
    let mut busy = vec![false; envoys.len()];
    for round in 0..ROUNDS {
        let key = format!("{name}-{round}");
        let admitted = admitted_by(envoys, CONNECTIONS_EACH, SENT_EACH, "/", &key).await;
        assert_eq!(admitted.iter().sum::<usize>(), LIMIT, "{name} proxies in round {round}: {admitted:?}");
        for (busy, admitted) in busy.iter_mut().zip(admitted) {
            *busy |= admitted > 0;
        }
    }
    // In one round a proxy may be late, and find nothing left.
    assert!(busy.iter().all(|&busy| busy), "each of {name} should have admitted some: {busy:?}");
}
