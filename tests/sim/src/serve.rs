//! Answers host calls, as the chosen host does; and faults, which answer instead.

use crate::actor::{Job, Role};
use crate::calls::{BAD_ARGUMENT, Call, FAILURES, NOT_FOUND, OK, Status};
use crate::life::ACTION_PAUSE;
use crate::scenario::MS;
use crate::shared::Flavour;
use crate::spec::serialised;
use crate::tally::Happened;
use crate::vm::{Asked, Trap, Vm};
use crate::world::{Event, Failure, World};

const BUFFER_PLUGIN_CONFIGURATION: u32 = 7;
const MAP_REQUEST_HEADERS: u32 = 0;
const MAP_RESPONSE_HEADERS: u32 = 2;
/// How much more often a canary's host calls fail than those of other VMs.
const CANARY_FAULTS_TIMES: u64 = 20;
const MAP_CALL_RESPONSE_HEADERS: u32 = 6;
const BUFFER_CALL_RESPONSE_BODY: u32 = 4;

impl World<'_> {
    /// Answers the call at which a VM waits, and lets it run on to the next.
    pub(crate) fn serve(&mut self, actor: usize) -> Result<(), Failure> {
        let asked = self.actors[actor].vm.as_ref().and_then(Vm::asked).cloned().ok_or("nothing asked")?;
        let job = self.actors[actor].running.ok_or("no callback runs")?;
        let is_doomed = self.is_between_charges(actor, job, &asked);
        if self.can_fail(actor) && (is_doomed || self.rng.chance(self.scenario.rates.kill)) {
            self.proxies[self.actors[actor].proxy].kills_between_charges &= !is_doomed;
            self.tally.count(Happened::VmKilled);
            self.lose_vm(actor);
            return Ok(());
        }
        match job {
            Job::Request { request } => {
                *self.journeys[request].cost.request_calls.entry(asked.call).or_default() += 1;
            }
            Job::Response { request } | Job::DeleteStream { request } => {
                *self.journeys[request].cost.response_calls.entry(asked.call).or_default() += 1;
            }
            Job::CallResponse { .. } => {
                for request in self.paused_in(actor) {
                    *self.journeys[request].cost.request_calls.entry(asked.call).or_default() += 1;
                }
            }
            _ => {}
        }
        let status = match self.injected(actor, job, &asked) {
            Some(status) => status,
            None => self.answer(actor, job, &asked).map_err(|trap| format!("{}: {trap}", asked.import))?,
        };
        self.note(actor, || format!("  {} -> {status}", asked.call.name()));
        let vm = self.actors[actor].vm.as_mut().ok_or("no VM")?;
        let progress = vm.resume(status).map_err(|trap| format!("{job:?} trapped: {trap}"))?;
        self.proceed(actor, progress)
    }

    fn is_between_charges(&self, actor: usize, job: Job, asked: &Asked) -> bool {
        let Job::Request { request } = job else { return false };
        self.proxies[self.actors[actor].proxy].kills_between_charges
            && asked.call == Call::SetShared
            && self.journeys[request].first_write_step.is_some()
    }

    /// Faults begin once a proxy is up: a start that fails is only a later start.
    pub(crate) fn can_fail(&self, actor: usize) -> bool {
        self.proxies[self.actors[actor].proxy].is_up && !self.is_winding_down
    }

    fn injected(&mut self, actor: usize, job: Job, asked: &Asked) -> Option<Status> {
        // A canary makes few calls; else too few updates would ever be refused.
        let times = if self.actors[actor].role == Role::Canary { CANARY_FAULTS_TIMES } else { 1 };
        if !self.can_fail(actor) || !self.rng.chance(self.scenario.rates.bad_status * times) {
            return None;
        }
        // No host fails at these for a request that lives; if one did, nothing could be done for it.
        let is_last_word = matches!(asked.call, Call::Continue | Call::SetContext)
            || asked.call == Call::Reply && !matches!(job, Job::Request { .. });
        if is_last_word {
            return None;
        }
        let status = *self.rng.pick(&FAILURES);
        // A host that denies the marker to one VM makes it lay out the table anew, under another secret. No host
        // says so of a value that is there; for slots we pretend it all the same.
        if asked.call == Call::GetShared && status == NOT_FOUND && matches!(job, Job::Configure { .. }) {
            return None;
        }
        self.tally.count(Happened::BadStatus);
        if let Job::Request { request } = job {
            let journey = &mut self.journeys[request];
            journey.is_faulty = true;
        } else if self.post.central.is_some() {
            self.spoil(actor, job);
        }
        if asked.call == Call::Http && self.post.central.is_some() {
            let root = self.root_of(actor, job);
            self.actors[actor].lost_counter.insert(root);
        }
        if asked.call == Call::GetShared && status == NOT_FOUND {
            let key = self.text(actor, asked, 0).unwrap_or_default();
            self.actors[actor].misread.insert(key);
        }
        self.note(actor, || format!("  fault: {} fails with {status}", asked.call.name()));
        Some(status)
    }

    fn answer(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        match asked.call {
            Call::GetShared => self.get_shared(actor, job, asked),
            Call::SetShared => self.set_shared(actor, job, asked),
            Call::Time => self.tell_time(actor, job, asked),
            Call::Headers => self.headers(actor, job, asked),
            Call::Header => self.header(actor, job, asked),
            Call::AddHeader => self.add_header(actor, job, asked),
            Call::GetProperty => self.property(actor, job, asked),
            Call::SetProperty => self.set_property(actor, job, asked),
            Call::Reply => self.reply(actor, job, asked),
            Call::Buffer => self.buffer(actor, job, asked),
            Call::Log => self.log(actor, asked),
            Call::SetTickPeriod => self.set_tick(actor, job, asked),
            Call::DefineMetric => self.define_metric(actor, asked),
            Call::IncrementMetric => Ok(self.increment_metric(actor, asked)),
            Call::Random => self.random(actor, asked),
            Call::Clock => self.clock(actor, asked),
            Call::Http => self.http_call(actor, job, asked),
            Call::Continue => self.continue_stream(actor, job),
            Call::SetContext => Ok(self.set_context(actor, asked.arg32(0))),
            Call::Unknown => Err(Trap("the filter is not known to call this".to_owned())),
        }
    }

    pub(crate) fn vm(&mut self, actor: usize) -> Result<&mut Vm, Trap> {
        self.actors[actor].vm.as_mut().ok_or_else(|| Trap("no VM".to_owned()))
    }

    pub(crate) fn text(&mut self, actor: usize, asked: &Asked, at: usize) -> Result<Vec<u8>, Trap> {
        let (pointer, size) = (asked.arg32(at), asked.arg32(at + 1));
        self.vm(actor)?.read(pointer, size)
    }

    fn tell_time(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let proxy = self.actors[actor].proxy;
        let mut now_ns = self.clock_ns(proxy);
        if self.scenario.flavour == Flavour::Kong {
            now_ns = now_ns / MS * MS;
        }
        if let Job::Request { request } = job {
            self.journeys[request].read_ms = Some(now_ns / MS);
        }
        self.vm(actor)?.write(asked.arg32(0), &now_ns.to_le_bytes())?;
        Ok(OK)
    }

    /// The headers of a map, if the callback is about one that has them.
    fn map(&self, actor: usize, job: Job, map: u32) -> Option<Vec<(String, String)>> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match (job, map) {
            (Job::Request { request }, MAP_REQUEST_HEADERS) => Some(self.journeys[request].request.pairs()),
            (Job::Response { request }, MAP_RESPONSE_HEADERS) => {
                let status = self.journeys[request].request.status.unwrap_or(0).to_string();
                let mut pairs = vec![pair(":status", &status), pair("content-type", "text/plain")];
                pairs.extend(self.journeys[request].response_headers.iter().cloned());
                Some(pairs)
            }
            (Job::CallResponse { token }, MAP_CALL_RESPONSE_HEADERS) => {
                self.actors[actor].calls.get(&token)?.answer.as_ref().map(|answer| answer.headers.clone())
            }
            _ => None,
        }
    }

    fn headers(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        // Envoy hands out an empty map of another phase, without a count even.
        let bytes = match (self.map(actor, job, asked.arg32(0)), self.scenario.flavour) {
            (Some(pairs), _) => serialised(&pairs),
            (None, Flavour::Envoy) => Vec::new(),
            (None, Flavour::Kong) => return Ok(BAD_ARGUMENT),
        };
        self.vm(actor)?.hand_over(&bytes, asked.arg32(1), asked.arg32(2))?;
        Ok(OK)
    }

    fn header(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let name = self.text(actor, asked, 1)?;
        let Some(pairs) = self.map(actor, job, asked.arg32(0)) else { return Ok(BAD_ARGUMENT) };
        let Some((_, value)) = pairs.iter().find(|(other, _)| other.as_bytes() == name) else {
            // An answer without headers has no map either.
            return Ok(if pairs.is_empty() { BAD_ARGUMENT } else { NOT_FOUND });
        };
        self.vm(actor)?.hand_over(value.as_bytes(), asked.arg32(3), asked.arg32(4))?;
        Ok(OK)
    }

    fn add_header(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let (Job::Response { request }, MAP_RESPONSE_HEADERS) = (job, asked.arg32(0)) else {
            return Ok(BAD_ARGUMENT);
        };
        let name = self.text(actor, asked, 1)?;
        let value = self.text(actor, asked, 3)?;
        if value.iter().any(u8::is_ascii_control) {
            return Err(Trap(
                "a header value holds a control character: the response would be split".to_owned(),
            ));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.journeys[request].response_headers.push((text(&name), text(&value)));
        Ok(OK)
    }

    fn property(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let path = self.text(actor, asked, 0)?;
        let value = match (path.as_slice(), job) {
            (b"plugin_name" | b"plugin_root_id", _) => b"sim".to_vec(),
            (b"source\0address", Job::Request { request }) => {
                let [a, b, c, d] = self.journeys[request].request.ip;
                match self.scenario.flavour {
                    Flavour::Envoy => format!("{a}.{b}.{c}.{d}:40000").into_bytes(),
                    Flavour::Kong => format!("{a}.{b}.{c}.{d}").into_bytes(),
                }
            }
            (b"xds\0route_metadata\0filter_metadata\0tidegate\0limits", Job::Request { request }) => {
                match self.scenario.configs[self.journeys[request].config].metadata {
                    Some(text) if self.scenario.flavour == Flavour::Envoy => text.as_bytes().to_vec(),
                    _ => return Ok(NOT_FOUND),
                }
            }
            (b"request\0path", Job::Request { request }) => {
                self.journeys[request].request.path.clone().into_bytes()
            }
            (b"request\0url_path", Job::Request { request }) => {
                let path = &self.journeys[request].request.path;
                path.split('?').next().unwrap_or_default().as_bytes().to_vec()
            }
            _ => return Ok(NOT_FOUND),
        };
        self.vm(actor)?.hand_over(&value, asked.arg32(2), asked.arg32(3))?;
        Ok(OK)
    }

    fn set_property(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let path = self.text(actor, asked, 0)?;
        let value = self.text(actor, asked, 2)?;
        let Some(request) = self.addressed(actor, job) else { return Ok(BAD_ARGUMENT) };
        if path.contains(&0) {
            // Envoy takes it, and no access log will ever show it.
            return Ok(if self.scenario.is_probe { OK } else { BAD_ARGUMENT });
        }
        self.journeys[request].access_log = String::from_utf8_lossy(&value).into_owned();
        Ok(OK)
    }

    fn reply(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let Some(request) = self.addressed(actor, job) else {
            return Err(Trap(
                "a local response outside of a living request takes the VM or the proxy down".to_owned(),
            ));
        };
        let headers = self.text(actor, asked, 5)?;
        if headers.contains(&b'\r') || headers.contains(&b'\n') {
            // Lengths below 14 do not hold these bytes by chance; longer ones do, so look at the texts.
            let texts = headers_texts(&headers).ok_or_else(|| Trap("bad header map".to_owned()))?;
            if texts.iter().any(u8::is_ascii_control) {
                return Err(Trap("a header value holds a control character".to_owned()));
            }
        }
        if asked.arg32(0) != 429 && !self.scenario.is_probe {
            return Err(Trap(format!("a denial has status {}", asked.arg32(0))));
        }
        if !self.journeys[request].is_answered {
            self.journeys[request].is_answered = true;
            self.journeys[request].body = self.text(actor, asked, 3)?;
            self.check_body(actor, job, request)?;
            self.settle(actor, job, request, ACTION_PAUSE)?;
        }
        Ok(OK)
    }

    /// Kong drops the connection of a request that is answered with a body from the callback of a call that had a
    /// body itself and was not in time.
    fn check_body(&self, actor: usize, job: Job, request: usize) -> Result<(), Trap> {
        let Job::CallResponse { token } = job else { return Ok(()) };
        let answer = self.actors[actor].calls.get(&token).and_then(|call| call.answer.as_ref());
        let is_late = answer.is_some_and(|answer| answer.is_time_out);
        let has_body = !self.journeys[request].body.is_empty();
        if self.scenario.flavour == Flavour::Kong && is_late && has_body && !self.scenario.is_probe {
            return Err(Trap(
                "a body in the answer to a call that was late: Kong drops the connection".to_owned(),
            ));
        }
        Ok(())
    }

    fn buffer(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let bytes = match (job, asked.arg32(0)) {
            (Job::Configure { root }, BUFFER_PLUGIN_CONFIGURATION) => {
                let config = self.actors[actor].root(root).map_or(0, |root| root.config);
                self.scenario.configs[config].text().into_bytes()
            }
            (Job::CallResponse { token }, BUFFER_CALL_RESPONSE_BODY) => {
                match self.actors[actor].calls.get(&token).and_then(|call| call.answer.as_ref()) {
                    Some(answer) if !answer.headers.is_empty() => answer.body.clone(),
                    _ => return Ok(NOT_FOUND),
                }
            }
            _ => return Ok(BAD_ARGUMENT),
        };
        self.vm(actor)?.hand_over(&bytes, asked.arg32(3), asked.arg32(4))?;
        Ok(OK)
    }

    fn log(&mut self, actor: usize, asked: &Asked) -> Result<Status, Trap> {
        let message = self.text(actor, asked, 1)?;
        self.note(actor, || format!("  log: {}", String::from_utf8_lossy(&message)));
        if message.windows(8).any(|part| part == b"panicked") {
            return Err(Trap(String::from_utf8_lossy(&message).into_owned()));
        }
        Ok(OK)
    }

    fn set_tick(&mut self, actor: usize, job: Job, asked: &Asked) -> Result<Status, Trap> {
        let root = match job {
            Job::Configure { root } => root,
            Job::CallResponse { .. } => self.root_of(actor, job),
            _ => return Err(Trap(format!("a tick period from {job:?}: nobody has tried that"))),
        };
        let flavour = self.scenario.flavour;
        let generation = self.actors[actor].generation;
        let is_canary = self.actors[actor].role == Role::Canary;
        let Some(own) = self.actors[actor].root(root) else { return Ok(BAD_ARGUMENT) };
        if own.has_tick && flavour == Flavour::Kong {
            return Err(Trap("a second tick period".to_owned()));
        }
        own.has_tick = true;
        own.periods += 1;
        let number = own.periods;
        if !is_canary {
            let period_ns = u64::from(asked.arg32(0)) * MS;
            let first_ns = self.now_ns + self.rng.between(1, period_ns);
            self.at(first_ns, Event::Tick { actor, generation, root, period_ns, number });
        }
        Ok(OK)
    }

    fn define_metric(&mut self, actor: usize, asked: &Asked) -> Result<Status, Trap> {
        let name = String::from_utf8_lossy(&self.text(actor, asked, 1)?).into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
            return Err(Trap(format!("a metric is called {name}")));
        }
        let names = &mut self.proxies[self.actors[actor].proxy].metric_names;
        let known = names.iter().position(|other| *other == name);
        let id = known.filter(|_| self.scenario.flavour == Flavour::Kong).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        self.vm(actor)?.write(asked.arg32(3), &(id as u32).to_le_bytes())?;
        Ok(OK)
    }

    fn increment_metric(&mut self, actor: usize, asked: &Asked) -> Status {
        let (id, offset) = (asked.arg32(0), asked.arg(1).cast_signed());
        let proxy = &mut self.proxies[self.actors[actor].proxy];
        let Some(name) = proxy.metric_names.get(id as usize) else { return NOT_FOUND };
        if offset <= 0 {
            return BAD_ARGUMENT;
        }
        *proxy.metrics.entry(name.clone()).or_default() += offset.cast_unsigned();
        OK
    }

    /// The real clock is the proxy's own; the other one never steps.
    fn clock(&mut self, actor: usize, asked: &Asked) -> Result<Status, Trap> {
        const REAL: u32 = 0;
        let proxy = self.actors[actor].proxy;
        let time_ns = if asked.arg32(0) == REAL { self.clock_ns(proxy) } else { self.monotonic_ns(proxy) };
        self.vm(actor)?.write(asked.arg32(2), &time_ns.to_le_bytes())?;
        Ok(OK)
    }

    fn random(&mut self, actor: usize, asked: &Asked) -> Result<Status, Trap> {
        let proxy = self.actors[actor].proxy;
        let bytes: Vec<u8> =
            (0..asked.arg32(1)).map(|_| self.proxies[proxy].random.next().to_le_bytes()[0]).collect();
        self.vm(actor)?.write(asked.arg32(0), &bytes)?;
        Ok(OK)
    }
}

/// Names and values of a serialised header map, without the zeros between them.
fn headers_texts(bytes: &[u8]) -> Option<Vec<u8>> {
    let count = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let texts = bytes.get(4 + 8 * count..)?;
    Some(texts.iter().copied().filter(|byte| *byte != 0).collect())
}
