//! How many requests in how much time: `"100/1m"`, or an object that says more.

use tidegate_core::{Algorithm, Limit, LimitError, REQUESTS_MAX};

use crate::duration;
use crate::errors::Report;
use crate::reader::{Choice, Node, quoted};

/// At most this many limits in one rule: they share one slot of the table.
pub const LIMITS_MAX: usize = 4;

const ALGORITHM_DEFAULT: Algorithm = Algorithm::SlidingWindow;
const FIELDS: &[&str] = &["requests", "per", "algorithm", "align"];

/// A limit and where its windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleLimit {
    /// The algorithm and its numbers.
    pub limit: Limit,
    /// Where windows begin.
    pub align: Align,
}

/// Where windows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum Align {
    /// At a time of its own for each key, so that clients who wait for the reset do not all come back at
    /// once.
    #[default]
    Key,
    /// At multiples of the window on the clock (UTC), at once for all.
    Clock,
}

impl Choice for Align {
    const CHOICES: &'static [(&'static str, Self)] = &[("key", Self::Key), ("clock", Self::Clock)];
}

impl Choice for Algorithm {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("sliding_window", Self::SlidingWindow), ("fixed_window", Self::FixedWindow)];
}

/// The word for an algorithm in the config.
pub(crate) fn algorithm_word(algorithm: Algorithm) -> &'static str {
    let choice = Algorithm::CHOICES.iter().find(|(_, value)| *value == algorithm);
    choice.map_or("", |(word, _)| *word)
}

pub(crate) fn read_limits(node: &Node, report: &mut Report) -> Option<Vec<RuleLimit>> {
    let nodes = node.list(1..=LIMITS_MAX, report)?;
    let read: Vec<Option<RuleLimit>> = nodes.iter().map(|node| read_limit(node, report)).collect();
    for (index, (node, this)) in nodes.iter().zip(&read).enumerate() {
        let counter = this.as_ref().map(counter_of);
        let earlier = read.iter().take(index).position(|other| other.as_ref().map(counter_of) == counter);
        if let (Some(_), Some(earlier)) = (counter, earlier) {
            let reason = format!("has the algorithm and the window of limits[{earlier}]");
            node.report(report, format!("{reason} and would share its counter; keep the smaller"));
        }
    }
    read.into_iter().collect()
}

/// What makes a counter within a rule: limits that agree here would count in one place.
fn counter_of(limit: &RuleLimit) -> (Algorithm, u64) {
    (limit.limit.algorithm(), limit.limit.window_ms())
}

