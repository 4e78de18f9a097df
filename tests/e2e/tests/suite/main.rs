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
//! - [`kill_switch`]: everything, or one rule, off and on again under load.
//! - [`proxy_faults`]: resets, aborts, updates every second, a VM that the host kills.
//! - [`shadow`]: what shadow mode lets through and says.
//! - [`hostile_requests`]: requests made to break a filter or to slip past a limit.
//! - [`charge_after`]: what responses make of a charge.
//! - [`route_metadata`]: limits that routes carry themselves.
//! - [`keys`], [`client_ip`], [`jwt`], [`mtls`]: who is counted, from every source of a key.
//! - [`plans`]: limits by plan, and a plan that changes.
//! - [`routes`]: limits by route, and a route without any.
//! - [`ways_round`]: ways round a limit, each tried.
//! - [`responses`]: what a client sees, allowed and denied.
//! - [`standards`]: what clients' libraries make of it: structured fields, HEAD, gRPC.
//! - [`observability`]: metrics in Prometheus, decisions in the access log.
//! - [`global_harness`]: the harness of a fleet itself.
//! - [`global_exact`]: `exact` admits exactly the limit, across proxies, counters and stores.
//! - [`global_lease`]: `lease` passes the limit by no more than it may, and a dead proxy costs its grants.
//! - [`global_sync`]: `sync` tells all that it admitted once; by how much it overshoots.
//! - [`global_calls`]: how often the counter is called.
//! - [`global_waiting`]: requests that wait for the counter: many, some that leave, a listener that drains.
//! - [`global_answers`]: whatever a call comes to, the config says what then.
//! - [`global_faults`]: the counter, its Redis and the way to it fail, and the books are right afterwards.
//! - [`global_mixed`]: rules of the fleet beside others, switched off by the counter, changed under load.
//! - [`global_demo`]: `make demo-global` does what it says.
//! - [`demo`]: `make demo` does what it says.
//! - [`readme_and_docs`]: what README and docs say is so.
//! - [`guides`]: what the guides show is so, and the plots are current.
//!
//! No test looks at how long something took; where time must pass, a test polls for what it waits for. A
//! limit that is counted has a window that began just now (`window::just_begun`), so that none ends meanwhile.

mod algorithms;
mod all_or_none;
mod charge_after;
mod client_ip;
mod common;
mod config_update;
mod conformance;
mod demo;
mod exact;
mod flood;
mod global_answers;
mod global_calls;
mod global_common;
mod global_demo;
mod global_exact;
mod global_faults;
mod global_harness;
mod global_lease;
mod global_mixed;
mod global_modes;
mod global_outages;
mod global_sync;
mod global_updates;
mod global_waiting;
mod guides;
mod harness;
mod hostile_requests;
mod jwt;
mod keys;
mod kill_switch;
mod markdown;
mod module;
mod mtls;
mod observability;
mod plans;
mod proxy_faults;
mod readme_and_docs;
mod responses;
mod route_metadata;
mod routes;
mod shadow;
mod standards;
mod ways_round;
