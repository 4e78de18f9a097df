//! A limit: an algorithm with its numbers. One that exists is valid.
//!
//! The bounds are those at which a script that counts in doubles, exact to 2^53, still agrees with every step
//! here.

use crate::window::Window;
use core::fmt;

/// The most that a limit can allow, and the value at which counts saturate: 2^36. Multiplied by a 16-bit
/// weight it stays below 2^53.
pub const REQUESTS_MAX: u64 = 1 << 36;
/// The shortest window. Window numbers since the epoch then fit 32 bits.
pub const WINDOW_MS_MIN: u64 = 1_000;
/// The longest window: 2^36 ms, two years and two months.
pub const WINDOW_MS_MAX: u64 = 1 << 36;
/// The most sub-windows of a `sliding_buckets` limit.
pub const BUCKETS_MAX: u8 = 60;
/// The most that a `sliding_log` limit can allow: it remembers each.
pub const LOG_REQUESTS_MAX: u64 = 1_000;
/// The most units that a token bucket can hold; a token is as many units as its period has milliseconds.
pub const BUCKET_UNITS_MAX: u64 = 1 << 52;
/// The same for one with a warm-up, and the most units that its warm-up can last.
pub const WARM_UP_UNITS_MAX: u64 = (1 << 34) - 1;

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Counts in windows that follow each other. Up to twice the limit can pass around the seam of two.
    FixedWindow,
    /// Counts in two windows and weighs the previous one by how much of it the last window's length
    /// still covers. Close to exact, in a small state.
    SlidingWindow,
    /// Counts in sub-windows and adds up all that the last window's length touches. Never admits more than
    /// the limit in any window, and forgets a request at most one sub-window late.
    SlidingBuckets {
        /// How many sub-windows a window has.
        buckets: u8,
    },
    /// Remembers every request. Exact, and as large as its limit.
    SlidingLog,
    /// A bucket that a steady rate refills and each request takes from.
    TokenBucket {
        /// How much the bucket holds: what can pass at once.
        burst: u64,
        /// How long a bucket that has been idle takes to reach its full rate, beginning with a third of it;
        /// 0 for none.
        warm_up_ms: u64,
    },
}

/// So many requests per window, counted by an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    algorithm: Algorithm,
    requests: u64,
    window: Window,
}

impl Limit {
    /// `requests` in each window. Zero requests is a limit that nothing passes, here and below.
    pub const fn fixed_window(requests: u64, window: Window) -> Result<Self, LimitError> {
        Self::new(Algorithm::FixedWindow, requests, window)
    }

    /// About `requests` in any window.
    pub const fn sliding_window(requests: u64, window_ms: u64) -> Result<Self, LimitError> {
        Self::new(Algorithm::SlidingWindow, requests, Window::Ms(window_ms))
    }

    /// At most `requests` in any window, remembered in sub-windows.
    pub fn sliding_buckets(requests: u64, window_ms: u64, buckets: u8) -> Result<Self, LimitError> {
        if buckets == 0 || buckets > BUCKETS_MAX {
            return Err(LimitError::Buckets { buckets, max: BUCKETS_MAX });
        }
        if !window_ms.is_multiple_of(u64::from(buckets))
            || window_ms < WINDOW_MS_MIN.saturating_mul(u64::from(buckets))
        {
            return Err(LimitError::BucketsDoNotFit { buckets, window_ms });
        }
        Self::new(Algorithm::SlidingBuckets { buckets }, requests, Window::Ms(window_ms))
    }

    /// Exactly `requests` in any window.
    pub const fn sliding_log(requests: u64, window_ms: u64) -> Result<Self, LimitError> {
        if requests > LOG_REQUESTS_MAX {
            return Err(LimitError::TooManyToLog { requests, max: LOG_REQUESTS_MAX });
        }
        Self::new(Algorithm::SlidingLog, requests, Window::Ms(window_ms))
    }

    /// The same algorithm and window with other numbers; the limit itself if those would be none.
    pub(crate) fn with_numbers(&self, change: impl Fn(u64) -> u64) -> Self {
        let requests = change(self.requests);
        let changed = match self.algorithm {
            Algorithm::TokenBucket { burst, warm_up_ms } => {
                Self::token_bucket(requests, self.window_ms(), change(burst), warm_up_ms)
            }
            Algorithm::SlidingLog => Self::sliding_log(requests, self.window_ms()),
            algorithm => Self::new(algorithm, requests, self.window),
        };
        changed.unwrap_or(*self)
    }

