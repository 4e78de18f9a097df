//! What a run is made of: configs and requests, in a form that both the filter and the oracle understand.

use crate::global_spec::{CLUSTER, Global};
use serde_json::{Value, json};
use std::fmt;

/// The namespace of every simulated plugin.
pub(crate) const NAMESPACE: &str = "sim";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Algorithm {
    FixedWindow,
    SlidingWindow,
    TokenBucket,
    LeakyBucket,
    SlidingLog,
    SlidingBuckets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) algorithm: Algorithm,
    pub(crate) requests: u64,
    pub(crate) window_ms: u64,
    pub(crate) is_clock_aligned: bool,
    /// What a token or leaky bucket holds; of no meaning to others.
    pub(crate) burst: u64,
    /// The sub-windows of `sliding_buckets`; of no meaning to others.
    pub(crate) buckets: u8,
}

impl Limit {
    const fn new(algorithm: Algorithm, requests: u64, window_ms: u64) -> Self {
        Self { algorithm, requests, window_ms, is_clock_aligned: false, burst: 1, buckets: 1 }
    }

    pub(crate) const fn fixed(requests: u64, window_ms: u64) -> Self {
        Self::new(Algorithm::FixedWindow, requests, window_ms)
    }

    pub(crate) const fn sliding(requests: u64, window_ms: u64) -> Self {
        Self::new(Algorithm::SlidingWindow, requests, window_ms)
    }

    pub(crate) const fn token_bucket(requests: u64, period_ms: u64, burst: u64) -> Self {
        Self { burst, ..Self::new(Algorithm::TokenBucket, requests, period_ms) }
    }

    pub(crate) const fn leaky_bucket(requests: u64, period_ms: u64) -> Self {
        Self::new(Algorithm::LeakyBucket, requests, period_ms)
    }

    pub(crate) const fn log(requests: u64, window_ms: u64) -> Self {
        Self::new(Algorithm::SlidingLog, requests, window_ms)
    }

    pub(crate) const fn buckets(requests: u64, window_ms: u64, buckets: u8) -> Self {
        Self { buckets, ..Self::new(Algorithm::SlidingBuckets, requests, window_ms) }
    }

    const fn is_bucket(&self) -> bool {
        matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
    }

    /// Whether its counts begin anew with each window.
    pub(crate) const fn counts_in_windows(&self) -> bool {
        matches!(self.algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow)
    }

    /// Whether it has windows or sub-windows that begin somewhere.
    const fn has_grid(&self) -> bool {
        self.counts_in_windows() || matches!(self.algorithm, Algorithm::SlidingBuckets)
    }

    /// Whether its windows are the same for all keys; a config says so only of those that it has.
    pub(crate) const fn begins_by_clock(&self) -> bool {
        self.is_clock_aligned && self.has_grid()
    }

    /// Whether its states do not fit a small slot.
    const fn is_large(&self) -> bool {
        matches!(self.algorithm, Algorithm::SlidingLog | Algorithm::SlidingBuckets)
    }

    /// What can pass at once.
    pub(crate) const fn capacity(&self) -> u64 {
        if self.is_bucket() { self.burst } else { self.requests }
    }

    /// How long a charge can matter: a window, or twice the time in which a bucket fills, for debts go below
    /// its bottom.
    pub(crate) fn span_ms(&self) -> u64 {
        if self.is_bucket() {
            self.window_ms.max(2 * (self.burst * self.window_ms).div_ceil(self.requests.max(1)))
        } else {
            self.window_ms
        }
    }

    fn to_json(self) -> Value {
        let mut limit = json!({
            "requests": self.requests,
            "per": format!("{}ms", self.window_ms),
            "algorithm": match self.algorithm {
                Algorithm::FixedWindow => "fixed_window",
                Algorithm::SlidingWindow => "sliding_window",
                Algorithm::TokenBucket => "token_bucket",
                Algorithm::LeakyBucket => "leaky_bucket",
                Algorithm::SlidingLog => "sliding_log",
                Algorithm::SlidingBuckets => "sliding_buckets",
            },
        });
        if self.is_bucket() {
            limit["burst"] = json!(self.burst);
        }
        if self.algorithm == Algorithm::SlidingBuckets {
            limit["buckets"] = json!(self.buckets);
        }
        if self.has_grid() {
            limit["align"] = json!(if self.is_clock_aligned { "clock" } else { "key" });
        }
        limit
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, requests, window_ms, .. } = self;
        write!(f, "{requests} in {window_ms} ms by {algorithm:?}, {} at once", self.capacity())
    }
}

