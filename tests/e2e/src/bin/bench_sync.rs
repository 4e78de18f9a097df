//! `make bench-sync`: by how much fleets that sync pass their limit, over intervals and numbers of proxies. The one
//! argument is the file to write.

use std::process::ExitCode;

use tidegate_e2e::Fault;
use tidegate_e2e::fault::Context;
use tidegate_e2e::overshoot::{self, Case, Overshoot};

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
            check(&seen)?;
            measured.push(seen);
        }
    }
    let text = format!(
        "\
# How far `sync` overshoots

Made by `make bench-sync`; do not edit. All proxies, the counter and the clients share one machine and its two cores. Each
proxy of the fleet gets twice {LIMIT} requests of one key at once, as fast as it answers; {LIMIT} of them all may be admitted.
That is as hard as it can be for `sync`: such a key uses up its limit within few intervals, or in less than one. What is over
is what the others admitted before they heard, so it grows with the interval and with the rate. A proxy goes by its own
count too, so it ends at one limit for each proxy: 100% over for two, 200% for three. All that was admitted was told to the
counter, once, and then no proxy admitted one more.

{}",
        overshoot::table(&measured)
    );
    std::fs::write(file, text).context(file)
}

/// That the page is right about what it says of every row.
fn check(seen: &Overshoot) -> Result<(), Fault> {
    let is_told = seen.reported == seen.admitted as u64 && seen.admitted_afterwards == 0;
    if is_told && seen.admitted <= seen.limit * seen.case.proxies {
        return Ok(());
    }
    Err(Fault::new(format!("this is not what the page says of all rows: {seen:?}")))
}
