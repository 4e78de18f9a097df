//! The way to the counter and back: a network that delays, loses, repeats, reorders and garbles, by the seed.
//!
//! Every call takes a time of its own there and back, so that two of them may overtake each other, and one that was
//! given up may still arrive. What really happened is tallied.

use crate::calls::{INTERNAL_FAILURE, OK, Status};
use crate::central::{Central, Heard};
use crate::fleet::Acknowledged;
use crate::network::{Answer, PendingCall};
use crate::scenario::{MS, SECOND, US};
use crate::shared::Flavour;
use crate::spec::pairs_of;
use crate::tally::Happened;
use crate::vm::{Asked, Trap};
use crate::world::{EPOCH_NS, Event, Failure, World};
use std::collections::BTreeMap;
use tidegate_config::wire;

/// The longest that one way of an ordinary call takes, and of one that is held up.
const WAY_NS_MAX: u64 = 3 * MS;
const HELD_UP_NS_MAX: u64 = 2 * SECOND;
/// How late a batch is repeated at most.
const REPEATED_NS_MAX: u64 = SECOND;

/// What goes wrong between proxies and counter, in parts of a million calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetRates {
    pub(crate) request_lost: u64,
    pub(crate) answer_lost: u64,
    /// A batch arrives twice.
    pub(crate) repeated: u64,
    /// A call takes up to two seconds one way.
    pub(crate) held_up: u64,
    pub(crate) malformed: u64,
    pub(crate) oversized: u64,
    /// The counter says 503, before it has heard the batch or after.
    pub(crate) unavailable: u64,
    /// Envoy has nobody to send it to, and says so at once.
    pub(crate) no_host: u64,
}

/// A batch on its way to the counter.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    actor: usize,
    generation: u64,
    token: u32,
    body: Vec<u8>,
    back: Back,
}

/// What becomes of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    Comes,
    Lost,
    /// It was one too many.
    Repeated,
    Malformed,
    Oversized,
    /// With whether the batch is heard all the same.
    Unavailable(bool),
}

/// The counter, and what is on its way to it and from it.
#[derive(Default)]
pub(crate) struct Post {
    pub(crate) central: Option<Central>,
    letters: BTreeMap<u64, Letter>,
    answers: BTreeMap<u64, (u32, Answer)>,
    count: u64,
    /// Until then nobody listens.
    down_until_ns: u64,
    /// The last call that was heard from each VM, to see one overtake another.
    heard: BTreeMap<(usize, u64), u32>,
}

/// The body of an answer and what it acknowledges, or a status that is none.
type Reply = Result<(Vec<u8>, Vec<Acknowledged>), u16>;

