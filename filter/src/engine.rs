//! One plugin in one VM: its rules, and what happens to a request.

use crate::ask::Home;
use crate::clock::Clock;
use crate::debts::Debts;
use crate::decide::{Act, Books, Decision, Denied};
use crate::denials::{Denial, Denials};
use crate::fleet::asking::{self, decide_without};
use crate::fleet::waiting::Slip;
use crate::fleet::{self, Done, Fleet};
use crate::headers::Headers;
use crate::host::{HeaderPair, Host, Status, now};
use crate::metrics::{Metric, Metrics};
use crate::overlays::Overlays;
use crate::request::Request;
use crate::rules::{self, Common, Demand, Part, Rules};
use crate::settle::{Refunds, Reservation};
use crate::table::{self, HostKind, Region, Size, Table, TableError};
use core::fmt;
use std::rc::Rc;
use tidegate_config::{ClientAddress, Config, ConfigErrors, Facts, wire};
use tidegate_core::slot::ENTRIES;

/// How often metrics are handed over and debts paid.
const TICK_MS: u64 = 500;
/// How often those who waited are seen to while there are more than one callback may see to.
const HURRIED_TICK_MS: u64 = 4;

/// The name under which rules of routes' metadata share their metrics: no rule can have it, for a name begins with a
/// letter.
const METADATA_METRICS: &str = "_route_metadata";

/// What happens to a request.
pub enum Verdict {
    /// It goes on, and leaves this for its response.
    Continue(Passage),
    /// It was answered.
    Answered,
    /// It waits for the counter; what it leaves for its response will be on the slip.
    Wait(Rc<Slip>),
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
    pub(crate) const fn new(headers: Vec<HeaderPair>, reservations: Vec<Reservation>) -> Self {
        Self { headers, reservations }
    }

    /// Whether the response has nothing to do.
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.reservations.is_empty()
    }

    pub(crate) fn take_reservations(&mut self) -> Vec<Reservation> {
        core::mem::take(&mut self.reservations)
    }
}

