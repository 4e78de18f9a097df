//! `lease`: grants are taken ahead of demand, and the fleet never passes the limit by more than it may.

use serde_json::json;
use tidegate_e2e::{Envoy, Fault, Ledger, Relay, poll};

use crate::global_common::{
    PATIENT, admitted_together, assert_all_healthy, assert_never_fell_back, config, global, in_memory,
    relayed,
};

const LIMIT: usize = 1_000;
const ROUNDS: usize = 3;
const CONNECTIONS_EACH: usize = 8;

#[tokio::test]
async fn without_overshoot_the_fleet_admits_the_limit_and_never_one_more() {
    let limits = config(PATIENT, &[global("leased", "/", LIMIT, json!({ "mode": "lease" }))]);
    let (fleet, _counter) = in_memory(limits, 3).await;
    for round in 0..ROUNDS {
        let key = format!("round-{round}");
        let admitted = saturate(fleet.envoys(), &key, (LIMIT * 99).div_ceil(100), LIMIT).await;
        println!("lease without overshoot, round {round}: {admitted} of {LIMIT}");
    }
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

#[tokio::test]
async fn with_ten_percent_the_fleet_admits_so_much_more_at_most() {
    let how = json!({ "mode": "lease", "overshoot": "10%" });
    let limits = config(PATIENT, &[global("leased", "/", LIMIT, how)]);
    let (fleet, _counter) = in_memory(limits, 3).await;
    for round in 0..ROUNDS {
        let key = format!("round-{round}");
        let admitted = saturate(fleet.envoys(), &key, LIMIT, LIMIT * 110 / 100).await;
        println!("lease with 10%, round {round}: {admitted} of {LIMIT}");
    }
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// What a dead proxy was granted and had not spent is lost to the fleet, and nothing else is.
#[tokio::test]
async fn a_killed_proxy_costs_the_fleet_its_grants_and_no_more() {
    let limits = config(PATIENT, &[global("leased", "/", LIMIT, json!({ "mode": "lease" }))]);
    let (mut fleet, relay, _counter) = relayed(limits, 2).await;
    let mut admitted = 0;
    poll::until("a grant of which a part is spent", async || {
        admitted += admitted_together(&fleet.envoys()[..1], CONNECTIONS_EACH, 40, "/", "ana").await;
        let granted = Ledger::of(&relay.calls(), "leased", None).some;
        match (granted, unspent(&relay, admitted)) {
            (granted, unspent) if unspent > 0 && granted > unspent => Ok(()),
            seen => Err(Fault::new(format!("{seen:?} granted and unspent"))),
        }
    })
    .await
    .unwrap();
    fleet.envoy(0).kill().unwrap();
    // A call of the dead proxy may still be on its way through the relay; its answer changes what was lost.
    let lost = usize::try_from(unspent(&relay, admitted)).expect("a number of this size");
    assert!(lost > 0, "it should have died with a grant in its hands");
    println!("killed after {admitted} were admitted, with {lost} granted and unspent");

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

/// Sends load until so many were admitted, and then some more: never may it be more than `most`.
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
