//! The stretch of time that a limit is about.

/// Milliseconds of a UTC day.
pub const DAY_MS: u64 = 86_400_000;

const MONTHS_PER_YEAR: u32 = 12;
const EPOCH_YEAR: u32 = 1970;

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// So many milliseconds, wherever they begin.
    Ms(u64),
    /// A day of the calendar, in UTC.
    Day,
    /// A month of the calendar, in UTC.
    Month,
}

impl Window {
    /// How long it is; a month is as long as the longest.
    pub const fn ms_max(self) -> u64 {
        match self {
            Self::Ms(ms) => ms,
            Self::Day => DAY_MS,
            Self::Month => 31 * DAY_MS,
        }
    }
}

/// The number of the month at a time, counted from January 1970.
pub(crate) fn month_at(ms: u64) -> u32 {
    let days = u32::try_from(ms.div_euclid(DAY_MS)).unwrap_or(u32::MAX);
    // No month has fewer than 28 days: an estimate from above, corrected downwards by at most a few years' drift.
    let mut month = days.div_euclid(28);
    while month > 0 && month_start_day(month) > days {
        month = month.saturating_sub(month_start_day(month).saturating_sub(days).div_euclid(31).max(1));
    }
    month
}

/// When a month begins.
pub(crate) fn month_start_ms(month: u32) -> u64 {
    u64::from(month_start_day(month)).saturating_mul(DAY_MS)
}

/// Days from the epoch to the first of a month.
fn month_start_day(month: u32) -> u32 {
    let years = month.div_euclid(MONTHS_PER_YEAR);
    let year = years.saturating_add(EPOCH_YEAR);
    let before = year.saturating_sub(1);
    let leap_days_to = |year: u32| {
        year.div_euclid(4).saturating_sub(year.div_euclid(100)).saturating_add(year.div_euclid(400))
    };
    let leap_days = leap_days_to(before).saturating_sub(leap_days_to(EPOCH_YEAR.saturating_sub(1)));
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let of_year = match month.rem_euclid(MONTHS_PER_YEAR) {
        0 => 0,
        1 => 31,
        2 => 59,
        3 => 90,
        4 => 120,
        5 => 151,
        6 => 181,
        7 => 212,
        8 => 243,
        9 => 273,
        10 => 304,
        _ => 334,
    };
    let leap_day = u32::from(is_leap && month.rem_euclid(MONTHS_PER_YEAR) > 1);
    years.saturating_mul(365).saturating_add(leap_days).saturating_add(of_year).saturating_add(leap_day)
}
