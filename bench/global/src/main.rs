//! Measures what each mode adds to a request's latency: `bench-global FILE` writes its tables to FILE.
//! `make bench-global` runs it.
//!
//! All cases take turns, several rounds of them, so that what else happens on the machine happens to all, and each is
//! compared with the Envoy without a filter of the same round.

mod cases;
mod figures;
mod load;
mod report;
mod running;

use std::process::ExitCode;
use std::time::Duration;

use tidegate_e2e::Fault;
use tidegate_e2e::fault::Context;

use cases::Case;
use figures::Turn;
use load::Load;
use running::Running;

const ROUNDS: usize = 5;
/// Each turn begins with some time that does not count: what an Envoy was granted has lapsed while the others had theirs.
const LEAD_IN: Duration = Duration::from_millis(300);
const TURN_TIME: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("Call it as: bench-global FILE");
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
    let running = Running::start().await?;
    // By load and by case.
    let mut turns = vec![vec![Vec::new(); Case::ALL.len()]; Load::ALL.len()];
    // The first round warms up.
    for round in 0..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for (load, turns) in Load::ALL.into_iter().zip(&mut turns) {
            for step in 0..Case::ALL.len() {
                // Another begins each time, so that nobody always comes after the same neighbour's afterwork.
                let case = (round + step) % Case::ALL.len();
                let turn = measure(&running, case, load).await?;
                if round > 0 {
                    turns[case].push(turn);
                }
            }
        }
    }
    running.check().await?;
    std::fs::write(file, report::text(&turns)).context(file)
}

async fn measure(running: &Running, case: usize, load: Load) -> Result<Turn, Fault> {
    let address = running.envoy(case).address();
    load.run(address, LEAD_IN).await?;
    let calls = running.calls(case).await?;
    let latencies = load.run(address, TURN_TIME).await?;
    Ok(Turn::new(latencies, running.calls(case).await? - calls))
}
