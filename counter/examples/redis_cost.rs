//! What a take costs on Redis: CPU of the server and of this process, by batch size, beside a bare script that only
//! reads and writes as many keys of the same size through the same client.
//!
//! `cargo run --release --package tidegate-counter --example redis_cost -- redis://127.0.0.1:6379/`
//! (an empty server that nobody else uses).

#![allow(missing_docs, reason = "a program")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers, for people")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tidegate_config::wire::{Batch, Group, Sender, Take};
use tidegate_counter::store::Store;
use tidegate_counter::store::redis::{Options, RedisStore};

const IN_FLIGHT: usize = 32;
const KEYS: usize = 10_000;
const TAKES: usize = 100_000;

/// Reads the time, and reads and writes each key.
const BARE: &str = "
local time = redis.call('TIME')
local states = redis.call('MGET', unpack(KEYS))
for i = 1, #KEYS do
  redis.call('SET', KEYS[i], ARGV[2], 'PX', 120000)
end
return ARGV[1]
";

const LIMITS: [(&str, &str); 6] = [
    ("sliding_window", r#""1000000/1m""#),
    ("fixed_window", r#"{"requests":1000000,"per":"1m","algorithm":"fixed_window"}"#),
    ("token_bucket", r#"{"requests":1000000,"per":"1m","algorithm":"token_bucket"}"#),
    ("denied", r#""0/1m""#),
    ("sliding_buckets", r#"{"requests":1000000,"per":"1m","algorithm":"sliding_buckets","buckets":10}"#),
    ("sliding_log", r#"{"requests":20,"per":"1h","algorithm":"sliding_log"}"#),
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url = std::env::args().nth(1).expect("the address of a Redis server");
    let store =
        Arc::new(RedisStore::connect(&Options::from_url(&url).expect("an address")).await.expect("a server"));
    let client = redis::Client::open(url).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a server");
    println!("| what | batch | server µs/take | client µs/take | takes/s |");
    println!("|---|---|---|---|---|");
    for size in [1, 4, 16, 64] {
        bare(&mut connection, size).await;
        for (name, limit) in LIMITS {
            ours(&mut connection, &store, name, limit, size, false).await;
        }
        ours(&mut connection, &store, "sliding_window, sender", LIMITS[0].1, size, true).await;
    }
}

async fn bare(connection: &mut MultiplexedConnection, size: usize) {
    let hash: String =
        redis::cmd("SCRIPT").arg("LOAD").arg(BARE).query_async(connection).await.expect("it loads");
    let (input, state) = (vec![7_u8; 30 + 26 * size], vec![7_u8; 15]);
    let shared = connection.clone();
    measure(connection, "bare", size, |index| {
        let mut connection = shared.clone();
        let (hash, input, state) = (hash.clone(), input.clone(), state.clone());
        async move {
            let mut cmd = redis::cmd("EVALSHA");
            cmd.arg(hash).arg(size);
            for key in 0..size {
                let key = (index * size + key) % KEYS;
                cmd.arg(format!("tidegate:c:bare:{{{key:032x}}}:s60000"));
            }
            cmd.arg(input).arg(state);
            let answer: Vec<u8> = cmd.query_async(&mut connection).await.expect("an answer");
            assert!(!answer.is_empty());
        }
    })
    .await;
}

async fn ours(
    connection: &mut MultiplexedConnection,
    store: &Arc<RedisStore>,
    name: &str,
    limit: &str,
    size: usize,
    with_sender: bool,
) {
    let body = format!(r#"{{"groups":[{{"takes":[{{"rule":"r","limit":{limit},"key":""}}]}}]}}"#);
    let batch = Batch::from_json(body.as_bytes()).expect("a batch");
    let pattern = batch.groups[0].takes[0].clone();
    measure(connection, name, size, |index| {
        let take = |key: usize| Take {
            key: format!("{name}{}", (index * size + key) % KEYS).into_bytes().into(),
            rule: "r".into(),
            ..pattern.clone()
        };
        let batch = Batch {
            namespace: "bench".into(),
            sender: with_sender.then_some(Sender { proxy: 1, vm: size as u32, sequence: index as u64 }),
            wait_ms: None,
            states: false,
            groups: (0..size).map(|key| Group { takes: vec![take(key)] }).collect(),
        };
        let store = Arc::clone(store);
        async move {
            store.take(&batch, Instant::now() + Duration::from_secs(10)).await.expect("an answer");
        }
    })
    .await;
}

/// Runs `TAKES` takes in calls of `size`, `IN_FLIGHT` at a time, and prints what they cost.
async fn measure<F: Future<Output = ()> + Send + 'static>(
    connection: &mut MultiplexedConnection,
    name: &str,
    size: usize,
    call: impl Fn(usize) -> F,
) {
    let calls = TAKES / size / if size == 1 { 4 } else { 1 };
    let (server, own, begun) = (server_cpu(connection).await, own_cpu(), Instant::now());
    let mut under_way = tokio::task::JoinSet::new();
    for index in 0..calls {
        if under_way.len() >= IN_FLIGHT {
            under_way.join_next().await.expect("some are").expect("no panic");
        }
        under_way.spawn(call(index));
    }
    under_way.join_all().await;
    let took = begun.elapsed();
    let takes = (calls * size) as f64;
    let server = (server_cpu(connection).await - server) * 1e6 / takes;
    let own = (own_cpu() - own) * 1e6 / takes;
    println!("| {name} | {size} | {server:.2} | {own:.2} | {:.0} |", takes / took.as_secs_f64());
}

async fn server_cpu(connection: &mut MultiplexedConnection) -> f64 {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(connection).await.expect("an answer");
    let seconds = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).expect("Redis tells its CPU");
        line.trim_start_matches(':').trim().parse().expect("seconds")
    };
    seconds("used_cpu_user:") + seconds("used_cpu_sys:")
}

/// In hundredths of a second, as Linux counts.
fn own_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    let ticks: f64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<f64>().expect("ticks"))
        .sum();
    ticks / 100.0
}
