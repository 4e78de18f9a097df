//! It bites: each planted bug is found, and soon.

use super::module;
use super::rows::{KEY, burst, twenty_at_once};
use crate::run::{Bug, Simulation};
use crate::scenario::{Policy, Scenario};
use crate::spec::{Config, KeyPart, Limit, Request, Rule};

/// Seeds after which each must have been found. `docs/simulation.md` records after how many it was.
const SEEDS_MAX: u64 = 60;

#[test]
fn each_planted_bug_is_found() {
    let planted = Simulation::new(&module("TIDEGATE_PLANTED_WASM")).unwrap();
    for seed in 0..SEEDS_MAX {
        let report = planted.run_seed(seed, Some(Bug::None), 0);
        assert_eq!(report.failure, None, "without a bug nothing is found");
    }
    for bug in Bug::ALL {
        let found = (0..SEEDS_MAX).any(|seed| planted.run_seed(seed, Some(bug), 0).failure.is_some());
        assert!(found, "{bug:?} was not found in {SEEDS_MAX} seeds");
    }
}

/// Both questions of the oracle, for each algorithm: a blind write loses charges, so too many are admitted; a
/// charge that is not given back denies too many.
#[test]
fn a_lost_charge_and_a_stray_one_are_found_by_every_algorithm() {
    let planted = Simulation::new(&module("TIDEGATE_PLANTED_WASM")).unwrap();
    for limit in twenty_at_once() {
        let mut scenario = Scenario::new("planted", 4, Config::new(vec![Rule::new("key", KEY, vec![limit])]));
        scenario.policy = Policy::WritersLast;
        // All at once, so that every VM stands between its read and its write.
        for _ in 0..80 {
            burst(&mut scenario, 300, 1, &Request::with_key("a"));
        }
        let failure = planted.run(scenario, 1, Some(Bug::BlindWrite), 0).failure.unwrap_or_default();
        assert!(failure.contains("over the limit"), "{limit}: {failure}");

        // Each address lets one pass; who loses a race there has charged the key in vain, or has not, by where the
        // slots lie.
        let one = Limit { requests: 1, burst: 1, ..limit };
        let ip = Rule::new("ip", KeyPart::ClientIp, vec![one]);
        let few = Limit { requests: limit.requests.min(14), burst: limit.burst.min(14), ..limit };
        let rules = vec![Rule::new("key", KEY, vec![few]), ip];
        let mut scenario = Scenario::new("planted", 4, Config::new(rules));
        scenario.policy = Policy::WritersLast;
        for address in 0..14 {
            let mut request = Request::with_key("a");
            request.ip = [10, 0, 0, address];
            for _ in 0..8 {
                burst(&mut scenario, 300 + 1_300 * u64::from(address), 1, &request);
            }
        }
        assert_eq!(planted.run(scenario.clone(), 1, Some(Bug::None), 0).failure, None, "{limit}");
        let failure = planted.run(scenario, 1, Some(Bug::UndoForgotten), 0).failure.unwrap_or_default();
        assert!(failure.contains("denied without a reason"), "{limit}: {failure}");
    }
}

#[test]
fn the_module_that_ships_has_no_planted_bugs() {
    let wasm = module("TIDEGATE_WASM");
    assert!(!wasm.windows(14).any(|part| part == b"tidegate_plant"));
}
