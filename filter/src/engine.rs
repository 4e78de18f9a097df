//! One plugin in one VM: its rules, and what happens to a request.

use crate::charge::{self, Ask, Case, Charged, Judged};
use crate::debts::Debts;
use crate::denials::{Denial, Denials};
use crate::headers::Headers;
use crate::host::{HeaderPair, Host, Status, now};
use crate::metrics::{Metric, Metrics, RuleMetric};
use crate::overlays::Overlays;
use crate::reply;
use crate::request::Request;
use crate::rules::{self, Common, CountedLimit, Demand, Part, Rule, Rules};
use crate::settle::{Refunds, Reservation, settle};
use crate::table::{self, HostKind, Region, Size, Table, TableError};
use core::fmt;
use tidegate_config::{ClientAddress, Config, ConfigErrors, Facts};
use tidegate_core::slot::ENTRIES;
use tidegate_core::{Retry, Timestamp};

/// The property under which access logs find the decision.
const ACCESS_LOG_PROPERTY: &str = "tidegate";

/// The name under which rules of routes' metadata share their metrics: no rule can have it, for a name begins with a
/// letter.
const METADATA_METRICS: &str = "_route_metadata";

/// What happens to a request.
pub enum Verdict {
    /// It goes on, and leaves this for its response.
    Continue(Passage),
    /// It was answered.
    Answered,
}

/// What a request leaves for its response.
#[derive(Default)]
pub struct Passage {
    /// The headers that the response gets.
    pub headers: Vec<HeaderPair>,
    /// What the response settles.
    reservations: Vec<Reservation>,
}

impl Passage {
    const NOTHING: Self = Self { headers: Vec::new(), reservations: Vec::new() };

    /// Whether the response has nothing to do.
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.reservations.is_empty()
    }
}

impl Verdict {
    const CONTINUE: Self = Self::Continue(Passage::NOTHING);
}

/// Why a plugin could not be configured.
#[derive(Debug)]
pub enum Refusal {
    /// The host would not hand out the configuration.
    Unreadable(Status),
    /// The configuration is wrong.
    Config(ConfigErrors),
    /// The configuration asks for what this filter cannot do yet.
    NotYet(String),
    /// There is no place for the counters.
    Table(TableError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(status) => write!(f, "the host would not hand out the config: {status:?}"),
            Self::Config(errors) => write!(f, "the config is refused: {errors}"),
            Self::NotYet(what) => write!(f, "the config is refused: {what}"),
            Self::Table(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Refusal {}

/// One plugin in one VM.
pub struct Engine {
    rules: Rules,
    table: Table,
    client_address: ClientAddress,
    /// What routes say themselves, if anybody reads it.
    overlays: Option<Overlays>,
    books: Books,
    /// Scratch space for the places of rules that match.
    found: Vec<u32>,
    /// Scratch space for keys.
    key: Vec<u8>,
}

/// What a VM keeps to itself.
struct Books {
    denials: Denials,
    debts: Debts,
    refunds: Refunds,
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
        refuse_what_is_not_built_yet(&config)?;
        let size = table_size(&config);
        let table = Table::open(host, size).map_err(Refusal::Table)?;
        let common = Common {
            namespace: config.namespace.unwrap_or_else(|| plugin_name(host)),
            response: config.response,
        };
        let client_address = config.client_ip;
        let enabled = if config.enabled { config.rules } else { Vec::new() };
        let rules = Rules::new(enabled, &common, &table, &|index| Part { metrics_of: index, variant: 0 });
        let reads_metadata = config.enabled && config.route_metadata && is_readable(&table);
        let of_metadata = reads_metadata.then_some(METADATA_METRICS);
        let metrics = Metrics::define(host, rules.names().chain(of_metadata));
        let rule_count = rules.names().count();
        log::debug!("{rule_count} rules, {}", table::describe(size));
        Ok(Self {
            rules,
            table,
            client_address,
            overlays: reads_metadata.then(|| Overlays::new(common, client_address, rule_count)),
            books: Books {
                denials: Denials::new(),
                debts: Debts::default(),
                refunds: Refunds::default(),
                metrics,
            },
            found: Vec::new(),
            key: Vec::new(),
        })
    }

    /// Decides about a request, and answers it if it is denied.
    ///
    /// A host that fails must not take the site down: then the request goes on, and it is counted.
    pub fn on_request(&mut self, host: &impl Host) -> Verdict {
        if self.rules.is_empty() && self.overlays.is_none() {
            return Verdict::CONTINUE;
        }
        let Self { rules, table, client_address, overlays, books, found, key } = self;
        let Ok(bytes) = host.request_headers() else {
            return books.fail_open();
        };
        let Some(headers) = Headers::parse(&bytes) else {
            return books.fail_open();
        };
        let request = Request::new(host, table.host_kind(), headers);
        let facts = Facts::new(&request, *client_address);
        let metrics = &mut books.metrics;
        let overlay = overlays.as_mut().and_then(|overlays| overlays.find(host, rules, table, metrics));
        let mut demands = Vec::new();
        rules.demand(&facts, table, overlay.as_deref(), (found, key), &mut demands);
        if let Some(overlay) = &overlay {
            overlay.added.demand(&facts, table, None, (found, key), &mut demands);
        }
        if demands.iter().all(|demand| matches!(demand, Demand::Pass)) {
            return Verdict::CONTINUE;
        }
        let Ok(now) = now(host) else {
            return books.fail_open();
        };
        books.decide(host, demands, now)
    }

    /// Settles what [`Self::on_request`] reserved, and adds the headers that it decided on.
    pub fn on_response(&mut self, host: &impl Host, passage: &mut Passage) {
        if !passage.reservations.is_empty() {
            let response = host.response_headers();
            if response.is_err() {
                self.books.metrics.add(Metric::Errors, 1);
            }
            self.books.settle(host, passage, response.ok().as_deref());
        }
        for (name, value) in core::mem::take(&mut passage.headers) {
            if host.add_response_header(&name, &value).is_err() {
                self.books.metrics.add(Metric::Errors, 1);
            }
        }
    }

    /// The request ends without a response: settles what it reserved. What had a response is settled already.
    pub fn on_no_response(&mut self, host: &impl Host, passage: &mut Passage) {
        self.books.settle(host, passage, None);
    }

    /// Pays debts, makes refunds, hands out metrics, forgets what has ended.
    pub fn on_tick(&mut self, host: &impl Host) {
        let Books { denials, debts, refunds, metrics } = &mut self.books;
        debts.pay(host, metrics);
        refunds.retry(host, metrics);
        metrics.flush(host);
        if !denials.is_empty()
            && let Ok(now) = now(host)
        {
            denials.forget_ended(now);
        }
    }

    /// The plugin ends: what cannot be made now is lost, and counted.
    pub fn on_end(&mut self, host: &impl Host) {
        let Books { debts, refunds, metrics, .. } = &mut self.books;
        debts.pay(host, metrics);
        refunds.retry(host, metrics);
        refunds.lose(metrics);
        metrics.flush(host);
    }
}

/// A rule that said no, the limits that it looked at, and what that means.
#[derive(Clone, Copy)]
struct Denied<'r> {
    rule: &'r Rule,
    limits: &'r [CountedLimit],
    denial: Denial,
}

impl Books {
    fn fail_open(&mut self) -> Verdict {
        self.metrics.add(Metric::Errors, 1);
        Verdict::CONTINUE
    }

