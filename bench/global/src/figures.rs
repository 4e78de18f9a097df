//! From latencies to what is told of them.

/// One turn of one case.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    requests: usize,
    /// To the counter.
    calls: u64,
    p50_us: f64,
    p99_us: f64,
}

/// The median of the rounds, and the least and the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// All turns of one case under one load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) requests: usize,
    pub(crate) calls: u64,
    pub(crate) p50_us: Spread,
    pub(crate) p99_us: Spread,
    pub(crate) added_p50_us: Spread,
    pub(crate) added_p99_us: Spread,
}

impl Turn {
    pub(crate) fn new(mut latencies_ns: Vec<u64>, calls: u64) -> Self {
        latencies_ns.sort_unstable();
        let at = |percent: usize| {
            let place = latencies_ns.len() * percent / 100;
            latencies_ns.get(place).copied().unwrap_or_default() as f64 / 1e3
        };
        Self { requests: latencies_ns.len(), calls, p50_us: at(50), p99_us: at(99) }
    }
}

impl Figures {
    /// What is added is the difference to the other's turn of the same round.
    pub(crate) fn new(turns: &[Turn], without: &[Turn]) -> Self {
        let added = |of: fn(&Turn) -> f64| {
            Spread::of(turns.iter().zip(without).map(|(turn, without)| of(turn) - of(without)).collect())
        };
        Self {
            requests: turns.iter().map(|turn| turn.requests).sum(),
            calls: turns.iter().map(|turn| turn.calls).sum(),
            p50_us: Spread::of(turns.iter().map(|turn| turn.p50_us).collect()),
            p99_us: Spread::of(turns.iter().map(|turn| turn.p99_us).collect()),
            added_p50_us: added(|turn| turn.p50_us),
            added_p99_us: added(|turn| turn.p99_us),
        }
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or_default();
        Self { median: at(values.len() / 2), least: at(0), most: at(values.len().saturating_sub(1)) }
    }
}
