//! Load in the background, for as long as something else goes on: every request on a connection of its own, so that
//! one that fails is Envoy's or the filter's doing and no race about an old connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::fault::Context;
use crate::http::{self, Request};
use crate::{Fault, poll};

/// Requests that are being sent.
#[derive(Debug)]
pub struct Background {
    clients: JoinSet<Tally>,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
}

/// What became of them: how often each status was seen, and what went wrong otherwise.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How often each status was seen.
    pub statuses: BTreeMap<u16, usize>,
    /// How many were let through, by path.
    pub admitted: BTreeMap<String, usize>,
    /// Requests without an answer.
    pub failures: Vec<String>,
}

impl Background {
    /// Starts so many clients, each of which sends the requests that `make` makes, one after another.
    pub fn start<F>(to: SocketAddr, clients: usize, make: F) -> Self
    where
        F: Fn(usize) -> Request + Send + Sync + 'static,
    {
        Self::paced(to, clients, Duration::ZERO, make)
    }

    /// The same, and each client leaves so much between two requests, or more: what was missed is not made up for.
    pub fn paced<F>(to: SocketAddr, clients: usize, pause: Duration, make: F) -> Self
    where
        F: Fn(usize) -> Request + Send + Sync + 'static,
    {
        let (make, stop, sent) =
            (Arc::new(make), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let (make, stop, sent) = (Arc::clone(&make), Arc::clone(&stop), Arc::clone(&sent));
            tasks.spawn(async move {
                let mut tally = Tally::default();
                let mut pace = (!pause.is_zero()).then(|| interval(pause));
                if let Some(pace) = &mut pace {
                    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
                }
                while !stop.load(Ordering::Relaxed) {
                    if let Some(pace) = &mut pace {
                        pace.tick().await;
                    }
                    let request = make(sent.fetch_add(1, Ordering::Relaxed));
                    let path = request.uri().path().to_owned();
                    match http::send(to, request).await {
                        Ok(reply) => {
                            *tally.statuses.entry(reply.status).or_default() += 1;
                            *tally.admitted.entry(path).or_default() += usize::from(reply.status == 200);
                        }
                        Err(fault) => tally.failures.push(fault.to_string()),
                    }
                }
                tally
            });
        }
        Self { clients: tasks, stop, sent }
    }

    /// How many were sent so far.
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Waits until so many more were sent.
    pub async fn goes_on(&self, more: usize) -> Result<(), Fault> {
        let before = self.sent.load(Ordering::Relaxed);
        poll::until("load in the background", async || match self.sent.load(Ordering::Relaxed) - before {
            sent if sent >= more => Ok(()),
            sent => Err(Fault::new(format!("{sent} of {more} sent"))),
        })
        .await
    }

    /// Ends it and says what became of all requests.
    pub async fn stop(mut self) -> Result<Tally, Fault> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        while let Some(tally) = self.clients.join_next().await {
            let tally = tally.context("a client panicked")?;
            all.add(tally);
        }
        Ok(all)
    }
}

impl Tally {
    /// Adds what became of others.
    pub fn add(&mut self, other: Self) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (path, count) in other.admitted {
            *self.admitted.entry(path).or_default() += count;
        }
        self.failures.extend(other.failures);
    }

    /// How many answers had this status.
    pub fn count(&self, status: u16) -> usize {
        self.statuses.get(&status).copied().unwrap_or(0)
    }
}
