//! The tables, as they stand in the docs.

use std::fmt::Write;

use crate::Measured;
use crate::cases::{Case, KINDS, SHAPES, Script, Shape, Target};

const HEAD: &str = "\
# What the counter costs

Made by `make bench-counter`; do not edit. What is measured runs on one core (`tidegate serve --threads 1`, or the echo
handler; with Redis both service and `redis-server` on that core), the load with 32 requests under way on the other; it
never sleeps, so that waking it is on nobody's bill. All cases take turns, 5 rounds of 1.5 s each after one to warm up, and
the median of the rounds is told. CPU is what the scheduler counts for the process; it repeats within some 15%, requests per
second do not. Latency is that of a loaded core.

- **echo**: the same framework (hyper, HTTP/1.1), compiled with the same options, reads the same body and sends it back.
- **our script, bare**: the script that the service calls, with the same batches, which the service's own code packs,
  sends and reads, in a process without HTTP and without what looks after a connection. Its CPU is that of the process,
  on the other core.
- **minimal script, bare**: a script that decides nothing: it reads the time, and reads and writes as many keys. A floor,
  not an aim.

| what | encoding | store | requests/s | takes/s | CPU µs/request | CPU µs/take | Redis µs/take | p50 µs | p99 µs |
|---|---|---|---|---|---|---|---|---|---|
";

const AIMS: &str = "
## Against the aims

In memory:

| what | aim | JSON | postcard |
|---|---|---|---|
";

const AIMS_REDIS: &str = "
On Redis, CPU of the server and of the service in that of the same calls without a service. Beside it in brackets what it
is in that of the minimal script.

| what | encoding | server, at most 1.2 | service, at most 2 |
|---|---|---|---|
";

const KINDS_HEAD: &str = "
## What kinds of limits cost on Redis

Our script, bare; takes of one kind, 64 in a batch.

| what | Redis µs/take | client µs/take |
|---|---|---|
";

/// All cases and what they showed.
struct Table<'a>(&'a [Case], &'a [Measured]);

pub(crate) fn text(cases: &[Case], measured: &[Measured]) -> String {
    let table = Table(cases, measured);
    let is_kind = |case: &Case| matches!(case.shape, Shape::Kind(..));
    let rows = cases.iter().zip(measured).filter(|(case, _)| !is_kind(case));
    let rows: String = rows.map(|(case, measured)| row(case, measured)).collect();
    let (memory, redis, kinds) = (table.memory(), table.redis(), table.kinds());
    format!("{HEAD}{rows}{AIMS}{memory}{AIMS_REDIS}{redis}{}{KINDS_HEAD}{kinds}", table.out_of_reach())
}

fn row(case: &Case, measured: &Measured) -> String {
    let takes = case.shape.takes() as f64;
    let (encoding, store) = match (case.target, case.is_json) {
        (Target::Bare(Script::Ours), _) => ("–", "our script, bare"),
        (Target::Bare(Script::Minimal), _) => ("–", "minimal script, bare"),
        (target, is_json) => (
            if is_json { "JSON" } else { "postcard" },
            match target {
                Target::Memory => "memory",
                Target::Redis => "Redis",
                _ => "echo",
            },
        ),
    };
    let redis = match case.target {
        Target::Echo | Target::Memory => "–".to_owned(),
        _ => format!("{:.2}", measured.redis_cpu_us / takes),
    };
    let (what, rate) = (case.shape.text(), measured.requests_per_s);
    let [cpu_us, p50_us, p99_us] = [measured.cpu_us, measured.p50_us, measured.p99_us];
    format!(
        "| {what} | {encoding} | {store} | {rate:.0} | {:.0} | {cpu_us:.2} | {:.3} | {redis} | {p50_us:.0} | {p99_us:.0} |\n",
        rate * takes,
        cpu_us / takes,
    )
}

