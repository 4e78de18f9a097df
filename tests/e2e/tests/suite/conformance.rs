//! Envoy does what the simulated host thinks that it does: the probe makes its experiments here, and the same
//! ones in `tests/sim`; `tests/probe/envoy.txt` says what both must answer.

use std::net::{Ipv4Addr, SocketAddr};

use tidegate_e2e::upstream::Upstream;
use tidegate_e2e::{Envoy, Fault, Setup, http, poll, repository};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::common::start;

const WORKERS: usize = 2;
/// More than Envoy keeps of an answer to a filter's call.
const LARGE_BYTES: usize = 40 << 20;

#[tokio::test]
async fn envoy_answers_the_probe_as_the_simulated_one_does() {
    let fine = Upstream::start().await.unwrap();
    let (late, _silence) = server(false).await.unwrap();
    let (large, _flood) = server(true).await.unwrap();
    let setup = Setup::limits(serde_json::json!({}))
        .module(repository::probe_module().unwrap())
        .workers(WORKERS)
        .cluster("fine", &[fine.address()])
        .cluster("late", &[late])
        .cluster("large", &[large])
        .cluster("refused", &[nobody()])
        .cluster("empty", &[]);
    let envoy = start(setup).await;
    let expected = repository::text("tests/probe/envoy.txt").unwrap();
    let ticking = format!("VMs that tick: {}\n", WORKERS + 1);
    poll::until("every VM to tick once", async || {
        let counts = answer(&envoy, "/counts").await?;
        if counts.contains(&ticking) { Ok(()) } else { Err(Fault::new(counts)) }
    })
    .await
    .unwrap();
    let mut seen = Vec::new();
    for path in expected.lines().filter_map(|line| line.strip_prefix("== ")) {
        seen.push(format!("== {path}\n{}", answer(&envoy, path).await.unwrap()));
    }
    assert_eq!(seen.join("\n\n"), expected.trim(), "Envoy has changed, or the probe has");
}

async fn answer(envoy: &Envoy, path: &str) -> Result<String, Fault> {
    let reply = http::send(envoy.address(), http::get(path, &[])).await?;
    let seen = reply.headers.get("x-probe").map_or(reply.body.as_ref(), |seen| seen.as_bytes());
    Ok(String::from_utf8_lossy(seen).trim().replace("; ", "\n"))
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    taken.local_addr().expect("an address")
}

/// A server that says nothing, or more than one wants to hear.
async fn server(is_talkative: bool) -> Result<(SocketAddr, tokio::task::JoinHandle<()>), Fault> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| Fault::new(error.to_string()))?;
    let address = listener.local_addr().map_err(|error| Fault::new(error.to_string()))?;
    let task = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = socket.read(&mut request).await;
                if is_talkative {
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE_BYTES}\r\n\r\n");
                    let _ = socket.write_all(head.as_bytes()).await;
                    let part = vec![b'x'; 1 << 20];
                    for _ in 0..LARGE_BYTES / part.len() {
                        let _ = socket.write_all(&part).await;
                    }
                }
                let _ = socket.read(&mut request).await;
            });
        }
    });
    Ok((address, task))
}
