//! Limits of the fleet change under load on all modes: VMs end with grants in their hands and reports that nobody heard.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_e2e::envoy::Update;
use tidegate_e2e::{Fault, Ledger, poll, standing};

use crate::common::{limit, rule};
use crate::global_common::{PATIENT, all_know_each_other, assert_all_healthy, relayed};
use crate::global_modes::{CLIENTS_EACH, EXACT, LEASE, Load, NARROW, SYNC, limits, narrow_are_exhausted};

const UPDATES: usize = 3;

/// No request fails, no limit is passed by more than without updates, and what the counter has charged is what was
/// admitted, but for what ended with the VMs.
#[tokio::test]
async fn the_books_agree_after_updates_under_load() {
    let first = limits(PATIENT);
    let (mut fleet, relay, counter) = relayed(first.clone(), 2).await;
    all_know_each_other(fleet.envoys()).await;
    let load = Load::start(&fleet);
    for update in 1..=UPDATES {
        for proxy in 0..2 {
            load.on(proxy).goes_on(100).await.unwrap();
            let limits = changed(&first, update);
            assert_eq!(fleet.envoy(proxy).update(limits).await.unwrap(), Update::Accepted);
        }
    }
    load.goes_on(300).await;
    let admitted = load.stop().await;
    // Old VMs live on until their listeners have drained; grants are over by then.
    let mut last = BTreeMap::new();
    let mut still = 0;
    poll::until("the books to come to rest", async || {
        let mut charged = BTreeMap::new();
        for mode in [EXACT, LEASE, SYNC] {
            charged.insert(mode, standing::charged(&counter, &relay.calls(), &format!("{mode}-wide")).await?);
        }
        still = if charged == last { still + 1 } else { 0 };
        last = charged;
        if still > 200 { Ok(()) } else { Err(Fault::new(format!("{last:?}"))) }
    })
    .await
    .unwrap();
    for (mode, charged) in &last {
        let ledger = Ledger::of(&relay.calls(), &format!("{mode}-wide"), None);
        println!("{mode}: {} admitted and {charged} charged: {ledger:?}", admitted.wide(mode));
    }
    let over = |mode: &str| last[mode].checked_sub(admitted.wide(mode) as u64);
    let waited_at_most = UPDATES * fleet.envoys().len() * CLIENTS_EACH;
    // Who waits in a VM that ends is charged, and may not be let through.
    assert!(over(EXACT).is_some_and(|over| over <= waited_at_most as u64), "{last:?}");
    // Grants that a VM could not give back count as spent: nothing is free, and some may be lost.
    assert!(over(LEASE).is_some(), "{last:?}");
    // What it had not told is lost: of one interval, where nine in ten are far from it.
    let synced = admitted.wide(SYNC) as u64;
    assert!((synced * 9 / 10..=synced).contains(&last[SYNC]), "{last:?}");
    admitted.assert_narrow(EXACT, NARROW);
    admitted.assert_narrow(LEASE, NARROW);
    admitted.assert_narrow(SYNC, 2 * NARROW);
    narrow_are_exhausted(&fleet).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// What changes from one update to the next: else Envoy would see that there is nothing to do.
fn changed(limits: &Value, update: usize) -> Value {
    let mut limits = limits.clone();
    if let Some(rules) = limits["rules"].as_array_mut() {
        rules.push(rule("other", "/other", &limit(1_000 + update)));
    }
    limits
}
