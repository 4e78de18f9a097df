//! Health, metrics, tokens and rules that change, shutdown.

use tokio::io::AsyncWriteExt;
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
