//! The world: proxies with their VMs, virtual time, and the scheduler that decides at every host call who
//! runs next. Single-threaded, and driven by nothing but the seed.

use crate::actor::{Actor, Job, Role};
use crate::calls::Call;
use crate::central::Central;
use crate::counter_calls::Post;
use crate::fleet::Fleet;
use crate::identity::{Place, Secret};
use crate::journey::{Fate, Journey, Journeys};
use crate::oracle::{CounterId, Oracle};
use crate::rng::Rng;
use crate::scenario::{MS, Planned, Policy, SECOND, Scenario};
use crate::shared::Shared;
use crate::spec::Config;
use crate::tally::{Happened, Tally};
use crate::trace::Trace;
use crate::vm::Program;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

/// Where virtual time begins: any day will do.
pub(crate) const EPOCH_NS: u64 = 1_800_000_000_000_000_000;
/// The longest that a VM stands still while others run. A VM that stood still for longer than a window would
/// see the past; that is a clock step, which is a fault of its own.
const STALL_NS_MAX: u64 = 300 * MS;
/// What a proxy's monotonic clock shows at the start, at least.
const BOOTED_NS: u64 = 5_000 * SECOND;
/// Keys in shared data beside the slots: the marker, the number of VMs, the fleet's clock, what tells the hosts apart.
pub(crate) const OTHER_KEYS: usize = 4;
/// A run that needs more steps hangs: so many, and some for each request, and for each second of each VM.
const STEPS_MAX: u64 = 5_000_000;
const STEPS_PER_REQUEST_MAX: u64 = 100;
const STEPS_PER_VM_SECOND_MAX: u64 = 20;

/// A proxy's clock and data.
pub(crate) struct Proxy {
    pub(crate) shared: Shared,
    pub(crate) clock_ahead_ms: i64,
    pub(crate) drift_ppm: i64,
    /// The latest time that its clock has shown.
    pub(crate) latest_ms: u64,
    pub(crate) storm: Option<(u64, u64)>,
    /// Until then it does not reach the counter.
    pub(crate) cut_off_until_ns: u64,
    /// The next VM that is about to charge a second slot dies.
    pub(crate) kills_between_charges: bool,
    /// The config in force; the one that a canary tries.
    pub(crate) config: usize,
    pub(crate) trying: Option<usize>,
    /// When a VM last gave a config up.
    pub(crate) retired_ns: BTreeMap<usize, u64>,
    pub(crate) is_up: bool,
    /// The names of metrics, by their numbers; Envoy numbers each definition, also of a name that it knows.
    pub(crate) metric_names: Vec<String>,
    pub(crate) metrics: BTreeMap<String, u64>,
    pub(crate) random: Rng,
    /// The placement secret that its first VM found: by it the oracle tells which keys a resize moves.
    pub(crate) secret: Option<Secret>,
    /// Whether its marker was dropped, and its VMs may not agree on the secret.
    pub(crate) is_split: bool,
    /// Which counters the oracle knows in which slot.
    pub(crate) slots: BTreeMap<Place, BTreeSet<(NonZeroU64, CounterId, bool)>>,
    /// Slots that have displaced strict counters.
    pub(crate) overflowed: BTreeSet<Place>,
    pub(crate) keys_max: usize,
}

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Arrive { arrival: usize },
    Tick { actor: usize, generation: u64, root: u32, period_ns: u64, number: u32 },
    Respond { request: usize },
    CallEnds { actor: usize, generation: u64, token: u32 },
    CallTimesOut { actor: usize, generation: u64, token: u32 },
    CounterHears { letter: u64 },
    CallAnswered { actor: usize, generation: u64, answer: u64 },
    Leave { request: usize },
    Reload { actor: usize, generation: u64 },
    Retire { actor: usize, generation: u64, root: u32 },
    Start { proxy: usize },
    Fault { proxy: usize, planned: Planned },
}

/// Why a run failed.
pub(crate) type Failure = String;

