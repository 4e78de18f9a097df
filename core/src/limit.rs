//! A limit: an algorithm with its numbers. One that exists is valid.

use core::fmt;

/// The most that a limit can allow, and the value at which counts saturate: 2^36. Multiplied by a 16-bit
/// weight it stays below 2^53.
pub const REQUESTS_MAX: u64 = 1 << 36;
/// The shortest window. Window numbers since the epoch then fit 32 bits.
pub const WINDOW_MS_MIN: u64 = 1_000;
/// The longest window: 2^36 ms, two years and two months.
pub const WINDOW_MS_MAX: u64 = 1 << 36;

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Counts in windows that follow each other. Up to twice the limit can pass around the seam of two.
    FixedWindow,
    /// Counts in two windows and weighs the previous one by how much of it the last window's length
    /// still covers. Close to exact, in a small state.
    SlidingWindow,
}

/// So many requests per window, counted by an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    algorithm: Algorithm,
    requests: u64,
    window_ms: u64,
}

impl Limit {
    /// A limit of `requests` per `window_ms`. Zero requests is a limit that nothing passes.
    pub const fn new(algorithm: Algorithm, requests: u64, window_ms: u64) -> Result<Self, LimitError> {
        if requests > REQUESTS_MAX {
            return Err(LimitError::TooManyRequests { requests, max: REQUESTS_MAX });
        }
        if window_ms < WINDOW_MS_MIN {
            return Err(LimitError::WindowTooShort { window_ms, min: WINDOW_MS_MIN });
        }
        if window_ms > WINDOW_MS_MAX {
            return Err(LimitError::WindowTooLong { window_ms, max: WINDOW_MS_MAX });
        }
        Ok(Self { algorithm, requests, window_ms })
    }

    /// How it counts.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How much it allows per window.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The length of its window.
    pub const fn window_ms(&self) -> u64 {
        self.window_ms
    }
}

/// Why there is no such limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// More requests than can be counted exactly everywhere.
    TooManyRequests {
        /// What was asked for.
        requests: u64,
        /// The most that there can be.
        max: u64,
    },
    /// A window too short to be counted in.
    WindowTooShort {
        /// What was asked for.
        window_ms: u64,
        /// The shortest that there can be.
        min: u64,
    },
    /// A window too long to be counted in.
    WindowTooLong {
        /// What was asked for.
        window_ms: u64,
        /// The longest that there can be.
        max: u64,
    },
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRequests { requests, max } => {
                write!(f, "{requests} requests are too many; the most is {max}")
            }
            Self::WindowTooShort { window_ms, min } => {
                write!(f, "a window of {window_ms} ms is too short; the shortest is {min} ms")
            }
            Self::WindowTooLong { window_ms, max } => {
                write!(f, "a window of {window_ms} ms is too long; the longest is {max} ms")
            }
        }
    }
}

impl core::error::Error for LimitError {}
