//! What the service counts, in Prometheus' text format. Every name and label is known beforehand.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_config::wire::{Act, Answer, Batch};

/// The statuses that are counted apart; another would be counted as the last.
const STATUSES: [u16; 13] = [200, 400, 401, 404, 405, 408, 409, 413, 415, 431, 503, 504, 500];
/// The upper bounds of the histogram, in microseconds.
const BOUNDS_US: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000];
const STORE_ERRORS: [&str; 7] = ["expired", "deadline", "unreachable", "full", "busy", "too_old", "broken"];

#[derive(Default)]
pub(crate) struct Metrics {
    statuses: [AtomicU64; STATUSES.len()],
    took: [AtomicU64; BOUNDS_US.len() + 1],
    took_us: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
    refunded: AtomicU64,
    store_errors: [AtomicU64; STORE_ERRORS.len()],
    pub(crate) connections: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) connections_closed_slow: AtomicU64,
    pub(crate) connections_closed_idle: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) reload_failures: AtomicU64,
}

impl Metrics {
    pub(crate) fn answered(&self, status: u16) {
        let index = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        add(&self.statuses[index], 1);
    }

    pub(crate) fn took(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let index = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        add(&self.took[index], 1);
        add(&self.took_us, us);
    }

    pub(crate) fn takes(&self, batch: &Batch<'_>, answer: &Answer) {
        let (mut taken, mut refunded, mut all) = (0, 0, 0);
        for (group, answers) in batch.groups.iter().zip(&answer.groups) {
            for (take, outcome) in group.takes.iter().zip(&answers.takes) {
                all += 1;
                refunded += u64::from(matches!(take.act, Act::Refund { .. }));
                taken += u64::from(outcome.taken > 0);
            }
        }
        add(&self.taken, taken);
        add(&self.refunded, refunded);
        add(&self.refused, all - taken - refunded);
    }

    pub(crate) fn store_error(&self, kind: &str) {
        let index = STORE_ERRORS.iter().position(|known| *known == kind).unwrap_or(STORE_ERRORS.len() - 1);
        add(&self.store_errors[index], 1);
    }

    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        self.counters(&mut out);
        self.histogram(&mut out);
        out
    }

    fn counters(&self, out: &mut String) {
        let statuses = STATUSES.iter().zip(&self.statuses);
        head(out, "tidegate_requests_total", "counter", "Requests by the status of their response.");
        for (status, count) in statuses {
            line(out, &format!("tidegate_requests_total{{code=\"{status}\"}}"), get(count));
        }
        head(out, "tidegate_takes_total", "counter", "Takes by what came of them.");
        for (outcome, count) in
            [("taken", &self.taken), ("refused", &self.refused), ("refund", &self.refunded)]
        {
            line(out, &format!("tidegate_takes_total{{outcome=\"{outcome}\"}}"), get(count));
        }
        head(
            out,
            "tidegate_store_errors_total",
            "counter",
            "Batches that the store did not apply, or may not have.",
        );
        for (kind, count) in STORE_ERRORS.iter().zip(&self.store_errors) {
            line(out, &format!("tidegate_store_errors_total{{kind=\"{kind}\"}}"), get(count));
        }
        for (name, kind, help, count) in [
            ("tidegate_connections", "gauge", "Open connections.", &self.connections),
            (
                "tidegate_requests_in_flight",
                "gauge",
                "Batches that are being read or applied.",
                &self.in_flight,
            ),
            (
                "tidegate_connections_refused_total",
                "counter",
                "Connections beyond the most that are kept open.",
                &self.connections_refused,
            ),
            (
                "tidegate_reload_failures_total",
                "counter",
                "Times that a changed file was bad; the old contents stay.",
                &self.reload_failures,
            ),
        ] {
            head(out, name, kind, help);
            line(out, name, get(count));
        }
        head(
            out,
            "tidegate_connections_closed_total",
            "counter",
            "Connections that the service closed for their slowness.",
        );
        line(out, "tidegate_connections_closed_total{why=\"slow_head\"}", get(&self.connections_closed_slow));
        line(out, "tidegate_connections_closed_total{why=\"idle\"}", get(&self.connections_closed_idle));
    }

    fn histogram(&self, out: &mut String) {
        let name = "tidegate_take_seconds";
        head(out, name, "histogram", "How long batches took, from the end of their head to the answer.");
        let mut sum = 0;
        for (bound_us, count) in BOUNDS_US.iter().zip(&self.took) {
            sum += get(count);
            let bound = Seconds(*bound_us);
            line(out, &format!("{name}_bucket{{le=\"{bound}\"}}"), sum);
        }
        sum += self.took.last().map_or(0, get);
        line(out, &format!("{name}_bucket{{le=\"+Inf\"}}"), sum);
        line(out, &format!("{name}_sum"), Seconds(get(&self.took_us)));
        line(out, &format!("{name}_count"), sum);
    }
}

/// Microseconds, shown as seconds.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Relaxed);
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing into a text cannot fail.
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn line(out: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name} {value}");
}
