//! What one rule asks for one key, and how a slot answers.
//!
//! Where the answer is kept depends on the rule. A rule of this proxy alone has a counter for each of its limits. A
//! rule of the fleet that syncs has two: what the counter said last, and what this proxy has taken since and the
//! counter has not acknowledged. One that leases has its grant. And while the counter cannot be asked, a rule of the
//! fleet has counters of its own in this proxy.

use crate::any_slot::AnySlot;
use crate::charge::Evictions;
use crate::clock::Clock;
use crate::identity::Identity;
use crate::planted::{self, Bug};
use crate::rules::{CountedLimit, Rule};
use crate::table::{Place, Region};
use core::num::NonZeroU64;
use std::rc::Rc;
use tidegate_config::{GlobalMode, LIMITS_MAX, WhenEmpty};
use tidegate_core::slot::{EntryId, Load};
use tidegate_core::{Algorithm, Grant, Limit, Outcome, Retry, State, Take, Timestamp};

/// What one rule asks for one key.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) rule: Rc<Rule>,
    /// Which of the rule's sets of limits: its plan.
    pub(crate) limit_set: usize,
    pub(crate) identity: Identity,
    pub(crate) place: Place,
    pub(crate) take: Take,
    /// Whether a no denies the request.
    pub(crate) enforced: bool,
    pub(crate) home: Home,
}

/// Who answers an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// This proxy's table, for it is a rule of this proxy alone.
    Table,
    /// The counter.
    Counter,
    /// The table, by what the counter said last and what was taken since.
    Synced,
    /// The table, by what was granted.
    Leased,
    /// The table, while the counter cannot be asked.
    FallBack {
        /// The limit is divided by so many.
        parts: u32,
    },
}

/// Which of a limit's entries in a slot.
#[derive(Clone, Copy)]
enum Part {
    /// What counts: all that was taken, or what the counter said last.
    Counted,
    /// What the counter has not acknowledged.
    Unacknowledged,
    Granted,
    FallBack,
}

/// How much is owed for a key, in each of the limits.
pub(crate) type Owed = [u64; LIMITS_MAX];

/// Nothing.
pub(crate) const NOTHING_OWED: Owed = [0; LIMITS_MAX];

/// An ask and what came of it.
pub(crate) struct Case {
    pub(crate) ask: Ask,
    pub(crate) judged: Judged,
}

/// The outcome of each limit of a rule.
#[derive(Clone)]
pub(crate) struct Judged {
    limits: [Option<(Outcome, State)>; LIMITS_MAX],
    /// The latest retry of its limits: `Now` if all of them say yes.
    pub(crate) retry: Retry,
    /// Whether too little was granted to say yes or no.
    pub(crate) lacks: bool,
    /// States that were no states and were taken for fresh.
    pub(crate) bad_states: u64,
}

impl Judged {
    /// Nothing judged yet.
    pub(crate) const NONE: Self =
        Self { limits: [const { None }; LIMITS_MAX], retry: Retry::Now, lacks: false, bad_states: 0 };

    /// What somebody else judged.
    pub(crate) fn by(outcomes: impl Iterator<Item = Outcome>) -> Self {
        let mut judged = Self::NONE;
        for (outcome, place) in outcomes.zip(&mut judged.limits) {
            judged.retry = judged.retry.max(outcome.retry);
            *place = Some((outcome, State::Grant(Grant::NONE)));
        }
        judged
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.retry != Retry::Now
    }

    /// The outcomes in the order of the rule's limits.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.limits.iter().flatten().map(|(outcome, _)| outcome)
    }

    /// What a refund must name, for each of the limits.
    pub(crate) fn receipts(&self) -> [u64; LIMITS_MAX] {
        let mut receipts = [0; LIMITS_MAX];
        for (receipt, outcome) in receipts.iter_mut().zip(self.outcomes()) {
            *receipt = outcome.receipt;
        }
        receipts
    }

    /// What was taken is not kept here.
    pub(crate) fn forget_receipts(&mut self) {
        for (outcome, _) in self.limits.iter_mut().flatten() {
            outcome.receipt = 0;
        }
    }

    /// When what was taken counts no more, for each of the limits: its whole is free again.
    pub(crate) fn ends_of_limits(&self, now: Timestamp) -> [Timestamp; LIMITS_MAX] {
        let mut ends = [now; LIMITS_MAX];
        for (end, outcome) in ends.iter_mut().zip(self.outcomes()) {
            *end = Timestamp::from_ms(now.ms().saturating_add(outcome.reset_ms));
        }
        ends
    }

    /// When what was taken counts no more in any limit.
    pub(crate) fn ends(&self, now: Timestamp) -> Timestamp {
        self.ends_of_limits(now).into_iter().max().unwrap_or(now)
    }
}

