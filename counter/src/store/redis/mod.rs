//! Counters on a Redis or Valkey server, shared by any number of services.
//!
//! A batch is one call of one script ([`call`]), which decides and writes at once.

pub mod call;
mod names;
mod script;
