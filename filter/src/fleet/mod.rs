//! The counter, as one VM knows it: what it is asked, what it is told, and what holds while it is not there.
//!
//! One call is under way at a time. It carries up to 32 requests that wait, what was admitted without asking, asks for
//! grants, and refunds; whoever comes meanwhile goes with the next. A call that failed is kept and made again with the
//! same number, so that nothing is counted twice; until it is answered nobody waits. On Kong a call belongs to the
//! request that makes it, so each that waits makes its own, and all else goes from the tick.

pub(crate) mod asking;
mod circuit;
mod flight;
mod landing;
pub(crate) mod leases;
pub(crate) mod outbox;
pub(crate) mod waiting;

use crate::ask::{Ask, Case, Home};
use crate::clock::{Clock, Offset};
use crate::decide::Act;
use crate::host::{Call, HeaderPair, Host, Status, monotonic, now};
use crate::identity::{Secret, proxy_number};
use crate::metrics::{Metric, Metrics};
use crate::planted::{self, Bug};
use crate::table::{HostKind, Table, TableError};
use circuit::Circuit;
use core::cell::Cell;
use flight::{Flight, Item, Size};
use leases::Leases;
use outbox::{Outbox, Refund};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use tidegate_config::wire::{POSTCARD, REMEMBERED_MS, Sender};
use tidegate_config::{Config, Counter, GlobalMode, OnFailure};
use tidegate_core::Timestamp;
use waiting::{Slip, Waiter};

/// Requests that are answered in one callback: each enters the VM again one level deeper, and V8's stack ends.
const WAITERS_PER_CALL_MAX: usize = 32;
/// Requests that wait at once in one VM; one more is decided without the counter.
const WAITERS_MAX: usize = 1_024;
/// A VM that has nothing to say asks the counter this often. A little less often than a denial is forgotten: a request
/// that asks again then saves the poll.
const POLL_MS: u64 = 5_200;
/// How often a VM that leases looks after its grants.
const LEASE_TICK_MS: u64 = 100;
/// A failed call is made again for so long: a little less than the counter remembers it.
const RETRIED_MS_MAX: u64 = REMEMBERED_MS - 10_000;
/// VMs tell each other of the counter's clock when it is so much from what they said before.
const CLOCK_NEWS_MS: u64 = 250;
/// A call whose answer is so much overdue will have none: the host has dropped it.
const LOST_MS: u64 = 5_000;

/// The counter, as one VM knows it.
pub(crate) struct Fleet {
    counter: Counter,
    namespace: String,
    headers: Vec<HeaderPair>,
    host_kind: HostKind,
    proxy: u64,
    vm: u32,
    sequence: u64,
    /// From the monotonic clock to the counter's, and to the proxy's own.
    to_fleet: Offset,
    to_wall: Offset,
    /// What the VMs of this proxy have told each other of the first.
    published: Option<i64>,
    circuit: Circuit,
    flight: Option<Flight>,
    /// Calls that requests of Kong have made for themselves.
    own_flights: BTreeMap<u32, Flight>,
    queue: VecDeque<Waiter>,
    pub(crate) outbox: Outbox,
    pub(crate) leases: Leases,
    proxies: u32,
    epoch: Option<u64>,
    rules_off: Vec<String>,
    /// When the monotonic clock was last looked at.
    latest: Cell<Timestamp>,
    /// When it last tried to speak to the counter.
    spoke_at: Option<Timestamp>,
}

/// What a request that waited is to do.
pub(crate) struct Done {
    pub(crate) stream: u32,
    pub(crate) slip: Rc<Slip>,
    pub(crate) act: Act,
    /// What the counter took for it, should it leave before it is seen to.
    pub(crate) taken: Vec<Refund>,
}

impl Done {
    /// One for which the counter has taken nothing.
    fn new(waiter: &Waiter, act: Act) -> Self {
        Self { stream: waiter.stream, slip: Rc::clone(&waiter.slip), act, taken: Vec::new() }
    }
}

