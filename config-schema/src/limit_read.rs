//! How limits are read: `"100/1m"`, or an object that says more.

use tidegate_core::{BUCKETS_MAX, Limit, LimitError, REQUESTS_MAX, Window};

use crate::duration;
use crate::errors::Report;
use crate::limit::{Align, BUCKETS_DEFAULT, LIMITS_MAX, RuleLimit, Word, is_calendar};
use crate::place::quoted;
use crate::reader::{Node, Object, word_of};

const FIELDS: &[&str] = &["requests", "per", "algorithm", "align", "burst", "buckets", "warm_up"];

pub(crate) fn read_limits(node: &Node, report: &mut Report) -> Option<Vec<RuleLimit>> {
    let nodes = node.list(1..=LIMITS_MAX, report)?;
    let read: Vec<Option<RuleLimit>> = nodes.iter().map(|node| read_limit(node, report)).collect();
    for (index, (node, this)) in nodes.iter().zip(&read).enumerate() {
        let counter = this.as_ref().map(RuleLimit::counter);
        let is_same = |other: &Option<RuleLimit>| other.as_ref().map(RuleLimit::counter) == counter;
        let earlier = read.iter().take(index).position(is_same);
        if let (Some(_), Some(earlier)) = (counter, earlier) {
            let reason = format!("has the algorithm and the window of limits[{earlier}]");
            node.report(report, format!("{reason} and would share its counter; keep the smaller"));
        }
    }
    read.into_iter().collect()
}

pub(crate) fn read_limit(node: &Node, report: &mut Report) -> Option<RuleLimit> {
    if node.is_text() {
        return read_short(node, report);
    }
    if node.is_object() {
        return read_long(node, report);
    }
    node.wrong_type(r#"a string such as "100/1m" or an object"#, report);
    None
}

/// `requests/duration`, where a unit alone is one of it: `50/s`; or `requests/day` of the calendar.
fn read_short(node: &Node, report: &mut Report) -> Option<RuleLimit> {
    let text = node.text(report)?;
    let Some((requests, window)) = parse_short(text) else {
        let advice =
            "write requests/duration, such as \"100/1m\" or \"50/s\" (units: ms, s, m, h, d; or day, month)";
        node.report(report, format!("{} is not a limit; {advice}", quoted(text)));
        return None;
    };
    let limit = plain_limit(requests, window);
    let limit = limit.inspect_err(|error| node.report(report, error.to_string())).ok()?;
    Some(RuleLimit::plain(limit))
}

/// The limit of a short text, if it is one.
pub(crate) fn short_limit(text: &str) -> Option<RuleLimit> {
    let (requests, window) = parse_short(text)?;
    plain_limit(requests, window).ok().map(RuleLimit::plain)
}

fn plain_limit(requests: u64, window: Window) -> Result<Limit, LimitError> {
    match window {
        Window::Ms(ms) => Limit::sliding_window(requests, ms),
        Window::Day | Window::Month => Limit::fixed_window(requests, window),
    }
}

fn parse_short(text: &str) -> Option<(u64, Window)> {
    let (requests, window) = text.split_once('/')?;
    let window = match duration::unit_ms(window) {
        Some(ms) => Window::Ms(ms),
        None => parse_window(window)?,
    };
    Some((duration::whole_number(requests)?, window))
}

fn parse_window(text: &str) -> Option<Window> {
    match text {
        "day" => Some(Window::Day),
        "month" => Some(Window::Month),
        _ => duration::parse(text).map(Window::Ms),
    }
}

fn read_long(node: &Node, report: &mut Report) -> Option<RuleLimit> {
    let object = node.object(FIELDS, report)?;
    let advice = "say how many requests the window allows, such as 100";
    let whole = |node: &Node, report: &mut Report| node.whole(0..=REQUESTS_MAX, report);
    let requests = object.required("requests", advice, report, whole);
    let window = object.required("per", "say how long the window is, such as \"1m\"", report, read_window);
    let algorithm = object.maybe("algorithm", report, Node::choice::<Word>);
    let align = object.maybe("align", report, Node::choice::<Align>);
    let burst = object.maybe("burst", report, whole);
    let buckets = object.maybe("buckets", report, |node, report| {
        node.whole(1..=BUCKETS_MAX.into(), report).and_then(|buckets| u8::try_from(buckets).ok())
    });
    let warm_up = object.maybe("warm_up", report, read_duration);
    let word = algorithm.map(|algorithm| algorithm.unwrap_or(default_word(window)));
    let is_at_home = word.is_none_or(|word| belongs(&object, word, window, report));
    // The window is judged even if another field is wrong, so that both are reported.
    let judged = match (word, requests) {
        (Some(word), Some(requests)) => {
            Numbers { requests, window: window?, burst: burst?, buckets: buckets?, warm_up: warm_up? }
                .limit(word)
        }
        _ => Limit::fixed_window(0, window?),
    };
    if let Err(error) = judged {
        let field = field_of(error);
        object.get(field).as_ref().unwrap_or(node).report(report, error.to_string());
    }
    requests?;
    let limit = RuleLimit::plain(judged.ok()?);
    let limit =
        RuleLimit { align: align?.unwrap_or(limit.align), is_leaky: word? == Word::LeakyBucket, ..limit };
    is_at_home.then_some(limit)
}

fn default_word(window: Option<Window>) -> Word {
    if window.is_some_and(is_calendar) { Word::FixedWindow } else { Word::SlidingWindow }
}

/// The numbers of a limit before they are judged.
struct Numbers {
    requests: u64,
    window: Window,
    burst: Option<u64>,
    buckets: Option<u8>,
    warm_up: Option<u64>,
}

impl Numbers {
    fn limit(&self, word: Word) -> Result<Limit, LimitError> {
        let (requests, ms) = (self.requests, self.window.ms_max());
        match word {
            Word::FixedWindow => Limit::fixed_window(requests, self.window),
            Word::SlidingWindow => Limit::sliding_window(requests, ms),
            Word::SlidingBuckets => {
                Limit::sliding_buckets(requests, ms, self.buckets.unwrap_or(BUCKETS_DEFAULT))
            }
            Word::SlidingLog => Limit::sliding_log(requests, ms),
            Word::TokenBucket => {
                Limit::token_bucket(requests, ms, self.burst.unwrap_or(requests), self.warm_up.unwrap_or(0))
            }
            Word::LeakyBucket => Limit::token_bucket(requests, ms, self.burst.unwrap_or(requests.min(1)), 0),
        }
    }
}

/// The field that an error is about.
fn field_of(error: LimitError) -> &'static str {
    match error {
        LimitError::TooManyRequests { .. } | LimitError::TooManyToLog { .. } => "requests",
        LimitError::WindowTooShort { .. } | LimitError::WindowTooLong { .. } => "per",
        LimitError::Buckets { .. } | LimitError::BucketsDoNotFit { .. } => "buckets",
        LimitError::BurstWithoutRate { .. } | LimitError::BurstTooLarge { .. } => "burst",
        LimitError::WarmUpTooLong { .. } => "warm_up",
    }
}

