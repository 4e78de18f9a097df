//! The scenarios. Each uses a namespace of its own.

use super::*;
use tidegate_config::wire::{
    GROUPS_MAX, KEY_BYTES_MAX, PROXY_SEEN_MS, REMEMBERED_MS, SEQUENCES_KEPT, STATES_BYTES_MAX, window_shift,
};
use tidegate_core::{Moment, State, Timestamp};

/// A bucket that warms up counts otherwise; each store compares it with the core elsewhere.
const ALGORITHMS: [&str; 6] = [
    r#"{"requests": 5, "per": "10s", "algorithm": "fixed_window"}"#,
    r#"{"requests": 5, "per": "10s", "algorithm": "sliding_window"}"#,
    r#"{"requests": 5, "per": "10s", "algorithm": "sliding_buckets", "buckets": 5}"#,
    r#"{"requests": 5, "per": "10s", "algorithm": "sliding_log"}"#,
    r#"{"requests": 5, "per": "10s", "algorithm": "token_bucket"}"#,
    "5/day",
];

pub(crate) async fn a_limit_is_kept_exactly(home: &impl Home) {
    let name = "a_limit_is_kept_exactly";
    for left in (0..5).rev() {
        let outcome = outcome(home, name, one("5/10s", "ana")).await;
        assert_eq!((outcome.taken, outcome.remaining, outcome.retry), (1, left, Retry::Now));
        assert!(outcome.receipt > 0 && outcome.reset_ms > 0, "{outcome:?}");
    }
    let denied = outcome(home, name, one("5/10s", "ana")).await;
    assert_eq!((denied.taken, denied.remaining, denied.receipt), (0, 0, 0));
    let Retry::After(wait_ms) = denied.retry else { panic!("{denied:?}") };
    home.advance_ms(wait_ms - 1);
    assert!(is_refused(&outcome(home, name, one("5/10s", "ana")).await), "a millisecond too early");
    home.advance_ms(1);
    assert_eq!(outcome(home, name, one("5/10s", "ana")).await.taken, 1, "in time");
}

pub(crate) async fn every_algorithm_counts_and_forgets(home: &impl Home) {
    let name = "every_algorithm_counts_and_forgets";
    for limit in ALGORITHMS {
        let first = outcome(home, name, some(9, one(limit, "ana"))).await;
        assert_eq!((first.taken, first.remaining, first.retry), (5, 0, Retry::Now), "{limit}");
        assert!(is_refused(&outcome(home, name, one(limit, "ana")).await), "{limit}");
    }
    home.advance_ms(86_400_000);
    for limit in ALGORITHMS {
        assert_eq!(outcome(home, name, all(5, one(limit, "ana"))).await.taken, 5, "{limit}");
    }
}

pub(crate) async fn manners_differ(home: &impl Home) {
    let name = "manners_differ";
    for limit in ALGORITHMS {
        let take = || one(limit, "ana");
        assert_eq!(outcome(home, name, all(3, take())).await.taken, 3, "{limit}");
        let denied = outcome(home, name, all(3, take())).await;
        assert_eq!((denied.taken, denied.remaining), (0, 2), "{limit}: a refused take charges nothing");
        assert!(matches!(denied.retry, Retry::After(_)), "{limit}");
        assert_eq!(outcome(home, name, all(6, take())).await.retry, Retry::Never, "{limit}");
        assert_eq!(outcome(home, name, some(3, take())).await.taken, 2, "{limit}");
        let none = outcome(home, name, some(3, take())).await;
        assert!(is_refused(&none) && none.receipt == 0, "{limit}: {none:?}");
        let forced = outcome(home, name, force(4, take())).await;
        assert_eq!((forced.taken, forced.remaining, forced.retry), (4, 0, Retry::Now), "{limit}");
    }
}

