//! The names of keys in Redis. Their length is bounded whatever a client sends: its key is in them as a hash only.
//!
//! | key | value | expires |
//! |---|---|---|
//! | `<prefix>:epoch` | the epoch, 8 bytes | after 30 days; renewed while a service runs |
//! | `<prefix>:probe` | nothing: written to see whether the server takes writes | after 10 s |
//! | `<prefix>:c:<namespace>:{<subject>}:<limit>` | the state of a counter: a kind byte and contents | when it is as good as none |
//! | `<prefix>:s:<namespace>:<proxy>:<vm>` | a hash: the batches of a sender that are remembered | after 60 s |
//! | `<prefix>:p:<namespace>` | a sorted set: proxies, and when they were last seen | after 10 s |
//!
//! The subject is a public hash of namespace, rule and key, the limit its algorithm and window in readable form. All
//! limits of one rule and key share the part in braces, which a cluster takes for the place.

use tidegate_config::wire::Sender;
use tidegate_core::{Algorithm, Limit, Window};

/// The names under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn prefix_bytes(&self) -> usize {
        self.prefix.len()
    }

    pub(super) fn epoch(&self) -> String {
        format!("{}:epoch", self.prefix)
    }

    pub(super) fn probe(&self) -> String {
        format!("{}:probe", self.prefix)
    }

    pub(super) fn sender(&self, namespace: &str, sender: Sender) -> String {
        format!("{}:s:{namespace}:{:016x}:{}", self.prefix, sender.proxy, sender.vm)
    }

    pub(super) fn proxies(&self, namespace: &str) -> String {
        format!("{}:p:{namespace}", self.prefix)
    }

    /// Appends the name of a counter to `text`.
    pub(super) fn push_counter(&self, text: &mut String, namespace: &str, subject: u128, limit: &Limit) {
        for part in [&self.prefix, ":c:", namespace, ":{"] {
            text.push_str(part);
        }
        push_hex(text, subject);
        text.push_str("}:");
        push_limit(text, limit);
    }
}

fn push_hex(name: &mut String, hash: u128) {
    for byte in hash.to_be_bytes() {
        for nibble in [byte >> 4, byte & 0x0f] {
            name.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
        }
    }
}

/// What tells a rule's limits apart; never the limit's number, so that a changed limit keeps its counts.
fn push_limit(name: &mut String, limit: &Limit) {
    let letter = match limit.algorithm() {
        Algorithm::FixedWindow => 'f',
        Algorithm::SlidingWindow => 's',
        Algorithm::TokenBucket { .. } => 't',
        Algorithm::SlidingBuckets { .. } => 'b',
        Algorithm::SlidingLog => 'l',
    };
    name.push(letter);
    match limit.window() {
        Window::Ms(ms) => push_number(name, ms),
        Window::Day => name.push_str("day"),
        Window::Month => name.push_str("month"),
    }
    if let Algorithm::SlidingBuckets { buckets } = limit.algorithm() {
        name.push('/');
        push_number(name, buckets.into());
    }
}

fn push_number(name: &mut String, number: u64) {
    name.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tidegate_config::wire::{Batch, KEY_BYTES_MAX, NAMESPACE_LEN_MAX, PUBLIC_KEY, Subjects};

    use super::*;

    fn name(namespace: &str, rule: &str, limit: &str, key: &str) -> String {
        let text =
            format!(r#"{{"groups":[{{"takes":[{{"rule":"{rule}","limit":{limit},"key":"{key}"}}]}}]}}"#);
        let batch = Batch::from_json(text.as_bytes()).expect("the test's own batch is valid");
        let take = &batch.groups[0].takes[0];
        let subject = Subjects::new(PUBLIC_KEY, namespace).subject(take);
        let mut name = String::new();
        Names::new("tidegate").push_counter(&mut name, namespace, subject, &take.limit.limit);
        name
    }

    #[test]
    fn a_name_is_readable_and_a_promise() {
        let name = name("edge", "login", r#""100/1m""#, "ana");
        // Two versions of the service must find the same counters.
        assert_eq!(name, "tidegate:c:edge:{ce8a7734f1460e8554820bf32090719f}:s60000");
    }

    #[test]
    fn limits_of_one_subject_share_the_place_and_nothing_else() {
        let long = |more: &str| format!(r#"{{"requests":10,"per":"1m",{more}}}"#);
        let limits = [
            r#""10/1m""#.to_owned(),
            r#""10/2m""#.to_owned(),
            long(r#""algorithm":"fixed_window""#),
            long(r#""algorithm":"sliding_log""#),
            long(r#""algorithm":"token_bucket""#),
            long(r#""algorithm":"sliding_buckets","buckets":4"#),
            long(r#""algorithm":"sliding_buckets","buckets":6"#),
            r#"{"requests":10,"per":"day","algorithm":"fixed_window"}"#.to_owned(),
            r#"{"requests":10,"per":"1d","algorithm":"fixed_window"}"#.to_owned(),
            r#"{"requests":10,"per":"month","algorithm":"fixed_window"}"#.to_owned(),
        ];
        let names: Vec<_> = limits.iter().map(|limit| name("edge", "login", limit, "ana")).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), limits.len(), "{names:?}");
        let places: HashSet<_> = names.iter().map(|name| name.split('}').next()).collect();
        assert_eq!(places.len(), 1, "{names:?}");
        assert_eq!(name("edge", "login", r#""99/1m""#, "ana"), names[0], "the number is no part of it");
    }

    #[test]
    fn the_longest_key_makes_no_longer_name() {
        let name = name(&"n".repeat(NAMESPACE_LEN_MAX), "login", r#""1/1m""#, &"k".repeat(KEY_BYTES_MAX));
        assert!(name.len() <= 140, "{}", name.len());
        let sender = Sender { proxy: u64::MAX, vm: u32::MAX, sequence: 0 };
        assert!(Names::new("tidegate").sender(&"n".repeat(NAMESPACE_LEN_MAX), sender).len() <= 140);
    }
}