pub(crate) struct World<'p> {
    pub(crate) program: &'p Program,
    pub(crate) bug: u32,
    pub(crate) scenario: Scenario,
    pub(crate) rng: Rng,
    pub(crate) now_ns: u64,
    pub(crate) steps: u64,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) actors: Vec<Actor>,
    steps_max: u64,
    pub(crate) journeys: Journeys,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    event_count: u64,
    last_actor: usize,
    pub(crate) is_winding_down: bool,
    pub(crate) oracle: Oracle,
    pub(crate) fleet: Fleet,
    pub(crate) post: Post,
    pub(crate) tally: Tally,
    pub(crate) trace: Trace,
}

impl<'p> World<'p> {
    pub(crate) fn new(program: &'p Program, scenario: Scenario, seed: u64, bug: u32, trace: Trace) -> Self {
        let mut rng = Rng::new(seed);
        let mut world = Self {
            program,
            bug,
            rng: rng.fork(),
            now_ns: EPOCH_NS,
            steps: 0,
            proxies: Vec::new(),
            actors: Vec::new(),
            steps_max: STEPS_MAX,
            journeys: Journeys::default(),
            events: BTreeMap::new(),
            event_count: 0,
            last_actor: 0,
            is_winding_down: false,
            oracle: Oracle::default(),
            fleet: Fleet::new(&scenario.configs),
            post: Post::default(),
            tally: Tally::default(),
            trace,
            scenario,
        };
        world.populate(&mut rng);
        world
    }

    fn populate(&mut self, rng: &mut Rng) {
        for proxy in 0..self.scenario.proxies {
            let drift_max = self.scenario.drift_ppm_max;
            let drift_ppm = rng.between(0, 2 * drift_max).cast_signed() - drift_max.cast_signed();
            if drift_ppm != 0 {
                self.tally.count(Happened::ClockDrift);
            }
            let skew_max = self.scenario.skew_ms_max;
            let clock_ahead_ms = rng.between(0, 2 * skew_max).cast_signed() - skew_max.cast_signed();
            let shared = Shared::new(self.scenario.flavour, self.scenario.zone);
            self.proxies.push(Proxy {
                shared: if self.scenario.has_zone { shared } else { shared.without_zone() },
                clock_ahead_ms,
                drift_ppm,
                latest_ms: 0,
                storm: None,
                cut_off_until_ns: 0,
                kills_between_charges: false,
                config: 0,
                trying: None,
                retired_ns: BTreeMap::new(),
                is_up: false,
                metric_names: Vec::new(),
                metrics: BTreeMap::new(),
                random: Rng::new(proxy as u64),
                secret: None,
                is_split: false,
                slots: BTreeMap::new(),
                overflowed: BTreeSet::new(),
                keys_max: 0,
            });
            self.actors.push(Actor::new(proxy, 0, Role::Canary));
            self.actors.push(Actor::new(proxy, 0, Role::Main));
            for number in 0..self.scenario.workers {
                self.actors.push(Actor::new(proxy, number, Role::Worker));
            }
            self.at(EPOCH_NS, Event::Start { proxy });
        }
        self.scenario.arrivals.sort_by_key(|arrival| arrival.at_ns);
        self.expect(0);
        for (at_ns, proxy, planned) in self.scenario.planned.clone() {
            self.at(EPOCH_NS + at_ns, Event::Fault { proxy, planned });
        }
    }

    /// Plans the arrival with this number, if there is one. One is planned at a time.
    pub(crate) fn expect(&mut self, arrival: usize) {
        if let Some(arriving) = self.scenario.arrivals.get(arrival) {
            self.at(EPOCH_NS + arriving.at_ns, Event::Arrive { arrival });
        }
    }

    /// Plans an event.
    pub(crate) fn at(&mut self, at_ns: u64, event: Event) {
        self.event_count += 1;
        self.events.insert((at_ns, self.event_count), event);
    }

