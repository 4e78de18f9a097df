//! The config language of Tidegate: JSON in, checked types out, and what those types do with a request.
//!
//! - [`Config::from_json`] reads a whole config and reports every error at once, each with its place.
//! - [`Facts`] is a request as rules see it. [`Rule::matches`], [`Rule::subject`], [`Rule::limit_set`] and
//!   [`Rule::cost`] say whether a rule applies to it, whom it counts, by which limits and how much; the filter and
//!   the tools share them, so that both judge alike.
//! - [`RuleSet`] finds the rules that match without asking each.
//! - [`Config::to_json`] writes a config that reads back as the same.
//! - `schema` (a feature, native only) makes the JSON Schema from the same types.
//!
//! What is deliberately absent: no clock, no IO, no decision about a limit (that is
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

mod body;
mod cidr;
mod client_address;
pub mod client_ip;
mod conditions;
mod config;
mod cost;
mod counter;
pub mod duration;
mod errors;
mod facts;
#[cfg(feature = "schema")]
mod form;
mod global;
mod header_name;
mod host;
mod index;
mod json;
mod json_text;
mod key;
mod key_values;
mod limit;
mod limit_read;
mod matcher;
mod names;
mod overlay;
pub mod path;
mod path_index;
mod path_match;
mod place;
mod plans;
pub mod problem;
mod query;
mod reader;
#[cfg(feature = "schema")]
pub mod reference;
mod request;
mod response;
mod rule;
mod rule_json;
mod rule_set;
#[cfg(feature = "schema")]
pub mod schema;
mod settlement;
mod statuses;
mod subjects;
mod suggest;
mod table;
mod template;
mod text;
pub mod wire;

pub use body::{BODY_CONTENT_TYPE_DEFAULT, Body, Denial};
pub use cidr::Cidr;
pub use client_address::{ClientAddress, TRUSTED_HOPS_MAX};
pub use conditions::{Condition, VALUES_MAX, ValueMatch};
pub use config::{Config, RULES_MAX, VERSION};
pub use cost::{Cost, HeaderCost, ResponseCost};
pub use counter::{Counter, TIMEOUT_MS_DEFAULT, Token};
pub use errors::{ConfigError, ConfigErrors, ERRORS_MAX};
pub use facts::{Facts, Property, RequestParts};
pub use global::{Global, GlobalMode, OnFailure, SYNC_EVERY_MS_DEFAULT, WhenEmpty};
pub use host::HostMatch;
pub use key::{CLAIM_STEPS_MAX, JWT_PAYLOAD_DEFAULT, JwtClaim, KEY_PARTS_MAX, KeyPart, KeySource};
pub use key_values::{KEY_VALUES_MAX, KeyValues};
pub use limit::{Align, BUCKETS_DEFAULT, LIMITS_MAX, LimitCounter, RuleLimit};
pub use matcher::{ALTERNATIVES_MAX, CONDITIONS_MAX, Match};
pub use names::rule_metric_name;
pub use overlay::{METADATA_LEN_MAX, METADATA_RULES_MAX, Overlay, OverlayBase, Tightened};
pub use path_match::PathMatch;
pub use plans::{LimitSet, PLANS_MAX, Plans};
pub use response::{EXTRA_HEADERS_MAX, GrpcStatus, HeaderFamily, Response, ResponsePatch};
pub use rule::{DeniedFor, KeyMissing, Mode, Rule, Subject, WhenFull};
pub use rule_set::RuleSet;
pub use settlement::{ResponseParts, Settlement};
pub use statuses::{STATUSES_MAX, Statuses};
pub use subjects::{CIDRS_MAX, Subjects};
pub use table::{
    LARGE_KEYS_DEFAULT, LARGE_KEYS_MAX, LARGE_KEYS_MIN, SLOTS_DEFAULT, SLOTS_MAX, SLOTS_MIN, Table,
};
pub use template::{SEGMENTS_MAX, Template};
