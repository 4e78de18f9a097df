//! How many requests in how much time: `"100/1m"`, or an object that says more.

use tidegate_core::{Algorithm, Limit, Window};

use crate::duration;
use crate::json::Json;
use crate::json_text::Fields;
use crate::reader::{Choice, word_of};

/// At most this many limits in one rule: they share one slot of the table.
pub const LIMITS_MAX: usize = 4;
/// The sub-windows of a `sliding_buckets` limit that does not say.
pub const BUCKETS_DEFAULT: u8 = 10;

/// A limit and where its windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleLimit {
    /// The algorithm and its numbers.
    pub limit: Limit,
    /// Where windows begin.
    pub align: Align,
    /// Whether a token bucket was written as a leaky one, which has the same arithmetic.
    pub is_leaky: bool,
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

/// How requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename_all = "snake_case", rename = "Algorithm")
)]
pub(crate) enum Word {
    /// The last window's count fades out as the present one goes on: no burst at the edge of two windows.
    SlidingWindow,
    /// Counts start again at each window: exact within a window, up to twice the limit across an edge.
    FixedWindow,
    /// Counts in several sub-windows: never more than the limit in any window, and a request is forgotten at
    /// most one sub-window late.
    SlidingBuckets,
    /// Remembers each request: exact, and for at most 1000 requests.
    SlidingLog,
    /// A bucket that is refilled at a steady rate and from which each request takes.
    TokenBucket,
    /// The same, but by default nothing may come faster than the rate.
    LeakyBucket,
}

impl Choice for Word {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("sliding_window", Self::SlidingWindow),
        ("fixed_window", Self::FixedWindow),
        ("sliding_buckets", Self::SlidingBuckets),
        ("sliding_log", Self::SlidingLog),
        ("token_bucket", Self::TokenBucket),
        ("leaky_bucket", Self::LeakyBucket),
    ];
}

/// What makes a counter within a rule: limits that agree here count in one place.
///
/// Numbers are no part of it, neither requests nor burst: a changed limit keeps its counts. Nor is the plan: a
/// client whose plan changes keeps its counts in every limit that has its like in the new plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitCounter {
    /// The algorithm's word; a leaky bucket counts as a token bucket.
    pub algorithm: &'static str,
    /// The window.
    pub window: Window,
    /// The number of sub-windows; 0 if there are none.
    pub buckets: u8,
}

impl RuleLimit {
    /// What its counter is told by, within a rule.
    pub fn counter(&self) -> LimitCounter {
        let (word, buckets) = match self.limit.algorithm() {
            Algorithm::SlidingBuckets { buckets } => (Word::SlidingBuckets, buckets),
            Algorithm::TokenBucket { .. } => (Word::TokenBucket, 0),
            _ => (self.word(), 0),
        };
        LimitCounter { algorithm: word_of(word), window: self.limit.window(), buckets }
    }

    /// The window as it is written: `1h`, `day`.
    pub fn window_text(&self) -> String {
        match self.limit.window() {
            Window::Ms(ms) => duration::shortest_text(ms),
            Window::Day => "day".to_owned(),
            Window::Month => "month".to_owned(),
        }
    }

    pub(crate) fn algorithm_text(&self) -> String {
        match self.limit.algorithm() {
            Algorithm::SlidingBuckets { buckets } => format!("{}_{buckets}", word_of(self.word())),
            _ => word_of(self.word()).to_owned(),
        }
    }

    fn word(&self) -> Word {
        match self.limit.algorithm() {
            Algorithm::FixedWindow => Word::FixedWindow,
            Algorithm::SlidingWindow => Word::SlidingWindow,
            Algorithm::SlidingBuckets { .. } => Word::SlidingBuckets,
            Algorithm::SlidingLog => Word::SlidingLog,
            Algorithm::TokenBucket { .. } if self.is_leaky => Word::LeakyBucket,
            Algorithm::TokenBucket { .. } => Word::TokenBucket,
        }
    }

    pub(crate) fn json(&self) -> Json {
        let requests = self.limit.requests();
        let is_short = match self.word() {
            Word::SlidingWindow => self.align == Align::Key,
            Word::FixedWindow => is_calendar(self.limit.window()),
            _ => false,
        };
        if is_short {
            return format!("{requests}/{}", self.window_text()).into();
        }
        let mut fields = Fields::default();
        fields.put("requests", requests);
        fields.put("per", self.window_text());
        fields.put("algorithm", word_of(self.word()));
        fields.put_if(self.align != Align::Key, "align", || word_of(self.align).into());
        match self.limit.algorithm() {
            Algorithm::SlidingBuckets { buckets } => fields.put("buckets", u64::from(buckets)),
            Algorithm::TokenBucket { burst, warm_up_ms } => {
                fields.put("burst", burst);
                fields.put_if(warm_up_ms > 0, "warm_up", || duration::shortest_text(warm_up_ms).into());
            }
            _ => {}
        }
        fields.into()
    }

    pub(crate) fn plain(limit: Limit) -> Self {
        let align = if is_calendar(limit.window()) { Align::Clock } else { Align::default() };
        Self { limit, align, is_leaky: false }
    }
}

pub(crate) fn is_calendar(window: Window) -> bool {
    matches!(window, Window::Day | Window::Month)
}
