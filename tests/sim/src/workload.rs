//! Who comes when.

use crate::generate::{arrival, first_secret};
use crate::identity;
use crate::rng::Rng;
use crate::scenario::{MS, SECOND, Scenario, US};
use crate::spec::{KeyPart, Request};

/// Virtual time since the world's epoch is a multiple of every window at these moments.
const EDGE_NS: u64 = 10 * SECOND;

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
    request.at(*rng.pick(&["/", "/a/x", "/b/x"]))
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

/// Keys that all fall into a few slots, by somebody who has guessed the secret; each uses up its limit, goes
/// and comes back.
pub(crate) fn crowded_slot(scenario: &mut Scenario, rng: &mut Rng, begin_ns: u64) {
    scenario.is_crowded = true;
    scenario.proxies = 1;
    let secret = first_secret(0);
    let config = scenario.configs[0].clone();
    let Some(rule) = config.rules.iter().find(|rule| !rule.is_shadow) else { return };
    let crowd = rng.between(9, 20) as usize;
    let mut requests = Vec::new();
    let mut number: u32 = 0;
    while requests.len() < crowd {
        number += 1;
        let mut request = Request::with_key(&format!("aimed-{number}"));
        request.ip = (0x0c00_0000 + number).to_be_bytes();
        let request = request.at("/a/x");
        let applying = config.applying(&request);
        let key = applying.iter().find(|(other, _)| other.name == rule.name).map(|(_, key)| key.clone());
        let Some(key) = key else { return };
        if identity::slot(&secret, &rule.name, &key, config.slots) < 1 {
            requests.push(request);
        }
    }
    let limit = rule.limits[0].requests.min(if rule.key == KeyPart::ClientIp { 10 } else { 6 });
    let mut at_ns = begin_ns;
    for _ in 0..rng.between(2, 5) {
        for request in &requests {
            for _ in 0..=limit {
                at_ns += rng.below(2 * MS);
                scenario.arrivals.push(arrival(at_ns, 0, request.clone()));
            }
        }
    }
    debug_assert!(at_ns < EDGE_NS * 10, "aimed requests come within some windows");
}

/// A replay of an access log, here one that a generator wrote.
pub(crate) fn access_log(scenario: &mut Scenario, rng: &mut Rng, begin_ns: u64) {
    for line in generated_log(rng).lines() {
        let Some((at_ms, request)) = parse_line(line) else { continue };
        let proxy = any_proxy(scenario, rng);
        scenario.arrivals.push(arrival(begin_ns + at_ms * MS, proxy, request));
    }
}

/// Lines of `milliseconds address key path`: few clients make most of the requests, in sessions.
fn generated_log(rng: &mut Rng) -> String {
    let mut log = String::new();
    let mut at_ms = 0;
    for _ in 0..rng.between(30, 80) {
        at_ms += rng.waiting(60);
        let rank = rng.below(8) * rng.below(8);
        for page in 0..rng.between(1, 12) {
            at_ms += rng.below(10);
            let path = *rng.pick(&["/", "/a/list", "/a/item", "/b/login"]);
            log.push_str(&format!("{at_ms} 10.1.0.{rank} client-{rank} {path}?page={page}\n"));
        }
    }
    log
}

fn parse_line(line: &str) -> Option<(u64, Request)> {
    let mut parts = line.split(' ');
    let at_ms = parts.next()?.parse().ok()?;
    let address: std::net::Ipv4Addr = parts.next()?.parse().ok()?;
    let mut request = Request::with_key(parts.next()?);
    request.ip = address.octets();
    Some((at_ms, request.at(parts.next()?)))
}
