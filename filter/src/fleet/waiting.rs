//! Requests that wait for the counter.

use crate::ask::{Ask, Case};
use crate::decide::Denied;
use crate::engine::Passage;
use core::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a paused request and its waiter share. The request may end at any time, also while the plugin is busy: so it
/// says so here, and nobody answers a request that is gone.
#[derive(Default)]
pub struct Slip {
    has_left: Cell<bool>,
    passage: RefCell<Passage>,
}

impl Slip {
    /// The request is over.
    pub fn leave(&self) {
        self.has_left.set(true);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.has_left.get()
    }

    pub(crate) fn hand_over(&self, passage: Passage) {
        self.passage.replace(passage);
    }

    /// What the request leaves for its response.
    pub fn take_passage(&self) -> Passage {
        self.passage.take()
    }
}

/// A request that waits for the counter.
pub(crate) struct Waiter {
    /// The host's number of the request.
    pub(crate) stream: u32,
    pub(crate) slip: Rc<Slip>,
    /// What the counter is asked.
    pub(crate) asked: Vec<Ask>,
    /// What is decided here, once the counter has said yes.
    pub(crate) here: Vec<Ask>,
    /// What was already denied in shadow.
    pub(crate) shadow: Option<Denied>,
    pub(crate) fate: Fate,
}

/// What became of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It still waits.
    Waiting,
    /// It was let through without the counter's word.
    Admitted,
    /// It was denied, or left.
    Gone,
}

impl Waiter {
    /// The asks of whom a no denies the request: one group, all or none.
    pub(crate) fn enforced(&self) -> impl Iterator<Item = &Ask> {
        self.asked.iter().filter(|ask| ask.enforced)
    }

    /// Those in shadow: a group for each, for their no fails nobody.
    pub(crate) fn in_shadow(&self) -> impl Iterator<Item = &Ask> {
        self.asked.iter().filter(|ask| !ask.enforced)
    }
}

/// The cases of a waiter that the counter has judged, and whether it said yes.
pub(crate) fn is_granted(cases: &[Case]) -> bool {
    !cases.iter().any(|case| case.ask.enforced && case.judged.is_refused())
}