impl Verdict {
    const CONTINUE: Self = Self::Continue(Passage::new(Vec::new(), Vec::new()));
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
    rules: Rules,
    common: Rc<Common>,
    table: Table,
    client_address: ClientAddress,
    /// What routes say themselves, if anybody reads it.
    overlays: Option<Overlays>,
    books: Books,
    /// The counter, if there is one.
    fleet: Option<Fleet>,
    /// Requests that waited, and must be seen to.
    done: Vec<Done>,
    tick_ms: u64,
    /// While ticks come faster than that: how much of a tick has passed.
    hurried_ms: Option<u64>,
    /// Ticks since metrics were last handed over.
    ticks: u64,
    /// Scratch space for the places of rules that match.
    found: Vec<u32>,
    /// Scratch space for keys.
    key: Vec<u8>,
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
        let size = table_size(&config);
        let table = Table::open(host, size).map_err(Refusal::Table)?;
        let tick_ms = fleet::tick_ms(&config).unwrap_or(TICK_MS);
        let plugin = plugin_name(host);
        let common = Rc::new(Common {
            wire_namespace: wire_namespace(&config, &plugin),
            namespace: config.namespace.unwrap_or(plugin),
            response: config.response,
        });
        let fleet = match config.counter {
            Some(counter) if config.enabled => {
                let namespace = common.wire_namespace.clone();
                Some(Fleet::new(host, counter, namespace, &table).map_err(Refusal::Table)?)
            }
            _ => None,
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
            overlays: reads_metadata.then(|| Overlays::new(Rc::clone(&common), client_address, rule_count)),
            common,
            books: Books {
                denials: Denials::new(),
                debts: Debts::default(),
                refunds: Refunds::default(),
                metrics,
            },
            fleet,
            done: Vec::new(),
            tick_ms,
            hurried_ms: None,
            ticks: 0,
            found: Vec::new(),
            key: Vec::new(),
        })
    }

    /// How often [`Self::on_tick`] should run.
    pub const fn tick_ms(&self) -> u64 {
        self.tick_ms
    }

    /// Decides about a request, and answers it if it is denied; `stream` is the host's number of it.
    ///
    /// A host that fails must not take the site down: then the request goes on, and it is counted.
    pub fn on_request(&mut self, host: &impl Host, stream: u32) -> Verdict {
        if self.rules.is_empty() && self.overlays.is_none() {
            return Verdict::CONTINUE;
        }
        let Self { rules, table, client_address, overlays, books, fleet, done, found, key, .. } = self;
        let Ok(bytes) = host.request_headers() else {
            return fail_open(books);
        };
        let Some(headers) = Headers::parse(&bytes) else {
            return fail_open(books);
        };
        let request = Request::new(host, table.host_kind(), headers);
        let facts = Facts::new(&request, *client_address);
        let metrics = &mut books.metrics;
        let overlay = overlays.as_mut().and_then(|overlays| overlays.find(host, rules, table, metrics));
        let off = fleet.as_ref().map_or(&[][..], Fleet::rules_off);
        let mut demands = Vec::new();
        rules.demand(&facts, table, (overlay.as_deref(), off), (found, key), &mut demands);
        if let Some(overlay) = &overlay {
            overlay.added.demand(&facts, table, (None, off), (found, key), &mut demands);
        }
        if demands.iter().all(|demand| matches!(demand, Demand::Pass)) {
            return Verdict::CONTINUE;
        }
        let Ok(clock) = clock(host, &demands, fleet.as_ref()) else {
            return fail_open(books);
        };
        let mut turn = Turn { host, clock, books, fleet, done };
        turn.decide(demands, stream)
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

    /// A call is over; whether it was one of this plugin's. Afterwards [`Self::next_done`] names those who waited.
    pub fn on_answer(&mut self, host: &impl Host, token: u32, header_count: usize, body_size: usize) -> bool {
        let Self { books, fleet, done, .. } = self;
        let Some(fleet) = fleet else { return false };
        // Those who wait are decided about now: on Kong nobody calls for them again.
        let clock = fleet.clock(host).unwrap_or_else(|_| {
            books.metrics.add(Metric::Errors, 1);
            fleet.latest_clock()
        });
        match fleet.on_answer(host, (token, header_count, body_size), &clock, books) {
            Some(more) => {
                done.extend(more);
                true
            }
            None => false,
        }
    }

    /// A request that waited and is to be seen to: the host's number of it. Those that left meanwhile get back what was
    /// taken for them.
    pub fn next_done(&mut self, host: &impl Host) -> Option<u32> {
        let Self { books, fleet, done, .. } = self;
        for Done { act, taken, .. } in done.extract_if(.., |done| done.slip.has_left()) {
            books.metrics.add(Metric::WaitingLeft, 1);
            if let Act::Admit { mut passage, .. } = act {
                books.settle(host, &mut passage, None);
            }
            for refund in taken {
                if let Some(fleet) = fleet {
                    fleet.outbox.refund(refund, &mut books.metrics);
                }
            }
        }
        done.first().map(|done| done.stream)
    }

    /// Another period for the tick, if it should have one: a short one while there are more who waited than one callback
    /// may see to. Kong sees to each in the callback of its own call, and takes no second period.
    pub fn new_tick_ms(&mut self) -> Option<u64> {
        let is_hurried = !self.done.is_empty() && self.table.host_kind() == HostKind::Envoy;
        let is_news = is_hurried != self.hurried_ms.is_some();
        self.hurried_ms = is_hurried.then(|| self.hurried_ms.unwrap_or(0));
        is_news.then_some(if is_hurried { HURRIED_TICK_MS } else { self.tick_ms })
    }

    /// Sees to the request that [`Self::next_done`] named, which the host has entered; true if it is to go on. False
    /// too if it could not be entered: then it is left alone.
    pub fn see_to(&mut self, host: &impl Host, is_entered: bool) -> bool {
        if self.done.is_empty() {
            return false;
        }
        let Done { slip, act, .. } = self.done.remove(0);
        // On Kong there is nobody else to enter.
        if !is_entered && self.table.host_kind() == HostKind::Envoy {
            self.books.metrics.add(Metric::Errors, 1);
            return false;
        }
        match self.books.perform(host, act) {
            Some(passage) => {
                slip.hand_over(passage);
                true
            }
            None => false,
        }
    }

    /// After all are seen to: those who queued meanwhile are sent for.
    pub fn send_waiting(&mut self, host: &impl Host) {
        let Self { books, fleet, done, .. } = self;
        let Some(fleet) = fleet else { return };
        let Ok(clock) = fleet.clock(host) else { return };
        if let Err(waiters) = fleet.send_waiting(host, &clock, &mut books.metrics) {
            decide_without(host, fleet, waiters, &clock, books, done);
        }
    }

    /// Pays debts, makes refunds, hands out metrics, forgets what has ended, and speaks to the counter.
    pub fn on_tick(&mut self, host: &impl Host) {
        let Self { books, fleet, done, tick_ms, hurried_ms, ticks, .. } = self;
        if let Some(ms) = hurried_ms {
            *ms = ms.saturating_add(HURRIED_TICK_MS);
            if ms < tick_ms {
                return;
            }
            *ms = 0;
        }
        let clock = match fleet {
            Some(fleet) => {
                let clock = fleet.clock(host).unwrap_or_else(|_| {
                    books.metrics.add(Metric::Errors, 1);
                    fleet.latest_clock()
                });
                done.extend(fleet.give_up_lost(host, &clock, books));
                if let Err(waiters) = fleet.tick(host, &clock, &mut books.metrics) {
                    decide_without(host, fleet, waiters, &clock, books, done);
                }
                Some(clock)
            }
            None => None,
        };
        *ticks = ticks.saturating_add(1);
        if ticks.saturating_mul(*tick_ms) < TICK_MS {
            return;
        }
        *ticks = 0;
        keep_books(host, books, clock);
        self.keep_marker(host);
    }

    /// If the table has another secret now, what was counted before is as good as dropped, as its marker was.
    fn keep_marker(&mut self, host: &impl Host) {
        let Self { rules, common, table, books, fleet, .. } = self;
        match table.keep_marker(host) {
            Ok(false) => {}
            Ok(true) => {
                log::warn!(
                    "the proxy's shared data dropped the table's marker, and another worker began a table anew: \
                     counters start again; make the shm_kv zone larger"
                );
                rules.place_anew(common, table);
                if let Some(fleet) = fleet {
                    fleet.move_to(host, table.secret(), &mut books.metrics);
                }
            }
            Err(_) => books.metrics.add(Metric::Errors, 1),
        }
    }

    /// The plugin ends: what cannot be made now is lost, and counted.
    pub fn on_end(&mut self, host: &impl Host) {
        let Self { books, fleet, .. } = self;
        let clock = fleet.as_ref().and_then(|fleet| fleet.clock(host).ok());
        if let (Some(fleet), Some(clock)) = (fleet, &clock) {
            fleet.end(host, clock, &mut books.metrics);
        }
        keep_books(host, books, clock);
        books.refunds.lose(&mut books.metrics);
        books.metrics.flush(host);
    }
}

