//! `make bench-sync`: by how much fleets that sync pass their limit, over intervals and numbers of proxies. The one
//! argument is the file to write.

use std::process::ExitCode;

use tidegate_e2e::Fault;
use tidegate_e2e::fault::Context;
use tidegate_e2e::overshoot::{self, Case};

const LIMIT: usize = 4_000;
const INTERVALS_MS: [u64; 4] = [20, 100, 500, 1_000];
const PROXIES: [usize; 3] = [1, 2, 3];

#[tokio::main]
async fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("Name the file to write.");
        return ExitCode::FAILURE;
    };
    match run(&file).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

async fn run(file: &str) -> Result<(), Fault> {
    let mut measured = Vec::new();
    for sync_every_ms in INTERVALS_MS {
        for proxies in PROXIES {
            let seen = overshoot::measure(Case { proxies, sync_every_ms }, LIMIT).await?;
            eprintln!("{seen:?}");
            measured.push(seen);
        }
    }
    let text = format!(
        "# How far `sync` overshoots\n\nMade by `make bench-sync`, on one machine with two cores: all proxies, the \
         counter and the clients share them. Each\nproxy of the fleet gets {LIMIT} requests of one key at once, as fast \
         as it answers; the fleet may admit {LIMIT} of them in an\nhour. What is over is what the others admitted before \
         they heard, so it grows with the interval and with the rate, not\nwith the limit. All that was admitted was \
         told to the counter, once, and then no proxy admitted one more.\n\n{}",
        overshoot::table(&measured)
    );
    std::fs::write(file, text).context(file)
}
