//! Those for whom a rule makes an exception: by key or by network.

use std::net::IpAddr;

use crate::cidr::Cidr;
use crate::errors::Report;
use crate::json::Json;
use crate::json_text::Fields;
use crate::key::KeyPart;
use crate::key_values::{KeyShape, KeyValues};
use crate::reader::Node;

/// At most this many networks in one list.
pub const CIDRS_MAX: usize = 1_000;

const FIELDS: &[&str] = &["values", "cidrs"];
/// What every key of a list stands for: that it is in it.
const LISTED: usize = 0;

/// A list of keys and networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects {
    /// Keys of the rule.
    pub values: KeyValues,
    /// Networks that a client's address may lie in, whatever the rule's key is.
    pub cidrs: Vec<Cidr>,
}

impl Subjects {
    /// Whether a request is meant. The address is asked for only if there are networks.
    pub(crate) fn contains(
        &self,
        key: &[u8],
        parts: &[KeyPart],
        address: impl FnOnce() -> Option<IpAddr>,
    ) -> bool {
        let is_in_network =
            || address().is_some_and(|address| self.cidrs.iter().any(|cidr| cidr.contains(address)));
        self.values.get(key, parts).is_some() || (!self.cidrs.is_empty() && is_in_network())
    }

    pub(crate) fn read(node: &Node, shape: &KeyShape, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let values = object.optional("values", KeyValues::default(), report, |node, report| {
            let mut values = KeyValues::default();
            values.read(node, LISTED, shape, report).map(|()| values)
        });
        let cidrs = object.optional("cidrs", Vec::new(), report, |node, report| {
            if !node.is_list() {
                node.wrong_type("a list", report);
                return None;
            }
            node.one_or_more(CIDRS_MAX, report, |node, report| Cidr::read(node, report))
        });
        if object.get("values").is_none() && object.get("cidrs").is_none() {
            node.report(report, "is empty; give \"values\", \"cidrs\" or both");
            return None;
        }
        Some(Self { values: values?, cidrs: cidrs? })
    }

    pub(crate) fn json(&self, parts: &[KeyPart]) -> Json {
        let mut fields = Fields::default();
        fields.put_if(!self.values.is_empty(), "values", || self.values.json(LISTED, parts).into());
        let cidrs = || self.cidrs.iter().map(|cidr| cidr.to_string().into()).collect::<Vec<Json>>().into();
        fields.put_if(!self.cidrs.is_empty(), "cidrs", cidrs);
        fields.into()
    }
}
