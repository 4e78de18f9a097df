//! Windows of the clock whose end is far away, so that a test about counts never meets one.

use std::time::{SystemTime, UNIX_EPOCH};

/// Lengths to choose from: an hour to two.
const SECONDS: std::ops::RangeInclusive<u64> = 3_600..=7_200;

/// A window length, as the config language writes it, of which the current window (aligned to the clock)
/// began moments ago: its end is nearly an hour away or more.
pub fn just_begun() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = SECONDS.min_by_key(|seconds| now % seconds).unwrap_or(*SECONDS.start());
    format!("{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_at_least_half_an_hour_away() {
        let window = just_begun();
        let seconds: u64 = window.trim_end_matches('s').parse().expect("a number of seconds");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs();
        assert!(seconds - now % seconds > 1_800, "{window} ends in {} s", seconds - now % seconds);
    }
}
