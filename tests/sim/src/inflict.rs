//! Faults that are planned for a time.

use crate::actor::{Job, Role};
use crate::life::RELOAD_NS;
use crate::scenario::Planned;
use crate::shared::Flavour;
use crate::tally::Happened;
use crate::world::{Event, Failure, World};

impl World<'_> {
    /// A planned fault happens.
    pub(crate) fn inflict(&mut self, proxy: usize, planned: Planned) -> Result<(), Failure> {
        let canary = self.actors_of(proxy, Role::Canary)[0];
        self.note(canary, || format!("{planned:?}"));
        match planned {
            Planned::CasStorm { for_ns, per_million } => {
                self.proxies[proxy].storm = Some((self.now_ns + for_ns, per_million));
            }
            Planned::Restart => self.restart(proxy),
            Planned::ClockStep { by_ms } => self.step_clock(proxy, by_ms),
            Planned::Update { config } => match self.scenario.flavour {
                // A reload of Kong replaces the workers and wipes the zone.
                Flavour::Kong => {
                    self.tally.count(Happened::ConfigUpdate);
                    self.note_changed_limits(self.proxies[proxy].config, config);
                    self.proxies[proxy].config = config;
                    self.restart(proxy);
                }
                Flavour::Envoy if self.proxies[proxy].is_up => self.try_config(proxy, config),
                Flavour::Envoy => {}
            },
            Planned::AlienState => self.plant_alien_state(proxy),
            Planned::KillBetweenCharges => self.proxies[proxy].kills_between_charges = true,
            Planned::Partition { for_ns } => self.proxies[proxy].cut_off_until_ns = self.now_ns + for_ns,
            Planned::CounterRestart { down_ns } => self.restart_counter(down_ns)?,
        }
        Ok(())
    }

    fn restart(&mut self, proxy: usize) {
        self.tally.count(Happened::Restart);
        for actor in 0..self.actors.len() {
            if self.actors[actor].proxy == proxy {
                self.drop_vm(actor);
            }
        }
        self.oracle.empty(self.steps, |id| id.proxy == proxy);
        self.fleet.lose_proxy(self.steps, proxy);
        let fallen = &mut self.proxies[proxy];
        fallen.shared.clear();
        fallen.secret = None;
        fallen.is_split = false;
        fallen.slots.clear();
        fallen.overflowed.clear();
        fallen.is_up = false;
        fallen.trying = None;
        self.at(self.now_ns + RELOAD_NS, Event::Start { proxy });
    }

    fn step_clock(&mut self, proxy: usize, by_ms: i64) {
        self.tally.count(if by_ms < 0 { Happened::ClockBack } else { Happened::ClockForward });
        self.clock_ns(proxy);
        self.proxies[proxy].clock_ahead_ms += by_ms;
        self.clock_ns(proxy);
        let latest_ms = self.proxies[proxy].latest_ms;
        self.oracle.step_clock(self.steps, proxy, latest_ms);
        for actor in 0..self.actors.len() {
            if let Some(Job::Request { request }) = self.actors[actor].running
                && self.actors[actor].proxy == proxy
            {
                self.journeys[request].is_faulty = true;
                self.journeys[request].is_out_of_time = true;
            }
        }
    }
}
