//! What comes of a call to the counter.
//!
//! An answer is dealt out to those whom the call carried. If it fails, nobody knows whether it counted: those who wait
//! are decided about without it, and the call is kept. When it is answered at last, what was decided is put right:
//! what was admitted and not charged is reported, what was charged and not admitted is refunded.

use super::flight::{self, Flight, Item, Said};
use super::outbox::{Refund, Report};
use super::waiting::{Fate, Waiter, is_granted};
use super::{CLOCK_NEWS_MS, Done, FallBack, Fleet, LOST_MS};
use crate::ask::{Ask, Case, Home};
use crate::charge::update;
use crate::clock::Clock;
use crate::decide::{Books, Decision, Denied};
use crate::denials::Denial;
use crate::headers::Headers;
use crate::host::Host;
use crate::metrics::Metric;
use crate::table::{HostKind, Table};
use tidegate_config::GlobalMode;
use tidegate_config::wire::Answer;
use tidegate_core::Timestamp;

/// The least retry-after of a request that is denied because the counter is away.
const AWAY_MS_MIN: u64 = 1_000;
/// An answer is never longer.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why there is no answer.
enum Failed {
    /// Nothing was charged: the counter said so.
    Refused(String),
    /// It may be charged.
    Unknown(String),
    /// It may have been charged when it was first sent, and nobody knows any more.
    Forgotten(String),
}

impl Fleet {
    /// The call `token` is over. `None` if it is not one of ours.
    pub(crate) fn on_answer(
        &mut self,
        host: &impl Host,
        (token, header_count, body_size): (u32, usize, usize),
        clock: &Clock,
        books: &mut Books,
    ) -> Option<Vec<Done>> {
        let is_token = |flight: &Flight| flight.under_way.is_some_and(|(other, _)| other == token);
        let (flight, is_own) = match self.flight.take_if(|flight| is_token(flight)) {
            Some(flight) => (flight, false),
            None => (self.own_flights.remove(&token)?, true),
        };
        Some(match read_answer(host, header_count, body_size) {
            Ok(answer) => self.land(host, flight, &answer, clock, books),
            Err(failed) => self.crash(host, flight, failed, is_own, clock, books),
        })
    }

    /// Calls whose answer will not come any more.
    pub(crate) fn give_up_lost(&mut self, host: &impl Host, clock: &Clock, books: &mut Books) -> Vec<Done> {
        let patience_ms = self.counter.timeout_ms.saturating_add(LOST_MS);
        let is_lost = |flight: &Flight| {
            flight.under_way.is_some_and(|(_, sent)| clock.monotonic.ms_since(sent) > patience_ms)
        };
        // A request that made its own call and is gone took the call along.
        self.own_flights.retain(|_, flight| !is_lost(flight));
        match self.flight.take_if(|flight| is_lost(flight)) {
            Some(flight) => {
                let failed = Failed::Unknown("its answer never came".to_owned());
                self.crash(host, flight, failed, false, clock, books)
            }
            None => Vec::new(),
        }
    }

    fn land(
        &mut self,
        host: &impl Host,
        flight: Flight,
        answer: &Answer,
        clock: &Clock,
        books: &mut Books,
    ) -> Vec<Done> {
        let Some(said) = flight::deal(&flight.items, answer) else {
            let failed = Failed::Unknown("its answer does not fit the question".to_owned());
            let is_own = self.host_kind == HostKind::Kong && flight.items.iter().any(is_waiter);
            return self.crash(host, flight, failed, is_own, clock, books);
        };
        let is_new_epoch = self.learn(host, &flight, answer, clock, books);
        // The first answer may have told that it is hours later at the counter.
        let clock = &Clock { wall: clock.wall, ..self.clock_at(clock.monotonic) };
        let told = Told {
            asked_at: flight.first_sent,
            counter_now: Timestamp::from_ms(answer.now_ms),
            is_new_epoch,
        };
        let mut done = Vec::new();
        for (item, said) in flight.items.into_iter().zip(said) {
            match item {
                Item::Waiter(waiter) => done.extend(self.answer_waiter(host, waiter, said, clock, books)),
                Item::Report(report) => acknowledge(host, &report, said, &told, clock, books),
                Item::Refund(_) => {}
                Item::Chunk(chunk) => {
                    let outcomes = said.first().map_or(&[][..], |group| group.takes.as_slice());
                    let times = (told.asked_at, told.counter_now);
                    let sinks = (&mut self.outbox, &mut books.metrics);
                    self.leases.granted(host, &chunk.ask, times, outcomes, clock, sinks);
                }
            }
        }
        self.deny_queued(clock, books, &mut done);
        done
    }

