//! Trouble around the filter: upstreams that reset, clients that leave, listeners that change, a VM that the host
//! kills. None of it makes the filter lose count or answer with an error of its own.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tidegate_e2e::envoy::Update;
use tidegate_e2e::http::{self, get};
use tidegate_e2e::upstream::Upstream;
use tidegate_e2e::{Background, Envoy, Fault, Part, Setup, load, poll, repository};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wasmparser::{Parser, Payload};

use crate::common::{KEY, admitted, assert_healthy, keyed, limit, rule, start};

#[tokio::test]
async fn an_upstream_that_resets_is_charged_like_any_other() {
    const LIMIT: usize = 300;
    let upstream = resetting_upstream().await;
    let limits = json!({ "rules": [rule("api", "/", &limit(LIMIT))] });
    let envoy = start(Setup::limits(limits).workers(4).upstream(upstream)).await;
    let make = |index: usize| {
        let path = if index.is_multiple_of(3) { "/reset" } else { "/" };
        keyed(path, "ana")
    };
    let answers = load::run(envoy.address(), 16, 600, make).await.unwrap();
    // 503 is Envoy's word for a reset upstream. It reached the upstream, so it was let through and counted.
    assert_eq!(answers.count(200) + answers.count(503), LIMIT);
    assert_eq!(answers.count(429), 600 - LIMIT);
    assert!(answers.count(503) > 50, "{} resets", answers.count(503));
    let resets = (0..600).filter(|&index| answers.status(index) == 503);
    assert_eq!(resets.filter(|index| !index.is_multiple_of(3)).count(), 0, "only what was reset fails");
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn clients_that_leave_in_the_middle_change_nothing_for_others() {
    const LIMIT: usize = 200;
    const LEAVING: usize = 60;
    let upstream = Upstream::start().await.unwrap();
    let limits = json!({ "rules": [rule("api", "/", &limit(LIMIT))] });
    let envoy = start(Setup::limits(limits).workers(4).upstream(upstream.address())).await;
    let load = Background::start(envoy.address(), 2, |index| keyed("/", &format!("other-{index}")));
    for index in 0..LEAVING {
        // In the middle of the headers: no request yet, and nothing is counted.
        leave(&envoy, "GET / HTTP/1.1\r\nHost: a.test\r\nx-key: half\r\nx-mo").await;
        // In the middle of the body: counted, for the headers were decided on.
        leave(&envoy, "POST / HTTP/1.1\r\nHost: a.test\r\nx-key: body\r\nContent-Length: 100\r\n\r\nabc")
            .await;
        // Right behind the request, perhaps before the answer.
        leave(&envoy, &format!("GET / HTTP/1.1\r\nHost: a.test\r\nx-key: left-{index}\r\n\r\n")).await;
    }
    load.goes_on(100).await.unwrap();
    let tally = load.stop().await.unwrap();
    assert_eq!(tally.count(200), tally.statuses.values().sum::<usize>(), "{tally:?}");
    assert!(tally.failures.is_empty(), "{tally:?}");

    assert_eq!(admitted(&envoy, LIMIT + 5, "/", "half").await, LIMIT);
    let left = admitted(&envoy, LIMIT + 5, "/", "body").await;
    assert!((LIMIT - LEAVING..=LIMIT).contains(&left), "each of {LEAVING} was counted once at most: {left}");
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_listener_update_every_second_under_load_loses_neither_requests_nor_counts() {
    const UPDATES: usize = 5;
    const LIMIT: usize = 400;
    let counted = limit(LIMIT);
    let config = |update: usize| {
        json!({ "rules": [
            rule("counted", "/counted", &counted),
            // What changes from one update to the next: else Envoy would see that there is nothing to do.
            rule("load", "/load", &json!(format!("{}/1h", 1_000_000 + update))),
        ] })
    };
    let mut envoy = start(Setup::limits(config(0)).workers(4)).await;
    let load = Background::start(envoy.address(), 4, |index| match index % 2 {
        0 => keyed("/counted", "ana"),
        _ => keyed("/load", &format!("key-{}", index % 10)),
    });
    let mut pace = tokio::time::interval(Duration::from_secs(1));
    for update in 1..=UPDATES {
        pace.tick().await;
        assert_eq!(envoy.update(config(update)).await.unwrap(), Update::Accepted);
        load.goes_on(50).await.unwrap();
    }
    load.goes_on(4 * LIMIT).await.unwrap();
    let tally = load.stop().await.unwrap();
    assert!(tally.failures.is_empty(), "{tally:?}");
    assert_eq!(tally.statuses.keys().copied().collect::<Vec<_>>(), [200, 429], "{tally:?}");
    // Old and new listeners, drained or not, counted together: exactly the limit passed.
    envoy.metric_reaches("tidegate_allowed_rule_counted", LIMIT as u64).await.unwrap();
    assert_eq!(admitted(&envoy, 20, "/counted", "ana").await, 0);
    assert_healthy(&envoy).await;
}

/// The module that ships, but for its memory, which may hardly grow: a request with very large headers does not fit,
/// and the host kills the VM. The sentence in Envoy's log and the 503 are named in docs/troubleshooting.md.
#[tokio::test]
async fn a_vm_that_the_host_kills_comes_back_with_all_counts() {
    const LIMIT: usize = 40;
    let directory = tempfile::tempdir().expect("a directory");
    let module = directory.path().join("small.wasm");
    fs::write(&module, with_little_memory(&repository::wasm_module().unwrap())).expect("a module");
    let limits = json!({ "table": { "slots": 64 }, "rules": [rule("api", "/", &limit(LIMIT))] });
    let setup = Setup::limits(limits)
        .module(module)
        .field(Part::Plugin, "failure_policy", json!("FAIL_RELOAD"))
        .field(
            Part::Plugin,
            "reload_config",
            json!({ "backoff": { "base_interval": "0.1s", "max_interval": "0.2s" } }),
        )
        .connection_manager("max_request_headers_kb", json!(8_000));
    let envoy = start(setup).await;
    assert_eq!(admitted(&envoy, 10, "/", "ana").await, 10);

    let large = "x".repeat(6 << 20);
    let killing =
        http::send(envoy.address(), get("/", &[(KEY, b"ana"), ("x-large", large.as_bytes())])).await.unwrap();
    assert_eq!(killing.status, 503, "the request whose VM dies fails");
    let log = envoy.log();
    assert!(log.contains("malloc failed: Uncaught RuntimeError: unreachable"), "{log}");

    // Until it is reloaded the host answers 503 on that worker; then the counts are as they were.
    let (mut passed, mut unavailable) = (10, 0);
    poll::until("the rest of the limit", async || {
        match http::send(envoy.address(), keyed("/", "ana")).await?.status {
            200 => passed += 1,
            429 => {}
            503 => unavailable += 1,
            status => panic!("{status}"),
        }
        if passed >= LIMIT {
            Ok(())
        } else {
            Err(Fault::new(format!("{passed} passed, {unavailable} unavailable")))
        }
    })
    .await
    .unwrap();
    assert_eq!(admitted_after_reload(&envoy).await, 0, "nothing was forgotten");
}

/// Asks until no worker is unavailable, and counts what passes.
async fn admitted_after_reload(envoy: &Envoy) -> usize {
    let mut passed = 0;
    poll::until("every worker to be back", async || {
        let answers = load::run(envoy.address(), 8, 64, |_| keyed("/", "ana")).await?;
        passed += answers.count(200);
        if answers.count(503) == 0 { Ok(()) } else { Err(Fault::new("503")) }
    })
    .await
    .unwrap();
    passed
}

/// The module with a bound on its memory, a megabyte above what it starts with.
fn with_little_memory(module: &Path) -> Vec<u8> {
    const MORE_PAGES: u64 = 16;
    let bytes = fs::read(module).expect("the module");
    for payload in Parser::new(0).parse_all(&bytes) {
        if let Payload::MemorySection(section) = payload.expect("a module") {
            let at = |place: u64| usize::try_from(place).expect("a place in the file");
            let (start, end) = (at(section.range().start), at(section.range().end));
            let memory = section.into_iter().next().expect("a memory").expect("a memory");
            let (least, most) = (leb128(memory.initial), leb128(memory.initial + MORE_PAGES));
            let content = [vec![1, 1], least, most].concat();
            // The section's own length stands right before it, in one byte.
            assert_eq!(usize::from(bytes[start - 1]), end - start, "the length of the section");
            let length = vec![u8::try_from(content.len()).expect("short")];
            return [&bytes[..start - 1], &length, &content, &bytes[end..]].concat();
        }
    }
    panic!("the module has no memory");
}

fn leb128(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// Writes this much of a request and hangs up.
async fn leave(envoy: &Envoy, part: &str) {
    let mut stream = TcpStream::connect(envoy.address()).await.expect("a connection");
    stream.write_all(part.as_bytes()).await.expect("it is taken");
}

/// An upstream that hangs up without an answer when it is asked for `/reset`.
async fn resetting_upstream() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

async fn serve(mut stream: TcpStream) {
    let mut seen = Vec::new();
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        seen.extend_from_slice(&buffer[..length]);
        // One request at a time, none of which has a body.
        if seen.ends_with(b"\r\n\r\n") {
            if seen.starts_with(b"GET /reset") {
                return;
            }
            seen.clear();
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                return;
            }
        }
    }
}
