//! The rows of the fault table that are about the fleet: each with a schedule that comes close to its bound.

use super::rows::{KEY, twenty_at_once};
use super::shipped;
use crate::global_spec::{Global, Mode, OnFailure};
use crate::run::Report;
use crate::scenario::{Arrival, MS, Planned, Scenario};
use crate::shared::Flavour;
use crate::spec::{Config, Limit, Request, Rule};
use crate::tally::Happened;

const FLAVOURS: [Flavour; 2] = [Flavour::Envoy, Flavour::Kong];
/// Proxies' clocks are minutes apart in every test here.
const SKEW_MS_MAX: u64 = 300_000;

/// A window that lasts as long as the run.
pub(super) const fn minute(requests: u64) -> Limit {
    Limit { is_clock_aligned: true, ..Limit::fixed(requests, 60_000) }
}

/// Three proxies with two workers each, and one rule across them.
pub(super) fn fleet(flavour: Flavour, limit: Limit, global: Global) -> Scenario {
    let rule = Rule::new("key", KEY, vec![limit]).globally(global);
    let mut scenario = Scenario::new("fleet", 2, Config::new(vec![rule]));
    scenario.flavour = flavour;
    scenario.proxies = 3;
    scenario.skew_ms_max = SKEW_MS_MAX;
    scenario.aftermath_ns = 9_000 * MS;
    scenario
}

/// So many requests for one key, at each proxy in turn, with so much time between two.
pub(super) fn everywhere(scenario: &mut Scenario, from_ms: u64, count: u64, every_us: u64) {
    for number in 0..count {
        let at_ns = from_ms * MS + number * every_us * 1_000;
        let proxy = number as usize % scenario.proxies;
        scenario.arrivals.push(Arrival { at_ns, proxy, request: Request::with_key("a") });
    }
}

pub(super) fn held(scenario: Scenario) -> Report {
    let report = shipped().run(scenario, 1, None, 200);
    assert_eq!(report.failure, None, "{}{}", report.trace, report.summary);
    report
}

#[test]
fn exact_admits_exactly_the_limit_by_every_algorithm_on_both_hosts() {
    for flavour in FLAVOURS {
        for limit in twenty_at_once() {
            let mut scenario = fleet(flavour, limit, Global::exact(OnFailure::Share));
            everywhere(&mut scenario, 300, 80, 100);
            let report = held(scenario);
            let seen = (report.admitted, report.denied, report.over_max);
            assert_eq!(seen, (20, 60, 0), "{limit}: {}", report.summary);
        }
    }
}

#[test]
fn envoy_carries_those_who_wait_together_and_kong_makes_a_call_for_each() {
    let calls = FLAVOURS.map(|flavour| {
        let mut scenario = fleet(flavour, minute(1_000), Global::exact(OnFailure::Share));
        (scenario.proxies, scenario.workers) = (1, 1);
        // All at once, and so more than may be resumed in one callback.
        everywhere(&mut scenario, 300, 200, 0);
        let report = held(scenario);
        assert_eq!(report.admitted, 200, "{}", report.summary);
        report.tally.of(Happened::CounterCall)
    });
    assert!(calls[0] < 30 && calls[1] >= 200, "{calls:?}");
}

#[test]
fn a_lease_never_passes_the_limit_and_its_overshoot() {
    for flavour in FLAVOURS {
        for (overshoot, most) in [(0, 200), (5, 210), (50, 300)] {
            let mut scenario = fleet(flavour, minute(200), Global::lease(overshoot, OnFailure::Closed));
            everywhere(&mut scenario, 300, 900, 3_000);
            let report = held(scenario);
            assert_eq!(report.over_max, 0, "{}", report.summary);
            assert!(report.admitted <= most, "{}", report.summary);
            // Who waits gets the last of it, once grants that nobody spends are back.
            assert!(report.admitted * 100 >= most * 95, "{}", report.summary);
        }
    }
}

