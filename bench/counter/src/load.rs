//! Load: connections that each send the next request when the answer to the last is there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cases::{self, Case};

pub(crate) struct Loaded {
    pub(crate) latencies_us: Vec<u32>,
    pub(crate) took: Duration,
}

impl Loaded {
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default().into()
    }
}

pub(crate) async fn run(port: u16, case: &Case, connections: usize, time: Duration) -> Loaded {
    let requests: Arc<[Vec<u8>]> = case.requests().into();
    let mut tasks = Vec::new();
    let begun = Instant::now();
    for connection in 0..connections {
        let requests = requests.clone();
        tasks.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            let mut buffer = Vec::with_capacity(1 << 16);
            let mut latencies = Vec::new();
            for request in requests.iter().cycle().skip(connection * 8) {
                let sent = Instant::now();
                if sent - begun >= time {
                    break;
                }
                stream.write_all(request).await.expect("sent");
                read_reply(&mut stream, &mut buffer).await;
                latencies.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
            latencies
        }));
    }
    // Without this the load sleeps now and then, the more the slower the server is, and waking it is on the server's bill.
    let awake = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let mut latencies_us = Vec::new();
    for task in tasks {
        latencies_us.extend(task.await.expect("no panic"));
    }
    awake.abort();
    Loaded { latencies_us, took: begun.elapsed() }
}

/// Fills the logs: entries are of different milliseconds.
pub(crate) async fn fill_logs(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
    let (request, mut buffer) = (cases::logs_request(), Vec::new());
    // Some may fall into one millisecond.
    for _ in 0..cases::LOG_ENTRIES * 5 / 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        stream.write_all(&request).await.expect("sent");
        read_reply(&mut stream, &mut buffer).await;
    }
}

/// Reads a whole response with a declared length, which must be a good one.
async fn read_reply(stream: &mut TcpStream, buffer: &mut Vec<u8>) {
    buffer.clear();
    let mut whole = None;
    loop {
        assert!(stream.read_buf(buffer).await.expect("a reply") > 0, "closed");
        if whole.is_none()
            && let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n")
        {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            assert!(head.starts_with("http/1.1 200"), "{}", String::from_utf8_lossy(buffer));
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            whole = Some(end + 4 + length.and_then(|length| length.parse::<usize>().ok()).expect("a length"));
        }
        if whole.is_some_and(|whole| buffer.len() >= whole) {
            return;
        }
    }
}
