//! `make sim` and `make sim-soak`: replays one seed with its trace, or runs seeds for so many minutes.

use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidegate_sim::{Bug, Report, Simulation, Tally};

/// Events shown before a failure.
const LINES: usize = 200;

const USAGE: &str = "usage: sim seed N | sim whole N | sim range FROM TO | sim soak MINUTES | sim hunt SEEDS | sim costs FILE \
                     | sim keys N | sim log SPEED < FILE";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("sim: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, String> {
    let path = std::env::var("TIDEGATE_WASM").map_err(|_| "TIDEGATE_WASM names no module")?;
    let wasm = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
    let simulation = Simulation::new(&wasm)?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{text} is no number; {USAGE}"));
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["seed", _] => Ok(replay(&simulation, number(&args[1])?, LINES)),
        ["whole", _] => Ok(replay(&simulation, number(&args[1])?, usize::MAX)),
        ["range", _, _] => Ok(all(&simulation, number(&args[1])?..number(&args[2])?, None)),
        ["soak", _] => {
            let minutes = number(&args[1])?;
            let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            // Seeds that no earlier soak has tried.
            let first = start.map_or(0, |since| since.as_secs() << 20);
            Ok(all(&simulation, first..u64::MAX, Some(Duration::from_secs(60 * minutes))))
        }
        ["keys", _] => Ok(told(&simulation.run_many_keys(number(&args[1])?))),
        ["log", _] => {
            let mut log = Vec::new();
            std::io::stdin().read_to_end(&mut log).map_err(|error| format!("the log: {error}"))?;
            let speed = number(&args[1])?;
            Ok(told(&simulation.run_log(&String::from_utf8_lossy(&log), speed)?))
        }
        ["costs", path] => {
            let table = tidegate_sim::costs(&simulation)?;
            std::fs::write(path, table).map_err(|error| format!("{path}: {error}"))?;
            Ok(true)
        }
        // With TIDEGATE_WASM naming a build with planted bugs.
        ["unbugged", _] => {
            let report = simulation.run_seed(number(&args[1])?, Some(Bug::None), LINES);
            println!("{}{}\n{:?}", report.trace, report.summary, report.failure);
            Ok(report.failure.is_none())
        }
        ["hunt", _] => Ok(hunt(&simulation, number(&args[1])?)),
        _ => Err(USAGE.to_owned()),
    }
}

/// After how many seeds each planted bug is found.
fn hunt(simulation: &Simulation, seeds: u64) -> bool {
    let mut are_all_found = true;
    for bug in Bug::ALL {
        let found = (0..seeds).find_map(|seed| {
            let report = simulation.run_seed(seed, Some(bug), 0);
            report.failure.map(|failure| (seed, failure))
        });
        match &found {
            Some((seed, failure)) => println!("{bug:?}: found by seed {seed}, the {}th: {failure}", seed + 1),
            None => println!("{bug:?}: not found in {seeds} seeds"),
        }
        are_all_found &= found.is_some();
    }
    are_all_found
}

fn replay(simulation: &Simulation, seed: u64, lines: usize) -> bool {
    let report = simulation.run_seed(seed, None, lines);
    print!("{}", report.trace);
    told(&report)
}

/// Says what came of a run.
fn told(report: &Report) -> bool {
    println!("{}", report.summary);
    match &report.failure {
        Some(failure) => println!("FAILED: {failure}"),
        None => println!("held"),
    }
    report.failure.is_none()
}

fn all(simulation: &Simulation, seeds: std::ops::Range<u64>, time: Option<Duration>) -> bool {
    let begin = Instant::now();
    let mut runs: u64 = 0;
    let mut tally = Tally::default();
    for seed in seeds {
        if time.is_some_and(|time| begin.elapsed() >= time) {
            break;
        }
        let report = simulation.run_seed(seed, None, 0);
        runs += 1;
        tally.add(&report.tally);
        if let Some(failure) = report.failure {
            println!("{}\nFAILED: {failure}\nreplay: make sim SEED={seed}", report.summary);
            return false;
        }
    }
    println!("{runs} seeds held in {} s: {tally}", begin.elapsed().as_secs());
    println!("never happened: {:?}", tally.missing());
    true
}
