//! From a seed to a scenario: hosts, config, workload and faults.

use crate::generate_fleet;
use crate::identity;
use crate::rng::Rng;
use crate::scenario::{Arrival, MS, Planned, Policy, Rates, SECOND, Scenario, US};
use crate::shared::{Flavour, Zone};
use crate::spec::{Config, Cost, KeyPart, Limit, Request, Rule};
use crate::workload;

/// Arrivals begin when proxies have had time to start.
const BEGIN_NS: u64 = 300 * MS;

/// One seed in so many is about a fleet with a counter.
const SEEDS_PER_FLEET: u64 = 2;

/// Which faults a run has.
const FAMILIES: [&str; 10] = [
    "faultless",
    "faultless",
    "cas-storm",
    "bad-status",
    "kill",
    "restart",
    "clock",
    "update",
    "alien",
    "all",
];

/// The scenario of a seed.
pub(crate) fn scenario(seed: u64) -> Scenario {
    // Neighbouring seeds must not be neighbouring histories.
    let mut rng = Rng::new(seed ^ 0x7469_6465_6761_7465).fork();
    if seed % SEEDS_PER_FLEET == SEEDS_PER_FLEET - 1 {
        return generate_fleet::scenario(&mut rng);
    }
    let family = *rng.pick(&FAMILIES);
    let workers = rng.between(1, 4) as usize;
    let mut scenario = Scenario::new(family, workers, config(&mut rng));
    scenario.proxies = rng.between(1, 2) as usize;
    scenario.policy = *rng.pick(&[Policy::Uniform, Policy::Sticky, Policy::WritersLast]);
    scenario.step_ns_max = *rng.pick(&[5 * US, 50 * US, 400 * US]);
    if rng.chance(300_000) {
        scenario.flavour = Flavour::Kong;
    }
    let is_log = work(&mut scenario, &mut rng);
    scenario.arrivals.sort_by_key(|arrival| arrival.at_ns);
    if is_log {
        scenario.configs[0].has_headers = true;
    }
    costs(&mut scenario, &mut rng);
    faults(&mut scenario, family, &mut rng);
    scenario
}

/// Rules by which a request counts more than one, and requests that say how much.
pub(crate) fn costs(scenario: &mut Scenario, rng: &mut Rng) {
    // Who aims at a slot wants to pass and come back: his limits are as small as a cost.
    if scenario.is_crowded || rng.chance(600_000) {
        return;
    }
    for rule in &mut scenario.configs[0].rules {
        rule.cost = match rng.below(3) {
            0 => Cost::Fixed(1),
            1 => Cost::Fixed(rng.between(2, 4)),
            _ => Cost::Header(rng.between(2, 6)),
        };
    }
    for arrival in &mut scenario.arrivals {
        arrival.request.cost = rng.chance(700_000).then(|| rng.below(8));
    }
}

fn limit(rng: &mut Rng, requests_max: u64) -> Limit {
    let window_ms = *rng.pick(&[1_000, 1_000, 1_500, 2_000, 10_000]);
    limit_in(rng, requests_max, window_ms)
}

/// A limit of any algorithm, the two windows more often than the others.
fn limit_in(rng: &mut Rng, requests_max: u64, window_ms: u64) -> Limit {
    let requests = rng.between(1, requests_max);
    let mut limit = match rng.below(10) {
        0..=2 => Limit::fixed(requests, window_ms),
        3..=5 => Limit::sliding(requests, window_ms),
        6 => Limit::token_bucket(requests, window_ms, rng.between(1, 2 * requests)),
        7 => Limit::leaky_bucket(requests, window_ms),
        8 => Limit::log(requests, window_ms),
        // A sub-window has a second at least.
        _ => Limit::buckets(
            requests,
            window_ms,
            *rng.pick(if window_ms == 10_000 { &[2, 5, 10] } else { &[1] }),
        ),
    };
    limit.is_clock_aligned = rng.chance(500_000);
    limit
}

fn config(rng: &mut Rng) -> Config {
    let key = KeyPart::Header("x-key");
    let rules = match rng.below(4) {
        0 => vec![Rule::new("key", key, vec![limit(rng, 40)])],
        1 => vec![
            Rule::new("key", key, vec![limit(rng, 30)]),
            Rule::new("ip", KeyPart::ClientIp, vec![limit(rng, 60)]),
        ],
        2 => {
            let (short, long) = (limit_in(rng, 12, 1_000), limit_in(rng, 60, 10_000));
            vec![
                Rule::new("key", key, vec![short, long]),
                Rule::new("ip", KeyPart::ClientIp, vec![limit(rng, 50)]).under("/a/"),
            ]
        }
        _ => {
            let mut shadow = Rule::new("shadow", KeyPart::ClientIp, vec![limit(rng, 5)]);
            shadow.is_shadow = true;
            vec![
                Rule::new("a", KeyPart::ClientIp, vec![limit(rng, 30)]).under("/a/"),
                shadow,
                Rule::new("all", KeyPart::Header("x-tenant"), vec![limit(rng, 80)]),
                Rule::new("key", key, vec![limit(rng, 20)]),
            ]
        }
    };
    Config::new(rules)
}

