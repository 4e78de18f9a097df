//! `sync`: each proxy decides by what it knows, and tells: over the limit by what others admit meanwhile, and no
//! request is lost or counted twice. By how much over is measured: `make bench-sync`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidegate_e2e::overshoot::{self, Case};
use tidegate_e2e::relay::Call;
use tidegate_e2e::{Background, Fault, Ledger, poll};

use crate::common::keyed;
use crate::global_common::{PATIENT, assert_all_healthy, assert_never_fell_back, config, global, relayed};

const SLOW: Duration = Duration::from_secs(1);

#[tokio::test]
async fn all_that_was_admitted_is_told_once_and_then_no_more_is_admitted() {
    let cases = [Case { proxies: 2, sync_every_ms: 100 }, Case { proxies: 3, sync_every_ms: 50 }];
    let mut measured = Vec::new();
    for case in cases {
        let seen = overshoot::measure(case, 1_000).await.unwrap_or_else(|fault| panic!("{fault}"));
        assert!(seen.admitted >= seen.limit, "{seen:?}");
        // Each proxy keeps at least to the whole limit by itself, whatever it knows of others.
        assert!(seen.admitted <= seen.limit * case.proxies, "{seen:?}");
        assert_eq!(seen.reported, seen.admitted as u64, "{seen:?}");
        assert_eq!(seen.admitted_afterwards, 0, "{seen:?}");
        measured.push(seen);
    }
    println!("{}", overshoot::table(&measured));
}

/// Two rules on one request, each with its own interval: the slow one is not told with the fast one's calls.
#[tokio::test]
async fn each_rule_is_told_at_its_own_interval() {
    let rule = |name: &str, every: &str| {
        global(name, "/", 10_000_000, json!({ "mode": "sync", "sync_every": every }))
    };
    let rules = [rule("fast", "50ms"), rule("slow", "1s")];
    let (fleet, relay, _counter) = relayed(config(PATIENT, &rules), 1).await;
    let load = Background::start(fleet.envoys()[0].address(), 4, |_| keyed("/", "ana"));
    poll::until("five reports of the slow rule by every worker", async || {
        match by_vm(&relay.calls(), "slow") {
            vms if vms.len() == 2 && vms.values().all(|calls| calls.len() >= 5) => Ok(()),
            vms => Err(Fault::new(format!("{:?}", vms.values().map(Vec::len).collect::<Vec<_>>()))),
        }
    })
    .await
    .unwrap();
    let admitted = load.stop().await.unwrap().count(200) as u64;
    poll::until(&format!("{admitted} to be told of both"), async || {
        let told = ["fast", "slow"].map(|rule| Ledger::of(&relay.calls(), rule, None).force);
        if told == [admitted; 2] { Ok(()) } else { Err(Fault::new(format!("{told:?}"))) }
    })
    .await
    .unwrap();
    let fast = by_vm(&relay.calls(), "fast");
    for (vm, calls) in by_vm(&relay.calls(), "slow") {
        let elapsed = calls[calls.len() - 1].at - calls[0].at;
        let intervals = usize::try_from(elapsed.as_millis() / SLOW.as_millis()).expect("a short test");
        println!("VM {vm}: {} slow and {} fast reports in {elapsed:?}", calls.len(), fast[&vm].len());
        // One at each end, and one that was late.
        assert!(calls.len() <= intervals + 2, "VM {vm}: {} in {elapsed:?}", calls.len());
        assert!(fast[&vm].len() >= 2 * calls.len(), "VM {vm}: {} fast ones", fast[&vm].len());
    }
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

fn by_vm(calls: &[Call], rule: &str) -> BTreeMap<u32, Vec<Call>> {
    let mut by_vm: BTreeMap<u32, Vec<Call>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.takes.iter().any(|take| take.rule == rule)) {
        by_vm.entry(call.sender.expect("a sender").vm).or_default().push(call.clone());
    }
    by_vm
}
