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

/// All turns of one case with so many connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) requests: usize,
    pub(crate) calls: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) added_p50_us: f64,
    pub(crate) added_p99_us: f64,
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
    /// The medians of the rounds; what is added, round by round, to the same round of the other.
    pub(crate) fn new(turns: &[Turn], without: &[Turn]) -> Self {
        let added = |of: fn(&Turn) -> f64| {
            median(turns.iter().zip(without).map(|(turn, without)| of(turn) - of(without)).collect())
        };
        Self {
            requests: turns.iter().map(|turn| turn.requests).sum(),
            calls: turns.iter().map(|turn| turn.calls).sum(),
            p50_us: median(turns.iter().map(|turn| turn.p50_us).collect()),
            p99_us: median(turns.iter().map(|turn| turn.p99_us).collect()),
            added_p50_us: added(|turn| turn.p50_us),
            added_p99_us: added(|turn| turn.p99_us),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
