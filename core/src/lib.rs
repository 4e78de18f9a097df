//! Rate limiting as pure arithmetic.
//!
//! A decision is a function of a limit, a state, a moment and a take; it gives an outcome and the next
//! state ([`Limit::take`]). Whoever keeps the states applies it atomically: the proxy's shared data by
//! compare-and-swap, a server's memory under a lock. [`slot`] is the bounded home that both use.
//!
//! What is deliberately absent: a clock (the caller passes the time), randomness, IO, logging, serde,
//! floats, and anything that can panic. Counts and times stay far enough below 2^53 that a script which
//! counts in doubles can repeat every step exactly.

#![no_std]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod bytes;
mod fixed_window;
mod grid;
mod limit;
mod sliding_window;
pub mod slot;
mod state;
mod take;
mod time;

pub use limit::{Algorithm, Limit, LimitError, REQUESTS_MAX, WINDOW_MS_MAX, WINDOW_MS_MIN};
pub use state::{BadState, STATE_BYTES, State, StateBytes};
pub use take::{Manner, Outcome, Retry, Take};
pub use time::{Moment, Timestamp};
