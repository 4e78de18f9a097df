//! Load: many requests over a few keep-alive connections at once, as fast as they are answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Fault;
use crate::fault::Context;
use crate::http::{self, DEADLINE, Request};

/// The status of every answer, in the order of the requests.
#[derive(Clone, Debug)]
pub struct Answers(Vec<u16>);

impl Answers {
    /// How many had this status.
    pub fn count(&self, status: u16) -> usize {
        self.0.iter().filter(|&&seen| seen == status).count()
    }

    /// How many were neither let through (200) nor limited (429).
    pub fn strange(&self) -> usize {
        self.0.len() - self.count(200) - self.count(429)
    }

    /// The status of request `index`.
    pub fn status(&self, index: usize) -> u16 {
        self.0[index]
    }

    /// How many were let through in each group of `size` consecutive requests.
    pub fn admitted_per_group(&self, size: usize) -> Vec<usize> {
        self.0.chunks(size).map(|group| group.iter().filter(|&&status| status == 200).count()).collect()
    }
}

/// Sends requests `0..total`, made by `make`, over this many connections. Each connection takes the next
/// number as soon as it has its answer, so neighbouring numbers are in flight at once.
pub async fn run<F>(to: SocketAddr, connections: usize, total: usize, make: F) -> Result<Answers, Fault>
where
    F: Fn(usize) -> Request + Send + Sync + 'static,
{
    let read = |answer: &Response<Incoming>| answer.status().as_u16();
    run_reading(to, connections, total, make, read).await.map(Answers)
}

/// The same, and gives what `read` takes from each answer.
pub async fn run_reading<T, F, R>(
    to: SocketAddr,
    connections: usize,
    total: usize,
    make: F,
    read: R,
) -> Result<Vec<T>, Fault>
where
    T: Send + 'static,
    F: Fn(usize) -> Request + Send + Sync + 'static,
    R: Fn(&Response<Incoming>) -> T + Send + Sync + 'static,
{
    let (make, read, next) = (Arc::new(make), Arc::new(read), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (make, read, next) = (Arc::clone(&make), Arc::clone(&read), Arc::clone(&next));
        clients.spawn(async move {
            let mut connection = http::connect(to).await?;
            let mut seen = Vec::with_capacity(total / connections + 1);
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= total {
                    return Ok(seen);
                }
                let answer = async {
                    connection.ready().await.context("the connection closed")?;
                    let response =
                        connection.send_request(make(index)).await.context("the request failed")?;
                    let read = read(&response);
                    response.collect().await.context("the response broke off")?;
                    Ok::<_, Fault>(read)
                };
                match timeout(DEADLINE, answer).await {
                    Ok(read) => seen.push((index, read.context(&format!("request {index}"))?)),
                    Err(_) => return Err(Fault::new(format!("request {index} was never answered"))),
                }
            }
        });
    }
    let mut answers = Vec::with_capacity(total);
    while let Some(client) = clients.join_next().await {
        answers.extend(client.context("a client panicked")??);
    }
    answers.sort_unstable_by_key(|(index, _)| *index);
    Ok(answers.into_iter().map(|(_, read)| read).collect())
}
