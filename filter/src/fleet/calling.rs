//! Calls to the counter: what goes with one, when it is made, and what happens if it cannot be.

use super::flight::{self, Flight, Item, Size};
use super::waiting::{self, Waiter};
use super::{Fleet, POLL_MS, RETRIED_MS_MAX, WAITERS_PER_CALL_MAX};
use crate::clock::{Clock, Offset};
use crate::host::{Call, HeaderPair, Host, Status, now};
use crate::metrics::{Metric, Metrics};
use crate::planted::{self, Bug};
use crate::table::HostKind;
use std::borrow::Cow;
use tidegate_config::Counter;
use tidegate_config::wire::{POSTCARD, Sender};
use tidegate_core::Timestamp;

impl Fleet {
    /// A request waits. On Kong it makes its own call, for it must.
    pub(crate) fn wait(
        &mut self,
        host: &impl Host,
        waiter: Waiter,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        if Size::default().and(Size::of(&waiter)).is_none() {
            log::error!("a request asks the counter for more rules than a call carries: decided without it");
            metrics.add(Metric::Errors, 1);
            return Err(vec![waiter]);
        }
        if self.host_kind == HostKind::Envoy {
            self.queue.push_back(waiter);
            return self.send(host, clock, metrics);
        }
        let items = vec![Item::Waiter(waiter)];
        let body = flight::encode(&items, &self.namespace, None, self.wait_ms());
        match self.dispatch(host, &body, metrics) {
            Ok(token) => {
                let first_sent = clock.monotonic;
                let under_way = Some((token, first_sent));
                self.own_flights
                    .insert(token, Flight { items, body, first_sent, under_way, is_retry: false });
                Ok(())
            }
            Err(status) => Err(self.unsent(items, status, clock, metrics)),
        }
    }

    /// Sends those who wait, with whatever else there is. What does not wait goes from the tick.
    pub(crate) fn send_waiting(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        if self.queue.is_empty() { Ok(()) } else { self.send(host, clock, metrics) }
    }

    /// Sends what there is to send, if nothing is under way and the counter is there. Gives back the waiters of a
    /// call that could not be made.
    pub(crate) fn send(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        if self.flight.is_some() || self.circuit.is_open() {
            return Ok(());
        }
        let items = self.load(clock, metrics);
        if items.is_empty() { Ok(()) } else { self.fly(host, items, clock, metrics) }
    }

    /// What goes with the next call, within the bounds of a batch.
    fn load(&mut self, clock: &Clock, metrics: &mut Metrics) -> Vec<Item> {
        let mut items = Vec::new();
        let mut size = Size::default();
        while items.len() < WAITERS_PER_CALL_MAX {
            let Some(waiter) = self.queue.pop_front() else { break };
            if waiter.slip.has_left() {
                metrics.add(Metric::WaitingLeft, 1);
                continue;
            }
            let Some(with_it) = size.and(Size::of(&waiter)) else {
                // It goes with the next.
                self.queue.push_front(waiter);
                break;
            };
            size = with_it;
            items.push(Item::Waiter(waiter));
        }
        let ends_at = items.len().saturating_add(size.room());
        while items.len() < ends_at {
            let Some(refund) = self.outbox.next_refund() else { break };
            items.push(Item::Refund(refund));
        }
        // Of the rest one half is for reports and one for grants, and what one does not need the other has.
        let left = |items: &Vec<Item>| ends_at.saturating_sub(items.len());
        let reports = self.outbox.due_reports(clock, left(&items).div_ceil(2));
        items.extend(reports.into_iter().map(Item::Report));
        let chunks = self.leases.hungry(self.proxies, clock, left(&items));
        items.extend(chunks.into_iter().map(Item::Chunk));
        let reports = self.outbox.due_reports(clock, left(&items));
        items.extend(reports.into_iter().map(Item::Report));
        items
    }

    fn fly(
        &mut self,
        host: &impl Host,
        items: Vec<Item>,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        self.sequence = self.sequence.saturating_add(1);
        let sender = Sender { proxy: self.proxy, vm: self.vm, sequence: self.sequence };
        let sender = Some(sender).filter(|_| !planted::has(Bug::RetryWithoutSequence));
        let body = flight::encode(&items, &self.namespace, sender, self.wait_ms());
        self.spoke_at = Some(clock.monotonic);
        match self.dispatch(host, &body, metrics) {
            Ok(token) => {
                let first_sent = clock.monotonic;
                let under_way = Some((token, first_sent));
                self.flight = Some(Flight { items, body, first_sent, under_way, is_retry: false });
                Ok(())
            }
            Err(status) => Err(self.unsent(items, status, clock, metrics)),
        }
    }

    fn dispatch(&self, host: &impl Host, body: &[u8], metrics: &mut Metrics) -> Result<u32, Status> {
        metrics.add(Metric::CounterCalls, 1);
        host.call(&Call {
            upstream: &self.counter.cluster,
            headers: &self.headers,
            body,
            timeout_ms: self.wait_ms(),
        })
    }

