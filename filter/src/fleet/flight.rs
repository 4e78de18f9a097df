//! One call to the counter: what it carries, as a batch, and what its answer says to each.

use crate::ask::{Ask, Judged};
use crate::fleet::leases::ChunkAsk;
use crate::fleet::outbox::{Refund, Report};
use crate::fleet::waiting::Waiter;
use core::num::NonZeroU64;
use tidegate_config::LIMITS_MAX;
use tidegate_config::wire::{Act, Answer, Batch, GROUPS_MAX, Group, GroupAnswer, Sender, TAKES_MAX, Take};
use tidegate_core::{Manner, Outcome, Timestamp};

/// A call that is under way, or that failed and will be made again.
pub(crate) struct Flight {
    /// What it carries, in the order of its groups.
    pub(crate) items: Vec<Item>,
    /// The batch as it was sent: a retry must say the same.
    pub(crate) body: Vec<u8>,
    /// When it was first sent, on the monotonic clock.
    pub(crate) first_sent: Timestamp,
    /// When it was sent last, and the number of that call; none if it waits to be sent again.
    pub(crate) under_way: Option<(u32, Timestamp)>,
    pub(crate) is_retry: bool,
}

/// What a call carries for one party.
pub(crate) enum Item {
    Waiter(Waiter),
    Report(Report),
    Refund(Refund),
    Chunk(ChunkAsk),
}

/// What the counter says to an item, a slice of its groups.
pub(crate) type Said<'a> = &'a [GroupAnswer];

impl Item {
    fn groups(&self) -> Vec<Group<'_>> {
        match self {
            Self::Waiter(waiter) => {
                let all = |ask: &Ask| takes(ask, Manner::All);
                let enforced: Vec<Take<'static>> = waiter.enforced().flat_map(all).collect();
                let together = (!enforced.is_empty()).then_some(Group { takes: enforced });
                together.into_iter().chain(waiter.in_shadow().map(|ask| Group { takes: all(ask) })).collect()
            }
            Self::Report(report) => vec![Group { takes: takes(&report.ask, Manner::Force) }],
            Self::Refund(refund) => {
                let part =
                    |(index, receipt, amount)| take(&refund.ask, index, amount, Act::Refund { receipt });
                vec![Group { takes: refund.parts().filter_map(part).collect() }]
            }
            Self::Chunk(chunk) => {
                let part = |(index, amount): (usize, &NonZeroU64)| {
                    take(&chunk.ask, index, *amount, Act::Take(Manner::Some))
                };
                vec![Group { takes: chunk.amounts.iter().enumerate().filter_map(part).collect() }]
            }
        }
    }
}

/// A batch of all items, in the compact encoding.
pub(crate) fn encode(items: &[Item], namespace: &str, sender: Option<Sender>, wait_ms: u32) -> Vec<u8> {
    let batch = Batch {
        namespace: namespace.into(),
        sender,
        wait_ms: Some(wait_ms),
        states: items.iter().any(|item| matches!(item, Item::Report(_))),
        groups: items.iter().flat_map(Item::groups).collect(),
    };
    batch.to_postcard()
}

/// How much of a batch is taken up.
#[derive(Clone, Copy, Default)]
pub(crate) struct Size {
    groups: usize,
    takes: usize,
}

impl Size {
    /// That of those who wait, as [`Item::groups`] makes them.
    pub(crate) fn of(waiter: &Waiter) -> Self {
        let takes = waiter.asked.iter().map(|ask| ask.limits().len()).sum();
        let together = usize::from(waiter.enforced().next().is_some());
        Self { groups: waiter.in_shadow().count().saturating_add(together), takes }
    }

    /// Both together, if the counter takes a batch of that size.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        let groups = self.groups.saturating_add(other.groups);
        let takes = self.takes.saturating_add(other.takes);
        (groups <= GROUPS_MAX && takes <= TAKES_MAX).then_some(Self { groups, takes })
    }

    /// How many groups of one key have room beside it.
    pub(crate) fn room(self) -> usize {
        let by_takes = TAKES_MAX.saturating_sub(self.takes).div_euclid(LIMITS_MAX);
        GROUPS_MAX.saturating_sub(self.groups).min(by_takes)
    }
}

/// Deals an answer out to the items; nothing if it does not fit them.
pub(crate) fn deal<'a>(items: &[Item], answer: &'a Answer) -> Option<Vec<Said<'a>>> {
    let mut rest = answer.groups.as_slice();
    let mut said = Vec::with_capacity(items.len());
    for item in items {
        let groups = item.groups();
        let (own, others) = rest.split_at_checked(groups.len())?;
        let fits = |(group, answer): (&Group<'_>, &GroupAnswer)| {
            let states = answer.states.len();
            answer.takes.len() == group.takes.len() && (states == 0 || states == group.takes.len())
        };
        if !groups.iter().zip(own).all(fits) {
            return None;
        }
        said.push(own);
        rest = others;
    }
    rest.is_empty().then_some(said)
}

/// What the counter judged of what a waiter asked.
pub(crate) fn judge(waiter: &Waiter, said: Said<'_>) -> Vec<(Ask, Judged)> {
    let mut groups = said.iter();
    let mut judged = Vec::with_capacity(waiter.asked.len());
    if waiter.enforced().next().is_some() {
        let mut outcomes = groups.next().into_iter().flat_map(|group| group.takes.iter().copied());
        for ask in waiter.enforced() {
            let own: Vec<Outcome> = outcomes.by_ref().take(ask.limits().len()).collect();
            judged.push((ask.clone(), Judged::by(own.into_iter())));
        }
    }
    for (ask, group) in waiter.in_shadow().zip(groups) {
        judged.push((ask.clone(), Judged::by(group.takes.iter().copied())));
    }
    judged
}

fn takes(ask: &Ask, manner: Manner) -> Vec<Take<'static>> {
    let limits = 0..ask.limits().len();
    limits.filter_map(|index| take(ask, index, ask.take.amount, Act::Take(manner))).collect()
}

fn take(ask: &Ask, index: usize, n: NonZeroU64, act: Act) -> Option<Take<'static>> {
    let counted = ask.limits().get(index)?;
    Some(Take {
        rule: ask.rule.name.clone().into(),
        limit: counted.wire,
        key: ask.identity.wire.to_vec().into(),
        n,
        act,
        when_full: ask.rule.when_full,
    })
}
