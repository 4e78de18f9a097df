//! Ports for servers that come back where they were.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::Fault;

/// Below what Linux gives to connections: no connection may take the port of a server that is away for a moment, nor
/// be connected to itself there.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;
const TRIED_MAX: u16 = 1_000;
/// How often a server is started elsewhere because somebody was faster.
const STARTS_MAX: usize = 5;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port for one server, also while that is away. Other tests, of this process or another, do not get it.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    /// The same number, where our servers do not listen: this is how others see that it is taken.
    _claim: UdpSocket,
}

impl Port {
    /// One where nobody listens.
    pub(crate) fn free() -> Result<Self, Fault> {
        // Two processes that test at once begin at different places.
        let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
        for _ in 0..TRIED_MAX {
            let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + offset));
            let Ok(claim) = UdpSocket::bind(address) else { continue };
            if TcpListener::bind(address).is_ok() {
                return Ok(Self { address, _claim: claim });
            }
        }
        Err(Fault::new("no free port"))
    }

    /// The address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Starts a server on a free port, and on another if it does not start because somebody who knows nothing of claims was
/// faster.
pub(crate) async fn start<T>(mut server: impl AsyncFnMut(Port) -> Result<T, Fault>) -> Result<T, Fault> {
    let mut tried = 1;
    loop {
        let port = Port::free()?;
        let address = port.address();
        match server(port).await {
            Err(_) if tried < STARTS_MAX && TcpListener::bind(address).is_err() => tried += 1,
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_out_once() {
        let port = Port::free().unwrap();
        assert!(UdpSocket::bind(port.address()).is_err(), "it is claimed");
        assert!(TcpListener::bind(port.address()).is_ok(), "and free for the server");
    }

    #[tokio::test]
    async fn a_server_whose_port_is_taken_is_started_elsewhere() {
        let mut thieves = Vec::new();
        let address = start(async |port: Port| {
            if thieves.len() < 2 {
                thieves.push(TcpListener::bind(port.address()).expect("free until now"));
            }
            TcpListener::bind(port.address())
                .map(|_| port.address())
                .map_err(|error| Fault::new(error.to_string()))
        })
        .await
        .unwrap();
        assert!(thieves.iter().all(|thief| thief.local_addr().expect("an address") != address));
    }
}
