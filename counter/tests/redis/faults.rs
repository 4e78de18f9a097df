//! Faults that others' counters have, each a test that ours has not. The numbers are those of `docs/redis.md`, which
//! also says why the missing ones cannot be.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tidegate_config::wire::{BODY_BYTES_MAX, Batch, KEY_BYTES_MAX};
use tidegate_core::Retry;
use tidegate_counter::store::redis::{IN_FLIGHT_MAX, RedisStore};
use tidegate_counter::store::{Store, StoreError};

use crate::outages::{
    all_are_late, comes_back, connect, eventually, fails_fast, options, remaining, take, take_within,
};
use crate::server::Server;
use crate::suite::{all, batch, force, one, sent_by};

/// What a test waits for comes at once, or something is broken.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(2), future).await.expect("in time")
}

async fn ask(store: &RedisStore, groups: Vec<Vec<tidegate_config::wire::Take<'static>>>) -> Vec<Vec<u64>> {
    let answered = store.take(&batch("n", groups), Instant::now() + Duration::from_secs(30)).await;
    let taken =
        |group: &tidegate_config::wire::GroupAnswer| group.takes.iter().map(|take| take.taken).collect();
    answered.expect("an answer").groups.iter().map(taken).collect()
}

/// One error that is not transient stops the work for good, and health stays green.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_01_full_memory_stops_nothing_for_good() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let store = connect(&server.url()).await;
    for _ in 0..3 {
        let _: String = server.run("CONFIG SET maxmemory 1");
        eventually("health says full", async || {
            matches!(store.ready().await, Err(StoreError::Full(_))).then_some(())
        })
        .await;
        assert!(matches!(take(&store).await, Err(StoreError::Full(_))));
        let _: String = server.run("CONFIG SET maxmemory 0");
        comes_back(&store).await;
    }
}

/// A frozen server and many keys hang every request, also after it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_02_many_keys_on_a_frozen_server_hang_nobody() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    server.freeze();
    for key in 0..5_000 {
        let asked = batch("n", vec![vec![one("5/1m", &format!("k{key}"))]]);
        let refused = in_time(store.take(&asked, Instant::now() + Duration::from_millis(1))).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    server.thaw();
    comes_back(&store).await;
}

/// After an overshoot what remains underflows.
#[tokio::test]
async fn fault_03_nothing_remains_of_a_debt() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    for algorithm in ["fixed_window", "sliding_window", "sliding_buckets", "sliding_log", "token_bucket"] {
        let limit = format!(r#"{{"requests":5,"per":"10s","algorithm":"{algorithm}"}}"#);
        for takes in [vec![force(9, one(&limit, "ana"))], vec![one(&limit, "ana")]] {
            let asked = batch("n", vec![takes]);
            let answered =
                store.take(&asked, Instant::now() + Duration::from_secs(30)).await.expect("an answer");
            assert_eq!(remaining(&answered), 0, "{algorithm}");
        }
    }
}

/// Without a time-out a frozen server hangs the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_04_no_call_outlives_its_deadline_for_long() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    server.freeze();
    // By its own deadline. Only on a machine that stands still for a second may the connection be given up first.
    eventually("a call runs out of its own time", async || {
        let refused = in_time(take_within(&store, Duration::from_millis(30))).await;
        if matches!(refused, Err(StoreError::Unreachable(_))) {
            server.thaw();
            comes_back(&store).await;
            server.freeze();
            return None;
        }
        assert_eq!(refused, Err(StoreError::Deadline));
        Some(())
    })
    .await;
    let health = in_time(store.ready()).await;
    assert!(matches!(health, Err(StoreError::Deadline | StoreError::Unreachable(_))), "{health:?}");
}

/// A client's data becomes an expression, and its error a panic.
#[tokio::test]
async fn fault_05_no_key_is_ever_interpreted() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let hostile = [
        "\r\n*1\r\n$8\r\nFLUSHALL\r\n",
        "{}",
        "{a}{b}",
        "]]..KEYS[1]..[[",
        "%s%n",
        "\0\0",
        "'\"\\",
        "a:c:n:{x}",
    ];
    keys.extend(hostile.map(|key| key.as_bytes().to_vec()));
    let takes = keys.iter().map(|key| {
        let mut take = one("1/700d", "");
        take.key = key.clone().into();
        vec![take]
    });
    let groups: Vec<_> = takes.collect();
    for half in groups.chunks(200) {
        assert_eq!(ask(&store, half.to_vec()).await, vec![vec![1]; half.len()], "each has its own counter");
        assert_eq!(ask(&store, half.to_vec()).await, vec![vec![0]; half.len()], "and the same one again");
    }
}

