//! How often the counter is called: by the clock, not by the requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_e2e::relay::Call;
use tidegate_e2e::{Background, Fault, Ledger, Relay, load, poll};

use crate::common::{admitted, keyed, rule};
use crate::global_common::{
    PATIENT, assert_all_healthy, assert_never_fell_back, config, exact, global, relayed,
};

/// Two workers and Envoy's main thread.
const VMS: usize = 3;
const IDLE_POLL: Duration = Duration::from_secs(5);

#[tokio::test]
async fn lease_calls_once_for_each_tick_and_vm_at_most() {
    steady_load_costs_a_call_a_tick(json!({ "mode": "lease" }), 100).await;
}

#[tokio::test]
async fn sync_calls_once_for_each_interval_and_vm_at_most() {
    steady_load_costs_a_call_a_tick(json!({ "mode": "sync", "sync_every": "200ms" }), 200).await;
}

/// A window of a second is as long as ten ticks, and its limit is not much more than what comes.
#[tokio::test]
async fn lease_of_a_short_window_calls_by_the_clock() {
    // A tick that is late on a busy machine leaves requests with nothing granted, who share a call. How it is when ticks
    // come in time, the filter's own tests count.
    a_short_window_costs_calls_by_the_clock(json!({ "mode": "lease" }), 2).await;
}

#[tokio::test]
async fn sync_of_a_short_window_calls_once_for_each_tick_and_vm_at_most() {
    a_short_window_costs_calls_by_the_clock(json!({ "mode": "sync" }), 1).await;
}

