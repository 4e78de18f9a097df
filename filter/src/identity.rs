//! Who a counter belongs to: hashes of namespace, rule and key.
//!
//! Two kinds. **Placement** is keyed with a secret of this proxy, so that nobody can aim keys at one slot;
//! it picks the slot and the fingerprint. The **shift** of a key's windows must be the same in every proxy,
//! so its hash is public.

use core::hash::Hasher;
use core::num::NonZeroU64;
use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher13Wide};
use tidegate_core::{Algorithm, Limit, Window};

/// The secret of placement.
pub(crate) type Secret = [u8; 16];

/// The key of the public hash. It may never change: proxies of two versions must agree on windows.
const PUBLIC: &[u8; 16] = b"tidegate-windows";

/// The key of the hash that stands for a client's key on the way to the counter. It may never change: proxies of two
/// versions must count together.
const WIRE: &[u8; 16] = b"tidegate-subject";

/// The key of the hash by which the counter knows this proxy.
const PROXY: &[u8; 16] = b"tidegate-proxies";

/// What a proxy is known by to the counter: a hash of the secret that it drew when it started.
pub(crate) fn proxy_number(secret: &Secret) -> u64 {
    let mut hasher = SipHasher13::new_with_key(PROXY);
    hasher.write(secret);
    hasher.finish()
}

/// The hashes of a rule, ready for keys.
#[derive(Clone)]
pub(crate) struct RuleHasher {
    placement: SipHasher13Wide,
    shift: SipHasher13,
}

/// A key of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Reduced by the table's size it is the slot's index.
    pub(crate) place: u64,
    /// Combined with a limit's tag it is the fingerprint of that limit's counter.
    pub(crate) key: u64,
    /// By how much the key's windows are shifted.
    pub(crate) shift: u64,
    /// What the counter knows it by, if the rule is one of the fleet: nothing of a client's key leaves the proxy.
    pub(crate) wire: [u8; 16],
}

impl RuleHasher {
    pub(crate) fn new(secret: &Secret, namespace: &str, rule: &str) -> Self {
        let mut placement = SipHasher13Wide::new_with_key(secret);
        let mut shift = SipHasher13::new_with_key(PUBLIC);
        for text in [namespace, rule] {
            let length: [u8; 8] = u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes();
            for bytes in [length.as_slice(), text.as_bytes()] {
                placement.write(bytes);
                shift.write(bytes);
            }
        }
        Self { placement, shift }
    }

    /// The identity of a key, given its unambiguous bytes.
    pub(crate) fn key(&self, key: &[u8]) -> Identity {
        let mut placement = self.placement;
        placement.write(key);
        let placement = placement.finish128();
        let mut shift = self.shift;
        shift.write(key);
        Identity { place: placement.h1, key: placement.h2, shift: shift.finish(), wire: [0; 16] }
    }

    /// The identity of a key that the counter knows too. All of it comes from what the counter is told, so that both
    /// shift the key's windows alike.
    pub(crate) fn wire_key(&self, key: &[u8]) -> Identity {
        let mut hasher = SipHasher13Wide::new_with_key(WIRE);
        hasher.write(key);
        let wire = hasher.finish128().as_bytes();
        Identity { wire, ..self.key(&wire) }
    }

    /// The rule's short name in a slot.
    pub(crate) fn rule_tag(&self) -> u16 {
        let [low, high, ..] = self.placement.finish128().h1.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// What tells the counter of one limit from those of the rule's other limits. Not the limit's number,
    /// so that a changed limit keeps its counts.
    pub(crate) fn limit_tag(&self, limit: &Limit) -> u64 {
        let mut hasher = self.placement;
        let (algorithm, buckets) = match limit.algorithm() {
            Algorithm::FixedWindow => (1, 0),
            Algorithm::SlidingWindow => (2, 0),
            Algorithm::TokenBucket { .. } => (3, 0),
            // Sub-windows of another number have other numbers themselves.
            Algorithm::SlidingBuckets { buckets } => (4, buckets),
            Algorithm::SlidingLog => (5, 0),
        };
        let calendar = match limit.window() {
            Window::Ms(_) => 0,
            Window::Day => 1,
            Window::Month => 2,
        };
        hasher.write(&[algorithm, buckets, calendar]);
        hasher.write(&limit.window_ms().to_le_bytes());
        hasher.finish128().h2
    }
}

impl Identity {
    /// The fingerprint of the counter of one limit.
    pub(crate) fn fingerprint(&self, tag: u64) -> NonZeroU64 {
        NonZeroU64::new(self.key ^ tag).unwrap_or(NonZeroU64::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_and_rules_do_not_run_into_each_other() {
        let key = |namespace, rule| RuleHasher::new(&[7; 16], namespace, rule).key(b"k");
        assert_ne!(key("a", "bc"), key("ab", "c"));
        assert_eq!(key("a", "bc"), key("a", "bc"));
    }

    #[test]
    fn placement_is_secret_and_the_shift_is_public() {
        let key = |secret| RuleHasher::new(&[secret; 16], "edge", "login").key(b"ana");
        assert_ne!(key(1).place, key(2).place);
        assert_ne!(key(1).key, key(2).key);
        assert_eq!(key(1).shift, key(2).shift);
        // The number itself is a promise: proxies of two versions must shift a key's windows alike.
        assert_eq!(key(1).shift, 12_541_068_499_881_224_913);
    }

    #[test]
    fn the_limits_number_is_no_part_of_it_but_algorithm_and_window_are() {
        let hasher = RuleHasher::new(&[7; 16], "edge", "login");
        let tag = |limit: Result<Limit, _>| hasher.limit_tag(&limit.expect("valid"));
        let fixed = |requests, window| tag(Limit::fixed_window(requests, window));
        assert_eq!(fixed(10, Window::Ms(60_000)), fixed(99, Window::Ms(60_000)));
        let buckets = |buckets| tag(Limit::sliding_buckets(10, 60_000, buckets));
        assert_ne!(buckets(4), buckets(6));
        let bucket = |burst, warm_up_ms| tag(Limit::token_bucket(10, 60_000, burst, warm_up_ms));
        assert_eq!(bucket(1, 0), bucket(5, 1_000));
        let mut tags = vec![
            fixed(10, Window::Ms(60_000)),
            fixed(10, Window::Ms(61_000)),
            fixed(10, Window::Ms(86_400_000)),
            fixed(10, Window::Day),
            fixed(10, Window::Month),
            tag(Limit::sliding_window(10, 60_000)),
            tag(Limit::sliding_log(10, 60_000)),
            buckets(4),
            bucket(1, 0),
        ];
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 9, "all of these count apart");
    }
}
