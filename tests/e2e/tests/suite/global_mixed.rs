//! Rules of the fleet beside rules of the proxy, rules that the counter switches off, and limits that change under load.

use serde_json::json;
use tidegate_e2e::envoy::Update;
use tidegate_e2e::waiting::{self, Client};
use tidegate_e2e::{Background, Envoy, Fault, Ledger, Script, load, poll};

use crate::common::{KEY, admitted, keyed, limit, rule};
use crate::global_common::{
    PATIENT, admitted_together, assert_all_healthy, assert_never_fell_back, config, exact, global, in_memory,
    relayed,
};

/// The counter says no: the proxy's own rule is charged nothing.
#[tokio::test]
async fn what_the_counter_denies_costs_nothing_here() {
    let rules = [rule("local", "/", &limit(10)), global("fleet", "/both", 4, exact())];
    let (fleet, _relay, _counter) = relayed(config(PATIENT, &rules), 1).await;
    let envoy = &fleet.envoys()[0];
    assert_eq!(admitted_together(fleet.envoys(), 8, 40, "/both", "ana").await, 4);
    assert_eq!(admitted(envoy, 10, "/only", "ana").await, 6, "4 of 10 were charged");
    assert_all_healthy(fleet.envoys()).await;
}

/// The proxy's own rule says no: the counter is not asked.
#[tokio::test]
async fn what_is_denied_here_is_not_asked_there() {
    let rules = [rule("local", "/both", &limit(3)), global("fleet", "/", 20, exact())];
    let (fleet, relay, _counter) = relayed(config(PATIENT, &rules), 1).await;
    let envoy = &fleet.envoys()[0];
    assert_eq!(admitted(envoy, 20, "/both", "ana").await, 3);
    let ledger = Ledger::of(&relay.calls(), "fleet", None);
    assert_eq!((ledger.all, ledger.refunded), (3, 0), "17 denials asked nobody");
    assert_eq!(admitted(envoy, 30, "/only", "ana").await, 17);
    assert_all_healthy(fleet.envoys()).await;
}

/// The proxy's own rule says yes, the counter says yes to many who wait, and then the proxy's own has room for three:
/// what the counter took for the others goes back.
#[tokio::test]
async fn what_is_denied_here_after_all_is_refunded_there() {
    const LIMIT: usize = 100;
    let rules = [rule("local", "/both", &limit(3)), global("fleet", "/", LIMIT, exact())];
    let (fleet, relay, _counter) = relayed(config(PATIENT, &rules), 1).await;
    let envoy = &fleet.envoys()[0];
    relay.set(Script::Hold);
    let crowd = waiting::crowd(envoy, "/both", KEY, 40, |_| "ana".to_owned()).await.unwrap();
    relay.set(Script::Pass);
    let statuses = answers(crowd).await;
    assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 3, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|&&status| status == 429).count(), 37, "{statuses:?}");
    poll::until("the refunds", async || match Ledger::of(&relay.calls(), "fleet", None) {
        ledger if ledger.charged() == 3 && ledger.refunded > 0 => Ok(()),
        ledger => Err(Fault::new(format!("{ledger:?}"))),
    })
    .await
    .unwrap();
    assert_eq!(admitted_together(fleet.envoys(), 8, LIMIT + 20, "/only", "ana").await, LIMIT - 3);
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// Two rules of the fleet on one request are one question: all or none.
#[tokio::test]
async fn two_rules_of_the_fleet_are_charged_together_or_not_at_all() {
    let rules = [global("narrow", "/both", 5, exact()), global("wide", "/", 50, exact())];
    let (fleet, _counter) = in_memory(config(PATIENT, &rules), 2).await;
    assert_eq!(admitted_together(fleet.envoys(), 16, 40, "/both", "ana").await, 5);
    assert_eq!(admitted_together(fleet.envoys(), 16, 60, "/only", "ana").await, 45);
    assert_all_healthy(fleet.envoys()).await;
}