/// What `on_failure` makes of an ask.
pub(crate) enum FallBack {
    /// The table decides.
    Table(Home),
    /// It is let through, and reported later.
    Pass,
    /// It is denied.
    Deny,
}

impl Fleet {
    /// What a config with a counter needs.
    pub(crate) fn new(
        host: &impl Host,
        counter: Counter,
        namespace: String,
        table: &Table,
    ) -> Result<Self, TableError> {
        let wall = now(host).unwrap_or(Timestamp::from_ms(0));
        let to_wall = Offset::between(monotonic(host).unwrap_or(wall), wall);
        let published = Table::fleet_clock(host);
        Ok(Self {
            headers: headers(&counter),
            counter,
            namespace,
            host_kind: table.host_kind(),
            proxy: proxy_number(table.secret()),
            vm: Table::vm_number(host)?,
            sequence: 0,
            to_fleet: published.map_or(to_wall, Offset::from_ms),
            published,
            to_wall,
            circuit: Circuit::Closed,
            flight: None,
            own_flights: BTreeMap::new(),
            queue: VecDeque::new(),
            outbox: Outbox::default(),
            leases: Leases::default(),
            proxies: 1,
            epoch: None,
            rules_off: Vec::new(),
            latest: Cell::new(monotonic(host).unwrap_or(wall)),
            spoke_at: None,
        })
    }

    /// This VM belongs to the proxy that this secret was drawn by. Its number there is drawn by lot: those that are
    /// counted may have begun anew.
    pub(crate) fn move_to(&mut self, host: &impl Host, secret: &Secret, metrics: &mut Metrics) {
        match Table::vm_number_by_lot(host) {
            Ok(vm) => (self.proxy, self.vm) = (proxy_number(secret), vm),
            // It stays who it was: the counter takes the proxy for two.
            Err(_) => metrics.add(Metric::Errors, 1),
        }
    }

    /// Now, by one look at the monotonic clock.
    pub(crate) fn clock(&self, host: &impl Host) -> Result<Clock, Status> {
        let monotonic = monotonic(host)?;
        self.latest.set(monotonic);
        Ok(self.clock_at(monotonic))
    }

    /// When it was last looked at. For those who cannot wait for a clock that the host hands out again.
    pub(crate) fn latest_clock(&self) -> Clock {
        self.clock_at(self.latest.get())
    }

    fn clock_at(&self, monotonic: Timestamp) -> Clock {
        let (wall, fleet) = (self.to_wall.apply(monotonic), self.to_fleet.apply(monotonic));
        Clock { wall, fleet, monotonic }
    }

    pub(crate) fn rules_off(&self) -> &[String] {
        &self.rules_off
    }

    /// Whether the counter can be asked, and one more can wait for it.
    pub(crate) fn can_wait(&self) -> bool {
        let waiting = self.queue.len().saturating_add(self.own_flights.len());
        !self.circuit.is_open() && waiting < WAITERS_MAX
    }

    pub(crate) const fn is_away(&self) -> bool {
        self.circuit.is_open()
    }

    /// What holds for an ask that the counter cannot be asked about.
    pub(crate) fn fall_back(&self, ask: &Ask) -> FallBack {
        match ask.rule.global.map(|global| global.on_failure) {
            Some(OnFailure::Share) => FallBack::Table(Home::FallBack { parts: self.proxies }),
            Some(OnFailure::Local) | None => FallBack::Table(Home::FallBack { parts: 1 }),
            Some(OnFailure::Open) => FallBack::Pass,
            Some(OnFailure::Closed) => FallBack::Deny,
        }
    }

    /// How long until the counter is tried again.
    pub(crate) const fn retry_ms(&self, clock: &Clock) -> u64 {
        self.circuit.retry_ms(clock.monotonic)
    }

    /// Books denials that the counter must be told of, because their rule counts them.
    pub(crate) fn book_denied(&mut self, cases: &[Case], clock: &Clock, metrics: &mut Metrics) {
        let is_reported = |case: &&Case| case.ask.home != Home::Table && case.is_reported_denial();
        for case in cases.iter().filter(is_reported) {
            let judged = Some(&case.judged).filter(|_| case.ask.home == Home::Synced);
            self.outbox.report(&case.ask, judged, (clock, clock.monotonic), metrics);
        }
    }

