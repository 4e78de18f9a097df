//! What a counter of the central service is known by.
//!
//! A counter belongs to a namespace, a rule, a key, and what kind of counter its limit needs; never to the limit's
//! number, so a changed limit keeps its counts. Every part has its length before it, so no two run into each other.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher13Wide};
use tidegate_core::{Algorithm, Window};

use super::Take;
use crate::limit::{Align, RuleLimit};

/// The key of the hash that names counters in a store which several services share. It may never change: two
/// versions of the service must find the same counters.
pub const PUBLIC_KEY: &[u8; 16] = b"tidegate-counter";

/// The key of the hash that shifts windows, the same as the filter's.
const WINDOWS_KEY: &[u8; 16] = b"tidegate-windows";

/// The name of a take's counter under a key that is public or a store's own secret.
pub fn counter_hash(key: &[u8; 16], namespace: &str, take: &Take<'_>) -> u128 {
    let mut hasher = SipHasher13Wide::new_with_key(key);
    write_rule(&mut hasher, namespace, &take.rule);
    write_key(&mut hasher, take);
    hasher.write(&limit_tag(&take.limit));
    hasher.finish128().as_u128()
}

/// The hashes of many takes of a namespace: what takes of one rule have in common is hashed once.
pub struct Subjects<'a> {
    key: &'a [u8; 16],
    namespace: &'a str,
    of_rule: Option<OfRule<'a>>,
}

/// Hashes of which the namespace and the rule are done.
struct OfRule<'a> {
    rule: &'a str,
    subject: SipHasher13Wide,
    shift: SipHasher13,
}

impl<'a> Subjects<'a> {
    /// Hashes under a key that is public or a store's own secret.
    pub fn new(key: &'a [u8; 16], namespace: &'a str) -> Self {
        Self { key, namespace, of_rule: None }
    }

    /// Who is counted, with all limits of one rule and key in common.
    pub fn subject(&mut self, take: &'a Take<'_>) -> u128 {
        let mut hasher = self.of_rule(&take.rule).subject;
        write_key(&mut hasher, take);
        hasher.finish128().as_u128()
    }

    /// By how much the windows of the take's counter are shifted: the number that the filter computes for the same
    /// namespace, rule and key.
    pub fn shift(&mut self, take: &'a Take<'_>) -> u64 {
        match take.limit.align {
            Align::Clock => 0,
            Align::Key => {
                let mut hasher = self.of_rule(&take.rule).shift;
                hasher.write(&take.key);
                hasher.finish()
            }
        }
    }

    fn of_rule(&mut self, rule: &'a str) -> &OfRule<'a> {
        if self.of_rule.as_ref().is_some_and(|done| done.rule != rule) {
            self.of_rule = None;
        }
        self.of_rule.get_or_insert_with(|| {
            let mut subject = SipHasher13Wide::new_with_key(self.key);
            write_rule(&mut subject, self.namespace, rule);
            let mut shift = SipHasher13::new_with_key(WINDOWS_KEY);
            write_rule(&mut shift, self.namespace, rule);
            OfRule { rule, subject, shift }
        })
    }
}

/// The shift of one take.
pub fn window_shift(namespace: &str, take: &Take<'_>) -> u64 {
    Subjects::new(PUBLIC_KEY, namespace).shift(take)
}

/// What tells the counters of a rule's limits apart: algorithm, sub-windows, calendar and window.
pub fn limit_tag(limit: &RuleLimit) -> [u8; 11] {
    let (algorithm, buckets) = match limit.limit.algorithm() {
        Algorithm::FixedWindow => (1, 0),
        Algorithm::SlidingWindow => (2, 0),
        Algorithm::TokenBucket { .. } => (3, 0),
        // Sub-windows of another number have other numbers themselves.
        Algorithm::SlidingBuckets { buckets } => (4, buckets),
        Algorithm::SlidingLog => (5, 0),
    };
    let calendar = match limit.limit.window() {
        Window::Ms(_) => 0,
        Window::Day => 1,
        Window::Month => 2,
    };
    let mut tag = [algorithm, buckets, calendar, 0, 0, 0, 0, 0, 0, 0, 0];
    if let Some(window_ms) = tag.last_chunk_mut() {
        *window_ms = limit.limit.window_ms().to_le_bytes();
    }
    tag
}

fn write_rule(hasher: &mut impl Hasher, namespace: &str, rule: &str) {
    write_text(hasher, namespace);
    write_text(hasher, rule);
}

fn write_key(hasher: &mut impl Hasher, take: &Take<'_>) {
    hasher.write(&length(&take.key));
    hasher.write(&take.key);
}

fn write_text(hasher: &mut impl Hasher, text: &str) {
    hasher.write(&length(text.as_bytes()));
    hasher.write(text.as_bytes());
}

fn length(bytes: &[u8]) -> [u8; 8] {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes()
}
