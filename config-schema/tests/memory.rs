//! How much memory the largest config takes while it is read and while it is used.
//!
//! A binary of its own, because it counts every allocation of the process.

#![cfg(not(target_arch = "wasm32"))]
#![expect(unsafe_code, reason = "an allocator that counts can only be written so")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_config::{Config, RULES_MAX, RuleSet};

/// The docs of [`Config::from_json`] promise these.
const BYTES_READING_MAX: usize = 32 << 20;
const BYTES_KEPT_MAX: usize = 12 << 20;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn ten_thousand_rules_fit() {
    let rule = |number| {
        format!(
            r#"{{"name": "rule-{number}", "match": {{"path_prefix": "/services/{number}/", "method": ["GET", "POST"]}},
            "key": [{{"header": "x-api-key"}}, "client_ip"], "limits": ["10/s", "1000/1h"], "mode": "shadow"}}"#
        )
    };
    let rules: Vec<String> = (0..RULES_MAX).map(rule).collect();
    let text = format!(r#"{{"rules": [{}]}}"#, rules.join(","));
    drop(rules);
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let config = Config::from_json(text.as_bytes()).unwrap();
    let reading = MOST.load(Ordering::Relaxed) - before;
    let set = RuleSet::new(config.rules);
    let kept = NOW.load(Ordering::Relaxed) - before;
    assert_eq!(set.rules().len(), RULES_MAX);
    println!("reading: {reading} bytes, kept with the index: {kept} bytes, text: {} bytes", text.len());
    assert!(reading < BYTES_READING_MAX, "{reading} bytes at once while reading");
    assert!(kept < BYTES_KEPT_MAX, "{kept} bytes kept");
}