/// Which grants have ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) window: u32,
    pub(crate) by: Timestamp,
}

/// What a slot has for a limit.
struct Found {
    state: Option<State>,
    /// Until when a newcomer inherits what others left, if it does.
    inherits_until_s: Option<u32>,
}

impl Ask {
    /// The limits that it is about.
    pub(crate) fn limits(&self) -> &[CountedLimit] {
        self.rule.limits(self.limit_set)
    }

    /// How much of a call to the counter it takes up, in small states.
    pub(crate) fn weight(&self) -> usize {
        const LARGE: usize = 16;
        match self.place.region {
            Region::Small => 1,
            Region::Large => LARGE,
        }
    }

    /// Whether it would rather be denied than wait for the counter.
    pub(crate) fn denies_when_empty(&self) -> bool {
        let mode = self.rule.global.map(|global| global.mode);
        matches!(mode, Some(GlobalMode::Lease { when_empty: WhenEmpty::Deny, .. }))
    }

    /// Whether both are about the same counters.
    pub(crate) fn is_about_the_same(&self, other: &Self) -> bool {
        self.identity.key == other.identity.key && self.rule.variant == other.rule.variant
    }

    /// The same counters, for another amount.
    pub(crate) fn with(&self, take: Take) -> Self {
        Self { take, enforced: true, ..self.clone() }
    }

    /// Decides on a slot as it was read, with what this VM still owes for the key, in each limit, charged first.
    pub(crate) fn judge(&self, slot: &AnySlot, clock: &Clock, owed: &Owed) -> Judged {
        let mut judged = Judged::NONE;
        for (index, (counted, owed)) in self.limits().iter().zip(owed).enumerate() {
            let (outcome, state) = match self.home {
                Home::Leased => self.judge_grant(slot, counted, clock, &mut judged),
                Home::Synced => self.judge_synced(slot, counted, clock, &mut judged),
                Home::Table | Home::Counter | Home::FallBack { .. } => {
                    self.judge_counted(slot, counted, clock, *owed, &mut judged)
                }
            };
            judged.retry = judged.retry.max(outcome.retry);
            if let Some(place) = judged.limits.get_mut(index) {
                *place = Some((outcome, state));
            }
        }
        judged
    }

    fn judge_counted(
        &self,
        slot: &AnySlot,
        counted: &CountedLimit,
        clock: &Clock,
        owed: u64,
        judged: &mut Judged,
    ) -> (Outcome, State) {
        let limit = self.enforced_limit(counted);
        let moment = counted.moment(&self.identity, clock.of(self.home));
        let Found { state, inherits_until_s } =
            self.find(slot, (counted, self.part()), &limit, clock, judged);
        let state = match NonZeroU64::new(owed) {
            Some(owed) => Some(limit.take(state, moment, Take::force(owed)).1),
            None => state,
        };
        let (mut outcome, state) = limit.take(state, moment, self.take);
        shorten(&mut outcome, inherits_until_s, clock);
        (outcome, state)
    }

    /// What the counter said last, and on top of it what this proxy took since.
    fn judge_synced(
        &self,
        slot: &AnySlot,
        counted: &CountedLimit,
        clock: &Clock,
        judged: &mut Judged,
    ) -> (Outcome, State) {
        let moment = counted.moment(&self.identity, clock.fleet);
        let Found { state, inherits_until_s } =
            self.find(slot, (counted, Part::Counted), &counted.limit, clock, judged);
        let own = slot.find(self.id(counted, Part::Unacknowledged).fingerprint).and_then(Result::ok);
        let used = own.as_ref().map_or(0, |own| counted.unacknowledged.used(own, moment));
        let state = match NonZeroU64::new(used) {
            Some(used) => Some(counted.limit.take(state, moment, Take::force(used)).1),
            None => state,
        };
        let (mut outcome, _) = counted.limit.take(state, moment, self.take);
        shorten(&mut outcome, inherits_until_s, clock);
        let (taken, own) = counted.unacknowledged.take(own, moment, Take::force(self.take.amount));
        // What is acknowledged leaves the window that it was taken in.
        outcome.receipt = taken.receipt;
        (outcome, own)
    }

