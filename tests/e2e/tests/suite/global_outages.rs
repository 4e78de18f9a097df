//! The counter dies, its Redis dies, a process stops and goes on, under load on all modes. Each time no request fails for
//! it, no limit is passed by more than the fault table says, and afterwards the counter itself says that all that was
//! admitted is counted, once.
//!
//! Each test knows that its fault happened by the requests that were decided without the counter, or were not answered.

use std::time::{Duration, Instant};

use tidegate_e2e::{Counter, Fault, Fleet, Redis, Relay, Setup, poll};

use crate::global_common::{
    HURRIED, PATIENT, all_know_each_other, assert_all_healthy, metric_is_at_least, relayed, start_fleet,
};
use crate::global_modes::{
    EXACT, LEASE, Load, NARROW, SYNC, calls, fell_back, forgotten, limits, narrow_are_exhausted,
};

/// So many requests that the counter was not asked about are an outage.
const FALLBACKS: u64 = 50;
/// By then all grants are over.
const GRANTS_END: Duration = Duration::from_secs(3);

/// Over by what was forgotten, and by the shares of the outage, of which those who ask at once were not told yet. With
/// `sync` each proxy goes by its own word until it is told.
#[tokio::test]
async fn a_counter_dies_and_comes_back() {
    let (fleet, relay, mut counter) = relayed(limits(PATIENT), 2).await;
    all_know_each_other(fleet.envoys()).await;
    let load = Load::start(&fleet);
    load.goes_on(100).await;
    counter.kill().unwrap();
    fell_back(&fleet, 0..2, FALLBACKS).await;
    counter.restart().await.unwrap();
    is_back(&fleet, load, &[relay], &counter).await;
}

#[tokio::test]
async fn a_redis_dies_and_comes_back() {
    let mut redis = Redis::start().await.unwrap();
    let (counters, relays) = two_on(&redis).await;
    let addresses = [relays[0].address(), relays[1].address()];
    let fleet = start_fleet(&Setup::global(limits(PATIENT)).counters(&addresses), 2).await;
    all_know_each_other(fleet.envoys()).await;
    let load = Load::start(&fleet);
    load.goes_on(100).await;
    redis.kill().unwrap();
    fell_back(&fleet, 0..2, FALLBACKS).await;
    redis.restart().await.unwrap();
    is_back(&fleet, load, &relays, &counters[0]).await;
}

/// What holds when a store has lost all that it counted.
async fn is_back(fleet: &Fleet, load: Load, relays: &[Relay], counter: &Counter) {
    for envoy in fleet.envoys() {
        metric_is_at_least(envoy, "tidegate_counter_epochs", 1).await;
    }
    load.goes_on(300).await;
    let admitted = load.stop().await;
    admitted.agrees(counter, || calls(relays)).await;
    let lost = |mode: &str| forgotten(&calls(relays), &format!("{mode}-narrow"));
    admitted.assert_narrow(EXACT, lost(EXACT) + 2 * NARROW);
    admitted.assert_narrow(LEASE, lost(LEASE) + 2 * NARROW);
    // In each life of the counter, and before it was told of the first, the other proxy's too.
    admitted.assert_narrow(SYNC, lost(SYNC) + 4 * NARROW);
    narrow_are_exhausted(fleet).await;
    assert_nothing_dropped(fleet).await;
}

/// Cut off by a counter that stands still, a proxy keeps to its share, and the other notices nothing. When it goes on,
/// calls are answered that were long made again.
#[tokio::test]
async fn the_counter_of_one_proxy_stands_still() {
    let redis = Redis::start().await.unwrap();
    let (counters, relays) = two_on(&redis).await;
    let setup = |timeout, relay: &Relay| Setup::global(limits(timeout)).counters(&[relay.address()]);
    let setups = vec![setup(HURRIED, &relays[0]), setup(PATIENT, &relays[1])];
    let fleet = Fleet::start_each(setups).await.unwrap_or_else(|fault| panic!("{fault}"));
    all_know_each_other(fleet.envoys()).await;
    let load = Load::start(&fleet);
    load.goes_on(100).await;
    counters[0].freeze().unwrap();
    fell_back(&fleet, 0..1, FALLBACKS).await;
    counters[0].thaw().unwrap();
    answers_again(&fleet, 0).await;
    load.goes_on(300).await;
    let admitted = load.stop().await;
    assert_eq!(fleet.envoys()[1].metric("tidegate_fallbacks").await.unwrap(), 0, "the other noticed nothing");
    admitted.agrees(&counters[1], || calls(&relays)).await;
    admitted.assert_narrow(EXACT, NARROW + NARROW / 2);
    admitted.assert_narrow(LEASE, NARROW + NARROW / 2);
    admitted.assert_narrow(SYNC, 2 * NARROW + NARROW / 2);
    narrow_are_exhausted(&fleet).await;
    assert_nothing_dropped(&fleet).await;
}

