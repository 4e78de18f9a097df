//! `make demo-global`: what it prints, how it ends, and that `envoy/global.yaml`, which it runs, is right.

use std::process::{Command, Output};

use tidegate_config::{Config, GlobalMode};
use tidegate_e2e::{envoy, setup};

const DEMO: &str = env!("CARGO_BIN_EXE_demo_global");

#[tokio::test]
async fn once_prints_a_table_for_each_phase_and_ends_well() {
    let _turn = envoy::turn().await;
    let output = Command::new(DEMO).arg("--once").output().expect("the demo runs");
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let rows_of = |client: &str| -> Vec<(usize, usize, usize)> {
        let rows = rows.iter().filter(|row| row.first() == Some(&client) && row.len() == 6);
        rows.map(|row| {
            let number = |index: usize| row[index].parse::<usize>().expect("a number");
            assert_eq!((number(1), number(5)), (60, 20), "{row:?}");
            (number(2), number(3), number(4))
        })
        .collect()
    };
    let together = |client: &str| -> Vec<(usize, usize)> {
        rows_of(client).into_iter().map(|(first, second, denied)| (first + second, denied)).collect()
    };
    assert_eq!(together("ana"), [(20, 40), (20, 40)], "it was forgotten, and so were its denials\n{text}");
    assert_eq!(together("ben"), [(20, 40)], "{text}");
    assert_eq!(rows_of("cleo"), [(10, 10, 40), (0, 0, 60)], "shares, and then told\n{text}");
    assert_eq!(together("dora"), [(20, 40)], "{text}");
    assert!(text.contains("The counter is killed"), "{text}");
}

#[test]
fn without_a_counter_it_says_so_in_a_sentence() {
    let output = Command::new(DEMO).arg("--once").env_remove("TIDEGATE_BIN").output().expect("the demo runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("TIDEGATE_BIN") && complaint.contains("make demo"), "{complaint}");
}

#[test]
fn an_unknown_argument_is_refused() {
    let output = Command::new(DEMO).arg("--twice").output().expect("the demo runs");
    assert!(!output.status.success());
    assert!(shown(&output).contains("--once"), "{}", shown(&output));
}

/// The example shows each mode, and names the cluster that envoy.yaml has.
#[test]
fn the_example_shows_every_mode() {
    let config = Config::from_json(setup::limits_of(setup::GLOBAL).unwrap().as_bytes()).unwrap();
    assert_eq!(config.counter.expect("a counter").cluster, setup::COUNTER_CLUSTER);
    let modes: Vec<_> =
        config.rules.iter().filter_map(|rule| rule.global).map(|global| global.mode).collect();
    assert!(
        matches!(modes[..], [GlobalMode::Exact, GlobalMode::Lease { .. }, GlobalMode::Sync { .. }]),
        "{modes:?}"
    );
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
