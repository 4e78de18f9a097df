//! What the oracle is told: where a request's counters are, and how it was decided.

use crate::actor::Job;
use crate::identity;
use crate::journey::Fate;
use crate::life::ACTION_CONTINUE;
use crate::oracle::{CounterId, Decision, Subject};
use crate::scenario::{MS, US};
use crate::spec::{Config, Request, Rule};
use crate::tally::Happened;
use crate::world::{Event, Failure, World};

/// How many decisions a run makes before it forgets counters that have been idle for long.
const DECISIONS_REMEMBERED: usize = 100_000;

impl World<'_> {
    /// Tells the oracle where the counters of a request are kept.
    pub(crate) fn watch_counters(&mut self, request: usize) {
        let journey = &self.journeys[request];
        let proxy = self.actors[journey.actor].proxy;
        let (actor, root) = (journey.actor, journey.root);
        let Some(secret) = self.actors[actor].root(root).and_then(|root| root.secret) else { return };
        let config = &self.scenario.configs[journey.config];
        let canonical = *self.proxies[proxy].secret.get_or_insert_with(|| {
            self.oracle.place_anew(proxy, |id| {
                identity::slot_in(&secret, &id.rule, &id.key, id.place.region, config)
            });
            secret
        });
        for subject in subjects(&canonical, config, &journey.request) {
            let Subject { rule, key, .. } = &subject;
            let slot = identity::slot(&secret, rule, key, config);
            for limit in &rule.limits {
                let fingerprint = identity::fingerprint(&secret, &rule.name, limit, key);
                let id = CounterId::new(proxy, &subject, limit);
                self.proxies[proxy].slots.entry(slot).or_default().insert((fingerprint, id, rule.is_strict));
            }
        }
    }

    /// The rules that apply to a request, for the oracle.
    pub(crate) fn subjects<'c>(&self, config: &'c Config, request: usize) -> Vec<Subject<'c>> {
        let journey = &self.journeys[request];
        let secret = self.proxies[self.actors[journey.actor].proxy].secret.unwrap_or_default();
        subjects(&secret, config, &journey.request)
    }

    pub(crate) fn decision(&mut self, request: usize) -> Decision {
        let proxy = self.actors[self.journeys[request].actor].proxy;
        let end_ms = self.clock_ns(proxy) / MS;
        let journey = &self.journeys[request];
        Decision {
            proxy,
            read_ms: journey.read_ms,
            end_ms,
            now_ns: self.now_ns,
            first_write_step: journey.first_write_step,
            is_faulty: journey.is_faulty || journey.read_ms.is_some_and(|read_ms| read_ms > end_ms),
        }
    }

    /// The request callback has returned: the oracle judges.
    pub(crate) fn decided(&mut self, actor: usize, request: usize, action: u64) -> Result<(), Failure> {
        if self.scenario.is_probe {
            self.probed(actor, request, action);
            return Ok(());
        }
        let decision = self.decision(request);
        self.excuse_while_split(decision.proxy);
        let journey = &self.journeys[request];
        let config = self.scenario.configs[journey.config].clone();
        let rules = self.subjects(&config, request);
        let is_undone = journey.writes.values().any(|writes| *writes > 1);
        match (action == ACTION_CONTINUE, journey.is_answered) {
            (true, false) => {
                self.journeys[request].fate = Fate::Admitted;
                self.oracle.admit(&decision, &rules).map_err(|why| format!("request {request}: {why}"))?;
                self.fleet_admits(actor, request, &decision, &rules)?;
                let answer_ns = self.now_ns + self.rng.between(10 * US, 30 * MS);
                self.at(answer_ns, Event::Respond { request });
            }
            (false, true) => {
                self.journeys[request].fate = Fate::Denied;
                let log = self.journeys[request].access_log.clone();
                let by = log.split_whitespace().find_map(|part| part.strip_prefix("rule=")).unwrap_or("");
                // A strict newcomer to a slot that has displaced others may be denied early.
                let overflowed = &self.proxies[decision.proxy].overflowed;
                let is_crowded = rules.iter().any(|subject| {
                    subject.rule.name == by && subject.rule.is_strict && overflowed.contains(&subject.place)
                });
                let under_way = self.under_way(decision.proxy, request);
                let contenders = |id: &CounterId| {
                    under_way.iter().filter(|(other, _)| other == id).map(|(_, n)| n).sum::<u64>()
                };
                let is_it = |subject: &&Subject<'_>| subject.rule.name == by && !subject.rule.is_shadow;
                let subject = rules.iter().find(is_it);
                if let Some(of_fleet) = subject.and_then(|subject| Some((subject, subject.rule.global?))) {
                    self.fleet_denies(actor, request, &decision, of_fleet)?;
                } else {
                    let judged = self.oracle.deny(&decision, &rules, by, contenders);
                    if !is_crowded && !decision.is_faulty {
                        judged.map_err(|why| format!("request {request}: {why}"))?;
                    }
                }
                if is_undone {
                    self.tally.count(Happened::Undo);
                }
                self.oracle.leave(&decision, &rules, false);
                self.push(actor, Job::Response { request });
                self.push(actor, Job::DeleteStream { request });
            }
            (false, false) => return Err(format!("request {request} is paused, and nobody will answer it")),
            (true, true) => return Err(format!("request {request} was answered and went on")),
        }
        if self.scenario.is_faultless() && request % DECISIONS_REMEMBERED == DECISIONS_REMEMBERED - 1 {
            self.forget_idle(decision.proxy, decision.end_ms);
        }
        self.excuse_while_split(decision.proxy);
        let fate = self.journeys[request].fate;
        self.note(actor, || format!("request {request}: {fate:?}"));
        Ok(())
    }

    fn forget_idle(&mut self, proxy: usize, now_ms: u64) {
        self.oracle.forget_idle(now_ms);
        for known in self.proxies[proxy].slots.values_mut() {
            known.retain(|(_, id, _)| self.oracle.knows(id));
        }
    }

    /// Nobody judges the probe: its requests go on or are answered.
    fn probed(&mut self, actor: usize, request: usize, action: u64) {
        if action == ACTION_CONTINUE {
            self.journeys[request].fate = Fate::Admitted;
            self.at(self.now_ns, Event::Respond { request });
        } else {
            self.journeys[request].fate = Fate::Denied;
            self.push(actor, Job::Response { request });
            self.push(actor, Job::DeleteStream { request });
        }
    }

    /// The counters that other requests have charged, and how much, and may yet give back, or whose admission is not known yet: also
    /// those that wait, in the callback of an answer.
    fn under_way(&self, proxy: usize, except: usize) -> Vec<(CounterId, u64)> {
        let mut ids = Vec::new();
        for actor in (0..self.actors.len()).filter(|actor| self.actors[*actor].proxy == proxy) {
            let requests = match self.actors[actor].running {
                Some(Job::Request { request }) => vec![request],
                Some(Job::CallResponse { .. } | Job::Tick { .. }) => self.paused_in(actor),
                _ => continue,
            };
            for request in requests {
                let journey = &self.journeys[request];
                if request == except || journey.first_write_step.is_none() {
                    continue;
                }
                let config = &self.scenario.configs[journey.config];
                for subject in self.subjects(config, request) {
                    let limits = &subject.rule.limits;
                    let of_limit = |limit| (CounterId::new(proxy, &subject, limit), subject.n);
                    ids.extend(limits.iter().map(of_limit));
                }
            }
        }
        ids
    }
}

fn subjects<'c>(secret: &identity::Secret, config: &'c Config, request: &Request) -> Vec<Subject<'c>> {
    let subject = |(rule, key): (&'c Rule, Vec<u8>)| {
        let place = identity::slot(secret, rule, &key, config);
        Subject { rule, key, place, n: rule.cost_of(request) }
    };
    config.applying(request).into_iter().map(subject).collect()
}
