//! Limits that hold across the fleet, as configs of the simulation say them.

use crate::spec::Limit;
use serde_json::{Value, json};

/// The name by which every simulated proxy knows the counter.
pub(crate) const CLUSTER: &str = "counter";

/// When the counter is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact,
    Sync { every_ms: u64 },
    Lease { overshoot_percent: u64, waits: bool },
}

/// What holds while the counter cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Share,
    Local,
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Global {
    pub(crate) mode: Mode,
    pub(crate) on_failure: OnFailure,
}

impl Global {
    pub(crate) const fn exact(on_failure: OnFailure) -> Self {
        Self { mode: Mode::Exact, on_failure }
    }

    pub(crate) const fn sync(every_ms: u64, on_failure: OnFailure) -> Self {
        Self { mode: Mode::Sync { every_ms }, on_failure }
    }

    /// A lease whose requests wait when the grant is empty.
    pub(crate) const fn lease(overshoot_percent: u64, on_failure: OnFailure) -> Self {
        Self { mode: Mode::Lease { overshoot_percent, waits: true }, on_failure }
    }

    /// The limit that the fleet may never pass while the counter is there.
    pub(crate) const fn bound(&self, limit: &Limit) -> Limit {
        match self.mode {
            Mode::Lease { overshoot_percent, .. } => Limit {
                requests: limit.requests * (100 + overshoot_percent) / 100,
                burst: limit.burst * (100 + overshoot_percent) / 100,
                ..*limit
            },
            Mode::Exact | Mode::Sync { .. } => *limit,
        }
    }

    pub(crate) fn to_json(self) -> Value {
        let mut global = match self.mode {
            Mode::Exact => json!({ "mode": "exact" }),
            Mode::Sync { every_ms } => json!({ "mode": "sync", "sync_every": format!("{every_ms}ms") }),
            Mode::Lease { overshoot_percent, waits } => json!({
                "mode": "lease",
                "overshoot": format!("{overshoot_percent}%"),
                "when_empty": if waits { "wait" } else { "deny" },
            }),
        };
        global["on_failure"] = json!(match self.on_failure {
            OnFailure::Share => "share",
            OnFailure::Local => "local",
            OnFailure::Open => "open",
            OnFailure::Closed => "closed",
        });
        global
    }
}
