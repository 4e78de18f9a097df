//! Limits that change while traffic runs.
//!
//! A config stays in force in a proxy until the last of its VMs has given it up; and a grant that was taken under it may be
//! spent until its own end. So for a while a proxy goes by several limits at once, and each promise is made for the
//! largest of those.

use crate::fleet::GRANT_MS_MAX;
use crate::global_spec::{Global, Mode};
use crate::scenario::MS;
use crate::spec::{Config, Limit, Rule};
use crate::tally::Happened;
use crate::world::World;
use std::collections::BTreeMap;

/// A limit of a rule, whatever its numbers.
pub(crate) type LimitName = (String, u64, String);

pub(crate) fn name_of(rule: &str, limit: &Limit) -> LimitName {
    (rule.to_owned(), limit.window_ms, format!("{:?}", limit.algorithm))
}

/// The lowest and the highest numbers that each limit has in any config of a run.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<LimitName, (Limit, Limit)>);

impl Ranges {
    pub(crate) fn new(configs: &[Config]) -> Self {
        let mut all = BTreeMap::new();
        for rule in configs.iter().flat_map(|config| &config.rules) {
            for limit in &rule.limits {
                let (low, high): &mut (Limit, Limit) =
                    all.entry(name_of(&rule.name, limit)).or_insert((*limit, *limit));
                low.requests = low.requests.min(limit.requests);
                low.burst = low.burst.min(limit.burst);
                high.requests = high.requests.max(limit.requests);
                high.burst = high.burst.max(limit.burst);
            }
        }
        Self(all)
    }

    /// The limit with the highest numbers that it ever has.
    pub(crate) fn highest(&self, rule: &str, limit: &Limit) -> Limit {
        self.0.get(&name_of(rule, limit)).map_or(*limit, |(_, high)| *high)
    }

    /// For how long a charge can matter at most: a bucket is refilled as whoever looks at it thinks.
    pub(crate) fn span_ms_max(&self, rule: &str, limit: &Limit) -> u64 {
        let of = |(low, high): &(Limit, Limit)| Limit { requests: low.requests, ..*high }.span_ms();
        self.0.get(&name_of(rule, limit)).map_or(limit.span_ms(), of)
    }
}

impl World<'_> {
    /// Another config takes over.
    pub(crate) fn note_changed_limits(&mut self, before: usize, after: usize) {
        let configs = &self.scenario.configs;
        let is_same = |rule: &&Rule| {
            configs[before].rules.iter().any(|other| other.limits == rule.limits && other.name == rule.name)
        };
        let changed = configs[after].rules.iter().filter(|rule| !is_same(rule));
        let kinds: Vec<Happened> = changed
            .filter_map(|rule| {
                Some(match rule.global?.mode {
                    Mode::Exact => Happened::ExactChanged,
                    Mode::Sync { .. } => Happened::SyncChanged,
                    Mode::Lease { .. } => Happened::LeaseChanged,
                })
            })
            .collect();
        for kind in kinds {
            self.tally.count(kind);
        }
    }

    /// A VM gives a config up.
    pub(crate) fn retire_config(&mut self, actor: usize, root: u32) {
        let (proxy, now_ns) = (self.actors[actor].proxy, self.now_ns);
        if let Some(root) = self.actors[actor].root(root) {
            let config = root.config;
            self.proxies[proxy].retired_ns.insert(config, now_ns);
        }
    }

    /// What a proxy may spend by a limit of a rule that leases: the most that any config allows whose grants may
    /// still be there.
    pub(crate) fn leased_at_most(&self, proxy: usize, rule: &Rule, global: Global, limit: &Limit) -> u64 {
        let is_in_force = |config: &usize| {
            let lives = |actor: &crate::actor::Actor| {
                actor.proxy == proxy && actor.roots.iter().any(|root| root.config == *config)
            };
            let retired_ns = self.proxies[proxy].retired_ns.get(config);
            self.actors.iter().any(lives)
                || retired_ns.is_some_and(|at_ns| at_ns + GRANT_MS_MAX * MS >= self.now_ns)
        };
        let name = name_of(&rule.name, limit);
        let in_force = (0..self.scenario.configs.len()).filter(is_in_force);
        let rules = in_force.flat_map(|config| &self.scenario.configs[config].rules);
        let limits =
            rules.flat_map(|rule| rule.limits.iter().map(move |limit| (name_of(&rule.name, limit), limit)));
        let same = limits.filter(|(other, _)| *other == name);
        same.map(|(_, limit)| global.bound(limit).capacity()).max().unwrap_or(0)
    }
}