/// Rules of each mode that are switched off at the counter stop in every worker of every proxy, and come back with their
/// counts.
#[tokio::test]
async fn a_rule_that_the_counter_switches_off_stops_everywhere() {
    let switched = [("/exact", "exact"), ("/lease", "lease"), ("/sync", "sync")];
    let mut rules = switched.map(|(path, mode)| global(mode, path, 10, json!({ "mode": mode }))).to_vec();
    rules.push(global("other", "/other", 10, exact()));
    let (fleet, counter) = in_memory(config(PATIENT, &rules), 2).await;
    for path in ["/exact", "/lease", "/sync", "/other"] {
        for envoy in fleet.envoys() {
            all_answer(envoy, path, 429).await;
        }
    }
    counter.switch_off(&switched.map(|(_, rule)| rule)).unwrap();
    for envoy in fleet.envoys() {
        for (path, _) in switched {
            all_answer(envoy, path, 200).await;
        }
        assert_eq!(all_of(envoy, "/other").await, 429, "the other rule stands");
    }
    counter.switch_off(&[]).unwrap();
    for envoy in fleet.envoys() {
        for (path, _) in switched {
            all_answer(envoy, path, 429).await;
        }
    }
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// Limits change in both proxies under load: no request fails, and the fleet admits the limit, but for what waited in a
/// VM that ended: the counter may have charged that, and nobody was there to hear of it.
#[tokio::test]
async fn an_update_under_load_keeps_the_limit() {
    const LIMIT: usize = 1_500;
    const UPDATES: usize = 3;
    const CLIENTS: usize = 2;
    let counted = limit(LIMIT);
    let limits = |update: usize| {
        let mut exact_rule = rule("counted", "/counted", &counted);
        exact_rule["global"] = exact();
        // What changes from one update to the next: else Envoy would see that there is nothing to do.
        config(PATIENT, &[exact_rule, rule("other", "/other", &json!(format!("{}/1h", 1_000 + update)))])
    };
    let (mut fleet, _counter) = in_memory(limits(0), 2).await;
    let loads: Vec<Background> = fleet
        .addresses()
        .into_iter()
        .map(|address| Background::start(address, CLIENTS, |_| keyed("/counted", "ana")))
        .collect();
    for update in 1..=UPDATES {
        for (proxy, load) in loads.iter().enumerate() {
            load.goes_on(50).await.unwrap();
            assert_eq!(fleet.envoy(proxy).update(limits(update)).await.unwrap(), Update::Accepted);
        }
    }
    let mut admitted = 0;
    for load in loads {
        load.goes_on(LIMIT).await.unwrap();
        let tally = load.stop().await.unwrap();
        assert!(tally.failures.is_empty(), "{tally:?}");
        assert_eq!(tally.statuses.values().sum::<usize>(), tally.count(200) + tally.count(429), "{tally:?}");
        admitted += tally.count(200);
    }
    let waited_at_most = UPDATES * CLIENTS * fleet.envoys().len();
    assert!((LIMIT - waited_at_most..=LIMIT).contains(&admitted), "{admitted} of {LIMIT}");
    assert_all_healthy(fleet.envoys()).await;
}

async fn answers(crowd: Vec<Client>) -> Vec<u16> {
    let mut statuses = Vec::with_capacity(crowd.len());
    for client in crowd {
        statuses.push(client.status().await.unwrap());
    }
    statuses
}

/// Waits until every worker gives this answer.
async fn all_answer(envoy: &Envoy, path: &'static str, status: u16) {
    poll::until(&format!("{status} from every worker"), async || match all_of(envoy, path).await {
        seen if seen == status => Ok(()),
        seen => Err(Fault::new(seen.to_string())),
    })
    .await
    .unwrap();
}

/// The status that all workers answer ana with, or 0 if they do not agree.
async fn all_of(envoy: &Envoy, path: &'static str) -> u16 {
    let answers = load::run(envoy.address(), 8, 32, move |_| keyed(path, "ana")).await.unwrap();
    let first = answers.status(0);
    if answers.count(first) == 32 { first } else { 0 }
}