    fn judge_grant(
        &self,
        slot: &AnySlot,
        counted: &CountedLimit,
        clock: &Clock,
        judged: &mut Judged,
    ) -> (Outcome, State) {
        let grant = self.grant(slot, counted).unwrap_or(Grant::NONE);
        let spent = grant.spend(self.take.amount.get(), clock.monotonic);
        judged.lacks |= spent.is_none();
        let grant = spent.unwrap_or(grant);
        let moment = counted.moment(&self.identity, clock.fleet);
        // How a client's window stands, as far as a proxy knows that has asked for a part of it only.
        let (fresh, _) = counted.limit.take(None, moment, Take::all(self.take.amount));
        let outcome = Outcome {
            taken: self.take.amount.get(),
            remaining: grant.left,
            reset_ms: fresh.reset_ms,
            retry: Retry::Now,
            receipt: grant.until.ms(),
        };
        (outcome, State::Grant(grant))
    }

    fn find(
        &self,
        slot: &AnySlot,
        (counted, part): (&CountedLimit, Part),
        limit: &Limit,
        clock: &Clock,
        judged: &mut Judged,
    ) -> Found {
        let id = self.id(counted, part);
        match slot.find(id.fingerprint) {
            Some(Ok(state)) => Found { state: Some(state), inherits_until_s: None },
            Some(Err(_)) => {
                judged.bad_states = judged.bad_states.saturating_add(1);
                Found { state: None, inherits_until_s: None }
            }
            None => {
                let gone = slot.displaced(clock.wall);
                let gone = gone.filter(|_| id.strict && !planted::has(Bug::EvictionResets));
                let moment = counted.moment(&self.identity, clock.of(self.home));
                Found {
                    state: gone.and_then(|gone| gone.load.state(limit, moment)),
                    inherits_until_s: gone.map(|gone| gone.until_s),
                }
            }
        }
    }

    fn grant(&self, slot: &AnySlot, counted: &CountedLimit) -> Option<Grant> {
        match slot.find(self.id(counted, Part::Granted).fingerprint) {
            Some(Ok(State::Grant(grant))) => Some(grant),
            _ => None,
        }
    }

    /// Writes the states of a judgement: what it took, or that it was denied.
    pub(crate) fn put(&self, slot: &mut AnySlot, judged: &Judged, clock: &Clock) -> Evictions {
        let mut evictions = Evictions::default();
        let ids = self.ids();
        for (counted, (_, state)) in self.limits().iter().zip(judged.limits.iter().flatten()) {
            let moment = counted.moment(&self.identity, clock.of(self.home));
            let state = match self.home {
                Home::Table | Home::FallBack { .. } if judged.is_refused() => {
                    let limit = self.enforced_limit(counted);
                    limit.charge_denied(Some(state.clone()), moment, self.take.amount)
                }
                // What the counter is told of is in it already.
                Home::Table | Home::FallBack { .. } | Home::Counter | Home::Synced | Home::Leased => {
                    state.clone()
                }
            };
            evictions.see(self.put_one(slot, counted, self.part(), &state, clock, &ids));
        }
        evictions
    }

    fn put_one(
        &self,
        slot: &mut AnySlot,
        counted: &CountedLimit,
        part: Part,
        state: &State,
        clock: &Clock,
        beside: &[EntryId],
    ) -> tidegate_core::slot::Placed {
        let moment = counted.moment(&self.identity, clock.of(self.home));
        let (load, expires) = if let State::Grant(grant) = state {
            // It was paid for: what is left of it gives way last.
            let load = if grant.left > 0 { Load::MOST } else { Load::default() };
            (load, clock.on_wall(grant.until, clock.monotonic))
        } else {
            let limit = match part {
                Part::Unacknowledged => counted.unacknowledged,
                Part::Counted | Part::Granted | Part::FallBack => self.enforced_limit(counted),
            };
            let expires = limit.expires(state, moment);
            (Load::of(&limit, state, moment), clock.on_wall(expires, moment.now))
        };
        slot.put(self.id(counted, part), state, load, expires, clock.wall, beside)
    }

