//! Time as the caller saw it: an integer, never a clock.

/// The latest time that can be told, so that seconds fit 32 bits (the year 2106).
const TIMESTAMP_MS_MAX: u64 = 4_294_967_295_000;

const MS_PER_S: u64 = 1000;

/// Milliseconds since the Unix epoch, at most the year 2106: later times stand still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time `ms` milliseconds after the epoch.
    pub const fn from_ms(ms: u64) -> Self {
        if ms > TIMESTAMP_MS_MAX { Self(TIMESTAMP_MS_MAX) } else { Self(ms) }
    }

    /// The time `s` seconds after the epoch.
    pub fn from_s(s: u32) -> Self {
        Self::from_ms(u64::from(s).saturating_mul(MS_PER_S))
    }

    /// Milliseconds since the epoch.
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub fn s_floor(self) -> u32 {
        u32::try_from(self.0.div_euclid(MS_PER_S)).unwrap_or(u32::MAX)
    }

    /// Whole seconds since the epoch, rounded up.
    pub fn s_ceil(self) -> u32 {
        u32::try_from(self.0.div_ceil(MS_PER_S)).unwrap_or(u32::MAX)
    }

    /// How long after `earlier` this is; 0 if it is not.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// When a take happens, and how far the key's windows are shifted.
///
/// Windows that all begin on the minute make every client that waited for "the reset" come back at once.
/// So the caller shifts them by a hash of the key: any number, of which a limit uses the remainder by its
/// window. 0 aligns the windows with the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of the take.
    pub now: Timestamp,
    /// The shift of the key's windows.
    pub shift: u64,
}
