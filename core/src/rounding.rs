//! Divisions, each named by its rounding.

/// Rounded up. Divisors here are never 0; if one were, the most cautious answer is the largest.
pub(crate) fn ceil_div(a: u64, b: u64) -> u64 {
    if b == 0 { u64::MAX } else { a.div_ceil(b) }
}

/// Rounded down. Nothing divided into no parts is as much as one likes.
pub(crate) fn floor_div(a: u64, b: u64) -> u64 {
    a.checked_div(b).unwrap_or(u64::MAX)
}