/// Whether every field that is given means something with this algorithm and window.
fn belongs(object: &Object, word: Word, window: Option<Window>, report: &mut Report) -> bool {
    const HOMES: [(&str, &[Word]); 4] = [
        ("align", &[Word::SlidingWindow, Word::FixedWindow, Word::SlidingBuckets]),
        ("burst", &[Word::TokenBucket, Word::LeakyBucket]),
        ("buckets", &[Word::SlidingBuckets]),
        ("warm_up", &[Word::TokenBucket]),
    ];
    let mut is_fine = true;
    let is_calendar = window.is_some_and(is_calendar);
    if let (Some(node), true) = (object.get("algorithm"), is_calendar && word != Word::FixedWindow) {
        let advice = "only \"fixed_window\" can, which is what you get without \"algorithm\"";
        node.report(report, format!("cannot count a day or a month of the calendar; {advice}"));
        is_fine = false;
    }
    if let (Some(node), true) = (object.get("align"), is_calendar) {
        node.report(
            report,
            "does not belong to a day or a month of the calendar, which begin in UTC; leave it out",
        );
        is_fine = false;
    }
    for (field, homes) in HOMES {
        if let (Some(node), false) = (object.get(field), homes.contains(&word)) {
            let homes: Vec<&str> = homes.iter().map(|home| word_of(*home)).collect();
            let reason = format!("belongs to {}, not to {}", homes.join(" or "), word_of(word));
            node.report(report, format!("{reason}; leave it out or choose another algorithm"));
            is_fine = false;
        }
    }
    is_fine
}

fn read_window(node: &Node, report: &mut Report) -> Option<Window> {
    let text = node.text(report)?;
    let parsed = parse_window(text);
    if parsed.is_none() {
        let advice = "write a whole number and a unit, such as \"10s\" (units: ms, s, m, h, d), or \"day\" or \"month\"";
        node.report(report, format!("{} is not a duration; {advice}", quoted(text)));
    }
    parsed
}

fn read_duration(node: &Node, report: &mut Report) -> Option<u64> {
    duration::read(node, 1..=tidegate_core::WINDOW_MS_MAX, report)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn short_limits() {
        let cases = [
            ("100/1m", Some((100, Window::Ms(60_000)))),
            ("50/s", Some((50, Window::Ms(1_000)))),
            ("1000000/1d", Some((1_000_000, Window::Ms(86_400_000)))),
            ("0/1s", Some((0, Window::Ms(1_000)))),
            ("5/1500ms", Some((5, Window::Ms(1_500)))),
            ("5/d", Some((5, Window::Ms(86_400_000)))),
            ("18446744073709551616/s", None),
            ("", None),
            ("/", None),
            ("100", None),
            ("100/", None),
            ("/1m", None),
            ("100/1", None),
            ("100/day", Some((100, Window::Day))),
            ("0/month", Some((0, Window::Month))),
            ("100/1day", None),
            ("100/days", None),
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
}
