//! From a request to the bytes that say who is counted.

use std::net::IpAddr;

use crate::facts::Facts;
use crate::key::{KeyPart, KeySource};
use crate::matcher::Match;
use crate::path_match::PathMatch;
use crate::query::{each_cookie, each_parameter};

const MISSING: u8 = 0;
const PRESENT: u8 = 1;
/// One byte that says whether a part is there, and its length.
const HEAD: usize = 5;

/// Appends the key of a request to `out` and says whether all its parts were there.
///
/// Each part is one byte that says whether it is there, and if so its length (32 bits, little-endian) and its
/// bytes: no value, however chosen, can look like two parts or like a missing one.
pub(crate) fn write_key(key: &[KeyPart], matches: &Match, facts: &Facts, out: &mut Vec<u8>) -> bool {
    let mut is_whole = true;
    for part in key {
        let start = out.len();
        out.extend_from_slice(&[PRESENT, 0, 0, 0, 0]);
        let is_there = write_value(part, matches, facts, out);
        is_whole &= is_there && set_length(start, out);
        if !is_there {
            out.truncate(start);
            out.push(MISSING);
        }
    }
    is_whole
}

/// Writes the length of what stands behind the head of a part.
fn set_length(start: usize, out: &mut Vec<u8>) -> bool {
    let value_start = start.saturating_add(HEAD);
    let length = u32::try_from(out.len().saturating_sub(value_start));
    let head = out.get_mut(start.saturating_add(1)..value_start);
    let (Ok(length), Some(head)) = (length, head) else {
        // Four gigabytes in one part: not on any proxy.
        out.truncate(start);
        out.push(MISSING);
        return false;
    };
    head.copy_from_slice(&length.to_le_bytes());
    true
}

/// Appends a part that is there.
pub(crate) fn write_present(value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[PRESENT, 0, 0, 0, 0]);
    out.extend_from_slice(value);
    set_length(start, out);
}

/// The values of a key's parts; `None` for one that is missing.
pub(crate) fn parts_of(mut key: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        let (head, rest) = key.split_first()?;
        if *head == MISSING {
            key = rest;
            return Some(None);
        }
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (value, rest) = rest.split_at_checked(length)?;
        key = rest;
        Some(Some(value))
    })
}

/// Appends the value of a part; false if there is none, with anything or nothing appended.
///
/// A header, parameter or cookie that comes twice counts as missing. Whichever of its values were taken, a
/// client could rotate that one and hold still the one that the upstream believes.
pub(crate) fn write_value(part: &KeyPart, matches: &Match, facts: &Facts, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let is_sole = match &part.source {
        KeySource::ClientIp => {
            return facts.client_network().inspect(|address| write_address(*address, out)).is_some();
        }
        KeySource::MtlsUriSan => write_some(facts.uri_san(), out),
        KeySource::Route => write_some(facts.route(), out),
        KeySource::Host => write_some(Some(facts.host()), out),
        KeySource::Method => write_some(Some(facts.method()), out),
        KeySource::Constant(text) => write_some(Some(text.as_bytes()), out),
        KeySource::PathSegment(name) => write_some(segment(name, matches, facts), out),
        KeySource::Jwt(claim) => write_some(facts.jwt_claim(&claim.payload, &claim.path).as_deref(), out),
        KeySource::Header(name) => write_sole(out, |each| facts.header(name, each)),
        KeySource::Query(name) => write_sole(out, |each| {
            each_parameter(facts.query(), &mut |other, value| {
                if other == name.as_bytes() {
                    each(value);
                }
            });
        }),
        KeySource::Cookie(name) => write_sole(out, |each| {
            facts.header("cookie", &mut |header| {
                each_cookie(header, &mut |other, value| {
                    if other == name.as_bytes() {
                        each(value);
                    }
                });
            });
        }),
    };
    if part.lowercase {
        out.get_mut(start..).unwrap_or_default().make_ascii_lowercase();
    }
    is_sole && out.len() > start
}

fn segment<'f>(name: &str, matches: &Match, facts: &'f Facts) -> Option<&'f [u8]> {
    let path = facts.path();
    matches.paths.iter().find_map(|one| match one {
        PathMatch::Template(template) if template.matches(path) => template.value(name, path),
        _ => None,
    })
}

fn write_some(value: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(value.unwrap_or_default());
    value.is_some()
}

/// Writes the one value that `each` gets; false if it gets none or several.
fn write_sole(out: &mut Vec<u8>, hand_over: impl FnOnce(&mut dyn FnMut(&[u8]))) -> bool {
    let mut values: usize = 0;
    hand_over(&mut |value| {
        values = values.saturating_add(1);
        if values == 1 {
            out.extend_from_slice(value);
        }
    });
    values == 1
}

pub(crate) fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
}