/// One key of 1,000 a second at 70%, or somewhat less on a slow machine.
async fn a_short_window_costs_calls_by_the_clock(how: Value, each_tick_max: u128) {
    const CLIENTS: usize = 14;
    const PAUSE: Duration = Duration::from_millis(20);
    const TICK_MS: u128 = 100;
    const WINDOW_MS: u128 = 1_000;
    let mut rule = rule("steady", "/", &json!("1000/1s"));
    rule["global"] = how;
    let (fleet, relay, _counter) = relayed(config(PATIENT, &[rule]), 1).await;
    let load = Background::paced(fleet.envoys()[0].address(), CLIENTS, PAUSE, |_| keyed("/", "ana"));
    load.goes_on(700).await.unwrap();
    let (from, begun, sent) = (relay.call_count(), Instant::now(), load.sent());
    load.goes_on(3_500).await.unwrap();
    let (calls, elapsed, sent) = (relay.calls_from(from), begun.elapsed(), load.sent() - sent);
    let tally = load.stop().await.unwrap();
    println!(
        "{sent} requests; {} calls in {} ms: {:?}; {} denied of all",
        calls.len(),
        elapsed.as_millis(),
        by_vm(&calls),
        tally.count(429)
    );
    assert!(tally.failures.is_empty() && tally.count(200) > 0, "{tally:?}");
    // At the edge of a window nothing is granted yet, and some requests have to ask.
    let most = each_tick_max * elapsed.as_millis() / TICK_MS + 4 * (elapsed.as_millis() / WINDOW_MS + 1);
    let most = usize::try_from(most).expect("a short test");
    for (vm, count) in by_vm(&calls) {
        assert!(count <= most, "VM {vm} called {count} times in {elapsed:?}");
    }
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

#[tokio::test]
async fn exact_that_is_exhausted_costs_no_calls_but_the_idle_poll() {
    an_exhausted_limit_costs_the_idle_poll(exact()).await;
}

#[tokio::test]
async fn lease_that_is_exhausted_costs_no_calls_but_the_idle_poll() {
    an_exhausted_limit_costs_the_idle_poll(json!({ "mode": "lease" })).await;
}

#[tokio::test]
async fn sync_that_is_exhausted_costs_no_calls_but_the_idle_poll() {
    an_exhausted_limit_costs_the_idle_poll(json!({ "mode": "sync" })).await;
}

/// Who is over the limit costs nobody a call but the poll of an idle VM.
async fn an_exhausted_limit_costs_the_idle_poll(how: Value) {
    const LIMIT: usize = 20;
    let (fleet, relay, _counter) = relayed(config(PATIENT, &[global("steady", "/", LIMIT, how)]), 1).await;
    let envoy = &fleet.envoys()[0];
    let mut so_far = 0;
    poll::until("the limit to be used up", async || {
        so_far += admitted(envoy, 10, "/", "ana").await;
        if so_far >= LIMIT { Ok(()) } else { Err(Fault::new(so_far.to_string())) }
    })
    .await
    .unwrap();
    all_is_told(&relay, LIMIT as u64).await;
    quiet(&relay, envoy.address()).await;

    let (from, begun) = (relay.call_count(), Instant::now());
    let load = Background::start(envoy.address(), 4, |_| keyed("/", "ana"));
    poll::until("two polls of every VM", async || match by_vm(&relay.calls_from(from)) {
        calls if calls.len() == VMS && calls.values().all(|&calls| calls >= 2) => Ok(()),
        calls => Err(Fault::new(format!("{calls:?}"))),
    })
    .await
    .unwrap();
    let (calls, elapsed) = (relay.calls_from(from), begun.elapsed());
    let tally = load.stop().await.unwrap();
    let denied = tally.count(429);
    assert!(tally.failures.is_empty() && tally.statuses.len() == 1 && denied > 100, "{tally:?}");
    println!("{denied} denied requests cost {} calls in {} ms", calls.len(), elapsed.as_millis());
    let polls = usize::try_from(elapsed.as_millis() / IDLE_POLL.as_millis()).expect("a short test") + 1;
    for (vm, count) in by_vm(&calls) {
        assert!(count <= polls, "VM {vm} called {count} times in {elapsed:?}: {calls:#?}");
    }
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

/// Load on a few keys for some seconds: calls by the clock, however many requests.
async fn steady_load_costs_a_call_a_tick(how: Value, tick_ms: u128) {
    const KEYS: usize = 8;
    let (fleet, relay, _counter) =
        relayed(config(PATIENT, &[global("steady", "/", 10_000_000, how)]), 1).await;
    let load = Background::start(fleet.envoys()[0].address(), 8, |index: usize| {
        keyed("/", &format!("key-{}", index % KEYS))
    });
    // By then the demand is known.
    calls_made(&relay, 20).await;
    let (from, begun) = (relay.call_count(), Instant::now());
    calls_made(&relay, from + 30).await;
    let (calls, elapsed) = (relay.calls_from(from), begun.elapsed());
    let tally = load.stop().await.unwrap();
    let admitted = tally.count(200);
    assert!(tally.failures.is_empty() && tally.statuses.len() == 1, "{tally:?}");
    println!("{admitted} requests; {} calls in {} ms", calls.len(), elapsed.as_millis());
    let ticks = usize::try_from(elapsed.as_millis() / tick_ms).expect("a short test");
    for (vm, count) in by_vm(&calls) {
        assert!(count <= ticks + 1, "VM {vm} called {count} times in {elapsed:?}: {calls:#?}");
    }
    all_is_told(&relay, admitted as u64).await;
    assert!(relay.call_count() * 10 < admitted, "{} calls for {admitted}", relay.call_count());
    assert_never_fell_back(fleet.envoys()).await;
    assert_all_healthy(fleet.envoys()).await;
}

async fn calls_made(relay: &Relay, count: usize) {
    poll::until(&format!("{count} calls"), async || match relay.call_count() {
        seen if seen >= count => Ok(()),
        seen => Err(Fault::new(seen.to_string())),
    })
    .await
    .unwrap();
}

/// What is charged is what was admitted, when reports have come and unused grants are back.
async fn all_is_told(relay: &Relay, count: u64) {
    poll::until(&format!("{count} to stand charged"), async || {
        match Ledger::of(&relay.calls(), "steady", None) {
            ledger if ledger.charged() == count => Ok(()),
            ledger => Err(Fault::new(format!("{ledger:?}"))),
        }
    })
    .await
    .unwrap();
}

/// Sends denied requests until a hundred of them in a row over all workers cost no call.
async fn quiet(relay: &Relay, address: std::net::SocketAddr) {
    poll::until("denials to be remembered", async || {
        let before = relay.call_count();
        load::run(address, 8, 150, |_| keyed("/", "ana")).await?;
        match relay.call_count() - before {
            0 => Ok(()),
            calls => Err(Fault::new(format!("{calls} calls"))),
        }
    })
    .await
    .unwrap();
}

fn by_vm(calls: &[Call]) -> BTreeMap<u32, usize> {
    let mut by_vm = BTreeMap::new();
    for sender in calls.iter().filter_map(|call| call.sender) {
        *by_vm.entry(sender.vm).or_default() += 1;
    }
    assert!(by_vm.len() <= VMS, "{by_vm:?}");
    by_vm
}
