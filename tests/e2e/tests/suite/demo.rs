//! `make demo`: what it prints, how it ends, and that it leaves nothing running.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_e2e::{Fault, envoy, poll};

const DEMO: &str = env!("CARGO_BIN_EXE_demo");

#[tokio::test]
async fn once_prints_the_table_and_a_429_and_ends_well() {
    let _turn = envoy::turn().await;
    let output = Command::new(DEMO).arg("--once").output().expect("the demo runs");
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        ["client", "sent", "allowed", "denied", "limit"],
        ["ana", "6", "6", "0", "10/1m"],
        ["ben", "14", "10", "4", "10/1m"],
        ["cleo", "25", "10", "15", "10/1m"],
    ] {
        assert!(rows.iter().any(|seen| *seen == row), "no row {row:?} in\n{text}");
    }
    for part in ["429 Too Many Requests", "retry-after: ", "ratelimit: ", "quota-exceeded"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[tokio::test]
async fn ctrl_c_stops_all_that_it_started() {
    let _turn = envoy::turn().await;
    let demo = Command::new(DEMO).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    let mut demo = Running(demo.expect("the demo runs"));
    let output = BufReader::new(demo.0.stdout.take().expect("its output"));
    // Kept to the end: what is said to nobody is an error.
    let mut lines = output.lines().map(|line| line.expect("a line of text"));
    let address = lines
        .find_map(|line| line.strip_prefix("Envoy is running at http://").map(str::to_owned))
        .expect("the demo says where Envoy is");
    let address: SocketAddr = address.trim_end_matches(['/', '.']).parse().expect("an address");
    assert!(TcpStream::connect(address).is_ok(), "Envoy should be at {address}");

    demo.interrupt();
    let status = poll::until("the demo to end", async || {
        demo.0.try_wait().expect("word of the demo").ok_or_else(|| Fault::new("it runs on"))
    })
    .await
    .unwrap();

    assert!(status.success(), "{status}");
    assert!(TcpStream::connect(address).is_err(), "Envoy is still at {address}");
}

#[test]
fn without_envoy_it_says_so_in_a_sentence() {
    for (variable, value) in [("TIDEGATE_ENVOY", None), ("TIDEGATE_ENVOY", Some("no/such/envoy"))] {
        let mut command = Command::new(DEMO);
        command.arg("--once").env_remove(variable);
        if let Some(value) = value {
            command.env(variable, value);
        }
        let output = command.output().expect("the demo runs");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.contains(variable) && complaint.contains("make demo"), "{complaint}");
    }
}

#[test]
fn an_unknown_argument_is_refused() {
    let output = Command::new(DEMO).arg("--twice").output().expect("the demo runs");
    assert!(!output.status.success());
    assert!(shown(&output).contains("--once"), "{}", shown(&output));
}

/// A demo that a failed test leaves no more running than a passed one.
struct Running(Child);

impl Running {
    fn interrupt(&self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::INT).expect("the demo can be interrupted");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Not killed: it must stop its Envoy itself.
            self.interrupt();
            let _ = self.0.wait();
        }
    }
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
