//! What a store must do, over the core's own decisions: the oracle of the differential test.

use std::collections::HashMap;
use std::num::NonZeroU64;

use tidegate_config::wire::{Act, Batch, Group, GroupAnswer, Take, window_shift};
use tidegate_core::{Limit, Manner, Moment, Outcome, Retry, State, Timestamp};

/// Counters by name: the byte form of each state, and when it is as good as none.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) states: HashMap<String, Vec<u8>>,
    pub(crate) expiries: HashMap<String, u64>,
    /// What came of each refund of the latest batch, in order.
    pub(crate) refunds: Vec<Refunded>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refunded {
    /// It changed its counter's state.
    Given,
    /// The counter has a state, and it stayed as it was: the window of the take is gone, or was never there.
    Dropped,
    /// There was no state, or its group failed.
    Nothing,
}

impl Oracle {
    /// Applies a batch; `names` are those of all its takes, in order.
    pub(crate) fn apply(&mut self, batch: &Batch<'_>, names: &[String], now_ms: u64) -> Vec<GroupAnswer> {
        let mut names = names.iter();
        self.refunds.clear();
        let now = Timestamp::from_ms(now_ms);
        batch
            .groups
            .iter()
            .map(|group| {
                let names: Vec<&String> = names.by_ref().take(group.takes.len()).collect();
                let takes = self.group(&batch.namespace, group, &names, now);
                let states = names.iter().filter(|_| batch.states).map(|name| self.state(name));
                GroupAnswer { takes, states: states.collect() }
            })
            .collect()
    }

    fn group(
        &mut self,
        namespace: &str,
        group: &Group<'_>,
        names: &[&String],
        now: Timestamp,
    ) -> Vec<Outcome> {
        let before = (self.states.clone(), self.expiries.clone());
        let first_refund = self.refunds.len();
        let moment = |take: &Take<'_>| Moment { now, shift: window_shift(namespace, take) };
        let outcomes: Vec<Outcome> = group
            .takes
            .iter()
            .zip(names)
            .map(|(take, name)| match take.act {
                Act::Take(manner) => self.take(take, manner, name, moment(take)),
                Act::Refund { receipt } => self.refund(take, receipt, name, moment(take)),
            })
            .collect();
        let wants_all = |take: &Take<'_>| take.act == Act::Take(Manner::All);
        let failed =
            group.takes.iter().zip(&outcomes).any(|(take, outcome)| wants_all(take) && outcome.is_refused());
        if !failed {
            return outcomes;
        }
        (self.states, self.expiries) = before;
        self.refunds[first_refund..].fill(Refunded::Nothing);
        let as_it_stands = |((take, name), outcome): ((&Take<'_>, &&String), &Outcome)| Outcome {
            retry: if wants_all(take) { outcome.retry } else { Retry::Now },
            ..look(&take.limit.limit, self.state(name), moment(take))
        };
        group.takes.iter().zip(names).zip(&outcomes).map(as_it_stands).collect()
    }

    fn take(&mut self, take: &Take<'_>, manner: Manner, name: &str, at: Moment) -> Outcome {
        let limit = take.limit.limit;
        let asked = tidegate_core::Take { amount: take.n, manner };
        let (outcome, state) = limit.take(self.state(name), at, asked);
        if outcome.taken == 0 {
            return Outcome { receipt: 0, ..outcome };
        }
        self.keep(&limit, name, &state, at);
        outcome
    }

    fn refund(&mut self, take: &Take<'_>, receipt: u64, name: &str, at: Moment) -> Outcome {
        let limit = take.limit.limit;
        let mut refunded = Refunded::Nothing;
        if let Some(state) = self.state(name).filter(|state| is_of(&limit, state)) {
            let before = bytes(&state);
            let state = limit.refund(state, at, receipt, take.n.get());
            refunded = if bytes(&state) == before { Refunded::Dropped } else { Refunded::Given };
            self.keep(&limit, name, &state, at);
        }
        self.refunds.push(refunded);
        Outcome { retry: Retry::Now, ..look(&limit, self.state(name), at) }
    }

    fn state(&self, name: &str) -> Option<State> {
        let (kind, contents) = self.states.get(name)?.split_first()?;
        State::from_bytes(*kind, contents).ok()
    }

    fn keep(&mut self, limit: &Limit, name: &str, state: &State, at: Moment) {
        // The same bytes expire at the same time: they are not written again.
        if self.states.insert(name.to_owned(), bytes(state)).as_ref() == Some(&bytes(state)) {
            return;
        }
        self.expiries.insert(name.to_owned(), limit.expires(state, at).ms());
    }
}

pub(crate) fn bytes(state: &State) -> Vec<u8> {
    let mut bytes = vec![state.kind()];
    bytes.extend(state.contents());
    bytes
}

/// Whether a state is one of the limit's own algorithm: a fresh one has the code that all of that kind have, but for
/// the bucket's second.
fn is_of(limit: &Limit, state: &State) -> bool {
    let at = Moment { now: Timestamp::from_ms(0), shift: 0 };
    let fresh = limit.take(None, at, tidegate_core::Take::force(NonZeroU64::MIN)).1;
    std::mem::discriminant(state) == std::mem::discriminant(&fresh)
}

/// The counter as it stands: what an impossible take is told.
fn look(limit: &Limit, state: Option<State>, at: Moment) -> Outcome {
    let (outcome, _) = limit.take(state, at, tidegate_core::Take::all(NonZeroU64::MAX));
    Outcome { receipt: 0, ..outcome }
}
