//! Keys that the config names: members of a plan, those who are exempt, those who are denied.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use crate::client_address::ClientAddress;
use crate::errors::Report;
use crate::json::Json;
use crate::key::{KeyPart, KeySource};
use crate::place::quoted;
use crate::reader::Node;
use crate::request::{parts_of, write_address, write_present};
use crate::text::is_on_a_line;

/// At most this many keys in one list.
pub const KEY_VALUES_MAX: usize = 10_000;

pub(crate) const KEY_VALUE_LEN_MAX: usize = 1_024;
const SHA256: &str = "sha256:";
const DIGEST_LEN: usize = 32;

/// Keys, as themselves or by their SHA-256, and what each stands for.
///
/// A key is kept in the form in which a request's key is written, so that looking one up is one search; the
/// digest of a request's key is computed only if some key is named by its digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValues {
    plain: BTreeMap<Box<[u8]>, usize>,
    hashed: BTreeMap<Box<[u8]>, usize>,
}

/// What a list of keys is read for.
pub(crate) struct KeyShape<'a> {
    pub(crate) key: &'a [KeyPart],
    pub(crate) address: ClientAddress,
}

impl KeyValues {
    /// What the key of a request stands for, if it is named.
    pub fn get(&self, key: &[u8], parts: &[KeyPart]) -> Option<usize> {
        if let Some(value) = self.plain.get(key) {
            return Some(*value);
        }
        if self.hashed.is_empty() {
            return None;
        }
        self.hashed.get(hashed_key(key, parts)?.as_slice()).copied()
    }

    /// Whether it names no key.
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.hashed.is_empty()
    }

    /// Whether some key stands for this.
    pub(crate) fn has_value(&self, value: usize) -> bool {
        self.plain.values().chain(self.hashed.values()).any(|other| *other == value)
    }

    /// Whether both name the same key in the same manner.
    pub(crate) fn shares_a_key_with(&self, other: &Self) -> bool {
        let shares = |one: &BTreeMap<Box<[u8]>, usize>, two: &BTreeMap<Box<[u8]>, usize>| {
            one.keys().any(|key| two.contains_key(key))
        };
        shares(&self.plain, &other.plain) || shares(&self.hashed, &other.hashed)
    }

    /// Reads a list of keys, all of which stand for `value`; one that stands for something already is reported.
    pub(crate) fn read(
        &mut self,
        node: &Node,
        value: usize,
        shape: &KeyShape,
        report: &mut Report,
    ) -> Option<()> {
        let nodes = node.list(1..=KEY_VALUES_MAX, report)?;
        let mut is_fine = true;
        for node in &nodes {
            is_fine &= self.read_one(node, value, shape, report).is_some();
        }
        is_fine.then_some(())
    }

    fn read_one(&mut self, node: &Node, value: usize, shape: &KeyShape, report: &mut Report) -> Option<()> {
        let texts = read_texts(node, shape, report)?;
        let are_hashed: Vec<bool> = texts.iter().map(|text| text.starts_with(SHA256)).collect();
        let is_hashed = are_hashed.contains(&true);
        if is_hashed && are_hashed.contains(&false) {
            node.report(report, "must give all its parts as \"sha256:…\", or none");
            return None;
        }
        let mut key = Vec::new();
        for (text, part) in texts.iter().zip(shape.key) {
            if is_hashed {
                write_present(&read_digest(text, node, report)?, &mut key);
            } else {
                write_present(&part_bytes(text, part, shape, node, report)?, &mut key);
            }
        }
        let keys = if is_hashed { &mut self.hashed } else { &mut self.plain };
        match keys.insert(key.into_boxed_slice(), value) {
            None => Some(()),
            Some(earlier) if earlier == value => {
                node.report(report, "is in this list already; leave it out");
                None
            }
            Some(_) => {
                node.report(report, "is a member of another plan already; keep it in one");
                None
            }
        }
    }

    /// The keys that stand for `value`, as they are written.
    pub(crate) fn json(&self, value: usize, parts: &[KeyPart]) -> Vec<Json> {
        let of_value = |keys: &BTreeMap<Box<[u8]>, usize>, text: &dyn Fn(&[u8], &KeyPart) -> String| {
            let found = keys.iter().filter(|(_, other)| **other == value);
            let texts = |key: &[u8]| -> Vec<Json> {
                let values = parts_of(key).flatten().zip(parts);
                values.map(|(value, part)| text(value, part).into()).collect()
            };
            found.map(|(key, _)| crate::json_text::one_or_list(texts(key))).collect::<Vec<Json>>()
        };
        let mut all = of_value(&self.plain, &part_text);
        all.extend(of_value(&self.hashed, &|digest, _| digest_text(digest)));
        all
    }
}

