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

extern crate alloc;

mod bytes;
mod decide;
mod fixed_window;
mod grant;
mod grid;
mod limit;
mod rounding;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
pub mod slot;
mod state;
mod take;
mod time;
mod token_bucket;
mod window;

pub use grant::Grant;
pub use limit::{
    Algorithm, BUCKET_UNITS_MAX, BUCKETS_MAX, LOG_REQUESTS_MAX, Limit, LimitError, REQUESTS_MAX,
    WARM_UP_UNITS_MAX, WINDOW_MS_MAX, WINDOW_MS_MIN,
};
pub use state::{BadState, SMALL_STATE_BYTES, State};
pub use take::{Manner, Outcome, Retry, Take};
pub use time::{Moment, Timestamp};
pub use window::{DAY_MS, Window};
