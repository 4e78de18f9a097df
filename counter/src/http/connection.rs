//! One connection: which protocol it speaks, and how long it may be slow.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::respond::{self, Body};
use super::tls::Tls;
use crate::service::Service;
use crate::store::Store;

/// How an HTTP/2 connection begins, as far as needed to tell it from HTTP/1.
const HTTP2_START: &[u8; 3] = b"PRI";
const PEEK_PAUSE: Duration = Duration::from_millis(5);
/// The most bytes of a request's head, and of its headers in HTTP/2. The most headers in HTTP/1 are hyper's own bound,
/// for which it has room without asking for memory.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The most requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;

pub(super) struct Connection<S> {
    pub(super) service: Arc<Service<S>>,
    pub(super) tls: Option<Tls>,
    pub(super) stopped: watch::Receiver<bool>,
}

/// A connection that is open, counted for as long as it is, however it ends.
struct Open<S: Store>(Arc<Service<S>>);

impl<S: Store> Open<S> {
    fn new(service: Arc<Service<S>>) -> Self {
        service.metrics.connections.fetch_add(1, Relaxed);
        Self(service)
    }
}

impl<S: Store> Drop for Open<S> {
    fn drop(&mut self) {
        self.0.metrics.connections.fetch_sub(1, Relaxed);
    }
}

/// A connection, and whether it speaks HTTP/2.
enum Begun {
    Plain(TcpStream, bool),
    Encrypted(Box<TlsStream<TcpStream>>, bool),
}

/// What happens on a connection, as far as its slowness goes.
#[derive(Default)]
struct Watch {
    /// Requests so far.
    requests: AtomicU64,
    /// Requests that are not answered yet.
    in_flight: AtomicU64,
    /// Whether bytes came since the last request was answered. The start of a head that came before is not seen: for
    /// such a client the time without a request is the bound.
    has_begun: AtomicBool,
}

impl<S: Store> Connection<S> {
    pub(super) async fn serve(self, stream: TcpStream) {
        let _open = Open::new(self.service.clone());
        let begun = tokio::select! {
            biased;
            begun = self.begin(stream) => begun,
            // Nothing that came by now was a request.
            () = told_to_stop(self.stopped.clone()) => return,
        };
        // A connection that broke is its client's affair.
        let _ = match begun {
            Ok(Begun::Plain(stream, is_http2)) => self.talk(stream, is_http2).await,
            Ok(Begun::Encrypted(stream, is_http2)) => self.talk(*stream, is_http2).await,
            Err(error) => Err(error),
        };
    }

    /// Finds out what a connection speaks.
    async fn begin(&self, stream: TcpStream) -> io::Result<Begun> {
        stream.set_nodelay(true)?;
        let head_time_max = self.service.settings.head_time_max;
        let too_slow = |_| io::Error::from(io::ErrorKind::TimedOut);
        match &self.tls {
            None => {
                let is_http2 = tokio::time::timeout(head_time_max, is_http2(&stream)).await.map_err(too_slow);
                let is_http2 = is_http2.inspect_err(|_| self.count_slow())??;
                Ok(Begun::Plain(stream, is_http2))
            }
            Some(tls) => {
                let shaken = tokio::time::timeout(head_time_max, tls.accept(stream)).await.map_err(too_slow);
                let (stream, is_http2) = shaken.inspect_err(|_| self.count_slow())??;
                Ok(Begun::Encrypted(Box::new(stream), is_http2))
            }
        }
    }

    fn count_slow(&self) {
        self.service.metrics.connections_closed_slow.fetch_add(1, Relaxed);
    }

