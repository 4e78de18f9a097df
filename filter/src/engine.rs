//! One plugin in one VM: its rules, and what happens to a request.

use crate::charge::{self, Ask, Case, Charged, Judged};
use crate::debts::Debts;
use crate::denials::{Denial, Denials};
use crate::headers::Headers;
use crate::host::{Host, Status};
use crate::metrics::{Metric, Metrics, RuleMetric};
use crate::reply;
use crate::request::Request;
use crate::rules::Rule;
use crate::table::{self, Table, TableError};
use core::fmt;
use tidegate_config::{Config, ConfigErrors, HeaderFamily};
use tidegate_core::Timestamp;

/// The property under which access logs find the decision.
const ACCESS_LOG_PROPERTY: &str = "tidegate";

const NS_PER_MS: u64 = 1_000_000;

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, and its response gets these headers.
    Continue(Vec<(&'static str, String)>),
    /// It was answered.
    Answered,
}

impl Verdict {
    const CONTINUE: Self = Self::Continue(Vec::new());
}

/// Why a plugin could not be configured.
#[derive(Debug)]
pub enum Refusal {
    /// The host would not hand out the configuration.
    Unreadable(Status),
    /// The configuration is wrong.
    Config(ConfigErrors),
    /// There is no place for the counters.
    Table(TableError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(status) => write!(f, "the host would not hand out the config: {status:?}"),
            Self::Config(errors) => write!(f, "the config is refused: {errors}"),
            Self::Table(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Refusal {}

/// One plugin in one VM.
pub struct Engine {
    rules: Vec<Rule>,
    table: Table,
    family: HeaderFamily,
    books: Books,
    /// Scratch space for keys.
    key: Vec<u8>,
}

/// What a VM keeps to itself.
struct Books {
    denials: Denials,
    debts: Debts,
    metrics: Metrics,
}

impl Engine {
    /// Reads the configuration and opens the table.
    pub fn configure(host: &impl Host) -> Result<Self, Refusal> {
        let text = match host.configuration() {
            Ok(text) => text,
            // A plugin without a configuration: the parser knows what to say.
            Err(Status::NotFound) => Vec::new(),
            Err(status) => return Err(Refusal::Unreadable(status)),
        };
        let config = Config::from_json(&text).map_err(Refusal::Config)?;
        let table = Table::open(host, config.table.slots).map_err(Refusal::Table)?;
        let namespace = config.namespace.unwrap_or_else(|| plugin_name(host));
        let rules: Vec<Rule> =
            config.rules.into_iter().filter_map(|rule| Rule::new(rule, &namespace, &table)).collect();
        let metrics = Metrics::define(host, rules.iter().map(Rule::name));
        log::debug!("{} rules, {}", rules.len(), table::describe(config.table.slots));
        Ok(Self {
            rules,
            table,
            family: config.response.headers,
            books: Books { denials: Denials::default(), debts: Debts::default(), metrics },
            key: Vec::new(),
        })
    }

    /// Decides about a request, and answers it if it is denied.
    ///
    /// A host that fails must not take the site down: then the request goes on, and it is counted.
    pub fn on_request(&mut self, host: &impl Host) -> Verdict {
        if self.rules.is_empty() {
            return Verdict::CONTINUE;
        }
        let Self { rules, table, family, books, key } = self;
        let Ok(bytes) = host.request_headers() else {
            return books.fail_open();
        };
        let Some(headers) = Headers::parse(&bytes) else {
            return books.fail_open();
        };
        let request = Request::new(host, headers);
        let mut asks: Vec<Ask<'_>> = rules
            .iter()
            .enumerate()
            .filter_map(|(index, rule)| rule.ask(index, &request, table, key))
            .collect();
        if asks.is_empty() {
            return Verdict::CONTINUE;
        }
        let Ok(now_ns) = host.now_ns() else {
            return books.fail_open();
        };
        let now = Timestamp::from_ms(now_ns.div_euclid(NS_PER_MS));
        let mut shadow = None;
        if let Some((rule, denial)) = books.recall(&mut asks, now, &mut shadow) {
            return books.deny(host, *family, rule, &denial, now);
        }
        let mut cases: Vec<Case<'_>> =
            asks.into_iter().map(|ask| Case { ask, judged: Judged::NONE }).collect();
        let charged = charge::charge(host, &mut cases, now, &mut books.debts, &mut books.metrics);
        let denied = books.note(&cases, charged, now, &mut shadow);
        if let Some((rule, denial)) = denied {
            return books.deny(host, *family, rule, &denial, now);
        }
        if let Some((rule, denial)) = shadow {
            books.log_access(host, "shadow_denied", rule, &denial, now);
        }
        Verdict::Continue(reply::allowed_headers(*family, &cases))
    }

    /// Adds the headers that [`Self::on_request`] decided on.
    pub fn on_response(&mut self, host: &impl Host, headers: &[(&'static str, String)]) {
        for (name, value) in headers {
            if host.add_response_header(name, value).is_err() {
                self.books.metrics.add(Metric::Errors, 1);
            }
        }
    }

    /// Pays debts, hands out metrics, forgets what has ended.
    pub fn on_tick(&mut self, host: &impl Host) {
        let Books { denials, debts, metrics } = &mut self.books;
        debts.pay(host, &self.rules, metrics);
        metrics.flush(host);
        if !denials.is_empty()
            && let Ok(now_ns) = host.now_ns()
        {
            denials.forget_ended(Timestamp::from_ms(now_ns.div_euclid(NS_PER_MS)));
        }
    }
}

type Denied<'r> = (&'r Rule, Denial);

impl Books {
    fn fail_open(&mut self) -> Verdict {
        self.metrics.add(Metric::Errors, 1);
        Verdict::CONTINUE
    }

    /// Sorts out the asks whose denial is remembered: an enforced one is returned, those in shadow are
    /// noted and need no look at the table.
    fn recall<'r>(
        &mut self,
        asks: &mut Vec<Ask<'r>>,
        now: Timestamp,
        shadow: &mut Option<Denied<'r>>,
    ) -> Option<Denied<'r>> {
        if self.denials.is_empty() {
            return None;
        }
        let recalled = |ask: &Ask<'r>| self.denials.find(&ask.identity, now);
        let denied = asks
            .iter()
            .filter(|ask| ask.rule.is_enforced())
            .find_map(|ask| recalled(ask).map(|denial| (ask.rule_index, (ask.rule, denial))));
        if let Some((rule_index, denied)) = denied {
            self.metrics.add_rule(rule_index, RuleMetric::Denied);
            return Some(denied);
        }
        asks.retain(|ask| match recalled(ask) {
            Some(denial) => {
                self.metrics.add_rule(ask.rule_index, RuleMetric::ShadowDenied);
                shadow.get_or_insert((ask.rule, denial));
                false
            }
            None => true,
        });
        None
    }

    /// Counts what came of each case, remembers the refusals, and returns the enforced one to wait for
    /// longest.
    fn note<'r>(
        &mut self,
        cases: &[Case<'r>],
        charged: Charged,
        now: Timestamp,
        shadow: &mut Option<Denied<'r>>,
    ) -> Option<Denied<'r>> {
        let mut denied: Option<(&Case<'r>, Denied<'r>)> = None;
        for case in cases {
            let Case { ask, judged } = case;
            if !judged.is_refused() {
                if charged == Charged::All {
                    self.metrics.add_rule(ask.rule_index, RuleMetric::Allowed);
                }
                continue;
            }
            let denial = Denial::new(judged.retry, violated(case), now);
            self.denials.remember(&ask.identity, denial);
            if ask.rule.is_enforced() {
                self.metrics.add_rule(ask.rule_index, RuleMetric::Denied);
                if denied.is_none_or(|(longest, _)| judged.retry > longest.judged.retry) {
                    denied = Some((case, (ask.rule, denial)));
                }
            } else {
                self.metrics.add_rule(ask.rule_index, RuleMetric::ShadowDenied);
                shadow.get_or_insert((ask.rule, denial));
            }
        }
        denied.map(|(_, denied)| denied)
    }

    fn deny(
        &mut self,
        host: &impl Host,
        family: HeaderFamily,
        rule: &Rule,
        denial: &Denial,
        now: Timestamp,
    ) -> Verdict {
        self.log_access(host, "denied", rule, denial, now);
        match host.reply(&reply::denied(family, rule, denial, now)) {
            Ok(()) => Verdict::Answered,
            // A request that nobody answers would hang: better one too many.
            Err(_) => self.fail_open(),
        }
    }

    fn log_access(&mut self, host: &impl Host, outcome: &str, rule: &Rule, denial: &Denial, now: Timestamp) {
        let text = reply::access_log(outcome, rule, denial, now);
        if host.set_property(ACCESS_LOG_PROPERTY, text.as_bytes()).is_err() {
            self.metrics.add(Metric::Errors, 1);
        }
    }
}

/// Which of the rule's limits said no, a bit for each.
fn violated(case: &Case<'_>) -> u8 {
    let bits = (0_u32..).zip(case.judged.outcomes()).filter(|(_, outcome)| outcome.is_refused());
    bits.filter_map(|(bit, _)| 1_u8.checked_shl(bit)).fold(0, |all, bit| all | bit)
}

/// The plugin's own name: counters of plugins that name no namespace are kept apart by it.
fn plugin_name(host: &impl Host) -> String {
    let part = |name| host.property(&[name]).unwrap_or_default();
    let parts = [part("plugin_name"), part("plugin_root_id")];
    parts.map(|part| String::from_utf8_lossy(&part).into_owned()).join("/")
}
