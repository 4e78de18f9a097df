//! Clients that wait for an answer, or do not wait for it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fault::Context;
use crate::http::DEADLINE;
use crate::{Envoy, Fault, poll};

/// The most that may be waiting at once: each is an open file here and another in Envoy.
const CLIENTS_MAX: usize = 600;
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// A client that has sent its request and has not read the answer. Dropping it leaves.
#[derive(Debug)]
pub struct Client(TcpStream);

impl Client {
    /// Sends a GET with one header.
    async fn send(mut stream: TcpStream, path: &str, header: (&str, &str)) -> Result<Self, Fault> {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: tidegate.test\r\n{}: {}\r\n\r\n", header.0, header.1);
        stream.write_all(request.as_bytes()).await.context("the request was not taken")?;
        Ok(Self(stream))
    }

    /// Waits for the status of the answer; 0 if the connection ends without one.
    pub async fn status(mut self) -> Result<u16, Fault> {
        let mut seen = Vec::new();
        let reading = async {
            let mut buffer = [0; 1_024];
            while !seen.windows(4).any(|end| end == b"\r\n\r\n") && seen.len() < ANSWER_BYTES_MAX {
                match self.0.read(&mut buffer).await {
                    Ok(length @ 1..) => seen.extend_from_slice(buffer.get(..length).unwrap_or_default()),
                    _ => break,
                }
            }
        };
        timeout(DEADLINE, reading).await.map_err(|_| Fault::new("a client waits in vain"))?;
        let head = String::from_utf8_lossy(&seen);
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        Ok(status.unwrap_or(0))
    }
}

/// Sends so many requests, each on a connection of its own, and waits until Envoy has them all under way.
pub async fn crowd(
    envoy: &Envoy,
    path: &str,
    header: &str,
    clients: usize,
    value: impl Fn(usize) -> String,
) -> Result<Vec<Client>, Fault> {
    if clients > CLIENTS_MAX {
        return Err(Fault::new(format!("at most {CLIENTS_MAX} may wait at once")));
    }
    let before = active(envoy).await?;
    // All are connected before the first one asks: from then on the filter's patience with the counter runs.
    let mut streams = Vec::with_capacity(clients);
    for _ in 0..clients {
        streams.push(TcpStream::connect(envoy.address()).await.context("no connection")?);
    }
    let mut crowd = Vec::with_capacity(clients);
    for (client, stream) in streams.into_iter().enumerate() {
        crowd.push(Client::send(stream, path, (header, &value(client))).await?);
    }
    are_active(envoy, before + clients as u64).await?;
    Ok(crowd)
}

/// Waits until Envoy has so many requests under way.
pub async fn are_active(envoy: &Envoy, requests: u64) -> Result<(), Fault> {
    poll::until(&format!("{requests} requests under way"), async || match active(envoy).await? {
        seen if seen == requests => Ok(()),
        seen => Err(Fault::new(seen.to_string())),
    })
    .await
}

async fn active(envoy: &Envoy) -> Result<u64, Fault> {
    envoy.counter("http.edge.downstream_rq_active").await
}
