//! TLS, users and passwords, databases, prefixes: what the server's address can say.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tidegate_counter::store::redis::{Cause, NotConnected, RedisStore};
use tidegate_counter::store::{Store, StoreError};

use crate::outages::{comes_back, connect, eventually, options, remaining, take};
use crate::server::{Dir, Server};
use crate::suite::{batch, one};

/// Why there is no connection; no waiting for better times that do not come.
async fn refused(url: &str) -> NotConnected {
    let begun = Instant::now();
    let why = RedisStore::connect(&options(url)).await.err().expect("no connection");
    assert!(begun.elapsed() < Duration::from_secs(50), "it was not tried for a minute: {why}");
    why
}

#[tokio::test]
async fn tls_is_spoken_to_a_server_that_is_who_it_says() {
    let dir = Dir::new();
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, signed.cert.pem()).expect("written");
    std::fs::write(&key, signed.signing_key.serialize_pem()).expect("written");
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let tls_port = Cell::new(0);
    let server = Server::start_in(dir, |port| {
        tls_port.set(port);
        let port = port.to_string();
        let args = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key];
        [&args[..], &["--tls-auth-clients", "no"]].concat().into_iter().map(str::to_owned).collect()
    });
    let tls_port = tls_port.get();
    let url = format!("rediss://127.0.0.1:{tls_port}/");
    let store = RedisStore::connect(&options(&url).with_ca(signed.cert.pem().into_bytes())).await;
    take(&store.expect("it is trusted")).await.expect("an answer");
    let stranger = refused(&url).await;
    assert_eq!(stranger.cause, Cause::Certificate, "nobody vouches for it: {stranger}");
    let plain = options(&format!("rediss://{}/", server.address())).with_patience(Duration::ZERO);
    assert!(RedisStore::connect(&plain).await.is_err(), "it speaks no TLS there");
}

#[tokio::test]
async fn a_user_needs_only_what_the_docs_name_and_a_wrong_password_is_told() {
    let server = Server::start();
    let rights = "resetkeys ~tidegate:* +evalsha +eval +script|load +hello +auth +select +time +mget \
                  +get +set +hget +hset +pexpire +zadd +zremrangebyscore +zcard";
    let _: String =
        server.run(&format!("ACL SETUSER counter on >s3cret -@all {}", rights.replace("  ", " ")));
    let url = |password: &str| format!("redis://counter:{password}@{}/", server.address());
    let store = connect(&url("s3cret")).await;
    let sent = crate::suite::sent_by(1, 1, 1, batch("n", vec![vec![one("5/1m", "ana")]]));
    let in_time = || Instant::now() + Duration::from_secs(10);
    store.take(&sent, in_time()).await.expect("an answer");
    store.take(&sent, in_time()).await.expect("the same again");
    store.ready().await.expect("it may write");
    let error = refused(&url("wrong")).await;
    assert_eq!(error.cause, Cause::Password, "{error}");
    assert!(error.to_string().contains("refuses this user or password"), "{error}");
    assert!(!error.to_string().contains("wrong@"), "{error}");
}

/// A right that is taken away fails takes and health, whichever it is, on a connection that stands; given back, they
/// go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_is_told_and_health_tells_the_truth() {
    let server = Server::start();
    let _: String = server.run("ACL SETUSER counter on >s3cret ~tidegate:* +@all");
    let url = format!("redis://counter:s3cret@{}/", server.address());
    let store = connect(&url).await;
    take(&store).await.expect("an answer");
    for (away, back) in [
        ("-evalsha", "+evalsha"),
        ("-mget", "+mget"),
        ("-hset", "+hset"),
        ("-eval", "+eval"),
        ("resetkeys ~other:*", "resetkeys ~tidegate:*"),
    ] {
        let _: String = server.run(&format!("ACL SETUSER counter {away}"));
        let unready = eventually("health is told", async || store.ready().await.err()).await;
        assert!(matches!(unready, StoreError::Unreachable(_)), "{away}: {unready}");
        if !["-hset", "-eval"].contains(&away) {
            let failed = take(&store).await.expect_err("a take needs it");
            assert!(matches!(failed, StoreError::Unreachable(_)), "{away}: {failed}");
        }
        let error = refused(&url).await;
        assert_eq!(error.cause, Cause::Rights, "{away}: {error}");
        let _: String = server.run(&format!("ACL SETUSER counter {back}"));
        comes_back(&store).await;
    }
    let mut metrics = String::new();
    store.metrics(&mut metrics);
    assert!(metrics.contains("tidegate_redis_connections_total 1\n"), "it was never made anew: {metrics}");
}

#[tokio::test]
async fn databases_and_prefixes_count_apart() {
    let server = Server::start();
    let other_database = connect(&format!("{}3", server.url())).await;
    let other_prefix = options(&server.url()).with_prefix("second").expect("a prefix");
    let other_prefix = RedisStore::connect(&other_prefix).await.expect("connected");
    let first = connect(&server.url()).await;
    for store in [&first, &other_database, &other_prefix] {
        assert_eq!(remaining(&take(store).await.expect("an answer")), 999);
    }
    let keys: Vec<String> = server.run("KEYS *");
    assert!(keys.iter().any(|key| key.starts_with("second:c:")), "{keys:?}");
    assert_eq!(
        remaining(&take(&connect(&server.url()).await).await.expect("an answer")),
        998,
        "the same again"
    );
}
