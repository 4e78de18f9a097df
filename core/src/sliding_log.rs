//! `sliding_log`: remembers when each was taken. Exact: what is taken at `t` counts until `t + W`.

use crate::limit::{LOG_REQUESTS_MAX, REQUESTS_MAX};
use crate::{Outcome, Take, Timestamp};
use alloc::vec::Vec;

/// What was taken, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SlidingLog {
    /// No two at the same time, and none empty.
    pub runs: Vec<Run>,
}

/// What was taken at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// When.
    pub at: Timestamp,
    /// How much.
    pub count: u64,
}

/// The most times that are remembered. Only debt can have more; then the oldest are taken as one, at the
/// later time of the two: forgotten late, never early.
pub(crate) const RUNS_MAX: usize = 1_000;
const _: () = assert!(LOG_REQUESTS_MAX == 1_000, "a log without debt must fit");

impl SlidingLog {
    /// The state as it stands now, and the time by its own reckoning: a clock that stepped back a little
    /// stands still until it has caught up.
    pub(crate) fn at(mut self, window_ms: u64, now: Timestamp) -> (Self, Timestamp) {
        let latest = self.runs.last().map_or(now, |run| run.at);
        if latest.ms_since(now) > window_ms {
            return (Self::default(), now);
        }
        let now = now.max(latest);
        self.runs.retain(|run| now.ms_since(run.at) < window_ms);
        (self, now)
    }

    pub(crate) fn used(&self) -> u64 {
        self.runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.count))
    }

    pub(crate) fn take(
        self,
        requests: u64,
        window_ms: u64,
        real_now: Timestamp,
        take: Take,
    ) -> (Outcome, Self) {
        let (before, now) = self.at(window_ms, real_now);
        let used = before.used();
        let taken = take.taken_of(requests.saturating_sub(used));
        let retry =
            take.retry(taken, requests, |amount| before.wait_ms(requests, window_ms, real_now, amount));
        let after = before.add(now, taken);
        let outcome = Outcome {
            taken,
            remaining: requests.saturating_sub(used.saturating_add(taken)),
            reset_ms: after.runs.last().map_or(0, |run| leaves_in_ms(run.at, window_ms, real_now)),
            retry,
            receipt: now.ms(),
        };
        (outcome, after)
    }

    /// Gives back `amount` taken at `at_ms`, if that still counts.
    pub(crate) fn refund(mut self, at_ms: u64, amount: u64) -> Self {
        if let Some(run) = self.runs.iter_mut().find(|run| run.at.ms() == at_ms) {
            run.count = run.count.saturating_sub(amount);
        }
        self.runs.retain(|run| run.count > 0);
        self
    }

    /// Keeps the latest `requests` and drops what came before: enough to tell whether any more fit.
    pub(crate) fn latest(mut self, requests: u64) -> Self {
        let mut over = self.used().saturating_sub(requests);
        for run in &mut self.runs {
            let dropped = run.count.min(over);
            run.count = run.count.saturating_sub(dropped);
            over = over.saturating_sub(dropped);
        }
        self.runs.retain(|run| run.count > 0);
        self
    }

    /// When the last of it is forgotten.
    pub(crate) fn expires(&self, window_ms: u64) -> Timestamp {
        let latest_ms = self.runs.last().map_or(0, |run| run.at.ms());
        Timestamp::from_ms(latest_ms.saturating_add(window_ms))
    }

    /// How long until `amount`, which is at most `requests`, fits if nothing more is taken.
    fn wait_ms(&self, requests: u64, window_ms: u64, now: Timestamp, amount: u64) -> u64 {
        let mut used = self.used();
        for run in &self.runs {
            used = used.saturating_sub(run.count);
            if used.saturating_add(amount) <= requests {
                return leaves_in_ms(run.at, window_ms, now);
            }
        }
        0
    }

    fn add(mut self, now: Timestamp, taken: u64) -> Self {
        if taken == 0 {
            return self;
        }
        match self.runs.last_mut().filter(|run| run.at == now) {
            Some(run) => run.count = run.count.saturating_add(taken).min(REQUESTS_MAX),
            None => self.runs.push(Run { at: now, count: taken.min(REQUESTS_MAX) }),
        }
        if self.runs.len() > RUNS_MAX {
            let oldest = self.runs.remove(0);
            if let Some(run) = self.runs.first_mut() {
                run.count = run.count.saturating_add(oldest.count).min(REQUESTS_MAX);
            }
        }
        self
    }
}

fn leaves_in_ms(at: Timestamp, window_ms: u64, now: Timestamp) -> u64 {
    at.ms().saturating_add(window_ms).saturating_sub(now.ms())
}
