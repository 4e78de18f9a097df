//! The rules, made ready for requests: indexed, their hashes begun, their names and responses built.

use crate::charge::Ask;
use crate::identity::{Identity, RuleHasher};
use crate::table::{Region, Table};
use tidegate_config::{Align, Config, Facts, Response, RuleLimit, RuleSet, Subject, WhenFull};
use tidegate_core::slot::EntryId;
use tidegate_core::{Limit, Moment, Take, Timestamp};

/// All rules of a plugin.
pub(crate) struct Rules {
    set: RuleSet,
    /// As many as the set has, in its order.
    ready: Vec<Rule>,
}

/// A rule.
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) response: Response,
    pub(crate) count_denied: bool,
    hasher: RuleHasher,
    tag: u16,
    strict: bool,
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
    tag: u64,
    align: Align,
}

/// What a request means to a rule that matches it.
pub(crate) enum Demand<'r> {
    /// The rule's counters decide.
    Ask(Ask<'r>),
    /// The rule has nothing against it.
    Pass,
    /// The rule denies it without a look at any counter.
    Deny {
        /// The rule.
        rule: &'r Rule,
        /// Its place.
        rule_index: usize,
        /// Whether it is enforced for this key.
        enforced: bool,
    },
}

impl Rules {
    pub(crate) fn new(config: Config, namespace: &str, table: &Table) -> Self {
        let set = RuleSet::new(if config.enabled { config.rules } else { Vec::new() });
        let ready =
            set.rules().iter().map(|rule| Rule::new(rule, &config.response, namespace, table)).collect();
        Self { set, ready }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.ready.iter().map(|rule| rule.name.as_str())
    }

    /// The limits that a debt belongs to.
    pub(crate) fn limits(&self, rule_index: usize, limit_set: usize) -> Option<(&Rule, &[CountedLimit])> {
        let rule = self.ready.get(rule_index)?;
        Some((rule, rule.limit_sets.get(limit_set)?))
    }

    /// What each rule that matches makes of a request. `found` and `key` are scratch space.
    pub(crate) fn demands<'r>(
        &'r self,
        facts: &Facts<'_>,
        table: &Table,
        found: &mut Vec<u32>,
        key: &mut Vec<u8>,
    ) -> Vec<Demand<'r>> {
        self.set.matching(facts, found);
        found
            .iter()
            .filter_map(|index| self.demand(usize::try_from(*index).ok()?, facts, table, key))
            .collect()
    }

    fn demand<'r>(
        &'r self,
        rule_index: usize,
        facts: &Facts<'_>,
        table: &Table,
        key: &mut Vec<u8>,
    ) -> Option<Demand<'r>> {
        let config = self.set.rules().get(rule_index)?;
        let rule = self.ready.get(rule_index)?;
        key.clear();
        let subject = config.subject(facts, key);
        let identity = rule.hasher.key(key);
        let enforced = config.is_enforced(identity.shift);
        match subject {
            Subject::Exempt | Subject::Skipped => Some(Demand::Pass),
            Subject::Denied(_) => Some(Demand::Deny { rule, rule_index, enforced }),
            Subject::Counted => {
                let limit_set = config.limit_set(facts, key);
                Some(Demand::Ask(Ask {
                    rule,
                    rule_index,
                    limit_set,
                    limits: rule.limit_sets.get(limit_set)?,
                    identity,
                    place: table.place(rule.region, &identity),
                    take: Take::all(config.cost(facts)),
                    enforced,
                }))
            }
        }
    }
}

impl Rule {
    fn new(config: &tidegate_config::Rule, response: &Response, namespace: &str, table: &Table) -> Self {
        let hasher = RuleHasher::new(table.secret(), namespace, &config.name);
        let counted = |limits: &[RuleLimit], index: usize, counted: &RuleLimit| CountedLimit {
            limit: counted.limit,
            policy: config.policy_name(limits, index),
            tag: hasher.limit_tag(&counted.limit),
            align: counted.align,
        };
        let counted_set = |limits: &[RuleLimit]| {
            limits.iter().enumerate().map(|(index, limit)| counted(limits, index, limit)).collect()
        };
        Self {
            name: config.name.clone(),
            response: match &config.response {
                Some(patch) => response.with(patch),
                None => response.clone(),
            },
            count_denied: config.count_denied,
            tag: hasher.rule_tag(),
            strict: config.when_full == WhenFull::Strict,
            region: region(config),
            limit_sets: config.limit_sets.iter().map(|set| counted_set(&set.limits)).collect(),
            hasher,
        }
    }

    pub(crate) fn entry_id(&self, limit: &CountedLimit, identity: &Identity) -> EntryId {
        EntryId { fingerprint: identity.fingerprint(limit.tag), rule_tag: self.tag, strict: self.strict }
    }
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
