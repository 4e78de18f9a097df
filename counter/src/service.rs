//! A batch from its bytes to the bytes of its answer, whatever the transport.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tidegate_config::ConfigErrors;
use tidegate_config::wire::{Batch, Problem};

use crate::metrics::Metrics;
use crate::overrides;
use crate::rules_off::RulesOff;
use crate::store::{Store, StoreError};
use crate::tokens::Tokens;
use crate::watched_file::FileError;

/// How often files are looked at for a change.
const RELOAD_EVERY: Duration = Duration::from_secs(1);
/// The longest that a store's word about itself is waited for.
const READY_TIME_MAX: Duration = Duration::from_secs(2);

/// What a service bounds, beside what the wire bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most connections that are open at once.
    pub connections_max: usize,
    /// The most requests that are read or applied at once, over all connections.
    pub requests_max: usize,
    /// How long the head of a request may take to come.
    pub head_time_max: Duration,
    /// How long the body of a request may take to come.
    pub body_time_max: Duration,
    /// How long a connection may be open without a request.
    pub idle_time_max: Duration,
    /// How long the store may take for a batch whose caller does not say for how long it waits, and at most.
    pub take_time_max: Duration,
    /// How long requests that were accepted may take to be answered after the service was told to stop.
    pub stop_time_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections_max: 4_096,
            requests_max: 4_096,
            head_time_max: Duration::from_secs(5),
            body_time_max: Duration::from_secs(5),
            idle_time_max: Duration::from_mins(5),
            take_time_max: Duration::from_secs(1),
            stop_time_max: Duration::from_secs(30),
        }
    }
}

/// A store, and all that stands around it.
pub struct Service<S> {
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) tokens: Tokens,
    store: S,
    rules_off: RulesOff,
    is_stopping: AtomicBool,
    store_errors: Throttle,
}

/// How a batch and its answer are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Postcard,
}

impl<S: Store> Service<S> {
    /// A service over a store.
    pub fn new(store: S, settings: Settings, tokens: Tokens, rules_off: RulesOff) -> Self {
        Self {
            settings,
            metrics: Metrics::default(),
            tokens,
            store,
            rules_off,
            is_stopping: AtomicBool::new(false),
            store_errors: Throttle::default(),
        }
    }

    /// Answers a batch that arrived at a time.
    pub(crate) async fn take(
        &self,
        encoding: Encoding,
        body: &[u8],
        arrived: Instant,
        timeout_ms: Option<u32>,
    ) -> Result<Vec<u8>, Problem> {
        let batch = match encoding {
            Encoding::Json => Batch::from_json(body),
            Encoding::Postcard => Batch::from_postcard(body),
        };
        let batch = overrides::apply(batch.map_err(invalid)?);
        let waits = [batch.wait_ms, timeout_ms].into_iter().flatten().min();
        let wait = waits.map_or(Duration::MAX, |ms| Duration::from_millis(ms.into()));
        let deadline = arrived + wait.min(self.settings.take_time_max);
        let answered = if Instant::now() < deadline {
            self.store.take(&batch, deadline).await
        } else {
            Err(StoreError::Expired)
        };
        let answered = answered.map_err(|error| self.refusal(&error))?;
        let rules_off = self.rules_off.names().map_or_else(Vec::new, |names| (*names).clone());
        let answer = answered.with_rules_off(rules_off);
        self.metrics.takes(&batch, &answer);
        Ok(match encoding {
            Encoding::Json => answer.to_json(),
            Encoding::Postcard => answer.to_postcard(),
        })
    }

    /// Why a batch would not be applied now, if it would not.
    pub(crate) async fn unready(&self) -> Option<String> {
        if self.is_stopping.load(Relaxed) {
            return Some("the service is stopping".to_owned());
        }
        match tokio::time::timeout(READY_TIME_MAX, self.store.ready()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(StoreError::Deadline.to_string()),
        }
    }

    pub(crate) fn metrics_text(&self) -> String {
        let mut text = self.metrics.text();
        self.store.metrics(&mut text);
        text
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
    }

    /// Reads files again when they change, for as long as it is polled.
    pub(crate) async fn watch_files(&self) {
        let mut failing: [Option<FileError>; 2] = [None, None];
        loop {
            tokio::time::sleep(RELOAD_EVERY).await;
            let reloads = [("tokens", self.tokens.reload()), ("rules that are off", self.rules_off.reload())];
            for ((what, reloaded), failing) in reloads.into_iter().zip(&mut failing) {
                match reloaded {
                    Ok(is_new) => {
                        if is_new || failing.is_some() {
                            tracing::info!("read the {what} anew");
                        }
                        *failing = None;
                    }
                    Err(error) if failing.as_ref() == Some(&error) => {}
                    Err(error) => {
                        self.metrics.reload_failures.fetch_add(1, Relaxed);
                        tracing::error!(%error, "the {what} stay as they were");
                        *failing = Some(error);
                    }
                }
            }
        }
    }

    fn refusal(&self, error: &StoreError) -> Problem {
        let (status, kind, title) = match error {
            StoreError::Expired => (504, "expired", "The caller's time was over before the store was asked"),
            StoreError::Deadline => (504, "deadline", "The store did not answer in time"),
            StoreError::Unreachable(_) => (503, "unreachable", "The store cannot be reached"),
            StoreError::Full(_) => (503, "full", "The store has no room"),
            StoreError::Busy => (503, "busy", "The store has too much to do at once"),
            StoreError::TooOld => (409, "too_old", "The sequence is too old"),
            StoreError::Broken(_) => (500, "broken", "The store answered what it never should"),
        };
        self.metrics.store_error(kind);
        let is_news = !matches!(error, StoreError::Expired | StoreError::TooOld);
        if is_news && let Some(unsaid) = self.store_errors.say() {
            tracing::warn!(%error, unsaid, "a batch was not answered");
        }
        Problem { status, kind, title, detail: error.to_string(), errors: None }
    }
}

fn invalid(errors: ConfigErrors) -> Problem {
    let count = errors.errors().len().saturating_add(errors.more());
    let detail = match errors.errors() {
        [only] if count == 1 => only.to_string(),
        _ => format!(
            "{count} errors; the first: {}",
            errors.errors().first().map_or(String::new(), ToString::to_string)
        ),
    };
    Problem {
        status: 400,
        kind: "invalid_batch",
        title: "The body is not a batch",
        detail,
        errors: Some(errors),
    }
}

/// Lets a message through once a second: a store that is gone fails each request.
struct Throttle {
    started: Instant,
    next_ms: AtomicU64,
    unsaid: AtomicU64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { started: Instant::now(), next_ms: AtomicU64::new(0), unsaid: AtomicU64::new(0) }
    }
}

impl Throttle {
    /// How many were not said since the last, if this one is.
    fn say(&self) -> Option<u64> {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next_ms = self.next_ms.load(Relaxed);
        let is_due = now_ms >= next_ms;
        if is_due && self.next_ms.compare_exchange(next_ms, now_ms + 1_000, Relaxed, Relaxed).is_ok() {
            return Some(self.unsaid.swap(0, Relaxed));
        }
        self.unsaid.fetch_add(1, Relaxed);
        None
    }
}
