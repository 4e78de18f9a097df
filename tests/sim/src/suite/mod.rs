//! The tests. They run the module that ships, which `make sim` builds and names in `TIDEGATE_WASM`.
//!
//! - `seeds`: some hundred seeds, and those that once failed.
//! - `rows`: for each row of the fault table one schedule that comes close to its bound.
//! - `fleet`: the same for limits across a fleet.
//! - `found`: what seeds have found, as schedules.
//! - `hosts`: the shared data of both hosts, fact by fact.
//! - `conformance`: this host answers the probe as the real Envoy does, and as Kong should.
//! - `bugs`: planted bugs are found.
//! - `large`: many keys in one run, and an access log.
//! - `costs`: the committed table of costs is true.

mod bugs;
mod conformance;
mod costs;
mod fleet;
mod found;
mod hosts;
mod large;
mod rows;
mod seeds;

use crate::run::Simulation;
use std::sync::OnceLock;

fn module(variable: &str) -> Vec<u8> {
    let path = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} names no module: use make sim"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The module that ships.
fn shipped() -> &'static Simulation {
    static SHIPPED: OnceLock<Simulation> = OnceLock::new();
    SHIPPED.get_or_init(|| Simulation::new(&module("TIDEGATE_WASM")).unwrap())
}
