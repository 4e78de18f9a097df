//! One rule: what to match, whom to count, how many to let through.

use crate::errors::Report;
use crate::key::{KeyPart, read_key};
use crate::limit::{RuleLimit, read_limits};
use crate::matcher::Match;
use crate::names::Names;
use crate::reader::{Choice, Node, quoted};

const NAME_LEN_MAX: usize = 64;
const FIELDS: &[&str] = &["name", "match", "key", "limits", "mode", "when_full"];

/// A rule: which requests it is about, whom it counts, and how many it lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Rule {
    /// The rule's name in metrics, logs and responses; no two rules may share it, with `-` and `_` taken as
    /// one. Counts belong to it: they start again when the rule is renamed, or when the algorithm or the window
    /// of a limit changes, and go on when only the number of requests does.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[a-z][a-z0-9_-]{0,63}$")))]
    pub name: String,
    /// Which requests the rule is about. Default: all.
    #[cfg_attr(
        feature = "schema",
        schemars(rename = "match", default, with = "crate::matcher::form::MatchForm")
    )]
    pub matches: Match,
    /// Who is counted: requests that agree in all of these are counted together.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = crate::key::KEY_PARTS_MAX), extend("uniqueItems" = true))
    )]
    pub key: Vec<KeyPart>,
    /// The limits, all of which must allow a request; no two with the same algorithm and window.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Vec<crate::limit::form::LimitForm>", length(min = 1, max = crate::limit::LIMITS_MAX))
    )]
    pub limits: Vec<RuleLimit>,
    /// What to do with a request that is over a limit.
    #[cfg_attr(feature = "schema", schemars(default, extend("default" = "enforce")))]
    pub mode: Mode,
    /// What a new key starts from when it must displace another's count because the table is full. Default:
    /// `strict` if the key is made of `client_ip` only, else `lenient`.
    #[cfg_attr(feature = "schema", schemars(default = "Option::<WhenFull>::default", with = "WhenFull"))]
    pub when_full: WhenFull,
}

/// What to do with a request that is over a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum Mode {
    /// Deny it.
    #[default]
    Enforce,
    /// Let it through, but count and log what would have been denied.
    Shadow,
    /// Do not look at the rule at all.
    Off,
}

/// What a new key starts from when it must displace another's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum WhenFull {
    /// From the count that it displaces: never over the limit, but it may be denied early.
    Strict,
    /// From zero: never denied for what others did, but the displaced key may start again.
    Lenient,
}

impl Choice for Mode {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("enforce", Self::Enforce), ("shadow", Self::Shadow), ("off", Self::Off)];
}

impl Choice for WhenFull {
    const CHOICES: &'static [(&'static str, Self)] = &[("strict", Self::Strict), ("lenient", Self::Lenient)];
}

impl Rule {
    pub(crate) fn read(node: &Node, index: usize, names: &mut Names, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let advice = "give the rule a name of its own, such as \"login\"";
        let name = object.required("name", advice, report, |node, report| {
            let name = read_name(node, report)?;
            names.claim_metric(&name, index, node, report)?;
            Some(name)
        });
        let matches = object.optional("match", Match::default(), report, Match::read);
        let key = object.required("key", "say who is counted, such as [\"client_ip\"]", report, read_key);
        let limits =
            object.required("limits", "give at least one limit, such as [\"100/1m\"]", report, read_limits);
        let mode = object.optional("mode", Mode::default(), report, Node::choice);
        let when_full =
            object.optional("when_full", None, report, |node, report| node.choice(report).map(Some));
        let key = key?;
        let rule = Self {
            name: name?,
            matches: matches?,
            limits: limits?,
            mode: mode?,
            when_full: when_full?.unwrap_or_else(|| when_full_default(&key)),
            key,
        };
        names.claim_policies(&rule, index, node, report);
        Some(rule)
    }
}

/// Clients cannot choose their address, so a full table must not let them off; what they can choose is theirs
/// to mint, and a new one brings a full limit anyway.
fn when_full_default(key: &[KeyPart]) -> WhenFull {
    let is_strict = key.iter().all(|part| matches!(part, KeyPart::ClientIp));
    if is_strict { WhenFull::Strict } else { WhenFull::Lenient }
}

fn read_name(node: &Node, report: &mut Report) -> Option<String> {
    let text = node.text(report)?;
    let is_fine =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase());
    if starts_well && text.len() <= NAME_LEN_MAX && text.bytes().all(is_fine) {
        return Some(text.to_owned());
    }
    let advice = "a small letter, then up to 63 small letters, digits, \"-\" or \"_\"";
    node.report(report, format!("{} is not a name; write {advice}", quoted(text)));
    None
}
