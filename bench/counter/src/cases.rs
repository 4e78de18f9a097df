//! What is measured.

use tidegate_config::wire::{Batch, JSON, POSTCARD};

/// Different bodies of one case, so that keys are many.
const BODIES: usize = 256;
/// The entries of a full `sliding_log`, the most that there can be.
pub(crate) const LOG_ENTRIES: usize = 1_000;
/// How many logs there are.
pub(crate) const LOGS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The same bodies, sent back unread.
    Echo,
    Memory,
    Redis,
    /// Redis called by a process of its own, without a service between.
    Bare(Script),
}

/// What a process without a service calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    /// The service's own, with the same batches, packed and read by the service's own code.
    Ours,
    /// One that only reads the time, and reads and writes as many keys.
    Minimal,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One group of so many limits on one key.
    Limits(usize),
    /// So many groups of one take each.
    Batch(usize),
    /// 64 groups of one take each, of limits of one kind.
    Kind(&'static str, &'static str),
    /// One take of a log that is full.
    Log,
}

#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) target: Target,
    pub(crate) shape: Shape,
    pub(crate) is_json: bool,
}

/// What both tables tell of.
pub(crate) const SHAPES: [Shape; 4] =
    [Shape::Limits(1), Shape::Limits(4), Shape::Batch(64), Shape::Batch(256)];

/// What our script alone is measured with, beside the sliding windows of the other shapes.
pub(crate) const KINDS: [Shape; 5] = [
    Shape::Kind("fixed_window", r#"{"requests":1000000,"per":"1m","algorithm":"fixed_window"}"#),
    Shape::Kind("token_bucket", r#"{"requests":1000000,"per":"1m","algorithm":"token_bucket"}"#),
    Shape::Kind(
        "sliding_buckets of 10",
        r#"{"requests":1000000,"per":"1m","algorithm":"sliding_buckets","buckets":10}"#,
    ),
    Shape::Kind("sliding_log of 20 entries", r#"{"requests":20,"per":"1h","algorithm":"sliding_log"}"#),
    Shape::Kind("sliding_window, all denied", r#""0/1m""#),
];

impl Shape {
    pub(crate) fn takes(self) -> usize {
        match self {
            Self::Limits(takes) | Self::Batch(takes) => takes,
            Self::Kind(..) => 64,
            Self::Log => 1,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Limits(1) => "1 take".to_owned(),
            Self::Limits(limits) => format!("1 group of {limits} limits"),
            Self::Batch(takes) => format!("batch of {takes}"),
            Self::Kind(name, _) => format!("batch of 64, {name}"),
            Self::Log => format!("1 take of a sliding_log with {LOG_ENTRIES} entries"),
        }
    }

    fn json(self, body: usize) -> String {
        let take =
            |limit: &str, key: usize| format!(r#"{{"rule":"login","limit":{limit},"key":"user-{key}"}}"#);
        let group = |takes: String| format!(r#"{{"takes":[{takes}]}}"#);
        let batch = |limit: &str, takes: usize| {
            let one = |index| group(take(limit, (body * takes + index) % 65_536));
            (0..takes).map(one).collect::<Vec<_>>().join(",")
        };
        let groups = match self {
            Self::Limits(limits) => {
                let windows = ["1s", "1m", "1h", "1d"].iter().take(limits);
                let takes = windows.map(|window| take(&format!(r#""1000000/{window}""#), body));
                group(takes.collect::<Vec<_>>().join(","))
            }
            Self::Batch(takes) => batch(r#""1000000/1m""#, takes),
            Self::Kind(_, limit) => batch(limit, 64),
            Self::Log => group(log_take(body % LOGS)),
        };
        format!(r#"{{"groups":[{groups}]}}"#)
    }
}

/// A take that is made whether or not there is room: the log stays full, and each take reads and writes all of it.
fn log_take(log: usize) -> String {
    let limit = format!(r#"{{"requests":{LOG_ENTRIES},"per":"1h","algorithm":"sliding_log"}}"#);
    format!(r#"{{"rule":"log","limit":{limit},"key":"user-{log}","manner":"force"}}"#)
}

impl Case {
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        let body = |body| {
            let json = self.shape.json(body).into_bytes();
            if self.is_json { json } else { Batch::from_json(&json).expect("a batch").to_postcard() }
        };
        (0..BODIES).map(body).collect()
    }

    /// Whole requests, ready to be sent.
    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        let content_type = if self.is_json { JSON } else { POSTCARD };
        self.bodies().into_iter().map(|body| request(content_type, body)).collect()
    }
}

/// A request that adds an entry to each log, if it comes in another millisecond than the last.
pub(crate) fn logs_request() -> Vec<u8> {
    let groups: Vec<String> = (0..LOGS).map(|log| format!(r#"{{"takes":[{}]}}"#, log_take(log))).collect();
    request(JSON, format!(r#"{{"groups":[{}]}}"#, groups.join(",")).into_bytes())
}

fn request(content_type: &str, body: Vec<u8>) -> Vec<u8> {
    let head = format!(
        "POST /v1/take HTTP/1.1\r\nhost: counter\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in SHAPES {
        for is_json in [true, false] {
            for target in [Target::Echo, Target::Memory, Target::Redis] {
                cases.push(Case { target, shape, is_json });
            }
        }
        for script in [Script::Ours, Script::Minimal] {
            cases.push(Case { target: Target::Bare(script), shape, is_json: false });
        }
    }
    for target in [Target::Memory, Target::Redis, Target::Bare(Script::Ours)] {
        cases.push(Case { target, shape: Shape::Log, is_json: target != Target::Bare(Script::Ours) });
    }
    for shape in KINDS {
        cases.push(Case { target: Target::Bare(Script::Ours), shape, is_json: false });
    }
    cases
}
