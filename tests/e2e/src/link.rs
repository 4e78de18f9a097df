//! The way between a proxy and the counter, which a test can freeze and cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Fault;
use crate::fault::Context;

const BUFFER_BYTES: usize = 16 * 1024;
/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 256;

/// How the way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All passes.
    Open,
    /// Nothing passes, and nobody is told; what was sent meanwhile arrives when it is open again.
    Frozen,
    /// Connections are reset, old ones and new ones.
    Cut,
}

/// A forwarder of TCP connections. Dropping it resets them.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    way: watch::Sender<Way>,
    accepted: Arc<AtomicU64>,
    cuts: Arc<AtomicU64>,
    _accepting: JoinSet<()>,
}

impl Link {
    /// Starts it on a free port.
    pub async fn to(target: SocketAddr) -> Result<Self, Fault> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port for the link")?;
        let address = listener.local_addr().context("the link has no address")?;
        let (way, seen) = watch::channel(Way::Open);
        let (accepted, cuts) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, target, seen, (Arc::clone(&accepted), Arc::clone(&cuts))));
        Ok(Self { address, way, accepted, cuts, _accepting: accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the way.
    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// How many connections came.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// How many connections were reset.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    way: watch::Receiver<Way>,
    (accepted, cuts): (Arc<AtomicU64>, Arc<AtomicU64>),
) {
    let mut carrying = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::Relaxed);
        if carrying.len() >= CONNECTIONS_MAX {
            carrying.join_next().await;
        }
        while carrying.try_join_next().is_some() {}
        carrying.spawn(carry(client, target, way.clone(), Arc::clone(&cuts)));
    }
}

async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    mut way: watch::Receiver<Way>,
    cuts: Arc<AtomicU64>,
) {
    let mut cut = way.clone();
    let carried = async {
        way.wait_for(|way| *way != Way::Frozen).await.ok()?;
        let mut server = TcpStream::connect(target).await.ok()?;
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::join!(pump(from_client, to_server, way.clone()), pump(from_server, to_client, way.clone()));
        Some(())
    };
    tokio::select! {
        _ = carried => {}
        _ = cut.wait_for(|way| *way == Way::Cut) => {
            cuts.fetch_add(1, Ordering::Relaxed);
        }
    }
    // Whoever waits at the other end hears of it at once.
    let _ = client.set_zero_linger();
}

async fn pump<R, W>(mut from: R, mut to: W, mut way: watch::Receiver<Way>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if way.wait_for(|way| *way == Way::Open).await.is_err() {
            return;
        }
        if to.write_all(buffer.get(..length).unwrap_or_default()).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
