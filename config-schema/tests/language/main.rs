//! The config language, from the outside.
//!
//! - `bad`: one file per kind of error, and the exact text that it gets.
//! - `good`: files that are accepted, and what they mean.
//! - `never_panics`: whatever the bytes, there is an answer.
//! - `schema`: the golden JSON Schema is current, and agrees with the parser.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bad;
mod good;
mod never_panics;
#[cfg(not(target_arch = "wasm32"))]
mod schema;
