//! This host answers the probe as the real Envoy does (`tests/e2e` asks that one the same), and as Kong should.

use super::module;
use crate::network::Service;
use crate::run::Simulation;
use crate::scenario::{Arrival, MS, Scenario};
use crate::shared::Flavour;
use crate::spec::{Config, Request};
use std::sync::OnceLock;

/// When the first experiment is made: every VM has ticked by then.
const BEGIN_NS: u64 = 500 * MS;
/// Longer than any experiment takes.
const PAUSE_NS: u64 = 1_000 * MS;

fn probe() -> &'static Simulation {
    static PROBE: OnceLock<Simulation> = OnceLock::new();
    PROBE.get_or_init(|| Simulation::new(&module("TIDEGATE_PROBE_WASM")).unwrap())
}

fn answers(flavour: Flavour, expected: &str) -> String {
    let mut scenario = Scenario::new("probe", 2, Config::new(Vec::new()));
    scenario.flavour = flavour;
    scenario.is_probe = true;
    scenario.services = [
        ("empty", Service::Empty),
        ("refused", Service::Refused),
        ("late", Service::Late),
        ("large", Service::Large),
        ("fine", Service::Fine),
    ]
    .into();
    let mut paths = vec!["/counts"];
    paths.extend(expected.lines().filter_map(|line| line.strip_prefix("== ")));
    for (number, path) in paths.iter().enumerate() {
        let at_ns = BEGIN_NS + number as u64 * PAUSE_NS;
        scenario.arrivals.push(Arrival { at_ns, proxy: 0, request: Request::from_ip(0x7f00_0001).at(path) });
    }
    // The first is only there to be answered before the answers are counted.
    let bodies = probe().bodies(scenario).unwrap();
    let told = paths.iter().zip(bodies).skip(1);
    let parts: Vec<String> = told.map(|(path, body)| format!("== {path}\n{}", body.trim())).collect();
    parts.join("\n\n")
}

#[test]
fn the_simulated_envoy_answers_as_the_real_one() {
    let expected = include_str!("../../../probe/envoy.txt");
    assert_eq!(answers(Flavour::Envoy, expected).trim(), expected.trim());
}

#[test]
fn the_simulated_kong_answers_as_written_down() {
    let expected = include_str!("../../../probe/kong.txt");
    assert_eq!(answers(Flavour::Kong, expected).trim(), expected.trim());
}
