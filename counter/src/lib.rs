//! The counter: the central service that makes limits hold across a fleet.
//!
//! A proxy sends batches of takes ([`tidegate_config::wire`]); a [`store::Store`] applies each atomically, by the
//! store's own clock; [`http::run`] serves it. This is the only crate that knows tokio, HTTP and Redis.
//!
//! What is deliberately absent: rules (limits travel with the takes), decisions (they are `tidegate-core`'s), and
//! JSON (it is `tidegate-config`'s).

pub mod http;
mod metrics;
mod overrides;
mod rules_off;
mod service;
pub mod store;
mod tokens;
mod watched_file;

pub use rules_off::RulesOff;
pub use service::{Service, Settings};
pub use tokens::Tokens;
pub use watched_file::FileError;
