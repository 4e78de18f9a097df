//! Between proxies and a counter: reads along, and answers in the counter's place when a test says so.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tidegate_config::wire::{Act, Answer, Batch, Sender};
use tidegate_config::{RuleLimit, WhenFull};
use tidegate_core::Manner;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::Fault;
use crate::fault::Context;

/// The most calls that are remembered: a test that makes more has gone astray.
const CALLS_MAX: usize = 200_000;

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// The counter answers it.
    Pass,
    /// It waits until the script says something else, which then happens to it.
    Hold,
    /// The counter answers, but the caller never hears of it: the connection ends.
    Lose,
    /// The connection ends, and the counter is not asked.
    HangUp,
    /// This status and this body, whatever the question; the counter is not asked.
    Say(u16, Bytes),
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// When it came.
    pub at: Instant,
    /// The fleet that it is about.
    pub namespace: String,
    /// Who sent it.
    pub sender: Option<Sender>,
    /// How many groups it had.
    pub groups: usize,
    /// Its takes, in order.
    pub takes: Vec<Take>,
    /// Whether it is still under way. One whose caller is gone is, until the counter has answered.
    pub is_open: bool,
    /// The epoch of the counter's answer; none if the counter was not asked or did not answer well.
    pub epoch: Option<u64>,
}

/// One take or refund of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The rule's name.
    pub rule: String,
    /// The limit, as it travels.
    pub limit: RuleLimit,
    /// The key, as it travels.
    pub key: Vec<u8>,
    /// Where it begins in a full store.
    pub when_full: WhenFull,
    /// What was asked.
    pub manner: Ask,
    /// How much was asked for, or given back.
    pub n: u64,
    /// How much the counter gave; none without an answer.
    pub taken: Option<u64>,
}

/// What a take asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// All or nothing.
    All,
    /// As much as there is.
    Some,
    /// All, into debt if need be.
    Force,
    /// It gave back.
    Refund,
}

/// A running relay. Dropping it stops it.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    script: watch::Sender<Script>,
    calls: Arc<Mutex<Vec<Call>>>,
    accepting: AbortHandle,
}

