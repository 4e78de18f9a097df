//! The table, as it stands in the docs.

use std::fmt::Write;

use crate::Measured;
use crate::cases::{Case, Shape, Target};

const HEAD: &str = "\
# What the counter costs

Made by `make bench-counter`; do not edit. What is measured runs on one core (`tidegate serve --threads 1`, or the echo
handler; with Redis both service and `redis-server` on that core), the load with 32 requests under way on the other. All
cases take turns, 5 rounds of 1.5 s each after one to warm up, and the median of the rounds is told. CPU is what the
scheduler counts for the process; it repeats within some 15%, requests per second do not. Latency is that of a loaded core.

- **echo**: the same framework (hyper, HTTP/1.1) reads the same body and sends it back.
- **bare**: a script that reads the time, and reads and writes as many keys as there are takes, called by the same Redis
  client without a service between; its CPU is that of the calling process, on the other core.

| what | encoding | store | requests/s | takes/s | CPU µs/request | CPU µs/take | Redis µs/take | p50 µs | p99 µs |
|---|---|---|---|---|---|---|---|---|---|
";

pub(crate) fn text(cases: &[Case], measured: &[Measured]) -> String {
    let mut text = HEAD.to_owned();
    for (case, measured) in cases.iter().zip(measured) {
        let takes = case.shape.takes() as f64;
        let encoding = match (case.target, case.is_json) {
            (Target::BareRedis, _) => "–",
            (_, true) => "JSON",
            (_, false) => "postcard",
        };
        let store = match case.target {
            Target::Echo => "echo",
            Target::Memory => "memory",
            Target::Redis => "Redis",
            Target::BareRedis => "bare",
        };
        let redis = match case.target {
            Target::Echo | Target::Memory => "–".to_owned(),
            _ => format!("{:.2}", measured.redis_cpu_us / takes),
        };
        let (what, rate) = (case.shape.text(), measured.requests_per_s);
        writeln!(
            text,
            "| {what} | {encoding} | {store} | {rate:.0} | {:.0} | {:.2} | {:.3} | {redis} | {:.0} | {:.0} |",
            rate * takes,
            measured.cpu_us,
            measured.cpu_us / takes,
            measured.p50_us,
            measured.p99_us
        )
        .expect("memory");
    }
    text.push_str(&ratios(cases, measured));
    text
}

fn ratios(cases: &[Case], measured: &[Measured]) -> String {
    let find = |target, shape, is_json| {
        let found = cases.iter().position(|case| {
            case.target == target
                && case.shape == shape
                && (case.is_json == is_json || target == Target::BareRedis)
        });
        measured[found.expect("a case")]
    };
    let mut text =
        "\n## Against the aims\n\n| what | aim | JSON | postcard |\n|---|---|---|---|\n".to_owned();
    let mut row = |what: &str, aim: &str, of: &dyn Fn(bool) -> f64| {
        writeln!(text, "| {what} | {aim} | {:.2} | {:.2} |", of(true), of(false)).expect("memory");
    };
    let one = Shape::Limits(1);
    row("a single take in memory, in CPU of the echo handler with the same body", "≤ 1.5", &|json| {
        find(Target::Memory, one, json).cpu_us / find(Target::Echo, one, json).cpu_us
    });
    row("takes of a batch of 256 for the CPU of one single take", "≥ 15", &|json| {
        let batch = find(Target::Memory, Shape::Batch(256), json).cpu_us / 256.0;
        find(Target::Memory, one, json).cpu_us / batch
    });
    for shape in [one, Shape::Limits(4), Shape::Batch(64), Shape::Batch(256)] {
        let name = shape.text();
        row(&format!("Redis: CPU of the server, in that of the bare script ({name})"), "≤ 1.2", &|json| {
            find(Target::Redis, shape, json).redis_cpu_us / find(Target::BareRedis, shape, json).redis_cpu_us
        });
        row(&format!("Redis: CPU of the service, in that of the bare call ({name})"), "≤ 2", &|json| {
            find(Target::Redis, shape, json).cpu_us / find(Target::BareRedis, shape, json).cpu_us
        });
    }
    text
}
