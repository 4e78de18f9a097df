//! How a rule is read and written.

use tidegate_core::Algorithm;

use crate::client_address::ClientAddress;
use crate::cost::Cost;
use crate::errors::Report;
use crate::global::{Global, GlobalMode};
use crate::json::Json;
use crate::json_text::Fields;
use crate::key::{KeyPart, check_segments, read_key};
use crate::key_values::KeyShape;
use crate::limit_read::read_limits;
use crate::matcher::Match;
use crate::names::Names;
use crate::place::quoted;
use crate::plans::{LimitSet, Plans, limits_json};
use crate::reader::{Choice, Node, Object, word_of};
use crate::response::ResponsePatch;
use crate::rule::{KeyMissing, Mode, Rule, WhenFull};
use crate::statuses::Statuses;
use crate::subjects::Subjects;

/// The longest name of a rule.
pub const NAME_LEN_MAX: usize = 64;
const PERCENT_MAX: u8 = 100;
const FIELDS: &[&str] = &[
    "name",
    "match",
    "key",
    "key_missing",
    "limits",
    "plans",
    "exempt",
    "deny",
    "cost",
    "count_denied",
    "count_status",
    "mode",
    "enforced_percent",
    "response",
    "when_full",
    "overridable",
    "global",
];

/// What the rest of the config means for its rules.
pub(crate) struct Context {
    pub(crate) names: Names,
    pub(crate) address: ClientAddress,
    pub(crate) has_counter: bool,
}

/// Those for whom a rule makes an exception.
type Exceptions = (Option<Box<Subjects>>, Option<Box<Subjects>>);
/// Limits, and how to choose among them.
type Allowance = (Vec<LimitSet>, Option<Box<Plans>>);

impl Rule {
    pub(crate) fn read(
        node: &Node,
        route: Option<&str>,
        context: &mut Context,
        report: &mut Report,
    ) -> Option<Self> {
        let index = context.names.next_rule();
        let object = node.object(FIELDS, report)?;
        let advice = "give the rule a name of its own, such as \"login\"";
        let name = object.required("name", advice, report, |node, report| {
            let name = read_rule_name(node, report)?;
            context.names.claim_metric(&name, index, node, report)?;
            Some(name)
        });
        let matches = object
            .optional("match", Match::default(), report, |node, report| read_match(node, route, report));
        let key = object.required("key", "say who is counted, such as [\"client_ip\"]", report, read_key);
        if let (Some(key), Some(matches), Some(node)) = (&key, &matches, object.get("key")) {
            check_segments(key, matches, &node, report);
        }
        let shape = key.as_ref().map(|key| KeyShape { key, address: context.address });
        let allowance = read_allowance(&object, node, shape.as_ref(), report);
        let exceptions = shape.as_ref().and_then(|shape| read_exceptions(&object, shape, report));
        let settings = Settings::read(&object, context.has_counter, report);
        let key = key?;
        let ((limit_sets, plans), (exempt, deny), settings) = (allowance?, exceptions?, settings?);
        let rule = Self {
            name: name?,
            route: route.map(Into::into),
            matches: matches?,
            key_missing: settings.key_missing,
            limit_sets,
            plans,
            exempt,
            deny,
            cost: settings.cost,
            count_denied: settings.count_denied,
            count_status: settings.count_status,
            mode: settings.mode,
            enforced_percent: settings.enforced_percent,
            response: settings.response,
            when_full: settings.when_full.unwrap_or_else(|| when_full_default(&key)),
            overridable: settings.overridable,
            global: settings.global,
            key,
        };
        check_global(&rule, &object, report);
        context.names.claim_policies(&rule, index, node, report);
        Some(rule)
    }

