//! How the config is written: types that are only described, never built, and that make the JSON Schema.
//!
//! Where the words of the language are also the types that the parser fills, the schema is made from those.

mod config;
mod key;
mod limit;
mod matches;
mod parts;
mod response;
mod rule;

pub(crate) use config::ConfigForm;
pub(crate) use limit::LimitForm;
pub(crate) use parts::{NAME_PATTERN, PLAIN_PATTERN};
