//! A batch of JSON text, walked field by field: every error at once, each with its place.

use std::borrow::Cow;
use std::num::NonZeroU64;

use tidegate_core::Manner;

use super::{
    Act, Batch, GROUPS_MAX, Group, KEY_BYTES_MAX, N_MAX, NAMESPACE_DEFAULT, NUMBER_MAX, Sender, TAKES_MAX,
    Take, WAIT_MS_MAX,
};
use crate::config::read_namespace;
use crate::errors::{ConfigError, ConfigErrors, Report};
use crate::json;
use crate::limit_read::read_limit;
use crate::place::quoted;
use crate::reader::{Choice, Node, Object};
use crate::rule::WhenFull;
use crate::rule_json::read_rule_name;

const BATCH_FIELDS: &[&str] = &["namespace", "sender", "wait_ms", "states", "groups"];
const SENDER_FIELDS: &[&str] = &["proxy", "vm", "sequence"];
const GROUP_FIELDS: &[&str] = &["takes"];
const TAKE_FIELDS: &[&str] = &["rule", "limit", "key", "n", "manner", "refund", "when_full"];

impl Choice for Manner {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("all", Self::All), ("some", Self::Some), ("force", Self::Force)];
}

/// Reads a batch and reports all that is wrong with it.
pub(super) fn read(text: &[u8]) -> Result<Batch<'static>, ConfigErrors> {
    let mut report = Report::default();
    let tree = json::tree(text).map_err(|message| ConfigError::new("body", message))?;
    let batch = read_batch(&Node::root(&tree), &mut report);
    report.finish(batch).map_err(|errors| errors.about("body"))
}

fn read_batch(node: &Node, report: &mut Report) -> Option<Batch<'static>> {
    let object = node.object(BATCH_FIELDS, report)?;
    let namespace = object.maybe("namespace", report, read_namespace);
    let sender = object.maybe("sender", report, read_sender);
    let wait_ms = object.maybe("wait_ms", report, |node, report| {
        u32::try_from(node.whole(1..=WAIT_MS_MAX.into(), report)?).ok()
    });
    let states = object.optional("states", false, report, Node::boolean);
    let groups = object.required("groups", "give a list of groups of takes", report, read_groups);
    Some(Batch {
        namespace: namespace?.map_or(Cow::Borrowed(NAMESPACE_DEFAULT), Cow::Owned),
        sender: sender?,
        wait_ms: wait_ms?,
        states: states?,
        groups: groups?,
    })
}

fn read_sender(node: &Node, report: &mut Report) -> Option<Sender> {
    let object = node.object(SENDER_FIELDS, report)?;
    let advice = "give all of \"proxy\", \"vm\" and \"sequence\"";
    let proxy = object.required("proxy", advice, report, read_proxy);
    let vm = object.required("vm", advice, report, |node, report| {
        u32::try_from(node.whole(0..=u32::MAX.into(), report)?).ok()
    });
    let sequence =
        object.required("sequence", advice, report, |node, report| node.whole(0..=NUMBER_MAX, report));
    Some(Sender { proxy: proxy?, vm: vm?, sequence: sequence? })
}

fn read_proxy(node: &Node, report: &mut Report) -> Option<u64> {
    let text = node.text(report)?;
    let proxy = parse_proxy(text);
    if proxy.is_none() {
        node.report(report, format!("{} is not a proxy; write a number as 16 hex digits", quoted(text)));
    }
    proxy
}

/// A number as 16 hex digits: JSON's own numbers are not exact so far.
pub(super) fn parse_proxy(text: &str) -> Option<u64> {
    let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { u64::from_str_radix(text, 16).ok() } else { None }
}

fn read_groups(node: &Node, report: &mut Report) -> Option<Vec<Group<'static>>> {
    let nodes = node.list(0..=GROUPS_MAX, report)?;
    let read: Vec<Option<Group<'static>>> = nodes.iter().map(|node| read_group(node, report)).collect();
    let groups: Vec<Group<'static>> = read.into_iter().collect::<Option<_>>()?;
    let takes: usize = groups.iter().map(|group| group.takes.len()).sum();
    if takes > TAKES_MAX {
        node.report(report, format!("have {takes} takes in all; the most is {TAKES_MAX}"));
    }
    Some(groups)
}

fn read_group(node: &Node, report: &mut Report) -> Option<Group<'static>> {
    let object = node.object(GROUP_FIELDS, report)?;
    let takes = object.required("takes", "give a list of takes", report, |node, report| {
        let nodes = node.list(1..=TAKES_MAX, report)?;
        let read: Vec<Option<Take<'static>>> = nodes.iter().map(|node| read_take(node, report)).collect();
        read.into_iter().collect()
    });
    Some(Group { takes: takes? })
}

fn read_take(node: &Node, report: &mut Report) -> Option<Take<'static>> {
    let object = node.object(TAKE_FIELDS, report)?;
    let rule = object.required("rule", "name the rule that the limit belongs to", report, read_rule_name);
    let limit = object.required("limit", "give a limit, such as \"100/1m\"", report, read_limit);
    let key = object.required("key", "say who is counted", report, read_key);
    let n = object.optional("n", Some(NonZeroU64::MIN), report, |node, report| {
        Some(NonZeroU64::new(node.whole(1..=N_MAX, report)?))
    });
    let act = read_act(&object, report);
    let when_full = object.optional("when_full", WhenFull::Strict, report, Node::choice::<WhenFull>);
    Some(Take {
        rule: rule?.into(),
        limit: limit?,
        key: key?.into(),
        n: n??,
        act: act?,
        when_full: when_full?,
    })
}

fn read_key(node: &Node, report: &mut Report) -> Option<Vec<u8>> {
    let text = node.text(report)?;
    if text.len() > KEY_BYTES_MAX {
        let advice = format!("the most is {KEY_BYTES_MAX}; send a hash of it");
        node.report(report, format!("has {} bytes; {advice}", text.len()));
        return None;
    }
    Some(text.as_bytes().to_vec())
}

fn read_act(object: &Object, report: &mut Report) -> Option<Act> {
    let manner = object.maybe("manner", report, Node::choice::<Manner>);
    let refund = object.maybe("refund", report, |node, report| node.whole(0..=NUMBER_MAX, report));
    if let (Some(node), Some(_)) = (object.get("manner"), object.get("refund")) {
        node.report(report, "does not belong to a refund; leave it out");
        return None;
    }
    match (manner?, refund?) {
        (_, Some(receipt)) => Some(Act::Refund { receipt }),
        (manner, None) => Some(Act::Take(manner.unwrap_or(Manner::All))),
    }
}
