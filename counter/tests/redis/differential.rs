//! The same random histories through the core and through the script on a real server: equal outcomes, equal states
//! byte by byte, equal expiry.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

use redis::Value;
use tidegate_config::wire::{Act, Batch, Group, Take};
use tidegate_config::{Align, RuleLimit, WhenFull};
use tidegate_core::{Algorithm, Limit, Manner, REQUESTS_MAX, WINDOW_MS_MAX, Window};
use tidegate_counter::store::redis::call::{Caller, Said, When};

use crate::oracle::{Oracle, Refunded};
use crate::random::Random;
use crate::server::Server;

const HISTORIES: u64 = 60;
const BATCHES: usize = 200;
/// What the script adds to the expiry when a test tells the time.
const TEST_SLACK_MS: u64 = 3_600_000;

const KINDS: [&str; 8] = [
    "fixed_window",
    "day",
    "month",
    "sliding_window",
    "sliding_buckets",
    "sliding_log",
    "token_bucket",
    "warming",
];
const ACTS: [&str; 4] = ["all", "some", "force", "refund"];

/// One step of a history: what happens to the counters, and what must come of it.
enum Step {
    /// Somebody else writes to a counter.
    Written { name: String, value: Vec<u8> },
    /// A batch, with the outcomes and the states that the core tells.
    Batch {
        batch: Batch<'static>,
        now_ms: u64,
        said: Vec<tidegate_config::wire::GroupAnswer>,
        after: Vec<After>,
    },
}

struct After {
    name: String,
    state: Option<Vec<u8>>,
    expires_ms: Option<u64>,
}

/// How often each case was exercised.
#[derive(Default)]
struct Cells(BTreeMap<String, u64>);

impl Cells {
    fn count(&mut self, cell: String) {
        *self.0.entry(cell).or_default() += 1;
    }
}

#[test]
fn the_script_decides_as_the_core_does() {
    let server = Server::start();
    let mut connection = server.connection();
    let mut cells = Cells::default();
    for seed in 0..HISTORIES {
        let caller = Caller::new(&format!("seed{seed}"), 7);
        caller.load().exec(&mut connection).expect("the script loads");
        begin_epoch(&format!("seed{seed}"), &mut connection);
        let steps = history(seed, &caller, &mut cells);
        compare(seed, &caller, &steps, &mut connection);
    }
    for kind in KINDS {
        for act in ACTS {
            let cell = format!("{kind} {act}");
            assert!(cells.0.contains_key(&cell), "no {cell} in {:?}", cells.0);
            if act != "refund" {
                assert!(cells.0.contains_key(&format!("{cell} taken")), "no {cell} taken in {:?}", cells.0);
            }
        }
        for more in [
            "all refused",
            "all never",
            "some refused",
            "refund given",
            "refund dropped",
            "in a failed group",
            "with the clock back",
        ] {
            let cell = format!("{kind} {more}");
            assert!(cells.0.contains_key(&cell), "no {cell} in {:?}", cells.0);
        }
    }
}

/// A log that is fuller than full: only debt does that, and then the oldest two become one.
#[test]
fn a_log_in_debt_is_the_same_log() {
    let server = Server::start();
    let mut connection = server.connection();
    let caller = Caller::new("log", 7);
    caller.load().exec(&mut connection).expect("the script loads");
    begin_epoch("log", &mut connection);
    let limit = Limit::sliding_log(1_000, 3_600_000).expect("valid");
    let mut oracle = Oracle::default();
    let mut steps = Vec::new();
    for i in 0..1_030_u64 {
        let batch = Batch {
            namespace: Cow::Borrowed("edge"),
            sender: None,
            wait_ms: None,
            states: i % 100 == 0,
            groups: vec![Group { takes: vec![take("log", limit, "k", 1 + i % 3, Act::Take(Manner::Force))] }],
        };
        // Sums of two bytes and of five, for the numbers' own forms.
        steps.push(batch_step(&caller, &mut oracle, batch, 1_700_000_000_000 + i * 7));
    }
    assert_eq!(oracle.states.len(), 1);
    compare(0, &caller, &steps, &mut connection);
}