pub(crate) async fn keys_rules_and_namespaces_count_apart(home: &impl Home) {
    let name = "keys_rules_and_namespaces_count_apart";
    let other = format!("{name}-2");
    let rule =
        |rule: &str, key: &str| take(&format!(r#"{{"rule": "{rule}", "limit": "1/1m", "key": "{key}"}}"#));
    for (namespace, take) in [
        (name, rule("ab", "c")),
        (name, rule("a", "bc")),
        (name, rule("a", "b_c")),
        (name, rule("a-b", "c")),
        (name, rule("a", "")),
        (other.as_str(), rule("ab", "c")),
        (name, Take { limit: one("1/2m", "").limit, ..rule("ab", "c") }),
        (
            name,
            Take {
                limit: one(r#"{"requests": 1, "per": "1m", "algorithm": "fixed_window"}"#, "").limit,
                ..rule("ab", "c")
            },
        ),
    ] {
        assert_eq!(outcome(home, namespace, take.clone()).await.taken, 1, "{namespace} {take:?}");
        assert!(is_refused(&outcome(home, namespace, take).await));
    }
}

pub(crate) async fn a_changed_limit_keeps_its_counts(home: &impl Home) {
    let name = "a_changed_limit_keeps_its_counts";
    assert_eq!(outcome(home, name, all(4, one("5/1m", "ana"))).await.remaining, 1);
    assert_eq!(outcome(home, name, all(4, one("10/1m", "ana"))).await.remaining, 2);
    assert!(is_refused(&outcome(home, name, one("5/1m", "ana")).await));
}

pub(crate) async fn a_group_is_all_or_none(home: &impl Home) {
    let name = "a_group_is_all_or_none";
    group(home, name, vec![all(2, one("2/1m", "small"))]).await;
    let takes = vec![
        all(3, one("10/1m", "large")),
        one("2/1m", "small"),
        all(4, one("10/1m", "large")),
        force(1, one("10/1m", "forced")),
        some(1, one("10/1m", "some")),
    ];
    let outcomes = group(home, name, takes).await;
    let told: Vec<_> =
        outcomes.iter().map(|outcome| (outcome.taken, outcome.receipt, outcome.remaining)).collect();
    assert_eq!(told, [(0, 0, 10), (0, 0, 0), (0, 0, 10), (0, 0, 10), (0, 0, 10)]);
    let refused: Vec<bool> = outcomes.iter().map(is_refused).collect();
    assert_eq!(refused, [false, true, false, false, false], "only the denier says how long");
    for key in ["large", "forced", "some"] {
        assert_eq!(remaining(home, name, one("10/1m", key)).await, 10, "{key} is untouched");
    }
    let outcomes = group(home, name, vec![some(1, one("2/1m", "small")), one("10/1m", "large")]).await;
    assert_eq!((outcomes[0].taken, outcomes[1].taken), (0, 1), "a some that yields 0 fails nothing");
}

pub(crate) async fn takes_of_a_group_see_each_other(home: &impl Home) {
    let name = "takes_of_a_group_see_each_other";
    for limit in ALGORITHMS {
        let outcomes = group(home, name, vec![all(2, one(limit, "ana")), all(2, one(limit, "ana"))]).await;
        let left: Vec<_> = outcomes.iter().map(|outcome| (outcome.taken, outcome.remaining)).collect();
        assert_eq!(left, [(2, 3), (2, 1)], "{limit}");
        let outcomes = group(home, name, vec![one(limit, "ana"), one(limit, "ana")]).await;
        assert_eq!(outcomes.iter().map(is_refused).collect::<Vec<_>>(), [false, true], "{limit}");
        assert_eq!(outcomes.iter().map(|outcome| outcome.remaining).collect::<Vec<_>>(), [1, 1], "{limit}");
        assert_eq!(outcome(home, name, one(limit, "ana")).await.taken, 1, "{limit}");
    }
}

pub(crate) async fn groups_follow_each_other(home: &impl Home) {
    let name = "groups_follow_each_other";
    let takes = |n| vec![all(n, one("5/1m", "ana"))];
    let answered = send(home, &batch(name, vec![takes(3), takes(3), takes(2)])).await.expect("an answer");
    let made: Vec<_> = answered.groups.iter().map(|group| group.takes[0].taken).collect();
    assert_eq!(made, [3, 0, 2], "one that fails is no matter to the next");
}

pub(crate) async fn a_refund_gives_back_once_to_its_window(home: &impl Home) {
    let name = "a_refund_gives_back_once_to_its_window";
    for limit in ALGORITHMS {
        let taken = outcome(home, name, all(4, one(limit, "ana"))).await;
        let back = outcome(home, name, refund(3, taken.receipt, one(limit, "ana"))).await;
        let told = (back.taken, back.remaining, back.retry, back.receipt);
        assert_eq!(told, (0, 4, Retry::Now, 0), "{limit}");
        let nothing = outcome(home, name, refund(3, taken.receipt, one(limit, "bob"))).await;
        assert_eq!((nothing.taken, nothing.remaining), (0, 5), "{limit}: a counter that is not there");
    }
    let fixed = || one(ALGORITHMS[0], "old");
    let old = outcome(home, name, all(4, fixed())).await;
    home.advance_ms(10_000);
    outcome(home, name, all(4, fixed())).await;
    let back = outcome(home, name, refund(4, old.receipt, fixed())).await;
    assert_eq!(back.remaining, 1, "a window that is gone takes nothing back");
}

pub(crate) async fn a_refund_in_a_failed_group_is_not_made(home: &impl Home) {
    let name = "a_refund_in_a_failed_group_is_not_made";
    let first = outcome(home, name, all(4, one("5/1m", "ana"))).await;
    let takes = vec![refund(4, first.receipt, one("5/1m", "ana")), all(2, one("1/1m", "bob"))];
    let outcomes = group(home, name, takes).await;
    assert_eq!((outcomes[0].remaining, outcomes[0].retry), (1, Retry::Now));
    assert_eq!(outcomes[1].retry, Retry::Never);
    assert_eq!(remaining(home, name, one("5/1m", "ana")).await, 1);
}

pub(crate) async fn a_retry_counts_once_and_gets_the_same_answer(home: &impl Home) {
    let name = "a_retry_counts_once_and_gets_the_same_answer";
    let takes = || vec![vec![all(3, one("10/1m", "ana"))], vec![all(99, one("10/1m", "ana"))]];
    let first = send(home, &sent_by(1, 1, 7, batch(name, takes()))).await.expect("an answer");
    home.advance_ms(500);
    let again = send(home, &sent_by(1, 1, 7, batch(name, takes()))).await.expect("an answer");
    assert_eq!((again.now_ms, &again.groups, again.epoch), (first.now_ms, &first.groups, first.epoch));
    assert_eq!(remaining(home, name, one("10/1m", "ana")).await, 7, "charged once");
    let next = send(home, &sent_by(1, 1, 8, batch(name, takes()))).await.expect("an answer");
    assert_eq!(next.groups[0].takes[0].remaining, 4);
    assert!(next.now_ms >= first.now_ms + 500);
}

pub(crate) async fn a_sequence_of_another_batch_is_refused(home: &impl Home) {
    let name = "a_sequence_of_another_batch_is_refused";
    let ana = || one("10/1m", "ana");
    let sent = |groups: Vec<Vec<Take<'static>>>| sent_by(7, 1, 5, batch(name, groups));
    let first = sent(vec![vec![ana(), one("10/1m", "bob")]]);
    let answered = send(home, &first).await.expect("an answer");
    let bucket = |burst: u64| {
        one(
            &format!(r#"{{"requests": 10, "per": "1m", "algorithm": "token_bucket", "burst": {burst}}}"#),
            "bob",
        )
    };
    for (second, differs) in [
        (one("10/1m", "eve"), "key"),
        (all(2, one("10/1m", "bob")), "n"),
        (some(1, one("10/1m", "bob")), "manner"),
        (refund(1, answered.groups[0].takes[1].receipt, one("10/1m", "bob")), "act"),
        (one("11/1m", "bob"), "limit's number"),
        (one("10/2m", "bob"), "window"),
        (bucket(5), "algorithm"),
        (take(r#"{"rule": "other", "limit": "10/1m", "key": "bob"}"#), "rule"),
    ] {
        assert_eq!(send(home, &sent(vec![vec![ana(), second]])).await, Err(StoreError::TooOld), "{differs}");
    }
    for groups in [
        vec![vec![ana()], vec![one("10/1m", "bob")]],
        vec![vec![one("10/1m", "bob"), ana()]],
        vec![vec![ana()]],
        vec![vec![ana(), one("10/1m", "bob"), ana()]],
    ] {
        assert_eq!(send(home, &sent(groups)).await, Err(StoreError::TooOld), "groups");
    }
    for key in ["ana", "bob"] {
        assert_eq!(remaining(home, name, one("10/1m", key)).await, 9, "{key} was charged once");
    }
    let otherwise = Batch { wait_ms: Some(5_000), states: true, ..first };
    let again = send(home, &otherwise).await.expect("the same takes");
    assert_eq!(again.groups[0].takes, answered.groups[0].takes, "how it is asked for is no matter");
    // Another batch under a sequence of its own, whose burst differs only.
    send(home, &sent_by(7, 1, 6, batch(name, vec![vec![bucket(5)]]))).await.expect("an answer");
    let other = sent_by(7, 1, 6, batch(name, vec![vec![bucket(6)]]));
    assert_eq!(send(home, &other).await, Err(StoreError::TooOld), "burst");
}

pub(crate) async fn a_sequence_that_fell_out_is_refused(home: &impl Home) {
    let name = "a_sequence_that_fell_out_is_refused";
    let sent = |sequence| sent_by(2, 1, sequence, batch(name, vec![vec![one("1000/1m", "ana")]]));
    for sequence in 0..=SEQUENCES_KEPT {
        send(home, &sent(sequence)).await.expect("an answer");
    }
    assert_eq!(send(home, &sent(0)).await, Err(StoreError::TooOld));
    assert!(send(home, &sent(1)).await.is_ok(), "the oldest that is kept");
    assert_eq!(remaining(home, name, one("1000/1m", "ana")).await, 1_000 - SEQUENCES_KEPT - 1);
}

pub(crate) async fn a_sequence_is_forgotten_in_time(home: &impl Home) {
    let name = "a_sequence_is_forgotten_in_time";
    let sent = || sent_by(3, 1, 5, batch(name, vec![vec![one("1000/1h", "ana")]]));
    send(home, &sent()).await.expect("an answer");
    home.advance_ms(REMEMBERED_MS - 1);
    send(home, &sent()).await.expect("an answer");
    assert_eq!(remaining(home, name, one("1000/1h", "ana")).await, 999, "still remembered");
    home.advance_ms(2);
    send(home, &sent()).await.expect("an answer");
    assert_eq!(remaining(home, name, one("1000/1h", "ana")).await, 998, "forgotten, and so counted");
}

pub(crate) async fn senders_do_not_share_sequences(home: &impl Home) {
    let name = "senders_do_not_share_sequences";
    let other = format!("{name}-2");
    let takes = || vec![vec![one("1000/1m", "ana")]];
    for (namespace, proxy, vm) in [(name, 4, 1), (name, 4, 2), (name, 5, 1), (other.as_str(), 4, 1)] {
        send(home, &sent_by(proxy, vm, 9, batch(namespace, takes()))).await.expect("an answer");
    }
    assert_eq!(remaining(home, name, one("1000/1m", "ana")).await, 997);
    assert_eq!(remaining(home, &other, one("1000/1m", "ana")).await, 999);
}

pub(crate) async fn proxies_are_counted_while_they_are_heard_of(home: &impl Home) {
    let name = "proxies_are_counted_while_they_are_heard_of";
    let heard = async |proxy, sequence| {
        send(home, &sent_by(proxy, 1, sequence, batch(name, Vec::new()))).await.expect("an answer").proxies
    };
    assert_eq!(send(home, &batch(name, Vec::new())).await.expect("an answer").proxies, 1, "at least one");
    // A store may learn of others a little late.
    let mut sequence = 0;
    let mut eventually = async |expected: u32| {
        for _ in 0..40 {
            sequence += 1;
            heard(10, sequence).await;
            heard(11, sequence).await;
            let proxies = heard(12, sequence).await;
            if proxies == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("never {expected}");
    };
    eventually(3).await;
    for sequence in 1_000..1_040 {
        // Each time, for a store may note late what it heard, as of then.
        home.advance_ms(PROXY_SEEN_MS + 1_000);
        if heard(10, sequence).await == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("proxies that are gone are still counted");
}

pub(crate) async fn a_batch_whose_deadline_passed_is_not_applied(home: &impl Home) {
    let name = "a_batch_whose_deadline_passed_is_not_applied";
    let late = home.store().take(&batch(name, vec![vec![one("5/1m", "ana")]]), Instant::now()).await;
    assert_eq!(late, Err(StoreError::Expired));
    assert_eq!(remaining(home, name, one("5/1m", "ana")).await, 5);
}

pub(crate) async fn an_empty_batch_is_answered(home: &impl Home) {
    let answered = send(home, &batch("an_empty_batch_is_answered", Vec::new())).await.expect("an answer");
    assert!(answered.groups.is_empty() && answered.now_ms > 0 && answered.epoch > 0);
}

pub(crate) async fn the_largest_batch_is_answered(home: &impl Home) {
    let name = "the_largest_batch_is_answered";
    let key = |index: usize| format!("{index:0>KEY_BYTES_MAX$}");
    let groups = (0..GROUPS_MAX).map(|group| {
        (0..4).map(|take| one(&format!("{}/{}m", 100 + take, take + 1), &key(group))).collect::<Vec<_>>()
    });
    let whole = sent_by(6, 1, 1, batch(name, groups.collect()));
    for _ in 0..2 {
        let answered = send(home, &whole).await.expect("an answer");
        assert_eq!(answered.groups.len(), GROUPS_MAX);
        for outcome in answered.groups.iter().flat_map(|group| group.takes.iter().enumerate()) {
            assert_eq!(outcome.1.remaining, 99 + outcome.0 as u64);
        }
    }
}

/// What the core makes of a take.
fn in_core(name: &str, state: Option<State>, now_ms: u64, take: &Take<'_>) -> State {
    let at = Moment { now: Timestamp::from_ms(now_ms), shift: window_shift(name, take) };
    let limit = &take.limit.limit;
    match take.act {
        Act::Take(manner) => limit.take(state, at, tidegate_core::Take { amount: take.n, manner }).1,
        Act::Refund { receipt } => limit.refund(state.expect("a state"), at, receipt, take.n.get()),
    }
}

pub(crate) async fn states_are_told_if_asked_for(home: &impl Home) {
    let name = "states_are_told_if_asked_for";
    let warming = r#"{"requests": 50, "per": "20s", "algorithm": "token_bucket", "warm_up": "20s"}"#;
    for limit in ALGORITHMS.into_iter().chain([warming]) {
        let silent = send(home, &batch(name, vec![vec![one(limit, "ana")]])).await.expect("an answer");
        assert!(silent.groups[0].states.is_empty(), "{limit}: nobody asked");
        let mut expected = Some(in_core(name, None, silent.now_ms, &one(limit, "ana")));
        home.advance_ms(20);
        let receipt = silent.groups[0].takes[0].receipt;
        let groups = vec![
            vec![one(limit, "ana"), force(9, one(limit, "ana"))],
            vec![refund(1, receipt, one(limit, "ana")), refund(1, 0, one(limit, "bob"))],
            vec![some(1, one(limit, "ana"))],
        ];
        let asked = with_states(batch(name, groups));
        let answered = send(home, &asked).await.expect("an answer");
        for (group, answer) in asked.groups.iter().zip(&answered.groups) {
            for (take, outcome) in group.takes.iter().zip(&answer.takes) {
                let changes = outcome.taken > 0 || matches!(take.act, Act::Refund { .. });
                if changes && &*take.key == b"ana" {
                    expected = Some(in_core(name, expected, answered.now_ms, take));
                }
            }
            let told = |take: &Take<'_>| expected.clone().filter(|_| &*take.key == b"ana");
            let told: Vec<_> = group.takes.iter().map(told).collect();
            assert_eq!(answer.states, told, "{limit}: after the whole group");
        }
    }
}

pub(crate) async fn states_of_a_refused_group_are_as_they_stood(home: &impl Home) {
    let name = "states_of_a_refused_group_are_as_they_stood";
    for limit in ALGORITHMS {
        let first = with_states(batch(name, vec![vec![all(3, one(limit, "ana"))]]));
        let first = send(home, &first).await.expect("an answer");
        let expected = Some(in_core(name, None, first.now_ms, &all(3, one(limit, "ana"))));
        assert_eq!(first.groups[0].states, std::slice::from_ref(&expected), "{limit}");
        let refused = vec![
            vec![one(limit, "ana"), all(3, one(limit, "ana")), force(1, one(limit, "bob"))],
            vec![all(3, one(limit, "ana"))],
        ];
        let refused = send(home, &with_states(batch(name, refused))).await.expect("an answer");
        assert_eq!(refused.groups[0].states, [expected.clone(), expected.clone(), None], "{limit}");
        assert_eq!(refused.groups[1].states, [expected], "{limit}: alone");
    }
}

pub(crate) async fn states_are_told_up_to_so_many_bytes(home: &impl Home) {
    let name = "states_are_told_up_to_so_many_bytes";
    let log = || one(r#"{"requests": 200, "per": "1h", "algorithm": "sliding_log"}"#, "ana");
    // Each at a time of its own, so that the log is as long as it can be.
    for _ in 0..200 {
        home.advance_ms(300);
        send(home, &batch(name, vec![vec![log()]])).await.expect("an answer");
    }
    let groups = (0..100).map(|_| vec![some(1, log()); 5]).collect();
    let sent = with_states(sent_by(9, 1, 1, batch(name, groups)));
    let first = send(home, &sent).await.expect("an answer");
    let again = send(home, &sent).await.expect("an answer");
    assert_eq!(first.groups, again.groups, "a retry too");
    let states: Vec<_> = first.groups.iter().flat_map(|group| &group.states).collect();
    assert_eq!(states.len(), 500);
    let bytes = |state: &State| 1 + state.contents().len();
    let told: Vec<usize> = states.iter().map_while(|state| state.as_ref().map(bytes)).collect();
    assert!(
        states[told.len()..].iter().all(|state| state.is_none()),
        "none after the first that had no room"
    );
    let total: usize = told.iter().sum();
    assert!(told[0] > 500 && total <= STATES_BYTES_MAX && total + told[0] > STATES_BYTES_MAX, "{told:?}");
}

pub(crate) async fn states_of_a_retry_are_as_they_are_now(home: &impl Home) {
    let name = "states_of_a_retry_are_as_they_are_now";
    for (sequence, limit) in (1..).zip(ALGORITHMS) {
        let groups =
            || vec![vec![one(limit, "ana"), refund(1, 0, one(limit, "bob"))], vec![one(limit, "eve")]];
        let sent = || with_states(sent_by(8, 1, sequence, batch(name, groups())));
        let first = send(home, &sent()).await.expect("an answer");
        let more =
            send(home, &with_states(batch(name, vec![vec![one(limit, "ana")]]))).await.expect("an answer");
        let again = send(home, &sent()).await.expect("an answer");
        let takes = |answered: &Answered| -> Vec<Outcome> {
            answered.groups.iter().flat_map(|group| group.takes.clone()).collect()
        };
        assert_eq!((again.now_ms, takes(&again)), (first.now_ms, takes(&first)), "{limit}");
        assert_ne!(first.groups[0].states[0], more.groups[0].states[0], "{limit}");
        assert_eq!(again.groups[0].states, [more.groups[0].states[0].clone(), None], "{limit}");
        assert_eq!(again.groups[1].states, first.groups[1].states, "{limit}");
        let silent = send(home, &sent_by(8, 1, sequence, batch(name, groups()))).await.expect("an answer");
        assert_eq!(takes(&silent), takes(&first), "{limit}");
        assert!(silent.groups.iter().all(|group| group.states.is_empty()), "{limit}: nobody asked");
    }
}
