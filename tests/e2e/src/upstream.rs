//! A small server to stand behind Envoy.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::Fault;
use crate::fault::Context;

/// A running server that greets everybody. Dropping it stops it.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    served: Arc<AtomicU64>,
    accepting: AbortHandle,
}

impl Upstream {
    /// Starts it on a free port.
    pub async fn start() -> Result<Self, Fault> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port for the upstream")?;
        let address = listener.local_addr().context("the upstream has no address")?;
        let served = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&served))).abort_handle();
        Ok(Self { address, served, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests reached it.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, served: Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        let served = Arc::clone(&served);
        let greet = service_fn(move |_| {
            served.fetch_add(1, Ordering::Relaxed);
            async {
                let greeting = Full::new(Bytes::from_static(b"Hello from the upstream.\n"));
                Ok::<_, Infallible>(hyper::Response::new(greeting))
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), greet));
    }
}
