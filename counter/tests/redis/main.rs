//! The Redis store on real servers, which the tests start and stop.
//!
//! - `differential`: the same random histories through the core and through the script; equal outcomes, equal bytes.

#![allow(missing_docs, reason = "tests explain themselves by their names")]

mod differential;
mod oracle;
mod random;
mod server;
