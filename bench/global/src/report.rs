//! The page, as it stands in the docs.

use std::fmt::Write;

use crate::cases::{Case, LIMIT};
use crate::figures::{Figures, Turn};
use crate::load::KEYS;
use crate::{CONNECTIONS, LEAD_IN, ROUNDS, TURN_TIME};

/// The page, of turns by case and by number of connections.
pub(crate) fn text(turns: &[Vec<Vec<Turn>>]) -> String {
    let mut text = head();
    for (place, connections) in CONNECTIONS.into_iter().enumerate() {
        text.push_str(&heading(connections));
        text.push_str(
            "| rule | p50 µs | p99 µs | added p50 µs | added p99 µs | requests | calls per 1,000 requests |\n\
             |---|---|---|---|---|---|---|\n",
        );
        for (case, by_connections) in Case::ALL.into_iter().zip(turns) {
            let figures = Figures::new(&by_connections[place], &turns[0][place]);
            text.push_str(&row(case, &figures));
        }
    }
    text
}

fn head() -> String {
    format!(
        "# What each mode adds to a request\n\n\
         Made by `make bench-global`; do not edit. One Envoy for each row, with two workers, answers every request itself; the\n\
         filter has one rule with a limit of {LIMIT} for each key, which nobody reaches. One counter (`tidegate serve`, built for\n\
         release) in memory serves all of them, and another on Redis the last row. All of it, and the clients, share this machine's\n\
         two cores and its loopback: a counter elsewhere adds the network's round trip to `exact`. `sync` syncs each 200 ms.\n\n\
         Each connection is kept alive, and sends the next request when the last is answered, for {KEYS} keys in turn. The rows take\n\
         turns of {:.1} s, {ROUNDS} rounds of them after one to warm up, each time with another row first; the first {:.1} s of a turn come on\n\
         top and do not count, for grants have lapsed by then. Each number is the median of the rounds; what is added is the\n\
         median of the differences to \"no filter\" in the same round. Calls are those to the counter.\n",
        TURN_TIME.as_secs_f64(),
        LEAD_IN.as_secs_f64(),
    )
}

fn heading(connections: usize) -> String {
    match connections {
        1 => "\n## 1 connection\n\nNobody else wants the machine: what the way itself costs.\n\n".to_owned(),
        more => format!(
            "\n## {more} connections\n\nThe cores are full, so each microsecond of CPU is waited for by all {more}, and latency is mostly \
             queueing.\n\n"
        ),
    }
}

fn row(case: Case, figures: &Figures) -> String {
    let added = |value: f64| if case == Case::NoFilter { "–".to_owned() } else { format!("{value:+.0}") };
    let calls = if case.asks_the_counter() {
        format!("{:.1}", figures.calls as f64 * 1e3 / figures.requests.max(1) as f64)
    } else {
        "–".to_owned()
    };
    let mut row = String::new();
    let _ = writeln!(
        row,
        "| {} | {:.0} | {:.0} | {} | {} | {} | {calls} |",
        case.name(),
        figures.p50_us,
        figures.p99_us,
        added(figures.added_p50_us),
        added(figures.added_p99_us),
        figures.requests,
    );
    row
}
