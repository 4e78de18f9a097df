//! What time it is, for whom.
//!
//! Limits of this proxy alone go by its **wall** clock. Limits of the fleet go by the counter's clock: the proxies'
//! own may differ by minutes, and may be set at any time. A VM knows it as its host's **monotonic** clock, which
//! nobody sets, plus what the counter's answers say is between the two.

use crate::ask::Home;
use tidegate_core::Timestamp;

/// One moment on all clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// The proxy's own. Entries of a slot expire by it, whoever's they are.
    pub(crate) wall: Timestamp,
    /// The counter's.
    pub(crate) fleet: Timestamp,
    /// The host's monotonic one; grants end by it.
    pub(crate) monotonic: Timestamp,
}

impl Clock {
    /// The moment of a proxy that knows of no fleet.
    pub(crate) const fn wall(wall: Timestamp) -> Self {
        Self { wall, fleet: wall, monotonic: wall }
    }

    /// The time that counters of such a home go by.
    pub(crate) const fn of(&self, home: Home) -> Timestamp {
        match home {
            Home::Table => self.wall,
            Home::Counter | Home::Synced | Home::Leased => self.fleet,
            // Some VMs of a proxy may have heard of the counter's clock and others not: this one they share.
            Home::FallBack { .. } => self.monotonic,
        }
    }

    /// A time of one of its clocks, on the wall clock.
    pub(crate) fn on_wall(&self, time: Timestamp, now: Timestamp) -> Timestamp {
        Timestamp::from_ms(self.wall.ms().saturating_add(time.ms_since(now)))
    }
}

/// What lies between two clocks, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    ms: i64,
}

impl Offset {
    /// From two clocks that were read at once.
    pub(crate) fn between(from: Timestamp, to: Timestamp) -> Self {
        Self { ms: signed(to).saturating_sub(signed(from)) }
    }

    /// An offset that another VM of this proxy has learned.
    pub(crate) const fn from_ms(ms: i64) -> Self {
        Self { ms }
    }

    pub(crate) const fn ms(self) -> i64 {
        self.ms
    }

    pub(crate) fn apply(self, time: Timestamp) -> Timestamp {
        Timestamp::from_ms(u64::try_from(signed(time).saturating_add(self.ms)).unwrap_or(0))
    }

    /// Learns that it was `then` at some moment between `asked` and `answered`: as little is changed as that allows,
    /// so that a slow answer does not blur what a quick one told.
    pub(crate) fn learn(&mut self, then: Timestamp, asked: Timestamp, answered: Timestamp) {
        let least = Self::between(answered, then).ms;
        let most = Self::between(asked, then).ms.max(least);
        self.ms = self.ms.clamp(least, most);
    }
}

fn signed(time: Timestamp) -> i64 {
    i64::try_from(time.ms()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    #[test]
    fn an_offset_is_learned_as_exactly_as_the_answers_allow() {
        let mut offset = Offset::between(at(1_000), at(500_000));
        assert_eq!(offset.apply(at(1_010)), at(500_010));
        // A quick answer: the counter is 60 s ahead of what we thought.
        offset.learn(at(561_000), at(2_000), at(2_002));
        assert_eq!(offset.apply(at(2_000)), at(560_998 + 2 - 2));
        let known = offset;
        // A slow one that fits what is known changes nothing.
        offset.learn(at(562_020), at(3_000), at(3_050));
        assert_eq!(offset, known);
        // The counter's clock was set back: the answer wins.
        offset.learn(at(500_000), at(4_000), at(4_000));
        assert_eq!(offset.apply(at(4_000)), at(500_000));
    }
}
