//! Scenarios that every store must pass. A test binary says how a store is made and calls [`scenarios!`].

mod scenarios;

pub(crate) use scenarios::*;

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use tidegate_config::wire::{Act, Batch, Group, Sender, Take};
use tidegate_core::{Manner, Outcome, Retry};
use tidegate_counter::store::{Answered, Store, StoreError};

/// A store under test, with a clock that the test moves.
pub(crate) trait Home {
    type Store: Store;
    fn store(&self) -> &Self::Store;
    /// Lets the store's clock go on.
    fn advance_ms(&self, ms: u64);
}

/// Makes a test of each scenario. `$home` is an async function from a name to a [`Home`]; the store is empty, or at
/// least nobody else uses a namespace of that name.
#[macro_export]
macro_rules! scenarios {
    ($home:path) => {
        $crate::scenarios!($home:
            a_limit_is_kept_exactly,
            every_algorithm_counts_and_forgets,
            manners_differ,
            keys_rules_and_namespaces_count_apart,
            a_changed_limit_keeps_its_counts,
            a_group_is_all_or_none,
            takes_of_a_group_see_each_other,
            groups_follow_each_other,
            a_refund_gives_back_once_to_its_window,
            a_refund_in_a_failed_group_is_not_made,
            a_retry_counts_once_and_gets_the_same_answer,
            a_sequence_of_another_batch_is_refused,
            a_sequence_that_fell_out_is_refused,
            a_sequence_is_forgotten_in_time,
            senders_do_not_share_sequences,
            proxies_are_counted_while_they_are_heard_of,
            a_batch_whose_deadline_passed_is_not_applied,
            an_empty_batch_is_answered,
            the_largest_batch_is_answered,
            states_are_told_if_asked_for,
            states_of_a_refused_group_are_as_they_stood,
            states_of_a_retry_are_as_they_are_now,
            states_are_told_up_to_so_many_bytes,
        );
    };
    ($home:path: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let home = $home(stringify!($name)).await;
                suite::$name(&home).await;
            }
        )*
    };
}

/// A take as JSON says it.
pub(crate) fn take(json: &str) -> Take<'static> {
    let body = format!(r#"{{"groups": [{{"takes": [{json}]}}]}}"#);
    let batch = Batch::from_json(body.as_bytes()).expect("a batch");
    let take = batch.groups[0].takes[0].clone();
    Take { rule: take.rule.into_owned().into(), key: take.key.into_owned().into(), ..take }
}

/// One of `limit` for `key`.
pub(crate) fn one(limit: &str, key: &str) -> Take<'static> {
    let limit = if limit.starts_with('{') { limit.to_owned() } else { format!("\"{limit}\"") };
    take(&format!(r#"{{"rule": "r", "limit": {limit}, "key": "{key}"}}"#))
}

pub(crate) fn some(n: u64, take: Take<'static>) -> Take<'static> {
    with(Act::Take(Manner::Some), n, take)
}

pub(crate) fn all(n: u64, take: Take<'static>) -> Take<'static> {
    with(Act::Take(Manner::All), n, take)
}

pub(crate) fn force(n: u64, take: Take<'static>) -> Take<'static> {
    with(Act::Take(Manner::Force), n, take)
}

pub(crate) fn refund(n: u64, receipt: u64, take: Take<'static>) -> Take<'static> {
    with(Act::Refund { receipt }, n, take)
}

fn with(act: Act, n: u64, take: Take<'static>) -> Take<'static> {
    Take { act, n: NonZeroU64::new(n).expect("at least 1"), ..take }
}

/// A batch of groups of takes.
pub(crate) fn batch(namespace: &str, groups: Vec<Vec<Take<'static>>>) -> Batch<'static> {
    let groups = groups.into_iter().map(|takes| Group { takes }).collect();
    Batch { namespace: namespace.to_owned().into(), sender: None, wait_ms: None, states: false, groups }
}

pub(crate) fn with_states(batch: Batch<'static>) -> Batch<'static> {
    Batch { states: true, ..batch }
}

pub(crate) fn sent_by(proxy: u64, vm: u32, sequence: u64, batch: Batch<'static>) -> Batch<'static> {
    Batch { sender: Some(Sender { proxy, vm, sequence }), ..batch }
}

/// Long enough that only a broken store misses it.
pub(crate) fn in_time() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

pub(crate) async fn send(home: &impl Home, batch: &Batch<'_>) -> Result<Answered, StoreError> {
    home.store().take(batch, in_time()).await
}

/// What came of one group.
pub(crate) async fn group(home: &impl Home, namespace: &str, takes: Vec<Take<'static>>) -> Vec<Outcome> {
    let answered = send(home, &batch(namespace, vec![takes])).await.expect("an answer");
    answered.groups.into_iter().next().expect("one group").takes
}

/// What came of one take.
pub(crate) async fn outcome(home: &impl Home, namespace: &str, take: Take<'static>) -> Outcome {
    group(home, namespace, vec![take]).await.remove(0)
}

/// How much is left, told without a charge: by a `some` that is refused, or taken and given back.
pub(crate) async fn remaining(home: &impl Home, namespace: &str, take: Take<'static>) -> u64 {
    outcome(home, namespace, refund(1, 0, take)).await.remaining
}

pub(crate) fn is_refused(outcome: &Outcome) -> bool {
    outcome.taken == 0 && outcome.retry != Retry::Now
}