/// A call does nothing after its time, by the server's clock or by the one that a test tells.
#[test]
fn a_call_that_comes_late_does_nothing() {
    let server = Server::start();
    let mut connection = server.connection();
    let caller = Caller::new("late", 7);
    caller.load().exec(&mut connection).expect("the script loads");
    let limit = Limit::sliding_window(1_000, 60_000).expect("valid");
    let takes = vec![take("late", limit, "k", 1, Act::Take(Manner::All))];
    let namespace = Cow::Borrowed("edge");
    let batch =
        Batch { namespace, sender: None, wait_ms: None, states: false, groups: vec![Group { takes }] };
    let mut ask = |now_ms: u64, not_after_ms: u64| {
        let call = caller.call(&batch, When { now_ms, not_after_ms });
        let packed: Vec<u8> = caller.by_hash(&call).query(&mut connection).expect("bytes");
        Said::read(&packed, &batch).expect("an answer")
    };
    let now_ms = 1_700_000_000_000;
    assert_eq!(ask(now_ms, now_ms - 1), Said::Late { now_ms });
    assert!(matches!(ask(0, now_ms), Said::Late { now_ms: its_own } if its_own > now_ms), "the server's own");
    assert_eq!(server.run::<u64>("DBSIZE"), 0, "nothing was done");
    assert!(matches!(ask(now_ms, now_ms), Said::Applied { .. }), "just in time");
    assert!(matches!(ask(0, now_ms * 2), Said::Applied { .. }));
    assert!(matches!(ask(now_ms, 0), Said::Applied { .. }), "there is no such time");
}

fn begin_epoch(prefix: &str, connection: &mut redis::Connection) {
    redis::cmd("SET")
        .arg(format!("{prefix}:epoch"))
        .arg(&7_u64.to_le_bytes())
        .exec(connection)
        .expect("it is set");
}

fn compare(seed: u64, caller: &Caller, steps: &[Step], connection: &mut redis::Connection) {
    for (number, steps) in steps.chunks(50).enumerate() {
        let mut pipeline = redis::pipe();
        for step in steps {
            match step {
                Step::Written { name, value } => {
                    pipeline.cmd("SET").arg(name).arg(value).arg("PX").arg(9_000_000)
                }
                Step::Batch { batch, now_ms, after, .. } => {
                    let call = caller.call(batch, When { now_ms: *now_ms, not_after_ms: 0 });
                    pipeline.add_command(caller.by_hash(&call));
                    for after in after {
                        pipeline.cmd("GET").arg(&after.name).cmd("PTTL").arg(&after.name);
                    }
                    &mut pipeline
                }
            };
        }
        let replies: Vec<Value> = pipeline.query(connection).expect("the server answers");
        let mut replies = replies.into_iter();
        for (within, step) in steps.iter().enumerate() {
            let place = format!("seed {seed}, step {}", number * 50 + within);
            check(&place, step, &mut replies);
        }
    }
}

fn check(place: &str, step: &Step, replies: &mut impl Iterator<Item = Value>) {
    let mut reply = || replies.next().expect("a reply for each command");
    let Step::Batch { batch, now_ms, said, after } = step else {
        reply();
        return;
    };
    let packed: Vec<u8> =
        redis::from_redis_value(reply()).unwrap_or_else(|error| panic!("{place}: {error}: {batch:?}"));
    let expected = Said::Applied { epoch: 7, now_ms: (*now_ms).min(4_294_967_295_000), groups: said.clone() };
    assert_eq!(Said::read(&packed, batch), Some(expected), "{place}: at {now_ms}: {batch:?}");
    for After { name, state, expires_ms } in after {
        let found: Option<Vec<u8>> = redis::from_redis_value(reply()).expect("bytes");
        assert_eq!(&found, state, "{place}: {name} at {now_ms}: {batch:?}");
        let ttl_ms: i64 = redis::from_redis_value(reply()).expect("a number");
        if let Some(expires_ms) = expires_ms {
            let due = expires_ms.saturating_sub(*now_ms).max(1) + TEST_SLACK_MS;
            let ttl_ms = u64::try_from(ttl_ms).unwrap_or_else(|_| panic!("{place}: {name} has no expiry"));
            assert!(
                ttl_ms <= due && due - ttl_ms < TEST_SLACK_MS / 2,
                "{place}: {name}: {ttl_ms} of {due}, at {now_ms}: {batch:?} {said:?}"
            );
        }
    }
}