    /// Books what a request was admitted by: grants that it spent, and what the counter must be told.
    pub(crate) fn book(&mut self, cases: &[Case], clock: &Clock, metrics: &mut Metrics) {
        for case in cases.iter().filter(|case| !case.judged.is_refused()) {
            match case.ask.home {
                Home::Leased => self.leases.spent(case),
                Home::Synced => {
                    let due = next_multiple(clock.monotonic, sync_every_ms(&case.ask));
                    self.outbox.report(&case.ask, Some(&case.judged), (clock, due), metrics);
                }
                Home::FallBack { .. } => {
                    self.outbox.report(&case.ask, Some(&case.judged), (clock, clock.monotonic), metrics);
                }
                Home::Table | Home::Counter => {}
            }
        }
    }

    /// A request waits. On Kong it makes its own call, for it must.
    pub(crate) fn wait(
        &mut self,
        host: &impl Host,
        waiter: Waiter,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        if Size::default().and(Size::of(&waiter)).is_none() {
            log::error!("a request asks the counter for more rules than a call carries: decided without it");
            metrics.add(Metric::Errors, 1);
            return Err(vec![waiter]);
        }
        if self.host_kind == HostKind::Envoy {
            self.queue.push_back(waiter);
            return self.send(host, clock, metrics);
        }
        let items = vec![Item::Waiter(waiter)];
        let body = flight::encode(&items, &self.namespace, None, self.wait_ms());
        match self.dispatch(host, &body, metrics) {
            Ok(token) => {
                let first_sent = clock.monotonic;
                let under_way = Some((token, first_sent));
                self.own_flights
                    .insert(token, Flight { items, body, first_sent, under_way, is_retry: false });
                Ok(())
            }
            Err(status) => Err(self.unsent(items, status, clock, metrics)),
        }
    }

    /// Sends those who wait, with whatever else there is. What does not wait goes from the tick.
    pub(crate) fn send_waiting(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        if self.queue.is_empty() { Ok(()) } else { self.send(host, clock, metrics) }
    }

    /// Sends what there is to send, if nothing is under way and the counter is there. Gives back the waiters of a
    /// call that could not be made.
    pub(crate) fn send(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        if self.flight.is_some() || self.circuit.is_open() {
            return Ok(());
        }
        let items = self.load(clock, metrics);
        if items.is_empty() { Ok(()) } else { self.fly(host, items, clock, metrics) }
    }

    /// What goes with the next call, within the bounds of a batch.
    fn load(&mut self, clock: &Clock, metrics: &mut Metrics) -> Vec<Item> {
        let mut items = Vec::new();
        let mut size = Size::default();
        while items.len() < WAITERS_PER_CALL_MAX {
            let Some(waiter) = self.queue.pop_front() else { break };
            if waiter.slip.has_left() {
                metrics.add(Metric::WaitingLeft, 1);
                continue;
            }
            let Some(with_it) = size.and(Size::of(&waiter)) else {
                // It goes with the next.
                self.queue.push_front(waiter);
                break;
            };
            size = with_it;
            items.push(Item::Waiter(waiter));
        }
        let ends_at = items.len().saturating_add(size.room());
        while items.len() < ends_at {
            let Some(refund) = self.outbox.next_refund() else { break };
            items.push(Item::Refund(refund));
        }
        // Of the rest one half is for reports and one for grants, and what one does not need the other has.
        let left = |items: &Vec<Item>| ends_at.saturating_sub(items.len());
        let reports = self.outbox.due_reports(clock, left(&items).div_ceil(2));
        items.extend(reports.into_iter().map(Item::Report));
        let chunks = self.leases.hungry(self.proxies, clock, left(&items));
        items.extend(chunks.into_iter().map(Item::Chunk));
        let reports = self.outbox.due_reports(clock, left(&items));
        items.extend(reports.into_iter().map(Item::Report));
        items
    }

