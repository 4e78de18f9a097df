//! What is asked of a server so as to know how it is: little, however many ask, and a server that is merely slow passes.

use std::time::{Duration, Instant};

use tidegate_counter::store::Store;
use tidegate_counter::store::redis::RedisStore;

use crate::forwarder::Forwarder;
use crate::outages::{connect, take};
use crate::server::Server;

/// `/readyz` is open to all: it must not cost the server what takes cost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_that_many_ask_for_is_asked_for_once() {
    const ASK: usize = 2_000;
    let server = Server::start();
    let store: &'static RedisStore = Box::leak(Box::new(connect(&server.url()).await));
    let _: String = server.run("CONFIG RESETSTAT");
    let begun = Instant::now();
    let asking: Vec<_> = (0..ASK).map(|_| tokio::spawn(store.ready())).collect();
    for (index, asking) in asking.into_iter().enumerate() {
        if index % 2 == 0 {
            // Who leaves makes nobody ask again.
            asking.abort();
        } else {
            asking.await.expect("no panic").expect("it is ready");
        }
    }
    let tenths = usize::try_from(begun.elapsed().as_millis() / 100).expect("short");
    let calls: String = server.run("INFO commandstats");
    let probes = calls.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).expect("a probe");
    let probes: usize = probes.split(',').next().and_then(|count| count.parse().ok()).expect("a number");
    assert!(probes <= 2 + tenths, "{probes} in {tenths} tenths of a second");
}

/// The probe's answer is late, but others come: the connection is of use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_others_is_not_given_up() {
    let server = Server::start();
    let forwarder = Forwarder::to(&server.address()).await;
    let store: &'static RedisStore = Box::leak(Box::new(connect(&forwarder.url()).await));
    // Sixteen answers of some 50 bytes take two seconds, and each an eighth of one.
    forwarder.answer_in_pieces(16);
    forwarder.delay_answers(Duration::from_millis(40));
    let callers = (0..16).map(|_| {
        tokio::spawn(async move {
            for _ in 0..4 {
                take(store).await.expect("an answer");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no panic");
    }
    assert_eq!(forwarder.connections(), 1, "the connection is kept");
}