    /// Runs everything. An error is a promise broken.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        if self.scenario.configs.iter().any(Config::is_global) {
            self.post.central = Some(Central::new(EPOCH_NS / MS)?);
        }
        let last_ns = self.scenario.arrivals.last().map_or(0, |arrival| arrival.at_ns);
        let vm_seconds = last_ns / SECOND * self.actors.len() as u64;
        let requests = self.scenario.arrivals.len() as u64;
        self.steps_max += STEPS_PER_REQUEST_MAX * requests + STEPS_PER_VM_SECOND_MAX * vm_seconds;
        let end_ns = EPOCH_NS + last_ns + self.scenario.aftermath_ns;
        self.run_until(end_ns)?;
        self.is_winding_down = true;
        self.finish_all()?;
        self.check_end()
    }

    fn run_until(&mut self, end_ns: u64) -> Result<(), Failure> {
        loop {
            self.fire_due()?;
            if let Some(actor) = self.pick() {
                self.step(actor)?;
                let spent = 1 + self.rng.below(self.scenario.step_ns_max);
                self.now_ns += spent;
            } else {
                let next = self.events.first_key_value().map(|((at_ns, _), _)| *at_ns);
                match next {
                    Some(at_ns) if at_ns <= end_ns => self.now_ns = self.now_ns.max(at_ns),
                    _ => return Ok(()),
                }
            }
            if self.now_ns > end_ns + 60_000 * MS {
                return Err("the run does not come to rest".to_owned());
            }
        }
    }

    fn fire_due(&mut self) -> Result<(), Failure> {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > self.now_ns {
                break;
            }
            let event = entry.remove();
            self.fire(event)?;
        }
        Ok(())
    }

    /// Who runs next.
    fn pick(&mut self) -> Option<usize> {
        let able: Vec<usize> = (0..self.actors.len()).filter(|index| self.actors[*index].can_run()).collect();
        if able.is_empty() {
            return None;
        }
        let starved = able
            .iter()
            .copied()
            .filter(|index| self.now_ns.saturating_sub(self.actors[*index].waiting_since_ns) > STALL_NS_MAX)
            .min_by_key(|index| self.actors[*index].waiting_since_ns);
        let any = *self.rng.pick(&able);
        let picked = match (starved, self.scenario.policy) {
            (Some(starved), _) => starved,
            (None, Policy::Sticky) if able.contains(&self.last_actor) && !self.rng.chance(100_000) => {
                self.last_actor
            }
            (None, Policy::WritersLast) if !self.rng.chance(100_000) => {
                let is_reader = |index: &&usize| !self.is_at_write(**index);
                let readers: Vec<usize> = able.iter().filter(is_reader).copied().collect();
                if readers.is_empty() { any } else { *self.rng.pick(&readers) }
            }
            _ => any,
        };
        self.last_actor = picked;
        Some(picked)
    }

    fn is_at_write(&self, actor: usize) -> bool {
        let asked = self.actors[actor].vm.as_ref().and_then(|vm| vm.asked());
        asked.is_some_and(|asked| asked.call == Call::SetShared)
    }

    /// Lets one VM run from where it waits to its next host call.
    fn step(&mut self, actor: usize) -> Result<(), Failure> {
        self.steps += 1;
        if self.steps > self.steps_max {
            return Err("the run does not end".to_owned());
        }
        self.actors[actor].waiting_since_ns = self.now_ns;
        let outcome =
            if self.actors[actor].running.is_some() { self.serve(actor) } else { self.begin(actor) };
        outcome.map_err(|failure| format!("{}: {failure}", self.actors[actor].label()))?;
        self.check_memory(self.actors[actor].proxy)
    }

    /// The shared data never grows past what the configs declare.
    fn check_memory(&mut self, proxy: usize) -> Result<(), Failure> {
        let keys = self.proxies[proxy].shared.len();
        let most = |slots: fn(&Config) -> u32| self.scenario.configs.iter().map(slots).max().unwrap_or(0);
        let slots = most(|config| config.slots) + most(Config::large_slots);
        self.proxies[proxy].keys_max = self.proxies[proxy].keys_max.max(keys);
        if keys > slots as usize + OTHER_KEYS {
            return Err(format!(
                "p{proxy}: {keys} keys in shared data, more than {slots} slots and {OTHER_KEYS}"
            ));
        }
        Ok(())
    }

    /// Pays the last debts, flushes the last metrics.
    fn finish_all(&mut self) -> Result<(), Failure> {
        self.events.clear();
        for index in 0..self.actors.len() {
            let actor = &mut self.actors[index];
            let ready: Vec<u32> =
                actor.roots.iter().filter(|root| root.is_ready).map(|root| root.id).collect();
            if actor.vm.is_some() {
                actor.jobs.extend(ready.into_iter().map(|root| Job::Tick { root }));
            }
        }
        self.run_until(self.now_ns)
    }

    fn check_end(&mut self) -> Result<(), Failure> {
        let is_waiting = |(_, journey): &(usize, &Journey)| journey.fate == Fate::Waiting;
        if let Some((hung, _)) = self.journeys.under_way().find(is_waiting) {
            return Err(format!("request {hung} never got an answer"));
        }
        self.check_books()?;
        let count =
            |name: &str| -> u64 { self.proxies.iter().filter_map(|proxy| proxy.metrics.get(name)).sum() };
        // The filter does not count those that it meets while it gives a charge back or pays a debt.
        let loses_metrics =
            [Happened::BadStatus, Happened::VmKilled, Happened::Restart, Happened::Undo, Happened::TickWrite];
        if loses_metrics.iter().all(|what| self.tally.of(*what) == 0) {
            let (foreign, bad) = (self.tally.of(Happened::ForeignValue), count("tidegate_bad_states"));
            if foreign > bad {
                return Err(format!("{foreign} reads got another key's value, and only {bad} were noticed"));
            }
        }
        if !self.scenario.is_faultless() || self.tally.of(Happened::GiveUp) > 0 {
            return Ok(());
        }
        for name in ["errors", "cas_give_ups", "debt_dropped", "undos_lost", "bad_states"] {
            let times = count(&format!("tidegate_{name}"));
            if times > 0 {
                return Err(format!("nothing failed, but the metric {name} says {times}"));
            }
        }
        for rule in
            self.scenario.configs[0].rules.iter().filter(|rule| rule.path_prefix.is_none() && !rule.is_shadow)
        {
            let allowed = count(&format!("tidegate_allowed_rule_{}", rule.name));
            if allowed != self.oracle.admitted {
                let admitted = self.oracle.admitted;
                return Err(format!("rule {} says {allowed} allowed, {admitted} were", rule.name));
            }
        }
        Ok(())
    }

    /// A proxy's clock that nobody sets, in nanoseconds: it drifts as the other does.
    pub(crate) fn monotonic_ns(&self, proxy: usize) -> u64 {
        let passed = (self.now_ns - EPOCH_NS).cast_signed();
        let drifted = passed + passed / 1_000_000 * self.proxies[proxy].drift_ppm;
        // It began when the machine did.
        BOOTED_NS + 1_000 * SECOND * proxy as u64 + drifted.cast_unsigned()
    }

    /// A proxy's clock now, in nanoseconds.
    pub(crate) fn clock_ns(&mut self, proxy: usize) -> u64 {
        let passed = (self.now_ns - EPOCH_NS).cast_signed();
        let proxy = &mut self.proxies[proxy];
        let drifted = passed / 1_000_000 * proxy.drift_ppm;
        let now = self.now_ns.cast_signed() + drifted + proxy.clock_ahead_ms * MS.cast_signed();
        proxy.latest_ms = proxy.latest_ms.max(now.cast_unsigned() / MS);
        now.cast_unsigned()
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&mut self, actor: usize, line: impl FnOnce() -> String) {
        let since_us = (self.now_ns - EPOCH_NS) / 1_000;
        let label = &self.actors[actor];
        self.trace.add(|| format!("{since_us:>10} us  {:<9} {}", label.label(), line()));
    }
}
