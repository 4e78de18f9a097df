//! The counter, as one VM knows it: what it is asked, what it is told, and what holds while it is not there.
//!
//! One call is under way at a time. It carries up to 32 requests that wait, what was admitted without asking, asks for
//! grants, and refunds; whoever comes meanwhile goes with the next. A call that failed is kept and made again with the
//! same number, so that nothing is counted twice; until it is answered nobody waits. On Kong a call belongs to the
//! request that makes it, so each that waits makes its own, and all else goes from the tick.

pub(crate) mod asking;
mod calling;
mod circuit;
mod flight;
mod landing;
pub(crate) mod leases;
pub(crate) mod outbox;
pub(crate) mod waiting;

use crate::ask::{Ask, Case, Home};
use crate::clock::{Clock, Offset};
use crate::decide::Act;
use crate::host::{HeaderPair, Host, Status, monotonic, now};
use crate::identity::{Secret, proxy_number};
use crate::metrics::{Metric, Metrics};
use crate::table::{HostKind, Table, TableError};
use circuit::Circuit;
use core::cell::Cell;
use flight::Flight;
use leases::Leases;
use outbox::{Outbox, Refund};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use tidegate_config::wire::REMEMBERED_MS;
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
            headers: calling::headers(&counter),
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
