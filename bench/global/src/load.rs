//! Load: connections that are kept alive. Each sends the next request when the answer to the last is there and its time
//! has come.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidegate_e2e::Fault;
use tidegate_e2e::fault::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cases::KEY;

/// Different clients. All of them come over every connection, so each is counted by every worker.
pub(crate) const KEYS: usize = 16;
pub(crate) const CONNECTIONS: usize = 16;
/// Between two requests of one connection.
const PACE: Duration = Duration::from_millis(8);
/// All connections together, with that pace.
pub(crate) const PACED_PER_S: u128 = CONNECTIONS as u128 * 1_000 / PACE.as_millis();
/// How much longer than asked a run may take before it is a fault.
const GRACE: Duration = Duration::from_secs(20);

/// How requests come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// One connection, as fast as it is answered.
    One,
    /// Connections that each send at fixed times: a machine with cores to spare.
    Paced,
    /// As many connections, as fast as they are answered: a machine that has no core left.
    Full,
}

impl Load {
    pub(crate) const ALL: [Self; 3] = [Self::One, Self::Paced, Self::Full];

    /// The latency of each request, in nanoseconds.
    pub(crate) async fn run(self, to: SocketAddr, time: Duration) -> Result<Vec<u64>, Fault> {
        let (connections, pace) = match self {
            Self::One => (1, None),
            Self::Paced => (CONNECTIONS, Some(PACE)),
            Self::Full => (CONNECTIONS, None),
        };
        let (begun, mut clients) = (Instant::now(), Vec::new());
        for connection in 0..connections {
            clients.push(tokio::spawn(client(to, connection, begun, time, pace)));
        }
        let all = async {
            let mut latencies = Vec::new();
            for client in clients {
                latencies.extend(client.await.context("a client panicked")??);
            }
            Ok(latencies)
        };
        tokio::time::timeout(time + GRACE, all).await.map_err(|_| Fault::new("an answer never came"))?
    }
}

async fn client(
    to: SocketAddr,
    connection: usize,
    begun: Instant,
    time: Duration,
    pace: Option<Duration>,
) -> Result<Vec<u64>, Fault> {
    let requests: Vec<Vec<u8>> = (0..KEYS).map(request).collect();
    let mut stream = TcpStream::connect(to).await.context("no connection")?;
    stream.set_nodelay(true).context("no connection without delay")?;
    let (mut buffer, mut latencies) = (Vec::with_capacity(1 << 12), Vec::new());
    // They come one after another, not all at once.
    let mut due = begun + pace.unwrap_or_default() * connection as u32 / CONNECTIONS as u32;
    for request in requests.iter().cycle().skip(connection) {
        if let Some(pace) = pace {
            tokio::time::sleep_until(due.into()).await;
            due += pace;
        }
        let sent = Instant::now();
        if sent >= begun + time {
            break;
        }
        stream.write_all(request).await.context("the request was not taken")?;
        read_reply(&mut stream, &mut buffer).await?;
        latencies.push(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(latencies)
}

fn request(key: usize) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nhost: tidegate.test\r\n{KEY}: client-{key}\r\n\r\n").into_bytes()
}

/// Reads a whole response with a declared length, which must be a good one.
async fn read_reply(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(), Fault> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await.context("the response broke off")? == 0 {
            return Err(Fault::new("Envoy closed a connection"));
        }
        if whole_length(buffer)?.is_some_and(|length| buffer.len() >= length) {
            return Ok(());
        }
    }
}

/// How long head and body are together, once the head is there.
fn whole_length(buffer: &[u8]) -> Result<Option<usize>, Fault> {
    let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&buffer[..end]);
    if !head.starts_with("HTTP/1.1 200") {
        return Err(Fault::new(format!("a request was not let through:\n{head}")));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.ok_or_else(|| Fault::new(format!("a response without a length:\n{head}")))?;
    Ok(Some(end + 4 + length.parse::<usize>().context("the length of a response")?))
}
