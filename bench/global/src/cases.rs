//! What is measured.

use serde_json::{Value, json};
use tidegate_e2e::setup::COUNTER_CLUSTER;

/// The header that is the key.
pub(crate) const KEY: &str = "x-api-key";
/// For each key: more than all of this machine could send.
pub(crate) const LIMIT: &str = "100000/1s";
/// So long that a busy machine shows in the latency and not as a failure.
const TIMEOUT: &str = "10s";

/// An Envoy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    NoFilter,
    Local,
    Sync,
    Lease,
    Exact,
    ExactOnRedis,
}

impl Case {
    /// The one to compare with is the first.
    pub(crate) const ALL: [Self; 6] =
        [Self::NoFilter, Self::Local, Self::Sync, Self::Lease, Self::Exact, Self::ExactOnRedis];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoFilter => "no filter",
            Self::Local => "a rule without `global`",
            Self::Sync => "`sync`",
            Self::Lease => "`lease`",
            Self::Exact => "`exact`",
            Self::ExactOnRedis => "`exact`, counter on Redis",
        }
    }

    /// The config of the filter, if there is one.
    pub(crate) fn config(self) -> Option<Value> {
        let (name, how) = match self {
            Self::NoFilter => return None,
            Self::Local => return Some(json!({ "rules": [rule("local")] })),
            Self::Sync => ("sync", json!({ "mode": "sync", "sync_every": "200ms" })),
            Self::Lease => ("lease", json!({ "mode": "lease" })),
            Self::Exact | Self::ExactOnRedis => ("exact", json!({ "mode": "exact" })),
        };
        let mut rule = rule(name);
        rule["global"] = how;
        Some(json!({ "counter": { "cluster": COUNTER_CLUSTER, "timeout": TIMEOUT }, "rules": [rule] }))
    }

    pub(crate) fn asks_the_counter(self) -> bool {
        !matches!(self, Self::NoFilter | Self::Local)
    }
}

fn rule(name: &str) -> Value {
    json!({ "name": name, "key": [{ "header": KEY }], "limits": [LIMIT] })
}
