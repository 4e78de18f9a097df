//! The rules of a config, found by what a request brings.

use crate::facts::Facts;
use crate::index::Index;
use crate::rule::{Mode, Rule};

/// Rules with an index, so that rules which cannot match cost nothing.
///
/// A request's path, host, method and the values of headers and query parameters that rules name lead to the few
/// rules that are left, and each of those is asked. The work does not grow with rules that another path, host,
/// method, route, virtual host or value keeps away.
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    index: Index,
}

impl RuleSet {
    /// Builds the index. Rules that are off can be there; they never match.
    pub fn new(rules: Vec<Rule>) -> Self {
        let on = rules.iter().enumerate().filter(|(_, rule)| rule.mode != Mode::Off);
        let index =
            Index::new(on.filter_map(|(number, rule)| Some((u32::try_from(number).ok()?, rule))).collect());
        Self { rules, index }
    }

    /// All rules, in the config's order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Puts the places in [`RuleSet::rules`] of all rules that match a request into `found`, in order.
    ///
    /// Gives back how much work it was: the steps through the index and the rules that were asked.
    pub fn matching(&self, facts: &Facts, found: &mut Vec<u32>) -> usize {
        found.clear();
        let steps = self.index.candidates(facts, found);
        found.sort_unstable();
        found.dedup();
        let asked = found.len();
        found.retain(|number| self.rule(*number).is_some_and(|rule| rule.matches(facts)));
        steps.saturating_add(asked)
    }

    fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(number).ok()?)
    }
}
