//! Load: many requests over a few keep-alive connections at once, as fast as they are answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
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
    let (make, next) = (Arc::new(make), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (make, next) = (Arc::clone(&make), Arc::clone(&next));
        clients.spawn(async move {
            let mut connection = http::connect(to).await?;
            let mut statuses = Vec::with_capacity(total / connections + 1);
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= total {
                    return Ok(statuses);
                }
                let answer = async {
                    connection.ready().await.context("the connection closed")?;
                    let response =
                        connection.send_request(make(index)).await.context("the request failed")?;
                    let status = response.status().as_u16();
                    response.collect().await.context("the response broke off")?;
                    Ok::<_, Fault>(status)
                };
                match timeout(DEADLINE, answer).await {
                    Ok(status) => statuses.push((index, status.context(&format!("request {index}"))?)),
                    Err(_) => return Err(Fault::new(format!("request {index} was never answered"))),
                }
            }
        });
    }
    let mut statuses = vec![0; total];
    while let Some(client) = clients.join_next().await {
        for (index, status) in client.context("a client panicked")?? {
            statuses[index] = status;
        }
    }
    Ok(Answers(statuses))
}
