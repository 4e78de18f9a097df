//! A flood of keys: what it may not cost, and whom it may neither free nor shut out.
//!
//! 200,000 keys, or five million with `TIDEGATE_SOAK=1` (`make soak`).

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_e2e::{Envoy, Setup, load};

use crate::common::{admitted, assert_healthy, keyed, limit, rule, start, with};

const CONNECTIONS: usize = 32;
const WARM_UP: usize = 20_000;

/// What Envoy's memory may grow by while a flood lasts: its allocator's moods, but no key of ours (200,000 of
/// them in shared data would be 20 to 35 MB).
const GROWTH_KB_MAX: u64 = 4_096;

#[tokio::test]
async fn memory_stays_and_who_is_over_a_strict_limit_stays_denied() {
    const ASKED_EVERY: usize = 100;
    let strict = with(rule("strict", "/flooded", &limit(5)), "when_full", "strict");
    let limits = json!({ "table": { "slots": 1_024 }, "rules": [strict] });
    let envoy = start(Setup::limits(limits).workers(4)).await;
    assert_eq!(admitted(&envoy, 5, "/flooded", "culprit").await, 5);
    flood(&envoy, WARM_UP, |index| format!("warm-up-{index}")).await;
    let before_kb = envoy.resident_kb().unwrap();
    let keys = keys();
    let key = |index: usize| {
        if index.is_multiple_of(ASKED_EVERY) { "culprit".into() } else { format!("key-{index}") }
    };
    let answers = flood(&envoy, keys, key).await;
    assert_memory_stayed(&envoy, before_kb);
    let freed = (0..keys).step_by(ASKED_EVERY).find(|&index| answers.status(index) != 429);
    assert_eq!(freed, None, "the culprit was let through at this request of the flood");
    envoy.rule_metrics_reach("strict", 5 + WARM_UP + keys).await.unwrap();
    assert!(envoy.metric("tidegate_evictions").await.unwrap() > 0, "the table should have been too small");
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_displaced_culprit_stays_denied_when_its_neighbours_expire() {
    const CULPRITS: usize = 2_000;
    const LIMIT: usize = 2;
    const ENTRIES: usize = 64 * 8;
    // A window of 1 s counts for two, and an entry lives to the end of a second.
    const NEIGHBOURS_LIVE: Duration = Duration::from_secs(3);
    let mut short = rule("short", "/short", &json!("100/1s"));
    short["when_full"] = json!("lenient");
    let long = with(rule("long", "/long", &limit(LIMIT)), "when_full", "strict");
    let limits = json!({ "table": { "slots": 64 }, "rules": [short, long] });
    let envoy = start(Setup::limits(limits)).await;

    // Neighbours first, so that the table is full of them when the culprits come.
    let neighbours = |index| keyed("/short", &format!("neighbour-{index}"));
    load::run(envoy.address(), CONNECTIONS, 4 * ENTRIES, neighbours).await.unwrap();
    let came = Instant::now();
    let culprits = move |index: usize| keyed("/long", &format!("culprit-{}", index / (LIMIT + 1)));
    let answers = load::run(envoy.address(), CONNECTIONS, CULPRITS * (LIMIT + 1), culprits).await.unwrap();
    let most = answers.admitted_per_group(LIMIT + 1).into_iter().max();
    assert!(most <= Some(LIMIT), "a culprit got {most:?}");

    // Most of them are not in the table any more, for it has fewer entries than there are culprits. Asked
    // again and again while the neighbours expire and leave room, none gets in.
    let mut last_round = false;
    while !last_round {
        last_round = came.elapsed() > NEIGHBOURS_LIVE;
        let again = |index| keyed("/long", &format!("culprit-{index}"));
        let answers = load::run(envoy.address(), CONNECTIONS, CULPRITS, again).await.unwrap();
        let freed = (0..CULPRITS).find(|&index| answers.status(index) != 429);
        assert_eq!(freed, None, "this culprit was let through after {:?}", came.elapsed());
    }
    assert!(envoy.metric("tidegate_evictions").await.unwrap() > 0, "the table should have been too small");
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_lenient_flood_displaces_no_other_rule_and_shuts_out_no_newcomer() {
    const THEIRS: usize = 100;
    const NEWCOMERS: usize = 100;
    // Of 256 slots none holds eight of these hundred keys: the odds are one in a million.
    let limits = json!({ "table": { "slots": 256 }, "rules": [
        rule("theirs", "/theirs", &limit(5)),
        with(rule("minted", "/flooded", &limit(1)), "when_full", "lenient"),
    ] });
    let envoy = start(Setup::limits(limits).workers(4)).await;
    let theirs = |index| keyed("/theirs", &format!("customer-{}", index % THEIRS));
    let answers = load::run(envoy.address(), CONNECTIONS, 3 * THEIRS, theirs).await.unwrap();
    assert_eq!(answers.count(200), 3 * THEIRS);

    flood(&envoy, WARM_UP, |index| format!("warm-up-{index}")).await;
    let before_kb = envoy.resident_kb().unwrap();
    // Every key is asked for twice, with a limit of one.
    let sent = 2 * keys();
    let answers = flood(&envoy, sent, |index| format!("minted-{}", index / 2)).await;
    assert_memory_stayed(&envoy, before_kb);
    assert!(answers.count(429) > sent / 4, "the keys should have gone over their limit");

    for newcomer in 0..NEWCOMERS {
        let newcomer = format!("newcomer-{newcomer}");
        assert_eq!(admitted(&envoy, 1, "/flooded", &newcomer).await, 1, "{newcomer}");
    }
    let answers = load::run(envoy.address(), CONNECTIONS, 4 * THEIRS, theirs).await.unwrap();
    let admitted_to = |customer| (customer..4 * THEIRS).step_by(THEIRS).filter(|&i| answers.status(i) == 200);
    for customer in 0..THEIRS {
        assert_eq!(admitted_to(customer).count(), 2, "3 of 5 were taken before, by customer {customer}");
    }
    envoy.rule_metrics_reach("minted", WARM_UP + sent + NEWCOMERS).await.unwrap();
    assert_eq!(envoy.metric("tidegate_foreign_evictions").await.unwrap(), 0);
    assert!(envoy.metric("tidegate_evictions").await.unwrap() > 0, "the table should have been too small");
    assert_healthy(&envoy).await;
}

async fn flood<K>(envoy: &Envoy, requests: usize, key: K) -> load::Answers
where
    K: Fn(usize) -> String + Send + Sync + 'static,
{
    let make = move |index| keyed("/flooded", &key(index));
    let answers = load::run(envoy.address(), CONNECTIONS, requests, make).await.unwrap();
    assert_eq!(answers.strange(), 0);
    answers
}

fn assert_memory_stayed(envoy: &Envoy, before_kb: u64) {
    let after_kb = envoy.resident_kb().unwrap();
    let limit_kb = before_kb + GROWTH_KB_MAX;
    println!("resident memory: {before_kb} KB before the flood, {after_kb} KB after it");
    assert!(after_kb <= limit_kb, "{before_kb} KB before the flood, {after_kb} KB after it");
}

/// How many keys make a flood.
fn keys() -> usize {
    let soak = std::env::var_os("TIDEGATE_SOAK").is_some_and(|value| value == "1");
    if soak { 5_000_000 } else { 200_000 }
}
