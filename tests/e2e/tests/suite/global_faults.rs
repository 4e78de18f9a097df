//! The counter dies, a proxy is cut off, answers are lost: each proxy admits just what the fault table promises, and
//! afterwards the books are right again: all that was admitted is counted, once. All modes under load through such faults:
//! `global_outages.rs`.
//!
//! Each test knows that its fault happened by the requests that were decided without the counter.

use serde_json::{Value, json};
use tidegate_e2e::{Fault, Ledger, Relay, Script, Way, poll};

use crate::global_common::{
    HURRIED, admitted_by, admitted_together, all_know_each_other, assert_all_healthy, config, exact, global,
    linked, metric_is_at_least, relayed, warm,
};

const LIMIT: usize = 400;

/// Invariant: in the outage each proxy admits its share; then the counter, which has forgotten what it counted before,
/// is told of them: the fleet is over by exactly what was forgotten.
#[tokio::test]
async fn a_counter_that_dies_and_comes_back_is_told_what_passed_meanwhile() {
    let (fleet, relay, mut counter) = relayed(limits(&exact()), 2).await;
    let envoys = fleet.envoys();
    all_know_each_other(envoys).await;
    let forgotten = admitted_together(envoys, 8, 30, "/limited", "ana").await;
    assert_eq!(forgotten, 60);

    counter.kill().unwrap();
    let from = relay.call_count();
    let meanwhile = admitted_by(envoys, 8, LIMIT / 2 + 50, "/limited", "ana").await;
    assert_eq!(meanwhile, [LIMIT / 2, LIMIT / 2], "each its share");
    for envoy in envoys {
        metric_is_at_least(envoy, "tidegate_fallbacks", (LIMIT / 2) as u64).await;
    }
    let some = admitted_by(envoys, 8, 25, "/limited", "ben").await;
    assert_eq!(some, [25, 25], "less than their shares");

    counter.restart().await.unwrap();
    charged_since(&relay, from, LIMIT + 50).await;
    assert_eq!(admitted_together(envoys, 8, 50, "/limited", "ana").await, 0, "the shares were all of it");
    assert_eq!(
        admitted_together(envoys, 16, LIMIT, "/limited", "ben").await,
        LIMIT - 50,
        "what was told is counted once"
    );
    for envoy in envoys {
        metric_is_at_least(envoy, "tidegate_counter_epochs", 1).await;
        assert_eq!(envoy.metric("tidegate_reports_dropped").await.unwrap(), 0);
    }
    assert_all_healthy(envoys).await;
}

/// Invariant: a proxy that is cut off admits at most its share, the other goes on; when it is back, the fleet has
/// admitted exactly the limit, if its share was not over what was left.
#[tokio::test]
async fn a_proxy_that_was_cut_off_tells_what_it_admitted() {
    let (fleet, links, relay, _counter) = linked(limits(&exact())).await;
    let envoys = fleet.envoys();
    all_know_each_other(envoys).await;
    let mut admitted = admitted_together(envoys, 8, 30, "/limited", "ana").await;
    for way in [Way::Cut, Way::Frozen] {
        links[0].set(way);
        let before = envoys[0].metric("tidegate_fallbacks").await.unwrap();
        let apart = admitted_by(envoys, 8, 40, "/limited", "ana").await;
        assert_eq!(apart, [40, 40], "{way:?}: below the share, and below the limit");
        metric_is_at_least(&envoys[0], "tidegate_fallbacks", before + 40).await;
        admitted += 80;
        links[0].set(Way::Open);
        charged_since(&relay, 0, admitted).await;
    }
    assert!(links[0].cuts() > 0);
    assert_eq!(envoys[1].metric("tidegate_fallbacks").await.unwrap(), 0, "the other proxy noticed nothing");
    admitted += admitted_together(envoys, 16, LIMIT, "/limited", "ana").await;
    assert_eq!(admitted, LIMIT, "all is counted, once");
    assert_all_healthy(envoys).await;
}

