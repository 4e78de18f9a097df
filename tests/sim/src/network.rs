//! Calls to other services: what each host makes of them (the facts are measured; see docs/simulation.md).

use crate::actor::Job;
use crate::calls::{BAD_ARGUMENT, INTERNAL_FAILURE, OK, Status};
use crate::journey::Journey;
use crate::life::ACTION_CONTINUE;
use crate::scenario::{MS, US};
use crate::shared::Flavour;
use crate::vm::{Asked, Trap};
use crate::world::{Event, Failure, World};

/// What stands behind a name.
#[cfg_attr(not(test), expect(dead_code, reason = "only the probe calls them yet, and only in tests"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
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

/// A call under way, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct PendingCall {
    root: u32,
    /// The request that was active when the call was made.
    request: Option<usize>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl World<'_> {
    pub(crate) fn http_call(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let upstream = String::from_utf8_lossy(&self.text(actor, asked, 0)?).into_owned();
        let timeout_ns = u64::from(asked.arg32(8)) * MS;
        self.check_that_it_may_call(job)?;
        let is_envoy = self.scenario.flavour == Flavour::Envoy;
        let service = self.scenario.services.get(upstream.as_str()).copied();
        let service = match service {
            None if is_envoy => return Ok(BAD_ARGUMENT),
            Some(Service::Empty) if is_envoy => return Ok(INTERNAL_FAILURE),
            // A name that Kong cannot resolve is found out later.
            None | Some(Service::Empty) => Service::Refused,
            Some(service) => service,
        };
        let takes_ns = match service {
            Service::Late => timeout_ns,
            _ => self.rng.between(50 * US, 2 * MS).min(timeout_ns),
        };
        let request = self.addressed(actor, job);
        let call = PendingCall {
            root: self.root_of(actor, job),
            request,
            headers: self.answer_headers(service),
            body: if service == Service::Fine { b"fine\n".to_vec() } else { Vec::new() },
        };
        let own = &mut self.actors[actor];
        let (token, generation) = (own.next_token, own.generation);
        own.next_token += 1;
        own.calls.insert(token, call);
        if let Some(request) = request {
            self.journeys[request].has_called = true;
        }
        self.at(self.now_ns + takes_ns, Event::CallEnds { actor, generation, token });
        self.vm(actor)?.write(asked.arg32(9), &token.to_le_bytes())?;
        Ok(OK)
    }

    /// Kong traps where a call cannot be made from.
    fn check_that_it_may_call(&self, job: Job) -> Result<(), Trap> {
        let may = matches!(job, Job::Request { .. } | Job::Tick { .. } | Job::CallResponse { .. });
        if self.scenario.flavour == Flavour::Kong && !may {
            return Err(Trap(format!("a call from {job:?} traps")));
        }
        Ok(())
    }

    fn answer_headers(&self, service: Service) -> Vec<(String, String)> {
        let status = match (service, self.scenario.flavour) {
            (Service::Fine, _) => "200",
            (Service::Large, _) | (_, Flavour::Kong) => return Vec::new(),
            (Service::Late, Flavour::Envoy) => "504",
            (Service::Empty | Service::Refused, Flavour::Envoy) => "503",
        };
        vec![(":status".to_owned(), status.to_owned())]
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
        self.actors[actor].root(call.root)?;
        Some(vec![context, token, call.headers.len() as u32, call.body.len() as u32, 0])
    }

    fn root_of(&mut self, actor: usize, job: Job) -> u32 {
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
            Job::CallResponse { .. } => {
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
            return BAD_ARGUMENT;
        }
        self.actors[actor].effective = context;
        OK
    }

    pub(crate) fn continue_stream(&mut self, actor: usize, job: Job) -> Result<Status, Trap> {
        let Some(request) = self.addressed(actor, job) else {
            return Err(Trap("nothing to resume: the context is no request".to_owned()));
        };
        if !self.journeys[request].is_answered {
            self.settle(actor, job, request, ACTION_CONTINUE);
        }
        Ok(OK)
    }

    /// Remembers what a callback that is not the request's own has done to it, until the callback returns.
    pub(crate) fn settle(&mut self, actor: usize, job: Job, request: usize, action: u64) {
        if matches!(job, Job::CallResponse { .. }) {
            self.journeys[request].has_called = false;
            self.actors[actor].settled.push((request, action));
        }
    }

    /// Whether a request that is held has somebody who will let it go.
    pub(crate) fn waits_for_a_call(&self, request: usize) -> bool {
        let journey = &self.journeys[request];
        journey.has_called && !journey.is_answered
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