fn history(seed: u64, caller: &Caller, cells: &mut Cells) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut oracle = Oracle::default();
    let counters: Vec<_> = (0..6).map(|_| kind_and_window(&mut random)).collect();
    let mut receipts: Vec<(usize, u64, u64)> = Vec::new();
    let mut now_ms = start(&mut random);
    let mut steps = Vec::new();
    let mut latest_ms = vec![0; counters.len()];
    for _ in 0..BATCHES {
        now_ms = step_clock(&mut random, now_ms, counters[0].1);
        if random.one_in(25) {
            steps.extend(written(&mut random, &mut oracle));
        }
        let mut of_counters = Vec::new();
        let groups = (0..=random.below(3))
            .map(|_| Group {
                takes: (0..=random.below(4))
                    .map(|_| {
                        let index = random.index(counters.len());
                        of_counters.push(index);
                        random_take(&mut random, counters[index], index, &receipts)
                    })
                    .collect(),
            })
            .collect();
        let states = random.one_in(2);
        let batch = Batch { namespace: Cow::Borrowed("edge"), sender: None, wait_ms: None, states, groups };
        let step = batch_step(caller, &mut oracle, batch, now_ms);
        if let Step::Batch { batch, said, .. } = &step {
            note(batch, said, &of_counters, &counters, &mut receipts, cells, &oracle.refunds);
            for index in of_counters {
                if now_ms < latest_ms[index] {
                    cells.count(format!("{} with the clock back", counters[index].0));
                }
                latest_ms[index] = latest_ms[index].max(now_ms);
            }
        }
        steps.push(step);
    }
    steps
}

fn batch_step(caller: &Caller, oracle: &mut Oracle, batch: Batch<'static>, now_ms: u64) -> Step {
    let name = |take: &Take<'static>| {
        let one = Batch { groups: vec![Group { takes: vec![take.clone()] }], ..batch.clone() };
        caller.counters(&one).remove(0)
    };
    let names: Vec<String> = batch.groups.iter().flat_map(|group| &group.takes).map(name).collect();
    oracle.expiries.clear();
    let said = oracle.apply(&batch, &names, now_ms);
    let after = names.iter().map(|name| After {
        name: name.clone(),
        state: oracle.states.get(name).cloned(),
        expires_ms: oracle.expiries.get(name).copied(),
    });
    Step::Batch { after: after.collect(), batch, now_ms, said }
}

