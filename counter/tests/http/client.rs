//! A client that sends what a test says, byte by byte.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{Running, in_time};

/// A take that is fine.
pub(crate) const TAKE: &str = r#"{"groups":[{"takes":[{"rule":"login","limit":"2/1h","key":"ana"}]}]}"#;

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    /// The kind of problem that it tells.
    pub(crate) fn kind(&self) -> String {
        let kind = self.json()["type"].as_str().unwrap_or_default().to_owned();
        kind.strip_prefix("urn:tidegate:problem:").expect("a problem").to_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    request(address, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"), b"").await
}

/// Waits until the metrics say so.
pub(crate) async fn metrics_say(service: &Running, text: &str) {
    in_time(async { while !get(service.address, "/metrics").await.text().contains(text) {} }).await;
}

pub(crate) async fn post(address: SocketAddr, body: &str) -> Reply {
    post_with(address, "content-type: application/json\r\n", body.as_bytes()).await
}

pub(crate) async fn post_with(address: SocketAddr, headers: &str, body: &[u8]) -> Reply {
    request(address, &post_head(headers, body.len()), body).await
}

pub(crate) fn post_head(headers: &str, length: usize) -> String {
    format!(
        "POST /v1/take HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
    )
}

pub(crate) async fn request(address: SocketAddr, head: &str, body: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    exchange(&mut stream, head, body).await
}

pub(crate) async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    head: &str,
    body: &[u8],
) -> Reply {
    stream.write_all(head.as_bytes()).await.expect("sent");
    // The service may have answered and closed before it read all.
    let _ = stream.write_all(body).await;
    read_reply(stream).await
}

/// Reads until the service closes.
pub(crate) async fn read_reply(stream: &mut (impl AsyncRead + Unpin)) -> Reply {
    let mut bytes = Vec::new();
    // A connection that is cut off after the answer has brought the answer.
    let _ = in_time(stream.read_to_end(&mut bytes)).await;
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or_else(|| {
        panic!("no head: {:?}", String::from_utf8_lossy(&bytes));
    });
    let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Reply { status, head: head.to_ascii_lowercase(), body: bytes[end + 4..].to_vec() }
}
