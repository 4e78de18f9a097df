//! Requests that wait for the counter: many at once, some that leave, and a listener that drains meanwhile. Each of the
//! traps of the host that they could fall into is tried.

use serde_json::{Value, json};
use tidegate_e2e::envoy::Update;
use tidegate_e2e::waiting::{self, Client};
use tidegate_e2e::{Envoy, Fault, Ledger, Relay, Script, Setup, load, poll};

use crate::common::{KEY, admitted, keyed, limit, rule};
use crate::global_common::{
    PATIENT, admitted_together, assert_all_healthy, assert_never_fell_back, config, exact, global,
    metric_is_at_least, relayed,
};

/// What travels with one call at most.
const CALL_MAX: usize = 32;

#[tokio::test]
async fn sixty_four_connections_share_calls() {
    const REQUESTS: usize = 4_000;
    let (fleet, relay, _counter) = relayed(limits(10_000_000), 1).await;
    let address = fleet.envoys()[0].address();
    let request = |index: usize| keyed("/", &format!("key-{}", index % 100));
    load::run(address, 64, 500, request).await.unwrap();
    let from = relay.call_count();
    let answers = load::run(address, 64, REQUESTS, request).await.unwrap();
    let calls = relay.calls_from(from);
    assert_eq!(answers.count(200), REQUESTS);
    println!("{REQUESTS} requests over 64 connections: {} calls", calls.len());
    assert!(calls.len() * 4 <= REQUESTS, "{} calls for {REQUESTS} requests", calls.len());
    assert!(calls.iter().all(|call| call.groups <= CALL_MAX));
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// hosts.md 33: each that is answered enters the VM one level deeper, and V8's stack ends after some hundred.
#[tokio::test]
async fn trap_33_many_more_than_fit_a_call_wait_at_once() {
    const CLIENTS: usize = 500;
    const LIMIT: usize = 300;
    let (fleet, relay, _counter) = relayed(limits(LIMIT), 1).await;
    let envoy = &fleet.envoys()[0];
    relay.set(Script::Hold);
    let crowd = waiting::crowd(envoy, "/", KEY, CLIENTS, |_| "ana".to_owned()).await.unwrap();
    relay.set(Script::Pass);
    let statuses = answers(crowd).await;
    assert_eq!((count(&statuses, 200), count(&statuses, 429)), (LIMIT, CLIENTS - LIMIT));
    let calls = relay.calls();
    assert!(calls.iter().any(|call| call.groups == CALL_MAX), "a call should have been full");
    assert!(calls.iter().all(|call| call.groups <= CALL_MAX));
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// hosts.md 34 and 35: whoever left is never answered, and nobody gets the answer of a neighbour who did.
#[tokio::test]
async fn traps_34_and_35_neighbours_of_those_who_left_get_their_own_answers() {
    const CLIENTS: usize = 120;
    const ROUNDS: usize = 10;
    let (fleet, relay, _counter) = relayed(limits(CLIENTS * ROUNDS), 1).await;
    let envoy = &fleet.envoys()[0];
    for round in 0..ROUNDS {
        let denied = format!("denied-{round}");
        assert_eq!(admitted(envoy, 1, "/", &denied).await, 1);
        use_up(envoy.address(), &denied, CLIENTS * ROUNDS - 1).await;
        relay.set(Script::Hold);
        // Allowed, denied and leaving ones by turns.
        let key = |client: usize| match client % 3 {
            0 => format!("allowed-{round}-{client}"),
            1 => denied.clone(),
            _ => format!("leaving-{round}"),
        };
        let crowd = waiting::crowd(envoy, "/", KEY, CLIENTS, key).await.unwrap();
        let staying =
            crowd.into_iter().enumerate().filter(|(client, _)| client % 3 != 2).map(|(_, stays)| stays);
        let staying: Vec<Client> = staying.collect();
        waiting::are_active(envoy, staying.len() as u64).await.unwrap();
        relay.set(Script::Pass);
        let statuses = answers(staying).await;
        let expected: Vec<u16> =
            (0..CLIENTS).filter(|client| client % 3 != 2).map(|client| [200, 429][client % 3]).collect();
        assert_eq!(statuses, expected, "round {round}");
    }
    metric_is_at_least(envoy, "tidegate_waiting_left", (ROUNDS * CLIENTS / 3) as u64).await;
    // Whatever was taken for those who left is given back: each of their keys has its whole limit.
    settled(&relay, |ledger| ledger.refunded > 0).await;
    let whole = admitted_together(fleet.envoys(), 16, CLIENTS * ROUNDS + 50, "/", "leaving-0").await;
    assert_eq!(whole, CLIENTS * ROUNDS);
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// Ten thousand clients that leave cost neither memory nor a charge nor a VM.
#[tokio::test]
async fn ten_thousand_who_leave_cost_nothing() {
    const ROUNDS: usize = 2;
    const ROUNDS_MAX: usize = 8;
    const WAVES: usize = 10;
    const CLIENTS: usize = 500;
    const LIMIT: usize = 1_000;
    // A fifth of a kB for each who left.
    const KB_MAX: u64 = (WAVES * CLIENTS / 5) as u64;
    let (fleet, relay, _counter) = relayed(limits(LIMIT), 1).await;
    let envoy = &fleet.envoys()[0];
    let mut left = 0;
    let mut grown_kb = Vec::new();
    // What they need at first stays with Envoy's allocator, for how long is its own affair. What they would leave behind
    // they would leave behind in each round.
    while grown_kb.len() < ROUNDS || grown_kb.last().is_some_and(|&kb| kb > KB_MAX) {
        assert!(grown_kb.len() < ROUNDS_MAX, "Envoy grows by {grown_kb:?} kB for each {}", WAVES * CLIENTS);
        let before_kb = envoy.resident_kb().unwrap();
        for _ in 0..WAVES {
            relay.set(Script::Hold);
            drop(waiting::crowd(envoy, "/", KEY, CLIENTS, |_| "ana".to_owned()).await.unwrap());
            waiting::are_active(envoy, 0).await.unwrap();
            relay.set(Script::Pass);
            left += CLIENTS as u64;
            metric_is_at_least(envoy, "tidegate_waiting_left", left).await;
        }
        grown_kb.push(envoy.resident_kb().unwrap().saturating_sub(before_kb));
    }
    println!("{left} clients left: {grown_kb:?} kB more for each {}", WAVES * CLIENTS);
    settled(&relay, |ledger| ledger.refunded > 0 && ledger.charged() == 0).await;
    assert_eq!(admitted_together(fleet.envoys(), 16, LIMIT + 100, "/", "ana").await, LIMIT);
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// hosts.md 36: an old listener drains while requests wait. Those whose answer comes in time get it.
#[tokio::test]
async fn trap_36_a_listener_that_drains_answers_those_who_wait() {
    const CLIENTS: usize = 100;
    const LIMIT: usize = 400;
    let window = limit(LIMIT);
    let (mut fleet, relay, _counter) = relayed(limits_in(&window, LIMIT), 1).await;
    assert_eq!(admitted(&fleet.envoys()[0], 1, "/", "ana").await, 1);
    relay.set(Script::Hold);
    let crowd = waiting::crowd(&fleet.envoys()[0], "/", KEY, CLIENTS, |_| "ana".to_owned()).await.unwrap();
    let update = fleet.envoy(0).update(limits_in(&window, LIMIT + 1)).await.unwrap();
    assert_eq!(update, Update::Accepted);
    draining(&fleet.envoys()[0], 1).await;
    relay.set(Script::Pass);
    let statuses = answers(crowd).await;
    assert_eq!(count(&statuses, 200), CLIENTS, "{statuses:?}");
    new_limit_holds(&fleet, LIMIT + 1 - CLIENTS - 1).await;
}

/// The same, but nobody answers until the old listener is gone: nothing dies of it, and at most what was under way is
/// charged in vain.
#[tokio::test]
async fn trap_36_a_listener_that_is_gone_costs_at_most_what_was_under_way() {
    const CLIENTS: usize = 100;
    const LIMIT: usize = 400;
    let window = limit(LIMIT);
    let (mut fleet, relay, _counter) = relayed(limits_in(&window, LIMIT), 1).await;
    relay.set(Script::Hold);
    let crowd = waiting::crowd(&fleet.envoys()[0], "/", KEY, CLIENTS, |_| "ana".to_owned()).await.unwrap();
    let update = fleet.envoy(0).update(limits_in(&window, LIMIT + 1)).await.unwrap();
    assert_eq!(update, Update::Accepted);
    draining(&fleet.envoys()[0], 1).await;
    draining(&fleet.envoys()[0], 0).await;
    relay.set(Script::Pass);
    let statuses = answers(crowd).await;
    let allowed = count(&statuses, 200);
    assert_eq!(count(&statuses, 429), 0, "{statuses:?}");
    let rest = admitted_together(fleet.envoys(), 16, LIMIT + 100, "/", "ana").await;
    assert!(allowed + rest <= LIMIT + 1, "{allowed} and {rest}");
    // Two calls, one of each worker, may have been under way.
    assert!(allowed + rest + 2 * CALL_MAX > LIMIT, "{allowed} and {rest}");
    assert_all_healthy(fleet.envoys()).await;
}

/// One worker, one client: the answer of a request that waits alone.
#[tokio::test]
async fn one_worker_answers_too() {
    let counter = tidegate_e2e::Counter::in_memory().await.unwrap();
    let setup = Setup::global(limits(3)).counters(&[counter.address()]).workers(1);
    let fleet = crate::global_common::start_fleet(&setup, 1).await;
    assert_eq!(admitted(&fleet.envoys()[0], 5, "/", "ana").await, 3);
}

fn limits(requests: usize) -> Value {
    config(PATIENT, &[global("exact", "/", requests, exact())])
}

/// Another number of requests in the same window: in another they would be counted anew.
fn limits_in(window: &Value, requests: usize) -> Value {
    let mut limit = window.clone();
    limit["requests"] = json!(requests);
    let mut rule = rule("exact", "/", &limit);
    rule["global"] = exact();
    config(PATIENT, &[rule])
}

/// Waits until so many old filter chains are on their way out: Envoy keeps a listener of which only these change.
async fn draining(envoy: &Envoy, chains: u64) {
    poll::until(&format!("{chains} filter chains to drain"), async || {
        match envoy.counter("listener_manager.total_filter_chains_draining").await? {
            seen if seen == chains => Ok(()),
            seen => Err(Fault::new(seen.to_string())),
        }
    })
    .await
    .unwrap();
}

async fn answers(crowd: Vec<Client>) -> Vec<u16> {
    let mut statuses = Vec::with_capacity(crowd.len());
    for client in crowd {
        statuses.push(client.status().await.unwrap());
    }
    statuses
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|&&seen| seen == status).count()
}

async fn use_up(address: std::net::SocketAddr, key: &str, requests: usize) {
    let key = key.to_owned();
    let answers = load::run(address, 16, requests, move |_| keyed("/", &key)).await.unwrap();
    assert_eq!(answers.count(200), requests);
}

/// Waits until the counter's books are so.
async fn settled(relay: &Relay, is_so: impl Fn(&Ledger) -> bool) {
    poll::until("the books to be settled", async || match Ledger::of(&relay.calls(), "exact", None) {
        ledger if is_so(&ledger) => Ok(()),
        ledger => Err(Fault::new(format!("{ledger:?}"))),
    })
    .await
    .unwrap();
}

/// The new limit is in force, and this much of it is left.
async fn new_limit_holds(fleet: &tidegate_e2e::Fleet, left: usize) {
    let mut so_far = 0;
    poll::until("the rest of the new limit", async || {
        so_far += admitted_together(fleet.envoys(), 8, 100, "/", "ana").await;
        if so_far >= left { Ok(()) } else { Err(Fault::new(format!("{so_far} of {left}"))) }
    })
    .await
    .unwrap();
    assert_eq!(so_far, left);
    assert_all_healthy(fleet.envoys()).await;
}