#[derive(Clone)]
struct Inner {
    counter: SocketAddr,
    script: watch::Receiver<Script>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Relay {
    /// Starts it in front of a counter, on a free port.
    pub async fn to(counter: SocketAddr) -> Result<Self, Fault> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port for the relay")?;
        let address = listener.local_addr().context("the relay has no address")?;
        let (script, read) = watch::channel(Script::Pass);
        let calls = Arc::new(Mutex::new(Vec::new()));
        let inner = Inner { counter, script: read, calls: Arc::clone(&calls) };
        let accepting = tokio::spawn(accept(listener, inner)).abort_handle();
        Ok(Self { address, script, calls, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What happens to calls from now on, and to those that are held.
    pub fn set(&self, script: Script) {
        self.script.send_replace(script);
    }

    /// How many calls came.
    pub fn call_count(&self) -> usize {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// All calls from number `first` on.
    pub fn calls_from(&self, first: usize) -> Vec<Call> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get(first..).unwrap_or_default().to_vec()
    }

    /// All calls.
    pub fn calls(&self) -> Vec<Call> {
        self.calls_from(0)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, inner: Inner) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let (inner, onward) = (inner.clone(), Arc::new(tokio::sync::Mutex::new(None)));
        let service = service_fn(move |request| {
            let (inner, onward) = (inner.clone(), Arc::clone(&onward));
            async move { inner.answer(request, &onward).await }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

type Onward = tokio::sync::Mutex<Option<SendRequest<Full<Bytes>>>>;

/// Ends the connection without an answer, which is what an error of the service does.
#[derive(Debug)]
struct NoAnswer;

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no answer")
    }
}

impl std::error::Error for NoAnswer {}

impl From<Infallible> for NoAnswer {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl Inner {
    async fn answer(
        mut self,
        request: Request<Incoming>,
        onward: &Arc<Onward>,
    ) -> Result<Response<Full<Bytes>>, NoAnswer> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| NoAnswer)?.to_bytes();
        let open = self.record(&body)?;
        let script =
            self.script.wait_for(|script| *script != Script::Hold).await.map_err(|_| NoAnswer)?.clone();
        match script {
            Script::Hold | Script::HangUp => Err(NoAnswer),
            Script::Say(status, body) => {
                let response = Response::builder().status(status).header("content-type", "text/plain");
                response.body(Full::new(body)).map_err(|_| NoAnswer)
            }
            Script::Pass | Script::Lose => {
                let request = Request::from_parts(head, Full::new(body));
                // Of its own, so that what the counter says is noted even if the caller is gone by then.
                let (counter, onward) = (self.counter, Arc::clone(onward));
                let asking = tokio::spawn(async move {
                    let response = ask(counter, request, &onward).await?;
                    open.note(&response.body().clone().collect().await?.to_bytes());
                    Ok::<_, NoAnswer>(response)
                });
                let response = asking.await.map_err(|_| NoAnswer)??;
                if script == Script::Lose { Err(NoAnswer) } else { Ok(response) }
            }
        }
    }

    fn record(&self, body: &[u8]) -> Result<Open, NoAnswer> {
        let batch = Batch::from_postcard(body).map_err(|_| NoAnswer)?;
        let takes = batch.groups.iter().flat_map(|group| &group.takes).map(|take| Take {
            rule: take.rule.clone().into_owned(),
            limit: take.limit,
            key: take.key.to_vec(),
            when_full: take.when_full,
            manner: match take.act {
                Act::Take(Manner::All) => Ask::All,
                Act::Take(Manner::Some) => Ask::Some,
                Act::Take(Manner::Force) => Ask::Force,
                Act::Refund { .. } => Ask::Refund,
            },
            n: take.n.get(),
            taken: None,
        });
        let call = Call {
            at: Instant::now(),
            namespace: batch.namespace.clone().into_owned(),
            sender: batch.sender,
            groups: batch.groups.len(),
            takes: takes.collect(),
            is_open: true,
            epoch: None,
        };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() >= CALLS_MAX {
            return Err(NoAnswer);
        }
        calls.push(call);
        Ok(Open { calls: Arc::clone(&self.calls), number: calls.len() - 1 })
    }
}

/// A call that is under way. Dropping it ends it.
struct Open {
    calls: Arc<Mutex<Vec<Call>>>,
    number: usize,
}

impl Open {
    fn note(&self, body: &[u8]) {
        let Ok(answer) = Answer::from_postcard(body) else { return };
        self.change(|call| {
            call.epoch = Some(answer.epoch);
            let outcomes = answer.groups.iter().flat_map(|group| &group.takes);
            for (take, outcome) in call.takes.iter_mut().zip(outcomes) {
                take.taken = Some(outcome.taken);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Call)) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = calls.get_mut(self.number) {
            change(call);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.change(|call| call.is_open = false);
    }
}

/// Asks the counter, on the connection that belongs to the caller's.
async fn ask(
    counter: SocketAddr,
    request: Request<Full<Bytes>>,
    onward: &Onward,
) -> Result<Response<Full<Bytes>>, NoAnswer> {
    let mut onward = onward.lock().await;
    let is_ready = match onward.as_mut() {
        Some(connection) => connection.ready().await.is_ok(),
        None => false,
    };
    if !is_ready {
        let stream = TcpStream::connect(counter).await.map_err(|_| NoAnswer)?;
        let _ = stream.set_nodelay(true);
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (connection, driver) = handshake.map_err(|_| NoAnswer)?;
        tokio::spawn(driver);
        *onward = Some(connection);
    }
    let connection = onward.as_mut().ok_or(NoAnswer)?;
    let response = connection.send_request(request).await.map_err(|_| NoAnswer)?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|_| NoAnswer)?.to_bytes();
    Ok(Response::from_parts(head, Full::new(body)))
}
