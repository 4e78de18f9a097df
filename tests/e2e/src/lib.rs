//! The harness of the end-to-end tests and the demos: it starts a real Envoy, or several, with the real filter, a real
//! counter and a real Redis, sends them load, breaks what lies between them, and reads what they counted.
//!
//! It holds no expectation about Tidegate itself (the tests do), and it builds neither Envoy nor the filter nor the
//! counter: `make e2e` and `make demo` do, and say where they are in `TIDEGATE_ENVOY`, `TIDEGATE_WASM` and
//! `TIDEGATE_BIN`.

pub mod background;
pub mod counter;
pub mod envoy;
pub mod fault;
pub mod fleet;
pub mod http;
pub mod ledger;
pub mod link;
pub mod load;
pub mod overshoot;
pub mod poll;
mod port;
mod process;
pub mod redis;
pub mod relay;
pub mod repository;
pub mod setup;
pub mod standing;
pub mod stats;
pub mod upstream;
pub mod waiting;
pub mod window;

pub use background::Background;
pub use counter::Counter;
pub use envoy::Envoy;
pub use fault::Fault;
pub use fleet::Fleet;
pub use ledger::Ledger;
pub use link::{Link, Way};
pub use redis::Redis;
pub use relay::{Relay, Script};
pub use setup::{Filter, Part, Setup};
