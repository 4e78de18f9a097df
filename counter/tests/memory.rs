//! The store in memory: the scenarios of every store, and what is its own.

mod suite;

use std::sync::Arc;

use suite::*;
use tidegate_counter::store::StoreError;
use tidegate_counter::store::memory::{ManualClock, MemoryStore, Size};

const START_MS: u64 = 1_790_000_000_000;

struct Memory {
    clock: Arc<ManualClock>,
    store: MemoryStore<Arc<ManualClock>>,
}

impl Home for Memory {
    type Store = MemoryStore<Arc<ManualClock>>;

    fn store(&self) -> &Self::Store {
        &self.store
    }

    fn advance_ms(&self, ms: u64) {
        self.clock.advance_ms(ms);
    }
}

fn memory(size: Size) -> Memory {
    let clock = Arc::new(ManualClock::at_ms(START_MS));
    Memory { store: MemoryStore::with_clock(size, clock.clone()).expect("a store"), clock }
}

#[expect(clippy::unused_async, reason = "other stores have to wait for a server")]
async fn home(_name: &str) -> Memory {
    memory(Size { keys: 100_000, large_keys: 4_096 })
}

scenarios!(home);

#[tokio::test]
async fn an_epoch_is_drawn_at_each_start() {
    let epoch = async |home: Memory| send(&home, &batch("n", Vec::new())).await.expect("an answer").epoch;
    assert_ne!(epoch(memory(Size::default())).await, epoch(memory(Size::default())).await);
}

#[test]
fn one_limit_asked_from_many_threads_is_kept_exactly() {
    let memory = memory(Size { keys: 10_000, large_keys: 64 });
    let taken: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let store = &memory.store;
                scope.spawn(move || {
                    let mut taken = 0;
                    for turn in 0..500 {
                        // The same two counters in either order: locks are taken in one.
                        let mut group = vec![one("1000/1m", "ana"), one("100000/1m", "bob")];
                        if (thread + turn) % 2 == 0 {
                            group.reverse();
                        }
                        let answered = store.apply(&batch("n", vec![group])).expect("an answer");
                        let [first, second] = answered.groups[0].takes.as_slice() else { panic!("two") };
                        assert_eq!(first.taken, second.taken, "all or none");
                        taken += first.taken;
                    }
                    taken
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(taken, 1_000);
    let left =
        memory.store.apply(&batch("n", vec![vec![some(1, one("100000/1m", "bob"))]])).expect("an answer");
    assert_eq!(left.groups[0].takes[0].remaining, 98_999, "the other was charged as often, and once now");
}

#[tokio::test]
async fn too_many_senders_are_refused_until_some_are_forgotten() {
    let memory = memory(Size { keys: 1_000, large_keys: 64 });
    let sent = |proxy| sent_by(proxy, 1, 1, batch("n", Vec::new()));
    for proxy in 0..16_384 {
        send(&memory, &sent(proxy)).await.expect("an answer");
    }
    let refusal = send(&memory, &sent(16_384)).await;
    assert!(matches!(refusal, Err(StoreError::Full(_))), "{refusal:?}");
    assert!(send(&memory, &sent(7)).await.is_ok(), "one that is known goes on");
    memory.advance_ms(60_000);
    assert!(send(&memory, &sent(16_384)).await.is_ok(), "the others are forgotten");
}

/// Those of a shard that nobody asks any more give way too.
#[tokio::test]
async fn senders_that_are_gone_make_room_for_those_of_other_shards() {
    let memory = memory(Size { keys: 1_000, large_keys: 64 });
    let sent = |proxy| sent_by(proxy, 1, 1, batch("n", Vec::new()));
    for proxy in 0..16_384 {
        send(&memory, &sent(proxy)).await.expect("an answer");
    }
    memory.advance_ms(60_000);
    // Of one shard of sixteen, twice as many as it held before.
    for proxy in 0..2_048 {
        send(&memory, &sent((1 << 20) + 16 * proxy)).await.expect("the others are forgotten");
    }
}

#[tokio::test]
async fn answers_that_are_too_large_to_keep_are_refused_and_not_counted_twice() {
    let memory = memory(Size { keys: 10_000, large_keys: 64 });
    let large = |sequence| {
        let takes = (0..1_000).map(|key| one("1000000/1m", &format!("k{key}"))).collect();
        sent_by(1, 1, sequence, batch("n", vec![takes]))
    };
    for sequence in 1..=3 {
        send(&memory, &large(sequence)).await.expect("an answer");
    }
    assert_eq!(send(&memory, &large(1)).await, Err(StoreError::TooOld));
    assert!(send(&memory, &large(3)).await.is_ok(), "the latest is always kept");
    assert_eq!(remaining(&memory, "n", one("1000000/1m", "k7")).await, 1_000_000 - 3);
}

/// Fault 8 of others: a flood of keys evicts a limited one, which is then admitted again. As the filter's table does,
/// what a strict key used is not forgotten when it must give way; a lenient one begins again.
#[tokio::test]
async fn fault_08_a_displaced_strict_key_is_not_admitted_again() {
    for (when_full, admitted) in [("strict", 0), ("lenient", 10)] {
        let memory = memory(Size { keys: 512, large_keys: 64 });
        let key = |key: &str| {
            take(&format!(r#"{{"rule": "r", "limit": "10/1h", "key": "{key}", "when_full": "{when_full}"}}"#))
        };
        // The least loaded give way first, so this one does.
        group(&memory, "n", vec![key("ana")]).await;
        for flood in 0..20_000 {
            group(&memory, "n", vec![all(10, key(&format!("k{flood}")))]).await;
        }
        assert_eq!(outcome(&memory, "n", all(10, key("ana"))).await.taken, admitted, "{when_full}");
    }
}
