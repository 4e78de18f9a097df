//! Metrics, added up in the VM and handed to the host from the tick: a host call for each would cost every
//! request. What the host does not take stays until it does.

use crate::host::Host;
use tidegate_config::rule_metric_name;

/// What the whole filter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// A slot was written by somebody else between our read and our write.
    CasRetries,
    /// A charge was not made with its request: the tries ran out, or the host failed.
    CasGiveUps,
    /// Living entries displaced from a full slot.
    Evictions,
    /// Of those, entries of another rule than the newcomer's.
    ForeignEvictions,
    /// Host calls that failed on a request's way; the request went on.
    Errors,
    /// Charges lost because too many were owed at once.
    DebtDropped,
    /// Charges that should have been undone or given back and were not: that key is over-charged.
    UndosLost,
    /// Stored bytes that were no state or slot, and were taken for fresh.
    BadStates,
    /// Requests on a route whose metadata is wrong: nothing of it held.
    RouteMetadataErrors,
    /// Calls to the counter.
    CounterCalls,
    /// Of those, calls that failed or came late.
    CounterFailures,
    /// The counter had lost what it counted.
    CounterEpochs,
    /// Requests that were decided without the counter, as `on_failure` says.
    FallBacks,
    /// Admissions that the counter will never hear of.
    ReportsDropped,
    /// Clients that left while they waited for the counter.
    WaitingLeft,
    /// What was granted, not spent, and given back.
    GrantsReturned,
}

const METRICS: [(Metric, &str); 16] = [
    (Metric::CasRetries, "tidegate_cas_retries"),
    (Metric::CasGiveUps, "tidegate_cas_give_ups"),
    (Metric::Evictions, "tidegate_evictions"),
    (Metric::ForeignEvictions, "tidegate_foreign_evictions"),
    (Metric::Errors, "tidegate_errors"),
    (Metric::DebtDropped, "tidegate_debt_dropped"),
    (Metric::UndosLost, "tidegate_undos_lost"),
    (Metric::BadStates, "tidegate_bad_states"),
    (Metric::RouteMetadataErrors, "tidegate_route_metadata_errors"),
    (Metric::CounterCalls, "tidegate_counter_calls"),
    (Metric::CounterFailures, "tidegate_counter_failures"),
    (Metric::CounterEpochs, "tidegate_counter_epochs"),
    (Metric::FallBacks, "tidegate_fallbacks"),
    (Metric::ReportsDropped, "tidegate_reports_dropped"),
    (Metric::WaitingLeft, "tidegate_waiting_left"),
    (Metric::GrantsReturned, "tidegate_grants_returned"),
];

/// What is counted for each rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleMetric {
    /// Requests that the rule applied to and that went on.
    Allowed,
    /// Requests that it denied.
    Denied,
    /// Requests that it would have denied, had it not been in shadow.
    ShadowDenied,
}

const RULE_METRICS: [(RuleMetric, &str); 3] = [
    (RuleMetric::Allowed, "tidegate_allowed_rule_"),
    (RuleMetric::Denied, "tidegate_denied_rule_"),
    (RuleMetric::ShadowDenied, "tidegate_shadow_denied_rule_"),
];

/// The counters of one plugin in this VM.
pub(crate) struct Metrics {
    counters: Vec<Counter>,
}

struct Counter {
    name: String,
    /// The host's id; none while the host has refused to make it.
    id: Option<u32>,
    pending: u64,
}

impl Metrics {
    /// Makes all counters at once, so that a dashboard sees zeros and not gaps.
    pub(crate) fn define<'r>(host: &impl Host, rules: impl Iterator<Item = &'r str>) -> Self {
        let filter = METRICS.iter().map(|(_, name)| (*name).to_owned());
        let rules = rules.flat_map(|rule| {
            RULE_METRICS.iter().map(move |(_, prefix)| format!("{prefix}{}", rule_metric_name(rule)))
        });
        let counter = |name: String| Counter { id: host.define_counter(&name).ok(), name, pending: 0 };
        Self { counters: filter.chain(rules).map(counter).collect() }
    }

    pub(crate) fn add(&mut self, metric: Metric, amount: u64) {
        let index = METRICS.iter().position(|(other, _)| *other == metric);
        self.add_at(index, amount);
    }

    pub(crate) fn add_rule(&mut self, rule_index: usize, metric: RuleMetric) {
        let own = RULE_METRICS.iter().position(|(other, _)| *other == metric).unwrap_or(0);
        let before = rule_index.saturating_mul(RULE_METRICS.len()).saturating_add(METRICS.len());
        self.add_at(before.checked_add(own), 1);
    }

    fn add_at(&mut self, index: Option<usize>, amount: u64) {
        if let Some(counter) = index.and_then(|index| self.counters.get_mut(index)) {
            counter.pending = counter.pending.saturating_add(amount);
        }
    }

    /// Hands everything to the host.
    pub(crate) fn flush(&mut self, host: &impl Host) {
        for counter in self.counters.iter_mut().filter(|counter| counter.pending > 0) {
            if counter.id.is_none() {
                counter.id = host.define_counter(&counter.name).ok();
            }
            let Some(id) = counter.id else { continue };
            if host.add_to_counter(id, counter.pending).is_ok() {
                counter.pending = 0;
            }
        }
    }
}
