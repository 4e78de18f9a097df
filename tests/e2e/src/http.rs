//! One request on a connection of its own, over HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Fault;
use crate::fault::Context;

/// How long one answer may take before the test fails instead of hanging.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The host that is asked for unless a request says otherwise.
const HOST: &str = "tidegate.test";

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
    /// Whether the headers were all there was: no body followed, and no trailers.
    pub ended_with_headers: bool,
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
    let mut request = hyper::Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", HOST);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Empty::new()).expect("method, path and headers make a request")
}

/// Sends over HTTP/1.1 (or 1.0, if the request says so) on a new connection.
pub async fn send(to: SocketAddr, request: Request) -> Result<Reply, Fault> {
    within_deadline(async { ask(connect(to).await?, request).await }).await
}

/// Sends over HTTP/1.1 on a connection that somebody else has made: over TLS, or from a chosen address.
pub async fn send_over<S>(stream: S, request: Request) -> Result<Reply, Fault>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    within_deadline(async { ask(handshake(stream).await?, request).await }).await
}

/// Sends a POST with a body, on a new connection.
pub async fn post(to: SocketAddr, path: &str, content_type: &str, body: Bytes) -> Result<Reply, Fault> {
    let request = hyper::Request::post(path).header("host", HOST).header("content-type", content_type);
    let request = request.body(Full::new(body)).context("no request")?;
    within_deadline(async {
        let stream = TcpStream::connect(to).await.context("no connection")?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.context("no HTTP/1.1 connection")?;
        tokio::spawn(connection);
        whole(sender.send_request(request).await.context("the request failed")?).await
    })
    .await
}

/// Sends these very bytes on a new connection and gives all that comes back until the other side closes it. For
/// requests that no well-behaved client would write.
pub async fn send_raw(to: SocketAddr, bytes: &[u8]) -> Result<String, Fault> {
    within_deadline(async {
        let mut stream = TcpStream::connect(to).await.context("no connection")?;
        stream.write_all(bytes).await.context("the request was not taken")?;
        let mut answer = Vec::new();
        // Who is refused in the middle of a request may see a reset behind the answer.
        let _ = stream.read_to_end(&mut answer).await;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    })
    .await
}

/// Sends over HTTP/2 without TLS, on a new connection.
pub async fn send_http2(to: SocketAddr, mut request: Request) -> Result<Reply, Fault> {
    // HTTP/2 has `:authority` where HTTP/1.1 has Host, and hyper makes it from the URI.
    let path = request.uri().clone();
    let host = request.headers_mut().remove("host");
    let host = host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or(HOST);
    *request.uri_mut() = format!("http://{host}{path}").parse().context("no URI")?;
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
    handshake(stream).await
}

async fn handshake<S>(stream: S) -> Result<http1::SendRequest<Empty<Bytes>>, Fault>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.context("no HTTP/1.1 connection")?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn ask(mut connection: http1::SendRequest<Empty<Bytes>>, request: Request) -> Result<Reply, Fault> {
    whole(connection.send_request(request).await.context("the request failed")?).await
}

async fn whole(response: hyper::Response<Incoming>) -> Result<Reply, Fault> {
    let (head, body) = response.into_parts();
    let ended_with_headers = body.is_end_stream();
    let body = body.collect().await.context("the response broke off")?.to_bytes();
    Ok(Reply { status: head.status.as_u16(), headers: head.headers, body, ended_with_headers })
}

async fn within_deadline<T>(answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::time::timeout(DEADLINE, answer).await.map_err(|_| Fault::new("no answer within the deadline"))?
}
