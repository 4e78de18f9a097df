//! A counter for tests: the core, a map, and a clock of its own.

use crate::mock::{MockHost, serialise};
use std::collections::BTreeMap;
use tidegate_config::wire::{Act, Answer, Batch, GroupAnswer, Sender, limit_tag, window_shift};
use tidegate_core::{Manner, Moment, Outcome, Retry, State, Take, Timestamp};
use tidegate_filter::Engine;

/// Rule, key and kind of limit.
type Name = (String, Vec<u8>, [u8; 11]);

pub(crate) struct FakeCounter {
    pub(crate) now_ms: u64,
    pub(crate) epoch: u64,
    pub(crate) proxies: u32,
    pub(crate) rules_off: Vec<String>,
    pub(crate) states: BTreeMap<Name, State>,
    remembered: BTreeMap<(u64, u32, u64), Answer>,
    /// All that it was sent, retries too.
    pub(crate) senders: Vec<Option<Sender>>,
    /// How much each take asked for that may get less: chunks of grants.
    pub(crate) chunks: Vec<u64>,
    /// How much was granted, and how much of all takes was given back.
    pub(crate) granted: u64,
    pub(crate) refunded: u64,
}

impl FakeCounter {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            now_ms,
            epoch: 7,
            proxies: 1,
            rules_off: Vec::new(),
            states: BTreeMap::new(),
            remembered: BTreeMap::new(),
            senders: Vec::new(),
            chunks: Vec::new(),
            granted: 0,
            refunded: 0,
        }
    }

    pub(crate) fn apply(&mut self, body: &[u8]) -> Answer {
        let batch = Batch::from_postcard(body).expect("the filter sends what the counter reads");
        self.senders.push(batch.sender);
        let key = batch.sender.map(|sender| (sender.proxy, sender.vm, sender.sequence));
        if let Some(answer) = key.and_then(|key| self.remembered.get(&key)) {
            return answer.clone();
        }
        let groups = batch.groups.iter().map(|group| self.group(&batch, group)).collect();
        let answer = Answer {
            now_ms: self.now_ms,
            epoch: self.epoch,
            proxies: self.proxies,
            rules_off: self.rules_off.clone(),
            groups,
        };
        if let Some(key) = key {
            self.remembered.insert(key, answer.clone());
        }
        answer
    }

    fn group(&mut self, batch: &Batch<'_>, group: &tidegate_config::wire::Group<'_>) -> GroupAnswer {
        let before = self.states.clone();
        let mut takes: Vec<Outcome> = group.takes.iter().map(|take| self.take(batch, take)).collect();
        let is_failed = group
            .takes
            .iter()
            .zip(&takes)
            .any(|(take, outcome)| matches!(take.act, Act::Take(Manner::All)) && outcome.is_refused());
        if is_failed {
            self.states = before;
            for outcome in &mut takes {
                outcome.taken = 0;
                outcome.receipt = 0;
            }
        }
        let state = |take: &tidegate_config::wire::Take<'_>| self.states.get(&name(take)).cloned();
        let states = if batch.states { group.takes.iter().map(state).collect() } else { Vec::new() };
        GroupAnswer { takes, states }
    }

    fn take(&mut self, batch: &Batch<'_>, take: &tidegate_config::wire::Take<'_>) -> Outcome {
        let shift = window_shift(&batch.namespace, take);
        let moment = Moment { now: Timestamp::from_ms(self.now_ms), shift };
        let limit = &take.limit.limit;
        let state = self.states.get(&name(take)).cloned();
        match take.act {
            Act::Take(manner) => {
                let (outcome, state) = limit.take(state, moment, Take { amount: take.n, manner });
                self.states.insert(name(take), state);
                if manner == Manner::Some {
                    self.chunks.push(take.n.get());
                    self.granted += outcome.taken;
                }
                outcome
            }
            Act::Refund { receipt } => {
                self.refunded += take.n.get();
                if let Some(state) = state {
                    self.states.insert(name(take), limit.refund(state, moment, receipt, take.n.get()));
                }
                Outcome { taken: 0, remaining: 0, reset_ms: 0, retry: Retry::Now, receipt: 0 }
            }
        }
    }

    /// What all counters of a rule have used, if it has one key and one limit.
    pub(crate) fn used(&self, rule: &str) -> u64 {
        let states = self.states.iter().filter(|((name, ..), _)| name == rule);
        states
            .map(|(_, state)| match state {
                State::FixedWindow(window) => window.count,
                State::SlidingWindow(window) => window.current,
                other => panic!("{other:?}"),
            })
            .sum()
    }

    /// Answers all calls that are under way, and those that these bring about.
    pub(crate) fn serve(&mut self, host: &MockHost, engine: &mut Engine) {
        loop {
            let call = host.sent.borrow_mut().pop();
            let Some((token, upstream, body)) = call else { return };
            assert_eq!(upstream, "tidegate");
            let answer = self.apply(&body).to_postcard();
            land(host, engine, token, "200", &answer);
        }
    }
}

fn name(take: &tidegate_config::wire::Take<'_>) -> Name {
    (take.rule.to_string(), take.key.to_vec(), limit_tag(&take.limit))
}

/// The call `token` is answered, as the host would do it.
pub(crate) fn land(host: &MockHost, engine: &mut Engine, token: u32, status: &str, body: &[u8]) {
    let headers = serialise(&[(":status", status.as_bytes())]);
    *host.answer.borrow_mut() = (headers, body.to_vec());
    assert!(engine.on_answer(host, token, 1, body.len()), "one of ours");
    see_to(host, engine);
    engine.send_waiting(host);
}

/// A call that came to nothing: no headers at all.
pub(crate) fn fail(host: &MockHost, engine: &mut Engine) {
    let (token, ..) = host.sent.borrow_mut().pop().expect("a call is under way");
    assert!(engine.on_answer(host, token, 0, 0));
    see_to(host, engine);
}

/// What the host's side does with those who have waited.
pub(crate) fn see_to(host: &MockHost, engine: &mut Engine) {
    use tidegate_filter::Host;
    while let Some(stream) = engine.next_done(host) {
        let is_entered = host.enter(stream).is_ok();
        if engine.see_to(host, is_entered) {
            host.resume().expect("resumed");
        }
    }
}
