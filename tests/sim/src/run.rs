//! Runs: by seed, with a bug or without, with a trace or without.

use crate::generate;
use crate::journey::{Cost, Fate};
use crate::scenario::Scenario;
use crate::tally::Tally;
use crate::trace::Trace;
use crate::vm::{Program, Trap};
use crate::world::World;

/// A bug that a test build can be told to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Slots are written without looking at the version.
    BlindWrite,
    /// What was charged before a lost race is not given back.
    UndoForgotten,
    /// Slots are written before every rule has said yes.
    EarlyWrite,
    /// What a displaced strict counter had used is forgotten.
    EvictionResets,
    /// States are read whatever their version.
    VersionUnchecked,
    /// A call to the counter is made again without the number by which it would be recognised.
    RetryWithoutSequence,
    /// A grant is spent after the window that it was taken from.
    GrantOutlivesItsWindow,
    /// What is left of a grant that has ended is given back twice.
    RefundTwice,
    /// The whole apparatus of planting, and no bug.
    None,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::BlindWrite,
        Self::UndoForgotten,
        Self::EarlyWrite,
        Self::EvictionResets,
        Self::VersionUnchecked,
        Self::RetryWithoutSequence,
        Self::GrantOutlivesItsWindow,
        Self::RefundTwice,
    ];

    /// The number by which the test build knows it.
    const fn number(self) -> u32 {
        match self {
            Self::BlindWrite => 1,
            Self::UndoForgotten => 2,
            Self::EarlyWrite => 3,
            Self::EvictionResets => 4,
            Self::VersionUnchecked => 5,
            Self::RetryWithoutSequence => 6,
            Self::GrantOutlivesItsWindow => 7,
            Self::RefundTwice => 8,
            Self::None => 99,
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which promise was broken, if one was.
    pub failure: Option<String>,
    /// The last events, if they were asked for.
    pub trace: String,
    /// A line about what happened.
    pub summary: String,
    /// What really happened.
    pub tally: Tally,
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    /// By how much a limit was passed at most, excused or not.
    pub(crate) over_max: u64,
    /// The most keys that a proxy's shared data has held.
    pub(crate) keys_max: usize,
    /// When each request was admitted, in milliseconds since the begin.
    admitted_ms: Vec<u64>,
}

impl Report {
    /// How many were admitted from a time until before another, in milliseconds since the begin.
    #[cfg(test)]
    pub(crate) fn admitted_between(&self, from_ms: u64, until_ms: u64) -> usize {
        self.admitted_ms.iter().filter(|at_ms| (from_ms..until_ms).contains(*at_ms)).count()
    }
}

/// A module, ready to be simulated.
pub struct Simulation {
    program: Program,
}

impl Simulation {
    /// Loads a module. Refuses one that a host would refuse.
    pub fn new(wasm: &[u8]) -> Result<Self, String> {
        Program::new(wasm).map(|program| Self { program }).map_err(|Trap(why)| why)
    }

    /// Runs the history of a seed, and keeps so many of its last events.
    pub fn run_seed(&self, seed: u64, bug: Option<Bug>, trace_lines: usize) -> Report {
        self.run(generate::scenario(seed), seed, bug, trace_lines)
    }

    /// The fate and the cost of a scenario's last request.
    pub(crate) fn last_cost(&self, scenario: Scenario) -> Result<(Fate, Cost), String> {
        let mut world = World::new(&self.program, scenario, 0, 0, Trace::default());
        world.journeys.keep_ended();
        world.run()?;
        let last = world.journeys.into_all().next_back().ok_or("no request was made")?;
        Ok((last.fate, last.cost))
    }

    /// What each request of a scenario was told: the body that it was answered with, or what the probe put into a
    /// header of its response.
    #[cfg(test)]
    pub(crate) fn bodies(&self, scenario: Scenario) -> Result<Vec<String>, String> {
        let mut world = World::new(&self.program, scenario, 0, 0, Trace::default());
        world.journeys.keep_ended();
        world.run()?;
        let told = |journey: crate::journey::Journey| {
            let seen = journey.response_headers.iter().find(|(name, _)| name == "x-probe");
            let body = || String::from_utf8_lossy(&journey.body).into_owned();
            seen.map_or_else(body, |(_, seen)| seen.replace("; ", "\n"))
        };
        Ok(world.journeys.into_all().map(told).collect())
    }

    pub(crate) fn run(&self, scenario: Scenario, seed: u64, bug: Option<Bug>, trace_lines: usize) -> Report {
        let trace = Trace::of(trace_lines);
        let Scenario { name, flavour, workers, policy, .. } = scenario;
        let proxies = scenario.proxies;
        let mut world = World::new(&self.program, scenario, seed, bug.map_or(0, Bug::number), trace);
        let failure = world.run().err();
        let summary = format!(
            "seed {seed}: {name}, {proxies} x {flavour:?} with {workers} workers, {policy:?}: {} steps, \
             {} admitted, {} denied; {}",
            world.steps, world.oracle.admitted, world.oracle.denied, world.tally
        );
        Report {
            failure,
            trace: world.trace.text(),
            summary,
            admitted: world.oracle.admitted,
            denied: world.oracle.denied,
            over_max: world.oracle.over_max.max(world.fleet.over_max),
            admitted_ms: std::mem::take(&mut world.fleet.admitted_ms),
            keys_max: world.proxies.iter().map(|proxy| proxy.keys_max).max().unwrap_or(0),
            tally: world.tally,
        }
    }
}
