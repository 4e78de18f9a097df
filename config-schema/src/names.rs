//! Names that a rule has elsewhere: in metrics, in response headers; and the check that they do not clash.

use std::collections::BTreeMap;

use crate::errors::Report;
use crate::limit::RuleLimit;
use crate::place::quoted;
use crate::reader::Node;
use crate::rule::Rule;

/// A rule's name as part of a metric's name, where only `[a-z0-9_]` may stand.
pub fn rule_metric_name(name: &str) -> String {
    name.replace('-', "_")
}

impl Rule {
    /// What a client sees as the name of a limit among those that hold for it together: the rule's name if that
    /// is the only limit, else with the window behind it (`login-1h`), and with the algorithm too if another
    /// limit has the same window.
    pub fn policy_name(&self, limits: &[RuleLimit], limit_index: usize) -> String {
        let Some(this) = limits.get(limit_index).filter(|_| limits.len() > 1) else {
            return self.name.clone();
        };
        let window = this.window_text();
        let sharing = limits.iter().filter(|other| other.limit.window() == this.limit.window()).count();
        if sharing > 1 {
            return format!("{}-{window}-{}", self.name, this.algorithm_text());
        }
        format!("{}-{window}", self.name)
    }
}

/// The names given out so far, each with the number of its rule.
#[derive(Default)]
pub(crate) struct Names {
    metrics: BTreeMap<Box<[u8]>, usize>,
    policies: BTreeMap<Box<[u8]>, usize>,
    /// The lists of rules so far: the number of the first rule and the place of the list.
    lists: Vec<(usize, String)>,
    rules: usize,
}

impl Names {
    /// The rules that follow stand in the list at this place.
    pub(crate) fn begin_list(&mut self, place: String) {
        self.lists.push((self.rules, place));
    }

    /// The number of the next rule, counted over all lists.
    pub(crate) fn next_rule(&mut self) -> usize {
        let number = self.rules;
        self.rules = self.rules.saturating_add(1);
        number
    }

    /// Rules with one metric name would be added up in one counter.
    pub(crate) fn claim_metric(
        &mut self,
        name: &str,
        number: usize,
        node: &Node,
        report: &mut Report,
    ) -> Option<()> {
        let other = *self.metrics.entry(rule_metric_name(name).into_bytes().into()).or_insert(number);
        if other != number {
            let message = format!(
                "{} is taken by {}; names must differ, and in metrics \"-\" becomes \"_\"",
                quoted(name),
                self.place_of(other)
            );
            node.report(report, message);
            return None;
        }
        Some(())
    }

    /// Limits with one policy name could not be told apart by a client.
    pub(crate) fn claim_policies(&mut self, rule: &Rule, number: usize, node: &Node, report: &mut Report) {
        for set in &rule.limit_sets {
            for limit_index in 0..set.limits.len() {
                let policy = rule.policy_name(&set.limits, limit_index);
                let other = *self.policies.entry(policy.as_bytes().into()).or_insert(number);
                if other != number {
                    let reason = format!("clients would see its limit {limit_index} as {}", quoted(&policy));
                    let other = self.place_of(other);
                    node.report(report, format!("{reason}, the same as a limit of {other}; rename one"));
                }
            }
        }
    }

    fn place_of(&self, number: usize) -> String {
        let list = self.lists.iter().rev().find(|(first, _)| *first <= number);
        let (first, place) = list.map_or((0, "rules"), |(first, place)| (*first, place.as_str()));
        format!("{place}[{}]", number.saturating_sub(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn policies(limits: &str) -> Vec<String> {
        let text = format!(r#"{{"rules": [{{"name": "r", "key": ["client_ip"], "limits": {limits}}}]}}"#);
        let rule = Config::from_json(text.as_bytes()).unwrap().rules.remove(0);
        let limits = rule.limits(0);
        (0..limits.len()).map(|index| rule.policy_name(limits, index)).collect()
    }

    #[test]
    fn a_sole_limit_has_the_name_of_its_rule() {
        assert_eq!(policies(r#"["10/1h"]"#), ["r"]);
    }

    #[test]
    fn several_limits_have_their_window_in_the_name() {
        assert_eq!(policies(r#"["10/s", "100/60s", "1000/90s"]"#), ["r-1s", "r-1m", "r-90s"]);
    }

    #[test]
    fn limits_with_one_window_have_their_algorithm_in_the_name() {
        let limits = r#"["10/1m", {"requests": 9, "per": "60s", "algorithm": "fixed_window"}, "10/1h"]"#;
        assert_eq!(policies(limits), ["r-1m-sliding_window", "r-1m-fixed_window", "r-1h"]);
    }

    #[test]
    fn a_metric_name_has_no_dash() {
        assert_eq!(rule_metric_name("per-key_2-x"), "per_key_2_x");
    }
}