    fn decide(&mut self, host: &impl Host, demands: Vec<Demand<'_>>, now: Timestamp) -> Verdict {
        let mut shadow = None;
        let mut asks = Vec::with_capacity(demands.len());
        let mut denied = None;
        for demand in demands {
            match demand {
                Demand::Pass => {}
                Demand::Ask(ask) => asks.push(ask),
                Demand::Deny { rule, enforced } => {
                    let said_no = Denied { rule, limits: &[], denial: Denial::for_good(now) };
                    let (metric, noted) = no(enforced, &mut denied, &mut shadow);
                    self.metrics.add_rule(rule.metrics_of, metric);
                    noted.get_or_insert(said_no);
                }
            }
        }
        if let Some(denied) = denied.or_else(|| self.recall(&mut asks, now, &mut shadow)) {
            return self.deny(host, &denied, now);
        }
        let mut cases: Vec<Case<'_>> =
            asks.into_iter().map(|ask| Case { ask, judged: Judged::NONE }).collect();
        let charged = charge::charge(host, &mut cases, now, &mut self.debts, &mut self.metrics);
        if let Some(denied) = self.note(&cases, charged, now, &mut shadow) {
            return self.deny(host, &denied, now);
        }
        if let Some(shadow) = shadow {
            self.log_access(host, "shadow_denied", &shadow, now);
        }
        let headers = reply::allowed_headers(&cases);
        Verdict::Continue(Passage { headers, reservations: Reservation::of(&cases, now) })
    }

