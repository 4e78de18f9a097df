//! What is too long, too slow or too many.

use tidegate_config::wire::BODY_BYTES_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::*;
use crate::*;

const JSON: &str = "content-type: application/json\r\n";
const SHORT: Duration = Duration::from_millis(50);

fn with(change: impl FnOnce(&mut Settings)) -> Setup {
    let mut setup = Setup::default();
    change(&mut setup.settings);
    setup
}

#[tokio::test]
async fn a_body_may_be_so_long() {
    let service = run(Setup::default()).await;
    let padded = |length: usize| format!("{TAKE}{}", " ".repeat(length - TAKE.len()));
    assert_eq!(post(service.address, &padded(BODY_BYTES_MAX)).await.status, 200);
    let declared = request(service.address, &post_head(JSON, BODY_BYTES_MAX + 1), b"").await;
    assert_eq!((declared.status, &*declared.kind()), (413, "too_long"));
    let head = format!(
        "POST /v1/take HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{JSON}transfer-encoding: chunked\r\n\r\n"
    );
    let body = padded(BODY_BYTES_MAX + 1);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    assert_eq!(request(service.address, &head, chunked.as_bytes()).await.status, 413, "undeclared too");
    let fine = format!("3\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n", &TAKE[..3], TAKE.len() - 3, &TAKE[3..]);
    assert_eq!(request(service.address, &head, fine.as_bytes()).await.status, 200, "in pieces");
}

#[tokio::test]
async fn a_head_may_be_so_long() {
    let service = run(Setup::default()).await;
    let headers = format!("{JSON}x-long: {}\r\n", "x".repeat(20_000));
    assert_eq!(post_with(service.address, &headers, TAKE.as_bytes()).await.status, 431);
    let headers = format!("{JSON}{}", "x-many: 1\r\n".repeat(110));
    assert_eq!(post_with(service.address, &headers, TAKE.as_bytes()).await.status, 431);
}

#[tokio::test]
async fn a_head_just_so_long_is_fine() {
    let service = run(Setup::default()).await;
    let headers = format!("{JSON}x-long: {}\r\n", "x".repeat(15 * 1024));
    assert_eq!(post_with(service.address, &headers, TAKE.as_bytes()).await.status, 200);
    let headers = format!("{JSON}{}", "x-many: 1\r\n".repeat(50));
    assert_eq!(post_with(service.address, &headers, TAKE.as_bytes()).await.status, 200);
}

/// What the protocol forbids is refused without a page: that is the one exception to problems in JSON.
#[tokio::test]
async fn a_head_that_is_none_is_refused_without_a_page() {
    let service = run(Setup::default()).await;
    let reply = request(service.address, "POST /v1/take HTTP/9\r\n\r\n", b"").await;
    assert_eq!((reply.status, reply.body.len()), (400, 0));
    let headers = format!("{JSON}x-long: {}\r\n", "x".repeat(20_000));
    let reply = post_with(service.address, &headers, TAKE.as_bytes()).await;
    assert_eq!((reply.status, reply.body.len()), (431, 0));
}

#[tokio::test]
async fn a_store_that_hangs_is_waited_for_so_long() {
    let service = run(with(|settings| settings.take_time_max = SHORT)).await;
    service.control.hangs.store(true, SeqCst);
    let reply = in_time(post(service.address, TAKE)).await;
    assert_eq!((reply.status, &*reply.kind()), (504, "deadline"));
    let patient = TAKE.replacen('{', r#"{"wait_ms":60000,"#, 1);
    let reply = in_time(post(service.address, &patient)).await;
    assert_eq!((reply.status, &*reply.kind()), (504, "deadline"), "no longer if the caller would wait");
}

/// A connection that is one too many on an encrypted service is closed without a word that it could not read.
#[tokio::test]
async fn connections_are_so_many_with_tls_too() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (TempFile::new(&made.cert.pem()), TempFile::new(&made.signing_key.serialize_pem()));
    let tls = Tls::from_files(&cert.0, &key.0).expect("TLS");
    let service = run(Setup { tls: Some(tls), ..with(|settings| settings.connections_max = 1) }).await;
    let first = TcpStream::connect(service.address).await.expect("a connection");
    let mut second = TcpStream::connect(service.address).await.expect("a connection");
    let mut said = Vec::new();
    let _ = in_time(second.read_to_end(&mut said)).await;
    assert_eq!(said, b"");
    drop(first);
}