/// Counts what was exercised and keeps receipts for refunds.
fn note(
    batch: &Batch<'_>,
    said: &[tidegate_config::wire::GroupAnswer],
    of_counters: &[usize],
    counters: &[(&'static str, u64)],
    receipts: &mut Vec<(usize, u64, u64)>,
    cells: &mut Cells,
    refunds: &[Refunded],
) {
    let mut of_counters = of_counters.iter();
    let mut refunds = refunds.iter();
    for (group, answer) in batch.groups.iter().zip(said) {
        let refused = |(take, outcome): (&Take<'_>, &tidegate_core::Outcome)| {
            take.act == Act::Take(Manner::All) && outcome.taken == 0
        };
        let failed = group.takes.iter().zip(&answer.takes).any(refused);
        for (take, outcome) in group.takes.iter().zip(&answer.takes) {
            let index = *of_counters.next().expect("as many as takes");
            let kind = counters[index].0;
            let act = match take.act {
                Act::Take(Manner::All) => "all",
                Act::Take(Manner::Some) => "some",
                Act::Take(Manner::Force) => "force",
                Act::Refund { .. } => "refund",
            };
            cells.count(format!("{kind} {act}"));
            if let Act::Refund { receipt } = take.act {
                let is_ours = receipts.iter().any(|(of, known, _)| (*of, *known) == (index, receipt));
                match refunds.next().expect("as many as refunds") {
                    Refunded::Given => cells.count(format!("{kind} refund given")),
                    Refunded::Dropped if is_ours => cells.count(format!("{kind} refund dropped")),
                    _ => {}
                }
            }
            if failed && group.takes.len() > 1 {
                cells.count(format!("{kind} in a failed group"));
            }
            if outcome.taken > 0 {
                cells.count(format!("{kind} {act} taken"));
                receipts.push((index, outcome.receipt, outcome.taken));
            } else if outcome.retry == tidegate_core::Retry::Never {
                cells.count(format!("{kind} {act} never"));
            } else if outcome.is_refused() {
                cells.count(format!("{kind} {act} refused"));
            }
        }
    }
    if receipts.len() > 40 {
        receipts.drain(..20);
    }
}

/// What somebody else may have left in a counter: bytes of any kind, another counter's state, a state that is damaged.
fn written(random: &mut Random, oracle: &mut Oracle) -> Option<Step> {
    let mut names: Vec<String> = oracle.states.keys().cloned().collect();
    names.sort_unstable();
    if names.is_empty() {
        return None;
    }
    let name = names[random.index(names.len())].clone();
    let mut value = oracle.states[&names[random.index(names.len())]].clone();
    match random.below(4) {
        0 => {}
        1 => {
            let at = random.index(value.len());
            value[at] = u8::try_from(random.below(256)).expect("a byte");
        }
        2 => value.truncate(random.index(value.len())),
        _ => {
            let length = random.index(40);
            value = (0..length).map(|_| u8::try_from(random.below(0x90)).expect("a byte")).collect();
            if random.one_in(2) {
                value.insert(0, random.of(&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x21]));
            }
        }
    }
    oracle.states.insert(name.clone(), value.clone());
    Some(Step::Written { name, value })
}

fn random_take(
    random: &mut Random,
    (kind, window_ms): (&'static str, u64),
    index: usize,
    receipts: &[(usize, u64, u64)],
) -> Take<'static> {
    let limit = limit(random, kind, window_ms);
    let mine: Vec<_> = receipts.iter().filter(|(of, ..)| *of == index).collect();
    let mut n = amount(random, limit.capacity());
    let act = match random.below(5) {
        0 | 1 => Act::Take(Manner::All),
        2 => Act::Take(Manner::Some),
        3 => Act::Take(Manner::Force),
        _ if mine.is_empty() || random.one_in(6) => {
            Act::Refund { receipt: random.next() >> random.below(60) }
        }
        _ => {
            let (_, receipt, taken) = *mine[random.index(mine.len())];
            n = if random.one_in(4) { n } else { taken };
            Act::Refund { receipt }
        }
    };
    let align = if index.is_multiple_of(3) { Align::Clock } else { Align::Key };
    let mut take = take("rule", limit, &format!("{kind}{index}"), n, act);
    take.limit.align = align;
    take
}

fn take(rule: &'static str, limit: Limit, key: &str, n: u64, act: Act) -> Take<'static> {
    Take {
        rule: Cow::Borrowed(rule),
        limit: RuleLimit { limit, align: Align::Key, is_leaky: false },
        key: Cow::Owned(key.as_bytes().to_vec()),
        n: NonZeroU64::new(n).expect("at least 1"),
        act,
        when_full: WhenFull::Strict,
    }
}

fn amount(random: &mut Random, capacity: u64) -> u64 {
    let n = match random.below(8) {
        0..=3 => 1 + random.below(3),
        4 => capacity / 2,
        5 => capacity,
        6 => capacity + 1,
        _ => REQUESTS_MAX >> random.below(37),
    };
    n.clamp(1, REQUESTS_MAX)
}

fn kind_and_window(random: &mut Random) -> (&'static str, u64) {
    let kind = random.of(&KINDS);
    (kind, random.of(&[1_000, 1_001, 4_000, 60_000, 3_600_000, 86_400_000, WINDOW_MS_MAX]))
}

/// A limit of the kind; its numbers change from take to take, as when a config changes.
fn limit(random: &mut Random, kind: &str, window_ms: u64) -> Limit {
    let requests = match random.below(8) {
        0 => 0,
        1..=4 => 1 + random.below(20),
        5 => 1_000,
        6 => REQUESTS_MAX - random.below(2),
        _ => REQUESTS_MAX >> random.below(37),
    };
    let made = match kind {
        "fixed_window" => Limit::fixed_window(requests, Window::Ms(window_ms)),
        "day" => Limit::fixed_window(requests, Window::Day),
        "month" => Limit::fixed_window(requests, Window::Month),
        "sliding_window" => Limit::sliding_window(requests, window_ms),
        "sliding_log" => Limit::sliding_log(requests.min(1_000), window_ms),
        "sliding_buckets" => {
            let buckets = [60, 10, 4, 1]
                .into_iter()
                .find(|of| window_ms.is_multiple_of(*of) && window_ms >= of * 1_000);
            Limit::sliding_buckets(requests, window_ms, u8::try_from(buckets.unwrap_or(1)).expect("few"))
        }
        _ => return bucket(random, kind, requests, window_ms),
    };
    made.expect("valid")
}

fn bucket(random: &mut Random, kind: &str, requests: u64, window_ms: u64) -> Limit {
    let warms = kind == "warming" && !random.one_in(8);
    let units_max: u64 = if warms { (1 << 34) - 1 } else { 1 << 52 };
    let window_ms = if warms { window_ms.min(3_600_000) } else { window_ms };
    let burst_max = units_max / window_ms;
    let burst = match random.below(4) {
        _ if requests == 0 => 0,
        0 => burst_max,
        1 => burst_max.min(requests),
        _ => 1 + random.below(burst_max.min(30)),
    };
    let warm_up_max = units_max.checked_div(requests).unwrap_or(100_000).min(1 << 36);
    let warm_up_ms = match random.below(3) {
        _ if !warms => 0,
        0 => warm_up_max,
        1 => warm_up_max.min(1 + random.below(60_000)),
        _ => warm_up_max.min(10 * window_ms),
    };
    let limit = Limit::token_bucket(requests, window_ms, burst, warm_up_ms).expect("valid");
    assert!(matches!(limit.algorithm(), Algorithm::TokenBucket { .. }));
    limit
}

fn start(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => 1 + random.below(100_000),
        1 => 4_294_967_295_000 - random.below(100_000),
        _ => 1_700_000_000_000 + random.below(1 << 36),
    }
}

/// Mostly on by a little, sometimes on by windows, sometimes back.
fn step_clock(random: &mut Random, now_ms: u64, window_ms: u64) -> u64 {
    let next = match random.below(16) {
        0..=4 => now_ms,
        5..=8 => now_ms + random.below(300),
        9 | 10 => now_ms + random.below(window_ms),
        11 => now_ms + window_ms,
        12 => now_ms + random.below(3 * window_ms),
        13 => now_ms.saturating_sub(random.below(2_000)),
        14 => now_ms.saturating_sub(random.below(window_ms)),
        _ if random.one_in(3) => now_ms.saturating_sub(random.below(4 * window_ms)),
        _ => now_ms + random.below(86_400_000 * 40),
    };
    next.clamp(1, 4_294_967_400_000)
}
