//! What a VM decides in the table, and what the client is told.

use crate::ask::{Ask, Case, Home, Judged};
use crate::charge::{self, Charged};
use crate::clock::Clock;
use crate::debts::Debts;
use crate::denials::{Denial, Denials};
use crate::engine::Passage;
use crate::fleet::leases::Leases;
use crate::host::{Host, Reply};
use crate::metrics::{Metric, Metrics, RuleMetric};
use crate::reply;
use crate::rules::Rule;
use crate::settle::{Refunds, Reservation, settle};
use std::rc::Rc;
use tidegate_core::Retry;

/// The property under which access logs find the decision.
const ACCESS_LOG_PROPERTY: &str = "tidegate";

/// What a VM keeps to itself.
pub(crate) struct Books {
    pub(crate) denials: Denials,
    pub(crate) debts: Debts,
    pub(crate) refunds: Refunds,
    pub(crate) metrics: Metrics,
}

/// A rule that said no, the limits that it looked at, and what that means.
#[derive(Clone)]
pub(crate) struct Denied {
    pub(crate) rule: Rc<Rule>,
    /// The plan; none if it looked at no limit.
    limit_set: Option<usize>,
    denial: Denial,
}

impl Denied {
    /// A rule that denies without a look at its limits.
    pub(crate) fn outright(rule: &Rc<Rule>, denial: Denial) -> Self {
        Self { rule: Rc::clone(rule), limit_set: None, denial }
    }

    fn by(ask: &Ask, denial: Denial) -> Self {
        Self { rule: Rc::clone(&ask.rule), limit_set: Some(ask.limit_set), denial }
    }
}

/// What is to be done with a request.
pub(crate) enum Act {
    /// It goes on, and leaves this for its response.
    Admit {
        passage: Passage,
        /// What the access log says.
        log: Option<String>,
    },
    /// It is answered.
    Deny { reply: Reply, log: String },
}

/// What the table says to a request.
pub(crate) enum Decision {
    Made {
        act: Act,
        /// What was asked, with what came of each.
        cases: Vec<Case>,
    },
    /// Too little is granted; the counter must be asked.
    Lacking { cases: Vec<Case>, shadow: Option<Denied> },
}

impl Act {
    /// It goes on, and nothing more.
    pub(crate) fn admission() -> Self {
        Self::Admit { passage: Passage::default(), log: None }
    }

    /// Kong drops the connection if a call that had a body timed out, and the answer then has one too.
    pub(crate) fn drop_body(&mut self) {
        if let Self::Deny { reply, .. } = self {
            reply.body.clear();
            reply.headers.retain(|(name, _)| name != "content-type");
        }
    }

    pub(crate) const fn is_admission(&self) -> bool {
        matches!(self, Self::Admit { .. })
    }
}

impl Books {
    /// Decides about what is asked of the table, beside what the counter has `judged` and not refused.
    pub(crate) fn decide(
        &mut self,
        host: &impl Host,
        asks: Vec<Ask>,
        judged: Vec<Case>,
        mut shadow: Option<Denied>,
        (clock, leases): (&Clock, Option<&Leases>),
    ) -> Decision {
        let mut cases: Vec<Case> = asks.into_iter().map(|ask| Case { ask, judged: Judged::NONE }).collect();
        let charged = charge::charge(host, &mut cases, clock, &mut self.debts, &mut self.metrics);
        if charged == Charged::Lacking {
            return Decision::Lacking { cases, shadow };
        }
        cases.extend(judged);
        let denied = self.note(&cases, charged, clock, &mut shadow);
        let act = match denied {
            Some(denied) => Self::deny(&denied, clock),
            None => admit(&cases, shadow, (clock, leases)),
        };
        Decision::Made { act, cases }
    }

    /// The counter has refused.
    pub(crate) fn refuse(&mut self, cases: &[Case], clock: &Clock) -> Act {
        match self.note(cases, Charged::Nothing, clock, &mut None) {
            Some(denied) => Self::deny(&denied, clock),
            None => Act::admission(),
        }
    }

    pub(crate) fn deny(denied: &Denied, clock: &Clock) -> Act {
        let Denied { rule, limit_set, denial } = denied;
        let limits = limit_set.map_or(&[][..], |limit_set| rule.limits(limit_set));
        Act::Deny {
            log: reply::access_log("denied", rule, denial, clock),
            reply: reply::denied(rule, limits, denial, clock),
        }
    }

    /// Does what is to be done with the request at hand; whether it goes on, and with what.
    ///
    /// A request that nobody answers would hang: if the host takes no answer, better one too many.
    pub(crate) fn perform(&mut self, host: &impl Host, act: Act) -> Option<Passage> {
        let (log, reply) = match act {
            Act::Admit { passage, log } => {
                self.log_access(host, log.as_deref());
                return Some(passage);
            }
            Act::Deny { reply, log } => (log, reply),
        };
        self.log_access(host, Some(&log));
        if host.reply(&reply).is_ok() {
            return None;
        }
        self.metrics.add(Metric::Errors, 1);
        Some(Passage::default())
    }

    fn log_access(&mut self, host: &impl Host, text: Option<&str>) {
        if let Some(text) = text
            && host.set_property(ACCESS_LOG_PROPERTY, text.as_bytes()).is_err()
        {
            self.metrics.add(Metric::Errors, 1);
        }
    }

