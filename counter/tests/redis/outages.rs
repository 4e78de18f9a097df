//! A server that dies, freezes, fills up, slows down, forgets or hands over: what the store does meanwhile and after.
//! `docs/redis.md` states each behaviour.

use std::future::Future;
use std::time::{Duration, Instant};

use tidegate_counter::store::redis::{Options, RedisStore};
use tidegate_counter::store::{Answered, Store, StoreError};

use crate::forwarder::Forwarder;
use crate::server::Server;
use crate::suite::{batch, force, one, sent_by};

/// Over so long a window nothing is given back while a test runs, not even across its end.
const LONG: &str = "1000/700d";
/// For calls that a test gives up; what they may still do to a server they have done after twice as long.
const MOMENT: Duration = Duration::from_millis(50);

/// A machine with much to do is no reason to fail.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn options(url: &str) -> Options {
    Options::from_url(url).expect("valid").with_patience(PATIENCE)
}

pub(crate) async fn connect(url: &str) -> RedisStore {
    RedisStore::connect(&options(url)).await.expect("connected")
}

/// One of `ana`'s thousand, with so much time.
pub(crate) async fn take_within(store: &RedisStore, wait: Duration) -> Result<Answered, StoreError> {
    store.take(&batch("n", vec![vec![one(LONG, "ana")]]), Instant::now() + wait).await
}

pub(crate) async fn take(store: &RedisStore) -> Result<Answered, StoreError> {
    take_within(store, Duration::from_secs(10)).await
}

pub(crate) fn remaining(answered: &Answered) -> u64 {
    answered.groups[0].takes[0].remaining
}

/// Tries until it is so.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if let Some(found) = attempt().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

pub(crate) async fn comes_back(store: &RedisStore) -> Answered {
    eventually("the store is ready", async || store.ready().await.ok()).await;
    eventually("a take is answered", async || take(store).await.ok()).await
}

/// Until the store knows, takes may run out of time; from then on they say why not, and at once.
pub(crate) async fn fails_fast(store: &RedisStore) -> StoreError {
    eventually("takes say that the store is gone", async || {
        let error = take_within(store, MOMENT).await.err();
        error.filter(|error| matches!(error, StoreError::Unreachable(_)))
    })
    .await
}

