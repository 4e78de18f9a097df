//! The Redis store on real servers, which the tests start and stop.
//!
//! - `access`: TLS, users and passwords, databases, prefixes.
//! - `differential`: the same random histories through the core and through the script; equal outcomes, equal bytes.
//! - `scenarios`: what every store does, on Redis.
//! - `outages`: a server that dies, freezes, fills up, slows down, forgets or hands over.
//! - `health`: what is asked so as to know how a server is.
//! - `faults`: faults that others' counters have, and ours has not.

#![allow(missing_docs, reason = "tests explain themselves by their names")]

#[path = "../suite/mod.rs"]
mod suite;

mod access;
mod differential;
mod faults;
mod forwarder;
mod health;
mod oracle;
mod outages;
mod random;
mod scenarios;
mod server;