    /// Those who queued meanwhile and ask what was just refused need no call of their own.
    fn deny_queued(&mut self, clock: &Clock, books: &mut Books, done: &mut Vec<Done>) {
        self.queue.retain(|waiter| {
            if waiter.slip.has_left() {
                return true;
            }
            let Some(denied) = books.recall_enforced(&waiter.asked, clock) else { return true };
            let act = Books::deny(&denied, clock);
            done.push(Done::new(waiter, act));
            false
        });
    }

    /// What an answer says to everybody; whether the counter has lost what it knew.
    fn learn(
        &mut self,
        host: &impl Host,
        flight: &Flight,
        answer: &Answer,
        clock: &Clock,
        books: &mut Books,
    ) -> bool {
        if self.circuit.succeed() {
            log::info!("the counter \"{}\" answers again", self.counter.cluster);
        }
        self.proxies = answer.proxies.max(1);
        if self.rules_off != answer.rules_off {
            log::warn!("the counter has switched off these rules: {}", answer.rules_off.join(", "));
            self.rules_off.clone_from(&answer.rules_off);
        }
        // The answer to a retry is as old as the first try: it tells less, and far more than nothing.
        self.to_fleet.learn(Timestamp::from_ms(answer.now_ms), flight.first_sent, clock.monotonic);
        let ms = self.to_fleet.ms();
        if !flight.is_retry && self.published.is_none_or(|known| known.abs_diff(ms) > CLOCK_NEWS_MS) {
            // If it does not arrive, the next answer is told.
            self.published = Table::set_fleet_clock(host, ms).is_ok().then_some(ms);
        }
        let is_new = self.epoch.is_some_and(|epoch| epoch != answer.epoch);
        self.epoch = Some(answer.epoch);
        if is_new {
            books.metrics.add(Metric::CounterEpochs, 1);
            books.denials.forget_of_fleet();
            self.leases.begin_anew(host, clock, &mut books.metrics);
            self.outbox.forget_refunds();
            log::warn!("the counter \"{}\" has lost what it counted", self.counter.cluster);
        }
        is_new
    }

    fn answer_waiter(
        &mut self,
        host: &impl Host,
        mut waiter: Waiter,
        said: Said<'_>,
        clock: &Clock,
        books: &mut Books,
    ) -> Option<Done> {
        let judged = flight::judge(&waiter, said);
        let cases: Vec<Case> = judged.into_iter().map(|(ask, judged)| Case { ask, judged }).collect();
        if waiter.fate == Fate::Waiting && waiter.slip.has_left() {
            books.metrics.add(Metric::WaitingLeft, 1);
            waiter.fate = Fate::Gone;
        }
        if waiter.fate != Fate::Waiting {
            self.reconcile(waiter.fate, &cases, clock, books);
            return None;
        }
        let act = if is_granted(&cases) {
            let taken: Vec<Refund> =
                cases.iter().map(|case| Refund::whole(&case.ask, &case.judged)).collect();
            let here = std::mem::take(&mut waiter.here);
            match books.decide(host, here, cases, waiter.shadow.take(), (clock, None)) {
                Decision::Made { act, cases } if act.is_admission() => {
                    self.book(&cases, clock, &mut books.metrics);
                    return Some(Done { taken, ..Done::new(&waiter, act) });
                }
                Decision::Made { act, cases } => {
                    self.book_denied(&cases, clock, &mut books.metrics);
                    // What is decided here said no meanwhile: all are charged or none.
                    for refund in taken {
                        self.outbox.refund(refund, &mut books.metrics);
                    }
                    act
                }
                // Nothing of a waiter is leased here: the counter was asked for that too.
                Decision::Lacking { .. } => return None,
            }
        } else {
            // Rules in shadow were charged apart.
            for case in cases.iter().filter(|case| !case.judged.is_refused()) {
                self.outbox.refund(Refund::whole(&case.ask, &case.judged), &mut books.metrics);
            }
            for case in cases.iter().filter(|case| case.judged.is_refused()) {
                self.leases.refused(case, clock);
            }
            self.book_denied(&cases, clock, &mut books.metrics);
            books.refuse(&cases, clock)
        };
        Some(Done::new(&waiter, act))
    }

