//! Ten million distinct keys in bounded memory. A binary of its own: it counts what the process allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tidegate_config::wire::{Batch, Group, Take};
use tidegate_core::Retry;
use tidegate_counter::store::memory::{MemoryStore, Size};

const KEYS: u64 = 10_000_000;
/// Far fewer places than keys, of either kind.
const SIZE: Size = Size { keys: 50_000, large_keys: 512 };
/// What may come on top of the table while batches are judged.
const SLACK_BYTES: usize = 4 << 20;
const LARGE_EVERY: u64 = 20;

struct Counting;
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator is unsafe to write; this one only counts")]
// SAFETY: every call is the system's own, with what the caller gave.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn take(limit: &str, key: &str) -> Take<'static> {
    let body = format!(r#"{{"groups":[{{"takes":[{{"rule":"r","limit":{limit},"key":"{key}"}}]}}]}}"#);
    let batch = Batch::from_json(body.as_bytes()).expect("a batch");
    let take = batch.groups[0].takes[0].clone();
    Take { rule: take.rule.into_owned().into(), key: take.key.into_owned().into(), ..take }
}

#[test]
fn ten_million_keys_do_not_move_the_memory() {
    let store = MemoryStore::new(SIZE).expect("a store");
    let small = take(r#""5/1h""#, "");
    let large = take(r#"{"requests": 5, "per": "1h", "algorithm": "sliding_log"}"#, "");
    let limited = Take { key: b"limited".as_slice().into(), ..small.clone() };
    let ask = |groups| {
        store.apply(&Batch { namespace: "n".into(), sender: None, wait_ms: None, states: false, groups })
    };
    let spent = vec![Group { takes: vec![limited.clone()] }; 6];
    assert_eq!(ask(spent).expect("an answer").groups[5].takes[0].taken, 0, "its limit is spent");

    // Every place of the large kind has been in use before it is measured.
    let flood = |keys: std::ops::Range<u64>| {
        for first in keys.step_by(500) {
            let group = |key: u64| {
                let take = if key.is_multiple_of(LARGE_EVERY) { &large } else { &small };
                Group { takes: vec![Take { key: key.to_le_bytes().to_vec().into(), ..take.clone() }] }
            };
            ask((first..first + 500).map(group).collect()).expect("an answer");
        }
    };
    flood(0..1_000_000);
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| flood(1_000_000..KEYS / 2));
        scope.spawn(|| flood(KEYS / 2..KEYS));
    });
    let grown = PEAK.load(Relaxed) - before;
    assert!(grown < SLACK_BYTES, "{grown} bytes more");
    assert!(before < store.table_bytes() + SLACK_BYTES, "{before} bytes");

    let still = ask(vec![Group { takes: vec![limited] }]).expect("an answer").groups[0].takes[0];
    assert!(still.taken == 0 && still.retry != Retry::Now, "and a spent limit is not open again: {still:?}");
}
