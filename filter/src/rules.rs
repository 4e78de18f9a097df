//! The rules, made ready for requests: indexed, their hashes begun, their names and responses built.

use crate::ask::{Ask, Home};
use crate::identity::{Identity, RuleHasher};
use crate::overlays::Overlay;
use crate::table::{Region, Table};
use std::rc::Rc;
use tidegate_config::{
    Align, Facts, Global, GlobalMode, Response, RuleLimit, RuleSet, Settlement, Subject, WhenFull,
};
use tidegate_core::slot::EntryId;
use tidegate_core::{Algorithm, Limit, Moment, REQUESTS_MAX, Take, Timestamp};

/// All rules of a plugin, or those that a route adds.
pub(crate) struct Rules {
    set: RuleSet,
    /// As many as the set has, in its order. Shared with what outlives a request: debts and reservations.
    ready: Vec<Rc<Rule>>,
}

/// A rule.
pub(crate) struct Rule {
    pub(crate) name: String,
    /// Whose metrics count its decisions.
    pub(crate) metrics_of: usize,
    /// Which of the rules with this name it is: a route can have other limits than the config.
    pub(crate) variant: u32,
    pub(crate) response: Response,
    pub(crate) count_denied: bool,
    /// How it charges after the response, if it does.
    pub(crate) settlement: Option<Settlement>,
    /// How it is kept across a fleet, if it is.
    pub(crate) global: Option<Global>,
    pub(crate) when_full: WhenFull,
    hasher: RuleHasher,
    tag: u16,
    /// All limits of a key are kept in one slot, so one that needs a large slot takes the others along.
    region: Region,
    /// The limits, a set for each plan.
    limit_sets: Vec<Vec<CountedLimit>>,
}

/// A limit of a rule and what identifies its counters.
pub(crate) struct CountedLimit {
    pub(crate) limit: Limit,
    /// The name that clients see.
    pub(crate) policy: String,
    /// The limit as the counter is told of it: with what a fleet may pass it by.
    pub(crate) wire: RuleLimit,
    /// Counts without a limit, in the same windows, what the counter has not acknowledged yet.
    pub(crate) unacknowledged: Limit,
    tag: u64,
    align: Align,
}

/// What rules are made with, beside what they say themselves.
pub(crate) struct Common {
    pub(crate) namespace: String,
    /// The namespace at the counter.
    pub(crate) wire_namespace: String,
    pub(crate) response: Response,
}

/// What a request means to a rule that matches it.
pub(crate) enum Demand<'r> {
    /// The rule's counters decide.
    Ask(Ask),
    /// The rule has nothing against it.
    Pass,
    /// The rule denies it without a look at any counter.
    Deny {
        /// The rule.
        rule: &'r Rc<Rule>,
        /// Whether it is enforced for this key.
        enforced: bool,
    },
}

impl Rules {
    pub(crate) fn new(
        rules: Vec<tidegate_config::Rule>,
        common: &Common,
        table: &Table,
        part: &dyn Fn(usize) -> Part,
    ) -> Self {
        let set = RuleSet::new(rules);
        let ready = made_ready(&set, common, table, part);
        Self { set, ready }
    }

    /// The table has another secret: all counters are elsewhere from now on.
    pub(crate) fn place_anew(&mut self, common: &Common, table: &Table) {
        let parts: Vec<Part> = self.ready.iter().map(|rule| rule.part()).collect();
        let part = |index: usize| parts.get(index).copied().unwrap_or(Part { metrics_of: index, variant: 0 });
        self.ready = made_ready(&self.set, common, table, &part);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The rules as the config has them.
    pub(crate) fn config(&self) -> &[tidegate_config::Rule] {
        self.set.rules()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.ready.iter().map(|rule| rule.name.as_str())
    }

    /// Adds what each rule that matches makes of a request, with limits that a route tightened in the place of the
    /// rule's own, and without those that are switched off. `found` and `key` are scratch space.
    pub(crate) fn demand<'r>(
        &'r self,
        facts: &Facts<'_>,
        table: &Table,
        (overlay, off): (Option<&'r Overlay>, &[String]),
        (found, key): (&mut Vec<u32>, &mut Vec<u8>),
        demands: &mut Vec<Demand<'r>>,
    ) {
        self.set.matching(facts, found);
        for index in found.iter().filter_map(|index| usize::try_from(*index).ok()) {
            let rule = overlay.and_then(|overlay| overlay.tightened(index)).or_else(|| self.ready.get(index));
            if let (Some(config), Some(rule)) = (self.set.rules().get(index), rule)
                && !off.contains(&rule.name)
            {
                demands.push(rule.demand(config, facts, table, key));
            }
        }
    }
}

fn made_ready(set: &RuleSet, common: &Common, table: &Table, part: &dyn Fn(usize) -> Part) -> Vec<Rc<Rule>> {
    let rule = |(index, rule): (usize, &tidegate_config::Rule)| {
        let limit_sets = &mut rule.limit_sets.iter().map(|set| set.limits.as_slice());
        Rc::new(Rule::new(rule, limit_sets, common, table, part(index)))
    };
    set.rules().iter().enumerate().map(rule).collect()
}

/// What a rule is among others: whose metrics it has, and which of the rules with its name it is.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) metrics_of: usize,
    pub(crate) variant: u32,
}

