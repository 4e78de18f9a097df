//! A batch of JSON text, read quickly.
//!
//! Nearly all batches are fine, and those pay for no tree. What this reader does not understand the walk reads again,
//! which says what is wrong. A test holds the two together: what is read here, the walk reads alike.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::num::NonZeroU64;

use serde::de::{
    Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer,
};
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
    // Looked at as a whole, so that each text in it need not be.
    let text = std::str::from_utf8(text).ok()?;
    serde_json::from_str::<RawBatch>(text).ok()?.checked()
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBatch<'a> {
    #[serde(borrow, default = "default_namespace")]
    namespace: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "given")]
    sender: Option<RawSender<'a>>,
    #[serde(default, deserialize_with = "given")]
    wait_ms: Option<u32>,
    #[serde(default)]
    states: bool,
    #[serde(borrow, deserialize_with = "groups")]
    groups: Vec<Group<'a>>,
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
    #[serde(borrow, deserialize_with = "takes")]
    takes: Vec<Take<'a>>,
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
    #[serde(default, deserialize_with = "given")]
    manner: Option<Chosen<Manner>>,
    #[serde(default, deserialize_with = "given")]
    refund: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    when_full: Option<Chosen<WhenFull>>,
}

fn default_namespace() -> Cow<'static, str> {
    Cow::Borrowed(NAMESPACE_DEFAULT)
}

/// A field that may be absent, but not null.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Group<'de>>, D::Error> {
    deserializer.deserialize_seq(Checked(RawGroup::checked))
}

fn takes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Take<'de>>, D::Error> {
    deserializer.deserialize_seq(Checked(RawTake::checked))
}

/// A list whose items are checked as they come, so that what is raw is never kept.
struct Checked<Raw, T>(fn(Raw) -> Option<T>);

impl<'de, Raw: Deserialize<'de>, T> Visitor<'de> for Checked<Raw, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        // Most groups have one take.
        let mut list = Vec::with_capacity(1);
        while let Some(raw) = items.next_element()? {
            list.push((self.0)(raw).ok_or_else(|| A::Error::custom("out of bounds"))?);
        }
        Ok(list)
    }
}

/// One of a few words.
struct Chosen<T>(T);

impl<'de, T: Choice> Deserialize<'de> for Chosen<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(ChosenVisitor(PhantomData))
    }
}

struct ChosenVisitor<T>(PhantomData<T>);

impl<T: Choice> Visitor<'_> for ChosenVisitor<T> {
    type Value = Chosen<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a word")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Chosen<T>, E> {
        let choice = T::CHOICES.iter().find(|(known, _)| *known == word);
        choice.map(|(_, value)| Chosen(*value)).ok_or_else(|| E::custom("no such word"))
    }
}

struct RawLimit(RuleLimit);

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
        let Self { namespace, sender, wait_ms, states, groups } = self;
        let takes: usize = groups.iter().map(|group| group.takes.len()).sum();
        let is_fine = is_namespace(&namespace)
            && wait_ms.is_none_or(|ms| (1..=WAIT_MS_MAX).contains(&ms))
            && groups.len() <= GROUPS_MAX
            && takes <= TAKES_MAX;
        let sender = match sender {
            Some(sender) => Some(sender.checked()?),
            None => None,
        };
        is_fine.then_some(Batch { namespace, sender, wait_ms, states, groups })
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
        (!self.takes.is_empty()).then_some(Group { takes: self.takes })
    }
}

impl<'a> RawTake<'a> {
    fn checked(self) -> Option<Take<'a>> {
        let act = match (self.manner, self.refund) {
            (None, None) => Act::Take(Manner::All),
            (Some(Chosen(manner)), None) => Act::Take(manner),
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
            when_full: self.when_full.map_or(WhenFull::Strict, |Chosen(when_full)| when_full),
        };
        is_fine.then_some(take)
    }
}
