//! The filter: decides about each request inside the proxy.
//!
//! Data flows one way: `request` reads what came, `rules` says which rules apply and whom they count,
//! `charge` takes from the counters in the `table`, `reply` says what the client sees. [`Engine`] ties
//! them together, and only `abi` knows that a proxy-wasm host is out there; all else sees a [`Host`].
//!
//! What is deliberately absent: anything that can panic, for a panic takes a proxy's worker down; and any
//! JSON, which `tidegate-config` knows.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

#[cfg(target_arch = "wasm32")]
mod abi;
mod any_slot;
mod ask;
mod charge;
mod clock;
mod debts;
mod decide;
mod denials;
mod engine;
mod fleet;
mod headers;
mod host;
mod identity;
mod metrics;
mod overlays;
mod planted;
mod reply;
mod request;
mod rules;
mod settle;
mod table;

pub use engine::{Engine, Passage, Refusal, Verdict};
pub use fleet::waiting::Slip;
pub use host::{Call, HeaderPair, Host, Reply, Status};
pub use table::TableError;