    pub(crate) fn json(&self) -> Json {
        let mut fields = Fields::default();
        fields.put("name", self.name.as_str());
        fields.put_if(self.matches != Match::default(), "match", || self.matches.json());
        fields.put("key", self.key.iter().map(KeyPart::json).collect::<Vec<Json>>());
        put_choice(&mut fields, "key_missing", self.key_missing, KeyMissing::default());
        match &self.plans {
            Some(plans) => fields.put("plans", plans.json(&self.limit_sets, &self.key)),
            None => fields.put("limits", limits_json(self.limits(0))),
        }
        fields.put_some("exempt", self.exempt.as_ref().map(|list| list.json(&self.key)));
        fields.put_some("deny", self.deny.as_ref().map(|list| list.json(&self.key)));
        fields.put_if(self.cost != Cost::default(), "cost", || self.cost.json());
        fields.put_if(self.count_denied, "count_denied", || true.into());
        fields.put_some("count_status", self.count_status.as_ref().map(|statuses| statuses.json()));
        put_choice(&mut fields, "mode", self.mode, Mode::default());
        let percent = || u64::from(self.enforced_percent).into();
        fields.put_if(self.enforced_percent != PERCENT_MAX, "enforced_percent", percent);
        fields.put_some("response", self.response.as_ref().map(|response| response.json()));
        put_choice(&mut fields, "when_full", self.when_full, when_full_default(&self.key));
        fields.put_if(self.overridable, "overridable", || true.into());
        fields.put_some("global", self.global.map(Global::json));
        fields.into()
    }
}

/// The settings of a rule that have nothing to do with each other.
struct Settings {
    key_missing: KeyMissing,
    cost: Cost,
    count_denied: bool,
    count_status: Option<Box<Statuses>>,
    mode: Mode,
    enforced_percent: u8,
    response: Option<Box<ResponsePatch>>,
    when_full: Option<WhenFull>,
    overridable: bool,
    global: Option<Global>,
}

impl Settings {
    fn read(object: &Object, has_counter: bool, report: &mut Report) -> Option<Self> {
        let key_missing = object.optional("key_missing", KeyMissing::default(), report, Node::choice);
        let cost = object.optional("cost", Cost::default(), report, Cost::read);
        let count_denied = object.optional("count_denied", false, report, Node::boolean);
        let count_status = object.maybe("count_status", report, Statuses::read);
        let mode = object.optional("mode", Mode::default(), report, Node::choice);
        let percent = object.optional("enforced_percent", PERCENT_MAX, report, |node, report| {
            node.whole(0..=PERCENT_MAX.into(), report).and_then(|percent| u8::try_from(percent).ok())
        });
        let response = object.maybe("response", report, ResponsePatch::read);
        let when_full = object.maybe("when_full", report, Node::choice);
        let overridable = object.optional("overridable", false, report, |node, report| {
            let is_overridable = node.boolean(report)?;
            if is_overridable && object.get("plans").is_some() {
                node.report(report, "does not belong to a rule with plans; leave it out");
            }
            Some(is_overridable)
        });
        let global = object.maybe("global", report, |node, report| {
            if !has_counter {
                node.report(report, "needs a \"counter\" in the config, which keeps the count of the fleet");
            }
            Global::read(node, report)
        });
        let (cost, count_denied, count_status, global) = (cost?, count_denied?, count_status?, global?);
        if count_status.is_some() || matches!(cost, Cost::Response(_)) {
            let is_given = [("count_denied", count_denied), ("global", global.is_some())];
            for (name, _) in is_given.iter().filter(|(_, is_given)| *is_given) {
                if let Some(node) = object.get(name) {
                    node.report(
                        report,
                        "does not belong to a rule that charges after the response; leave it out",
                    );
                }
            }
        }
        Some(Self {
            key_missing: key_missing?,
            cost,
            count_denied,
            count_status: count_status.map(Box::new),
            mode: mode?,
            enforced_percent: percent?,
            response: response?.map(Box::new),
            when_full: when_full?,
            overridable: overridable?,
            global,
        })
    }
}

fn put_choice<T: Choice + PartialEq>(fields: &mut Fields, name: &str, value: T, absent: T) {
    fields.put_if(value != absent, name, || word_of(value).into());
}