fn read_limit(node: &Node, report: &mut Report) -> Option<RuleLimit> {
    if node.is_text() {
        return read_short(node, report);
    }
    if node.is_object() {
        return read_long(node, report);
    }
    node.wrong_type(r#"a string such as "100/1m" or an object"#, report);
    None
}

/// `requests/duration`, where a unit alone is one of it: `50/s`.
fn read_short(node: &Node, report: &mut Report) -> Option<RuleLimit> {
    let text = node.text(report)?;
    let Some((requests, window_ms)) = parse_short(text) else {
        let advice = "write requests/duration, such as \"100/1m\" or \"50/s\" (units: ms, s, m, h, d)";
        node.report(report, format!("{} is not a limit; {advice}", quoted(text)));
        return None;
    };
    match Limit::new(ALGORITHM_DEFAULT, requests, window_ms) {
        Ok(limit) => Some(RuleLimit { limit, align: Align::default() }),
        Err(error) => {
            node.report(report, error.to_string());
            None
        }
    }
}

fn parse_short(text: &str) -> Option<(u64, u64)> {
    let (requests, window) = text.split_once('/')?;
    let window_ms = duration::unit_ms(window).or_else(|| duration::parse(window))?;
    Some((duration::whole_number(requests)?, window_ms))
}

fn read_long(node: &Node, report: &mut Report) -> Option<RuleLimit> {
    let object = node.object(FIELDS, report)?;
    let advice = "say how many requests the window allows, such as 100";
    let requests =
        object.required("requests", advice, report, |node, report| node.whole(0..=REQUESTS_MAX, report));
    let window_ms =
        object.required("per", "say how long the window is, such as \"1m\"", report, read_duration);
    let algorithm = object.optional("algorithm", ALGORITHM_DEFAULT, report, Node::choice);
    let align = object.optional("align", Align::default(), report, Node::choice);
    // The window is judged even if another field is wrong, so that both are reported.
    let limit = Limit::new(algorithm.unwrap_or(ALGORITHM_DEFAULT), requests.unwrap_or_default(), window_ms?);
    if let Err(error) = limit {
        let field = match error {
            LimitError::TooManyRequests { .. } => "requests",
            LimitError::WindowTooShort { .. } | LimitError::WindowTooLong { .. } => "per",
        };
        object.get(field).as_ref().unwrap_or(node).report(report, error.to_string());
    }
    requests?;
    algorithm?;
    Some(RuleLimit { limit: limit.ok()?, align: align? })
}

fn read_duration(node: &Node, report: &mut Report) -> Option<u64> {
    let text = node.text(report)?;
    let parsed = duration::parse(text);
    if parsed.is_none() {
        let advice = "write a whole number and a unit, such as \"10s\" (units: ms, s, m, h, d)";
        node.report(report, format!("{} is not a duration; {advice}", quoted(text)));
    }
    parsed
}

/// How a limit is written.
#[cfg(feature = "schema")]
pub(crate) mod form {
    use super::{Align, REQUESTS_MAX};

    const SHORT_PATTERN: &str = "^(0|[1-9][0-9]{0,10})/([1-9][0-9]{0,10})?(ms|s|m|h|d)$";
    const DURATION_PATTERN: &str = "^[1-9][0-9]{0,10}(ms|s|m|h|d)$";

    /// How many requests in how much time.
    #[derive(schemars::JsonSchema)]
    #[schemars(untagged, rename = "Limit")]
    #[expect(dead_code, reason = "a form is only described, never built")]
    pub(crate) enum LimitForm {
        /// Requests and window in short, such as `"100/1m"` or `"50/s"`; units are ms, s, m, h and d. At most
        /// 2^36 requests; the window is from 1 s to 2^36 ms (about 795 days).
        Short(#[schemars(regex(pattern = SHORT_PATTERN))] String),
        /// The long form.
        Long(LongForm),
    }

    /// A limit with all its settings.
    #[derive(schemars::JsonSchema)]
    #[schemars(deny_unknown_fields, rename = "LongLimit")]
    #[expect(dead_code, reason = "a form is only described, never built")]
    pub(crate) struct LongForm {
        /// How many requests the window allows; 0 denies all.
        #[schemars(range(max = REQUESTS_MAX))]
        requests: u64,
        /// How long the window is, such as `"1m"`; units are ms, s, m, h and d. From 1 s to 2^36 ms (about
        /// 795 days).
        #[schemars(regex(pattern = DURATION_PATTERN))]
        per: String,
        /// How requests are counted.
        #[schemars(default, with = "AlgorithmForm", extend("default" = "sliding_window"))]
        algorithm: Option<AlgorithmForm>,
        /// Where windows begin.
        #[schemars(default, extend("default" = "key"))]
        align: Align,
    }

    /// How requests are counted.
    #[derive(schemars::JsonSchema)]
    #[schemars(rename_all = "snake_case", rename = "Algorithm")]
    #[expect(dead_code, reason = "a form is only described, never built")]
    pub(crate) enum AlgorithmForm {
        /// The last window's count fades out as the present one goes on: no burst at the edge of two windows.
        SlidingWindow,
        /// Counts start again at each window: exact within a window, up to twice the limit across an edge.
        FixedWindow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn short_limits() {
        let cases = [
            ("100/1m", Some((100, 60_000))),
            ("50/s", Some((50, 1_000))),
            ("1000000/1d", Some((1_000_000, 86_400_000))),
            ("0/1s", Some((0, 1_000))),
            ("5/1500ms", Some((5, 1_500))),
            ("5/d", Some((5, 86_400_000))),
            ("18446744073709551616/s", None),
            ("", None),
            ("/", None),
            ("100", None),
            ("100/", None),
            ("/1m", None),
            ("100/1", None),
            ("100/day", None),
            ("1e3/s", None),
            ("1.5/s", None),
            ("-1/s", None),
            ("+1/s", None),
            ("01/s", None),
            ("1_000/s", None),
            ("100 / 1m", None),
            ("100/1m ", None),
            ("100/1m/2", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_short(text), expected, "{text}");
        }
    }

    #[test]
    fn every_algorithm_has_a_word() {
        assert_eq!(algorithm_word(Algorithm::SlidingWindow), "sliding_window");
        assert_eq!(algorithm_word(Algorithm::FixedWindow), "fixed_window");
    }
}