    /// Once: what is settled is not there any more.
    fn settle(&mut self, host: &impl Host, passage: &mut Passage, response: Option<&[u8]>) {
        let reservations = core::mem::take(&mut passage.reservations);
        settle(host, reservations, response, (&mut self.debts, &mut self.refunds, &mut self.metrics));
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
        let recalled = |ask: &Ask<'r>| {
            let denial = self.denials.find(ask, now)?;
            Some(Denied { rule: ask.rule, limits: ask.limits, denial })
        };
        let mut enforced = asks.iter().filter(|ask| ask.enforced);
        let denied = enforced.find_map(|ask| Some((ask.rule.metrics_of, recalled(ask)?)));
        if let Some((metrics_of, denied)) = denied {
            self.metrics.add_rule(metrics_of, RuleMetric::Denied);
            return Some(denied);
        }
        asks.retain(|ask| match recalled(ask) {
            Some(denied) => {
                self.metrics.add_rule(ask.rule.metrics_of, RuleMetric::ShadowDenied);
                shadow.get_or_insert(denied);
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
        let mut denied = None;
        let mut longest = Retry::Now;
        for Case { ask, judged } in cases {
            if !judged.is_refused() {
                if charged == Charged::All {
                    self.metrics.add_rule(ask.rule.metrics_of, RuleMetric::Allowed);
                }
                continue;
            }
            let denial = Denial::new(ask, judged, now);
            // A denial that is counted must meet its counter every time, and one by reservations may end at any.
            if !ask.rule.count_denied && ask.rule.settlement.is_none() {
                self.denials.remember(&ask.identity, denial);
            }
            let said_no = Denied { rule: ask.rule, limits: ask.limits, denial };
            if ask.enforced && judged.retry > longest {
                longest = judged.retry;
                denied = None;
            }
            let (metric, noted) = no(ask.enforced, &mut denied, shadow);
            self.metrics.add_rule(ask.rule.metrics_of, metric);
            noted.get_or_insert(said_no);
        }
        denied
    }

    fn deny(&mut self, host: &impl Host, denied: &Denied<'_>, now: Timestamp) -> Verdict {
        self.log_access(host, "denied", denied, now);
        match host.reply(&reply::denied(denied.rule, denied.limits, &denied.denial, now)) {
            Ok(()) => Verdict::Answered,
            // A request that nobody answers would hang: better one too many.
            Err(_) => self.fail_open(),
        }
    }

    fn log_access(&mut self, host: &impl Host, outcome: &str, denied: &Denied<'_>, now: Timestamp) {
        let text = reply::access_log(outcome, denied.rule, &denied.denial, now);
        if host.set_property(ACCESS_LOG_PROPERTY, text.as_bytes()).is_err() {
            self.metrics.add(Metric::Errors, 1);
        }
    }
}

/// How a no is counted, and where it is noted.
fn no<'n, T>(
    enforced: bool,
    denied: &'n mut Option<T>,
    shadow: &'n mut Option<T>,
) -> (RuleMetric, &'n mut Option<T>) {
    if enforced { (RuleMetric::Denied, denied) } else { (RuleMetric::ShadowDenied, shadow) }
}

/// A limit that is silently not kept is worse than none: say what cannot be honoured.
fn refuse_what_is_not_built_yet(config: &Config) -> Result<(), Refusal> {
    if let Some(rule) = config.rules.iter().find(|rule| rule.global.is_some()) {
        return Err(Refusal::NotYet(format!(
            "rule \"{}\" asks for `global`, and this filter keeps limits within one proxy only; remove `global`",
            rule.name
        )));
    }
    if config.counter.is_some() {
        return Err(Refusal::NotYet(
            "`counter` is of no use yet, for this filter calls none; remove it".to_owned(),
        ));
    }
    Ok(())
}

/// Kong's routes have none.
fn is_readable(table: &Table) -> bool {
    let is_readable = table.host_kind() == HostKind::Envoy;
    if !is_readable {
        log::warn!(
            "`route_metadata` is of no use in Kong, whose routes carry none; put the rules under `routes`"
        );
    }
    is_readable
}

/// Large slots are laid out only if a rule needs them or a route's metadata may, and sized as the small ones should
/// be: a quarter full.
fn table_size(config: &Config) -> Size {
    const LOAD_INVERSE: u32 = 4;
    let needs_large =
        config.route_metadata || config.rules.iter().any(|rule| rules::region(rule) == Region::Large);
    let places = config.table.large_keys.saturating_mul(LOAD_INVERSE);
    let entries = u32::try_from(ENTRIES).unwrap_or(1);
    let large = places.div_ceil(entries).checked_next_power_of_two().unwrap_or(u32::MAX);
    Size { small: config.table.slots, large: if needs_large { large } else { 0 } }
}

/// The plugin's own name: counters of plugins that name no namespace are kept apart by it.
fn plugin_name(host: &impl Host) -> String {
    let part = |name| host.property(&[name]).unwrap_or_default();
    let parts = [part("plugin_name"), part("plugin_root_id")];
    parts.map(|part| String::from_utf8_lossy(&part).into_owned()).join("/")
}
