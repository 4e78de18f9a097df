//! How much a request counts.

use std::num::NonZeroU64;

use tidegate_core::REQUESTS_MAX;

use crate::errors::Report;
use crate::facts::Facts;
use crate::header_name;
use crate::json::Json;
use crate::json_text::Fields;
use crate::reader::Node;

const FIELDS: &[&str] = &["header", "response_header", "default", "max", "reserve"];

/// How much a request counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always so much.
    Fixed(NonZeroU64),
    /// As much as a header of the request says.
    Header(Box<HeaderCost>),
    /// As much as a header of the response says.
    Response(Box<ResponseCost>),
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

/// A cost that a header of the response names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseCost {
    /// The header's name in lower case.
    pub name: String,
    /// What a request costs whose response does not say, or says it wrongly.
    pub default: NonZeroU64,
    /// What a request costs at most.
    pub max: NonZeroU64,
    /// What is taken before the response is there.
    pub reserve: NonZeroU64,
}

impl Default for Cost {
    fn default() -> Self {
        Self::Fixed(NonZeroU64::MIN)
    }
}

impl Cost {
    /// What a request costs, or what it reserves until its response says. A header that is missing, repeated, 0 or no
    /// number counts as not sent.
    pub fn of(&self, facts: &Facts) -> NonZeroU64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Response(cost) => cost.reserve,
            Self::Header(cost) => amount_of(|each| facts.header(&cost.name, each))
                .and_then(NonZeroU64::new)
                .map_or(cost.default, |amount| amount.min(cost.max)),
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
        let is_of_response = object.get("response_header").is_some();
        if let Some(node) = object.get("header").filter(|_| is_of_response) {
            node.report(report, "cannot stand beside \"response_header\"; keep one of the two");
        }
        let advice = "name the header that says what a request costs, such as \"x-cost\"";
        let field = if is_of_response { "response_header" } else { "header" };
        let name = object.required(field, advice, report, header_name::read);
        let default = object.optional("default", NonZeroU64::MIN, report, read_amount);
        let advice = "say what a request may cost at most, such as 100";
        let max = object.required("max", advice, report, read_amount);
        let reserve = object.maybe("reserve", report, |node, report| {
            if !is_of_response {
                node.report(report, "belongs to a cost with \"response_header\"; leave it out");
            }
            read_amount(node, report)
        });
        let (default, max, reserve) = (default?, max?, reserve?);
        for (name, amount) in [("default", Some(default)), ("reserve", reserve)] {
            if amount > Some(max) {
                let node = object.get(name).unwrap_or(*node);
                node.report(report, format!("must not be above \"max\", which is {max}"));
            }
        }
        let name = name?;
        Some(if is_of_response {
            let reserve = reserve.unwrap_or(default);
            Self::Response(Box::new(ResponseCost { name, default, max, reserve }))
        } else {
            Self::Header(Box::new(HeaderCost { name, default, max }))
        })
    }

    pub(crate) fn json(&self) -> Json {
        let (field, name, default, max, reserve) = match self {
            Self::Fixed(cost) => return cost.get().into(),
            Self::Header(cost) => ("header", &cost.name, cost.default, cost.max, cost.default),
            Self::Response(cost) => ("response_header", &cost.name, cost.default, cost.max, cost.reserve),
        };
        let mut fields = Fields::default();
        fields.put(field, name.as_str());
        fields.put_if(default != NonZeroU64::MIN, "default", || default.get().into());
        fields.put("max", max.get());
        fields.put_if(reserve != default, "reserve", || reserve.get().into());
        fields.into()
    }
}

fn read_amount(node: &Node, report: &mut Report) -> Option<NonZeroU64> {
    NonZeroU64::new(node.whole(1..=REQUESTS_MAX, report)?)
}

/// The number in a header of which `hand_over` gives out all values; `None` if there is not exactly one, or it is no
/// number.
pub(crate) fn amount_of(hand_over: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Option<u64> {
    let mut found = None;
    let mut values: usize = 0;
    hand_over(&mut |value| {
        values = values.saturating_add(1);
        found = parse(value);
    });
    found.filter(|_| values == 1)
}

/// Digits; so many that they do not fit are the most there is.
fn parse(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let text = std::str::from_utf8(digits).ok()?;
    Some(text.parse().unwrap_or(u64::MAX))
}
