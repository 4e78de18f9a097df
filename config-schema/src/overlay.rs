//! What a route's own metadata adds to the rules of a config.

use tidegate_core::Algorithm;

use crate::client_address::ClientAddress;
use crate::config::{Config, read_rules};
use crate::errors::{ConfigError, ConfigErrors, Report};
use crate::json;
use crate::limit::RuleLimit;
use crate::limit_read::read_limits;
use crate::names::Names;
use crate::place::quoted;
use crate::reader::Node;
use crate::rule::Rule;
use crate::rule_json::Context;

/// At most this many bytes of metadata are read for one route.
pub const METADATA_LEN_MAX: usize = 65_536;
/// At most this many rules are added for one route.
pub const METADATA_RULES_MAX: usize = 100;

const FIELDS: &[&str] = &["rules", "tighten"];

/// What holds on one route beside the rules of the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Rules that only this route has.
    pub rules: Vec<Rule>,
    /// Limits that take the place of a rule's own on this route.
    pub tightened: Vec<Tightened>,
}

/// A rule of the config with lower limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tightened {
    /// The rule's place in [`OverlayBase::rules`].
    pub rule: usize,
    /// All its limits, in its own order, those that were tightened changed.
    pub limits: Vec<RuleLimit>,
}

/// What route metadata is read against.
#[derive(Clone, Copy)]
pub struct OverlayBase<'a> {
    /// The config's rules.
    pub rules: &'a [Rule],
    /// [`Config::client_ip`].
    pub client_ip: ClientAddress,
    /// Whether the config has a counter.
    pub has_counter: bool,
}

impl Config {
    /// Reads a route's metadata against this config; see [`OverlayBase::read`].
    pub fn read_route_metadata(&self, text: &[u8]) -> Result<Overlay, ConfigErrors> {
        let has_counter = self.counter.is_some();
        OverlayBase { rules: &self.rules, client_ip: self.client_ip, has_counter }.read(text)
    }
}

impl OverlayBase<'_> {
    /// Reads the JSON text that a route carries in its metadata:
    ///
    /// ```json
    /// { "rules": [{ "name": "export", "key": ["client_ip"], "limits": ["5/1m"] }],
    ///   "tighten": { "login": ["20/1m"] } }
    /// ```
    ///
    /// - `rules` are added, for requests on this route only: whoever asks has seen the route's metadata, so the rules
    ///   themselves do not ask for a route again, which may have no name. Their names must differ from those of the config's
    ///   rules. They cannot name a `route`. Counts belong to a rule's name, so rules with one name in the metadata
    ///   of two routes count together where algorithm and window agree.
    /// - `tighten` lowers limits of rules that the config marks `overridable`, and of no other rule. Each limit
    ///   takes the place of the rule's limit with the same algorithm and window (and number of sub-windows), which
    ///   must exist; it may not allow more than that one, neither requests nor burst, and must agree with it in
    ///   `align` and `warm_up`. Limits that are not named stay.
    /// - Nothing can be removed, loosened, switched off or renamed. If anything is wrong, nothing of it holds and
    ///   the rules of the config stand.
    pub fn read(&self, text: &[u8]) -> Result<Overlay, ConfigErrors> {
        if text.len() > METADATA_LEN_MAX {
            let message = format!("is too long; a route's metadata has at most {METADATA_LEN_MAX} bytes");
            return Err(ConfigError::new("config", message).into());
        }
        let tree = json::parse(text)?;
        let mut report = Report::default();
        let overlay = self.read_overlay(&Node::root(&tree), &mut report);
        report.finish(overlay)
    }

    fn read_overlay(&self, node: &Node, report: &mut Report) -> Option<Overlay> {
        let object = node.object(FIELDS, report)?;
        let mut names = Names::default();
        names.begin_list("the config's rules".to_owned());
        for rule in self.rules {
            let number = names.next_rule();
            names.claim_metric(&rule.name, number, node, report)?;
            names.claim_policies(rule, number, node, report);
        }
        let mut context = Context { names, address: self.client_ip, has_counter: self.has_counter };
        let rules = object.optional("rules", Vec::new(), report, |node, report| {
            let mut rules = read_rules(node, Some("this one"), "rules".to_owned(), &mut context, report)?;
            if rules.len() > METADATA_RULES_MAX {
                node.report(
                    report,
                    format!("must have at most {METADATA_RULES_MAX} items, not {}", rules.len()),
                );
            }
            for rule in &mut rules {
                rule.route = None;
            }
            Some(rules)
        });
        let tightened = object.optional("tighten", Vec::new(), report, |node, report| {
            let entries = node.entries(0..=METADATA_RULES_MAX, report)?;
            let read: Vec<Option<Tightened>> =
                entries.iter().map(|(name, node)| self.read_tightened(name, node, report)).collect();
            read.into_iter().collect()
        });
        Some(Overlay { rules: rules?, tightened: tightened? })
    }

    fn read_tightened(&self, name: &str, node: &Node, report: &mut Report) -> Option<Tightened> {
        let found = self.rules.iter().enumerate().find(|(_, rule)| rule.name == name);
        let Some((place, rule)) = found.filter(|(_, rule)| rule.overridable) else {
            let reason = "is not a rule that the config marks as \"overridable\"";
            node.report(report, format!("{} {reason}", quoted(name)));
            return None;
        };
        let mut limits = rule.limits(0).to_vec();
        let wanted = read_limits(node, report)?;
        for limit in &wanted {
            let own = limits.iter_mut().find(|own| own.counter() == limit.counter());
            let Some(own) = own else {
                let advice = "only the number of requests can change";
                node.report(
                    report,
                    format!("has a limit for which the rule has none of the same kind; {advice}"),
                );
                return None;
            };
            *own = tighter(own, limit).or_else(|| {
                node.report(
                    report,
                    "allows more than the rule does, or in another manner; it can only be tightened",
                );
                None
            })?;
        }
        Some(Tightened { rule: place, limits })
    }
}

/// A limit with the numbers of another, if those allow no more.
fn tighter(own: &RuleLimit, wanted: &RuleLimit) -> Option<RuleLimit> {
    let (mine, theirs) = (own.limit.algorithm(), wanted.limit.algorithm());
    let is_same_manner = match (mine, theirs) {
        (Algorithm::TokenBucket { warm_up_ms, .. }, Algorithm::TokenBucket { warm_up_ms: other, .. }) => {
            warm_up_ms == other && own.is_leaky == wanted.is_leaky
        }
        _ => own.align == wanted.align,
    };
    let allows_no_more =
        wanted.limit.requests() <= own.limit.requests() && wanted.limit.capacity() <= own.limit.capacity();
    (is_same_manner && allows_no_more).then_some(*wanted)
}