    async fn talk(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        is_http2: bool,
    ) -> io::Result<()> {
        let watch = Arc::new(Watch::default());
        let io = TokioIo::new(Watched { stream, watch: watch.clone() });
        let service = self.service.clone();
        let in_request = watch.clone();
        let answer = service_fn(move |request| answer(service.clone(), in_request.clone(), request));
        if is_http2 {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
                .serve_connection(io, answer);
            self.supervise(connection, &watch, false, http2::Connection::graceful_shutdown).await
        } else {
            let connection = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).serve_connection(io, answer);
            self.supervise(connection, &watch, true, http1::Connection::graceful_shutdown).await
        }
    }

    /// Lets a connection go on until it ends, is too slow, or the service stops. A look now and then needs no clock
    /// for each request: what has not moved between two looks is too slow.
    async fn supervise<C: Future<Output = Result<(), hyper::Error>>>(
        self,
        connection: C,
        watch: &Watch,
        has_plain_heads: bool,
        finish: fn(Pin<&mut C>),
    ) -> io::Result<()> {
        tokio::pin!(connection);
        let every = self.service.settings.head_time_max;
        let mut looks = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
        let mut still = Still::default();
        let mut is_finishing = false;
        let mut stopped = std::pin::pin!(told_to_stop(self.stopped.clone()));
        loop {
            tokio::select! {
                // First, for what was sent before the service was told to stop is read before it stops.
                biased;
                ended = &mut connection => return ended.map_err(io::Error::other),
                () = &mut stopped, if !is_finishing => {
                    is_finishing = true;
                    finish(connection.as_mut());
                }
                _ = looks.tick() => {
                    still.look(watch);
                    if has_plain_heads && still.head_time(every) >= every {
                        self.count_slow();
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    if still.idle_time(every) >= self.service.settings.idle_time_max {
                        if is_finishing {
                            return Err(io::ErrorKind::TimedOut.into());
                        }
                        self.service.metrics.connections_closed_idle.fetch_add(1, Relaxed);
                        is_finishing = true;
                        finish(connection.as_mut());
                    }
                }
            }
        }
    }
}

async fn told_to_stop(mut stopped: watch::Receiver<bool>) {
    // Without the sender the service is gone.
    let _ = stopped.wait_for(|is_stopped| *is_stopped).await;
}

/// For how many looks a connection has not moved.
#[derive(Default)]
struct Still {
    requests: u64,
    idle: u32,
    in_head: u32,
}

impl Still {
    fn look(&mut self, watch: &Watch) {
        let requests = watch.requests.load(Relaxed);
        let is_idle = requests == self.requests && watch.in_flight.load(Relaxed) == 0;
        self.requests = requests;
        self.idle = if is_idle { self.idle + 1 } else { 0 };
        self.in_head = if is_idle && watch.has_begun.load(Relaxed) { self.in_head + 1 } else { 0 };
    }

    /// At least how long a head has been on its way: the first look that sees it is no time yet.
    fn head_time(&self, every: Duration) -> Duration {
        every * self.in_head.saturating_sub(1)
    }

    fn idle_time(&self, every: Duration) -> Duration {
        every * self.idle
    }
}

async fn answer<S: Store>(
    service: Arc<Service<S>>,
    watch: Arc<Watch>,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    watch.requests.fetch_add(1, Relaxed);
    let _in_flight = InFlight::new(&watch);
    Ok(respond::respond(&service, request).await)
}

/// Counts a request for as long as it lives, also if it is given up.
struct InFlight<'w>(&'w Watch);

impl<'w> InFlight<'w> {
    fn new(watch: &'w Watch) -> Self {
        watch.in_flight.fetch_add(1, Relaxed);
        Self(watch)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.has_begun.store(false, Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// A client that knows that we speak HTTP/2 begins with a line of its own. Looked at, not taken.
async fn is_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; HTTP2_START.len()];
    loop {
        let seen = stream.peek(&mut start).await?;
        let (start, expected) = (&start[..seen], &HTTP2_START[..seen]);
        if start != expected || seen == 0 {
            return Ok(false);
        }
        if seen == HTTP2_START.len() {
            return Ok(true);
        }
        // What is there is there again at once.
        tokio::time::sleep(PEEK_PAUSE).await;
    }
}

/// A stream that notes when something comes.
struct Watched<T> {
    stream: T,
    watch: Arc<Watch>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.watch.has_begun.store(true, Relaxed);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
