//! Measures the counter: `bench-counter TIDEGATE FILE` writes its table to FILE. `make bench-counter` runs it.
//!
//! What is measured runs on core 0, the load on core 1. All cases take turns, several rounds of them, so that what else
//! happens on the machine happens to all; the median of the rounds is told.

mod bare;
mod cases;
mod cpu;
mod echo;
mod load;
mod report;
mod servers;

use std::time::Duration;

use cases::{Case, Target};
use servers::Servers;

const ROUNDS: usize = 5;
const ROUND_TIME: Duration = Duration::from_millis(1_500);
/// Requests under way at once.
const IN_FLIGHT: usize = 32;

/// What one round of one case showed.
#[derive(Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) requests_per_s: f64,
    /// Of the service, the echo handler or the process that calls Redis.
    pub(crate) cpu_us: f64,
    /// Of Redis.
    pub(crate) redis_cpu_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [word] if word == "echo" => echo::serve().await,
        [word, port, case] if word == "bare" => bare::run(port, case.parse().expect("a number")).await,
        [tidegate, file] => {
            servers::pin(std::process::id(), servers::LOAD_CORE);
            let servers = Servers::start(tidegate).await;
            for server in [&servers.memory, &servers.on_redis] {
                load::fill_logs(server.port).await;
            }
            let cases = cases::all();
            let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); cases.len()];
            // The first round warms up.
            for round in 0..=ROUNDS {
                eprintln!("round {round} of {ROUNDS}");
                for (index, (case, rounds)) in cases.iter().zip(&mut rounds).enumerate() {
                    let measured = measure(index, case, &servers).await;
                    if round > 0 {
                        rounds.push(measured);
                    }
                }
            }
            let medians: Vec<Measured> = rounds.iter().map(|rounds| median(rounds)).collect();
            std::fs::write(file, report::text(&cases, &medians)).expect("the table is written");
        }
        _ => panic!("call it as: bench-counter TIDEGATE FILE"),
    }
}

async fn measure(index: usize, case: &Case, servers: &Servers) -> Measured {
    let server = match case.target {
        Target::Echo => &servers.echo,
        Target::Memory => &servers.memory,
        Target::Redis => &servers.on_redis,
        Target::Bare(_) => return bare::measure(index, servers).await,
    };
    let (cpu, redis) = (cpu::of(server.pid), cpu::of(servers.redis.pid));
    let loaded = load::run(server.port, case, IN_FLIGHT, ROUND_TIME).await;
    let requests = loaded.latencies_us.len() as f64;
    Measured {
        requests_per_s: requests / loaded.took.as_secs_f64(),
        cpu_us: (cpu::of(server.pid) - cpu).as_secs_f64() * 1e6 / requests,
        redis_cpu_us: (cpu::of(servers.redis.pid) - redis).as_secs_f64() * 1e6 / requests,
        p50_us: loaded.percentile(50),
        p99_us: loaded.percentile(99),
    }
}

fn median(rounds: &[Measured]) -> Measured {
    let middle = |of: fn(&Measured) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Measured {
        requests_per_s: middle(|round| round.requests_per_s),
        cpu_us: middle(|round| round.cpu_us),
        redis_cpu_us: middle(|round| round.redis_cpu_us),
        p50_us: middle(|round| round.p50_us),
        p99_us: middle(|round| round.p99_us),
    }
}
