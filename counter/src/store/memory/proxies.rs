//! How many proxies there are: what each does alone when the counter is gone depends on it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_config::wire::PROXY_SEEN_MS;
use tidegate_core::Timestamp;

/// The most proxies that are told apart; more are not counted.
const PROXIES_MAX: usize = 16_384;
/// How often proxies that were not heard of are forgotten.
const SWEEP_MS: u64 = 1_000;

#[derive(Default)]
pub(super) struct Proxies(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    namespaces: HashMap<Box<str>, HashMap<u64, u64>>,
    count: usize,
    swept_ms: u64,
}

impl Proxies {
    /// Notes that a proxy sent a batch, and says how many of its namespace did lately.
    pub(super) fn see(&self, namespace: &str, proxy: u64, now: Timestamp) -> u32 {
        let mut seen = self.lock();
        seen.sweep(now.ms());
        let has_room = seen.count < PROXIES_MAX;
        let mut is_new = false;
        if let Some(proxies) = seen.namespaces.get_mut(namespace) {
            if let Some(at_ms) = proxies.get_mut(&proxy) {
                *at_ms = now.ms();
            } else if has_room {
                proxies.insert(proxy, now.ms());
                is_new = true;
            }
        } else if has_room {
            seen.namespaces.insert(namespace.into(), HashMap::from([(proxy, now.ms())]));
            is_new = true;
        }
        seen.count += usize::from(is_new);
        seen.number(namespace)
    }

    /// How many of a namespace sent a batch lately.
    pub(super) fn count(&self, namespace: &str, now: Timestamp) -> u32 {
        let mut seen = self.lock();
        seen.sweep(now.ms());
        seen.number(namespace)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn sweep(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.swept_ms) < SWEEP_MS {
            return;
        }
        self.swept_ms = now_ms;
        self.namespaces.retain(|_, proxies| {
            proxies.retain(|_, at_ms| now_ms.saturating_sub(*at_ms) < PROXY_SEEN_MS);
            !proxies.is_empty()
        });
        self.count = self.namespaces.values().map(HashMap::len).sum();
    }

    /// Whoever asks is one of them.
    fn number(&self, namespace: &str) -> u32 {
        let proxies = self.namespaces.get(namespace).map_or(0, HashMap::len);
        u32::try_from(proxies).unwrap_or(u32::MAX).max(1)
    }
}
