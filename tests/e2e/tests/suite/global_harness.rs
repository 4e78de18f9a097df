//! The harness of a fleet does what it says, whatever the filter does.

use std::net::TcpStream;

use serde_json::{Value, json};
use tidegate_config::wire::{Batch, POSTCARD};
use tidegate_e2e::relay::Ask;
use tidegate_e2e::{Counter, Fault, Ledger, Link, Redis, Relay, Script, Setup, Way, http, poll};

use crate::common::{keyed, limit, rule};
use crate::global_common::{admitted_by, start_fleet};

#[tokio::test]
async fn a_counter_forgets_when_it_dies_and_is_back_where_it_was() {
    let mut counter = Counter::in_memory().await.unwrap();
    assert_eq!(taken(&counter.take(&one("ana")).await.unwrap()), (1, 9));
    assert_eq!(taken(&counter.take(&one("ana")).await.unwrap()), (1, 8));
    let books = counter.counted().await.unwrap();
    assert_eq!((books.batches, books.taken, books.refused, books.failed), (2, 2, 0, 0));
    let address = counter.address();
    counter.kill().unwrap();
    assert!(TcpStream::connect(address).is_err(), "it is dead");
    counter.restart().await.unwrap();
    assert_eq!(counter.address(), address);
    assert_eq!(taken(&counter.take(&one("ana")).await.unwrap()), (1, 9), "it has forgotten");
}

#[tokio::test]
async fn two_counters_on_one_redis_count_together() {
    let mut redis = Redis::start().await.unwrap();
    let counters = [Counter::on(&redis).await.unwrap(), Counter::on(&redis).await.unwrap()];
    assert_eq!(taken(&counters[0].take(&one("ana")).await.unwrap()), (1, 9));
    assert_eq!(taken(&counters[1].take(&one("ana")).await.unwrap()), (1, 8));
    redis.kill().unwrap();
    assert!(counters[0].take(&one("ana")).await.is_err(), "there is no store");
    redis.restart().await.unwrap();
    poll::until("the store to be back", async || counters[0].take(&one("ana")).await).await.unwrap();
}

#[tokio::test]
async fn a_way_can_be_cut_and_frozen() {
    let counter = Counter::in_memory().await.unwrap();
    let link = Link::to(counter.address()).await.unwrap();
    let ask = || http::post(link.address(), "/v1/take", "application/json", one("ana").to_string().into());
    assert_eq!(ask().await.unwrap().status, 200);
    link.set(Way::Cut);
    assert!(ask().await.is_err());
    assert!(link.cuts() > 0);
    link.set(Way::Frozen);
    let before = link.accepted();
    let (asked, ()) = tokio::join!(ask(), async {
        poll::until("the question to be on its way", async || match link.accepted() - before {
            0 => Err(Fault::new("it is not")),
            _ => Ok(()),
        })
        .await
        .unwrap();
        // Each look goes to the counter and back, on the thread that also carries the link.
        for _ in 0..20 {
            assert_eq!(counter.counted().await.unwrap().taken, 1, "nothing passes");
        }
        link.set(Way::Open);
    });
    assert_eq!(asked.unwrap().status, 200, "what was sent arrives late");
    assert_eq!(counter.counted().await.unwrap().taken, 2);
}

#[tokio::test]
async fn a_relay_reads_along_and_answers_as_it_is_told() {
    let counter = Counter::in_memory().await.unwrap();
    let relay = Relay::to(counter.address()).await.unwrap();
    let batch = Batch::from_json(one("ana").to_string().as_bytes()).unwrap().to_postcard();
    let ask = || http::post(relay.address(), "/v1/take", POSTCARD, batch.clone().into());
    assert_eq!(ask().await.unwrap().status, 200);
    relay.set(Script::Say(503, "no".into()));
    assert_eq!(ask().await.unwrap().status, 503);
    for script in [Script::Lose, Script::HangUp] {
        relay.set(script);
        assert!(ask().await.is_err());
    }
    let calls = relay.calls();
    let seen: Vec<_> = calls.iter().map(|call| (call.groups, call.takes[0].taken)).collect();
    assert_eq!(seen, [(1, Some(1)), (1, None), (1, Some(1)), (1, None)]);
    assert_eq!(calls[0].takes[0].manner, Ask::All);
    assert_eq!(counter.counted().await.unwrap().taken, 2, "once passed, once lost on the way back");
    let ledger = Ledger::of(&calls, "r", None);
    assert_eq!((ledger.all, ledger.charged()), (2, 2));
}

/// Each proxy has a table of its own: what `global` is for.
#[tokio::test]
async fn proxies_share_nothing_without_a_counter() {
    let limits = json!({ "rules": [rule("local", "/", &limit(5))] });
    let fleet = start_fleet(&Setup::global(limits), 2).await;
    assert_eq!(admitted_by(fleet.envoys(), 4, 20, "/", "ana").await, [5, 5]);
    let reply = http::send(fleet.envoys()[0].address(), keyed("/", "ana")).await.unwrap();
    assert_eq!(reply.status, 429);
}

fn one(key: &str) -> Value {
    json!({ "groups": [{ "takes": [{ "rule": "r", "limit": "10/1h", "key": key }] }] })
}

fn taken(answer: &Value) -> (u64, u64) {
    let take = &answer["groups"][0]["takes"][0];
    (take["taken"].as_u64().expect("a number"), take["remaining"].as_u64().expect("a number"))
}