    /// Puts right what was decided without the counter's word.
    fn reconcile(&mut self, fate: Fate, cases: &[Case], clock: &Clock, books: &mut Books) {
        for case in cases {
            let is_charged = case.judged.outcomes().any(|outcome| outcome.taken > 0);
            match (fate, is_charged) {
                (Fate::Admitted, false) => {
                    let times = (clock, clock.monotonic);
                    self.outbox.report(&case.ask, None, times, &mut books.metrics);
                }
                (Fate::Gone, true) => {
                    self.outbox.refund(Refund::whole(&case.ask, &case.judged), &mut books.metrics);
                }
                (Fate::Admitted, true) | (Fate::Gone, false) | (Fate::Waiting, _) => {}
            }
        }
    }

    fn crash(
        &mut self,
        host: &impl Host,
        mut flight: Flight,
        failed: Failed,
        is_own: bool,
        clock: &Clock,
        books: &mut Books,
    ) -> Vec<Done> {
        let (why, is_unknown, is_forgotten) = match failed {
            Failed::Refused(why) => (why, false, false),
            Failed::Unknown(why) => (why, true, false),
            Failed::Forgotten(why) => (why, true, true),
        };
        let made_at = flight.under_way.map_or(flight.first_sent, |(_, sent)| sent);
        self.failed(&why, made_at, clock, &mut books.metrics);
        let mut done = Vec::new();
        for item in &mut flight.items {
            if let Item::Waiter(waiter) = item
                && waiter.fate == Fate::Waiting
            {
                done.extend(self.decide_without(host, waiter, !is_unknown, clock, books));
            }
        }
        // Those who queued meanwhile do not wait for a counter that is away.
        while let Some(mut waiter) = self.queue.pop_front() {
            done.extend(self.decide_without(host, &mut waiter, true, clock, books));
        }
        if !is_unknown {
            drop(self.unload(flight.items, &mut books.metrics));
        } else if is_forgotten || is_own {
            // A call of Kong's has no number and is not made again.
            self.lose(flight.items, &mut books.metrics);
        } else {
            flight.under_way = None;
            flight.is_retry = true;
            self.flight = Some(flight);
        }
        if self.host_kind == HostKind::Kong {
            for Done { act, .. } in &mut done {
                act.drop_body();
            }
        }
        done
    }

    /// Decides about a request that waited, by what its rules say for want of a counter.
    pub(crate) fn decide_without(
        &mut self,
        host: &impl Host,
        waiter: &mut Waiter,
        reports: bool,
        clock: &Clock,
        books: &mut Books,
    ) -> Option<Done> {
        if waiter.slip.has_left() {
            books.metrics.add(Metric::WaitingLeft, 1);
            waiter.fate = Fate::Gone;
            return None;
        }
        let mut asks = std::mem::take(&mut waiter.here);
        asks.extend(waiter.asked.iter().cloned());
        // What the counter may have charged is put right when it answers.
        let unreported = if reports { &[][..] } else { &waiter.asked };
        let act = self.without(host, asks, waiter.shadow.take(), unreported, clock, books);
        waiter.fate = if act.is_admission() { Fate::Admitted } else { Fate::Gone };
        Some(Done::new(waiter, act))
    }

