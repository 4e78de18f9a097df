//! Where the filter keeps a counter, computed anew from what it documents: the shift of a key's windows,
//! which is a promise, and slot and fingerprint, which let the oracle see an entry displaced.

use crate::spec::{Algorithm, Config, Limit, NAMESPACE, Rule};
use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher13Wide};
use std::hash::Hasher;
use std::num::NonZeroU64;

pub(crate) type Secret = [u8; 16];

pub(crate) const MARKER_KEY: &[u8] = b"tidegate.1.marker";
const SMALL_PREFIX: &[u8] = b"tidegate.1.";
const LARGE_PREFIX: &[u8] = b"tidegate.1:";
const SLOT_KEY_BYTES: usize = 15;
const MARKER_SECRET_AT: usize = 12;

/// Which slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Region {
    Small,
    Large,
}

/// Which slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) region: Region,
    pub(crate) index: u32,
}

/// The secret in a marker.
pub(crate) fn secret_of_marker(marker: &[u8]) -> Option<Secret> {
    marker.get(MARKER_SECRET_AT..)?.try_into().ok()
}

/// The slot that a key is about.
pub(crate) fn slot_of_key(key: &[u8]) -> Option<Place> {
    if key.len() != SLOT_KEY_BYTES {
        return None;
    }
    let of = |region, prefix| Some((region, key.strip_prefix(prefix)?));
    let (region, index) = of(Region::Small, SMALL_PREFIX).or_else(|| of(Region::Large, LARGE_PREFIX))?;
    Some(Place { region, index: u32::from_be_bytes(index.try_into().ok()?) })
}

/// The key of a slot.
pub(crate) fn slot_key(place: Place) -> Vec<u8> {
    let prefix = match place.region {
        Region::Small => SMALL_PREFIX,
        Region::Large => LARGE_PREFIX,
    };
    [prefix, &place.index.to_be_bytes()].concat()
}

fn write_rule(hasher: &mut impl Hasher, rule: &str) {
    for text in [NAMESPACE, rule] {
        hasher.write(&(text.len() as u64).to_le_bytes());
        hasher.write(text.as_bytes());
    }
}

/// By how much a key's windows are shifted, before the remainder by the window.
pub(crate) fn shift(rule: &str, key: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(b"tidegate-windows");
    write_rule(&mut hasher, rule);
    hasher.write(key);
    hasher.finish()
}

/// The same for one limit, as far as it is shifted at all.
pub(crate) fn shift_of(limit: &Limit, rule: &str, key: &[u8]) -> u64 {
    if limit.begins_by_clock() { 0 } else { shift(rule, key) % limit.window_ms }
}

/// What the counter knows a key by.
pub(crate) fn wire_key(key: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher13Wide::new_with_key(b"tidegate-subject");
    hasher.write(key);
    hasher.finish128().as_bytes()
}

/// The slot of a rule's counters for a key.
pub(crate) fn slot(secret: &Secret, rule: &Rule, key: &[u8], config: &Config) -> Place {
    let region = if rule.is_large() { Region::Large } else { Region::Small };
    slot_in(secret, &rule.name, key, region, config)
}

/// The same for a rule of which only the name and the region are known.
pub(crate) fn slot_in(secret: &Secret, rule: &str, key: &[u8], region: Region, config: &Config) -> Place {
    let mut hasher = SipHasher13Wide::new_with_key(secret);
    write_rule(&mut hasher, rule);
    hasher.write(key);
    let slots = match region {
        Region::Small => config.slots,
        Region::Large => config.large_slots().max(1),
    };
    Place { region, index: hasher.finish128().h1 as u32 & (slots - 1) }
}

/// The fingerprint of the counter of one limit.
pub(crate) fn fingerprint(secret: &Secret, rule: &str, limit: &Limit, key: &[u8]) -> NonZeroU64 {
    let mut begun = SipHasher13Wide::new_with_key(secret);
    write_rule(&mut begun, rule);
    let mut of_key = begun;
    of_key.write(key);
    let mut of_limit = begun;
    let (algorithm, buckets) = match limit.algorithm {
        Algorithm::FixedWindow => (1, 0),
        Algorithm::SlidingWindow => (2, 0),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => (3, 0),
        Algorithm::SlidingBuckets => (4, limit.buckets),
        Algorithm::SlidingLog => (5, 0),
    };
    // No calendar.
    of_limit.write(&[algorithm, buckets, 0]);
    of_limit.write(&limit.window_ms.to_le_bytes());
    NonZeroU64::new(of_key.finish128().h2 ^ of_limit.finish128().h2).unwrap_or(NonZeroU64::MIN)
}
