//! Names that a rule has elsewhere: in metrics, in response headers; and the check that they do not clash.

use std::collections::BTreeMap;

use crate::duration;
use crate::errors::Report;
use crate::limit::algorithm_word;
use crate::reader::{Node, quoted};
use crate::rule::Rule;

/// A rule's name as part of a metric's name, where only `[a-z0-9_]` may stand.
pub fn rule_metric_name(name: &str) -> String {
    name.replace('-', "_")
}

impl Rule {
    /// What a client sees as the name of one of the rule's limits: the rule's name if that is its only limit,
    /// else with the window behind it (`login-1h`), and with the algorithm too if another limit has the same
    /// window.
    pub fn policy_name(&self, limit_index: usize) -> String {
        let Some(this) = self.limits.get(limit_index).filter(|_| self.limits.len() > 1) else {
            return self.name.clone();
        };
        let window_ms = this.limit.window_ms();
        let window = duration::shortest_text(window_ms);
        let sharing = self.limits.iter().filter(|other| other.limit.window_ms() == window_ms).count();
        if sharing > 1 {
            return format!("{}-{window}-{}", self.name, algorithm_word(this.limit.algorithm()));
        }
        format!("{}-{window}", self.name)
    }
}

/// The names given out so far, each with the index of its rule.
#[derive(Default)]
pub(crate) struct Names {
    metrics: BTreeMap<String, usize>,
    policies: BTreeMap<String, usize>,
}

impl Names {
    /// Rules with one metric name would be added up in one counter.
    pub(crate) fn claim_metric(
        &mut self,
        name: &str,
        rule_index: usize,
        node: &Node,
        report: &mut Report,
    ) -> Option<()> {
        let other = *self.metrics.entry(rule_metric_name(name)).or_insert(rule_index);
        if other != rule_index {
            let message = format!(
                "{} is taken by rules[{other}]; names must differ, and in metrics \"-\" becomes \"_\"",
                quoted(name)
            );
            node.report(report, message);
            return None;
        }
        Some(())
    }

    /// Limits with one policy name could not be told apart by a client.
    pub(crate) fn claim_policies(
        &mut self,
        rule: &Rule,
        rule_index: usize,
        node: &Node,
        report: &mut Report,
    ) {
        for limit_index in 0..rule.limits.len() {
            let policy = rule.policy_name(limit_index);
            let other = *self.policies.entry(policy.clone()).or_insert(rule_index);
            if other != rule_index {
                let reason = format!("clients would see its limit {limit_index} as {}", quoted(&policy));
                node.report(report, format!("{reason}, the same as a limit of rules[{other}]; rename one"));
            }
        }
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
        (0..rule.limits.len()).map(|index| rule.policy_name(index)).collect()
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
