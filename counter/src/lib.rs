//! The counter: the central service that makes limits hold across a fleet.
//!
//! A proxy sends batches of takes ([`tidegate_config::wire`]); a [`store::Store`] applies each atomically, by the
//! store's own clock. This is the only crate that knows tokio, HTTP and Redis.
//!
//! What is deliberately absent: rules (limits travel with the takes), and decisions (they are `tidegate-core`'s).

pub mod store;