/// Until the deadlines of all that [`fails_fast`] sent have passed: a server that is thawed charges none of them.
pub(crate) async fn all_are_late() {
    tokio::time::sleep(4 * MOMENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_with_its_data() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = connect(&server.url()).await;
    let before = take(&store).await.expect("an answer");
    server.kill();
    fails_fast(&store).await;
    assert!(matches!(store.ready().await, Err(StoreError::Unreachable(_))), "health tells the truth");
    server.restart();
    let after = comes_back(&store).await;
    assert_eq!(after.epoch, before.epoch, "nothing was lost");
    assert_eq!(remaining(&after), 998, "what was counted still counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_empty() {
    let mut server = Server::start();
    let store = connect(&server.url()).await;
    let before = take(&store).await.expect("an answer");
    server.kill();
    fails_fast(&store).await;
    server.restart();
    let after = comes_back(&store).await;
    assert_ne!(after.epoch, before.epoch, "the loss can be noticed");
    assert_eq!(remaining(&after), 999);
    assert_eq!(take(&store).await.expect("an answer").epoch, after.epoch, "the new epoch stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_and_given_room_again() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let store = connect(&server.url()).await;
    take(&store).await.expect("an answer");
    let _: String = server.run("CONFIG SET maxmemory 1");
    let refused = take(&store).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    let health = store.ready().await;
    assert!(matches!(health, Err(StoreError::Full(_))), "{health:?}");
    let fresh = connect(&server.url()).await;
    assert!(
        matches!(take(&fresh).await, Err(StoreError::Full(_))),
        "a service that starts meanwhile says the same"
    );
    let _: String = server.run("CONFIG SET maxmemory 0");
    let after = comes_back(&store).await;
    assert_eq!(remaining(&after), 998, "what was refused was not counted");
    comes_back(&fresh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_and_thawed() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    take(&store).await.expect("an answer");
    server.freeze();
    let first = take_within(&store, MOMENT).await;
    assert!(matches!(first, Err(StoreError::Deadline | StoreError::Unreachable(_))), "{first:?}");
    let why = fails_fast(&store).await;
    assert!(why.to_string().contains("answer"), "{why}");
    assert!(store.ready().await.is_err(), "health tells the truth");
    all_are_late().await;
    server.thaw();
    // A take that is sent before the store is back may be late and charged all the same.
    while store.ready().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(remaining(&comes_back(&store).await), 998, "whoever gave up was not charged");
}

/// Who is ready to wait for long is told as soon as the connection is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patient_call_does_not_wait_for_a_frozen_server() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    server.freeze();
    let begun = Instant::now();
    let refused = take_within(&store, Duration::from_mins(10)).await;
    assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_mins(5), "it waited for its deadline");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow() {
    let server = Server::start();
    let forwarder = Forwarder::to(&server.address()).await;
    let store = connect(&forwarder.url()).await;
    take(&store).await.expect("an answer");
    // Much less than a probe may take, also when several answers wait for each other.
    forwarder.delay_answers(MOMENT);
    // It may be charged, and says so; on a machine that stands still for a moment it may be too late to be sent.
    eventually("who does not wait is told so", async || {
        (take_within(&store, MOMENT / 5).await == Err(StoreError::Deadline)).then_some(())
    })
    .await;
    take(&store).await.expect("who waits is answered");
    store.ready().await.expect("slow is not gone");
    forwarder.delay_answers(Duration::ZERO);
    take(&store).await.expect("an answer");
    assert_eq!(forwarder.connections(), 1, "the connection is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed_under_load() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    let store = &*Box::leak(Box::new(store));
    let workers: Vec<_> = (0..32)
        .map(|_| {
            tokio::spawn(async move {
                let mut taken = 0;
                for _ in 0..40 {
                    taken += take(store).await.expect("no flush is noticed").groups[0].takes[0].taken;
                }
                taken
            })
        })
        .collect();
    let mut flushes = 0;
    while workers.iter().any(|worker| !worker.is_finished()) {
        let _: String = server.run("SCRIPT FLUSH");
        store.ready().await.expect("it takes batches");
        flushes += 1;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let mut taken = 0;
    for worker in workers {
        taken += worker.await.expect("no panic");
    }
    assert_eq!(taken, 1_000, "each was counted once, over {flushes} flushes");
    assert!(flushes > 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_over_to_a_replica() {
    let mut master = Server::start();
    let replica = Server::start_with(&["--repl-diskless-sync-delay", "0"]);
    let _: String = master.run("CONFIG SET repl-diskless-sync-delay 0");
    let _: String = replica.run(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    let forwarder = Forwarder::to(&master.address()).await;
    let store = connect(&forwarder.url()).await;
    let before = take(&store).await.expect("an answer");
    eventually("the replica has it", async || Some(()).filter(|()| replica.run::<u64>("DBSIZE") >= 2)).await;
    eventually("the replica has all", async || Some(()).filter(|()| master.run::<u64>("WAIT 1 100") == 1))
        .await;
    master.kill();
    fails_fast(&store).await;
    assert!(matches!(store.ready().await, Err(StoreError::Unreachable(_))), "health tells the truth");
    let _: String = replica.run("REPLICAOF NO ONE");
    forwarder.switch_to(&replica.address());
    let after = comes_back(&store).await;
    assert_eq!((after.epoch, remaining(&after)), (before.epoch, 998), "what was replicated still counts");
}

/// The master that the store is connected to becomes a replica: the connection lives, but takes no writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handed_over_while_connected() {
    let (old, new) = (Server::start(), Server::start());
    let forwarder = Forwarder::to(&old.address()).await;
    let store = connect(&forwarder.url()).await;
    take(&store).await.expect("an answer");
    forwarder.switch_to(&new.address());
    let _: String = old.run(&format!("REPLICAOF 127.0.0.1 {}", new.port));
    // A beat may see it first, and a replica may still be loading what its master has.
    let refused = eventually("takes fail, or the new master answers", async || match take(&store).await {
        Ok(_) => Some(None).filter(|_| forwarder.connections() > 1),
        Err(error) => Some(Some(error)),
    });
    if let Some(refused) = refused.await {
        let said = refused.to_string();
        let known = ["read-only replica", "loading its data", "replica without its master"];
        assert!(known.iter().any(|known| said.contains(known)), "{said}");
    }
    assert_eq!(remaining(&comes_back(&store).await), 999, "the new master begins from nothing");
    assert!(forwarder.connections() > 1);
}

/// The answer is lost, and the service is restarted before the sender asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_after_a_lost_answer_and_a_restart_counts_once() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let forwarder = Forwarder::to(&server.address()).await;
    let sent = || sent_by(7, 1, 41, batch("n", vec![vec![one(LONG, "ana"), force(3, one(LONG, "bob"))]]));
    let first = connect(&forwarder.url()).await;
    forwarder.swallow_answers(true);
    let lost = first.take(&sent(), Instant::now() + Duration::from_secs(10)).await;
    assert!(lost.is_err(), "{lost:?}");
    eventually("it is counted", async || {
        (server.run::<Vec<String>>("KEYS tidegate:c:*").len() == 2).then_some(())
    })
    .await;
    drop(first);
    // The server's own restart is no matter either, if it keeps its data.
    server.kill();
    server.restart();
    let second = connect(&server.url()).await;
    let in_time = || Instant::now() + Duration::from_secs(10);
    let answered = second.take(&sent(), in_time()).await.expect("an answer");
    assert_eq!(answered.groups[0].takes.iter().map(|take| take.taken).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(remaining(&answered), 999);
    assert_eq!(second.take(&sent(), in_time()).await.expect("an answer"), answered, "the same answer again");
    assert_eq!(remaining(&take(&second).await.expect("an answer")), 998, "counted once");
}

/// Nobody but a sender tries a take again: not the client library, and not we.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_whose_answer_is_lost_is_charged_once() {
    let server = Server::start();
    let forwarder = Forwarder::to(&server.address()).await;
    let store = connect(&forwarder.url()).await;
    assert_eq!(remaining(&take(&store).await.expect("an answer")), 999);
    forwarder.swallow_answers(true);
    let lost = take(&store).await;
    assert!(matches!(lost, Err(StoreError::Unreachable(_))), "it may be charged: {lost:?}");
    // Connections that are made meanwhile get no answer either.
    forwarder.swallow_answers(false);
    assert_eq!(remaining(&comes_back(&store).await), 997, "the lost one, once, and this");
    let _: String = server.run("CONFIG RESETSTAT");
    for _ in 0..50 {
        take(&store).await.expect("an answer");
    }
    let calls: String = server.run("INFO commandstats");
    assert!(calls.contains("cmdstat_evalsha:calls=50,"), "one call for each: {calls}");
    assert!(!calls.contains("cmdstat_script"), "the script was there: {calls}");
}

/// A take that is refused by one limit leaves the other as it was, whoever else is at it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_server_are_exact() {
    let server = Server::start();
    let stores: Vec<&'static RedisStore> = vec![
        Box::leak(Box::new(connect(&server.url()).await)),
        Box::leak(Box::new(connect(&server.url()).await)),
    ];
    let workers: Vec<_> = (0..64)
        .map(|worker| {
            let store = stores[worker % 2];
            tokio::spawn(async move {
                let mut taken = 0;
                for _ in 0..25 {
                    let both = vec![one(LONG, "ana"), one("100000/700d", "bob")];
                    let deadline = Instant::now() + Duration::from_mins(1);
                    let answered = store.take(&batch("n", vec![both]), deadline).await.expect("an answer");
                    let [ana, bob] = answered.groups[0].takes.as_slice() else { panic!("two") };
                    assert_eq!(ana.taken, bob.taken, "all or none");
                    taken += ana.taken;
                }
                taken
            })
        })
        .collect();
    let mut taken = 0;
    for worker in workers {
        taken += worker.await.expect("no panic");
    }
    assert_eq!(taken, 1_000);
    let bob = batch("n", vec![vec![one("100000/700d", "bob")]]);
    let answered = stores[0].take(&bob, Instant::now() + Duration::from_secs(10)).await.expect("an answer");
    assert_eq!(remaining(&answered), 98_999, "600 refusals left it as it was");
}
