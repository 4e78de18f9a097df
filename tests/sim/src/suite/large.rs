//! Smaller runs of what `make sim-million` and `make sim-log` do.

use super::shipped;
use crate::access_log;
use crate::rng::Rng;
use crate::world::OTHER_KEYS;

#[test]
fn many_keys_in_one_run() {
    let report = shipped().run_many_keys(10_000);
    assert_eq!(report.failure, None, "{}", report.summary);
    // The table is laid out once and never grows; who comes once is admitted, who comes too often is not.
    assert_eq!(report.keys_max, 16_384 + OTHER_KEYS, "{}", report.summary);
    assert!(report.admitted > 10_000 && report.denied > 500 && report.over_max == 0, "{}", report.summary);
}

#[test]
fn an_access_log_is_replayed() {
    let log = access_log::generated(&mut Rng::new(1), 150);
    for speed in [1, 10] {
        let report = shipped().run_log(&log, speed).unwrap();
        assert_eq!(report.failure, None, "{}", report.summary);
        let requests = log.lines().count() as u64;
        assert_eq!(report.admitted + report.denied, requests, "{}", report.summary);
        assert!(report.denied > 100, "{}", report.summary);
    }
    assert!(shipped().run_log("no log at all\n", 1).is_err());
}
