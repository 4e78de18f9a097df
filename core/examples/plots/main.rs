//! The plots of `docs/algorithms.md`, made from the core's own decisions about traffic that is made here.
//!
//!     cargo run --package tidegate-core --example plots DIRECTORY
//!
//! The same in every run: a test compares what is in `docs/plots` with what this makes.

mod charts;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(directory) = std::env::args().nth(1) else {
        eprintln!("plots: name the directory to write to, such as docs/plots");
        return ExitCode::FAILURE;
    };
    let charts = match charts::all() {
        Ok(charts) => charts,
        Err(error) => {
            eprintln!("plots: {error}");
            return ExitCode::FAILURE;
        }
    };
    for (name, svg) in charts {
        let path = Path::new(&directory).join(name);
        if let Err(error) = std::fs::write(&path, svg) {
            eprintln!("plots: {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
        println!("{}", path.display());
    }
    ExitCode::SUCCESS
}
