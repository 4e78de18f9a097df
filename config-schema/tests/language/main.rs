//! The config language, from the outside.
//!
//! - `bad`: one file per kind of error, and the exact text that it gets.
//! - `good`: files that are accepted, and what they mean.
//! - `never_panics`: whatever the bytes, there is an answer.
//! - `random`: random configs and requests; what is written reads back as the same.
//! - `requests`: what rules make of requests, and the index against asking every rule.
//! - `schema`: the golden JSON Schema is current, and agrees with the parser.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bad;
mod good;
mod never_panics;
mod random;
mod requests;
#[cfg(not(target_arch = "wasm32"))]
mod schema;