    /// `requests` per `period_ms` at a steady rate, and up to `burst` at once. `warm_up_ms` is 0 for none.
    pub fn token_bucket(
        requests: u64,
        period_ms: u64,
        burst: u64,
        warm_up_ms: u64,
    ) -> Result<Self, LimitError> {
        if (requests == 0) != (burst == 0) {
            return Err(LimitError::BurstWithoutRate { requests, burst });
        }
        let limit = Self::new(Algorithm::TokenBucket { burst, warm_up_ms }, requests, Window::Ms(period_ms))?;
        let holds = burst.saturating_mul(period_ms);
        let max = if warm_up_ms == 0 { BUCKET_UNITS_MAX } else { WARM_UP_UNITS_MAX };
        if holds > max {
            return Err(LimitError::BurstTooLarge { burst, max: max.checked_div(period_ms).unwrap_or(0) });
        }
        if warm_up_ms.saturating_mul(requests) > WARM_UP_UNITS_MAX {
            let max = WARM_UP_UNITS_MAX.checked_div(requests).unwrap_or(0);
            return Err(LimitError::WarmUpTooLong { warm_up_ms, max });
        }
        Ok(limit)
    }

    const fn new(algorithm: Algorithm, requests: u64, window: Window) -> Result<Self, LimitError> {
        let window_ms = window.ms_max();
        if requests > REQUESTS_MAX {
            return Err(LimitError::TooManyRequests { requests, max: REQUESTS_MAX });
        }
        if window_ms < WINDOW_MS_MIN {
            return Err(LimitError::WindowTooShort { window_ms, min: WINDOW_MS_MIN });
        }
        if window_ms > WINDOW_MS_MAX {
            return Err(LimitError::WindowTooLong { window_ms, max: WINDOW_MS_MAX });
        }
        Ok(Self { algorithm, requests, window })
    }

    /// How it counts.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How much it allows per window.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The stretch of time that it is about; of a token bucket the period of its rate.
    pub const fn window(&self) -> Window {
        self.window
    }

    /// The length of its window; of a calendar month the longest.
    pub const fn window_ms(&self) -> u64 {
        self.window.ms_max()
    }

    /// How much can be taken at once: the burst of a token bucket, else the whole limit.
    pub const fn capacity(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket { burst, .. } => burst,
            _ => self.requests,
        }
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
    /// No sub-windows, or too many.
    Buckets {
        /// What was asked for.
        buckets: u8,
        /// The most that there can be.
        max: u8,
    },
    /// Sub-windows that are no whole milliseconds, or shorter than a second.
    BucketsDoNotFit {
        /// How many were asked for.
        buckets: u8,
        /// The window to divide.
        window_ms: u64,
    },
    /// More requests than a log may remember.
    TooManyToLog {
        /// What was asked for.
        requests: u64,
        /// The most that there can be.
        max: u64,
    },
    /// A bucket that holds something and is never refilled, or the reverse.
    BurstWithoutRate {
        /// The rate that was asked for.
        requests: u64,
        /// The burst that was asked for.
        burst: u64,
    },
    /// A bucket that holds more than can be counted exactly.
    BurstTooLarge {
        /// What was asked for.
        burst: u64,
        /// The most that there can be with this period.
        max: u64,
    },
    /// A warm-up that lasts longer than can be counted exactly.
    WarmUpTooLong {
        /// What was asked for.
        warm_up_ms: u64,
        /// The longest that there can be with this rate.
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
            Self::Buckets { buckets, max } => {
                write!(f, "{buckets} buckets cannot be; choose from 1 to {max}")
            }
            Self::BucketsDoNotFit { buckets, window_ms } => write!(
                f,
                "{buckets} buckets do not divide a window of {window_ms} ms into whole milliseconds of at least \
                 {WINDOW_MS_MIN} each; choose another number"
            ),
            Self::TooManyToLog { requests, max } => write!(
                f,
                "sliding_log remembers each request, and {requests} are too many; the most is {max}, beyond that \
                 choose sliding_window or sliding_buckets"
            ),
            Self::BurstWithoutRate { requests, burst } => write!(
                f,
                "a rate of {requests} with a burst of {burst} cannot be; either both are 0, which denies all, or \
                 neither"
            ),
            Self::BurstTooLarge { burst, max } => {
                write!(f, "a burst of {burst} is too large; with this period the most is {max}")
            }
            Self::WarmUpTooLong { warm_up_ms, max } => {
                write!(f, "a warm-up of {warm_up_ms} ms is too long; at this rate the longest is {max} ms")
            }
        }
    }
}

impl core::error::Error for LimitError {}
