//! From what a request brings to the few rules that may match it.
//!
//! A tree: each branch looks at one thing, goes on with the rules that ask for the value found, and with those
//! that do not ask. What it gives are candidates; each is asked itself afterwards, so a branch may be coarse but
//! must never lose a rule.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::conditions::{Condition, ValueMatch};
use crate::facts::Facts;
use crate::host::HostMatch;
use crate::path_index::PathIndex;
use crate::query::each_parameter;
use crate::rule::Rule;

/// So few rules are asked rather than told apart further.
const LEAF_RULES_MAX: usize = 4;
/// A rule with lists in several fields stands in several branches, but in no more than this.
const COPIES_MAX: usize = 64;

/// At most this many headers and query parameters are looked at, those that most rules name: each is a level of
/// the tree.
const NAMED_LOOKS_MAX: usize = 8;

/// A node of the tree.
#[derive(Debug)]
pub(crate) enum Index {
    Leaf(Vec<u32>),
    Branch(Box<Branch>),
}

/// Looks at one thing.
#[derive(Debug)]
pub(crate) struct Branch {
    /// The rules that do not ask for it.
    rest: Index,
    by: By,
}

#[derive(Debug)]
enum By {
    Path(PathIndex),
    Value(Look, Values),
}

pub(crate) type Values = HashMap<Box<[u8]>, Index, BuildHasherDefault<Fnv>>;

/// What a branch looks at by its value, cheapest for the proxy first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    Method,
    Host,
    Header(String),
    Query(String),
    Route,
    VirtualHost,
}

/// A rule on its way down, and in how many places it may still be put.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'r> {
    number: u32,
    rule: &'r Rule,
    copies: usize,
}

impl Candidate<'_> {
    pub(crate) fn rule(&self) -> &Rule {
        self.rule
    }
}

impl Index {
    pub(crate) fn new(rules: Vec<(u32, &Rule)>) -> Self {
        let candidates: Vec<Candidate> =
            rules.into_iter().map(|(number, rule)| Candidate { number, rule, copies: COPIES_MAX }).collect();
        if candidates.len() <= LEAF_RULES_MAX {
            return Self::leaf(&candidates);
        }
        let mut by_path: Vec<(usize, Candidate)> = Vec::new();
        let mut rest = Vec::new();
        for candidate in candidates {
            let paths = candidate.rule.matches.paths.len();
            match candidate.copies.checked_div(paths) {
                Some(copies @ 1..) => {
                    by_path.extend((0..paths).map(|path| (path, Candidate { copies, ..candidate })));
                }
                _ => rest.push(candidate),
            }
        }
        let looks = looks_of(rest.iter().chain(by_path.iter().map(|(_, candidate)| candidate)));
        if by_path.is_empty() {
            return Self::by_value(rest, &looks);
        }
        let paths = PathIndex::new(&by_path, &|candidates| Self::by_value(candidates, &looks));
        let rest = Self::by_value(rest, &looks);
        Self::Branch(Box::new(Branch { rest, by: By::Path(paths) }))
    }

    fn leaf(candidates: &[Candidate]) -> Self {
        Self::Leaf(candidates.iter().map(|candidate| candidate.number).collect())
    }

    /// Tells rules apart by the first look that some of them ask for.
    fn by_value(candidates: Vec<Candidate>, looks: &[Look]) -> Self {
        let Some((look, looks)) = looks.split_first().filter(|_| candidates.len() > LEAF_RULES_MAX) else {
            return Self::leaf(&candidates);
        };
        let mut by: BTreeMap<Box<[u8]>, Vec<Candidate>> = BTreeMap::new();
        let mut rest = Vec::new();
        for candidate in candidates {
            let values = look.values_of(candidate.rule);
            match candidate.copies.checked_div(values.len()) {
                Some(copies @ 1..) => {
                    for value in values {
                        by.entry(value).or_default().push(Candidate { copies, ..candidate });
                    }
                }
                _ => rest.push(candidate),
            }
        }
        if by.is_empty() {
            return Self::by_value(rest, looks);
        }
        let values =
            by.into_iter().map(|(value, candidates)| (value, Self::by_value(candidates, looks))).collect();
        let rest = Self::by_value(rest, looks);
        Self::Branch(Box::new(Branch { rest, by: By::Value(look.clone(), values) }))
    }

