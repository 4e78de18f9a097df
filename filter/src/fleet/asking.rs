//! A request with rules of the fleet: decided here if that is possible, else it waits for the counter.

use super::waiting::{Fate, Slip, Waiter};
use super::{Done, Fleet};
use crate::ask::{Ask, Case, Home};
use crate::clock::Clock;
use crate::decide::{Act, Books, Decision, Denied, asked_of_counter, denies_now};
use crate::denials::Denial;
use crate::host::Host;
use std::rc::Rc;

/// When a client should come back to a lease that has nothing granted.
const EMPTY_RETRY_MS: u64 = 1_000;

/// Decides about a request with rules of the fleet; a slip if it must wait.
pub(crate) fn ask(
    host: &impl Host,
    (fleet, done): (&mut Fleet, &mut Vec<Done>),
    (mut asks, mut shadow): (Vec<Ask>, Option<Denied>),
    stream: u32,
    clock: &Clock,
    books: &mut Books,
) -> Result<Act, Rc<Slip>> {
    let asks_counter = asks.iter().any(|ask| ask.home == Home::Counter);
    let syncs = asks.iter().any(|ask| ask.home == Home::Synced);
    let is_away = fleet.is_away() && (asks_counter || syncs);
    if !asks_counter && !is_away {
        match decide_here(host, fleet, (asks, shadow), clock, books) {
            Ok(act) => return Ok(act),
            Err(lacking) => (asks, shadow) = lacking,
        }
    }
    if !fleet.can_wait() {
        return Ok(fleet.without(host, asks, shadow, &[], clock, books));
    }
    let (asked, here) = asked_of_counter(asks);
    if let Some(cases) = denies_now(host, &here, clock, books) {
        return Ok(books.refuse(&cases, clock));
    }
    let slip = Rc::new(Slip::default());
    let waiter = Waiter { stream, slip: Rc::clone(&slip), asked, here, shadow, fate: Fate::Waiting };
    let Err(waiters) = fleet.wait(host, waiter, clock, &mut books.metrics) else {
        return Err(slip);
    };
    decide_without(host, fleet, waiters, clock, books, done);
    let own = done.iter().position(|done| done.stream == stream);
    Ok(own.map_or_else(Act::admission, |own| done.remove(own).act))
}

/// Decides by what is granted and known in this proxy. If too little is granted, hands back what is to be asked.
fn decide_here(
    host: &impl Host,
    fleet: &mut Fleet,
    (mut asks, mut shadow): (Vec<Ask>, Option<Denied>),
    clock: &Clock,
    books: &mut Books,
) -> Result<Act, (Vec<Ask>, Option<Denied>)> {
    loop {
        let lacking = match books.decide(host, asks, Vec::new(), shadow, (clock, Some(&fleet.leases))) {
            Decision::Made { act, cases } => {
                if act.is_admission() {
                    fleet.book(&cases, clock, &mut books.metrics);
                } else {
                    fleet.book_denied(&cases, clock, &mut books.metrics);
                }
                return Ok(act);
            }
            Decision::Lacking { cases, shadow: noted } => {
                shadow = noted;
                cases
            }
        };
        for case in lacking.iter().filter(|case| case.judged.lacks) {
            fleet.leases.lacked(&case.ask);
        }
        let denies = |case: &Case| case.judged.lacks && case.ask.denies_when_empty() && !fleet.is_away();
        let (denying, others): (Vec<Case>, Vec<Case>) = lacking.into_iter().partition(denies);
        asks = others.into_iter().map(|case| case.ask).collect();
        if denying.is_empty() {
            return Err((asks, shadow));
        }
        if let Some(denied) = deny_empty(&denying, &mut shadow, clock, books) {
            return Ok(Books::deny(&denied, clock));
        }
        // Rules in shadow have said no: the others are asked again.
    }
}

/// Rules that would rather deny than wait have nothing granted: the first that is enforced is returned, those in shadow
/// are noted.
fn deny_empty(
    cases: &[Case],
    shadow: &mut Option<Denied>,
    clock: &Clock,
    books: &mut Books,
) -> Option<Denied> {
    let mut denied = None;
    for case in cases {
        let no = Denied::outright(&case.ask.rule, Denial::for_want_of_capacity(EMPTY_RETRY_MS, clock));
        books.note_outright(no, case.ask.enforced, &mut denied, shadow);
    }
    denied
}

/// Decides about those whose call could not be made.
pub(crate) fn decide_without(
    host: &impl Host,
    fleet: &mut Fleet,
    waiters: Vec<Waiter>,
    clock: &Clock,
    books: &mut Books,
    done: &mut Vec<Done>,
) {
    for mut waiter in waiters {
        done.extend(fleet.decide_without(host, &mut waiter, true, clock, books));
    }
}
