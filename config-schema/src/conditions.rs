//! What the value of a header or of a query parameter must be.

use crate::errors::Report;
use crate::json::Json;
use crate::json_text::{Fields, one_or_list};
use crate::reader::Node;
use crate::text::is_on_a_line;

/// At most this many values in one condition.
pub const VALUES_MAX: usize = 64;

pub(crate) const VALUE_LEN_MAX: usize = 1_024;
const FIELDS: &[&str] = &["present", "equals", "one_of", "prefix"];

/// A header or a query parameter and what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its name.
    pub name: String,
    /// What must hold.
    pub value: ValueMatch,
}

/// What a value must be. Of one that comes several times any will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueMatch {
    /// There, whatever it is; or not there at all.
    Present(bool),
    /// One of these.
    OneOf(Vec<String>),
    /// Begins with one of these.
    Prefix(Vec<String>),
}

impl ValueMatch {
    /// Looks at every value; `each` hands them over one by one.
    pub(crate) fn matches(&self, each: impl FnOnce(&mut dyn FnMut(&[u8]))) -> bool {
        let mut is_found = false;
        each(&mut |value| {
            is_found |= match self {
                Self::Present(_) => true,
                Self::OneOf(texts) => texts.iter().any(|text| text.as_bytes() == value),
                Self::Prefix(texts) => texts.iter().any(|text| value.starts_with(text.as_bytes())),
            }
        });
        is_found == !matches!(self, Self::Present(false))
    }

    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        if !node.is_object() {
            if !node.is_text() && !node.is_list() {
                node.wrong_type("a string, a list of strings or an object", report);
                return None;
            }
            return node.one_or_more(VALUES_MAX, report, read_value).map(Self::OneOf);
        }
        let object = node.object(FIELDS, report)?;
        let present = object.maybe("present", report, Node::boolean);
        let equals = object.maybe("equals", report, read_value);
        let one_of = object.maybe("one_of", report, |node, report| {
            if node.is_text() {
                node.wrong_type("a list of strings", report);
                return None;
            }
            node.one_or_more(VALUES_MAX, report, read_value)
        });
        let prefix =
            object.maybe("prefix", report, |node, report| node.one_or_more(VALUES_MAX, report, read_prefix));
        let given = FIELDS.iter().filter(|name| object.get(name).is_some()).count();
        if given != 1 {
            node.report(report, "must say exactly one of \"present\", \"equals\", \"one_of\" and \"prefix\"");
            return None;
        }
        let one_of = one_of?.or(equals?.map(|value| vec![value])).map(Self::OneOf);
        one_of.or(present?.map(Self::Present)).or(prefix?.map(Self::Prefix))
    }

    fn json(&self) -> Json {
        let mut fields = Fields::default();
        match self {
            Self::OneOf(texts) => return one_or_list(texts.iter().map(String::as_str)),
            Self::Present(is_there) => fields.put("present", *is_there),
            Self::Prefix(texts) => fields.put("prefix", one_or_list(texts.iter().map(String::as_str))),
        }
        fields.into()
    }
}

/// Conditions by name; `read_name` says which names there can be.
pub(crate) fn read_conditions(
    node: &Node,
    most: usize,
    report: &mut Report,
    read_name: fn(&str, &Node, &mut Report) -> Option<String>,
) -> Option<Vec<Condition>> {
    let entries = node.entries(1..=most, report)?;
    let mut conditions: Vec<Option<Condition>> = Vec::with_capacity(entries.len());
    for (name, node) in &entries {
        let name = read_name(name, node, report);
        let value = ValueMatch::read(node, report);
        let is_taken = conditions.iter().flatten().any(|earlier| Some(&earlier.name) == name.as_ref());
        if is_taken {
            node.report(report, "is in this list already; leave it out");
        }
        conditions.push(name.zip(value).map(|(name, value)| Condition { name, value }));
    }
    conditions.into_iter().collect()
}

pub(crate) fn conditions_json(conditions: &[Condition]) -> Json {
    let mut fields = Fields::default();
    for condition in conditions {
        fields.put(&condition.name, condition.value.json());
    }
    fields.into()
}

fn read_value(node: &Node, report: &mut Report) -> Option<String> {
    let what = "a value; write up to 1024 characters, none of them a control character";
    node.text_of(0..=VALUE_LEN_MAX, is_on_a_line, what, report).map(str::to_owned)
}

fn read_prefix(node: &Node, report: &mut Report) -> Option<String> {
    let what = "a prefix; write 1 to 1024 characters, none of them a control character";
    node.text_of(1..=VALUE_LEN_MAX, is_on_a_line, what, report).map(str::to_owned)
}
