//! What one run does: hosts, configs, arrivals, faults. [`crate::generate`] makes one from a seed; tests make
//! their own.

use crate::counter_calls::NetRates;
use crate::global_spec::CLUSTER;
use crate::network::Service;
use crate::shared::{Flavour, Zone};
use crate::spec::{Config, Request};
use std::collections::BTreeMap;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// How the scheduler picks among VMs that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Any.
    Uniform,
    /// Mostly the one that ran last.
    Sticky,
    /// Writers last: as many VMs as can be stand between their read and their write.
    WritersLast,
}

/// A request and when it comes.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at_ns: u64,
    pub(crate) proxy: usize,
    pub(crate) request: Request,
}

/// Faults at host calls, in parts of a million calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) bad_status: u64,
    pub(crate) kill: u64,
    /// Of reads in a zone of Kong that drops values: another key's value is handed out.
    pub(crate) foreign_value: u64,
}

/// A fault at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planned {
    /// For so long, each write meets a version just changed, with this chance in a million.
    CasStorm {
        for_ns: u64,
        per_million: u64,
    },
    Restart,
    /// The clock jumps by so many milliseconds.
    ClockStep {
        by_ms: i64,
    },
    /// The config with this number takes over.
    Update {
        config: usize,
    },
    /// A slot that is in use gets states of another version.
    AlienState,
    /// The next VM that is about to charge a second slot for a request dies.
    KillBetweenCharges,
    /// The proxy is cut off from the counter for so long.
    Partition {
        for_ns: u64,
    },
    /// The counter, and no proxy, ends; it is back after so long and has forgotten everything.
    CounterRestart {
        down_ns: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) flavour: Flavour,
    pub(crate) zone: Zone,
    /// Kong: whether a zone is declared for the filter's keys.
    pub(crate) has_zone: bool,
    pub(crate) proxies: usize,
    pub(crate) workers: usize,
    /// The first is in force at the start.
    pub(crate) configs: Vec<Config>,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) policy: Policy,
    /// The most virtual time between two steps.
    pub(crate) step_ns_max: u64,
    pub(crate) rates: Rates,
    /// When, which proxy, what.
    pub(crate) planned: Vec<(u64, usize, Planned)>,
    /// What goes wrong between proxies and counter.
    pub(crate) net: NetRates,
    /// By how much each proxy's clock is ahead or behind at the start, at most.
    pub(crate) skew_ms_max: u64,
    /// How long the run goes on after the last request.
    pub(crate) aftermath_ns: u64,
    /// Parts per million by which each proxy's clock runs fast or slow.
    pub(crate) drift_ppm_max: u64,
    /// Whether more keys come than the table has room for: then strict rules may deny early.
    pub(crate) is_crowded: bool,
    /// What can be called, by name.
    pub(crate) services: BTreeMap<&'static str, Service>,
    /// Whether the module is the probe and not the filter: then nobody judges what it does.
    pub(crate) is_probe: bool,
}

impl Scenario {
    /// One Envoy without faults.
    pub(crate) fn new(name: &'static str, workers: usize, config: Config) -> Self {
        Self {
            name,
            flavour: Flavour::Envoy,
            zone: Zone { bytes_max: 1 << 30, evicts: false, spares_marker: true },
            has_zone: true,
            proxies: 1,
            workers,
            configs: vec![config],
            arrivals: Vec::new(),
            policy: Policy::Uniform,
            step_ns_max: 20 * US,
            rates: Rates::default(),
            planned: Vec::new(),
            net: NetRates::default(),
            skew_ms_max: 0,
            aftermath_ns: 2_500 * MS,
            drift_ppm_max: 0,
            is_crowded: false,
            services: [(CLUSTER, Service::Counter)].into(),
            is_probe: false,
        }
    }

    /// Whether nothing but scheduling can go wrong.
    pub(crate) fn is_faultless(&self) -> bool {
        self.rates == Rates::default()
            && self.net == NetRates::default()
            && self.planned.is_empty()
            && self.zone.bytes_max >= 1 << 30
    }
}
