//! Plans: limits that depend on who asks.

use crate::errors::Report;
use crate::facts::Facts;
use crate::json::Json;
use crate::json_text::Fields;
use crate::key::{KeyPart, KeySource};
use crate::key_values::{KeyShape, KeyValues};
use crate::limit::RuleLimit;
use crate::limit_read::read_limits;
use crate::matcher::Match;
use crate::place::quoted;
use crate::reader::Node;
use crate::request::write_value;
use crate::text::is_plain;

/// At most this many plans in one rule.
pub const PLANS_MAX: usize = 32;

pub(crate) const PLAN_NAME_LEN_MAX: usize = 64;
const FIELDS: &[&str] = &["default", "by", "limits", "members"];

/// Limits, and the plan that they belong to if the rule has plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSet {
    /// The plan's name.
    pub plan: Option<String>,
    /// The limits, all of which must allow a request.
    pub limits: Vec<RuleLimit>,
}

/// How a request's plan is found. Plans are told by their place in the rule's limit sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plans {
    /// The plan of those who have no other.
    pub default: usize,
    /// A part of the request that names the plan.
    pub by: Option<KeyPart>,
    /// Keys and their plans.
    pub members: KeyValues,
}

impl Plans {
    /// The place of a request's plan: what the config says about its key, else what the request says by itself,
    /// else the default.
    pub(crate) fn choose(&self, sets: &[LimitSet], key: &[u8], parts: &[KeyPart], facts: &Facts) -> usize {
        if let Some(plan) = self.members.get(key, parts) {
            return plan;
        }
        let Some(by) = &self.by else {
            return self.default;
        };
        let mut name = Vec::new();
        if !write_value(by, &Match::default(), facts, &mut name) {
            return self.default;
        }
        let is_it = |set: &LimitSet| set.plan.as_ref().is_some_and(|plan| plan.as_bytes() == name);
        sets.iter().position(is_it).unwrap_or(self.default)
    }

    pub(crate) fn read(node: &Node, shape: &KeyShape, report: &mut Report) -> Option<(Vec<LimitSet>, Self)> {
        let object = node.object(FIELDS, report)?;
        let advice = "name the plan of those who have no other";
        let default = object.required("default", advice, report, read_plan_name);
        let by = object.maybe("by", report, read_by);
        let advice = "give each plan its limits, such as {\"free\": [\"50/s\"]}";
        let sets = object.required("limits", advice, report, read_sets)?;
        let members = object.optional("members", KeyValues::default(), report, |node, report| {
            read_members(node, &sets, shape, report)
        });
        let default = default.and_then(|default| {
            let index = place_of(&default, &sets);
            if let (None, Some(node)) = (index, object.get("default")) {
                node.report(
                    report,
                    format!("the plan {} has no limits; add it to \"limits\"", quoted(&default)),
                );
            }
            index
        });
        let plans = Self { default: default?, by: by?, members: members? };
        plans.check_reach(&sets, node, report);
        Some((sets, plans))
    }

    /// A plan that nobody can get is a slip.
    fn check_reach(&self, sets: &[LimitSet], node: &Node, report: &mut Report) {
        for (index, set) in sets.iter().enumerate() {
            let is_reached = index == self.default || self.by.is_some() || self.members.has_value(index);
            if let (Some(plan), false) = (&set.plan, is_reached) {
                let advice = "give it \"members\", choose it \"by\" a header or a claim, or leave it out";
                node.report(report, format!("nobody can get the plan {}; {advice}", quoted(plan)));
            }
        }
    }

    pub(crate) fn json(&self, sets: &[LimitSet], parts: &[KeyPart]) -> Json {
        let mut limits = Fields::default();
        let mut members = Fields::default();
        for (index, set) in sets.iter().enumerate() {
            let plan = set.plan.as_deref().unwrap_or_default();
            limits.put(plan, limits_json(&set.limits));
            let of_plan = self.members.json(index, parts);
            members.put_if(!of_plan.is_empty(), plan, || of_plan.into());
        }
        let default = sets.get(self.default).and_then(|set| set.plan.as_deref());
        let mut fields = Fields::default();
        fields.put("default", default.unwrap_or_default());
        fields.put_some("by", self.by.as_ref().map(KeyPart::json));
        fields.put("limits", limits);
        fields.put_if(!members.is_empty(), "members", || members.into());
        fields.into()
    }
}

pub(crate) fn limits_json(limits: &[RuleLimit]) -> Json {
    limits.iter().map(RuleLimit::json).collect::<Vec<Json>>().into()
}

fn place_of(plan: &str, sets: &[LimitSet]) -> Option<usize> {
    sets.iter().position(|set| set.plan.as_deref() == Some(plan))
}

fn read_plan_name(node: &Node, report: &mut Report) -> Option<String> {
    let name = node.text(report)?;
    check_plan_name(name, node, report).map(str::to_owned)
}

fn check_plan_name<'a>(name: &'a str, node: &Node, report: &mut Report) -> Option<&'a str> {
    if (1..=PLAN_NAME_LEN_MAX).contains(&name.len()) && name.chars().all(is_plain) {
        return Some(name);
    }
    let advice = "write 1 to 64 letters, digits, \".\", \"_\" or \"-\"";
    node.report(report, format!("{} is not the name of a plan; {advice}", quoted(name)));
    None
}

fn read_by(node: &Node, report: &mut Report) -> Option<KeyPart> {
    let part = if node.is_object() { KeyPart::read(node, report)? } else { KeySource::ClientIp.into() };
    if matches!(part.source, KeySource::Header(_) | KeySource::Jwt(_)) {
        return Some(part);
    }
    node.report(
        report,
        "must be a header or a claim, such as {\"header\": \"x-plan\"} or {\"jwt\": \"plan\"}",
    );
    None
}

fn read_sets(node: &Node, report: &mut Report) -> Option<Vec<LimitSet>> {
    let entries = node.entries(1..=PLANS_MAX, report)?;
    let mut sets: Vec<Option<LimitSet>> = Vec::with_capacity(entries.len());
    for (name, node) in &entries {
        let name = check_plan_name(name, node, report);
        let limits = read_limits(node, report);
        sets.push(name.zip(limits).map(|(name, limits)| LimitSet { plan: Some(name.to_owned()), limits }));
    }
    sets.into_iter().collect()
}

fn read_members(node: &Node, sets: &[LimitSet], shape: &KeyShape, report: &mut Report) -> Option<KeyValues> {
    let entries = node.entries(1..=PLANS_MAX, report)?;
    let mut members = KeyValues::default();
    let mut is_fine = true;
    for (plan, node) in &entries {
        let Some(index) = place_of(plan, sets) else {
            node.report(report, format!("the plan {} has no limits; add it to \"limits\"", quoted(plan)));
            is_fine = false;
            continue;
        };
        is_fine &= members.read(node, index, shape, report).is_some();
    }
    is_fine.then_some(members)
}
