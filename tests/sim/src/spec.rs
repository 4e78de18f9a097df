//! What a run is made of: configs and requests, in a form that both the filter and the oracle understand.

use serde_json::{Value, json};

/// The namespace of every simulated plugin.
pub(crate) const NAMESPACE: &str = "sim";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Algorithm {
    FixedWindow,
    SlidingWindow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) algorithm: Algorithm,
    pub(crate) requests: u64,
    pub(crate) window_ms: u64,
    pub(crate) is_clock_aligned: bool,
}

impl Limit {
    pub(crate) const fn fixed(requests: u64, window_ms: u64) -> Self {
        Self { algorithm: Algorithm::FixedWindow, requests, window_ms, is_clock_aligned: false }
    }

    pub(crate) const fn sliding(requests: u64, window_ms: u64) -> Self {
        Self { algorithm: Algorithm::SlidingWindow, requests, window_ms, is_clock_aligned: false }
    }

    fn to_json(self) -> Value {
        json!({
            "requests": self.requests,
            "per": format!("{}ms", self.window_ms),
            "algorithm": match self.algorithm {
                Algorithm::FixedWindow => "fixed_window",
                Algorithm::SlidingWindow => "sliding_window",
            },
            "align": if self.is_clock_aligned { "clock" } else { "key" },
        })
    }
}

/// Who a rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPart {
    ClientIp,
    Header(&'static str),
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
}

impl Rule {
    pub(crate) fn new(name: &str, key: KeyPart, limits: Vec<Limit>) -> Self {
        let is_strict = key == KeyPart::ClientIp;
        Self { name: name.to_owned(), path_prefix: None, key, limits, is_strict, is_shadow: false }
    }

    pub(crate) fn under(self, path_prefix: &str) -> Self {
        Self { path_prefix: Some(path_prefix.to_owned()), ..self }
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
        rule
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) slots: u32,
    pub(crate) has_headers: bool,
    pub(crate) rules: Vec<Rule>,
}

impl Config {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self { slots: 64, has_headers: false, rules }
    }

    /// The text that the plugin reads.
    pub(crate) fn text(&self) -> String {
        json!({
            "namespace": NAMESPACE,
            "table": { "slots": self.slots },
            "response": { "headers": if self.has_headers { "both" } else { "none" } },
            "rules": self.rules.iter().map(Rule::to_json).collect::<Vec<_>>(),
        })
        .to_string()
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
}

impl Request {
    pub(crate) fn from_ip(number: u32) -> Self {
        Self { path: "/".to_owned(), ip: number.to_be_bytes(), headers: Vec::new() }
    }

    pub(crate) fn with_key(key: &str) -> Self {
        let mut request = Self::from_ip(0x0a00_0001);
        request.headers.push(("x-key", key.to_owned()));
        request
    }

    pub(crate) fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
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
        fixed.into_iter().chain(own).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
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
