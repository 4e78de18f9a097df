//! Tidegate in a real Envoy: the module that ships, loaded by the configuration in `envoy/`, under real
//! requests. Run it with `make e2e`.
//!
//! - [`harness`]: the harness itself, with Envoy's own limiter in Tidegate's place.
//! - [`module`]: what the WebAssembly module imports and exports, and its size.
//! - [`conformance`]: Envoy does what the simulated host thinks that it does.
//! - [`exact`]: several workers never admit more or less than a limit, on one key and on many.
//! - [`algorithms`]: every algorithm counts exactly under several workers.
//! - [`all_or_none`]: a request that one rule denies is charged to no other.
//! - [`flood`]: a flood of keys costs no memory, frees no one who is over a strict limit, displaces no
//!   other rule's counts and shuts out no newcomer.
//! - [`config_update`]: limits change while Envoy runs, and counts stay.
//! - [`shadow`]: what shadow mode lets through and says.
//! - [`hostile_requests`]: requests made to break a filter or to slip past a limit.
//! - [`responses`]: what a client sees, allowed and denied.
//! - [`demo`]: `make demo` does what it says.
//! - [`readme_and_docs`]: what README and docs say is so.
//!
//! No test looks at how long something took; where time must pass, a test polls for what it waits for. A
//! limit that is counted has a window that began just now (`window::just_begun`), so that none ends meanwhile.

mod algorithms;
mod all_or_none;
mod common;
mod config_update;
mod conformance;
mod demo;
mod exact;
mod flood;
mod harness;
mod hostile_requests;
mod markdown;
mod module;
mod readme_and_docs;
mod responses;
mod shadow;