#[test]
fn sync_passes_the_limit_by_no_more_than_others_admit_within_an_interval() {
    for flavour in FLAVOURS {
        let mut scenario = fleet(flavour, minute(120), Global::sync(100, OnFailure::Share));
        // One each millisecond.
        everywhere(&mut scenario, 300, 600, 1_000);
        let report = held(scenario);
        // A report and the one after it, each late by a tick and the way: what the two others admit meanwhile.
        assert!((120..=120 + 200).contains(&report.admitted), "{}", report.summary);
        assert!(report.admitted > 120, "a bound that nothing comes close to: {}", report.summary);
    }
}

/// Half more than may pass, for a while before and then for ten windows.
fn ten_windows_of_sync(flavour: Flavour, limit: Limit) -> Scenario {
    let mut scenario = fleet(flavour, limit, Global::sync(50, OnFailure::Share));
    scenario.aftermath_ns = 1_000 * MS;
    everywhere(&mut scenario, 1_000, 450 * 12, 2_222);
    scenario
}

#[test]
fn over_ten_windows_the_mean_of_sync_is_within_two_percent() {
    for flavour in FLAVOURS {
        for limit in [Limit::sliding(300, 1_000), Limit::token_bucket(300, 1_000, 30)] {
            let report = held(ten_windows_of_sync(flavour, limit));
            let admitted = report.admitted_between(3_000, 13_000);
            assert!((2_940..=3_060).contains(&admitted), "{limit}: {admitted}: {}", report.summary);
        }
    }
}

#[test]
fn a_clock_step_gives_nothing_extra() {
    for flavour in FLAVOURS {
        for global in [
            Global::exact(OnFailure::Share),
            Global::lease(0, OnFailure::Share),
            Global::sync(100, OnFailure::Share),
        ] {
            let mut scenario = fleet(flavour, minute(60), global);
            everywhere(&mut scenario, 300, 200, 2_000);
            for (proxy, by_ms) in [(0, -150_000), (1, 150_000), (2, 3_600_000)] {
                scenario.planned.push((3_000 * MS, proxy, Planned::ClockStep { by_ms }));
            }
            let before = held(scenario.clone()).admitted;
            everywhere(&mut scenario, 4_000, 200, 2_000);
            let report = held(scenario);
            // A lease may have had a few grants unspent, and a sync may be over, but no step gives a window.
            let extra = report.admitted - before;
            assert!(
                extra <= if global.mode == Mode::Exact { 0 } else { 6 },
                "{global:?}: {}",
                report.summary
            );
        }
    }
}

#[test]
fn a_counter_that_forgets_gives_back_what_was_admitted_before_and_no_more() {
    for flavour in FLAVOURS {
        for (global, most) in
            [(Global::exact(OnFailure::Share), 120), (Global::lease(0, OnFailure::Share), 120)]
        {
            let mut scenario = fleet(flavour, minute(60), global);
            everywhere(&mut scenario, 300, 200, 2_000);
            scenario.planned.push((3_000 * MS, 0, Planned::CounterRestart { down_ns: 0 }));
            everywhere(&mut scenario, 10_000, 200, 5_000);
            let report = held(scenario);
            assert!(report.admitted <= most, "{global:?}: {}", report.summary);
            assert!(report.admitted * 100 >= most * 90, "{global:?}: {}", report.summary);
        }
    }
}

#[test]
fn a_counter_that_forgets_gives_a_sync_its_limit_again_too() {
    for flavour in FLAVOURS {
        let mut scenario = fleet(flavour, minute(60), Global::sync(100, OnFailure::Share));
        // 40 of 60 before the loss; what a proxy sees stays until the counter tells it of less.
        everywhere(&mut scenario, 300, 40, 5_000);
        scenario.planned.push((3_000 * MS, 0, Planned::CounterRestart { down_ns: 0 }));
        everywhere(&mut scenario, 10_000, 300, 5_000);
        let report = held(scenario);
        // Those 40, the limit again, and what the others admit within an interval.
        assert!((40 + 60..=40 + 60 + 60).contains(&report.admitted), "{}", report.summary);
    }
}

