//! How much a request counts.

use std::num::NonZeroU64;

use tidegate_core::REQUESTS_MAX;

use crate::errors::Report;
use crate::facts::Facts;
use crate::header_name;
use crate::json::Json;
use crate::json_text::Fields;
use crate::reader::Node;

const FIELDS: &[&str] = &["header", "default", "max"];

/// How much a request counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always so much.
    Fixed(NonZeroU64),
    /// As much as a header of the request says.
    Header(Box<HeaderCost>),
}

/// A cost that a header of the request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderCost {
    /// The header's name in lower case.
    pub name: String,
    /// What a request costs that does not say, or says it wrongly.
    pub default: NonZeroU64,
    /// What a request costs at most.
    pub max: NonZeroU64,
}

impl Default for Cost {
    fn default() -> Self {
        Self::Fixed(NonZeroU64::MIN)
    }
}

impl Cost {
    /// What a request costs. A header that is missing, repeated, 0 or no number counts as not sent.
    pub fn of(&self, facts: &Facts) -> NonZeroU64 {
        let from_header = match self {
            Self::Fixed(cost) => return *cost,
            Self::Header(from_header) => from_header,
        };
        let mut found = None;
        let mut values: usize = 0;
        facts.header(&from_header.name, &mut |value| {
            values = values.saturating_add(1);
            found = parse(value);
        });
        match found {
            Some(cost) if values == 1 => cost.min(from_header.max),
            _ => from_header.default,
        }
    }

    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        if !node.is_object() {
            if !node.is_number() {
                node.wrong_type("a number or an object", report);
                return None;
            }
            return read_amount(node, report).map(Self::Fixed);
        }
        let object = node.object(FIELDS, report)?;
        let advice = "name the header that says what a request costs, such as \"x-cost\"";
        let name = object.required("header", advice, report, header_name::read);
        let default = object.optional("default", NonZeroU64::MIN, report, read_amount);
        let advice = "say what a request may cost at most, such as 100";
        let max = object.required("max", advice, report, read_amount);
        let (default, max) = (default?, max?);
        if default > max {
            let node = object.get("default").unwrap_or(*node);
            node.report(report, format!("must not be above \"max\", which is {max}"));
            return None;
        }
        Some(Self::Header(Box::new(HeaderCost { name: name?, default, max })))
    }

    pub(crate) fn json(&self) -> Json {
        let from_header = match self {
            Self::Fixed(cost) => return cost.get().into(),
            Self::Header(from_header) => from_header,
        };
        let mut fields = Fields::default();
        fields.put("header", from_header.name.as_str());
        fields.put_if(from_header.default != NonZeroU64::MIN, "default", || from_header.default.get().into());
        fields.put("max", from_header.max.get());
        fields.into()
    }
}

fn read_amount(node: &Node, report: &mut Report) -> Option<NonZeroU64> {
    NonZeroU64::new(node.whole(1..=REQUESTS_MAX, report)?)
}

/// Digits; so many that they do not fit are the most there is.
fn parse(value: &[u8]) -> Option<NonZeroU64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let text = std::str::from_utf8(digits).ok()?;
    NonZeroU64::new(text.parse().unwrap_or(u64::MAX))
}
