//! Health, metrics, tokens and rules that change, shutdown.

use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::*;
use crate::*;

#[tokio::test]
async fn health_is_the_process_and_readiness_the_store() {
    let service = run(Setup::default()).await;
    for (error, ready, said) in [
        (None, 200, "ready\n"),
        (
            Some(StoreError::Unreachable("gone".to_owned())),
            503,
            "not ready: the store cannot be reached: gone\n",
        ),
        (None, 200, "ready\n"),
    ] {
        *service.control.error.lock().expect("no panic") = error;
        let reply = get(service.address, "/readyz").await;
        assert_eq!((reply.status, &*reply.text()), (ready, said));
        assert_eq!(get(service.address, "/healthz").await.text(), "ok\n");
    }
}

#[tokio::test]
async fn metrics_count_what_happens() {
    let service = run(Setup::default()).await;
    for _ in 0..3 {
        post(service.address, TAKE).await;
    }
    post(service.address, "{}").await;
    let metrics = get(service.address, "/metrics").await;
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"));
    let text = metrics.text();
    for line in [
        "tidegate_requests_total{code=\"200\"} 3",
        "tidegate_requests_total{code=\"400\"} 1",
        "tidegate_takes_total{outcome=\"taken\"} 2",
        "tidegate_takes_total{outcome=\"refused\"} 1",
        "tidegate_take_seconds_count 4",
        "tidegate_take_seconds_bucket{le=\"+Inf\"} 4",
        "tidegate_connections 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("tidegate_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn a_token_is_asked_for_and_rotated_without_a_restart() {
    let file = TempFile::new("old\n");
    let tokens = Tokens::from_file(&file.0).expect("tokens");
    let service = run(Setup { tokens, ..Setup::default() }).await;
    let status = async |token: &str| {
        let headers = format!("content-type: application/json\r\nauthorization: Bearer {token}\r\n");
        post_with(service.address, &headers, TAKE.as_bytes()).await.status
    };
    let refused = post(service.address, TAKE).await;
    assert_eq!((refused.status, &*refused.kind()), (401, "unauthorized"));
    assert!(refused.head.contains("www-authenticate: bearer"));
    assert_eq!((status("old").await, status("new").await), (200, 401));
    for page in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(get(service.address, page).await.status, 200, "{page} needs no token");
    }
    file.write("old\nnew\n");
    in_time(async { while status("new").await != 200 {} }).await;
    assert_eq!(status("old").await, 200, "both are good for a while");
    file.write("new\n");
    in_time(async { while status("old").await != 401 {} }).await;
    // What is bad changes nothing, and is counted.
    file.write("");
    let failed = "tidegate_reload_failures_total 1\n";
    metrics_say(&service, failed).await;
    assert_eq!((status("new").await, status("").await), (200, 401));
}

#[tokio::test]
async fn rules_are_switched_off_without_a_restart() {
    let file = TempFile::new("");
    let rules_off = RulesOff::from_file(&file.0).expect("rules");
    let service = run(Setup { rules_off, ..Setup::default() }).await;
    let off = async || post(service.address, TAKE).await.json()["rules_off"].to_string();
    assert_eq!(off().await, "[]");
    file.write("login\nsearch\n");
    in_time(async { while off().await != r#"["login","search"]"# {} }).await;
    std::fs::remove_file(&file.0).expect("removed");
    let failed = "tidegate_reload_failures_total 1\n";
    metrics_say(&service, failed).await;
    assert_eq!(off().await, r#"["login","search"]"#, "a file that is gone switches nothing on");
}

/// Fault 6 of others: a reload misses a rename, and a truncated file is read as "no limits". Here files are read by
/// their names each second, and one without its last line's end is half written.
#[tokio::test]
async fn fault_06_a_file_that_is_replaced_is_seen_and_one_cut_off_is_not_believed() {
    let tokens = TempFile::new("first\n");
    let rules = TempFile::new("login\nsearch\n");
    let setup = Setup {
        tokens: Tokens::from_file(&tokens.0).expect("tokens"),
        rules_off: RulesOff::from_file(&rules.0).expect("rules"),
        ..Setup::default()
    };
    let service = run(setup).await;
    let ask = async |token: &str| {
        let headers = format!("content-type: application/json\r\nauthorization: Bearer {token}\r\n");
        post_with(service.address, &headers, TAKE.as_bytes()).await
    };
    // Renamed over it, as editors and `mv` do.
    let second = TempFile::new("second\n");
    std::fs::rename(&second.0, &tokens.0).expect("renamed");
    in_time(async { while ask("second").await.status != 200 {} }).await;
    // Behind a link that is set anew, as Kubernetes does.
    let third = TempFile::new("third\n");
    std::fs::remove_file(&tokens.0).expect("removed");
    std::os::unix::fs::symlink(&third.0, &tokens.0).expect("linked");
    in_time(async { while ask("third").await.status != 200 {} }).await;
    // Cut off: a rule less would be on again, and half a token is another token.
    rules.write("login");
    tokens.write("thi");
    metrics_say(&service, "tidegate_reload_failures_total 2\n").await;
    let reply = ask("third").await;
    assert_eq!((reply.status, &*reply.json()["rules_off"].to_string()), (200, r#"["login","search"]"#));
    assert_eq!(ask("thi").await.status, 401);
    // A pipe is no file: nobody waits for what is written to it.
    std::fs::remove_file(&rules.0).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&rules.0).status().expect("mkfifo runs").success());
    metrics_say(&service, "tidegate_reload_failures_total 3\n").await;
    assert_eq!(ask("third").await.json()["rules_off"].to_string(), r#"["login","search"]"#);
}

/// Fault 15 of others: health is green with a bad file, a deleted one empties what it said, an editor's backup breaks
/// the load. Here a bad file is no start, one that goes bad or away changes nothing, and no other file is read.
#[tokio::test]
async fn fault_15_a_file_that_is_bad_or_gone_changes_nothing() {
    let file = TempFile::new("login\nnot a rule\n");
    let refused = RulesOff::from_file(&file.0).err().expect("no start").to_string();
    assert!(refused.contains("line 2 is not the name of a rule"), "{refused}");
    file.write("login\n");
    let rules_off = RulesOff::from_file(&file.0).expect("rules");
    let service = run(Setup { rules_off, ..Setup::default() }).await;
    let backup = TempFile(file.0.with_extension("bak~"));
    backup.write("not a rule\n");
    let off = async || post(service.address, TAKE).await.json()["rules_off"].to_string();
    let names = (0..257).map(|rule| format!("r{rule}")).collect::<Vec<_>>().join("\n");
    for (failures, bad) in [(1, "not a rule\n".to_owned()), (2, names), (3, "# long\n".repeat(200_000))] {
        file.write(&bad);
        metrics_say(&service, &format!("tidegate_reload_failures_total {failures}\n")).await;
        assert_eq!(off().await, r#"["login"]"#);
    }
    std::fs::remove_file(&file.0).expect("removed");
    metrics_say(&service, "tidegate_reload_failures_total 4\n").await;
    assert_eq!(off().await, r#"["login"]"#);
    file.write("search\n");
    in_time(async { while off().await != r#"["search"]"# {} }).await;
}

#[tokio::test]
async fn shutdown_answers_every_accepted_batch() {
    let mut service = run(Setup::default()).await;
    let head = post_head("content-type: application/json\r\n", TAKE.len());
    let mut begun = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(service.address).await.expect("a connection");
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.write_all(&TAKE.as_bytes()[..20]).await.expect("sent");
        begun.push(stream);
    }
    metrics_say(&service, "tidegate_requests_in_flight 8\n").await;
    service.stop();
    // No new ones, as soon as it has heard.
    in_time(async { while TcpStream::connect(service.address).await.is_ok() {} }).await;
    for mut stream in begun {
        assert_eq!(exchange(&mut stream, &TAKE[20..], b"").await.status, 200);
    }
    service.ended().await;
}

/// What was sent before the word to stop is answered, also by whom nobody has accepted or looked at by then.
#[tokio::test]
async fn shutdown_answers_what_was_sent_just_before() {
    let mut service = run(Setup::default()).await;
    let take = format!("{}{TAKE}", post_head("content-type: application/json\r\n", TAKE.len()));
    let mut kept = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(service.address).await.expect("a connection");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        let mut ok = Vec::new();
        while !ok.ends_with(b"ok\n") {
            assert!(in_time(stream.read_buf(&mut ok)).await.expect("a reply") > 0);
        }
        kept.push(stream.into_std().expect("a socket"));
    }
    // Without a word to the runtime, which has one thread: the service sees none of this before it is told to stop.
    let new = (0..8).map(|_| std::net::TcpStream::connect(service.address).expect("a connection"));
    let mut all: Vec<_> = kept.into_iter().chain(new).collect();
    for stream in &mut all {
        std::io::Write::write_all(stream, take.as_bytes()).expect("sent");
    }
    service.stop();
    for stream in all {
        stream.set_nonblocking(true).expect("a socket");
        let mut stream = TcpStream::from_std(stream).expect("a socket");
        assert_eq!(read_reply(&mut stream).await.status, 200);
    }
    service.ended().await;
}

/// As long as it still listens it says that it is about to stop.
#[tokio::test]
async fn shutdown_is_told_to_whoever_asks() {
    let mut service = run(Setup::default()).await;
    service.stop();
    in_time(async {
        loop {
            let reply = get(service.address, "/readyz").await;
            if reply.status == 503 {
                assert_eq!(reply.text(), "not ready: the service is stopping\n");
                return;
            }
        }
    })
    .await;
    service.ended().await;
}

#[tokio::test]
async fn shutdown_answers_a_stream_of_http2_that_is_under_way() {
    let mut service = run(Setup::default()).await;
    service.control.hangs.store(true, SeqCst);
    let stream = TokioIo::new(TcpStream::connect(service.address).await.expect("a connection"));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let uri = format!("http://{}/v1/take", service.address);
    let request = hyper::Request::post(uri).header("content-type", "application/json");
    let request = request.body(Full::new(bytes::Bytes::from(TAKE))).expect("a request");
    let reply = tokio::spawn(sender.send_request(request));
    in_time(async {
        while service.control.asked.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    service.stop();
    in_time(async { while TcpStream::connect(service.address).await.is_ok() {} }).await;
    service.control.hangs.store(false, SeqCst);
    let reply = in_time(reply).await.expect("no panic").expect("a reply");
    assert_eq!(reply.status(), 200);
    service.ended().await;
}

/// Long before the time to stop is over: nobody waits for those that have nothing to say.
#[tokio::test]
async fn shutdown_waits_for_no_idle_connection() {
    let mut service = run(Setup::default()).await;
    let silent = TcpStream::connect(service.address).await.expect("a connection");
    let mut idle = TcpStream::connect(service.address).await.expect("a connection");
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    metrics_say(&service, "tidegate_connections 3\n").await;
    service.stop();
    assert_eq!(read_reply(&mut idle).await.text(), "ok\n", "answered, and closed");
    service.ended().await;
    drop(silent);
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_does_not_wait_for_ever() {
    let mut setup = Setup::default();
    setup.settings.stop_time_max = Duration::from_millis(100);
    let mut service = run(setup).await;
    let idle = TcpStream::connect(service.address).await.expect("a connection");
    let mut never = TcpStream::connect(service.address).await.expect("a connection");
    never.write_all(post_head("content-type: application/json\r\n", 99).as_bytes()).await.expect("sent");
    metrics_say(&service, "tidegate_requests_in_flight 1\n").await;
    service.stop();
    service.ended().await;
    drop((idle, never));
}
