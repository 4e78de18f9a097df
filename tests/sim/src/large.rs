//! Runs that are too large for every seed: a million keys, and access logs from outside.

use crate::access_log::AccessLog;
use crate::rng::Rng;
use crate::run::{Report, Simulation};
use crate::scenario::{Arrival, MS, SECOND, Scenario, US};
use crate::spec::{Config, KeyPart, Limit, Request, Rule};

/// The table's size if a config leaves it open.
const SLOTS_DEFAULT: u32 = 16_384;
/// Arrivals begin when the table is laid out.
const BEGIN_NS: u64 = SECOND;

/// Addresses that each come once, and between them, one request in ten, a few that come all the time and more often
/// than they may. The table is about a quarter full.
pub(crate) fn many_keys(keys: u64) -> Scenario {
    let mut config = Config::new(vec![Rule::new("ip", KeyPart::ClientIp, vec![Limit::sliding(3, 1_000)])]);
    config.slots = SLOTS_DEFAULT;
    let mut scenario = Scenario::new("many-keys", 4, config);
    scenario.step_ns_max = US;
    let mut rng = Rng::new(keys);
    let mut at_ns = BEGIN_NS;
    for key in 0..keys {
        at_ns += rng.waiting(40 * US);
        let request = Request::from_ip(0x1000_0000 + key as u32);
        scenario.arrivals.push(Arrival { at_ns, proxy: 0, request });
        if rng.chance(100_000) {
            let request = Request::from_ip(0x0a00_0000 + rng.below(50) as u32);
            scenario.arrivals.push(Arrival { at_ns, proxy: 0, request });
        }
    }
    scenario
}

/// An access log: each address may make 10 requests in 10 seconds and 200 in an hour. `speed` compresses the time.
pub(crate) fn replay(log: &AccessLog, speed: u64) -> Scenario {
    let limits = vec![Limit::sliding(10, 10_000), Limit::fixed(200, 3_600_000)];
    let mut config = Config::new(vec![Rule::new("address", KeyPart::Header("x-key"), limits)]);
    config.slots = SLOTS_DEFAULT;
    let mut scenario = Scenario::new("access-log", 4, config);
    for (at_ms, request) in &log.requests {
        let at_ns = BEGIN_NS + at_ms * MS / speed.max(1);
        scenario.arrivals.push(Arrival { at_ns, proxy: 0, request: request.clone() });
    }
    scenario
}

impl Simulation {
    /// So many different keys in one run without faults.
    pub fn run_many_keys(&self, keys: u64) -> Report {
        self.run(many_keys(keys), keys, None, 0)
    }

    /// Replays an access log in the common format without faults, so many times as fast as it was written.
    pub fn run_log(&self, text: &str, speed: u64) -> Result<Report, String> {
        let log = AccessLog::read(text);
        if log.requests.is_empty() {
            return Err(format!("no line of {} is a request in the common log format", log.bad_lines));
        }
        let mut report = self.run(replay(&log, speed), 0, None, 0);
        report.summary = format!(
            "{} requests from {} addresses in {} s, {} lines left out; {}",
            log.requests.len(),
            log.addresses(),
            log.requests.last().map_or(0, |(at_ms, _)| at_ms / speed.max(1) / 1_000),
            log.bad_lines,
            report.summary
        );
        Ok(report)
    }
}