impl World<'_> {
    /// A call to the counter begins.
    pub(crate) fn call_counter(
        &mut self,
        actor: usize,
        call: PendingCall,
        timeout_ns: u64,
        asked: &Asked,
    ) -> Result<Status, Trap> {
        let headers = self.text(actor, asked, 2)?;
        let body = self.text(actor, asked, 4)?;
        check_headers(&headers)?;
        if timeout_ns == 0 {
            return Err(Trap("a call without a time-out may wait for ever".to_owned()));
        }
        self.tally.count(Happened::CounterCall);
        let can_fail = self.is_network_bad();
        let rates = self.scenario.net;
        if can_fail && self.rng.chance(rates.no_host) && self.scenario.flavour == Flavour::Envoy {
            self.tally.count(Happened::NoHost);
            let root = call.root;
            self.actors[actor].lost_counter.insert(root);
            for request in self.paused_in(actor) {
                let is_settled = self.actors[actor].settled.iter().any(|(other, _)| *other == request);
                self.journeys[request].is_untold |= !is_settled;
            }
            return Ok(INTERNAL_FAILURE);
        }
        let token = self.begin_call(actor, call, asked)?;
        let generation = self.actors[actor].generation;
        self.at(self.now_ns + timeout_ns, Event::CallTimesOut { actor, generation, token });
        let back = self.draw_back(can_fail);
        let letter = Letter { actor, generation, token, body, back };
        let proxy = self.actors[actor].proxy;
        if can_fail && (self.is_cut_off(proxy) || self.rng.chance(rates.request_lost)) {
            let what = if self.is_cut_off(proxy) { Happened::Partition } else { Happened::RequestLost };
            self.tally.count(what);
            return Ok(OK);
        }
        let way_ns = self.way_ns(can_fail);
        if can_fail && self.rng.chance(rates.repeated) {
            self.tally.count(Happened::Repeated);
            let late_ns = self.rng.between(0, REPEATED_NS_MAX);
            self.send(Letter { back: Back::Repeated, ..letter.clone() }, way_ns + late_ns);
        }
        self.send(letter, way_ns);
        Ok(OK)
    }

    /// Once nobody comes any more the network is well again: what was owed can be paid, and the books compared.
    fn is_network_bad(&self) -> bool {
        let last_ns = self.scenario.arrivals.last().map_or(0, |arrival| arrival.at_ns);
        self.now_ns <= EPOCH_NS + last_ns
    }

    fn draw_back(&mut self, can_fail: bool) -> Back {
        let rates = self.scenario.net;
        if !can_fail {
            return Back::Comes;
        }
        let choices = [
            (rates.answer_lost, Back::Lost),
            (rates.malformed, Back::Malformed),
            (rates.oversized, Back::Oversized),
            (rates.unavailable, Back::Unavailable(self.rng.chance(500_000))),
        ];
        let hit = choices.into_iter().find(|(rate, _)| self.rng.chance(*rate));
        hit.map_or(Back::Comes, |(_, back)| back)
    }

    fn way_ns(&mut self, can_fail: bool) -> u64 {
        if can_fail && self.rng.chance(self.scenario.net.held_up) {
            self.tally.count(Happened::HeldUp);
            return self.rng.between(10 * MS, HELD_UP_NS_MAX);
        }
        self.rng.between(50 * US, WAY_NS_MAX)
    }

    fn send(&mut self, letter: Letter, way_ns: u64) {
        self.post.count += 1;
        self.post.letters.insert(self.post.count, letter);
        self.at(self.now_ns + way_ns, Event::CounterHears { letter: self.post.count });
    }

    /// Whether a proxy is cut off from the counter.
    pub(crate) fn is_cut_off(&self, proxy: usize) -> bool {
        self.now_ns < self.proxies[proxy].cut_off_until_ns && self.is_network_bad()
    }

    /// The counter goes away for so long, and has forgotten everything when it is back.
    pub(crate) fn restart_counter(&mut self, down_ns: u64) -> Result<(), Failure> {
        self.tally.count(Happened::CounterRestart);
        self.post.down_until_ns = self.now_ns + down_ns;
        if let Some(central) = &mut self.post.central {
            central.lose_state(self.now_ns / MS)?;
        }
        self.fleet.lose_all(self.steps, self.now_ns / MS);
        Ok(())
    }

    /// A batch arrives at the counter.
    pub(crate) fn counter_hears(&mut self, letter: u64) -> Result<(), Failure> {
        let Some(letter) = self.post.letters.remove(&letter) else { return Ok(()) };
        if self.now_ns < self.post.down_until_ns {
            self.tally.count(Happened::CounterDown);
            let refused = Answer::refused(self.scenario.flavour);
            self.send_back(&letter, refused);
            return Ok(());
        }
        let sender = (letter.actor, letter.generation);
        if self.post.heard.get(&sender).is_some_and(|last| *last > letter.token) {
            self.tally.count(Happened::Reordered);
        }
        self.post.heard.insert(sender, letter.token);
        let heard = if letter.back == Back::Unavailable(false) { Err(503) } else { self.hear(&letter)? };
        let answer = match (letter.back, heard) {
            (Back::Repeated, _) => return Ok(()),
            (Back::Lost, _) => {
                self.tally.count(Happened::AnswerLost);
                return Ok(());
            }
            (Back::Unavailable(_), _) => {
                self.tally.count(Happened::Unavailable);
                Answer::of_status(503)
            }
            (Back::Oversized, _) => {
                self.tally.count(Happened::Oversized);
                Answer::none()
            }
            (_, Err(status)) => Answer::of_status(status),
            (Back::Malformed, Ok((body, _))) => {
                self.tally.count(Happened::Malformed);
                Answer { body: self.garbled(&body), ..Answer::of_status(200) }
            }
            (Back::Comes, Ok((body, acknowledged))) => {
                Answer { body, is_good: true, acknowledged, ..Answer::of_status(200) }
            }
        };
        self.send_back(&letter, answer);
        Ok(())
    }

    /// The counter applies a batch, and the oracle sees it.
    fn hear(&mut self, letter: &Letter) -> Result<Reply, Failure> {
        let Some(central) = &mut self.post.central else { return Ok(Err(503)) };
        let Heard { sender, judged, body } = match central.hear(self.now_ns / MS, &letter.body)? {
            Ok(heard) => heard,
            Err(status) => return Ok(Err(status)),
        };
        let since_us = self.now_ns / US % 1_000_000_000;
        self.trace.add(|| format!("{since_us:>10} us  counter   {sender:?} {judged:?}"));
        let vm = (letter.actor, letter.generation);
        Ok(Ok((body, self.fleet.hear(self.now_ns / MS, vm, sender, &judged))))
    }

    fn send_back(&mut self, letter: &Letter, answer: Answer) {
        let proxy = self.actors[letter.actor].proxy;
        if self.is_cut_off(proxy) {
            self.tally.count(Happened::Partition);
            return;
        }
        let way_ns = self.way_ns(self.is_network_bad());
        self.post.count += 1;
        let Letter { actor, generation, token, .. } = *letter;
        self.post.answers.insert(self.post.count, (token, answer));
        self.at(self.now_ns + way_ns, Event::CallAnswered { actor, generation, answer: self.post.count });
    }

    /// An answer arrives where it was asked for; too late, perhaps.
    pub(crate) fn call_answered(&mut self, actor: usize, generation: u64, answer: u64) {
        let Some((token, answer)) = self.post.answers.remove(&answer) else { return };
        if self.actors[actor].generation == generation {
            self.end_call(actor, token, answer);
        }
    }

    /// What a counter that is not well, or something between, may say instead of an answer.
    fn garbled(&mut self, body: &[u8]) -> Vec<u8> {
        match self.rng.below(5) {
            0 => Vec::new(),
            1 => body[..body.len() / 2].to_vec(),
            2 => (0..body.len()).map(|_| self.rng.next().to_le_bytes()[0]).collect(),
            3 => b"<html>upstream connect error</html>".to_vec(),
            // A good answer to another question.
            _ => match wire::Answer::from_postcard(body) {
                Ok(mut answer) => {
                    if answer.groups.pop().is_none() {
                        answer.groups.push(wire::GroupAnswer { takes: Vec::new(), states: Vec::new() });
                    }
                    answer.to_postcard()
                }
                Err(_) => Vec::new(),
            },
        }
    }
}

/// A call is one that the counter would take.
fn check_headers(headers: &[u8]) -> Result<(), Trap> {
    let pairs = pairs_of(headers).ok_or_else(|| Trap("a call's headers are no map".to_owned()))?;
    let expected = [
        (":method", "POST"),
        (":path", "/v1/take"),
        ("content-type", wire::POSTCARD),
        ("accept", wire::POSTCARD),
    ];
    for (name, value) in expected {
        if !pairs.iter().any(|(other, told)| other == name && told == value) {
            return Err(Trap(format!("a call to the counter without {name}: {value}")));
        }
    }
    if !pairs.iter().any(|(name, _)| name == ":authority") {
        return Err(Trap("a call without :authority".to_owned()));
    }
    Ok(())
}
