//! From a seed to a scenario of a fleet: proxies with clocks of their own, one counter, and a network between them.

use crate::counter_calls::NetRates;
use crate::fleet::BOOKS_WINDOW_MS;
use crate::generate::{arrival, costs};
use crate::global_spec::{Global, Mode, OnFailure};
use crate::rng::Rng;
use crate::scenario::{MS, Planned, Policy, SECOND, Scenario, US};
use crate::shared::Flavour;
use crate::spec::{Config, KeyPart, Limit, Request, Rule};

/// Arrivals begin when proxies have had time to start.
const BEGIN_NS: u64 = 300 * MS;
/// Long enough after the last request that the longest wait before a try is over, and grants are back.
const AFTERMATH_NS: u64 = 9 * SECOND;
/// Proxies' clocks are minutes apart.
const SKEW_MS_MAX: u64 = 600_000;

/// Which faults a run has.
const FAMILIES: [&str; 16] = [
    "fleet",
    "fleet",
    "fleet",
    "fleet-network",
    "fleet-network",
    "fleet-network",
    "fleet-partition",
    "fleet-counter-restart",
    "fleet-kill",
    "fleet-restart",
    "fleet-clock",
    "fleet-update",
    "fleet-update",
    "fleet-update",
    "fleet-bad-status",
    "fleet-all",
];

/// The scenario of a seed.
pub(crate) fn scenario(rng: &mut Rng) -> Scenario {
    let family = *rng.pick(&FAMILIES);
    let workers = rng.between(1, 3) as usize;
    let mut scenario = Scenario::new(family, workers, config(rng));
    scenario.proxies = rng.between(2, 3) as usize;
    scenario.policy = *rng.pick(&[Policy::Uniform, Policy::Sticky, Policy::WritersLast]);
    scenario.step_ns_max = *rng.pick(&[5 * US, 20 * US, 100 * US]);
    scenario.aftermath_ns = AFTERMATH_NS;
    if rng.chance(800_000) {
        scenario.skew_ms_max = SKEW_MS_MAX;
    }
    if rng.chance(350_000) {
        scenario.flavour = Flavour::Kong;
    }
    work(&mut scenario, rng);
    scenario.arrivals.sort_by_key(|arrival| arrival.at_ns);
    costs(&mut scenario, rng);
    faults(&mut scenario, family, rng);
    scenario
}

fn global(rng: &mut Rng) -> Global {
    let mode = match rng.below(3) {
        0 => Mode::Exact,
        1 => Mode::Sync { every_ms: *rng.pick(&[50, 100, 300]) },
        _ => Mode::Lease { overshoot_percent: *rng.pick(&[0, 0, 5, 50]), waits: rng.chance(700_000) },
    };
    let on_failure = *rng.pick(&[
        OnFailure::Share,
        OnFailure::Share,
        OnFailure::Local,
        OnFailure::Open,
        OnFailure::Closed,
    ]);
    Global { mode, on_failure }
}

fn limit(rng: &mut Rng, mode: Mode) -> Limit {
    if rng.chance(400_000) {
        // One window from the begin to the end of the run: then the counter's books are compared.
        let requests = rng.between(5, 400);
        return Limit { is_clock_aligned: true, ..Limit::fixed(requests, BOOKS_WINDOW_MS) };
    }
    let window_ms = *rng.pick(&[1_000, 1_000, 2_000, 10_000]);
    let requests = rng.between(1, 150);
    let mut limit = match rng.below(8) {
        0..=2 => Limit::fixed(requests, window_ms),
        3 | 4 => Limit::sliding(requests, window_ms),
        5 => Limit::token_bucket(requests, window_ms, rng.between(1, 2 * requests)),
        6 => Limit::buckets(requests, window_ms, if window_ms == 10_000 { 5 } else { 1 }),
        _ if matches!(mode, Mode::Lease { .. }) => Limit::leaky_bucket(requests, window_ms),
        _ => Limit::log(requests, window_ms),
    };
    limit.is_clock_aligned = rng.chance(500_000);
    limit
}

fn rule(rng: &mut Rng, name: &str, key: KeyPart) -> Rule {
    let global = global(rng);
    let limits = vec![limit(rng, global.mode)];
    Rule::new(name, key, limits).globally(global)
}