    /// Appends the rules that may match, some perhaps more than once; gives back how many steps it took.
    pub(crate) fn candidates(&self, facts: &Facts, found: &mut Vec<u32>) -> usize {
        let branch = match self {
            Self::Leaf(rules) => {
                found.extend_from_slice(rules);
                return 1;
            }
            Self::Branch(branch) => branch,
        };
        let mut steps = branch.rest.candidates(facts, found);
        let mut go =
            |index: &Self| steps = steps.saturating_add(index.candidates(facts, found)).saturating_add(1);
        match &branch.by {
            By::Path(paths) => paths.visit(facts.path(), &mut go),
            By::Value(look, values) => look.each(facts, &mut |value| {
                values.get(value).into_iter().for_each(&mut go);
            }),
        }
        steps.saturating_add(1)
    }
}

/// What to look at: the headers and parameters that most rules name, and what every request has.
fn looks_of<'c, 'r: 'c>(candidates: impl Iterator<Item = &'c Candidate<'r>>) -> Vec<Look> {
    let mut named: BTreeMap<Look, usize> = BTreeMap::new();
    let mut count = |look: Look| {
        let count = named.entry(look).or_default();
        *count = count.saturating_add(1);
    };
    for candidate in candidates {
        let matches = &candidate.rule.matches;
        matches
            .headers
            .iter()
            .filter(|one| is_listed(one))
            .for_each(|one| count(Look::Header(one.name.clone())));
        matches
            .query
            .iter()
            .filter(|one| is_listed(one))
            .for_each(|one| count(Look::Query(one.name.clone())));
    }
    while named.len() > NAMED_LOOKS_MAX {
        let Some(rarest) = named.iter().min_by_key(|(_, count)| **count).map(|(look, _)| look.clone()) else {
            break;
        };
        named.remove(&rarest);
    }
    let cheap = [Look::Method, Look::Host];
    cheap.into_iter().chain(named.into_keys()).chain([Look::Route, Look::VirtualHost]).collect()
}

fn is_listed(condition: &Condition) -> bool {
    matches!(condition.value, ValueMatch::OneOf(_))
}

impl Look {
    /// The values that a rule asks for; none if it does not ask.
    fn values_of(&self, rule: &Rule) -> Vec<Box<[u8]>> {
        let matches = &rule.matches;
        let texts = |texts: &[String]| texts.iter().map(|text| text.as_bytes().into()).collect();
        let listed = |conditions: &[Condition], name: &str| {
            let condition = conditions.iter().find(|condition| condition.name == name);
            match condition.map(|condition| &condition.value) {
                Some(ValueMatch::OneOf(values)) => texts(values),
                _ => Vec::new(),
            }
        };
        match self {
            Self::Method => texts(&matches.methods),
            // A suffix keeps its dot in front, which no host has.
            Self::Host => matches.hosts.iter().map(|host| host_value(host).into()).collect(),
            Self::Header(name) => listed(&matches.headers, name),
            Self::Query(name) => listed(&matches.query, name),
            Self::Route => match &rule.route {
                Some(route) => vec![route.as_bytes().into()],
                None => texts(&matches.routes),
            },
            Self::VirtualHost => texts(&matches.virtual_hosts),
        }
    }

    /// The values that a request has.
    fn each(&self, facts: &Facts, each: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Method => each(facts.method()),
            Self::Host => {
                let host = facts.host();
                each(host);
                for (at, _) in host.iter().enumerate().filter(|(at, byte)| *at > 0 && **byte == b'.') {
                    each(host.get(at..).unwrap_or_default());
                }
            }
            Self::Header(name) => facts.header(name, each),
            Self::Query(name) => each_parameter(facts.query(), &mut |other, value| {
                if other == name.as_bytes() {
                    each(value);
                }
            }),
            Self::Route => facts.route().into_iter().for_each(each),
            Self::VirtualHost => facts.virtual_host().into_iter().for_each(each),
        }
    }
}

fn host_value(host: &HostMatch) -> &[u8] {
    match host {
        HostMatch::Exact(text) | HostMatch::Suffix(text) => text.as_bytes(),
    }
}

/// The hash of Fowler, Noll and Vo. What is in a table comes from the config, so no client can make it slow.
#[derive(Clone, Debug)]
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
