//! Calls to other services: what each host makes of them (the facts are measured; see docs/simulation.md).

use crate::actor::Job;
use crate::calls::{BAD_ARGUMENT, INTERNAL_FAILURE, OK, Status};
use crate::fleet::Acknowledged;
use crate::journey::{Fate, Journey};
use crate::life::ACTION_CONTINUE;
use crate::scenario::{MS, US};
use crate::shared::Flavour;
use crate::tally::Happened;
use crate::vm::{Asked, Trap};
use crate::world::{Event, Failure, World};

/// The most that one callback may resume or answer: each re-enters the VM, which dies of too many.
const SETTLED_MAX: usize = 32;
/// Streams that are gone, of a million, that Envoy still turns to if it is told to.
const DEAD_STREAMS_TAKEN: u64 = 50_000;

/// What stands behind a name.
#[cfg_attr(not(test), expect(dead_code, reason = "the probe calls some of them, and only in tests"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// The fleet's counter.
    Counter,
    /// Known, but with nobody who could answer.
    Empty,
    /// Nobody listens.
    Refused,
    /// It never answers.
    Late,
    /// It answers with more than a host keeps.
    Large,
    /// It answers.
    Fine,
}

/// A call under way, and its answer when it is there.
#[derive(Clone, Debug)]
pub(crate) struct PendingCall {
    pub(crate) root: u32,
    /// The request that was active when the call was made.
    pub(crate) request: Option<usize>,
    pub(crate) answer: Option<Answer>,
}

/// What a call is answered with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether it is an answer of the counter, whole and fresh.
    pub(crate) is_good: bool,
    /// Whether it is there because the answer was not in time.
    pub(crate) is_time_out: bool,
    /// The reports that it acknowledges.
    pub(crate) acknowledged: Vec<Acknowledged>,
}

impl Answer {
    /// No headers and no body: the host has nothing to tell, or too much.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    pub(crate) fn of_status(status: u16) -> Self {
        Self { headers: vec![(":status".to_owned(), status.to_string())], ..Self::default() }
    }

    /// Nobody listens.
    pub(crate) fn refused(flavour: Flavour) -> Self {
        match flavour {
            Flavour::Envoy => Self::of_status(503),
            Flavour::Kong => Self::none(),
        }
    }

    /// It did not come in time.
    fn timed_out(flavour: Flavour) -> Self {
        let answer = match flavour {
            Flavour::Envoy => Self::of_status(504),
            Flavour::Kong => Self::none(),
        };
        Self { is_time_out: true, ..answer }
    }
}

