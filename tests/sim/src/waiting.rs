//! Requests that wait for the counter, and what the fleet's oracle is told of them.

use crate::actor::Job;
use crate::fleet::{BOOKS_WINDOW_MS, Circumstances};
use crate::global_spec::Global;
use crate::journey::Fate;
use crate::oracle::{Decision, Subject};
use crate::scenario::MS;
use crate::shared::Flavour;
use crate::spec::{Limit, Rule};
use crate::tally::Happened;
use crate::world::{EPOCH_NS, Failure, World};

/// How long a request waits at most beyond two calls: one before it and its own.
const WAIT_MS_MAX: u64 = 1_500;

/// How long a VM remembers a denial, and some more for a VM that stands still.
const DENIAL_REMEMBERED_NS: u64 = 1_500 * MS;

impl World<'_> {
    /// The requests that a VM holds.
    pub(crate) fn paused_in(&self, actor: usize) -> Vec<usize> {
        let generation = self.actors[actor].generation;
        let is_paused = |(request, journey): (usize, &crate::journey::Journey)| {
            let is_here = journey.actor == actor && journey.generation == generation;
            (is_here && journey.is_paused && journey.fate == Fate::Waiting).then_some(request)
        };
        self.journeys.under_way().filter_map(is_paused).collect()
    }

    /// A fault has hit a callback that is about many requests.
    pub(crate) fn spoil(&mut self, actor: usize, job: Job) {
        for request in self.paused_in(actor) {
            self.journeys[request].is_faulty = true;
        }
        self.fleet.lose_certainty(self.actors[actor].proxy);
        if matches!(job, Job::CallResponse { .. }) {
            let root = self.root_of(actor, job);
            self.actors[actor].lost_counter.insert(root);
        }
    }

    /// A request comes to the filter.
    pub(crate) fn note_begin(&mut self, actor: usize, request: usize) {
        let (now_ns, steps) = (self.now_ns, self.steps);
        let journey = &mut self.journeys[request];
        (journey.began_ns, journey.began_step) = (now_ns, steps);
        journey.began_without_counter = self.actors[actor].lost_counter.contains(&journey.root);
    }

    /// The callback for an answer begins: the filter learns whether the counter is there.
    pub(crate) fn note_answer(&mut self, actor: usize, token: u32) {
        let own = &mut self.actors[actor];
        let Some(call) = own.calls.get(&token) else { return };
        own.is_told = call.answer.as_ref().is_some_and(|answer| answer.is_good);
        if own.is_told {
            own.has_heard.insert(call.root);
            if own.lost_counter.remove(&call.root) {
                own.found_counter_ns.insert(call.root, self.now_ns);
            }
        } else {
            own.lost_counter.insert(call.root);
        }
    }

    /// The callback for an answer, or a tick, has returned.
    pub(crate) fn settled(&mut self, actor: usize, job: Job) -> Result<(), Failure> {
        let settled = std::mem::take(&mut self.actors[actor].settled);
        if settled.len() > 1 {
            self.tally.count(Happened::Shared);
        }
        for (request, action) in settled {
            self.decided(actor, request, action)?;
        }
        self.actors[actor].is_told = false;
        let Job::CallResponse { token } = job else { return Ok(()) };
        let Some(call) = self.actors[actor].calls.remove(&token) else { return Ok(()) };
        self.check_that_it_does_not_hang(actor, &call)?;
        if let Some(answer) = call.answer {
            self.fleet.acknowledge(self.steps, self.actors[actor].proxy, &answer.acknowledged);
        }
        Ok(())
    }

    /// A client's patience is over. True if its request still waits.
    pub(crate) fn leaves(&mut self, request: usize) -> bool {
        let is_waiting =
            |journey: &crate::journey::Journey| journey.fate == Fate::Waiting && journey.is_paused;
        if !self.journeys.get(request).is_some_and(is_waiting) {
            return false;
        }
        self.tally.count(Happened::ClientLeft);
        self.journeys[request].fate = Fate::Left;
        let decision = self.decision(request);
        let config = self.scenario.configs[self.journeys[request].config].clone();
        let rules = self.subjects(&config, request);
        self.oracle.leave(&decision, &rules, true);
        true
    }

    /// The same decision in the fleet's time, and how it came about.
    pub(crate) fn fleet_view(
        &self,
        actor: usize,
        request: usize,
        decision: &Decision,
    ) -> (Decision, Circumstances) {
        let journey = &self.journeys[request];
        let lost = journey.began_without_counter || self.actors[actor].lost_counter.contains(&journey.root);
        let found_ns = self.actors[actor].found_counter_ns.get(&journey.root);
        let is_rival = |(other, rival): &(usize, &crate::journey::Journey)| {
            *other != request
                && rival.fate == Fate::Waiting
                && self.actors[rival.actor].proxy == decision.proxy
        };
        let cost_max = |(_, rival): (usize, &crate::journey::Journey)| {
            let rules = &self.scenario.configs[rival.config].rules;
            rules.iter().map(|rule| rule.cost_of(&rival.request)).max().unwrap_or(1)
        };
        let how = Circumstances {
            contenders: self.journeys.under_way().filter(is_rival).map(cost_max).sum(),
            lost_lately: found_ns.is_some_and(|at_ns| self.now_ns < at_ns + DENIAL_REMEMBERED_NS),
            proxy: decision.proxy,
            vm: (actor, journey.generation),
            is_told: self.actors[actor].is_told && !journey.is_untold,
            has_lost_counter: lost,
            is_blind: !self.actors[actor].has_heard.contains(&journey.root),
            began_step: journey.began_step,
            started_ns: EPOCH_NS,
        };
        let decision = Decision {
            read_ms: Some(journey.began_ns / MS),
            end_ms: self.now_ns / MS,
            // A step of the proxy's clock is no excuse here.
            is_faulty: journey.is_faulty && !journey.is_out_of_time,
            ..decision.clone()
        };
        (decision, how)
    }

    /// Nobody waits for longer than the calls that he waits for.
    pub(crate) fn check_wait(&self, request: usize) -> Result<(), Failure> {
        let journey = &self.journeys[request];
        let timeout_ms = self.scenario.configs[journey.config].counter_timeout_ms;
        let waited_ms = (self.now_ns - journey.began_ns) / MS;
        // A host that fails may take the filter's only chance to answer; then it gives up some seconds later.
        if journey.is_paused && !journey.is_faulty && waited_ms > 2 * timeout_ms + WAIT_MS_MAX {
            return Err(format!("request {request} has waited for {waited_ms} ms"));
        }
        Ok(())
    }

    /// The fleet's oracle judges an admission.
    pub(crate) fn fleet_admits(
        &mut self,
        actor: usize,
        request: usize,
        decision: &Decision,
        rules: &[Subject<'_>],
    ) -> Result<(), Failure> {
        self.check_wait(request)?;
        let (decision, how) = self.fleet_view(actor, request, decision);
        let before = self.fleet.fallen_back;
        for subject in rules.iter().filter(|subject| subject.n > 1) {
            let is_global = subject.rule.global.is_some();
            self.tally.count(if is_global { Happened::CostlyInFleet } else { Happened::Costly });
        }
        let mut fleet = std::mem::take(&mut self.fleet);
        let leased = |rule: &Rule, global, limit: &Limit| self.leased_at_most(how.proxy, rule, global, limit);
        let judged = fleet.admit(&decision, how, rules, leased);
        self.fleet = fleet;
        if self.fleet.fallen_back > before {
            self.tally.count(Happened::FallBack);
        }
        judged.map_err(|why| format!("request {request}: {why}"))
    }

    /// The same for a denial by one of its rules.
    pub(crate) fn fleet_denies(
        &mut self,
        actor: usize,
        request: usize,
        decision: &Decision,
        (subject, global): (&Subject<'_>, Global),
    ) -> Result<(), Failure> {
        self.check_wait(request)?;
        let (decision, how) = self.fleet_view(actor, request, decision);
        self.oracle.denied += 1;
        self.fleet.deny(&decision, how, subject, global).map_err(|why| format!("request {request}: {why}"))
    }

    /// The counter's books agree with what was admitted, if nothing has happened that a fault excuses.
    pub(crate) fn check_books(&mut self) -> Result<(), Failure> {
        let excuses = [
            Happened::VmKilled,
            Happened::Restart,
            Happened::CounterRestart,
            Happened::BadStatus,
            Happened::ConfigUpdate,
            Happened::GiveUp,
            Happened::AlienState,
            Happened::ZoneEviction,
            Happened::ZoneFull,
            Happened::ForeignValue,
        ];
        let begun_ms = EPOCH_NS / MS;
        let now_ms = self.now_ns / MS;
        let has_ended = begun_ms / BOOKS_WINDOW_MS != now_ms / BOOKS_WINDOW_MS;
        if has_ended || excuses.iter().any(|what| self.tally.of(*what) > 0) {
            return Ok(());
        }
        // On Kong a call belongs to its request: what was taken for one that left stays taken, of one whose call
        // failed nobody will ever know, and it has no number by which the counter would know it again.
        let lost = [
            Happened::ClientLeft,
            Happened::Repeated,
            Happened::TimeOut,
            Happened::Malformed,
            Happened::Oversized,
            Happened::Unavailable,
            Happened::CounterDown,
        ];
        let stray_max = match self.scenario.flavour {
            Flavour::Envoy => 0,
            Flavour::Kong => lost.iter().map(|what| self.tally.of(*what)).sum(),
        };
        let requests = || self.scenario.arrivals.iter().map(|arrival| &arrival.request);
        let cost = |rule: &Rule| requests().map(|request| rule.cost_of(request)).max().unwrap_or(1);
        let cost_max = self.scenario.configs[0].rules.iter().map(cost).max().unwrap_or(1);
        let stray_max = stray_max * cost_max;
        let Some(central) = &mut self.post.central else { return Ok(()) };
        self.fleet.compare_books(central, now_ms, &self.scenario.configs[0].rules, stray_max)
    }
}
