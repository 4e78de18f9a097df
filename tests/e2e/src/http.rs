//! One request on a connection of its own, over HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::Fault;
use crate::fault::Context;

/// How long one answer may take before the test fails instead of hanging.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A request without a body.
pub type Request = hyper::Request<Empty<Bytes>>;

/// A whole response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, to its end.
    pub body: Bytes,
}

impl Reply {
    /// The value of a header that must be there once and be text.
    ///
    /// # Panics
    /// If it is not.
    pub fn header(&self, name: &str) -> &str {
        let values: Vec<_> = self.headers.get_all(name).iter().collect();
        assert_eq!(values.len(), 1, "{name} should be there once in {self:?}");
        values[0].to_str().expect("a header of text")
    }

    /// Whether a header is there.
    pub fn has(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }
}

/// A GET of `path` with these headers.
///
/// # Panics
/// If they do not make a request.
pub fn get(path: &str, headers: &[(&str, &[u8])]) -> Request {
    request("GET", path, headers)
}

/// A request of any method.
///
/// # Panics
/// If the parts do not make a request.
pub fn request(method: &str, path: &str, headers: &[(&str, &[u8])]) -> Request {
    let mut request = hyper::Request::builder().method(method).uri(path).header("host", "tidegate.test");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Empty::new()).expect("method, path and headers make a request")
}

/// Sends over HTTP/1.1 (or 1.0, if the request says so) on a new connection.
pub async fn send(to: SocketAddr, request: Request) -> Result<Reply, Fault> {
    within_deadline(async {
        let mut connection = connect(to).await?;
        whole(connection.send_request(request).await.context("the request failed")?).await
    })
    .await
}

/// Sends over HTTP/2 without TLS, on a new connection.
pub async fn send_http2(to: SocketAddr, mut request: Request) -> Result<Reply, Fault> {
    // HTTP/2 has `:authority` where HTTP/1.1 has Host, and hyper makes it from the URI.
    let path = request.uri().clone();
    *request.uri_mut() = format!("http://tidegate.test{path}").parse().context("no URI")?;
    request.headers_mut().remove("host");
    within_deadline(async {
        let io = TokioIo::new(TcpStream::connect(to).await.context("no connection")?);
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), io).await.context("no HTTP/2 connection")?;
        tokio::spawn(connection);
        whole(sender.send_request(request).await.context("the HTTP/2 request failed")?).await
    })
    .await
}

/// A new HTTP/1.1 connection.
pub(crate) async fn connect(to: SocketAddr) -> Result<http1::SendRequest<Empty<Bytes>>, Fault> {
    let stream = TcpStream::connect(to).await.context("no connection")?;
    stream.set_nodelay(true).context("no connection without delay")?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.context("no HTTP/1.1 connection")?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn whole(response: hyper::Response<Incoming>) -> Result<Reply, Fault> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.context("the response broke off")?.to_bytes();
    Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
}

async fn within_deadline<T>(answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::time::timeout(DEADLINE, answer).await.map_err(|_| Fault::new("no answer within the deadline"))?
}