    /// Once: what is settled is not there any more.
    pub(crate) fn settle(&mut self, host: &impl Host, passage: &mut Passage, response: Option<&[u8]>) {
        let reservations = passage.take_reservations();
        settle(host, reservations, response, (&mut self.debts, &mut self.refunds, &mut self.metrics));
    }

    /// Sorts out the asks whose denial is remembered: those in shadow are counted and noted and need no look at the
    /// table, an enforced one is returned.
    pub(crate) fn recall(
        &mut self,
        asks: &mut Vec<Ask>,
        clock: &Clock,
        shadow: &mut Option<Denied>,
    ) -> Option<Denied> {
        if self.denials.is_empty() {
            return None;
        }
        asks.retain(|ask| match (!ask.enforced).then(|| recalled(&self.denials, ask, clock)).flatten() {
            Some(denied) => {
                self.metrics.add_rule(ask.rule.metrics_of, RuleMetric::ShadowDenied);
                shadow.get_or_insert(denied);
                false
            }
            None => true,
        });
        self.recall_enforced(asks, clock)
    }

    /// The remembered denial of an ask that is enforced: counted, and nothing else is done about it.
    pub(crate) fn recall_enforced(&mut self, asks: &[Ask], clock: &Clock) -> Option<Denied> {
        let mut enforced = asks.iter().filter(|ask| ask.enforced);
        let denied = enforced.find_map(|ask| recalled(&self.denials, ask, clock))?;
        self.metrics.add_rule(denied.rule.metrics_of, RuleMetric::Denied);
        Some(denied)
    }

    /// A rule that denies without a look at its limits: counted, and noted where it belongs.
    pub(crate) fn note_outright(
        &mut self,
        said_no: Denied,
        enforced: bool,
        denied: &mut Option<Denied>,
        shadow: &mut Option<Denied>,
    ) {
        let (metric, noted) = no(enforced, denied, shadow);
        self.metrics.add_rule(said_no.rule.metrics_of, metric);
        noted.get_or_insert(said_no);
    }

    /// Counts what came of each case, remembers the refusals, and returns the enforced one to wait for
    /// longest.
    fn note(
        &mut self,
        cases: &[Case],
        charged: Charged,
        clock: &Clock,
        shadow: &mut Option<Denied>,
    ) -> Option<Denied> {
        let mut denied = None;
        let mut longest = Retry::Now;
        for Case { ask, judged } in cases {
            if !judged.is_refused() {
                if charged == Charged::All {
                    self.metrics.add_rule(ask.rule.metrics_of, RuleMetric::Allowed);
                }
                continue;
            }
            let denial = Denial::new(ask, judged, clock);
            // A denial that is counted must meet its counter every time, and one by reservations may end at any.
            if !ask.rule.count_denied && ask.rule.settlement.is_none() {
                self.denials.remember(&ask.identity, denial);
            }
            if ask.enforced && judged.retry > longest {
                longest = judged.retry;
                denied = None;
            }
            let (metric, noted) = no(ask.enforced, &mut denied, shadow);
            self.metrics.add_rule(ask.rule.metrics_of, metric);
            noted.get_or_insert_with(|| Denied::by(ask, denial));
        }
        denied
    }
}

fn recalled(denials: &Denials, ask: &Ask, clock: &Clock) -> Option<Denied> {
    Some(Denied::by(ask, denials.find(ask, clock)?))
}

/// What an admitted request leaves, and what the access log says of rules in shadow that would have denied it.
fn admit(cases: &[Case], shadow: Option<Denied>, (clock, leases): (&Clock, Option<&Leases>)) -> Act {
    let log = shadow.map(|shadow| reply::access_log("shadow_denied", &shadow.rule, &shadow.denial, clock));
    let headers = reply::allowed_headers(cases, leases);
    Act::Admit { passage: Passage::new(headers, Reservation::of(cases, clock.wall)), log }
}

/// How a no is counted, and where it is noted.
fn no<'n, T>(
    enforced: bool,
    denied: &'n mut Option<T>,
    shadow: &'n mut Option<T>,
) -> (RuleMetric, &'n mut Option<T>) {
    if enforced { (RuleMetric::Denied, denied) } else { (RuleMetric::ShadowDenied, shadow) }
}

/// Whether the table, as it stands, denies any of these; nothing is written.
pub(crate) fn denies_now(
    host: &impl Host,
    asks: &[Ask],
    clock: &Clock,
    books: &mut Books,
) -> Option<Vec<Case>> {
    let mut cases: Vec<Case> =
        asks.iter().map(|ask| Case { ask: ask.clone(), judged: Judged::NONE }).collect();
    let charged = charge::peek(host, &mut cases, clock, &books.debts, &mut books.metrics);
    (charged == Charged::Nothing).then_some(cases)
}

/// Which of a request's asks the counter must answer: those that it always does, and, since the request waits anyway,
/// those that lease.
pub(crate) fn asked_of_counter(asks: Vec<Ask>) -> (Vec<Ask>, Vec<Ask>) {
    let (mut asked, here): (Vec<Ask>, Vec<Ask>) =
        asks.into_iter().partition(|ask| matches!(ask.home, Home::Counter | Home::Leased));
    for ask in &mut asked {
        ask.home = Home::Counter;
    }
    (asked, here)
}