/// An index without expiry grows for ever.
#[tokio::test]
async fn fault_07_every_key_expires() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    let algorithms = ["fixed_window", "sliding_window", "sliding_buckets", "sliding_log", "token_bucket"];
    for (sequence, algorithm) in (1..).zip(algorithms) {
        let limit = format!(r#"{{"requests":5,"per":"1h","algorithm":"{algorithm}"}}"#);
        let taken = batch("n", vec![vec![one(&limit, "ana")], vec![force(100, one(&limit, "bob"))]]);
        let in_time = Instant::now() + Duration::from_secs(30);
        let answered = store.take(&sent_by(1, 1, sequence, taken), in_time).await.expect("an answer");
        let receipt = answered.groups[1].takes[0].receipt;
        ask(&store, vec![vec![crate::suite::refund(50, receipt, one(&limit, "bob"))]]).await;
    }
    let proxies = || server.run::<Vec<String>>("KEYS tidegate:p:*");
    eventually("the proxies are told", async || Some(()).filter(|()| !proxies().is_empty())).await;
    let keys: Vec<String> = server.run("KEYS *");
    assert_eq!(keys.len(), 10 + 5, "counters, epoch, two of probes, sender, proxies: {keys:?}");
    for key in keys {
        // The probe and the proxies may end just now.
        let ttl_ms: i64 = server.run(&format!("PTTL {key}"));
        assert!(ttl_ms > 0 || ttl_ms == -2, "{key} never expires");
    }
}

/// A flood of keys evicts a limited one, which is then admitted again.
#[tokio::test]
async fn fault_08_a_flood_of_keys_displaces_nobody() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    assert_eq!(ask(&store, vec![vec![all(5, one("5/700d", "ana"))]]).await, [[5]]);
    for flood in 0..100 {
        let groups = (0..200).map(|key| vec![one("5/700d", &format!("{flood}-{key}"))]).collect();
        ask(&store, groups).await;
    }
    assert_eq!(ask(&store, vec![vec![one("5/700d", "ana")]]).await, [[0]], "still denied");
}

/// The same in a server that has no more room: it refuses newcomers, and forgets nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_08_a_flood_that_fills_the_server_displaces_nobody() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let store = connect(&server.url()).await;
    assert_eq!(ask(&store, vec![vec![all(5, one("5/700d", "ana"))]]).await, [[5]]);
    let info: String = server.run("INFO memory");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("its memory");
    let used: u64 = used.trim().parse().expect("bytes");
    let _: String = server.run(&format!("CONFIG SET maxmemory {}", used + (2 << 20)));
    let mut is_full = false;
    for flood in 0..1_000 {
        let groups = (0..200).map(|key| vec![one("5/700d", &format!("{flood}-{key}"))]).collect();
        let asked = in_time(store.take(&batch("n", groups), Instant::now() + Duration::from_secs(30))).await;
        is_full = matches!(asked, Err(StoreError::Full(_)));
        if is_full {
            break;
        }
        asked.expect("an answer");
    }
    assert!(is_full, "200,000 counters have 2 MiB");
    assert_eq!(ask(&store, vec![vec![one("5/700d", "ana")]]).await, [[0]], "still denied");
}

/// What one limit denies is charged to the others.
#[tokio::test]
async fn fault_09_a_denied_take_charges_no_other() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    let both = || vec![one("1000/700d", "wide"), one("10/700d", "narrow")];
    for turn in 0..100 {
        let taken = u64::from(turn < 10);
        assert_eq!(ask(&store, vec![both()]).await, [[taken, taken]]);
    }
    let left = store.take(&batch("n", vec![both()]), Instant::now() + Duration::from_secs(30)).await;
    assert_eq!(remaining(&left.expect("an answer")), 990, "ten, not a hundred");
}

/// One request that is heavier than its limit makes every later one denied.
#[tokio::test]
async fn fault_10_a_take_beyond_the_limit_poisons_nothing() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    let heavy = batch("n", vec![vec![all(6, one("5/700d", "ana"))]]);
    let answered = store.take(&heavy, Instant::now() + Duration::from_secs(30)).await.expect("an answer");
    assert_eq!(answered.groups[0].takes[0].retry, Retry::Never);
    assert_eq!(ask(&store, vec![vec![all(5, one("5/700d", "ana"))]]).await, [[5]]);
}

