//! The life of proxies, VMs and requests: starts, updates, deaths, and what follows when a callback returns.

use crate::actor::{Job, Role, Root};
use crate::identity;
use crate::journey::{Fate, Journey};
use crate::scenario::MS;
use crate::shared::Flavour;
use crate::tally::Happened;
use crate::vm::{Progress, Trap, Vm};
use crate::world::{Event, Failure, World};

/// How long after its death a VM is there again.
pub(crate) const RELOAD_NS: u64 = 5 * MS;
/// How long an old config's requests may take to drain.
const DRAIN_NS: u64 = 1_200 * MS;
/// What a callback returns to let the request go on.
pub(crate) const ACTION_CONTINUE: u64 = 0;
/// What it returns to hold the request.
pub(crate) const ACTION_PAUSE: u64 = 1;

impl World<'_> {
    /// An event's time has come.
    pub(crate) fn fire(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            // Restarted twice in a row, it starts once.
            Event::Start { proxy } if self.proxies[proxy].is_up || self.proxies[proxy].trying.is_some() => {}
            Event::Start { proxy } => self.start_proxy(proxy),
            Event::Arrive { arrival } => {
                self.expect(arrival + 1);
                self.arrive(arrival);
            }
            Event::Tick { actor, generation, root, period_ns, number } => {
                // Another period has taken its place, or its plugin is gone.
                let is_its = |own: &mut Root| own.periods == number;
                if self.actors[actor].generation == generation
                    && self.actors[actor].root(root).is_some_and(is_its)
                {
                    self.push(actor, Job::Tick { root });
                    let next_ns = self.now_ns + period_ns;
                    self.at(next_ns, Event::Tick { actor, generation, root, period_ns, number });
                }
            }
            Event::Respond { request } => {
                // One whose VM has died has ended.
                if let Some(journey) = self.journeys.get(request) {
                    let (actor, has_response) = (journey.actor, journey.request.status.is_some());
                    if has_response {
                        self.push(actor, Job::Response { request });
                    }
                    self.push(actor, Job::DeleteStream { request });
                }
            }
            Event::CallEnds { actor, generation, token } => {
                if self.actors[actor].generation == generation {
                    self.push(actor, Job::CallResponse { token });
                }
            }
            Event::CallTimesOut { actor, generation, token } => self.call_times_out(actor, generation, token),
            Event::CounterHears { letter } => self.counter_hears(letter)?,
            Event::CallAnswered { actor, generation, answer } => {
                self.call_answered(actor, generation, answer);
            }
            Event::Leave { request } => {
                if let Some(journey) = self.journeys.get(request) {
                    self.push(journey.actor, Job::Leave { request });
                }
            }
            Event::Reload { actor, generation } => {
                if self.actors[actor].generation == generation && self.actors[actor].vm.is_none() {
                    let config = self.proxies[self.actors[actor].proxy].config;
                    self.start_vm(actor, config).map_err(|trap| trap.0)?;
                }
            }
            Event::Retire { actor, generation, root } => self.retire(actor, generation, root),
            Event::Fault { proxy, planned } => self.inflict(proxy, planned)?,
        }
        Ok(())
    }

    pub(crate) fn push(&mut self, actor: usize, job: Job) {
        if !self.actors[actor].can_run() {
            self.actors[actor].waiting_since_ns = self.now_ns;
        }
        self.actors[actor].jobs.push_back(job);
    }

    pub(crate) fn actors_of(&self, proxy: usize, role: Role) -> Vec<usize> {
        let is_one = |index: &usize| self.actors[*index].proxy == proxy && self.actors[*index].role == role;
        (0..self.actors.len()).filter(is_one).collect()
    }

    /// Envoy tries the config in a canary first; in Kong every worker starts for itself.
    fn start_proxy(&mut self, proxy: usize) {
        match self.scenario.flavour {
            Flavour::Envoy => self.try_config(proxy, self.proxies[proxy].config),
            Flavour::Kong => self.start_vms(proxy),
        }
    }

    pub(crate) fn try_config(&mut self, proxy: usize, config: usize) {
        self.proxies[proxy].trying = Some(config);
        let canary = self.actors_of(proxy, Role::Canary)[0];
        self.drop_vm(canary);
        // Instances of a module that compiled do not fail.
        let _ = self.start_vm(canary, config);
    }

    fn start_vms(&mut self, proxy: usize) {
        let config = self.proxies[proxy].config;
        self.proxies[proxy].is_up = true;
        let mut all = self.actors_of(proxy, Role::Worker);
        if self.scenario.flavour == Flavour::Envoy {
            all.extend(self.actors_of(proxy, Role::Main));
        }
        for actor in all {
            let _ = self.start_vm(actor, config);
        }
    }

    fn start_vm(&mut self, actor: usize, config: usize) -> Result<(), Trap> {
        self.actors[actor].vm = Some(Vm::new(self.program)?);
        self.actors[actor].waiting_since_ns = self.now_ns;
        self.push(actor, Job::Initialize);
        if self.bug > 0 {
            self.push(actor, Job::Plant);
        }
        self.start_root(actor, config);
        self.note(actor, || "VM starts".to_owned());
        Ok(())
    }

    fn start_root(&mut self, actor: usize, config: usize) {
        let id = self.actors[actor].new_context();
        self.actors[actor].roots.push(Root {
            id,
            config,
            is_ready: false,
            has_tick: false,
            periods: 0,
            secret: None,
        });
        for job in [Job::CreateRoot { root: id }, Job::StartVm { root: id }, Job::Configure { root: id }] {
            self.push(actor, job);
        }
    }

    /// Makes the next callback of an idle VM.
    pub(crate) fn begin(&mut self, actor: usize) -> Result<(), Failure> {
        let Some(job) = self.actors[actor].jobs.pop_front() else { return Ok(()) };
        if let Job::Tick { root } = job
            && self.actors[actor].root(root).is_none()
        {
            // The host cancels the timer of a plugin that is gone.
            return Ok(());
        }
        if let Job::Leave { request } = job
            && !self.leaves(request)
        {
            return Ok(());
        }
        let bug = self.bug;
        let context = |request: usize| self.journeys[request].context;
        let (export, args): (&str, Vec<u32>) = match job {
            Job::Initialize => ("_initialize", vec![]),
            Job::Plant => ("tidegate_plant", vec![bug]),
            Job::CreateRoot { root } => ("proxy_on_context_create", vec![root, 0]),
            Job::StartVm { root } => ("proxy_on_vm_start", vec![root, 0]),
            Job::Configure { root } => ("proxy_on_configure", vec![root, 1]),
            Job::Tick { root } => ("proxy_on_tick", vec![root]),
            Job::DeleteRoot { root } => ("proxy_on_delete", vec![root]),
            Job::CreateStream { request } => {
                let Some(root) = self.actors[actor].root_for_requests() else { return Ok(()) };
                let (root, config) = (root.id, root.config);
                let context = self.actors[actor].new_context();
                let journey = &mut self.journeys[request];
                (journey.root, journey.config, journey.context) = (root, config, context);
                ("proxy_on_context_create", vec![context, root])
            }
            Job::Request { request } => ("proxy_on_request_headers", vec![context(request), 4, 1]),
            Job::Response { request } => ("proxy_on_response_headers", vec![context(request), 3, 1]),
            Job::DeleteStream { request } | Job::Leave { request } => {
                ("proxy_on_delete", vec![context(request)])
            }
            Job::CallResponse { token } => match self.call_response_args(actor, token) {
                Some(args) => ("proxy_on_http_call_response", args),
                None => return Ok(()),
            },
        };
        self.actors[actor].effective = args.first().copied().unwrap_or(0);
        match job {
            Job::Request { request } if !self.scenario.is_probe => {
                self.note_begin(actor, request);
                self.watch_counters(request);
            }
            Job::CallResponse { token } => self.note_answer(actor, token),
            _ => {}
        }
        self.note(actor, || format!("{job:?}"));
        self.actors[actor].running = Some(job);
        self.actors[actor].misread.clear();
        let vm = self.actors[actor].vm.as_mut().ok_or("no VM")?;
        let progress = vm.call(export, &args).map_err(|trap| format!("{job:?} trapped: {trap}"))?;
        self.proceed(actor, progress)
    }

    pub(crate) fn proceed(&mut self, actor: usize, progress: Progress) -> Result<(), Failure> {
        let Progress::Finished(result) = progress else { return Ok(()) };
        let Some(job) = self.actors[actor].running.take() else { return Ok(()) };
        if let Some(request) = job.request() {
            let fuel = self.actors[actor].vm.as_ref().map_or(0, Vm::fuel_used);
            self.journeys[request].cost.fuel += fuel;
        }
        match job {
            Job::StartVm { .. } if result != 1 => Err("on_vm_start said no".to_owned()),
            Job::Configure { root } => {
                self.note(actor, || format!("configured: {result}"));
                self.configured(actor, root, result == 1)
            }
            Job::DeleteRoot { root } => {
                self.retire_config(actor, root);
                self.actors[actor].roots.retain(|other| other.id != root);
                Ok(())
            }
            Job::DeleteStream { request } | Job::Leave { request } => {
                self.journeys.end(request);
                Ok(())
            }
            Job::Request { request } if result != ACTION_CONTINUE && self.may_wait(request) => {
                self.journeys[request].is_paused = true;
                if let Some(patience_ns) = self.journeys[request].request.patience_ns {
                    self.at(self.now_ns + patience_ns, Event::Leave { request });
                }
                Ok(())
            }
            Job::Request { request } => {
                self.check_that_it_may_go_on(request)?;
                self.decided(actor, request, result)
            }
            Job::Response { .. } if result != ACTION_CONTINUE => Err("a response was held up".to_owned()),
            Job::CallResponse { .. } | Job::Tick { .. } => {
                self.excuse_while_split(self.actors[actor].proxy);
                self.settled(actor, job)
            }
            _ => Ok(()),
        }
    }

    fn configured(&mut self, actor: usize, root: u32, is_accepted: bool) -> Result<(), Failure> {
        let proxy = self.actors[actor].proxy;
        let is_disturbed = !self.scenario.is_faultless();
        if !is_accepted && !is_disturbed {
            return Err("a good config was refused".to_owned());
        }
        if self.actors[actor].role == Role::Canary {
            self.drop_vm(actor);
            let tried = self.proxies[proxy].trying.take();
            self.canary_said(proxy, tried, is_accepted);
            return Ok(());
        }
        if is_accepted {
            let marker = self.proxies[proxy].shared.peek(identity::MARKER_KEY);
            let secret = marker.and_then(identity::secret_of_marker);
            if let Some(root) = self.actors[actor].root(root) {
                root.is_ready = true;
                root.secret = secret;
            }
            let generation = self.actors[actor].generation;
            let old: Vec<u32> =
                self.actors[actor].roots.iter().map(|other| other.id).filter(|id| *id != root).collect();
            for root in old {
                self.at(self.now_ns + DRAIN_NS, Event::Retire { actor, generation, root });
            }
        } else {
            // The proxy would answer this worker's requests with an error until the VM is replaced.
            self.lose_vm(actor);
        }
        Ok(())
    }

    fn canary_said(&mut self, proxy: usize, tried: Option<usize>, is_accepted: bool) {
        match (tried, is_accepted, self.proxies[proxy].is_up) {
            (Some(config), true, true) => {
                self.tally.count(Happened::ConfigUpdate);
                let slots = |config: usize| self.scenario.configs[config].slots;
                if slots(config) != slots(self.proxies[proxy].config) {
                    self.tally.count(Happened::Resize);
                }
                self.note_changed_limits(self.proxies[proxy].config, config);
                self.proxies[proxy].config = config;
                let mut all = self.actors_of(proxy, Role::Worker);
                all.extend(self.actors_of(proxy, Role::Main));
                for actor in all {
                    if self.actors[actor].vm.is_some() {
                        self.start_root(actor, config);
                    }
                }
            }
            (Some(_), true, false) => self.start_vms(proxy),
            (_, false, true) => self.tally.count(Happened::UpdateRefused),
            // A start that fails is tried again, as whoever supervises the proxy does.
            (_, _, false) => self.at(self.now_ns + RELOAD_NS, Event::Start { proxy }),
            (None, true, true) => {}
        }
    }

    fn retire(&mut self, actor: usize, generation: u64, root: u32) {
        if self.actors[actor].generation != generation || self.actors[actor].root(root).is_none() {
            return;
        }
        let is_used = |job: &Job| job.request().is_some_and(|request| self.journeys[request].root == root);
        let still = self.actors[actor].jobs.iter().any(is_used)
            || self.journeys.under_way().any(|(_, journey)| {
                journey.actor == actor && journey.generation == generation && journey.root == root
            });
        if still {
            self.at(self.now_ns + 50 * MS, Event::Retire { actor, generation, root });
        } else {
            self.push(actor, Job::DeleteRoot { root });
        }
    }

    fn arrive(&mut self, arrival: usize) {
        let arriving = self.scenario.arrivals[arrival].clone();
        let workers = self.actors_of(arriving.proxy, Role::Worker);
        let actor = *self.rng.pick(&workers);
        let is_served = self.proxies[arriving.proxy].is_up && self.actors[actor].vm.is_some();
        let fate = if is_served { Fate::Waiting } else { Fate::Unserved };
        let generation = self.actors[actor].generation;
        let request = self.journeys.begin(Journey::new(arriving.request, actor, generation, fate));
        if is_served {
            self.push(actor, Job::CreateStream { request });
            self.push(actor, Job::Request { request });
        } else {
            self.journeys.end(request);
        }
    }

    /// A VM dies, with all that is in it, and is replaced.
    pub(crate) fn lose_vm(&mut self, actor: usize) {
        self.note(actor, || "VM dies".to_owned());
        let proxy = self.actors[actor].proxy;
        let is_canary = self.actors[actor].role == Role::Canary;
        self.drop_vm(actor);
        let generation = self.actors[actor].generation;
        if is_canary {
            let tried = self.proxies[proxy].trying.take();
            self.canary_said(proxy, tried, false);
        } else {
            self.at(self.now_ns + RELOAD_NS, Event::Reload { actor, generation });
        }
    }

    pub(crate) fn drop_vm(&mut self, actor: usize) {
        for root in self.actors[actor].roots.iter().map(|root| root.id).collect::<Vec<_>>() {
            self.retire_config(actor, root);
        }
        let dying = &mut self.actors[actor];
        let generation = dying.generation;
        dying.vm = None;
        dying.generation += 1;
        dying.running = None;
        dying.jobs.clear();
        dying.roots.clear();
        dying.calls.clear();
        dying.settled.clear();
        dying.lost_counter.clear();
        dying.has_heard.clear();
        dying.found_counter_ns.clear();
        dying.is_told = false;
        dying.next_context = 1;
        self.fleet.lose_vm((actor, generation));
        let is_in_it = |journey: &Journey| journey.actor == actor && journey.generation == generation;
        let in_it: Vec<usize> = self
            .journeys
            .under_way()
            .filter(|(_, journey)| is_in_it(journey))
            .map(|(request, _)| request)
            .collect();
        for request in &in_it {
            self.die(*request);
            self.journeys.end(*request);
        }
    }

    fn die(&mut self, request: usize) {
        if self.journeys[request].fate == Fate::Waiting {
            let decision = self.decision(request);
            let config = self.scenario.configs[self.journeys[request].config].clone();
            let rules = self.subjects(&config, request);
            if decision.first_write_step.is_some() {
                self.tally.count(Happened::KilledMidCharge);
            }
            self.oracle.leave(&decision, &rules, true);
            self.journeys[request].fate = Fate::Died;
        }
    }
}
