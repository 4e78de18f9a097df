//! The keys of one call, one after the other in one text: a batch has hundreds, and each alone would be a piece of memory
//! to ask for and give back.

use std::collections::HashMap;

use tidegate_config::RuleLimit;
use tidegate_config::wire::limit_tag;

use super::names::Names;

/// About what the name of a counter needs, beside the prefix and the namespace.
const COUNTER_BYTES: usize = 56;

/// Keys in their order.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    text: String,
    ends: Vec<usize>,
}

/// Keys of which those of counters are found again.
pub(super) struct KeysOfBatch<'a> {
    names: &'a Names,
    namespace: &'a str,
    keys: Keys,
    /// What makes the names of two counters of a namespace differ, and where their keys are.
    counters: HashMap<(u128, [u8; 11]), usize>,
}

impl Keys {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.text[begin..*end])
    }

    fn end_one(&mut self) -> usize {
        self.ends.push(self.text.len());
        self.ends.len()
    }
}

impl<'a> KeysOfBatch<'a> {
    /// The first key is `first`; at most `takes` counters follow.
    pub(super) fn new(names: &'a Names, namespace: &'a str, first: &str, takes: usize) -> Self {
        let counter_bytes = names.prefix_bytes() + namespace.len() + COUNTER_BYTES;
        let mut keys = Keys {
            text: String::with_capacity(first.len() + (takes + 1) * counter_bytes),
            ends: Vec::with_capacity(takes + 2),
        };
        keys.text.push_str(first);
        keys.end_one();
        Self { names, namespace, keys, counters: HashMap::with_capacity(takes) }
    }

    /// Where a counter's key is, counted from 1 as Lua does. It is added if it is not there yet.
    pub(super) fn counter(&mut self, subject: u128, limit: &RuleLimit) -> usize {
        let Self { names, namespace, keys, counters } = self;
        *counters.entry((subject, limit_tag(limit))).or_insert_with(|| {
            names.push_counter(&mut keys.text, namespace, subject, &limit.limit);
            keys.end_one()
        })
    }

    /// All keys, with one more at the end.
    pub(super) fn finish(mut self, last: Option<String>) -> Keys {
        if let Some(last) = last {
            self.keys.text.push_str(&last);
            self.keys.end_one();
        }
        self.keys
    }
}