    /// Charges what is owed for the key, whatever the limits say.
    pub(crate) fn pay(&self, slot: &mut AnySlot, owed: &Owed, clock: &Clock) -> Evictions {
        let mut evictions = Evictions::default();
        let mut judged = Judged::NONE;
        let ids = self.ids();
        for (counted, owed) in self.limits().iter().zip(owed) {
            let Some(owed) = NonZeroU64::new(*owed) else { continue };
            let limit = self.enforced_limit(counted);
            let moment = counted.moment(&self.identity, clock.of(self.home));
            let part = (counted, self.part());
            let Found { state, .. } = self.find(slot, part, &limit, clock, &mut judged);
            let (_, state) = limit.take(state, moment, Take::force(owed));
            evictions.see(self.put_one(slot, counted, self.part(), &state, clock, &ids));
        }
        evictions
    }

    /// Gives back a part of what was taken, named by a receipt for each limit. An entry that is gone took it along.
    /// False if a grant that it was spent from has been joined with another since, and stays spent.
    pub(crate) fn refund(
        &self,
        slot: &mut AnySlot,
        receipts: impl Iterator<Item = u64>,
        amount: u64,
        clock: &Clock,
    ) -> bool {
        let mut is_given_back = true;
        for (counted, receipt) in self.limits().iter().zip(receipts) {
            if let Some(Ok(state)) = slot.find(self.id(counted, self.part()).fingerprint) {
                let moment = counted.moment(&self.identity, clock.of(self.home));
                let state = match (self.home, state) {
                    (Home::Leased, State::Grant(grant)) => {
                        let unspent = grant.unspend(amount, Timestamp::from_ms(receipt));
                        is_given_back &= unspent != grant;
                        State::Grant(unspent)
                    }
                    (Home::Synced, state) => counted.unacknowledged.refund(state, moment, receipt, amount),
                    (_, state) => self.enforced_limit(counted).refund(state, moment, receipt, amount),
                };
                // It is there, so this writes over it.
                self.put_one(slot, counted, self.part(), &state, clock, &[]);
            }
        }
        is_given_back
    }

    /// The counter has acknowledged `amount`, and says how its limits stand. Whatever knows of less is not news: two
    /// VMs may hear of the counter in another order than it spoke.
    pub(crate) fn acknowledge(
        &self,
        slot: &mut AnySlot,
        (receipts, amount): ([u64; LIMITS_MAX], u64),
        states: &[Option<State>],
        is_new_epoch: bool,
        clock: &Clock,
    ) -> Evictions {
        let mut evictions = Evictions::default();
        let ids = self.ids();
        self.refund(slot, receipts.into_iter(), amount, clock);
        for (counted, state) in self.limits().iter().zip(states) {
            let Some(state) = state else { continue };
            let moment = counted.moment(&self.identity, clock.fleet);
            let used = |state: &State| counted.limit.used(state, moment);
            let known = slot.find(self.id(counted, Part::Counted).fingerprint).and_then(Result::ok);
            if is_new_epoch || known.is_none_or(|known| used(&known) <= used(state)) {
                evictions.see(self.put_one(slot, counted, Part::Counted, state, clock, &ids));
            }
        }
        evictions
    }

    /// Adds to what is granted, a grant for each limit, and says what is granted now.
    pub(crate) fn add_grants(
        &self,
        slot: &mut AnySlot,
        grants: &[Option<Grant>; LIMITS_MAX],
        clock: &Clock,
    ) -> ([Option<Grant>; LIMITS_MAX], Evictions) {
        let mut evictions = Evictions::default();
        let mut all_joined = *grants;
        let ids = self.ids();
        for (counted, granted) in self.limits().iter().zip(&mut all_joined) {
            let Some(grant) = *granted else { continue };
            let joined =
                self.grant(slot, counted).map_or(grant, |before| before.joined(grant, clock.monotonic));
            evictions.see(self.put_one(slot, counted, Part::Granted, &State::Grant(joined), clock, &ids));
            *granted = Some(joined);
        }
        (all_joined, evictions)
    }

