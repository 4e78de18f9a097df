//! `lease`: grants are taken ahead of demand, and the fleet never passes the limit by more than it may.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_config::wire::Sender;
use tidegate_e2e::relay::{Ask, Call};
use tidegate_e2e::{Envoy, Fault, Fleet, Ledger, Relay, Script, poll};
use tokio::time::timeout;

use crate::global_common::{
    PATIENT, admitted_together, assert_all_healthy, assert_never_fell_back, config, global, in_memory,
    on_redis, relayed,
};

const LIMIT: usize = 1_000;
const ROUNDS: usize = 3;
const CONNECTIONS_EACH: usize = 8;
/// By then all grants are over.
const GRANTS_END: Duration = Duration::from_secs(3);

#[tokio::test]
async fn in_memory_a_fleet_under_load_gets_to_the_limit_and_never_over_it() {
    let (fleet, _counter) = in_memory(limits("0%"), 3).await;
    no_overshoot(&fleet).await;
}

#[tokio::test]
async fn with_two_counters_on_one_redis_a_fleet_under_load_gets_to_the_limit_and_never_over_it() {
    let (fleet, counters, _redis) = on_redis(limits("0%"), 3).await;
    no_overshoot(&fleet).await;
    for counter in &counters {
        assert!(counter.counted().await.unwrap().taken > 0, "both counters should have been asked");
    }
}

