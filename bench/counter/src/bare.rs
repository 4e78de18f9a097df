//! Redis alone: a script that reads the time, and reads and writes as many keys as there are takes, called through the
//! client that the counter uses, without a service between.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cases::Case;
use crate::servers::{self, Servers};
use crate::{IN_FLIGHT, Measured, ROUND_TIME, cpu};

const SCRIPT: &str = "
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
pub(crate) async fn measure(case: &Case, servers: &Servers) -> Measured {
    let own = std::env::current_exe().expect("a path");
    let mut command = servers::on_core(servers::LOAD_CORE, own.to_str().expect("text"));
    command.args(["bare", &servers.redis.port.to_string(), &case.shape.takes().to_string()]);
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
pub(crate) async fn run(port: &str, size: usize) {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a server");
    let hash: String =
        redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut connection).await.expect("it loads");
    let (begun, cpu) = (Instant::now(), cpu::of(std::process::id()));
    let mut tasks = Vec::new();
    for task in 0..IN_FLIGHT {
        let (mut connection, hash) = (connection.clone(), hash.clone());
        tasks.push(tokio::spawn(async move {
            let (input, state) = (vec![7_u8; 30 + TAKE_BYTES * size], [7_u8; STATE_BYTES]);
            let mut latencies: Vec<u128> = Vec::new();
            let mut next = task * 1_000;
            while begun.elapsed() < ROUND_TIME {
                let mut call = redis::cmd("EVALSHA");
                call.arg(&hash).arg(size);
                for _ in 0..size {
                    next += 1;
                    call.arg(format!("tidegate:c:bare:{{{:032x}}}:s60000", next % KEYS));
                }
                call.arg(&input[..]).arg(&state[..]);
                let sent = Instant::now();
                let answer: Vec<u8> = call.query_async(&mut connection).await.expect("an answer");
                assert_eq!(answer.len(), input.len());
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
