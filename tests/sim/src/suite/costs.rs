//! The committed table of costs is true.

use super::shipped;
use crate::costs::costs;

const COMMITTED: &str = include_str!("../../costs.md");
const FUEL_TOLERANCE_PERCENT: u64 = 5;

/// A table's rows: everything but the fuel, and the fuel.
fn rows(table: &str) -> Vec<(String, Option<u64>)> {
    let row = |line: &str| {
        let (before, fuel) = line.trim_end_matches(" |").rsplit_once("| ").unwrap_or((line, ""));
        (before.to_owned(), fuel.parse().ok())
    };
    table.lines().map(row).collect()
}

#[test]
fn the_committed_table_is_true() {
    let counted = costs(shipped()).unwrap();
    let (committed, now) = (rows(COMMITTED), rows(&counted));
    let what_to_do = "`make sim-costs` writes the table anew: say in the commit why it moved";
    let texts =
        |rows: &[(String, Option<u64>)]| rows.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&committed), texts(&now), "host calls have changed; {what_to_do}");
    for ((text, before), (_, now)) in committed.iter().zip(&now) {
        if let (Some(before), Some(now)) = (before, now) {
            let is_near = before.abs_diff(*now) * 100 <= before * FUEL_TOLERANCE_PERCENT;
            assert!(is_near, "{text}: fuel was {before} and is {now}; {what_to_do}");
        }
    }
}
