//! The config language of Tidegate: JSON in, checked types out, and what those types do with a request.
//!
//! - [`Config::from_json`] reads a whole config and reports every error at once, each with its place.
//! - [`Match::matches`] and [`Rule::write_key`] say whether a rule applies to a request and whom it counts;
//!   the filter and the tools share them, so that both judge alike.
//! - `schema` (a feature, native only) makes the JSON Schema from the same types.
//!
//! What is deliberately absent: no clock, no IO, no hashing, no decision about a limit (that is
//! `tidegate-core`), and no knowledge of any proxy. Nothing here can panic: the filter runs this code inside
//! the proxy.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod client_ip;
mod config;
pub mod duration;
mod errors;
mod json;
mod key;
mod limit;
mod matcher;
mod names;
pub mod path;
pub mod problem;
mod reader;
mod request;
mod response;
mod rule;
#[cfg(feature = "schema")]
pub mod schema;
mod suggest;
mod table;

pub use config::{Config, RULES_MAX};
pub use errors::{ConfigError, ConfigErrors, ERRORS_MAX};
pub use key::{KEY_PARTS_MAX, KeyPart};
pub use limit::{Align, LIMITS_MAX, RuleLimit};
pub use matcher::{METHODS_MAX, Match, PathMatch};
pub use names::rule_metric_name;
pub use request::RequestParts;
pub use response::{HeaderFamily, Response};
pub use rule::{Mode, Rule, WhenFull};
pub use table::{SLOTS_DEFAULT, SLOTS_MAX, SLOTS_MIN, Table};
