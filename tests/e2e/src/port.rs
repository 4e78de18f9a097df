//! Ports for servers that come back where they were.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::Fault;

/// Below what Linux gives to connections: no connection may take the port of a server that is away for a moment, nor
/// be connected to itself there.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;
const TRIED_MAX: u16 = 1_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// An address of this machine where nobody listens.
pub(crate) fn free() -> Result<SocketAddr, Fault> {
    // Two processes that test at once begin at different places.
    let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
    for _ in 0..TRIED_MAX {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + offset));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(Fault::new("no free port"))
}