/// Fills in the arrivals. True if they came out of an access log.
fn work(scenario: &mut Scenario, rng: &mut Rng) -> bool {
    match rng.below(13) {
        0 => workload::poisson(scenario, rng, BEGIN_NS),
        1 => workload::window_edges(scenario, rng, BEGIN_NS),
        2 | 3 => workload::hot_key(scenario, rng, BEGIN_NS),
        4 => workload::many_keys(scenario, rng, BEGIN_NS),
        5 | 6 | 10 | 11 | 12 if scenario.flavour == Flavour::Envoy => {
            workload::crowded_slot(scenario, rng, BEGIN_NS);
        }
        7 | 8 => workload::races_across_rules(scenario, rng, BEGIN_NS),
        _ => {
            workload::access_log(scenario, rng, BEGIN_NS);
            return true;
        }
    }
    false
}

fn faults(scenario: &mut Scenario, family: &str, rng: &mut Rng) {
    let has = |name: &str| family == name || family == "all";
    if has("cas-storm") {
        for _ in 0..rng.between(1, 3) {
            let per_million = *rng.pick(&[500_000, 900_000, 1_000_000]);
            let for_ns = rng.between(2, 200) * MS;
            plan(scenario, rng, Planned::CasStorm { for_ns, per_million });
        }
    }
    if has("bad-status") {
        scenario.rates.bad_status = *rng.pick(&[500, 3_000, 20_000]);
    }
    if has("kill") {
        scenario.rates.kill = *rng.pick(&[200, 1_000, 3_000]);
        if rng.chance(500_000) {
            plan(scenario, rng, Planned::KillBetweenCharges);
        }
    }
    if has("restart") {
        for _ in 0..rng.between(1, 2) {
            plan(scenario, rng, Planned::Restart);
        }
    }
    if has("clock") {
        scenario.drift_ppm_max = 500;
        for _ in 0..rng.between(1, 3) {
            let size = rng.between(1, 15_000).cast_signed();
            let by_ms = if rng.chance(500_000) { size } else { -size };
            plan(scenario, rng, Planned::ClockStep { by_ms });
        }
    }
    if has("update") {
        for _ in 0..rng.between(1, 3) {
            let mut changed = scenario.configs[0].clone();
            // What a displaced strict counter had used is kept as a share of its limit, so a changed limit
            // changes it too: no promise is made for that, and none is checked.
            let is_kept = |rule: &&mut Rule| !(scenario.is_crowded && rule.is_strict);
            for limit in changed.rules.iter_mut().filter(is_kept).flat_map(|rule| &mut rule.limits) {
                limit.requests = rng.between(1, 2 * limit.requests);
                limit.burst = rng.between(1, 2 * limit.burst);
            }
            if rng.chance(500_000) {
                changed.rules.reverse();
            }
            if rng.chance(800_000) {
                changed.slots = *rng.pick(&[64, 128, 256]);
            }
            scenario.configs.push(changed);
            let config = scenario.configs.len() - 1;
            plan(scenario, rng, Planned::Update { config });
        }
        if family == "update" && rng.chance(500_000) {
            scenario.rates = Rates { bad_status: 2_000, kill: 500, ..Rates::default() };
        }
    }
    if has("alien") {
        for _ in 0..rng.between(1, 6) {
            plan(scenario, rng, Planned::AlienState);
        }
    }
    if scenario.flavour == Flavour::Kong && family != "faultless" && rng.chance(800_000) {
        // Room for some of the slots: 512 bytes each.
        let bytes_max = 512 * rng.between(4, 40);
        scenario.zone = Zone { bytes_max, evicts: rng.chance(600_000), spares_marker: false };
        scenario.rates.foreign_value = *rng.pick(&[2_000, 20_000, 60_000]);
    }
}

fn plan(scenario: &mut Scenario, rng: &mut Rng, planned: Planned) {
    let last_ns = scenario.arrivals.last().map_or(SECOND, |arrival| arrival.at_ns);
    let at_ns = rng.between(BEGIN_NS, last_ns.max(BEGIN_NS + 1));
    let proxy = rng.below(scenario.proxies as u64) as usize;
    scenario.planned.push((at_ns, proxy, planned));
}

/// A request at a time, for workloads.
pub(crate) fn arrival(at_ns: u64, proxy: usize, request: Request) -> Arrival {
    Arrival { at_ns, proxy, request }
}

/// The secret that a proxy's canary will draw: the host's chance is known to the host.
pub(crate) fn first_secret(proxy: usize) -> identity::Secret {
    let mut random = Rng::new(proxy as u64);
    std::array::from_fn(|_| random.next().to_le_bytes()[0])
}