/// Who a rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPart {
    ClientIp,
    Header(&'static str),
}

/// How much a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    Fixed(u64),
    /// What `x-cost` says, 1 if it says nothing or 0, and at most so much.
    Header(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) name: String,
    /// `None` applies to every request.
    pub(crate) path_prefix: Option<String>,
    pub(crate) key: KeyPart,
    pub(crate) limits: Vec<Limit>,
    pub(crate) is_strict: bool,
    pub(crate) is_shadow: bool,
    pub(crate) cost: Cost,
    /// Counts only responses with this status. The oracle does not follow such a rule: tests count for themselves.
    pub(crate) count_status: Option<u16>,
    /// Whether it holds across the fleet, and how.
    pub(crate) global: Option<Global>,
}

impl Rule {
    pub(crate) fn new(name: &str, key: KeyPart, limits: Vec<Limit>) -> Self {
        let is_strict = key == KeyPart::ClientIp;
        Self {
            name: name.to_owned(),
            path_prefix: None,
            key,
            limits,
            is_strict,
            is_shadow: false,
            cost: Cost::Fixed(1),
            count_status: None,
            global: None,
        }
    }

    /// How much a request counts.
    pub(crate) fn cost_of(&self, request: &Request) -> u64 {
        match self.cost {
            Cost::Fixed(cost) => cost,
            Cost::Header(max) => request.cost.filter(|cost| *cost > 0).unwrap_or(1).min(max),
        }
    }

    /// The same across the fleet.
    pub(crate) fn globally(self, global: Global) -> Self {
        Self { global: Some(global), ..self }
    }

    pub(crate) fn counting(self, status: u16) -> Self {
        Self { count_status: Some(status), ..self }
    }

    /// Whether the oracle of one proxy can say what was used.
    pub(crate) fn is_followed(&self) -> bool {
        !self.is_shadow && self.count_status.is_none() && self.global.is_none()
    }

    pub(crate) fn under(self, path_prefix: &str) -> Self {
        Self { path_prefix: Some(path_prefix.to_owned()), ..self }
    }

    /// Whether its counters are kept in large slots: one that needs them takes the others along.
    pub(crate) fn is_large(&self) -> bool {
        self.limits.iter().any(Limit::is_large)
    }

    fn to_json(&self) -> Value {
        let mut rule = json!({
            "name": self.name,
            "key": [match self.key {
                KeyPart::ClientIp => json!("client_ip"),
                KeyPart::Header(name) => json!({ "header": name }),
            }],
            "limits": self.limits.iter().map(|limit| limit.to_json()).collect::<Vec<_>>(),
            "mode": if self.is_shadow { "shadow" } else { "enforce" },
            "when_full": if self.is_strict { "strict" } else { "lenient" },
        });
        if let Some(prefix) = &self.path_prefix {
            rule["match"] = json!({ "path_prefix": prefix });
        }
        match self.cost {
            Cost::Fixed(1) => {}
            Cost::Fixed(cost) => rule["cost"] = json!(cost),
            Cost::Header(max) => rule["cost"] = json!({ "header": "x-cost", "max": max }),
        }
        if let Some(status) = self.count_status {
            rule["count_status"] = json!([status]);
        }
        if let Some(global) = self.global {
            rule["global"] = global.to_json();
        }
        rule
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) slots: u32,
    pub(crate) has_headers: bool,
    /// What every route carries in its metadata, if that is read.
    pub(crate) metadata: Option<&'static str>,
    pub(crate) rules: Vec<Rule>,
    /// How long the counter may take, where there are limits across the fleet.
    pub(crate) counter_timeout_ms: u64,
}

/// How long the counter may take if the config leaves it open.
const COUNTER_TIMEOUT_MS: u64 = 50;

/// Keys with large counters that a config makes room for, and the slots that the filter lays out for them: four
/// times as many places, eight to a slot.
const LARGE_KEYS: u32 = 64;
const LARGE_SLOTS: u32 = LARGE_KEYS * 4 / 8;

