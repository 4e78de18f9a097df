//! The filter on a mock host.
//!
//! - `mock`: the host: shared data as Envoy or Kong keeps it, a clock that the test sets, a list of the
//!   calls made, and faults on order.
//! - `algorithms`: every algorithm's state lives in the table.
//! - `budget`: the host calls of each case, counted; one more is a failure.
//! - `charge_after`: reservations, and what responses make of them.
//! - `fleet`: rules that hold across proxies, with a counter made of the core.
//! - `limits`: what is admitted and denied, by which rule, and what the client sees.
//! - `language`: what the config language can say, honoured.
//! - `races`: other VMs that write between our read and our write.
//! - `route_metadata`: what routes say themselves.
//! - `table`: layout, growth, namespaces, displacement.
//! - `faults`: every status from every call, and any bytes from any of them.
//! - `fuzz`: hostile requests from a seed, by the ten thousand.

#![allow(missing_docs, reason = "tests explain themselves by their names")]

mod algorithms;
mod budget;
mod charge_after;
mod faults;
mod fleet;
mod fuzz;
mod language;
mod limits;
mod mock;
mod races;
mod route_metadata;
mod table;
