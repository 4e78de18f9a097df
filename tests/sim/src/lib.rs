//! A seeded simulation of the filter: the very module that ships, in many VMs of several proxies, suspended at
//! every host call and resumed in an order that a seed decides, in virtual time, with faults.
//!
//! An oracle sees every decision and checks the promises of docs/simulation.md. The same seed is the same
//! history, byte for byte.
//!
//! What is deliberately absent: threads, the real clock, hash maps with a random order, and any model of the
//! filter. What runs is the wasm.

// A test harness: a number that does not fit or an index that is not there is a bug here, and ends the run.
#![allow(clippy::cast_possible_truncation, reason = "sizes of wasm32 memory and small counts")]

mod access_log;
mod actor;
mod calls;
mod central;
mod changes;
mod costs;
mod counter_calls;
mod fleet;
mod generate;
mod generate_fleet;
mod global_spec;
mod identity;
mod inflict;
mod journey;
mod judge;
mod large;
mod ledger;
mod life;
mod moments;
mod network;
mod oracle;
mod rng;
mod run;
mod scenario;
mod serve;
mod serve_shared;
mod shared;
mod spec;
mod split;
#[cfg(test)]
mod suite;
mod sync;
mod tally;
mod trace;
mod vm;
mod waiting;
mod windows;
mod workload;
mod world;

pub use costs::costs;
pub use run::{Bug, Report, Simulation};
pub use tally::{Happened, Tally};
