//! Rules by their path: exact ones in a table, prefixes in order, templates in a tree of segments.

use std::collections::BTreeMap;

use crate::index::{Candidate, Index, Values};
use crate::path_match::PathMatch;
use crate::template::{Segment, segments_of};

/// Rules by their path.
#[derive(Debug, Default)]
pub(crate) struct PathIndex {
    exact: Values,
    /// In the order of their bytes.
    prefixes: Vec<Prefix>,
    templates: Option<TemplateNode<Index>>,
}

#[derive(Debug)]
struct Prefix {
    text: Box<[u8]>,
    /// The longest other prefix that this one begins with.
    parent: Option<usize>,
    rules: Index,
}

/// The templates that agree so far.
#[derive(Debug)]
struct TemplateNode<T> {
    literals: BTreeMap<Box<[u8]>, TemplateNode<T>>,
    any: Option<Box<TemplateNode<T>>>,
    /// Templates that end here.
    ended: Option<T>,
    /// Templates after which anything may follow.
    open: Option<T>,
}

type Rules<'r> = Vec<Candidate<'r>>;

impl PathIndex {
    /// Each rule comes with the number of one of its paths; `build` makes the index of rules that share one.
    pub(crate) fn new(candidates: &[(usize, Candidate)], build: &dyn Fn(Rules) -> Index) -> Self {
        let mut exact: BTreeMap<Box<[u8]>, Rules> = BTreeMap::new();
        let mut prefixes: BTreeMap<Box<[u8]>, Rules> = BTreeMap::new();
        let mut templates: Option<TemplateNode<Rules>> = None;
        for (path, candidate) in candidates {
            match candidate.rule().matches.paths.get(*path) {
                None => {}
                Some(PathMatch::Exact(text)) => {
                    exact.entry(text.as_bytes().into()).or_default().push(*candidate);
                }
                Some(PathMatch::Prefix(text)) => {
                    prefixes.entry(text.as_bytes().into()).or_default().push(*candidate);
                }
                Some(PathMatch::Template(template)) => {
                    let root = templates.get_or_insert_default();
                    let node = root.reach(template.segments());
                    let rules = if template.is_open() { &mut node.open } else { &mut node.ended };
                    rules.get_or_insert_default().push(*candidate);
                }
            }
        }
        Self {
            exact: exact.into_iter().map(|(text, rules)| (text, build(rules))).collect(),
            prefixes: linked(prefixes, build),
            templates: templates.map(|root| root.built(build)),
        }
    }

    /// Calls `go` for all whose path fits.
    pub(crate) fn visit(&self, path: &[u8], go: &mut dyn FnMut(&Index)) {
        self.exact.get(path).into_iter().for_each(&mut *go);
        // Whatever the path begins with stands before it in order, and between the two stand only texts that
        // begin with the same: so all such prefixes are found by going up from the last one before the path.
        let after = self.prefixes.partition_point(|prefix| *prefix.text <= *path);
        let mut at = after.checked_sub(1);
        while let Some(prefix) = at.and_then(|at| self.prefixes.get(at)) {
            if path.starts_with(&prefix.text) {
                go(&prefix.rules);
            }
            at = prefix.parent;
        }
        if let Some(root) = &self.templates {
            let segments: Vec<&[u8]> = segments_of(path).collect();
            root.visit(&segments, go);
        }
    }
}

fn linked(prefixes: BTreeMap<Box<[u8]>, Rules>, build: &dyn Fn(Rules) -> Index) -> Vec<Prefix> {
    let mut linked: Vec<Prefix> = Vec::with_capacity(prefixes.len());
    for (text, rules) in prefixes {
        let mut parent = linked.len().checked_sub(1);
        while let Some(prefix) =
            parent.and_then(|parent| linked.get(parent)).filter(|one| !text.starts_with(&one.text))
        {
            parent = prefix.parent;
        }
        linked.push(Prefix { text, parent, rules: build(rules) });
    }
    linked
}

impl<T> Default for TemplateNode<T> {
    fn default() -> Self {
        Self { literals: BTreeMap::new(), any: None, ended: None, open: None }
    }
}

impl<'r> TemplateNode<Rules<'r>> {
    fn reach(&mut self, segments: &[Segment]) -> &mut Self {
        let mut node = self;
        for segment in segments {
            node = match segment {
                Segment::Literal(text) => node.literals.entry(text.as_bytes().into()).or_default(),
                Segment::Named(_) | Segment::Any => node.any.get_or_insert_default(),
            };
        }
        node
    }

    fn built(self, build: &dyn Fn(Rules<'r>) -> Index) -> TemplateNode<Index> {
        TemplateNode {
            literals: self.literals.into_iter().map(|(text, node)| (text, node.built(build))).collect(),
            any: self.any.map(|node| Box::new(node.built(build))),
            ended: self.ended.map(build),
            open: self.open.map(build),
        }
    }
}

impl TemplateNode<Index> {
    /// No deeper than a template has segments.
    fn visit(&self, segments: &[&[u8]], go: &mut dyn FnMut(&Index)) {
        self.open.iter().for_each(&mut *go);
        let Some((first, rest)) = segments.split_first() else {
            self.ended.iter().for_each(go);
            return;
        };
        if let Some(node) = self.literals.get(*first) {
            node.visit(rest, go);
        }
        if let (Some(node), false) = (&self.any, first.is_empty()) {
            node.visit(rest, go);
        }
    }
}