impl Table<'_> {
    fn find(&self, target: Target, shape: Shape, is_json: bool) -> Measured {
        let is_it = |case: &Case| {
            let is_encoding = case.is_json == is_json || matches!(target, Target::Bare(_));
            case.target == target && case.shape == shape && is_encoding
        };
        self.1[self.0.iter().position(is_it).expect("a case")]
    }

    fn memory(&self) -> String {
        let (one, many) = (Shape::Limits(1), Shape::Batch(256));
        let memory = |shape, json| self.find(Target::Memory, shape, json).cpu_us;
        let mut text = String::new();
        let mut row = |what: &str, aim: &str, digits: usize, of: &dyn Fn(bool) -> f64| {
            writeln!(text, "| {what} | {aim} | {:.digits$} | {:.digits$} |", of(true), of(false))
                .expect("memory");
        };
        row("a single take, in CPU of the echo handler with the same body", "≤ 1.5", 2, &|json| {
            memory(one, json) / self.find(Target::Echo, one, json).cpu_us
        });
        row("takes of a batch of 256 for the CPU of one single take", "≥ 15", 2, &|json| {
            memory(one, json) * 256.0 / memory(many, json)
        });
        row("single takes for a second of CPU", "≥ 50000", 0, &|json| 1e6 / memory(one, json));
        row("takes of batches of 256 for a second of CPU", "≥ 1000000", 0, &|json| {
            256.0 * 1e6 / memory(many, json)
        });
        text
    }

    fn redis(&self) -> String {
        let mut text = String::new();
        for shape in SHAPES {
            let [ours, minimal] =
                [Script::Ours, Script::Minimal].map(|script| self.find(Target::Bare(script), shape, false));
            for is_json in [true, false] {
                let of = self.find(Target::Redis, shape, is_json);
                let (what, encoding) = (shape.text(), if is_json { "JSON" } else { "postcard" });
                writeln!(
                    text,
                    "| {what} | {encoding} | {:.2} ({:.2}) | {:.2} ({:.2}) |",
                    of.redis_cpu_us / ours.redis_cpu_us,
                    of.redis_cpu_us / minimal.redis_cpu_us,
                    of.cpu_us / ours.cpu_us,
                    of.cpu_us / minimal.cpu_us,
                )
                .expect("memory");
            }
        }
        let best = |json| 64.0 * 1e6 / self.find(Target::Redis, Shape::Batch(64), json).redis_cpu_us;
        let [json, postcard] = [true, false].map(best);
        format!(
            "{text}\nTakes in batches of 64 for a second of the server's CPU: {json:.0} in JSON, {postcard:.0} in \
             postcard (aim: 150000).\n"
        )
    }

    /// Which aims no service could reach, because HTTP alone costs more.
    fn out_of_reach(&self) -> String {
        let mut text = String::new();
        for shape in SHAPES {
            let bare = self.find(Target::Bare(Script::Ours), shape, false).cpu_us;
            let echo = |is_json| self.find(Target::Echo, shape, is_json).cpu_us;
            let echo = f64::min(echo(true), echo(false));
            let what = shape.text();
            if echo + bare > 2.0 * bare {
                writeln!(
                    text,
                    "\n**Out of reach** for the service, {what}: it is an echo handler and a bare call, which cost \
                     {echo:.2} and {bare:.2} µs. Without anything else that is {:.2} bare calls.",
                    (echo + bare) / bare
                )
                .expect("memory");
            }
        }
        text
    }

    fn kinds(&self) -> String {
        let ours = |shape| self.find(Target::Bare(Script::Ours), shape, false);
        let window = ("sliding_window".to_owned(), ours(Shape::Batch(64)));
        let name = |kind: Shape| kind.text().trim_start_matches("batch of 64, ").to_owned();
        let kinds = KINDS.into_iter().map(|kind| (name(kind), ours(kind)));
        let row = |(name, of): (String, Measured)| {
            format!("| {name} | {:.2} | {:.2} |\n", of.redis_cpu_us / 64.0, of.cpu_us / 64.0)
        };
        std::iter::once(window).chain(kinds).map(row).collect()
    }
}
