//! Several Envoys with one configuration, and load on all of them at once.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::MutexGuard;
use tokio::task::JoinSet;

use crate::envoy::turn;
use crate::fault::Context;
use crate::http::Request;
use crate::load::{self, Answers};
use crate::{Envoy, Fault, Setup};

/// The most proxies of a fleet: more would only fight over the machine's cores.
const PROXIES_MAX: usize = 4;

/// Running Envoys, each with shared data and ports of its own. Dropping it stops them.
#[derive(Debug)]
pub struct Fleet {
    /// They go before the turn does.
    envoys: Vec<Envoy>,
    _turn: MutexGuard<'static, ()>,
}

/// The answers of a fleet, by proxy.
#[derive(Clone, Debug)]
pub struct FleetAnswers(Vec<Answers>);

impl Fleet {
    /// Starts so many Envoys, all alike.
    pub async fn start(setup: &Setup, proxies: usize) -> Result<Self, Fault> {
        Self::start_each(vec![setup.clone(); proxies]).await
    }

    /// Starts an Envoy for each of these.
    pub async fn start_each(setups: Vec<Setup>) -> Result<Self, Fault> {
        if setups.len() > PROXIES_MAX {
            return Err(Fault::new(format!("a fleet has {PROXIES_MAX} proxies at most")));
        }
        let turn = turn().await;
        let mut envoys = Vec::with_capacity(setups.len());
        for setup in setups {
            envoys.push(Envoy::start_beside(setup, &turn).await?);
        }
        Ok(Self { envoys, _turn: turn })
    }

    /// The Envoys.
    pub fn envoys(&self) -> &[Envoy] {
        &self.envoys
    }

    /// One of the Envoys.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn envoy(&mut self, proxy: usize) -> &mut Envoy {
        &mut self.envoys[proxy]
    }

    /// Where requests go.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.envoys.iter().map(Envoy::address).collect()
    }

    /// Sends so many requests to each proxy over so many connections to each, to all of them at once.
    pub async fn hammer<F>(&self, connections: usize, requests: usize, make: F) -> Result<FleetAnswers, Fault>
    where
        F: Fn(usize) -> Request + Send + Sync + 'static,
    {
        hammer(&self.addresses(), connections, requests, make).await
    }
}

/// The same for some proxies only.
pub async fn hammer<F>(
    to: &[SocketAddr],
    connections: usize,
    requests: usize,
    make: F,
) -> Result<FleetAnswers, Fault>
where
    F: Fn(usize) -> Request + Send + Sync + 'static,
{
    let make = Arc::new(make);
    let mut loads = JoinSet::new();
    for (proxy, &address) in to.iter().enumerate() {
        let make = Arc::clone(&make);
        loads.spawn(async move {
            load::run(address, connections, requests, move |index| make(index))
                .await
                .map(|seen| (proxy, seen))
        });
    }
    let mut answers = Vec::with_capacity(to.len());
    while let Some(seen) = loads.join_next().await {
        answers.push(seen.context("a load panicked")??);
    }
    answers.sort_by_key(|(proxy, _)| *proxy);
    Ok(FleetAnswers(answers.into_iter().map(|(_, seen)| seen).collect()))
}

impl FleetAnswers {
    /// How many of all answers had this status.
    pub fn count(&self, status: u16) -> usize {
        self.0.iter().map(|answers| answers.count(status)).sum()
    }

    /// How many of each proxy's answers had this status.
    pub fn count_each(&self, status: u16) -> Vec<usize> {
        self.0.iter().map(|answers| answers.count(status)).collect()
    }

    /// How many were neither let through (200) nor limited (429).
    pub fn strange(&self) -> usize {
        self.0.iter().map(Answers::strange).sum()
    }
}
