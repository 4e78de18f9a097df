//! Runs one algorithm and the exact log over the same traffic.

use crate::traffic::Request;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use tidegate_core::{Limit, Moment, State, Take, Timestamp};

/// Shares in percent.
pub(crate) struct Judged {
    /// Of all requests, those that the algorithm lets pass and the exact count is over the limit.
    pub(crate) wrongly_allowed: f64,
    /// Of all requests, those that it denies and the exact count is not.
    pub(crate) wrongly_denied: f64,
    /// How far its count is from the exact one, on average over requests.
    pub(crate) difference: f64,
    /// The most that it admitted within any window of the limit's length, as a share of the limit.
    pub(crate) most: f64,
}

/// As a published figure counts it, every request counts, denied or not: then there is one truth, the number of
/// a client's requests within the window that ends now, and a verdict is right or wrong. What is really admitted
/// (`most`) is measured beside it, with denied requests not counted, as limits are enforced.
#[expect(clippy::cast_precision_loss, reason = "shares of some thousands")]
pub(crate) fn judge(limit: &Limit, traffic: &[Request]) -> Judged {
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let (mut allowed, mut denied, mut difference, mut most) = (0_u64, 0_u64, 0.0, 0);
    for request in traffic {
        let at = Moment { now: Timestamp::from_ms(request.at_ms), shift: shift(request.client) };
        let client = clients.entry(request.client).or_default();
        let truth = client.exact.count(limit.window_ms(), request.at_ms);
        let counted = force(&mut client.counted, limit, at);
        match (counted <= limit.requests(), truth <= limit.requests()) {
            (true, false) => allowed += 1,
            (false, true) => denied += 1,
            _ => {}
        }
        difference += (counted as f64 - truth as f64).abs() / truth as f64;
        let (outcome, state) = limit.take(client.enforced.take(), at, Take::all(NonZeroU64::MIN));
        client.enforced = Some(state);
        if !outcome.is_refused() {
            most = most.max(client.admitted.count(limit.window_ms(), request.at_ms));
        }
    }
    let share = |count: u64| 100.0 * count as f64 / traffic.len() as f64;
    Judged {
        wrongly_allowed: share(allowed),
        wrongly_denied: share(denied),
        difference: 100.0 * difference / traffic.len() as f64,
        most: 100.0 * most as f64 / limit.requests() as f64,
    }
}

#[derive(Default)]
struct Client {
    counted: Option<State>,
    enforced: Option<State>,
    exact: Times,
    admitted: Times,
}

/// Every time within the last window. `sliding_log` remembers no more than its limit, and the truth may be more.
#[derive(Default)]
struct Times(VecDeque<u64>);

impl Times {
    fn count(&mut self, window_ms: u64, now_ms: u64) -> u64 {
        self.0.push_back(now_ms);
        while self.0.front().is_some_and(|at_ms| at_ms + window_ms <= now_ms) {
            self.0.pop_front();
        }
        u64::try_from(self.0.len()).unwrap_or(u64::MAX)
    }
}

fn force(state: &mut Option<State>, limit: &Limit, at: Moment) -> u64 {
    let (_, after) = limit.take(state.take(), at, Take::force(NonZeroU64::MIN));
    let used = limit.used(&after, at);
    *state = Some(after);
    used
}

/// Any spread will do: windows begin at another time for each client.
fn shift(client: u64) -> u64 {
    client.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}