/// Pays, gives back, hands over, forgets.
fn keep_books(host: &impl Host, books: &mut Books, clock: Option<Clock>) {
    let Books { denials, debts, refunds, metrics } = books;
    let is_busy = !debts.is_empty() || !refunds.is_empty() || !denials.is_empty();
    if is_busy && let Ok(wall) = now(host) {
        let clock = clock.map_or(Clock::wall(wall), |clock| Clock { wall, ..clock });
        debts.pay(host, &clock, metrics);
        refunds.retry(host, wall, metrics);
        denials.forget_ended(&clock);
    }
    metrics.flush(host);
}

fn fail_open(books: &mut Books) -> Verdict {
    books.metrics.add(Metric::Errors, 1);
    Verdict::CONTINUE
}

/// Now, by as few looks as it takes: at the wall clock for rules of this proxy, at the monotonic one for those of the
/// fleet.
fn clock(host: &impl Host, demands: &[Demand<'_>], fleet: Option<&Fleet>) -> Result<Clock, Status> {
    let is_global = |demand: &Demand<'_>| matches!(demand, Demand::Ask(ask) if ask.home != Home::Table);
    match fleet.filter(|_| demands.iter().any(is_global)) {
        None => now(host).map(Clock::wall),
        Some(fleet) if demands.iter().all(is_global) => fleet.clock(host),
        Some(fleet) => Ok(Clock { wall: now(host)?, ..fleet.clock(host)? }),
    }
}

/// One request's turn.
struct Turn<'e, H> {
    host: &'e H,
    clock: Clock,
    books: &'e mut Books,
    fleet: &'e mut Option<Fleet>,
    done: &'e mut Vec<Done>,
}

impl<H: Host> Turn<'_, H> {
    fn decide(&mut self, demands: Vec<Demand<'_>>, stream: u32) -> Verdict {
        let Self { host, clock, books, .. } = self;
        let mut shadow = None;
        let mut asks = Vec::with_capacity(demands.len());
        let mut denied = None;
        for demand in demands {
            match demand {
                Demand::Pass => {}
                Demand::Ask(ask) => asks.push(ask),
                Demand::Deny { rule, enforced } => {
                    let no = Denied::outright(rule, Denial::for_good(clock.wall));
                    books.note_outright(no, enforced, &mut denied, &mut shadow);
                }
            }
        }
        if let Some(denied) = denied.or_else(|| books.recall(&mut asks, clock, &mut shadow)) {
            let act = Books::deny(&denied, clock);
            return verdict(books.perform(*host, act));
        }
        let act = match self.fleet {
            Some(fleet) if asks.iter().any(|ask| ask.home != Home::Table) => {
                let act = asking::ask(*host, (fleet, self.done), (asks, shadow), stream, clock, books);
                match act {
                    Ok(act) => act,
                    Err(slip) => return Verdict::Wait(slip),
                }
            }
            _ => match books.decide(*host, asks, Vec::new(), shadow, (clock, None)) {
                Decision::Made { act, .. } => act,
                // Nothing is leased without a fleet.
                Decision::Lacking { .. } => Act::admission(),
            },
        };
        verdict(books.perform(*host, act))
    }
}

fn verdict(passage: Option<Passage>) -> Verdict {
    passage.map_or(Verdict::Answered, Verdict::Continue)
}

/// The namespace at the counter: one that it takes.
fn wire_namespace(config: &Config, plugin: &str) -> String {
    let named =
        config.counter.as_ref().and_then(|counter| counter.namespace.as_ref()).or(config.namespace.as_ref());
    if let Some(named) = named {
        return named.clone();
    }
    let fitting = |sign: char| if sign.is_ascii_alphanumeric() || "._-".contains(sign) { sign } else { '-' };
    let plugin: String =
        plugin.trim_matches('/').chars().map(fitting).take(wire::NAMESPACE_LEN_MAX).collect();
    if plugin.is_empty() { wire::NAMESPACE_DEFAULT.to_owned() } else { plugin }
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