/// What the counter could not keep exactly is not promised.
fn check_global(rule: &Rule, object: &Object, report: &mut Report) {
    let Some(global) = rule.global else { return };
    let has_log = rule
        .limit_sets
        .iter()
        .flat_map(|set| &set.limits)
        .any(|counted| counted.limit.algorithm() == Algorithm::SlidingLog);
    if let (GlobalMode::Lease { .. }, true, Some(node)) = (global.mode, has_log, object.get("global")) {
        let reason = "cannot lease a sliding_log, which is exact to the millisecond as no grant is";
        node.report(report, format!("{reason}; choose \"exact\", or another algorithm"));
    }
}

fn read_match(node: &Node, route: Option<&str>, report: &mut Report) -> Option<Match> {
    let matches = Match::read(node, report)?;
    if route.is_some() && !matches.routes.is_empty() {
        node.report(report, "names a \"route\", but the rule is under one already; leave it out");
        return None;
    }
    Some(matches)
}

/// Either `limits` or `plans`. Without a key, plans cannot be judged.
fn read_allowance(
    object: &Object,
    node: &Node,
    shape: Option<&KeyShape>,
    report: &mut Report,
) -> Option<Allowance> {
    if let (Some(_), Some(plans)) = (object.get("limits"), object.get("plans")) {
        plans.report(report, "cannot stand beside \"limits\"; keep one of the two");
    }
    if object.get("limits").is_none() && object.get("plans").is_none() {
        node.report(
            report,
            "has neither \"limits\" nor \"plans\"; give at least one limit, such as [\"100/1m\"]",
        );
        return None;
    }
    let limits = object.maybe("limits", report, read_limits);
    let plans = match shape {
        Some(shape) => object.maybe("plans", report, |node, report| Plans::read(node, shape, report)),
        None => Some(None),
    };
    match (limits?, plans?) {
        (_, Some((sets, plans))) => Some((sets, Some(Box::new(plans)))),
        (Some(limits), None) => Some((vec![LimitSet { plan: None, limits }], None)),
        (None, None) => None,
    }
}

fn read_exceptions(object: &Object, shape: &KeyShape, report: &mut Report) -> Option<Exceptions> {
    let exempt = object.maybe("exempt", report, |node, report| Subjects::read(node, shape, report));
    let deny = object.maybe("deny", report, |node, report| Subjects::read(node, shape, report));
    let (exempt, deny) = (exempt?, deny?);
    if let (Some(exempt), Some(deny), Some(node)) = (&exempt, &deny, object.get("deny")) {
        let shares_a_network = deny.cidrs.iter().any(|cidr| exempt.cidrs.contains(cidr));
        if shares_a_network || exempt.values.shares_a_key_with(&deny.values) {
            node.report(
                report,
                "names someone whom \"exempt\" names too, which wins; keep it in one of the two",
            );
        }
    }
    Some((exempt.map(Box::new), deny.map(Box::new)))
}

/// Clients cannot choose their address or what others vouch for, so a full table must not let them off; what
/// they can choose is theirs to mint, and a new one brings a full limit anyway.
fn when_full_default(key: &[KeyPart]) -> WhenFull {
    if key.iter().all(|part| part.source.is_fixed()) { WhenFull::Strict } else { WhenFull::Lenient }
}

/// Whether a rule can have this name.
pub fn is_rule_name(text: &str) -> bool {
    let is_fine =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase());
    starts_well && text.len() <= NAME_LEN_MAX && text.bytes().all(is_fine)
}

pub(crate) fn read_rule_name(node: &Node, report: &mut Report) -> Option<String> {
    let text = node.text(report)?;
    if is_rule_name(text) {
        return Some(text.to_owned());
    }
    let advice = "a small letter, then up to 63 small letters, digits, \"-\" or \"_\"";
    node.report(report, format!("{} is not a name; write {advice}", quoted(text)));
    None
}