#[tokio::test]
async fn a_slow_body_is_refused() {
    let service = run(with(|settings| settings.body_time_max = SHORT)).await;
    let mut stream = TcpStream::connect(service.address).await.expect("a connection");
    let reply = exchange(&mut stream, &post_head(JSON, 100), b"{").await;
    assert_eq!((reply.status, &*reply.kind()), (408, "slow_body"));
}

#[tokio::test]
async fn a_slow_head_is_cut_off() {
    let service = run(with(|settings| settings.head_time_max = SHORT)).await;
    // Nothing at all; the start of either protocol; the start of a second request.
    for (whole, start) in
        [("", ""), ("", "P"), ("", "POST /v1"), ("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", "GET /h")]
    {
        let mut stream = TcpStream::connect(service.address).await.expect("a connection");
        stream.write_all(whole.as_bytes()).await.expect("sent");
        let mut bytes = Vec::new();
        while !whole.is_empty() && !bytes.ends_with(b"ok\n") {
            assert!(in_time(stream.read_buf(&mut bytes)).await.expect("a reply") > 0);
        }
        stream.write_all(start.as_bytes()).await.expect("sent");
        let mut rest = Vec::new();
        let _ = in_time(stream.read_to_end(&mut rest)).await;
        assert_eq!(rest, b"", "cut off without a word");
    }
    let metrics = get(service.address, "/metrics").await.text();
    assert!(metrics.contains("tidegate_connections_closed_total{why=\"slow_head\"} 4\n"), "{metrics}");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let service = run(with(|settings| {
        settings.head_time_max = SHORT;
        settings.idle_time_max = 3 * SHORT;
    }))
    .await;
    let mut stream = TcpStream::connect(service.address).await.expect("a connection");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    let reply = read_reply(&mut stream).await;
    assert_eq!(reply.text(), "ok\n", "answered, and closed later");
    let metrics = get(service.address, "/metrics").await.text();
    assert!(metrics.contains("tidegate_connections_closed_total{why=\"idle\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn connections_are_so_many() {
    let service = run(with(|settings| settings.connections_max = 2)).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(service.address).await.expect("a connection");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        let mut start = [0; 15];
        in_time(stream.read_exact(&mut start)).await.expect("a reply");
        assert_eq!(&start, b"HTTP/1.1 200 OK");
        open.push(stream);
    }
    let mut third = TcpStream::connect(service.address).await.expect("a connection");
    let reply = read_reply(&mut third).await;
    assert_eq!((reply.status, &*reply.kind()), (503, "too_many_connections"));
    open.clear();
    in_time(async {
        // The others' end is noticed soon.
        loop {
            let mut stream = TcpStream::connect(service.address).await.expect("a connection");
            let head = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            if stream.write_all(head.as_bytes()).await.is_ok() && read_reply(&mut stream).await.status == 200
            {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn requests_at_once_are_so_many() {
    let service = run(with(|settings| settings.requests_max = 1)).await;
    let mut first = TcpStream::connect(service.address).await.expect("a connection");
    let head = post_head(JSON, TAKE.len());
    first.write_all(head.as_bytes()).await.expect("sent");
    metrics_say(&service, "tidegate_requests_in_flight 1\n").await;
    let second = post(service.address, TAKE).await;
    assert_eq!((second.status, &*second.kind()), (503, "busy"));
    assert_eq!(exchange(&mut first, TAKE, b"").await.status, 200, "the first is not disturbed");
}
