//! TLS, users and passwords, databases, prefixes: what the server's address can say.

use std::time::{Duration, Instant};

use tidegate_counter::store::redis::{Options, RedisStore};
use tidegate_counter::store::{Store, StoreError};

use crate::outages::{connect, remaining, take};
use crate::server::{Dir, Server, free_port};
use crate::suite::{batch, one};

fn options(url: &str) -> Options {
    Options::from_url(url).expect("valid")
}

#[tokio::test]
async fn tls_is_spoken_to_a_server_that_is_who_it_says() {
    let dir = Dir::new();
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, signed.cert.pem()).expect("written");
    std::fs::write(&key, signed.signing_key.serialize_pem()).expect("written");
    let tls_port = free_port();
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let server = Server::start_in(
        dir,
        &[
            "--tls-port",
            &tls_port.to_string(),
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-auth-clients",
            "no",
        ],
    );
    let url = format!("rediss://127.0.0.1:{tls_port}/");
    let store = RedisStore::connect(&options(&url).with_ca(signed.cert.pem().into_bytes())).await;
    take(&store.expect("it is trusted")).await.expect("an answer");
    let stranger = RedisStore::connect(&options(&url)).await.err().expect("nobody vouches for it");
    assert!(matches!(&stranger, StoreError::Unreachable(why) if why.contains("certificate")), "{stranger}");
    let plain = RedisStore::connect(&options(&format!("rediss://{}/", server.address()))).await;
    assert!(plain.is_err(), "it speaks no TLS there");
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
    let error = RedisStore::connect(&options(&url("wrong"))).await.err().expect("a wrong password");
    assert!(error.to_string().contains("refuses this user or password"), "{error}");
    assert!(!error.to_string().contains("wrong@"), "{error}");
    let _: String = server.run("ACL SETUSER counter ~other:* resetkeys");
    let refused = take(&store).await.expect_err("it may not touch our keys any more");
    assert!(matches!(refused, StoreError::Unreachable(_)), "{refused}");
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
