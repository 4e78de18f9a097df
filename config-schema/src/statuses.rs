//! Statuses of responses.

use crate::errors::Report;
use crate::json::Json;
use crate::place::quoted;
use crate::reader::Node;

/// At most this many statuses and classes in one list.
pub const STATUSES_MAX: usize = 32;

pub(crate) const STATUS_MIN: u16 = 100;
pub(crate) const STATUS_MAX: u16 = 599;
/// Statuses of a class have the same number of hundreds.
const CLASS_SIZE: u16 = 100;
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Single statuses and whole classes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<Item>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Status(u16),
    /// By its hundreds.
    Class(u16),
}

impl Statuses {
    /// Whether a status is one of these.
    pub fn contains(&self, status: u16) -> bool {
        let class = status.div_euclid(CLASS_SIZE);
        self.0
            .iter()
            .any(|item| matches!(item, Item::Status(one) if *one == status) || *item == Item::Class(class))
    }

    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let nodes = node.list(1..=STATUSES_MAX, report)?;
        let mut items: Vec<Option<Item>> = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let item = Item::read(node, report);
            if item.is_some() && items.contains(&item) {
                node.report(report, "is in this list already; leave it out");
            }
            items.push(item);
        }
        items.into_iter().collect::<Option<_>>().map(Self)
    }

    pub(crate) fn json(&self) -> Json {
        self.0.iter().map(|item| item.json()).collect::<Vec<Json>>().into()
    }
}

impl Item {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        if !node.is_text() {
            if !node.is_number() {
                node.wrong_type("a number or a string", report);
                return None;
            }
            let status = node.whole(STATUS_MIN.into()..=STATUS_MAX.into(), report)?;
            return u16::try_from(status).ok().map(Self::Status);
        }
        let text = node.text(report)?;
        let class = (1..).zip(CLASSES).find(|(_, class)| *class == text);
        if class.is_none() {
            node.report(
                report,
                format!("{} is not a class of statuses; write one such as \"5xx\"", quoted(text)),
            );
        }
        class.map(|(hundreds, _)| Self::Class(hundreds))
    }

    fn json(self) -> Json {
        match self {
            Self::Status(status) => u64::from(status).into(),
            Self::Class(hundreds) => format!("{hundreds}xx").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_class_is_all_statuses_that_begin_so() {
        let statuses = Statuses(vec![Item::Status(401), Item::Class(5)]);
        let found: Vec<u16> = (0..=700).filter(|status| statuses.contains(*status)).collect();
        assert_eq!(found, [401].into_iter().chain(500..=599).collect::<Vec<u16>>());
    }
}
