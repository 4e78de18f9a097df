//! One rule: what to match, whom to count, how many to let through.

use std::num::NonZeroU64;

use crate::cost::Cost;
use crate::facts::Facts;
use crate::global::Global;
use crate::key::KeyPart;
use crate::limit::RuleLimit;
use crate::matcher::Match;
use crate::plans::{LimitSet, Plans};
use crate::reader::Choice;
use crate::request::write_key;
use crate::response::ResponsePatch;
use crate::statuses::Statuses;
use crate::subjects::Subjects;

/// A rule: which requests it is about, whom it counts, and how many it lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The rule's name in metrics, logs and responses.
    pub name: String,
    /// The route that the rule was written under, beyond which it does not reach.
    pub route: Option<Box<str>>,
    /// Which requests the rule is about.
    pub matches: Match,
    /// Who is counted: requests that agree in all of these are counted together.
    pub key: Vec<KeyPart>,
    /// What happens to a request in which a part of the key is missing.
    pub key_missing: KeyMissing,
    /// The limits: one set, or one for each plan.
    pub limit_sets: Vec<LimitSet>,
    /// How a request's set is chosen, if there are plans.
    pub plans: Option<Box<Plans>>,
    /// Those whom the rule does not count.
    pub exempt: Option<Box<Subjects>>,
    /// Those whom the rule always denies.
    pub deny: Option<Box<Subjects>>,
    /// How much a request counts.
    pub cost: Cost,
    /// Whether denied requests count too.
    pub count_denied: bool,
    /// Which responses count; `None` counts requests whatever becomes of them.
    pub count_status: Option<Box<Statuses>>,
    /// What to do with a request that is over a limit.
    pub mode: Mode,
    /// For how many keys in a hundred the rule is enforced; for the rest it is in shadow.
    pub enforced_percent: u8,
    /// What a denied client sees, where it differs from the config's response.
    pub response: Option<Box<ResponsePatch>>,
    /// What a new key starts from when it must displace another's count.
    pub when_full: WhenFull,
    /// Whether a route's metadata may tighten the rule.
    pub overridable: bool,
    /// How the limits are kept across a fleet; `None` keeps them in each proxy.
    pub global: Option<Global>,
}

/// What to do with a request that is over a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum Mode {
    /// Deny it.
    #[default]
    Enforce,
    /// Let it through, but count and log what would have been denied.
    Shadow,
    /// Do not look at the rule at all.
    Off,
}

/// What a new key starts from when it must displace another's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum WhenFull {
    /// From the highest load displaced there before, for it may be its own: never over the limit, but it may be
    /// denied early.
    Strict,
    /// From zero: never denied for what others did, but the displaced key may start again.
    Lenient,
}

/// What happens to a request in which a part of the key is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum KeyMissing {
    /// It is counted together with all others that lack the same part.
    #[default]
    Shared,
    /// The rule lets it through uncounted.
    Skip,
    /// The rule denies it.
    Deny,
}

/// What a rule makes of the one who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The key was written; its limits decide.
    Counted,
    /// Exempt: the rule neither counts nor denies.
    Exempt,
    /// A part of the key is missing, and the rule lets such requests be.
    Skipped,
    /// Denied without a look at any limit: waiting does not help.
    Denied(DeniedFor),
}

/// Why a rule denies without a look at any limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeniedFor {
    /// The rule's `deny` names the key or the address.
    BeingListed,
    /// A part of the key is missing.
    LackingKey,
}

impl Choice for Mode {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("enforce", Self::Enforce), ("shadow", Self::Shadow), ("off", Self::Off)];
}

impl Choice for WhenFull {
    const CHOICES: &'static [(&'static str, Self)] = &[("strict", Self::Strict), ("lenient", Self::Lenient)];
}

impl Choice for KeyMissing {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("shared", Self::Shared), ("skip", Self::Skip), ("deny", Self::Deny)];
}

impl Rule {
    /// Whether the rule is about a request. A [`crate::RuleSet`] finds all that are without asking each.
    pub fn matches(&self, facts: &Facts) -> bool {
        let is_on_route = |route: &str| facts.route() == Some(route.as_bytes());
        self.matches.matches(facts) && self.route.as_deref().is_none_or(is_on_route)
    }

    /// Appends the key of a request that the rule is about to `out`, and says what becomes of it. Two requests
    /// are counted together exactly if their bytes are equal.
    ///
    /// Who is exempt is exempt from all of the rule, also from its `deny` and from `key_missing`.
    pub fn subject(&self, facts: &Facts, out: &mut Vec<u8>) -> Subject {
        let start = out.len();
        let is_whole = write_key(&self.key, &self.matches, facts, out);
        let key = out.get(start..).unwrap_or_default();
        let is_in = |list: &Option<Box<Subjects>>| {
            list.as_ref().is_some_and(|list| list.contains(key, &self.key, || facts.client_ip()))
        };
        if is_in(&self.exempt) {
            return Subject::Exempt;
        }
        if is_in(&self.deny) {
            return Subject::Denied(DeniedFor::BeingListed);
        }
        match self.key_missing {
            KeyMissing::Skip if !is_whole => Subject::Skipped,
            KeyMissing::Deny if !is_whole => Subject::Denied(DeniedFor::LackingKey),
            _ => Subject::Counted,
        }
    }

    /// The place in [`Rule::limit_sets`] of the limits that hold for a request; `key` is what
    /// [`Rule::subject`] wrote.
    ///
    /// The place, and the plan's name, are no part of a counter's identity: limits of two plans that agree in
    /// algorithm and window ([`RuleLimit::counter`]) count in one place, so that a client whose plan changes
    /// keeps its count.
    pub fn limit_set(&self, facts: &Facts, key: &[u8]) -> usize {
        self.plans.as_ref().map_or(0, |plans| plans.choose(&self.limit_sets, key, &self.key, facts))
    }

    /// The limits at a place of [`Rule::limit_sets`].
    pub fn limits(&self, limit_set: usize) -> &[RuleLimit] {
        self.limit_sets.get(limit_set).map_or(&[], |set| &set.limits)
    }

    /// How much a request counts, or reserves until its response is there ([`Rule::settlement`]).
    pub fn cost(&self, facts: &Facts) -> NonZeroU64 {
        self.cost.of(facts)
    }

    /// Whether the rule denies a key with this hash, or only says that it would. Equal hashes get equal answers;
    /// a rule with a higher percentage is enforced for all for whom it was before.
    pub fn is_enforced(&self, key_hash: u64) -> bool {
        // The upper bits: the lower ones may have chosen the slot.
        let share = key_hash >> 32;
        let bound = u64::from(self.enforced_percent) << 32;
        self.mode == Mode::Enforce && share.saturating_mul(100) < bound
    }
}
