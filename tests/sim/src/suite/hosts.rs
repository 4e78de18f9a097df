//! The shared data of both hosts, fact by fact.

use crate::calls::{CAS_MISMATCH, INTERNAL_FAILURE, NOT_FOUND, OK, TRAPS};
use crate::identity::{MARKER_KEY, Place, Region, slot_key};
use crate::shared::{Flavour, Shared, Zone, crc32};
use std::collections::BTreeSet;

fn shared(flavour: Flavour) -> Shared {
    Shared::new(flavour, Zone { bytes_max: 1 << 30, evicts: false, spares_marker: false })
}

#[test]
fn envoy_overwrites_without_a_version_and_creates_with_any() {
    let mut shared = shared(Flavour::Envoy);
    assert_eq!(shared.get(b"k"), Err(NOT_FOUND));
    assert_eq!(shared.set(b"k", b"a".to_vec(), 77), OK);
    assert_eq!(shared.set(b"k", b"b".to_vec(), 0), OK);
    let (value, cas) = shared.get(b"k").unwrap();
    assert_eq!(value, b"b");
    assert_eq!(shared.set(b"k", b"c".to_vec(), cas), OK);
    assert_eq!(shared.set(b"k", b"d".to_vec(), cas), CAS_MISMATCH);
    // Nothing can be deleted: an empty value is a value.
    assert_eq!(shared.set(b"k", Vec::new(), 0), OK);
    assert_eq!(shared.len(), 1);
}

#[test]
fn kong_creates_only_if_absent() {
    let mut shared = shared(Flavour::Kong);
    assert_eq!(shared.set(b"k", b"a".to_vec(), 77), CAS_MISMATCH);
    assert_eq!(shared.set(b"k", b"a".to_vec(), 0), OK);
    assert_eq!(shared.set(b"k", b"b".to_vec(), 0), CAS_MISMATCH);
    let (_, cas) = shared.get(b"k").unwrap();
    assert_eq!(shared.set(b"k", b"b".to_vec(), cas), OK);
    let (_, cas) = shared.get(b"k").unwrap();
    assert_eq!(shared.set(b"k", Vec::new(), cas), OK);
    assert_eq!(shared.get(b"k"), Err(NOT_FOUND));
}

#[test]
fn kong_knows_keys_by_their_checksum_alone() {
    // A well-known pair with one CRC-32.
    assert_eq!(crc32(b"plumless"), crc32(b"buckeroo"));
    let mut shared = shared(Flavour::Kong);
    assert_eq!(shared.set(b"plumless", b"a".to_vec(), 0), OK);
    assert_eq!(shared.get(b"buckeroo").unwrap().0, b"a");
}

#[test]
fn kongs_zone_is_bounded() {
    let zone = |evicts| Zone { bytes_max: 2 * 128, evicts, spares_marker: false };
    let mut full = Shared::new(Flavour::Kong, zone(false));
    for key in [b"1", b"2"] {
        assert_eq!(full.set(key, b"v".to_vec(), 0), OK);
    }
    assert_eq!(full.set(b"3", b"v".to_vec(), 0), INTERNAL_FAILURE);
    let mut evicting = Shared::new(Flavour::Kong, zone(true));
    for key in [b"1", b"2", b"3"] {
        assert_eq!(evicting.set(key, b"v".to_vec(), 0), OK);
    }
    assert_eq!(evicting.get(b"1"), Err(NOT_FOUND), "the longest unused gives way");
    assert_eq!(evicting.take_evicted(), [(b"1".to_vec(), b"v".to_vec())]);
}

#[test]
fn a_zone_that_drops_values_may_hand_out_anothers() {
    let mut shared =
        Shared::new(Flavour::Kong, Zone { bytes_max: 2 * 128, evicts: true, spares_marker: false });
    for key in [b"1", b"2"] {
        assert_eq!(shared.set(key, key.to_vec(), 0), OK);
    }
    assert_eq!(shared.foreign(b"2", 7), None, "nothing was dropped yet");
    assert_eq!(shared.set(b"3", b"3".to_vec(), 0), OK);
    assert_eq!(shared.foreign(b"3", 7), Some(b"2".to_vec()));
}

#[test]
fn kong_without_a_zone_traps_at_every_call_on_shared_data() {
    let mut kong = shared(Flavour::Kong).without_zone();
    assert_eq!(kong.get(b"k"), Err(TRAPS));
    for cas in [0, 77] {
        assert_eq!(kong.set(b"k", b"a".to_vec(), cas), TRAPS);
    }
    assert_eq!(shared(Flavour::Envoy).without_zone().set(b"k", b"a".to_vec(), 0), OK);
}

#[test]
fn no_slot_of_the_largest_table_shares_a_checksum_with_another_or_the_marker_or_the_probe() {
    let others = [crc32(MARKER_KEY), crc32(b"tidegate.1.probe")];
    let checksums =
        |region, slots: u32| (0..slots).map(move |index| crc32(&slot_key(Place { region, index })));
    let small: BTreeSet<u32> = checksums(Region::Small, 1 << 20).collect();
    assert_eq!(small.len(), 1 << 20);
    assert!(others.iter().all(|other| !small.contains(other)));
    // As many large slots as the most keys with large counters need.
    let mut large = checksums(Region::Large, 1 << 15);
    assert!(large.all(|checksum| !small.contains(&checksum) && !others.contains(&checksum)));
}
