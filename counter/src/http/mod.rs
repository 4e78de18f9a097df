//! The service over HTTP/1.1 and HTTP/2, with and without TLS.

mod connection;
mod respond;
mod tls;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_config::wire::PROBLEM_JSON;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use tls::{Tls, TlsError};

use crate::service::Service;
use crate::store::Store;
use connection::Connection;

/// How long to wait after a connection could not be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// For how long connections are still accepted and read after the word to stop: what was sent before it is seen by
/// then, and `/readyz` tells whoever asks.
const STOP_PAUSE: Duration = Duration::from_millis(200);

/// Serves on a listener until `shutdown` is done and a moment more; then accepts no more, answers every request that
/// it has begun to read, and returns.
pub async fn run<S: Store>(
    listener: TcpListener,
    service: Service<S>,
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
) {
    let service = Arc::new(service);
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let files = service.clone();
    let files = tokio::spawn(async move { files.watch_files().await });
    let told = service.clone();
    let stopping = async move {
        shutdown.await;
        told.stop();
        tokio::time::sleep(STOP_PAUSE).await;
    };
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            () = &mut stopping => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if connections.len() >= service.settings.connections_max {
                        service.metrics.connections_refused.fetch_add(1, Relaxed);
                        if tls.is_none() {
                            refuse(&stream);
                        }
                    } else {
                        let connection = Connection { service: service.clone(), tls: tls.clone(), stopped: stopped.clone() };
                        connections.spawn(connection.serve(stream));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    // Receivers that are gone need no news.
    let _ = stop.send(true);
    let open = connections.len();
    tracing::info!(open, "stopping: open connections are answered and closed");
    let all_closed = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(service.settings.stop_time_max, all_closed).await.is_err() {
        tracing::warn!(left = connections.len(), "stopping: the time is over, the rest is cut off");
    }
    files.abort();
}

/// Tells a connection that is one too many so, without waiting for it. It must not be encrypted: there a word would
/// need a handshake first.
fn refuse(stream: &TcpStream) {
    const DETAIL: &str = r#"{"type":"urn:tidegate:problem:too_many_connections","title":"Too many connections","status":503,"detail":"the service has as many open connections as it keeps; come back later, or reuse one"}"#;
    let text = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\nretry-after: \
         1\r\nconnection: close\r\n\r\n{DETAIL}",
        DETAIL.len()
    );
    let read_what_is_there: io::Result<usize> = stream.try_read(&mut [0; 4_096]);
    // Whether it listens is its own affair.
    let _ = (read_what_is_there, stream.try_write(text.as_bytes()));
}
