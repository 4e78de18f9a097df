//! The page, as it stands in the docs.

use std::fmt::Write;

use crate::cases::{Case, LIMIT};
use crate::figures::{Figures, Spread, Turn};
use crate::load::{CONNECTIONS, KEYS, Load, PACED_PER_S};
use crate::{LEAD_IN, ROUNDS, TURN_TIME};

const TABLE_HEAD: &str = "\
| rule | p50 µs | p99 µs | added p50 µs | added p99 µs | requests | calls per 1,000 requests |
|---|---|---|---|---|---|---|
";

/// The page, of turns by load and by case.
pub(crate) fn text(turns: &[Vec<Vec<Turn>>]) -> String {
    let mut text = head();
    for (load, turns) in Load::ALL.into_iter().zip(turns) {
        let _ = write!(text, "\n{}\n\n{TABLE_HEAD}", heading(load));
        for (case, turns_of_case) in Case::ALL.into_iter().zip(turns) {
            text.push_str(&row(case, &Figures::new(turns_of_case, &turns[0])));
        }
    }
    text
}

fn head() -> String {
    let (turn, lead_in) = (TURN_TIME.as_secs_f64(), LEAD_IN.as_secs_f64());
    format!(
        "\
# What each mode adds to a request

Made by `make bench-global`; do not edit. There is an Envoy with two workers for each row, which answers every request
itself. Its filter has one rule, with a limit of {LIMIT} for each key, which nobody reaches. One counter
(`tidegate serve`) in memory serves them all, and another one, on Redis, the last row. All of it and the clients share
one machine, its two cores and its loopback: a counter elsewhere adds the network's round trip to each call. `sync` syncs
each 200 ms.

Connections are kept alive, each sends requests of {KEYS} keys in turn, and never one before the last is answered. The rows
take turns of {turn:.1} s: {ROUNDS} rounds after one to warm up, each with another row first. Before each turn come {lead_in:.1} s that do not
count, for what was granted has lapsed while others had theirs. Percentiles are those of a turn, and the median of the
rounds is told; what is added is the median of the differences to \"no filter\" in the same round, and behind it stand the
least and the most of the rounds: what lies within another row's range is no difference. Nothing is pinned to a core, so
the scheduler's choices show, and another run has other numbers. Calls are those to the counter.
"
    )
}

fn heading(load: Load) -> String {
    match load {
        Load::One => "## 1 connection, as fast as it is answered\n\nWhat the way itself costs.".to_owned(),
        Load::Paced => {
            format!("## {CONNECTIONS} connections, {PACED_PER_S} requests/s\n\nThe cores have time to spare.")
        }
        Load::Full => format!(
            "## {CONNECTIONS} connections, as fast as they are answered\n\nThe cores are full: latency is mostly \
             queueing for them."
        ),
    }
}

fn row(case: Case, figures: &Figures) -> String {
    let added = |value: Spread| match case {
        Case::NoFilter => "–".to_owned(),
        _ => format!("{:+.0} ({:.0} to {:.0})", value.median, value.least, value.most),
    };
    let calls = match case.asks_the_counter() {
        true => format!("{:.1}", figures.calls as f64 * 1e3 / figures.requests.max(1) as f64),
        false => "–".to_owned(),
    };
    format!(
        "| {} | {:.0} | {:.0} | {} | {} | {} | {calls} |\n",
        case.name(),
        figures.p50_us.median,
        figures.p99_us.median,
        added(figures.added_p50_us),
        added(figures.added_p99_us),
        figures.requests,
    )
}
