//! What seeds have found in the filter, as schedules of their own: a seed is a history only as long as the generators
//! stay as they are.

use super::fleet::{everywhere, fleet, held, minute};
use super::rows::{KEY, burst};
use crate::global_spec::{Global, Mode, OnFailure};
use crate::scenario::{MS, Planned, Scenario};
use crate::shared::Flavour;
use crate::spec::{Config, KeyPart, Limit, Request, Rule};

/// A rule in shadow that leases, would rather deny than wait and had nothing granted let the request through at once:
/// the rules that are enforced were not asked.
#[test]
fn a_rule_in_shadow_with_nothing_granted_switches_no_other_off() {
    let mode = Mode::Lease { overshoot_percent: 0, waits: false };
    let global = Global { mode, on_failure: OnFailure::Share };
    for flavour in [Flavour::Envoy, Flavour::Kong] {
        let mut shadow = Rule::new("shadow", KeyPart::ClientIp, vec![minute(1)]).globally(global);
        shadow.is_shadow = true;
        let key = Rule::new("key", KEY, vec![Limit::fixed(10, 60_000)]);
        let mut scenario = Scenario::new("shadow", 2, Config::new(vec![shadow, key]));
        scenario.flavour = flavour;
        burst(&mut scenario, 300, 40, &Request::with_key("a"));
        let report = held(scenario);
        assert_eq!(report.admitted, 10, "{}", report.summary);
    }
}

/// A VM whose first call failed learned nothing of the counter's clock from the answer to its retry, and went by its
/// own, which may be minutes away. When it learned at last, it forgot what it had to report: the windows seemed over.
#[test]
fn a_vm_whose_first_call_failed_learns_the_time_from_its_retry() {
    for global in [Global::sync(50, OnFailure::Share), Global::exact(OnFailure::Share)] {
        for flavour in [Flavour::Envoy, Flavour::Kong] {
            let mut scenario = fleet(flavour, minute(200), global);
            for proxy in 0..3 {
                scenario.planned.push((0, proxy, Planned::Partition { for_ns: 350 * MS }));
            }
            everywhere(&mut scenario, 300, 600, 4_000);
            // The run's end compares what was admitted with what the counter has charged.
            held(scenario);
        }
    }
}

/// The host's own mistake: a proxy that was restarted twice in a row started twice.
#[test]
fn a_proxy_that_is_restarted_twice_in_a_row_starts_once() {
    for flavour in [Flavour::Envoy, Flavour::Kong] {
        let rule = Rule::new("key", KEY, vec![Limit::fixed(10, 60_000)]);
        let mut scenario = Scenario::new("restart", 3, Config::new(vec![rule]));
        scenario.flavour = flavour;
        for at_ms in [1_000, 1_002, 1_004] {
            scenario.planned.push((at_ms * MS, 0, Planned::Restart));
        }
        burst(&mut scenario, 2_000, 30, &Request::with_key("a"));
        let report = held(scenario);
        assert_eq!((report.admitted, report.over_max), (10, 0), "{}", report.summary);
    }
}

/// A bucket that is full again before the proxies report: the reports were forgotten, for the bucket was full here, and each
/// proxy passed the whole rate by itself. At the counter, where all take from it, it is not full.
#[test]
fn a_bucket_that_fills_within_an_interval_holds_across_the_fleet_too() {
    for flavour in [Flavour::Envoy, Flavour::Kong] {
        let bucket = Limit::token_bucket(40, 1_000, 4);
        let mut scenario = fleet(flavour, bucket, Global::sync(300, OnFailure::Share));
        scenario.aftermath_ns = 1_000 * MS;
        everywhere(&mut scenario, 1_000, 2_400, 5_000);
        let report = held(scenario);
        let admitted = report.admitted_between(3_000, 13_000);
        println!("{flavour:?}: {admitted}");
        assert!((360..=520).contains(&admitted), "{admitted}: {}", report.summary);
    }
}