impl Config {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        let counter_timeout_ms = COUNTER_TIMEOUT_MS;
        Self { slots: 64, has_headers: false, metadata: None, rules, counter_timeout_ms }
    }

    /// The text that the plugin reads.
    pub(crate) fn text(&self) -> String {
        let mut config = json!({
            "namespace": NAMESPACE,
            "table": { "slots": self.slots, "large_keys": LARGE_KEYS },
            "route_metadata": self.metadata.is_some(),
            "response": { "headers": if self.has_headers { "both" } else { "none" } },
            "rules": self.rules.iter().map(Rule::to_json).collect::<Vec<_>>(),
        });
        if self.is_global() {
            let timeout = format!("{}ms", self.counter_timeout_ms);
            config["counter"] = json!({ "cluster": CLUSTER, "timeout": timeout });
        }
        config.to_string()
    }

    /// Whether any of its rules holds across the fleet.
    pub(crate) fn is_global(&self) -> bool {
        self.rules.iter().any(|rule| rule.global.is_some())
    }

    /// Large slots that it lays out.
    pub(crate) fn large_slots(&self) -> u32 {
        // What metadata brings may need them.
        let needs_large = self.metadata.is_some() || self.rules.iter().any(Rule::is_large);
        if needs_large { LARGE_SLOTS } else { 0 }
    }

    /// The rules that apply to a request, each with the bytes of its key.
    pub(crate) fn applying<'c>(&'c self, request: &Request) -> Vec<(&'c Rule, Vec<u8>)> {
        let applies =
            |rule: &&Rule| rule.path_prefix.as_ref().is_none_or(|prefix| request.path.starts_with(prefix));
        self.rules.iter().filter(applies).map(|rule| (rule, request.key(rule.key))).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) ip: [u8; 4],
    pub(crate) headers: Vec<(&'static str, String)>,
    /// What it says that it costs.
    pub(crate) cost: Option<u64>,
    /// The status of its response; `None` if the client leaves before there is one.
    pub(crate) status: Option<u16>,
    /// After so long the client leaves, if it still waits for the limiter.
    pub(crate) patience_ns: Option<u64>,
}

impl Request {
    pub(crate) fn from_ip(number: u32) -> Self {
        Self {
            path: "/".to_owned(),
            ip: number.to_be_bytes(),
            headers: Vec::new(),
            cost: None,
            status: Some(200),
            patience_ns: None,
        }
    }

    pub(crate) fn with_key(key: &str) -> Self {
        let mut request = Self::from_ip(0x0a00_0001);
        request.headers.push(("x-key", key.to_owned()));
        request
    }

    pub(crate) fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    pub(crate) fn answered(self, status: Option<u16>) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn leaving_after(self, patience_ns: u64) -> Self {
        Self { patience_ns: Some(patience_ns), ..self }
    }

    /// A key's bytes as the config language promises them: a presence byte, the length, the value.
    fn key(&self, part: KeyPart) -> Vec<u8> {
        let value = match part {
            KeyPart::ClientIp => Some(self.ip.to_vec()),
            KeyPart::Header(name) => {
                let mut values = self.headers.iter().filter(|(other, _)| *other == name);
                values.next().map(|(_, value)| value.as_bytes().to_vec())
            }
        };
        match value {
            Some(value) => {
                let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
                [&[1], length.to_le_bytes().as_slice(), &value].concat()
            }
            None => vec![0],
        }
    }

    /// All headers.
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        let fixed = [(":method", "GET"), (":path", self.path.as_str()), (":authority", "sim")];
        let own = self.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let pairs = fixed.into_iter().chain(own).map(|(name, value)| (name.to_owned(), value.to_owned()));
        pairs.chain(self.cost.map(|cost| ("x-cost".to_owned(), cost.to_string()))).collect()
    }
}

/// A header map in the ABI's form.
pub(crate) fn serialised(pairs: &[(String, String)]) -> Vec<u8> {
    let length = |text: &str| u32::try_from(text.len()).unwrap_or(0).to_le_bytes();
    let mut bytes = u32::try_from(pairs.len()).unwrap_or(0).to_le_bytes().to_vec();
    for (name, value) in pairs {
        bytes.extend(length(name));
        bytes.extend(length(value));
    }
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend(text.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// A header map, read back from the ABI's form.
pub(crate) fn pairs_of(bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let count = number(0)?;
    let mut at = 4 + 8 * count;
    let mut text = |size: usize| {
        let text = String::from_utf8_lossy(bytes.get(at..at + size)?).into_owned();
        at += size + 1;
        Some(text)
    };
    (0..count).map(|pair| Some((text(number(4 + 8 * pair)?)?, text(number(8 + 8 * pair)?)?))).collect()
}
