//! Who comes when.

use crate::access_log::{self, AccessLog};
use crate::generate::{arrival, first_secret};
use crate::identity;
use crate::rng::Rng;
use crate::scenario::{MS, Policy, SECOND, Scenario, US};
use crate::spec::{Config, KeyPart, Limit, Request, Rule};

fn any_proxy(scenario: &Scenario, rng: &mut Rng) -> usize {
    rng.below(scenario.proxies as u64) as usize
}

/// A request by one of so many keys, tenants and addresses.
fn request(rng: &mut Rng, keys: u64) -> Request {
    let key = rng.below(keys);
    let mut request = Request::with_key(&format!("key-{key}"));
    request.ip = (0x0a00_0000 + (key / 2) as u32).to_be_bytes();
    if rng.chance(900_000) {
        request.headers.push(("x-tenant", format!("tenant-{}", key % 3)));
    }
    let path = *rng.pick(&["/", "/a/x", "/b/x"]);
    request.at(path)
}

/// Arrivals that know nothing of each other.
pub(crate) fn poisson(scenario: &mut Scenario, rng: &mut Rng, begin_ns: u64) {
    let keys = rng.between(1, 12);
    let mean_ns = rng.between(2, 15) * MS;
    let mut at_ns = begin_ns;
    for _ in 0..rng.between(200, 600) {
        at_ns += rng.waiting(mean_ns);
        let proxy = any_proxy(scenario, rng);
        scenario.arrivals.push(arrival(at_ns, proxy, request(rng, keys)));
    }
}

/// Crowds just before and just after a window's edge.
pub(crate) fn window_edges(scenario: &mut Scenario, rng: &mut Rng, begin_ns: u64) {
    let keys = rng.between(1, 3);
    for second in 1..=rng.between(3, 5) {
        let edge_ns = second * SECOND;
        for _ in 0..rng.between(20, 120) {
            let spread = rng.between(0, 20 * MS);
            let at_ns = (edge_ns + spread).saturating_sub(10 * MS).max(begin_ns);
            let proxy = any_proxy(scenario, rng);
            scenario.arrivals.push(arrival(at_ns, proxy, request(rng, keys)));
        }
    }
}

/// One key, all at once, again and again.
pub(crate) fn hot_key(scenario: &mut Scenario, rng: &mut Rng, begin_ns: u64) {
    let mut at_ns = begin_ns;
    for _ in 0..rng.between(3, 12) {
        for _ in 0..rng.between(10, 60) {
            at_ns += rng.below(50 * US);
            let proxy = any_proxy(scenario, rng);
            scenario.arrivals.push(arrival(at_ns, proxy, request(rng, 1)));
        }
        at_ns += rng.between(100 * MS, 700 * MS);
    }
}

/// More keys than the table has entries, most of them seen once.
pub(crate) fn many_keys(scenario: &mut Scenario, rng: &mut Rng, begin_ns: u64) {
    scenario.is_crowded = true;
    let mut at_ns = begin_ns;
    for number in 0..rng.between(400, 900) {
        at_ns += rng.waiting(3 * MS);
        let proxy = any_proxy(scenario, rng);
        let one = if rng.chance(300_000) {
            request(rng, 4)
        } else {
            let mut flood = Request::with_key(&format!("flood-{number}"));
            flood.ip = (0x0b00_0000 + number as u32).to_be_bytes();
            flood
        };
        scenario.arrivals.push(arrival(at_ns, proxy, one));
    }
}

/// Keys that all fall into one slot, by somebody who has guessed the secret; each uses up its limit, goes and
/// comes back.
pub(crate) fn crowded_slot(scenario: &mut Scenario, rng: &mut Rng, begin_ns: u64) {
    scenario.is_crowded = true;
    scenario.proxies = 1;
    let rules = &mut scenario.configs[0].rules;
    let is_aim = |rule: &Rule| !rule.is_shadow;
    let aim = rules.iter().position(|rule| is_aim(rule) && rule.is_strict);
    let Some(aim) = aim.or_else(|| rules.iter().position(is_aim)) else { return };
    // Small and long, so that who comes back comes back to the same window.
    rules[aim].limits.truncate(1);
    rules[aim].limits[0].requests = rng.between(1, 5);
    rules[aim].limits[0].burst = rules[aim].limits[0].requests;
    rules[aim].limits[0].window_ms = 10_000;
    let config = scenario.configs[0].clone();
    let rule = &config.rules[aim];
    let requests = aimed(&config, rule, rng.between(9, 16) as usize);
    let mut at_ns = begin_ns;
    for _ in 0..rng.between(2, 4) {
        for request in &requests {
            for _ in 0..=rule.limits[0].capacity() {
                at_ns += rng.below(2 * MS);
                scenario.arrivals.push(arrival(at_ns, 0, request.clone()));
            }
        }
    }
}

/// Requests whose keys for a rule share the first proxy's first slot.
fn aimed(config: &Config, rule: &Rule, count: usize) -> Vec<Request> {
    let secret = first_secret(0);
    let all = (0..u32::MAX).map(|number| {
        let mut request = Request::with_key(&format!("aimed-{number}"));
        request.headers.push(("x-tenant", format!("aimed-{number}")));
        request.ip = (0x0c00_0000 + number).to_be_bytes();
        request.at("/a/x")
    });
    let is_aimed = |request: &Request| {
        let applying = config.applying(request);
        let key = applying.iter().find(|(other, _)| other.name == rule.name).map(|(_, key)| key);
        key.is_some_and(|key| identity::slot(&secret, rule, key, config).index == 0)
    };
    all.filter(is_aimed).take(count).collect()
}

/// Crowds from one address after the other, all with one key: at an address's limit they race, and who loses
/// has already charged the key, or has not, by where the slots lie.
pub(crate) fn races_across_rules(scenario: &mut Scenario, rng: &mut Rng, begin_ns: u64) {
    let addresses = rng.between(4, 8);
    let per_address = rng.between(1, 3);
    let spare = rng.between(0, 2);
    scenario.configs[0] = Config::new(vec![
        Rule::new(
            "key",
            KeyPart::Header("x-key"),
            vec![Limit::fixed(addresses * per_address + spare, 10_000)],
        ),
        Rule::new("ip", KeyPart::ClientIp, vec![Limit::fixed(per_address, 10_000)]),
    ]);
    scenario.workers = scenario.workers.max(3);
    scenario.policy = Policy::WritersLast;
    let mut at_ns = begin_ns;
    for address in 0..addresses {
        for _ in 0..rng.between(6, 20) {
            let mut request = Request::with_key("shared");
            request.ip = [10, 9, 0, address as u8];
            for proxy in 0..scenario.proxies {
                scenario.arrivals.push(arrival(at_ns + rng.below(100 * US), proxy, request.clone()));
            }
        }
        at_ns += rng.between(700 * MS, 1_500 * MS);
    }
}

/// A replay of an access log, here one that a generator wrote.
pub(crate) fn access_log(scenario: &mut Scenario, rng: &mut Rng, begin_ns: u64) {
    let sessions = rng.between(30, 80);
    for (at_ms, request) in AccessLog::read(&access_log::generated(rng, sessions)).requests {
        let proxy = any_proxy(scenario, rng);
        scenario.arrivals.push(arrival(begin_ns + at_ms * MS, proxy, request));
    }
}