/// The texts of a key: one alone for a key of one part, else a list with one for each.
fn read_texts(node: &Node, shape: &KeyShape, report: &mut Report) -> Option<Vec<String>> {
    let what = "a key's value; write 1 to 1024 characters, none of them a control character";
    let count = shape.key.len();
    if node.is_text() && count == 1 {
        return Some(vec![node.text_of(1..=KEY_VALUE_LEN_MAX, is_on_a_line, what, report)?.to_owned()]);
    }
    if !node.is_text() && !node.is_list() {
        node.wrong_type("a string, or a list with a string for each part of the key", report);
        return None;
    }
    let nodes = if node.is_list() { node.list(2..=crate::key::KEY_PARTS_MAX, report)? } else { Vec::new() };
    if nodes.len() != count {
        let advice =
            if count == 1 { "write a string".to_owned() } else { format!("write a list of {count} strings") };
        node.report(report, format!("does not fit the rule's key; {advice}"));
        return None;
    }
    let read = |node: &Node, report: &mut Report| {
        node.text_of(1..=KEY_VALUE_LEN_MAX, is_on_a_line, what, report).map(str::to_owned)
    };
    let texts: Vec<Option<String>> = nodes.iter().map(|node| read(node, report)).collect();
    texts.into_iter().collect()
}

fn read_digest(text: &str, node: &Node, report: &mut Report) -> Option<[u8; DIGEST_LEN]> {
    let digits = text.strip_prefix(SHA256).unwrap_or_default();
    let mut digest = [0; DIGEST_LEN];
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let is_read = pairs.len() == DIGEST_LEN && rest.is_empty();
    let decoded: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| crate::path::decoded(*high, *low)).collect();
    match decoded {
        Some(bytes) if is_read => {
            digest.copy_from_slice(bytes.get(..DIGEST_LEN)?);
            Some(digest)
        }
        _ => {
            let advice = "write \"sha256:\" and 64 hexadecimal digits";
            node.report(report, format!("{} is not a digest; {advice}", quoted(text)));
            None
        }
    }
}

/// The bytes that a request's key would have for this text.
fn part_bytes(
    text: &str,
    part: &KeyPart,
    shape: &KeyShape,
    node: &Node,
    report: &mut Report,
) -> Option<Vec<u8>> {
    if part.source != KeySource::ClientIp {
        let text = if part.lowercase { text.to_ascii_lowercase() } else { text.to_owned() };
        return Some(text.into_bytes());
    }
    let Ok(address) = text.parse::<IpAddr>() else {
        node.report(report, format!("{} is not an address, which is what the key has there", quoted(text)));
        return None;
    };
    let network = shape.address.network(address.to_canonical());
    if network != address {
        let reason = "is not how the key has that address and would never match";
        node.report(report, format!("{} {reason}; write \"{network}\"", quoted(text)));
        return None;
    }
    let mut bytes = Vec::new();
    write_address(network, &mut bytes);
    Some(bytes)
}

/// A part of a key as text.
fn part_text(value: &[u8], part: &KeyPart) -> String {
    if part.source == KeySource::ClientIp {
        if let Ok(octets) = <[u8; 4]>::try_from(value) {
            return IpAddr::from(octets).to_string();
        }
        if let Ok(octets) = <[u8; 16]>::try_from(value) {
            return IpAddr::from(octets).to_string();
        }
    }
    String::from_utf8_lossy(value).into_owned()
}

fn digest_text(digest: &[u8]) -> String {
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once(SHA256.to_owned()).chain(digits).collect()
}

/// A key with the digest of each part in its place; `None` if one is missing.
fn hashed_key(key: &[u8], parts: &[KeyPart]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for (value, part) in parts_of(key).zip(parts) {
        let value = value?;
        let digest = match part.source {
            KeySource::ClientIp => Sha256::digest(part_text(value, part)),
            _ => Sha256::digest(value),
        };
        write_present(&digest, &mut out);
    }
    Some(out)
}
