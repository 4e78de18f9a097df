//! How often each algorithm misjudges a request, measured against a log that remembers every one.
//!
//!     cargo run --release --package tidegate-core --example accuracy [ACCESS_LOG]
//!
//! Prints a table in Markdown. The traffic is made here, from a seed, and is the same in every run; with an
//! access log in the common format (`-` reads it from standard input) its clients are measured too.

mod access_log;
mod judge;
mod traffic;

use judge::{Judged, judge};
use std::process::ExitCode;
use tidegate_core::{Limit, LimitError, Window};
use traffic::Request;

const WINDOW_MS: u64 = 60_000;

fn main() -> ExitCode {
    let mut sources: Vec<(String, u64, Vec<Request>)> = traffic::all()
        .into_iter()
        .map(|(name, requests)| (name.to_owned(), traffic::LIMIT, requests))
        .collect();
    if let Some(path) = std::env::args().nth(1) {
        match access_log::read(&path) {
            Ok(requests) => {
                for limit in [10, 30] {
                    sources.push((format!("access log, {limit} a minute"), limit, requests.clone()));
                }
            }
            Err(error) => {
                eprintln!(
                    "accuracy: {path}: {error}; give a file in the common log format, or - for standard input"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    match table(&sources) {
        Ok(table) => print!("{table}"),
        Err(error) => {
            eprintln!("accuracy: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

const HEADING: &str = "\
| traffic | requests | algorithm | wrongly allowed | wrongly denied | mean difference of the count | most in any window, of the limit |
|---|---|---|---|---|---|---|
";

fn table(sources: &[(String, u64, Vec<Request>)]) -> Result<String, LimitError> {
    let mut table = String::from(HEADING);
    for (name, requests_max, traffic) in sources {
        for (algorithm, limit) in algorithms(*requests_max)? {
            let Judged { wrongly_allowed, wrongly_denied, difference, most } = judge(&limit, traffic);
            let row = [
                name.clone(),
                traffic.len().to_string(),
                format!("`{algorithm}`"),
                format!("{wrongly_allowed:.3}%"),
                format!("{wrongly_denied:.3}%"),
                format!("{difference:.1}%"),
                format!("{most:.0}%"),
            ];
            table.push_str(&["| ", &row.join(" | "), " |\n"].concat());
        }
    }
    Ok(table)
}

fn algorithms(requests: u64) -> Result<[(&'static str, Limit); 5], LimitError> {
    Ok([
        ("sliding_window", Limit::sliding_window(requests, WINDOW_MS)?),
        ("sliding_buckets, 6", Limit::sliding_buckets(requests, WINDOW_MS, 6)?),
        ("sliding_buckets, 60", Limit::sliding_buckets(requests, WINDOW_MS, 60)?),
        ("fixed_window", Limit::fixed_window(requests, Window::Ms(WINDOW_MS))?),
        ("sliding_log", Limit::sliding_log(requests, WINDOW_MS)?),
    ])
}
