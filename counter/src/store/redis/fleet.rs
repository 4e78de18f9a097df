//! Which proxies there are. Each service tells the server once a second whom it saw; the server counts them.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use tidegate_config::wire::{Batch, PROXY_SEEN_MS};

/// The most namespaces that are told about; a further one counts a single proxy.
const NAMESPACES_MAX: usize = 256;
/// The most proxies of a namespace that are told about in one second.
const PROXIES_MAX: usize = 10_000;
/// A namespace is asked about for as long as its proxies count.
const BEATS_KEPT: u64 = PROXY_SEEN_MS / 1_000;

/// The proxies that this service saw, and how many the server knows of.
#[derive(Default)]
pub(super) struct Fleet(Mutex<HashMap<String, Seen>>);

#[derive(Default)]
struct Seen {
    since_last_told: HashSet<u64>,
    beats_unseen: u64,
    count: u32,
}

impl Fleet {
    /// Notes who sends a batch; says how many proxies its namespace has, at least 1.
    pub(super) fn note(&self, batch: &Batch<'_>) -> u32 {
        let mut namespaces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let namespace: &str = &batch.namespace;
        if !namespaces.contains_key(namespace) {
            if namespaces.len() >= NAMESPACES_MAX {
                return 1;
            }
            namespaces.insert(namespace.to_owned(), Seen::default());
        }
        let Some(seen) = namespaces.get_mut(namespace) else { return 1 };
        seen.beats_unseen = 0;
        if let Some(sender) = batch.sender
            && seen.since_last_told.len() < PROXIES_MAX
        {
            seen.since_last_told.insert(sender.proxy);
        }
        seen.count.max(1)
    }

    /// What the server is to be told: namespaces, and proxies seen in each since it was told last.
    pub(super) fn to_tell(&self) -> Vec<(String, Vec<u64>)> {
        let mut namespaces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        namespaces.retain(|_, seen| {
            seen.beats_unseen += 1;
            seen.beats_unseen <= BEATS_KEPT
        });
        let told = |(namespace, seen): (&String, &mut Seen)| {
            (namespace.clone(), seen.since_last_told.drain().collect::<Vec<_>>())
        };
        namespaces.iter_mut().map(told).collect()
    }

    /// What the server answered.
    pub(super) fn learn(&self, told: &[(String, Vec<u64>)], counts: &[u64]) {
        let mut namespaces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for ((namespace, _), count) in told.iter().zip(counts) {
            if let Some(seen) = namespaces.get_mut(namespace) {
                seen.count = u32::try_from(*count).unwrap_or(u32::MAX);
            }
        }
    }

    /// The server was not reached: what it was to be told is told next time.
    pub(super) fn tell_again(&self, told: Vec<(String, Vec<u64>)>) {
        let mut namespaces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (namespace, proxies) in told {
            if let Some(seen) = namespaces.get_mut(&namespace) {
                let room = PROXIES_MAX.saturating_sub(seen.since_last_told.len());
                seen.since_last_told.extend(proxies.into_iter().take(room));
            }
        }
    }
}