    /// Takes what is left of grants out of the slot, so that nobody spends it any more: of those limits that are given,
    /// if it is of their window and ends by then. Says how much it was.
    pub(crate) fn reclaim(
        &self,
        slot: &mut AnySlot,
        ended: &[Option<Ended>; LIMITS_MAX],
        clock: &Clock,
    ) -> [u64; LIMITS_MAX] {
        let mut reclaimed = [0; LIMITS_MAX];
        for ((counted, ended), left) in self.limits().iter().zip(ended).zip(&mut reclaimed) {
            let is_ended = |grant: &Grant| {
                ended.is_some_and(|ended| grant.window == ended.window && grant.until <= ended.by)
            };
            let Some(grant) = self.grant(slot, counted).filter(is_ended) else { continue };
            *left = grant.left;
            let none = State::Grant(Grant { left: 0, ..grant });
            self.put_one(slot, counted, Part::Granted, &none, clock, &[]);
        }
        reclaimed
    }

    /// The limit as it is enforced: a part of it, while the counter cannot be asked.
    fn enforced_limit(&self, counted: &CountedLimit) -> Limit {
        match self.home {
            Home::FallBack { parts } => counted.limit.divided(parts),
            Home::Table | Home::Counter | Home::Synced | Home::Leased => counted.limit,
        }
    }

    /// Which entry its takes change.
    const fn part(&self) -> Part {
        match self.home {
            Home::Table | Home::Counter => Part::Counted,
            Home::Synced => Part::Unacknowledged,
            Home::Leased => Part::Granted,
            Home::FallBack { .. } => Part::FallBack,
        }
    }

    fn id(&self, counted: &CountedLimit, part: Part) -> EntryId {
        let (salt, may_be_strict) = match part {
            Part::Counted => (0, true),
            Part::Unacknowledged => (0x9e37_79b9_7f4a_7c15, false),
            Part::Granted => (0xc2b2_ae3d_27d4_eb4f, false),
            Part::FallBack => (0x1656_67b1_9e37_79f9, true),
        };
        self.rule.entry_id(counted, &self.identity, salt, may_be_strict)
    }

    /// The entries that must not displace each other.
    fn ids(&self) -> Vec<EntryId> {
        let limits = self.limits();
        let mut ids: Vec<EntryId> = limits.iter().map(|limit| self.id(limit, self.part())).collect();
        if self.home == Home::Synced {
            ids.extend(limits.iter().map(|limit| self.id(limit, Part::Counted)));
        }
        ids
    }
}

/// A newcomer inherits no longer than what it inherits lasts.
fn shorten(outcome: &mut Outcome, inherits_until_s: Option<u32>, clock: &Clock) {
    if let (Retry::After(wait_ms), Some(until_s)) = (outcome.retry, inherits_until_s) {
        outcome.retry = Retry::After(wait_ms.min(Timestamp::from_s(until_s).ms_since(clock.wall)));
    }
}

impl Case {
    pub(crate) fn is_counted_denial(&self) -> bool {
        self.judged.is_refused() && self.ask.rule.count_denied
    }

    /// Whether the counter is to be told of a denial. A bucket's debt is at most what it holds, as it is in the table.
    pub(crate) fn is_reported_denial(&self) -> bool {
        let has_room = |(counted, outcome): (&CountedLimit, &Outcome)| match counted.limit.algorithm() {
            Algorithm::TokenBucket { burst, .. } => {
                let debt_max = burst.saturating_mul(2).saturating_mul(counted.limit.window_ms());
                outcome.reset_ms.saturating_mul(counted.limit.requests()) < debt_max
            }
            _ => true,
        };
        self.is_counted_denial() && self.ask.limits().iter().zip(self.judged.outcomes()).all(has_room)
    }

    pub(crate) fn is_written(&self) -> bool {
        !self.judged.is_refused() || self.is_counted_denial()
    }
}