impl World<'_> {
    pub(crate) fn http_call(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let upstream = String::from_utf8_lossy(&self.text(actor, asked, 0)?).into_owned();
        let timeout_ns = u64::from(asked.arg32(8)) * MS;
        self.check_that_it_may_call(job)?;
        let flavour = self.scenario.flavour;
        let service = self.scenario.services.get(upstream.as_str()).copied();
        let call =
            PendingCall { root: self.root_of(actor, job), request: self.addressed(actor, job), answer: None };
        let answer = match (service, flavour) {
            (Some(Service::Counter), _) => return self.call_counter(actor, call, timeout_ns, asked),
            (None, Flavour::Envoy) => return Ok(BAD_ARGUMENT),
            (Some(Service::Empty), Flavour::Envoy) => return Ok(INTERNAL_FAILURE),
            // A name that Kong cannot resolve is found out later.
            (None | Some(Service::Empty | Service::Refused), _) => Answer::refused(flavour),
            (Some(Service::Late), _) => Answer::timed_out(flavour),
            (Some(Service::Large), _) => Answer::none(),
            (Some(Service::Fine), _) => Answer { body: b"fine\n".to_vec(), ..Answer::of_status(200) },
        };
        let takes_ns = match service {
            Some(Service::Late) => timeout_ns,
            _ => self.rng.between(50 * US, 2 * MS).min(timeout_ns),
        };
        let token = self.begin_call(actor, PendingCall { answer: Some(answer), ..call }, asked)?;
        let generation = self.actors[actor].generation;
        self.at(self.now_ns + takes_ns, Event::CallEnds { actor, generation, token });
        Ok(OK)
    }

    /// Gives a call its number.
    pub(crate) fn begin_call(&mut self, actor: usize, call: PendingCall, asked: &Asked) -> Result<u32, Trap> {
        if let Some(request) = call.request {
            self.journeys[request].has_called = true;
        }
        let own = &mut self.actors[actor];
        let token = own.next_token;
        own.next_token += 1;
        own.calls.insert(token, call);
        self.vm(actor)?.write(asked.arg32(9), &token.to_le_bytes())?;
        Ok(token)
    }

    /// A call's answer is there. What comes after it is of no interest to anybody.
    pub(crate) fn end_call(&mut self, actor: usize, token: u32, answer: Answer) {
        let Some(call) = self.actors[actor].calls.get_mut(&token) else { return };
        if call.answer.is_none() {
            call.answer = Some(answer);
            self.push(actor, Job::CallResponse { token });
        }
    }

    /// The host waits no longer for a call's answer.
    pub(crate) fn call_times_out(&mut self, actor: usize, generation: u64, token: u32) {
        if self.actors[actor].generation == generation {
            let answer = Answer::timed_out(self.scenario.flavour);
            if self.actors[actor].calls.get(&token).is_some_and(|call| call.answer.is_none()) {
                self.tally.count(Happened::TimeOut);
            }
            self.end_call(actor, token, answer);
        }
    }

    /// Kong traps where a call cannot be made from.
    fn check_that_it_may_call(&self, job: Job) -> Result<(), Trap> {
        let may = matches!(job, Job::Request { .. } | Job::Tick { .. } | Job::CallResponse { .. });
        if self.scenario.flavour == Flavour::Kong && !may {
            return Err(Trap(format!("a call from {job:?} traps")));
        }
        Ok(())
    }

    /// What the callback for an answer is called with. `None` if whoever asked is gone: in Envoy a call outlives
    /// its request but not its root, in Kong it belongs to its request.
    pub(crate) fn call_response_args(&mut self, actor: usize, token: u32) -> Option<Vec<u32>> {
        let call = self.actors[actor].calls.get(&token)?.clone();
        let context = match (self.scenario.flavour, call.request) {
            (Flavour::Kong, Some(request)) => {
                let asking = self.journeys.get(request).filter(|journey| !journey.is_answered);
                let Some(context) = asking.map(|journey| journey.context) else {
                    self.actors[actor].calls.remove(&token);
                    return None;
                };
                context
            }
            _ => call.root,
        };
        if self.actors[actor].root(call.root).is_none() {
            self.tally.count(Happened::RootGone);
            self.actors[actor].calls.remove(&token);
            return None;
        }
        let answer = call.answer.unwrap_or_default();
        Some(vec![context, token, answer.headers.len() as u32, answer.body.len() as u32, 0])
    }

    pub(crate) fn root_of(&mut self, actor: usize, job: Job) -> u32 {
        match job {
            Job::Configure { root } | Job::Tick { root } => root,
            Job::CallResponse { token } => self.actors[actor].calls.get(&token).map_or(0, |call| call.root),
            _ => job.request().map_or(0, |request| self.journeys[request].root),
        }
    }

    /// The request that answers and resumptions are about.
    pub(crate) fn addressed(&self, actor: usize, job: Job) -> Option<usize> {
        match job {
            Job::Request { request } => Some(request),
            Job::CallResponse { .. } | Job::Tick { .. } => {
                let own = &self.actors[actor];
                let is_it = |(_, journey): &(usize, &Journey)| {
                    journey.actor == actor
                        && journey.generation == own.generation
                        && journey.context == own.effective
                };
                self.journeys.under_way().find(is_it).map(|(request, _)| request)
            }
            _ => None,
        }
    }

    /// Envoy turns to another context if there is one; Kong says yes and stays where it is.
    pub(crate) fn set_context(&mut self, actor: usize, context: u32) -> Status {
        if self.scenario.flavour == Flavour::Kong {
            return OK;
        }
        let generation = self.actors[actor].generation;
        let is_request = self.journeys.under_way().any(|(_, journey)| {
            journey.actor == actor && journey.generation == generation && journey.context == context
        });
        if !is_request && self.actors[actor].root(context).is_none() {
            // For some streams that are gone Envoy says yes all the same.
            let was_there = context > 0 && context < self.actors[actor].next_context;
            if !was_there || !self.rng.chance(DEAD_STREAMS_TAKEN) {
                return BAD_ARGUMENT;
            }
        }
        self.actors[actor].effective = context;
        OK
    }

    pub(crate) fn continue_stream(&mut self, actor: usize, job: Job) -> Result<Status, Trap> {
        let Some(request) = self.addressed(actor, job) else {
            let effective = self.actors[actor].effective;
            if self.scenario.flavour == Flavour::Envoy && self.actors[actor].root(effective).is_none() {
                // To resume a stream that is gone does no harm.
                return Ok(OK);
            }
            return Err(Trap("nothing to resume: the context is no request".to_owned()));
        };
        if !self.journeys[request].is_answered {
            self.settle(actor, job, request, ACTION_CONTINUE)?;
        }
        Ok(OK)
    }

    /// Remembers what a callback that is not the request's own has done to it, until the callback returns.
    pub(crate) fn settle(&mut self, actor: usize, job: Job, request: usize, action: u64) -> Result<(), Trap> {
        if !matches!(job, Job::CallResponse { .. } | Job::Tick { .. }) {
            return Ok(());
        }
        self.journeys[request].has_called = false;
        let settled = &mut self.actors[actor].settled;
        // To resume twice does no harm.
        if !settled.iter().any(|(other, _)| *other == request) {
            settled.push((request, action));
        }
        if settled.len() > SETTLED_MAX {
            return Err(Trap(format!("more than {SETTLED_MAX} resumed or answered in one callback")));
        }
        Ok(())
    }

    /// Whether a request that is held may have somebody who will let it go: in Envoy any call of its VM, in Kong
    /// only its own.
    pub(crate) fn may_wait(&self, request: usize) -> bool {
        let journey = &self.journeys[request];
        let is_global = || self.scenario.configs[journey.config].is_global();
        let has_call = journey.has_called || self.scenario.flavour == Flavour::Envoy && is_global();
        has_call && !journey.is_answered
    }

    /// Kong: a request whose last call is over, and that is neither resumed nor answered, hangs.
    pub(crate) fn check_that_it_does_not_hang(
        &self,
        actor: usize,
        call: &PendingCall,
    ) -> Result<(), Failure> {
        let Some(request) = call.request.filter(|_| self.scenario.flavour == Flavour::Kong) else {
            return Ok(());
        };
        let is_waiting = self.journeys.get(request).is_some_and(|journey| journey.fate == Fate::Waiting);
        if is_waiting && !self.actors[actor].calls.values().any(|other| other.request == Some(request)) {
            return Err(format!("request {request} is left waiting, and nobody will answer it"));
        }
        Ok(())
    }

    /// Kong's worker crashes when a request goes on that has made a call.
    pub(crate) fn check_that_it_may_go_on(&self, request: usize) -> Result<(), Failure> {
        let journey = &self.journeys[request];
        if self.scenario.flavour == Flavour::Kong && journey.has_called && !journey.is_answered {
            return Err(format!("request {request} made a call and went on: the worker crashes"));
        }
        Ok(())
    }
}