    /// The host would not make the call: nothing of it has reached anybody.
    fn unsent(
        &mut self,
        items: Vec<Item>,
        status: Status,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Vec<Waiter> {
        self.not_called(status, clock, metrics);
        let mut waiters = self.unload(items, metrics);
        // Those who queued for the next call do not wait for a counter that is away.
        waiters.extend(self.queue.drain(..));
        waiters
    }

    fn not_called(&mut self, status: Status, clock: &Clock, metrics: &mut Metrics) {
        let why = format!("the proxy would not call it ({status:?})");
        self.failed(&why, clock.monotonic, clock, metrics);
    }

    /// Puts back what a call carried that counted for nothing.
    pub(super) fn unload(&mut self, items: Vec<Item>, metrics: &mut Metrics) -> Vec<Waiter> {
        let mut waiters = Vec::new();
        for item in items {
            match item {
                Item::Waiter(waiter) => waiters.push(waiter),
                Item::Report(report) => self.outbox.keep(report, metrics),
                Item::Refund(refund) => self.outbox.refund(refund, metrics),
                Item::Chunk(chunk) => self.leases.forget_ask(&chunk.ask),
            }
        }
        waiters
    }

    pub(super) fn failed(&mut self, why: &str, made_at: Timestamp, clock: &Clock, metrics: &mut Metrics) {
        metrics.add(Metric::CounterFailures, 1);
        if self.circuit.fail(made_at, clock.monotonic) {
            log::warn!(
                "the counter \"{}\" does not answer: {why}; rules with `global` go by their `on_failure` until it does",
                self.counter.cluster
            );
        }
    }

    /// How long the counter may take.
    fn wait_ms(&self) -> u32 {
        u32::try_from(self.counter.timeout_ms).unwrap_or(u32::MAX)
    }

    /// What a tick does: looks after grants, tells what is due, and tries a counter that was away.
    pub(crate) fn tick(
        &mut self,
        host: &impl Host,
        clock: &Clock,
        metrics: &mut Metrics,
    ) -> Result<(), Vec<Waiter>> {
        if let Ok(wall) = now(host) {
            self.to_wall = Offset::between(clock.monotonic, wall);
        }
        self.leases.tick(host, clock, &mut self.outbox, metrics);
        if !self.circuit.is_open() {
            // On Kong a request's own call may have found the counter again before the failed one was repeated.
            if let Some(flight) = self.flight.take_if(|flight| flight.under_way.is_none()) {
                self.fly_again(host, flight, clock, metrics);
                return Ok(());
            }
            self.send(host, clock, metrics)?;
            return if self.is_idle(clock) { self.fly(host, Vec::new(), clock, metrics) } else { Ok(()) };
        }
        if !self.circuit.lets_try(clock.monotonic) {
            return Ok(());
        }
        match self.flight.take() {
            None => {
                let items = self.load(clock, metrics);
                self.fly(host, items, clock, metrics)
            }
            Some(flight) if flight.under_way.is_some() => {
                self.flight = Some(flight);
                Ok(())
            }
            Some(flight) => {
                self.fly_again(host, flight, clock, metrics);
                Ok(())
            }
        }
    }

    /// Makes a failed call again, word for word, as long as the counter remembers it.
    fn fly_again(&mut self, host: &impl Host, mut flight: Flight, clock: &Clock, metrics: &mut Metrics) {
        if clock.monotonic.ms_since(flight.first_sent) > RETRIED_MS_MAX {
            self.lose(flight.items, metrics);
            return;
        }
        self.spoke_at = Some(clock.monotonic);
        match self.dispatch(host, &flight.body, metrics) {
            Ok(token) => flight.under_way = Some((token, clock.monotonic)),
            Err(status) => self.not_called(status, clock, metrics),
        }
        self.flight = Some(flight);
    }

    /// Nobody will ever know what became of these.
    pub(super) fn lose(&mut self, items: Vec<Item>, metrics: &mut Metrics) {
        for item in items {
            match item {
                Item::Report(report) => metrics.add(Metric::ReportsDropped, report.ask.take.amount.get()),
                Item::Refund(_) => metrics.add(Metric::UndosLost, 1),
                Item::Chunk(chunk) => self.leases.forget_ask(&chunk.ask),
                Item::Waiter(waiter) => {
                    if waiter.fate == waiting::Fate::Admitted {
                        for ask in &waiter.asked {
                            metrics.add(Metric::ReportsDropped, ask.take.amount.get());
                        }
                    }
                }
            }
        }
    }

    fn is_idle(&self, clock: &Clock) -> bool {
        let is_quiet = self.spoke_at.is_none_or(|at| clock.monotonic.ms_since(at) >= POLL_MS);
        is_quiet && self.flight.is_none()
    }

    /// The plugin ends: what can still be told is told, and nobody waits for an answer. If no call can be made, grants
    /// stay in the table, where those who come after spend them.
    pub(crate) fn end(&mut self, host: &impl Host, clock: &Clock, metrics: &mut Metrics) {
        let can_call = self.host_kind == HostKind::Envoy && !self.circuit.is_open();
        if can_call && self.flight.is_none() {
            self.leases.end(host, clock, &mut self.outbox, metrics);
            self.outbox.hurry(clock.monotonic);
            let items = self.load(clock, metrics);
            if !items.is_empty() {
                // Waiters of a plugin that ends have no request any more.
                drop(self.fly(host, items, clock, metrics));
            }
        }
        self.outbox.lose(metrics);
    }
}

/// What a call says of itself.
pub(super) fn headers(counter: &Counter) -> Vec<HeaderPair> {
    let authority = counter.authority.as_ref().unwrap_or(&counter.cluster);
    let pair = |name, value: &str| (Cow::Borrowed(name), value.to_owned());
    let mut headers = vec![
        pair(":method", "POST"),
        pair(":path", "/v1/take"),
        pair(":authority", authority),
        pair("content-type", POSTCARD),
        pair("accept", POSTCARD),
    ];
    if let Some(token) = &counter.token {
        headers.push(pair("authorization", &format!("Bearer {}", token.reveal())));
    }
    headers
}
