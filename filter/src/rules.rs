//! The rules, made ready for requests: hashes begun, names built, switched-off rules left out.

use crate::charge::Ask;
use crate::host::Host;
use crate::identity::{Identity, RuleHasher};
use crate::request::Request;
use crate::table::Table;
use core::num::NonZeroU64;
use tidegate_config::{Align, Mode, WhenFull};
use tidegate_core::slot::EntryId;
use tidegate_core::{Limit, Moment, Take, Timestamp};

/// Every request costs one.
const COST: NonZeroU64 = NonZeroU64::MIN;

/// A rule that is enforced or in shadow.
pub(crate) struct Rule {
    config: tidegate_config::Rule,
    hasher: RuleHasher,
    tag: u16,
    pub(crate) limits: Vec<CountedLimit>,
}

/// A limit of a rule and what identifies its counters.
pub(crate) struct CountedLimit {
    pub(crate) limit: Limit,
    /// The name that clients see.
    pub(crate) policy: String,
    tag: u64,
    align: Align,
}

impl Rule {
    /// `None` for a rule that is off.
    pub(crate) fn new(config: tidegate_config::Rule, namespace: &str, table: &Table) -> Option<Self> {
        if config.mode == Mode::Off {
            return None;
        }
        let hasher = RuleHasher::new(table.secret(), namespace, &config.name);
        let limits = config
            .limits
            .iter()
            .enumerate()
            .map(|(index, counted)| CountedLimit {
                limit: counted.limit,
                policy: config.policy_name(index),
                tag: hasher.limit_tag(&counted.limit),
                align: counted.align,
            })
            .collect();
        Some(Self { tag: hasher.rule_tag(), limits, hasher, config })
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    pub(crate) fn is_enforced(&self) -> bool {
        self.config.mode == Mode::Enforce
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.config.when_full == WhenFull::Strict
    }

    /// What this rule asks for a request that it applies to. `key` is scratch space.
    pub(crate) fn ask<'r, H: Host>(
        &'r self,
        index: usize,
        request: &Request<'_, H>,
        table: &Table,
        key: &mut Vec<u8>,
    ) -> Option<Ask<'r>> {
        if !self.config.matches.matches(request.method, &request.path) {
            return None;
        }
        key.clear();
        self.config.write_key(request, key);
        let identity = self.hasher.key(key);
        let slot = table.index(&identity);
        Some(Ask { rule: self, rule_index: index, identity, slot, take: Take::all(COST) })
    }

    /// The entries of a key in its slot.
    pub(crate) fn entry_ids(&self, identity: &Identity) -> Vec<EntryId> {
        self.limits.iter().map(|limit| self.entry_id(limit, identity)).collect()
    }

    pub(crate) fn entry_id(&self, limit: &CountedLimit, identity: &Identity) -> EntryId {
        EntryId { fingerprint: identity.fingerprint(limit.tag), rule_tag: self.tag, strict: self.is_strict() }
    }
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
