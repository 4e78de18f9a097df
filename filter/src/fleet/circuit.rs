//! Whether the counter is asked at all. After a call that failed or came late nobody waits for it, for a while that
//! grows with each failure; then one call tries again, from the tick.

use tidegate_core::Timestamp;

const WAIT_MS_MIN: u64 = 100;
const WAIT_MS_MAX: u64 = 5_000;

/// What the last calls came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Circuit {
    /// The counter answers.
    Closed,
    /// It does not.
    Open {
        /// When to try again, on the monotonic clock.
        retry_at: Timestamp,
        /// How long that was to wait.
        wait_ms: u64,
        /// When the last call failed.
        failed_at: Timestamp,
    },
}

impl Circuit {
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Whether a call may be made from the tick: the counter answers, or it is time to try.
    pub(crate) fn lets_try(self, now: Timestamp) -> bool {
        match self {
            Self::Closed => true,
            Self::Open { retry_at, .. } => now >= retry_at,
        }
    }

    /// How long until the next try.
    pub(crate) const fn retry_ms(self, now: Timestamp) -> u64 {
        match self {
            Self::Closed => 0,
            Self::Open { retry_at, .. } => retry_at.ms_since(now),
        }
    }

    /// A call that was made then failed; says whether that is news. Of several that were under way when the counter went
    /// away, as on Kong, only the first one counts.
    pub(crate) fn fail(&mut self, made_at: Timestamp, now: Timestamp) -> bool {
        let (wait_ms, is_news) = match *self {
            Self::Closed => (WAIT_MS_MIN, true),
            Self::Open { failed_at, .. } if made_at <= failed_at => return false,
            Self::Open { wait_ms, .. } => (wait_ms.saturating_mul(2).min(WAIT_MS_MAX), false),
        };
        let retry_at = Timestamp::from_ms(now.ms().saturating_add(wait_ms));
        *self = Self::Open { retry_at, wait_ms, failed_at: now };
        is_news
    }

    /// A call was answered; says whether that is news.
    pub(crate) fn succeed(&mut self) -> bool {
        let is_news = self.is_open();
        *self = Self::Closed;
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_longer_each_time_and_starts_again_after_a_success() {
        let at = Timestamp::from_ms;
        let mut circuit = Circuit::Closed;
        assert!(circuit.lets_try(at(0)));
        assert!(circuit.fail(at(990), at(1_000)));
        assert!(circuit.is_open() && !circuit.lets_try(at(1_099)) && circuit.lets_try(at(1_100)));
        assert!(!circuit.fail(at(1_100), at(1_100)));
        assert_eq!(circuit.retry_ms(at(1_100)), 200);
        for now in 0..10 {
            circuit.fail(at(2_001 + now), at(2_001 + now));
        }
        assert_eq!(circuit.retry_ms(at(2_010)), 5_000);
        assert!(circuit.succeed());
        assert!(!circuit.succeed());
        circuit.fail(at(9_000), at(9_000));
        assert_eq!(circuit.retry_ms(at(9_000)), 100);
    }

    #[test]
    fn calls_that_fail_together_count_as_one() {
        let at = Timestamp::from_ms;
        let mut circuit = Circuit::Closed;
        for made_at in 950..1_000 {
            circuit.fail(at(made_at), at(1_000));
        }
        assert_eq!(circuit.retry_ms(at(1_000)), 100);
    }
}