/// The store of all stands still: every proxy keeps to its share.
#[tokio::test]
async fn the_redis_of_all_stands_still() {
    let redis = Redis::start().await.unwrap();
    let (counters, relays) = two_on(&redis).await;
    let addresses = [relays[0].address(), relays[1].address()];
    let fleet = start_fleet(&Setup::global(limits(HURRIED)).counters(&addresses), 2).await;
    all_know_each_other(fleet.envoys()).await;
    let load = Load::start(&fleet);
    load.goes_on(100).await;
    redis.freeze().unwrap();
    fell_back(&fleet, 0..2, FALLBACKS).await;
    redis.thaw().unwrap();
    for proxy in 0..2 {
        answers_again(&fleet, proxy).await;
    }
    load.goes_on(300).await;
    let admitted = load.stop().await;
    admitted.agrees(&counters[0], || calls(&relays)).await;
    admitted.assert_narrow(EXACT, 2 * NARROW);
    admitted.assert_narrow(LEASE, 2 * NARROW);
    // For each proxy its own word and its share would be three times the limit; 211 of 60 was seen.
    admitted.assert_narrow(SYNC, 4 * NARROW);
    narrow_are_exhausted(&fleet).await;
    assert_nothing_dropped(&fleet).await;
}

/// A proxy stands still until its grants are over, and goes on: it spends none of them, and what it had not told is told.
#[tokio::test]
async fn a_proxy_stands_still() {
    let (fleet, relay, counter) = relayed(limits(PATIENT), 2).await;
    all_know_each_other(fleet.envoys()).await;
    let load = Load::start(&fleet);
    load.goes_on(100).await;
    fleet.envoys()[0].freeze().unwrap();
    // Each client waits for the answer that it does not get.
    let (begun, sent) = (Instant::now(), load.on(0).sent());
    poll::until("the grants to be over", async || match begun.elapsed() {
        elapsed if elapsed > GRANTS_END => Ok(()),
        elapsed => Err(Fault::new(format!("{elapsed:?}"))),
    })
    .await
    .unwrap();
    load.on(1).goes_on(100).await.unwrap();
    assert!(load.on(0).sent() <= sent + 4, "it stands still");
    fleet.envoys()[0].thaw().unwrap();
    load.goes_on(300).await;
    let admitted = load.stop().await;
    admitted.agrees(&counter, || relay.calls()).await;
    admitted.assert_narrow(EXACT, NARROW);
    admitted.assert_narrow(LEASE, NARROW);
    admitted.assert_narrow(SYNC, 2 * NARROW);
    narrow_are_exhausted(&fleet).await;
    assert_nothing_dropped(&fleet).await;
}

async fn two_on(redis: &Redis) -> ([Counter; 2], [Relay; 2]) {
    let counters = [Counter::on(redis).await.unwrap(), Counter::on(redis).await.unwrap()];
    let relays =
        [Relay::to(counters[0].address()).await.unwrap(), Relay::to(counters[1].address()).await.unwrap()];
    (counters, relays)
}

/// Waits until a proxy under load decides nothing without the counter any more.
async fn answers_again(fleet: &Fleet, proxy: usize) {
    let envoy = &fleet.envoys()[proxy];
    let mut before = envoy.metric("tidegate_fallbacks").await.unwrap();
    let mut since = Instant::now();
    poll::until("the counter to decide again", async || {
        let seen = envoy.metric("tidegate_fallbacks").await?;
        if seen != before {
            (before, since) = (seen, Instant::now());
        }
        // Metrics come with a tick of each worker.
        if since.elapsed() > Duration::from_secs(1) { Ok(()) } else { Err(Fault::new(seen.to_string())) }
    })
    .await
    .unwrap();
}

async fn assert_nothing_dropped(fleet: &Fleet) {
    for envoy in fleet.envoys() {
        assert_eq!(envoy.metric("tidegate_reports_dropped").await.unwrap(), 0);
    }
    assert_all_healthy(fleet.envoys()).await;
}