#[test]
fn without_the_counter_each_proxy_does_as_on_failure_says() {
    for flavour in FLAVOURS {
        // 60 for three: 20 each, 60 each, all, none.
        for (on_failure, admitted) in
            [(OnFailure::Share, 60), (OnFailure::Local, 180), (OnFailure::Open, 300), (OnFailure::Closed, 0)]
        {
            let mut scenario = fleet(flavour, minute(60), Global::exact(on_failure));
            // By then each has heard of the others: idle proxies ask every few seconds.
            for proxy in 0..3 {
                scenario.planned.push((12_000 * MS, proxy, Planned::Partition { for_ns: 8_000 * MS }));
            }
            everywhere(&mut scenario, 13_000, 300, 2_000);
            let report = held(scenario);
            assert_eq!(report.admitted, admitted, "{on_failure:?}: {}", report.summary);
        }
    }
}

#[test]
fn a_closed_lease_is_never_over_when_the_counter_is_gone() {
    for flavour in FLAVOURS {
        let mut scenario = fleet(flavour, minute(200), Global::lease(0, OnFailure::Closed));
        everywhere(&mut scenario, 300, 600, 3_000);
        for proxy in 0..3 {
            scenario.planned.push((700 * MS, proxy, Planned::Partition { for_ns: 4_000 * MS }));
        }
        let report = held(scenario);
        assert!(report.over_max == 0 && report.admitted < 200 && report.admitted > 60, "{}", report.summary);
    }
}

#[test]
fn a_batch_that_is_sent_again_counts_once() {
    for global in [
        Global::exact(OnFailure::Open),
        Global::sync(100, OnFailure::Open),
        Global::lease(0, OnFailure::Open),
    ] {
        let mut scenario = fleet(Flavour::Envoy, minute(500), global);
        scenario.net.answer_lost = 300_000;
        scenario.net.repeated = 300_000;
        scenario.net.held_up = 100_000;
        everywhere(&mut scenario, 300, 300, 5_000);
        // The run's end compares the counter's books with what was admitted.
        let report = held(scenario);
        assert!(report.tally.of(Happened::AnswerLost) > 5, "{}", report.summary);
        assert_eq!(report.admitted, 300, "{}", report.summary);
    }
}

#[test]
fn clients_that_leave_while_they_wait_are_not_charged_on_envoy() {
    let mut scenario = fleet(Flavour::Envoy, minute(500), Global::exact(OnFailure::Share));
    everywhere(&mut scenario, 300, 300, 500);
    for arrival in scenario.arrivals.iter_mut().step_by(3) {
        arrival.request.patience_ns = Some(MS);
    }
    let report = held(scenario);
    assert!(report.tally.of(Happened::ClientLeft) > 20, "{}", report.summary);
}

#[test]
fn a_vm_that_dies_loses_what_it_has_not_reported() {
    const LIMIT: u64 = 300;
    let admitted_with = |kill: u64, seed: u64| {
        let mut scenario = fleet(Flavour::Envoy, minute(LIMIT), Global::sync(300, OnFailure::Share));
        scenario.rates.kill = kill;
        everywhere(&mut scenario, 300, 900, 1_000);
        let report = shipped().run(scenario, seed, None, 200);
        assert_eq!(report.failure, None, "{}{}", report.trace, report.summary);
        (report.admitted, report.tally.of(Happened::VmKilled))
    };
    let mut most = 0;
    for seed in 0..8 {
        let (all, none) = admitted_with(0, seed);
        let (more, killed) = admitted_with(3_000, seed);
        assert!(none == 0 && killed > 3, "{killed} died");
        // One of six VMs admits 50 in an interval, and as many while its report is on its way.
        assert!(more <= all + killed * 100, "{more} of {all} with {killed} dead");
        most = most.max(more.saturating_sub(all));
    }
    assert!(most > 10, "a bound that nothing comes close to: {most} more at most");
}