    /// Decides about asks of which the counter cannot be asked. It is told later, but for those that are `unreported`.
    pub(crate) fn without(
        &mut self,
        host: &impl Host,
        asks: Vec<Ask>,
        mut shadow: Option<Denied>,
        unreported: &[Ask],
        clock: &Clock,
        books: &mut Books,
    ) -> crate::decide::Act {
        books.metrics.add(Metric::FallBacks, 1);
        let mut here = Vec::with_capacity(asks.len());
        let mut passed = Vec::new();
        let mut denied = None;
        for mut ask in asks {
            if ask.rule.global.is_none() {
                here.push(ask);
                continue;
            }
            match self.fall_back(&ask) {
                FallBack::Table(home) => {
                    ask.home = home;
                    here.push(ask);
                }
                FallBack::Pass => passed.push(ask),
                FallBack::Deny => {
                    let retry_ms = self.retry_ms(clock).max(AWAY_MS_MIN);
                    let no = Denied::outright(&ask.rule, Denial::for_want_of_capacity(retry_ms, clock));
                    books.note_outright(no, ask.enforced, &mut denied, &mut shadow);
                }
            }
        }
        if let Some(denied) = denied {
            return Books::deny(&denied, clock);
        }
        match books.decide(host, here, Vec::new(), shadow, (clock, None)) {
            Decision::Made { act, mut cases } => {
                let is_reported = |ask: &Ask| !unreported.iter().any(|other| other.is_about_the_same(ask));
                cases.retain(|case| is_reported(&case.ask));
                if act.is_admission() {
                    self.book(&cases, clock, &mut books.metrics);
                    for ask in passed.iter().filter(|ask| is_reported(ask)) {
                        let times = (clock, clock.monotonic);
                        self.outbox.report(ask, None, times, &mut books.metrics);
                    }
                } else {
                    self.book_denied(&cases, clock, &mut books.metrics);
                }
                act
            }
            // Nothing is leased any more.
            Decision::Lacking { .. } => crate::decide::Act::admission(),
        }
    }
}

/// What an answer says beside the outcomes.
struct Told {
    asked_at: Timestamp,
    counter_now: Timestamp,
    is_new_epoch: bool,
}

/// A report has arrived: what this proxy kept beside the counter's word is part of it now.
fn acknowledge(
    host: &impl Host,
    report: &Report,
    said: Said<'_>,
    told: &Told,
    clock: &Clock,
    books: &mut Books,
) {
    if !report.ask.rule.global.is_some_and(|global| matches!(global.mode, GlobalMode::Sync { .. })) {
        return;
    }
    let states = said.first().map_or(&[][..], |group| group.states.as_slice());
    // What was admitted while the counter was away stands in counters of its own.
    let own = if report.ask.home == Home::Synced { report.ask.take.amount.get() } else { 0 };
    let ask = Ask { home: Home::Synced, ..report.ask.clone() };
    let is_put = update(host, ask.place, &mut books.metrics, &mut |slot| {
        ask.acknowledge(slot, (report.receipts, own), states, told.is_new_epoch, clock)
    });
    if !is_put {
        books.metrics.add(Metric::UndosLost, 1);
    }
}

fn is_waiter(item: &Item) -> bool {
    matches!(item, Item::Waiter(_))
}

/// The answer to the call that is over, or why there is none. Without headers there is nothing to read: a reply that
/// was too long for the proxy, or on Kong a call that failed.
fn read_answer(host: &impl Host, header_count: usize, body_size: usize) -> Result<Answer, Failed> {
    if header_count == 0 {
        return Err(Failed::Unknown("the call failed, or its reply was too long".to_owned()));
    }
    let unreadable = |status| Failed::Unknown(format!("its reply could not be read ({status:?})"));
    let bytes = host.answer_headers().map_err(unreadable)?;
    let headers = Headers::parse(&bytes);
    let status = headers.as_ref().and_then(|headers| {
        let mut pairs = headers.iter();
        pairs.find(|(name, _)| *name == b":status").map(|(_, value)| value.to_vec())
    });
    match status.as_deref() {
        Some(b"200") if body_size <= ANSWER_BYTES_MAX => {
            let body = host.answer_body().map_err(unreadable)?;
            Answer::from_postcard(&body)
                .map_err(|_| Failed::Unknown("its reply is no answer that this filter can read".to_owned()))
        }
        Some(b"200") => Err(Failed::Unknown("its reply was too long".to_owned())),
        status => {
            let shown = String::from_utf8_lossy(status.unwrap_or(b"no status")).into_owned();
            let why = format!("it said {shown}");
            Err(match shown.as_str() {
                "409" => Failed::Forgotten(why),
                "408" => Failed::Unknown(why),
                status if status.starts_with('4') => Failed::Refused(why),
                _ => Failed::Unknown(why),
            })
        }
    }
}
