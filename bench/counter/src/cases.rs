//! What is measured.

use tidegate_config::wire::{Batch, JSON, POSTCARD};

/// Different bodies of one case, so that keys are many.
const BODIES: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The same bodies, sent back unread.
    Echo,
    Memory,
    Redis,
    /// A script that reads and writes as many keys, called without a service between.
    BareRedis,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One group of so many limits on one key.
    Limits(usize),
    /// So many groups of one take each.
    Batch(usize),
}

pub(crate) struct Case {
    pub(crate) target: Target,
    pub(crate) shape: Shape,
    pub(crate) is_json: bool,
    /// Whole requests, ready to be sent.
    pub(crate) requests: Vec<Vec<u8>>,
}

impl Shape {
    pub(crate) fn takes(self) -> usize {
        match self {
            Self::Limits(takes) | Self::Batch(takes) => takes,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Limits(1) => "1 take".to_owned(),
            Self::Limits(limits) => format!("1 group of {limits} limits"),
            Self::Batch(takes) => format!("batch of {takes}"),
        }
    }

    fn json(self, body: usize) -> String {
        let take =
            |limit: &str, key: usize| format!(r#"{{"rule":"login","limit":"{limit}","key":"user-{key}"}}"#);
        let group = |takes: String| format!(r#"{{"takes":[{takes}]}}"#);
        let groups = match self {
            Self::Limits(limits) => {
                let limits = ["1000000/1s", "1000000/1m", "1000000/1h", "1000000/1d"].iter().take(limits);
                group(limits.map(|limit| take(limit, body)).collect::<Vec<_>>().join(","))
            }
            Self::Batch(takes) => {
                let one = |index| group(take("1000000/1m", (body * takes + index) % 65_536));
                (0..takes).map(one).collect::<Vec<_>>().join(",")
            }
        };
        format!(r#"{{"groups":[{groups}]}}"#)
    }
}

pub(crate) fn all() -> Vec<Case> {
    let shapes = [Shape::Limits(1), Shape::Limits(4), Shape::Batch(64), Shape::Batch(256)];
    let mut cases = Vec::new();
    for shape in shapes {
        for is_json in [true, false] {
            for target in [Target::Echo, Target::Memory, Target::Redis] {
                cases.push(Case { target, shape, is_json, requests: requests(shape, is_json) });
            }
        }
        cases.push(Case { target: Target::BareRedis, shape, is_json: false, requests: Vec::new() });
    }
    cases
}

fn requests(shape: Shape, is_json: bool) -> Vec<Vec<u8>> {
    let request = |body| {
        let json = shape.json(body).into_bytes();
        let (content_type, body) = match is_json {
            true => (JSON, json),
            false => (POSTCARD, Batch::from_json(&json).expect("a batch").to_postcard()),
        };
        let head = format!(
            "POST /v1/take HTTP/1.1\r\nhost: counter\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body].concat()
    };
    (0..BODIES).map(request).collect()
}
