//! It bites: each planted bug is found, and soon.

use super::module;
use crate::run::{Bug, Simulation};

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

#[test]
fn the_module_that_ships_has_no_planted_bugs() {
    let wasm = module("TIDEGATE_WASM");
    assert!(!wasm.windows(14).any(|part| part == b"tidegate_plant"));
}