/// A frozen server makes calls pile up, and when it is back those that nobody waits for are charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_11_abandoned_calls_neither_pile_up_nor_are_charged() {
    let server = Server::start();
    let store: &'static RedisStore = Box::leak(Box::new(connect(&server.url()).await));
    server.freeze();
    let calls: Vec<_> =
        (0..20_000).map(|_| tokio::spawn(take_within(store, Duration::from_millis(20)))).collect();
    let mut sent = 0;
    for call in calls {
        match call.await.expect("no panic") {
            Err(StoreError::Deadline) => sent += 1,
            Err(StoreError::Busy | StoreError::Unreachable(_) | StoreError::Expired) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(sent <= IN_FLIGHT_MAX, "{sent} calls are kept for a server that does not answer");
    fails_fast(store).await;
    all_are_late().await;
    server.thaw();
    assert_eq!(remaining(&comes_back(store).await), 999, "nobody but the last is charged");
}

/// A killed server leaves every call blocked, and they still are when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_12_a_killed_server_blocks_nobody() {
    let mut server = Server::start();
    let store: &'static RedisStore = Box::leak(Box::new(connect(&server.url()).await));
    server.kill();
    let calls: Vec<_> =
        (0..2_000).map(|_| tokio::spawn(take_within(store, Duration::from_mins(10)))).collect();
    for call in calls {
        let refused = tokio::time::timeout(Duration::from_mins(2), call).await.expect("it does not block");
        assert!(refused.expect("no panic").is_err());
    }
    fails_fast(store).await;
    server.restart();
    comes_back(store).await;
}

/// A server that is absent at the start makes a panic.
#[tokio::test]
async fn fault_14_no_server_at_the_start_is_an_error_that_says_so() {
    // A port that is bound and not listened on: nobody else can come by it meanwhile.
    let nobody = tokio::net::TcpSocket::new_v4().expect("a socket");
    nobody.bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let url = format!("redis://{}", nobody.local_addr().expect("bound"));
    let error = RedisStore::connect(&options(&url).with_patience(Duration::from_millis(100))).await;
    let error = error.err().expect("nobody is there").error;
    assert!(matches!(&error, StoreError::Unreachable(why) if why.contains("refused")), "{error}");
}

/// A service may start before its server does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_14_a_server_that_comes_later_is_waited_for() {
    let mut server = Server::start();
    server.kill();
    let url = server.url();
    let connecting = tokio::spawn(async move { connect(&url).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!connecting.is_finished());
    server.restart();
    take(&connecting.await.expect("no panic")).await.expect("an answer");
}

/// Two different subjects have one key.
#[tokio::test]
async fn fault_16_no_two_subjects_share_a_counter() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    let take = |rule: &str, key: &str| {
        crate::suite::take(&format!(r#"{{"rule": "{rule}", "limit": "1/700d", "key": "{key}"}}"#))
    };
    let subjects = [("a", "b_c_d"), ("a", "b,c=d"), ("a_b", "c_d"), ("a_b_c", "d"), ("a", "b_c"), ("a", "")];
    for (rule, key) in subjects {
        assert_eq!(ask(&store, vec![vec![take(rule, key)]]).await, [[1]], "{rule} {key}");
    }
    let counters: HashSet<String> = server.run::<Vec<String>>("KEYS tidegate:c:*").into_iter().collect();
    assert_eq!(counters.len(), subjects.len());
}

/// A long value becomes a key as long.
#[tokio::test]
async fn fault_17_a_long_key_is_a_short_name() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    ask(&store, vec![vec![one("1/700d", &"k".repeat(KEY_BYTES_MAX))]]).await;
    let names: Vec<String> = server.run("KEYS tidegate:c:*");
    assert_eq!(names.len(), 1);
    assert!(names[0].len() <= 140, "{names:?}");
    let long = "k".repeat(100_000);
    let body = format!(r#"{{"groups":[{{"takes":[{{"rule":"r","limit":"1/700d","key":"{long}"}}]}}]}}"#);
    assert!(
        body.len() < BODY_BYTES_MAX && Batch::from_json(body.as_bytes()).is_err(),
        "it is refused by name"
    );
}

/// After the store was reset a cache of its own keeps denying.
#[tokio::test]
async fn fault_18_a_reset_store_admits_at_once() {
    let server = Server::start();
    let store = connect(&server.url()).await;
    let all_of_it = || batch("n", vec![vec![all(5, one("5/700d", "ana"))]]);
    let in_time = || Instant::now() + Duration::from_secs(30);
    let before = store.take(&all_of_it(), in_time()).await.expect("an answer");
    assert_eq!(store.take(&all_of_it(), in_time()).await.expect("an answer").groups[0].takes[0].taken, 0);
    let _: String = server.run("FLUSHALL");
    let after = store.take(&all_of_it(), in_time()).await.expect("an answer");
    assert_eq!(after.groups[0].takes[0].taken, 5);
    assert_ne!(after.epoch, before.epoch, "the loss can be noticed");
}
