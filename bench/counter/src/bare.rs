//! Redis alone: a script called through the client that the counter uses, without a service between.

use std::process::Stdio;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tidegate_config::wire::Batch;
use tidegate_counter::store::redis::PREFIX_DEFAULT;
use tidegate_counter::store::redis::call::{Caller, Said, When};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cases::{self, Case, Script, Target};
use crate::servers::{self, Servers};
use crate::{IN_FLIGHT, Measured, ROUND_TIME, cpu};

const MINIMAL: &str = "
local time = redis.call('TIME')
local states = redis.call('MGET', unpack(KEYS))
for i = 1, #KEYS do
  redis.call('SET', KEYS[i], ARGV[2], 'PX', 120000)
end
return ARGV[1]
";
const KEYS: usize = 65_536;
/// About what a take needs on its way to the script, and what a state is kept in.
const TAKE_BYTES: usize = 26;
const STATE_BYTES: usize = 15;

/// Measures a process of its own that calls Redis, so that its CPU can be told from that of the load.
pub(crate) async fn measure(index: usize, servers: &Servers) -> Measured {
    let own = std::env::current_exe().expect("a path");
    let mut command = servers::on_core(servers::LOAD_CORE, own.to_str().expect("text"));
    command.args(["bare", &servers.redis.port.to_string(), &index.to_string()]);
    let redis = cpu::of(servers.redis.pid);
    let mut child = tokio::process::Command::from(command).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).await.expect("a line");
    child.wait().await.expect("its end");
    let numbers: Vec<f64> = line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let [calls, seconds, cpu_us, p50_us, p99_us] = numbers[..] else { panic!("{line:?}") };
    Measured {
        requests_per_s: calls / seconds,
        cpu_us: cpu_us / calls,
        redis_cpu_us: (cpu::of(servers.redis.pid) - redis).as_secs_f64() * 1e6 / calls,
        p50_us,
        p99_us,
    }
}

/// The process: prints calls, seconds, CPU in µs, p50 and p99 in µs.
pub(crate) async fn run(port: &str, index: usize) {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("an address");
    let connection = client.get_multiplexed_async_connection().await.expect("a server");
    let case = cases::all()[index];
    match case.target {
        Target::Bare(Script::Ours) => ours(case, connection).await,
        _ => minimal(case.shape.takes(), connection).await,
    }
}

/// Packs each batch anew and reads its answer, as the service does.
async fn ours(case: Case, mut connection: MultiplexedConnection) {
    let caller = &*Box::leak(Box::new(Caller::new(PREFIX_DEFAULT, 1)));
    caller.load().exec_async(&mut connection).await.expect("it loads");
    let bodies = &*case.bodies().leak();
    let batches: Vec<Batch> =
        bodies.iter().map(|body| Batch::from_postcard(body).expect("a batch")).collect();
    let batches = &*batches.leak();
    report(move |task, call| {
        let (mut connection, batch) = (connection.clone(), &batches[(task * 8 + call) % batches.len()]);
        async move {
            let call = caller.by_hash(&caller.call(batch, When::default()));
            let answer: Vec<u8> = call.query_async(&mut connection).await.expect("an answer");
            assert!(matches!(Said::read(&answer, batch), Some(Said::Applied { .. })));
        }
    })
    .await;
}

async fn minimal(takes: usize, mut connection: MultiplexedConnection) {
    let hash: String =
        redis::cmd("SCRIPT").arg("LOAD").arg(MINIMAL).query_async(&mut connection).await.expect("it loads");
    let (hash, input) = (&*hash.leak(), &*vec![7_u8; 30 + TAKE_BYTES * takes].leak());
    report(move |task, call| {
        let mut connection = connection.clone();
        async move {
            let mut cmd = redis::cmd("EVALSHA");
            cmd.arg(hash).arg(takes);
            for take in 0..takes {
                let key = (task * 1_000 + call * takes + take) % KEYS;
                cmd.arg(format!("tidegate:c:bare:{{{key:032x}}}:s60000"));
            }
            cmd.arg(input).arg(&[7_u8; STATE_BYTES]);
            let answer: Vec<u8> = cmd.query_async(&mut connection).await.expect("an answer");
            assert_eq!(answer.len(), input.len());
        }
    })
    .await;
}

/// Calls for as long as a round, and prints what it took. `call` is told its task and its number in that.
async fn report<F: Future<Output = ()> + Send>(call: impl Fn(usize, usize) -> F + Clone + Send + 'static) {
    let (begun, cpu) = (Instant::now(), cpu::of(std::process::id()));
    let mut tasks = Vec::new();
    for task in 0..IN_FLIGHT {
        let call = call.clone();
        tasks.push(tokio::spawn(async move {
            let mut latencies: Vec<u128> = Vec::new();
            while begun.elapsed() < ROUND_TIME {
                let sent = Instant::now();
                call(task, latencies.len()).await;
                latencies.push(sent.elapsed().as_micros());
            }
            latencies
        }));
    }
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("no panic"));
    }
    let (took, cpu): (Duration, Duration) = (begun.elapsed(), cpu::of(std::process::id()) - cpu);
    latencies.sort_unstable();
    let at = |percent: usize| latencies[latencies.len() * percent / 100];
    let (calls, seconds, cpu_us) = (latencies.len(), took.as_secs_f64(), cpu.as_micros());
    println!("{calls} {seconds} {cpu_us} {} {}", at(50), at(99));
}
