//! A batch of JSON text, read quickly.
//!
//! Nearly all batches are fine, and those pay for no tree. What this reader does not understand the walk reads again,
//! which says what is wrong. A test holds the two together: what is read here, the walk reads alike.

use std::borrow::Cow;
use std::num::NonZeroU64;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};
use tidegate_core::Manner;

use super::batch_walk::{self, parse_proxy};
use super::{
    Act, Batch, GROUPS_MAX, Group, KEY_BYTES_MAX, N_MAX, NAMESPACE_DEFAULT, NUMBER_MAX, Sender, TAKES_MAX,
    Take, WAIT_MS_MAX,
};
use crate::config::is_namespace;
use crate::errors::{ConfigErrors, Report};
use crate::json::Json;
use crate::limit::RuleLimit;
use crate::limit_read::{read_limit, short_limit};
use crate::reader::{Choice, Node};
use crate::rule::WhenFull;
use crate::rule_json::is_rule_name;

impl<'a> Batch<'a> {
    /// Reads a batch from JSON text and reports all that is wrong with it.
    pub fn from_json(text: &'a [u8]) -> Result<Self, ConfigErrors> {
        match read(text) {
            Some(batch) => Ok(batch),
            None => batch_walk::read(text),
        }
    }
}

pub(super) fn read(text: &[u8]) -> Option<Batch<'_>> {
    serde_json::from_slice::<RawBatch>(text).ok()?.checked()
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBatch<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "given")]
    sender: Option<RawSender<'a>>,
    #[serde(default, deserialize_with = "given")]
    wait_ms: Option<u32>,
    #[serde(default)]
    states: bool,
    #[serde(borrow)]
    groups: Vec<RawGroup<'a>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSender<'a> {
    #[serde(borrow)]
    proxy: Cow<'a, str>,
    vm: u32,
    sequence: u64,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGroup<'a> {
    #[serde(borrow)]
    takes: Vec<RawTake<'a>>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTake<'a> {
    #[serde(borrow)]
    rule: Cow<'a, str>,
    limit: RawLimit,
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(default, deserialize_with = "given")]
    n: Option<u64>,
    #[serde(borrow, default, deserialize_with = "given")]
    manner: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "given")]
    refund: Option<u64>,
    #[serde(borrow, default, deserialize_with = "given")]
    when_full: Option<Cow<'a, str>>,
}

struct RawLimit(RuleLimit);

/// A field that may be absent, but not null.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl<'de> Deserialize<'de> for RawLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = RawLimit;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a limit")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RawLimit, E> {
        short_limit(text).map(RawLimit).ok_or_else(|| E::custom("no limit"))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<RawLimit, A::Error> {
        let tree = Json::deserialize(MapAccessDeserializer::new(fields))?;
        let mut report = Report::default();
        let limit = read_limit(&Node::root(&tree), &mut report);
        report.finish(limit).map(RawLimit).map_err(A::Error::custom)
    }
}

impl<'a> RawBatch<'a> {
    fn checked(self) -> Option<Batch<'a>> {
        let namespace = self.namespace.unwrap_or(Cow::Borrowed(NAMESPACE_DEFAULT));
        let takes: usize = self.groups.iter().map(|group| group.takes.len()).sum();
        let is_fine = is_namespace(&namespace)
            && self.wait_ms.is_none_or(|ms| (1..=WAIT_MS_MAX).contains(&ms))
            && self.groups.len() <= GROUPS_MAX
            && takes <= TAKES_MAX;
        let sender = match self.sender {
            Some(sender) => Some(sender.checked()?),
            None => None,
        };
        let groups = self.groups.into_iter().map(RawGroup::checked).collect::<Option<_>>()?;
        is_fine.then_some(Batch { namespace, sender, wait_ms: self.wait_ms, states: self.states, groups })
    }
}

impl RawSender<'_> {
    fn checked(self) -> Option<Sender> {
        let proxy = parse_proxy(&self.proxy)?;
        (self.sequence <= NUMBER_MAX).then_some(Sender { proxy, vm: self.vm, sequence: self.sequence })
    }
}

impl<'a> RawGroup<'a> {
    fn checked(self) -> Option<Group<'a>> {
        let takes: Vec<Take<'a>> = self.takes.into_iter().map(RawTake::checked).collect::<Option<_>>()?;
        (!takes.is_empty()).then_some(Group { takes })
    }
}

impl<'a> RawTake<'a> {
    fn checked(self) -> Option<Take<'a>> {
        let act = match (self.manner, self.refund) {
            (None, None) => Act::Take(Manner::All),
            (Some(word), None) => Act::Take(chosen(&word)?),
            (None, Some(receipt)) => Act::Refund { receipt: Some(receipt).filter(|it| *it <= NUMBER_MAX)? },
            (Some(_), Some(_)) => return None,
        };
        let key = match self.key {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        let is_fine = is_rule_name(&self.rule) && key.len() <= KEY_BYTES_MAX;
        let take = Take {
            rule: self.rule,
            limit: self.limit.0,
            key,
            n: NonZeroU64::new(self.n.unwrap_or(1)).filter(|n| n.get() <= N_MAX)?,
            act,
            when_full: match self.when_full {
                None => WhenFull::Strict,
                Some(word) => chosen(&word)?,
            },
        };
        is_fine.then_some(take)
    }
}

fn chosen<T: Choice>(word: &str) -> Option<T> {
    T::CHOICES.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
}