impl Rule {
    /// A rule of the config, with limits that may be others than its own.
    pub(crate) fn new(
        config: &tidegate_config::Rule,
        limit_sets: &mut dyn Iterator<Item = &[RuleLimit]>,
        common: &Common,
        table: &Table,
        part: Part,
    ) -> Self {
        let Common { namespace, wire_namespace, response } = common;
        let namespace = if config.global.is_some() { wire_namespace } else { namespace };
        let hasher = RuleHasher::new(table.secret(), namespace, &config.name);
        let overshoot_percent = match config.global.map(|global| global.mode) {
            Some(GlobalMode::Lease { overshoot_percent, .. }) => overshoot_percent,
            Some(GlobalMode::Exact | GlobalMode::Sync { .. }) | None => 0,
        };
        let counted = |limits: &[RuleLimit], index: usize, counted: &RuleLimit| CountedLimit {
            limit: counted.limit,
            policy: config.policy_name(limits, index),
            wire: RuleLimit { limit: counted.limit.raised(overshoot_percent), ..*counted },
            unacknowledged: unlimited(&counted.limit),
            tag: hasher.limit_tag(&counted.limit),
            align: counted.align,
        };
        let counted_set = |limits: &[RuleLimit]| {
            limits.iter().enumerate().map(|(index, limit)| counted(limits, index, limit)).collect()
        };
        Self {
            name: config.name.clone(),
            metrics_of: part.metrics_of,
            variant: part.variant,
            response: match &config.response {
                Some(patch) => response.with(patch),
                None => response.clone(),
            },
            count_denied: config.count_denied,
            settlement: config.settlement(),
            global: config.global,
            when_full: config.when_full,
            tag: hasher.rule_tag(),
            region: region(config),
            limit_sets: limit_sets.map(counted_set).collect(),
            hasher,
        }
    }

    const fn part(&self) -> Part {
        Part { metrics_of: self.metrics_of, variant: self.variant }
    }

    fn demand<'r>(
        self: &'r Rc<Self>,
        config: &tidegate_config::Rule,
        facts: &Facts<'_>,
        table: &Table,
        key: &mut Vec<u8>,
    ) -> Demand<'r> {
        key.clear();
        let subject = config.subject(facts, key);
        let identity = if self.global.is_some() { self.hasher.wire_key(key) } else { self.hasher.key(key) };
        let enforced = config.is_enforced(identity.shift);
        match subject {
            Subject::Exempt | Subject::Skipped => Demand::Pass,
            Subject::Denied(_) => Demand::Deny { rule: self, enforced },
            Subject::Counted => Demand::Ask(Ask {
                rule: Rc::clone(self),
                limit_set: config.limit_set(facts, key),
                identity,
                place: table.place(self.region, &identity),
                take: Take::all(config.cost(facts)),
                enforced,
                home: match self.global.map(|global| global.mode) {
                    None => Home::Table,
                    Some(GlobalMode::Exact) => Home::Counter,
                    Some(GlobalMode::Sync { .. }) => Home::Synced,
                    Some(GlobalMode::Lease { .. }) => Home::Leased,
                },
            }),
        }
    }

    /// The limits of a plan.
    pub(crate) fn limits(&self, limit_set: usize) -> &[CountedLimit] {
        self.limit_sets.get(limit_set).map_or(&[], Vec::as_slice)
    }

    /// What identifies one of a limit's entries; `salt` tells those apart.
    pub(crate) fn entry_id(
        &self,
        limit: &CountedLimit,
        identity: &Identity,
        salt: u64,
        may_be_strict: bool,
    ) -> EntryId {
        EntryId {
            fingerprint: identity.fingerprint(limit.tag ^ salt),
            rule_tag: self.tag,
            strict: may_be_strict && self.when_full == WhenFull::Strict,
        }
    }
}

/// Counts in the windows of a limit, and allows whatever there is.
fn unlimited(limit: &Limit) -> Limit {
    let unlimited = match limit.algorithm() {
        Algorithm::FixedWindow => Limit::fixed_window(REQUESTS_MAX, limit.window()),
        _ => Limit::sliding_window(REQUESTS_MAX, limit.window_ms()),
    };
    unlimited.unwrap_or(*limit)
}

/// Where a rule's counters are kept.
pub(crate) fn region(rule: &tidegate_config::Rule) -> Region {
    let mut limits = rule.limit_sets.iter().flat_map(|set| &set.limits);
    if limits.all(|counted| counted.limit.has_small_state()) { Region::Small } else { Region::Large }
}

impl CountedLimit {
    /// Now, on the grid of a key's windows.
    pub(crate) fn moment(&self, identity: &Identity, now: Timestamp) -> Moment {
        let shift = match self.align {
            Align::Key => identity.shift,
            Align::Clock => 0,
        };
        Moment { now, shift }
    }
}