/// Invariant: cut off for good, a proxy admits its share and no more.
#[tokio::test]
async fn a_proxy_that_is_cut_off_keeps_to_its_share() {
    let (fleet, links, _relay, _counter) = linked(limits(&exact())).await;
    all_know_each_other(fleet.envoys()).await;
    links[0].set(Way::Cut);
    let apart = admitted_by(fleet.envoys(), 16, LIMIT + 50, "/limited", "ana").await;
    assert_eq!(apart, [LIMIT / 2, LIMIT], "a share here, all of it there");
    assert!(links[0].cuts() > 0);
    assert_all_healthy(fleet.envoys()).await;
}

/// Invariant: answers that are lost on the way back were charged; asked again, they are not charged again. The
/// fleet admits exactly the limit.
#[tokio::test]
async fn answers_that_are_lost_count_once() {
    let (fleet, relay, _counter) = relayed(limits(&exact()), 2).await;
    let envoys = fleet.envoys();
    all_know_each_other(envoys).await;
    let mut admitted = 0;
    for round in 0..5 {
        relay.set(Script::Lose);
        let before = relay.call_count();
        admitted += admitted_together(envoys, 8, 15, "/limited", "ana").await;
        assert!(relay.call_count() > before, "round {round}: some answers should have been lost");
        relay.set(Script::Pass);
        charged_since(&relay, 0, admitted).await;
    }
    assert_eq!(admitted, 150, "all of them below the share");
    admitted += admitted_together(envoys, 16, LIMIT, "/limited", "ana").await;
    assert_eq!(admitted, LIMIT);
    for envoy in envoys {
        assert!(envoy.metric("tidegate_counter_failures").await.unwrap() >= 5);
    }
    assert_all_healthy(envoys).await;
}

/// Invariant: `lease` with `closed` is never over, whatever becomes of the way to the counter.
#[tokio::test]
async fn lease_with_closed_is_never_over() {
    let how = json!({ "mode": "lease", "on_failure": "closed" });
    let (fleet, links, _relay, _counter) = linked(limits(&how)).await;
    let envoys = fleet.envoys();
    let mut admitted = 0;
    for way in [Way::Cut, Way::Frozen] {
        admitted += admitted_together(envoys, 8, 40, "/limited", "ana").await;
        links[0].set(way);
        let before = envoys[0].metric("tidegate_fallbacks").await.unwrap();
        poll::until("the grants of the proxy that is cut off to be spent or over", async || {
            let apart = admitted_by(envoys, 8, 10, "/limited", "ana").await;
            admitted += apart.iter().sum::<usize>();
            if apart[0] == 0 { Ok(()) } else { Err(Fault::new(format!("{apart:?}"))) }
        })
        .await
        .unwrap();
        metric_is_at_least(&envoys[0], "tidegate_fallbacks", before + 1).await;
        assert!(admitted <= LIMIT, "{admitted}");
        links[0].set(Way::Open);
    }
    // What was granted and not told of counts as spent, so all of the limit need not be left.
    poll::until("the proxy to be back, or the limit to be used up", async || {
        let more = admitted_by(envoys, 8, 50, "/limited", "ana").await;
        admitted += more.iter().sum::<usize>();
        if more[0] > 0 || admitted >= LIMIT * 9 / 10 {
            Ok(())
        } else {
            Err(Fault::new(format!("{admitted}")))
        }
    })
    .await
    .unwrap();
    admitted += admitted_together(envoys, 16, LIMIT, "/limited", "ana").await;
    println!("lease with closed, cut off twice: {admitted} of {LIMIT}");
    assert!(admitted <= LIMIT, "{admitted}");
    assert_all_healthy(envoys).await;
}

fn limits(how: &Value) -> Value {
    config(HURRIED, &[global("limited", "/limited", LIMIT, how.clone()), warm()])
}

/// Waits until so much stands charged by the calls since then, and no more than that.
async fn charged_since(relay: &Relay, from: usize, count: usize) {
    poll::until(&format!("{count} to stand charged"), async || {
        match Ledger::of(&relay.calls_from(from), "limited", None) {
            ledger if ledger.charged() == count as u64 => Ok(()),
            ledger => Err(Fault::new(format!("{ledger:?}"))),
        }
    })
    .await
    .unwrap();
}
