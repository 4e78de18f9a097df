//! The Redis store on real servers, which the tests start and stop.
//!
//! - `differential`: the same random histories through the core and through the script; equal outcomes, equal bytes.
//! - `scenarios`: what every store does, on Redis.

#![allow(missing_docs, reason = "tests explain themselves by their names")]

#[path = "../suite/mod.rs"]
mod suite;

mod differential;
mod oracle;
mod random;
mod scenarios;
mod server;
