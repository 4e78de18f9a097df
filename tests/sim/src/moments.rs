//! Charges by the moment that each was made, for `sliding_log`, `sliding_buckets` and the buckets: what the
//! oracle knows of one counter.
//!
//! A charge was made some time between two moments: not before the filter read the time, and not after the decision
//! was known. The earlier a charge, the sooner it is forgotten. So "at least" takes each at its earliest and
//! looks at the decision's end, and "at most" takes each at its latest and looks at the time that the filter read.

use crate::oracle::Decision;
use crate::spec::{Algorithm, Limit};

/// How long a charge is kept beyond all that can depend on it.
const KEPT_MS: u64 = 60_000;
/// A refund is exact to the millisecond.
const REFUND_ROUNDING_MS: u64 = 1;

#[derive(Clone, Copy, Debug)]
struct Charge {
    earliest_ms: u64,
    latest_ms: u64,
    n: u64,
    /// Else a fault may have left it without an admission.
    is_admitted: bool,
    /// Whether no fault can have undone it.
    is_certain: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Moments {
    charges: Vec<Charge>,
    /// The lowest and the highest limit that it has had: for a while several are in force at once, and a bucket is
    /// refilled as whoever looks at it thinks.
    requests: Option<(u64, u64)>,
}

impl Moments {
    /// By how much the limit is passed now, excuses or not; or how much was used, if that is a failure.
    pub(crate) fn admit(
        &mut self,
        limit: &Limit,
        decision: &Decision,
        n: u64,
        is_excused: bool,
    ) -> Result<u64, u64> {
        self.see_limit(limit);
        self.charges.retain(|charge| charge.latest_ms + KEPT_MS + 2 * limit.span_ms() >= decision.end_ms);
        self.charges.push(Charge {
            earliest_ms: decision.read_ms.unwrap_or(decision.end_ms),
            latest_ms: decision.end_ms,
            n,
            is_admitted: true,
            is_certain: !is_excused,
        });
        let used = self.used_at_least(limit, decision.end_ms, |charge| charge.is_certain);
        if !is_excused && used > limit.capacity() {
            return Err(used - n);
        }
        let all = self.used_at_least(limit, decision.end_ms, |charge| charge.is_admitted);
        Ok(all.saturating_sub(limit.capacity()))
    }

    fn see_limit(&mut self, limit: &Limit) {
        let (lowest, highest) = self.requests.unwrap_or((limit.requests, limit.requests));
        self.requests = Some((lowest.min(limit.requests), highest.max(limit.requests)));
    }

    fn used_at_least(&self, limit: &Limit, end_ms: u64, counts: impl Fn(&Charge) -> bool) -> u64 {
        let made =
            self.charges.iter().filter(|charge| counts(charge)).map(|charge| (charge.earliest_ms, charge.n));
        match limit.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let rate = self.requests.map_or(limit.requests, |(_, highest)| highest);
                missing(made.collect(), rate, limit.window_ms, end_ms + REFUND_ROUNDING_MS)
            }
            _ => sum(made.filter(|(at_ms, _)| at_ms + limit.window_ms > end_ms)),
        }
    }

    /// The most that may be charged, as of the time that the filter read.
    pub(crate) fn used_at_most(&mut self, limit: &Limit, read_ms: u64) -> u64 {
        self.see_limit(limit);
        let made = self.charges.iter().map(|charge| (charge.latest_ms, charge.n));
        match limit.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let rate = self.requests.map_or(limit.requests, |(lowest, _)| lowest);
                // What was charged later may stand in the bucket by the time that the filter looks.
                missing(
                    made.map(|(at_ms, n)| (at_ms.min(read_ms), n)).collect(),
                    rate,
                    limit.window_ms,
                    read_ms,
                )
            }
            Algorithm::SlidingBuckets => {
                // The oldest sub-window counts whole.
                let counted_ms = limit.window_ms + limit.window_ms / u64::from(limit.buckets.max(1));
                sum(made.filter(|(at_ms, _)| at_ms + counted_ms > read_ms))
            }
            _ => sum(made.filter(|(at_ms, _)| at_ms + limit.window_ms > read_ms)),
        }
    }

    /// A charge without an admission may appear, for so long.
    pub(crate) fn stray(&mut self, end_ms: u64, n: u64, for_ms: u64) {
        let latest_ms = end_ms + for_ms;
        self.charges.push(Charge {
            earliest_ms: end_ms,
            latest_ms,
            n,
            is_admitted: false,
            is_certain: false,
        });
    }

    /// Whatever was admitted so far is excused.
    pub(crate) fn empty(&mut self) {
        for charge in &mut self.charges {
            charge.is_certain = false;
        }
    }
}

fn sum(charges: impl Iterator<Item = (u64, u64)>) -> u64 {
    charges.map(|(_, n)| n).sum()
}

/// How many tokens a bucket lacks at a time, rounded up, if so many were taken at each of `made`. A token has as many
/// units as the period has milliseconds; each millisecond refills `rate` units.
pub(crate) fn missing(mut made: Vec<(u64, u64)>, rate: u64, period_ms: u64, at_ms: u64) -> u64 {
    made.sort_unstable();
    let (mut units, mut last_ms) = (0_u64, 0);
    for (made_ms, n) in made {
        units = units.saturating_sub((made_ms - last_ms).saturating_mul(rate)) + n * period_ms;
        last_ms = made_ms;
    }
    units.saturating_sub(at_ms.saturating_sub(last_ms).saturating_mul(rate)).div_ceil(period_ms)
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn a_bucket_is_refilled_at_its_rate_and_never_more_than_full() {
        // Two a second: one comes back every 500 ms.
        let after = |at_ms| missing(vec![(1_000, 2), (1_000, 1)], 2, 1_000, at_ms);
        assert_eq!([1_000, 1_499, 1_500, 2_499, 2_500].map(after), [3, 3, 2, 1, 0]);
        // Idle for long, a full bucket is no fuller.
        assert_eq!(missing(vec![(0, 1), (90_000, 1)], 2, 1_000, 90_000), 1);
        // The order in which they are told does not matter.
        assert_eq!(
            missing(vec![(1_400, 1), (1_000, 1)], 2, 1_000, 1_500),
            missing(vec![(1_000, 1), (1_400, 1)], 2, 1_000, 1_500)
        );
    }
}