    fn fly(
        &mut self,
        host: &impl Host,
        items: Vec<Item>,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        self.sequence = self.sequence.saturating_add(1);
        let sender = Sender { proxy: self.proxy, vm: self.vm, sequence: self.sequence };
        let sender = Some(sender).filter(|_| !planted::has(Bug::RetryWithoutSequence));
        let body = flight::encode(&items, &self.namespace, sender, self.wait_ms());
        self.spoke_at = Some(clock.monotonic);
        match self.dispatch(host, &body, metrics) {
            Ok(token) => {
                let first_sent = clock.monotonic;
                let under_way = Some((token, first_sent));
                self.flight = Some(Flight { items, body, first_sent, under_way, is_retry: false });
                Ok(())
            }
            Err(status) => Err(self.unsent(items, status, clock, metrics)),
        }
    }

    fn dispatch(&self, host: &impl Host, body: &[u8], metrics: &mut Metrics) -> Result<u32, Status> {
        metrics.add(Metric::CounterCalls, 1);
        host.call(&Call {
            upstream: &self.counter.cluster,
            headers: &self.headers,
            body,
            timeout_ms: self.wait_ms(),
        })
    }

    /// The host would not make the call: nothing of it has reached anybody.
    fn unsent(
        &mut self,
        items: Vec<Item>,
        status: Status,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Vec<Waiter> {
        self.not_called(status, clock, metrics);
        let mut waiters = self.unload(items, metrics);
        // Those who queued for the next call do not wait for a counter that is away.
        waiters.extend(self.queue.drain(..));
        waiters
    }

    fn not_called(&mut self, status: Status, clock: &Clock, metrics: &mut Metrics) {
        let why = format!("the proxy would not call it ({status:?})");
        self.failed(&why, clock.monotonic, clock, metrics);
    }

    /// Puts back what a call carried that counted for nothing.
    fn unload(&mut self, items: Vec<Item>, metrics: &mut Metrics) -> Vec<Waiter> {
        let mut waiters = Vec::new();
        for item in items {
            match item {
                Item::Waiter(waiter) => waiters.push(waiter),
                Item::Report(report) => self.outbox.keep(report, metrics),
                Item::Refund(refund) => self.outbox.refund(refund, metrics),
                Item::Chunk(chunk) => self.leases.forget_ask(&chunk.ask),
            }
        }
        waiters
    }

    fn failed(&mut self, why: &str, made_at: Timestamp, clock: &Clock, metrics: &mut Metrics) {
        metrics.add(Metric::CounterFailures, 1);
        if self.circuit.fail(made_at, clock.monotonic) {
            log::warn!(
                "the counter \"{}\" does not answer: {why}; rules with `global` go by their `on_failure` until it does",
                self.counter.cluster
            );
        }
    }

    /// How long the counter may take.
    fn wait_ms(&self) -> u32 {
        u32::try_from(self.counter.timeout_ms).unwrap_or(u32::MAX)
    }

    /// What a tick does: looks after grants, tells what is due, and tries a counter that was away.
    pub(crate) fn tick(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        if let Ok(wall) = now(host) {
            self.to_wall = Offset::between(clock.monotonic, wall);
        }
        self.leases.tick(host, clock, &mut self.outbox, metrics);
        if !self.circuit.is_open() {
            // On Kong a request's own call may have found the counter again before the failed one was repeated.
            if let Some(flight) = self.flight.take_if(|flight| flight.under_way.is_none()) {
                self.fly_again(host, flight, clock, metrics);
                return Ok(());
            }
            self.send(host, clock, metrics)?;
            return if self.is_idle(clock) { self.fly(host, Vec::new(), clock, metrics) } else { Ok(()) };
        }
        if !self.circuit.lets_try(clock.monotonic) {
            return Ok(());
        }
        match self.flight.take() {
            None => {
                let items = self.load(clock, metrics);
                self.fly(host, items, clock, metrics)
            }
            Some(flight) if flight.under_way.is_some() => {
                self.flight = Some(flight);
                Ok(())
            }
            Some(flight) => {
                self.fly_again(host, flight, clock, metrics);
                Ok(())
            }
        }
    }

    /// Makes a failed call again, word for word, as long as the counter remembers it.
    fn fly_again(&mut self, host: &impl Host, mut flight: Flight, clock: &Clock, metrics: &mut Metrics) {
        if clock.monotonic.ms_since(flight.first_sent) > RETRIED_MS_MAX {
            self.lose(flight.items, metrics);
            return;
        }
        self.spoke_at = Some(clock.monotonic);
        match self.dispatch(host, &flight.body, metrics) {
            Ok(token) => flight.under_way = Some((token, clock.monotonic)),
            Err(status) => self.not_called(status, clock, metrics),
        }
        self.flight = Some(flight);
    }

    /// Nobody will ever know what became of these.
    fn lose(&mut self, items: Vec<Item>, metrics: &mut Metrics) {
        for item in items {
            match item {
                Item::Report(report) => metrics.add(Metric::ReportsDropped, report.ask.take.amount.get()),
                Item::Refund(_) => metrics.add(Metric::UndosLost, 1),
                Item::Chunk(chunk) => self.leases.forget_ask(&chunk.ask),
                Item::Waiter(waiter) => {
                    if waiter.fate == waiting::Fate::Admitted {
                        for ask in &waiter.asked {
                            metrics.add(Metric::ReportsDropped, ask.take.amount.get());
                        }
                    }
                }
            }
        }
    }

    fn is_idle(&self, clock: &Clock) -> bool {
        let is_quiet = self.spoke_at.is_none_or(|at| clock.monotonic.ms_since(at) >= POLL_MS);
        is_quiet && self.flight.is_none()
    }

    /// The plugin ends: what can still be told is told, and nobody waits for an answer. If no call can be made, grants
    /// stay in the table, where those who come after spend them.
    pub(crate) fn end(&mut self, host: &impl Host, clock: &Clock, metrics: &mut Metrics) {
        let can_call = self.host_kind == HostKind::Envoy && !self.circuit.is_open();
        if can_call && self.flight.is_none() {
            self.leases.end(host, clock, &mut self.outbox, metrics);
            self.outbox.hurry(clock.monotonic);
            let items = self.load(clock, metrics);
            if !items.is_empty() {
                // Waiters of a plugin that ends have no request any more.
                drop(self.fly(host, items, clock, metrics));
            }
        }
        self.outbox.lose(metrics);
    }
}

/// How often the plugin's tick must run: as often as the rules of a fleet need it.
pub(crate) fn tick_ms(config: &Config) -> Option<u64> {
    config.counter.as_ref()?;
    let modes = config.rules.iter().filter_map(|rule| rule.global.map(|global| global.mode));
    let needed = modes.map(|mode| match mode {
        GlobalMode::Sync { every_ms } => every_ms.min(LEASE_TICK_MS),
        GlobalMode::Exact | GlobalMode::Lease { .. } => LEASE_TICK_MS,
    });
    needed.min()
}

fn sync_every_ms(ask: &Ask) -> u64 {
    match ask.rule.global.map(|global| global.mode) {
        Some(GlobalMode::Sync { every_ms }) => every_ms,
        _ => 0,
    }
}

/// When an interval ends that is the same for all keys, so that they travel together.
fn next_multiple(time: Timestamp, every_ms: u64) -> Timestamp {
    let passed = time.ms().checked_rem(every_ms).unwrap_or(0);
    Timestamp::from_ms(time.ms().saturating_sub(passed).saturating_add(every_ms))
}

fn headers(counter: &Counter) -> Vec<HeaderPair> {
    let authority = counter.authority.as_ref().unwrap_or(&counter.cluster);
    let pair = |name, value: &str| (Cow::Borrowed(name), value.to_owned());
    let mut headers = vec![
        pair(":method", "POST"),
        pair(":path", "/v1/take"),
        pair(":authority", authority),
        pair("content-type", POSTCARD),
        pair("accept", POSTCARD),
    ];
    if let Some(token) = &counter.token {
        headers.push(pair("authorization", &format!("Bearer {}", token.reveal())));
    }
    headers
}