#[tokio::test]
async fn with_ten_percent_the_fleet_admits_so_much_more_at_most() {
    let (fleet, _counter) = in_memory(limits("10%"), 3).await;
    for proxies in [2, 3] {
        let admitted =
            saturate(&fleet.envoys()[..proxies], &format!("ten-{proxies}"), LIMIT, LIMIT * 110 / 100).await;
        println!("lease with 10%, {proxies} proxies: {admitted} of {LIMIT}");
    }
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// Who finds nothing granted does not wait where the config says so. What is granted comes from the tick.
#[tokio::test]
async fn where_nothing_is_granted_a_request_may_be_denied_at_once() {
    let how = json!({ "mode": "lease", "when_empty": "deny" });
    let (fleet, relay, _counter) = relayed(config(PATIENT, &[global("leased", "/", LIMIT, how)]), 2).await;
    relay.set(Script::Hold);
    let admitted = admitted_together(fleet.envoys(), CONNECTIONS_EACH, 40, "/", "ana").await;
    assert_eq!(admitted, 0, "nobody waits, and nobody is let through");
    relay.set(Script::Pass);
    let admitted = saturate(fleet.envoys(), "ana", (LIMIT * 99).div_ceil(100), LIMIT).await;
    println!("lease that denies at once: {admitted} of {LIMIT}");
    let ledger = Ledger::of(&relay.calls(), "leased", None);
    assert_eq!((ledger.all, ledger.force), (0, 0), "no request was asked about: {ledger:?}");
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

fn limits(overshoot: &str) -> Value {
    let how = json!({ "mode": "lease", "overshoot": overshoot });
    config(PATIENT, &[global("leased", "/", LIMIT, how)])
}

/// As long as they are asked for more, two proxies or three admit at least 99% of the limit in its window, and never one
/// more than all of it.
async fn no_overshoot(fleet: &Fleet) {
    for proxies in [2, 3] {
        for round in 0..ROUNDS {
            let key = format!("{proxies}-{round}");
            let least = (LIMIT * 99).div_ceil(100);
            let admitted = saturate(&fleet.envoys()[..proxies], &key, least, LIMIT).await;
            println!("lease without overshoot, {proxies} proxies, round {round}: {admitted} of {LIMIT}");
        }
    }
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

#[tokio::test]
async fn a_killed_proxy_of_two_costs_the_fleet_its_grants_and_no_more() {
    a_killed_proxy_costs_its_grants(2).await;
}

#[tokio::test]
async fn a_killed_proxy_of_three_costs_the_fleet_its_grants_and_no_more() {
    a_killed_proxy_costs_its_grants(3).await;
}

/// Killed when at least half of its last grant is spent and some is not: what it was granted and had not spent is lost to
/// the fleet, and nothing else is.
async fn a_killed_proxy_costs_its_grants(proxies: usize) {
    let (mut fleet, relay, _counter) = relayed(limits("0%"), proxies).await;
    let mut admitted = 0;
    poll::until("a grant of which half is spent", async || {
        relay.set(Script::Pass);
        admitted += admitted_together(&fleet.envoys()[..1], CONNECTIONS_EACH, 40, "/", "ana").await;
        let surplus = unspent(&relay, admitted).saturating_sub(last_grant(&relay) / 2);
        // From now on nothing more is granted.
        relay.set(Script::Hold);
        admitted += spend(&fleet.envoys()[..1], &relay, surplus).await;
        let (grant, unspent) = (last_grant(&relay), unspent(&relay, admitted));
        if unspent > 0 && unspent * 2 <= grant {
            Ok(())
        } else {
            Err(Fault::new(format!("{unspent} unspent, {grant} in the last grant")))
        }
    })
    .await
    .unwrap();
    let dead = relay.calls().iter().find_map(of_a_grant).expect("a grant").proxy;
    // What had got through to the counter is known before the loss is counted.
    fleet.envoy(0).kill().unwrap();
    poll::until("its calls to be over", async || {
        let is_open = |call: &&Call| call.is_open && call.sender.is_some_and(|sender| sender.proxy == dead);
        match relay.calls().iter().filter(is_open).count() {
            0 => Ok(()),
            open => Err(Fault::new(format!("{open} under way"))),
        }
    })
    .await
    .unwrap();
    relay.set(Script::Pass);
    let lost = usize::try_from(unspent(&relay, admitted)).expect("a number of this size");
    assert!(lost > 0, "it should have died with a grant in its hands");
    println!("{proxies} proxies: one killed after {admitted} were admitted, with {lost} granted and unspent");

    let survivor = &fleet.envoys()[1..];
    poll::until("all the rest to be admitted", async || {
        admitted += admitted_together(survivor, CONNECTIONS_EACH, 100, "/", "ana").await;
        if admitted >= LIMIT - lost {
            Ok(())
        } else {
            Err(Fault::new(format!("{admitted} of {LIMIT}, {lost} lost")))
        }
    })
    .await
    .unwrap();
    admitted += admitted_together(survivor, CONNECTIONS_EACH, 400, "/", "ana").await;
    assert!(admitted <= LIMIT, "{admitted} were admitted");
    assert_all_healthy(survivor).await;
}

/// Sends load until so many were admitted (what one proxy holds and does not need comes back to the others within some
/// seconds), and then some more: never may it be more than `most`.
async fn saturate(envoys: &[Envoy], key: &str, least: usize, most: usize) -> usize {
    let mut admitted = admitted_together(envoys, CONNECTIONS_EACH, LIMIT, "/", key).await;
    poll::until(&format!("{least} to be admitted"), async || {
        assert!(admitted <= most, "{admitted} were admitted for {key}, and {most} may be");
        if admitted >= least {
            return Ok(());
        }
        admitted += admitted_together(envoys, CONNECTIONS_EACH, 40, "/", key).await;
        Err(Fault::new(format!("{admitted}")))
    })
    .await
    .unwrap();
    admitted += admitted_together(envoys, CONNECTIONS_EACH, 400, "/", key).await;
    assert!(admitted <= most, "{admitted} were admitted for {key}, and {most} may be");
    admitted
}

/// What stands charged at the counter and was not admitted.
fn unspent(relay: &Relay, admitted: usize) -> u64 {
    Ledger::of(&relay.calls(), "leased", None).charged().saturating_sub(admitted as u64)
}

/// Sends so many requests to proxies that can ask nobody. Should their grants end before they are spent, somebody answers.
async fn spend(envoys: &[Envoy], relay: &Relay, requests: u64) -> usize {
    let requests = usize::try_from(requests).expect("a number of this size");
    let mut spending = std::pin::pin!(admitted_together(envoys, 1, requests, "/", "ana"));
    if let Ok(admitted) = timeout(GRANTS_END, &mut spending).await {
        return admitted;
    }
    relay.set(Script::Pass);
    spending.await
}

/// How much the counter granted last.
fn last_grant(relay: &Relay) -> u64 {
    let calls = relay.calls();
    let takes = calls.iter().rev().flat_map(|call| &call.takes);
    takes
        .filter(|take| take.manner == Ask::Some)
        .find_map(|take| take.taken.filter(|&taken| taken > 0))
        .unwrap_or(0)
}

/// Who asked for a grant, if the call is about one.
fn of_a_grant(call: &Call) -> Option<Sender> {
    call.sender.filter(|_| call.takes.iter().any(|take| take.manner == Ask::Some))
}
