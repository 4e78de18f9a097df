//! `sync`: each proxy decides by what it knows, and tells: over the limit by what others admit meanwhile, and no
//! request is lost or counted twice. By how much over is measured: `make bench-sync`.

use tidegate_e2e::overshoot::{self, Case};

#[tokio::test]
async fn all_that_was_admitted_is_told_once_and_then_no_more_is_admitted() {
    let cases = [Case { proxies: 2, sync_every_ms: 100 }, Case { proxies: 3, sync_every_ms: 50 }];
    let mut measured = Vec::new();
    for case in cases {
        let seen = overshoot::measure(case, 1_000).await.unwrap_or_else(|fault| panic!("{fault}"));
        assert!(seen.admitted >= seen.limit, "{seen:?}");
        // Each proxy keeps at least to the whole limit by itself, whatever it knows of others.
        assert!(seen.admitted <= seen.limit * case.proxies, "{seen:?}");
        assert_eq!(seen.reported, seen.admitted as u64, "{seen:?}");
        assert_eq!(seen.admitted_afterwards, 0, "{seen:?}");
        measured.push(seen);
    }
    println!("{}", overshoot::table(&measured));
}
