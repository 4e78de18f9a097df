//! Every algorithm's state lives in the table, the large ones in a region of their own.

use crate::mock::{Call, Flavour, MockHost};

/// A limit of each algorithm, all of five at once and none back within the hour.
const LIMITS: [&str; 6] = [
    r#"{ "requests": 5, "per": "10d", "algorithm": "fixed_window" }"#,
    r#"{ "requests": 5, "per": "10d", "algorithm": "sliding_window" }"#,
    r#"{ "requests": 5, "per": "10d", "algorithm": "sliding_buckets" }"#,
    r#"{ "requests": 5, "per": "10d", "algorithm": "sliding_log" }"#,
    r#"{ "requests": 5, "per": "10d", "algorithm": "token_bucket" }"#,
    r#"{ "requests": 5, "per": "10d", "algorithm": "leaky_bucket", "burst": 5 }"#,
];

fn config(limits: &[&str]) -> String {
    let rule = format!(
        r#"{{ "name": "api", "key": [{{ "header": "x-api-key" }}], "limits": [{}] }}"#,
        limits.join(",")
    );
    format!(r#"{{ "table": {{ "slots": 64, "large_keys": 64 }}, "rules": [{rule}] }}"#)
}

#[test]
fn each_admits_its_limit_from_several_vms() {
    for flavour in [Flavour::Envoy, Flavour::Kong] {
        for limit in LIMITS {
            let mut host = MockHost::new(&config(&[limit]));
            host.flavour = flavour;
            let other = host.sibling(&config(&[limit]));
            let (mut engine, mut another) = (host.engine(), other.engine());
            for key in ["ana", "ben", "cleo"] {
                let admitted = host.admitted(&mut engine, key, 3)
                    + other.admitted(&mut another, key, 3)
                    + host.admitted(&mut engine, key, 3);
                assert_eq!(admitted, 5, "{limit} on {flavour:?}");
            }
            engine.on_tick(&host);
            assert_eq!(host.metric("tidegate_bad_states"), 0, "{limit}");
            assert_eq!(host.metric("tidegate_evictions"), 0, "{limit}");
        }
    }
}

#[test]
fn limits_of_any_size_on_one_key_share_one_slot() {
    let host = MockHost::new(&config(&[LIMITS[3], LIMITS[0], LIMITS[4], LIMITS[2]]));
    let mut engine = host.engine();
    host.take_calls();
    assert!(host.admits(&mut engine, "ana"));
    assert_eq!(host.take_calls(), [Call::Headers, Call::Time, Call::Get, Call::Set]);
    assert_eq!(host.admitted(&mut engine, "ana", 9), 4);
}

#[test]
fn large_slots_are_laid_out_only_where_a_rule_needs_them() {
    let host = MockHost::new(&config(&[LIMITS[0]]));
    host.engine();
    assert_eq!(host.data.borrow().len(), 64 + 4);
    let logging = host.sibling(&config(&[LIMITS[3]]));
    logging.engine();
    assert_eq!(host.data.borrow().len(), 64 + 32 + 4, "64 keys need 32 slots of 8, a quarter full");
    let back = host.sibling(&config(&[LIMITS[0]]));
    back.engine();
    assert!(!back.take_calls().contains(&Call::Set));
}

#[test]
fn a_log_forgets_each_request_in_its_time() {
    let host = MockHost::new(&config(&[r#"{ "requests": 2, "per": "1h", "algorithm": "sliding_log" }"#]));
    let mut engine = host.engine();
    assert!(host.admits(&mut engine, "ana"));
    host.advance(1_800_000);
    assert!(host.admits(&mut engine, "ana"));
    assert!(!host.admits(&mut engine, "ana"));
    host.advance(1_800_000);
    assert_eq!(host.admitted(&mut engine, "ana", 5), 1);
}
