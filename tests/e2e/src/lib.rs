//! The harness of the end-to-end tests and the demo: it starts a real Envoy with the real filter, sends it
//! load, and reads what Envoy counted.
//!
//! It holds no expectation about Tidegate itself (the tests do), and it builds neither Envoy nor the
//! filter: `make e2e` and `make demo` do, and say where both are in `TIDEGATE_ENVOY` and `TIDEGATE_WASM`.

pub mod background;
pub mod envoy;
pub mod fault;
pub mod http;
pub mod load;
pub mod poll;
pub mod repository;
pub mod setup;
pub mod stats;
pub mod upstream;
pub mod window;

pub use background::Background;
pub use envoy::Envoy;
pub use fault::Fault;
pub use setup::{Filter, Part, Setup};