fn config(rng: &mut Rng) -> Config {
    let key = KeyPart::Header("x-key");
    let rules = match rng.below(5) {
        0 | 1 => vec![rule(rng, "key", key)],
        2 => {
            let local = Limit::fixed(rng.between(5, 100), 1_000);
            vec![rule(rng, "key", key), Rule::new("ip", KeyPart::ClientIp, vec![local])]
        }
        3 => vec![rule(rng, "key", key), rule(rng, "tenant", KeyPart::Header("x-tenant"))],
        _ => {
            let mut both = rule(rng, "key", key);
            both.limits.push(Limit::fixed(rng.between(20, 200), 5_000));
            let mut shadow = rule(rng, "shadow", KeyPart::ClientIp);
            shadow.is_shadow = true;
            vec![both, shadow]
        }
    };
    let mut config = Config::new(rules);
    config.counter_timeout_ms = *rng.pick(&[20, 50, 200]);
    config.has_headers = rng.chance(300_000);
    config
}

fn request(rng: &mut Rng, keys: u64) -> Request {
    let key = rng.below(keys);
    let mut request = Request::with_key(&format!("key-{key}"));
    request.ip = (0x0a00_0000 + (key / 2) as u32).to_be_bytes();
    request.headers.push(("x-tenant", format!("tenant-{}", key % 2)));
    if rng.chance(50_000) { request.leaving_after(rng.between(1, 40) * MS) } else { request }
}

fn work(scenario: &mut Scenario, rng: &mut Rng) {
    let keys = rng.between(1, 4);
    let proxies = scenario.proxies as u64;
    let mut at_ns = BEGIN_NS;
    let shape = rng.below(3);
    let mean_ns = rng.between(2, 12) * MS;
    for _ in 0..rng.between(150, 450) {
        at_ns += match shape {
            0 => rng.waiting(mean_ns),
            1 if rng.chance(30_000) => rng.between(50, 900) * MS,
            1 => rng.below(200 * US),
            // Waves: the next comes when the window of the one before is over, or its grants.
            _ if rng.chance(20_000) => rng.between(700, 2_600) * MS,
            _ => rng.waiting(MS),
        };
        let proxy = rng.below(proxies) as usize;
        scenario.arrivals.push(arrival(at_ns, proxy, request(rng, keys)));
    }
}

fn faults(scenario: &mut Scenario, family: &str, rng: &mut Rng) {
    let has = |name: &str| family == name || family == "fleet-all";
    if has("fleet-network") {
        let rate = |rng: &mut Rng| *rng.pick(&[0, 5_000, 30_000, 150_000]);
        scenario.net = NetRates {
            request_lost: rate(rng),
            answer_lost: rate(rng),
            repeated: rate(rng),
            held_up: rate(rng),
            malformed: rate(rng),
            oversized: rate(rng),
            unavailable: rate(rng),
            no_host: rate(rng),
        };
    }
    if has("fleet-partition") {
        for _ in 0..rng.between(1, 3) {
            let for_ns = rng.between(20, 3_000) * MS;
            plan(scenario, rng, Planned::Partition { for_ns });
        }
    }
    if has("fleet-counter-restart") {
        for _ in 0..rng.between(1, 2) {
            let down_ns = *rng.pick(&[0, 5, 300]) * MS;
            plan(scenario, rng, Planned::CounterRestart { down_ns });
        }
    }
    if has("fleet-kill") {
        scenario.rates.kill = *rng.pick(&[100, 500, 1_500]);
    }
    if has("fleet-restart") {
        plan(scenario, rng, Planned::Restart);
    }
    if has("fleet-clock") {
        scenario.drift_ppm_max = 500;
        for _ in 0..rng.between(1, 4) {
            let size = rng.between(1, 200_000).cast_signed();
            let by_ms = if rng.chance(500_000) { size } else { -size };
            plan(scenario, rng, Planned::ClockStep { by_ms });
        }
    }
    if has("fleet-update") {
        for _ in 0..rng.between(1, 2) {
            let mut changed = scenario.configs[0].clone();
            changed.rules.reverse();
            changed.has_headers ^= true;
            for limit in changed.rules.iter_mut().flat_map(|rule| &mut rule.limits) {
                limit.requests = rng.between(1, 2 * limit.requests).min(1_000);
                limit.burst = rng.between(1, 2 * limit.burst);
            }
            scenario.configs.push(changed);
            let config = scenario.configs.len() - 1;
            plan(scenario, rng, Planned::Update { config });
        }
    }
    if has("fleet-bad-status") {
        scenario.rates.bad_status = *rng.pick(&[300, 2_000, 10_000]);
    }
}

fn plan(scenario: &mut Scenario, rng: &mut Rng, planned: Planned) {
    let last_ns = scenario.arrivals.last().map_or(SECOND, |arrival| arrival.at_ns);
    let at_ns = rng.between(0, last_ns.max(BEGIN_NS + 1));
    let proxy = rng.below(scenario.proxies as u64) as usize;
    scenario.planned.push((at_ns, proxy, planned));
}
