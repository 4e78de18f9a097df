//! Chance by a seed: the same seed gives the same numbers on every machine.

/// A generator of numbers (`SplitMix64`). Small, and ours: no release of a library may change a history.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

/// Parts in a whole, for [`Rng::chance`].
pub(crate) const MILLION: u64 = 1_000_000;

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for one purpose, so that drawing more for one does not move another.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0. The bias of the remainder is of no matter here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a million cases.
    pub(crate) fn chance(&mut self, per_million: u64) -> bool {
        per_million > 0 && self.below(MILLION) < per_million
    }

    /// One of several.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap_or(0)]
    }

    /// A waiting time with the given mean, as arrivals that know nothing of each other have.
    pub(crate) fn waiting(&mut self, mean: u64) -> u64 {
        // The logarithm in 16-bit fixed point, by halving: no floats, whose library functions differ.
        let drawn = (self.next() >> 32).max(1);
        let zeros = u64::from(drawn.leading_zeros()) - 32;
        let fraction = ((drawn << (zeros + 1)) & 0xffff_ffff) >> 16;
        let halvings_fixed = (zeros << 16) + (0xffff - fraction);
        // 45,426 / 2^16 is ln 2.
        ((u128::from(mean) * u128::from(halvings_fixed) * 45_426) >> 32) as u64
    }
}
