//! A forwarder between the store and a server, which a test makes slow, deaf or switches to another server.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const PIECE_BYTES_MAX: usize = 65_536;

/// Forwards what comes to its address.
pub(crate) struct Forwarder {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    target: Mutex<String>,
    delay_ms: AtomicU64,
    /// The most bytes of answers that are forwarded at once.
    piece_bytes: AtomicUsize,
    swallows_answers: AtomicBool,
    connections: Mutex<Vec<JoinHandle<()>>>,
}

impl Forwarder {
    pub(crate) async fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let shared = Arc::new(Shared {
            target: Mutex::new(target.to_owned()),
            delay_ms: AtomicU64::new(0),
            piece_bytes: AtomicUsize::new(PIECE_BYTES_MAX),
            swallows_answers: AtomicBool::new(false),
            connections: Mutex::new(Vec::new()),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// New connections go there; those that are open stay.
    pub(crate) fn switch_to(&self, target: &str) {
        target.clone_into(&mut self.shared.target.lock().expect("no panic"));
    }

    /// Each answer comes so much later.
    pub(crate) fn delay_answers(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).expect("short");
        self.shared.delay_ms.store(ms, Ordering::SeqCst);
    }

    /// Answers come in pieces of so many bytes, each after the delay: whatever is asked waits for all answers before its
    /// own, of which one comes now and then.
    pub(crate) fn answer_in_pieces(&self, bytes: usize) {
        self.shared.piece_bytes.store(bytes, Ordering::SeqCst);
    }

    /// What the server answers gets lost.
    pub(crate) fn swallow_answers(&self, swallows: bool) {
        self.shared.swallows_answers.store(swallows, Ordering::SeqCst);
    }

    /// How many connections were ever made.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.lock().expect("no panic").len()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
        for connection in self.shared.connections.lock().expect("no panic").drain(..) {
            connection.abort();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let target = shared.target.lock().expect("no panic").clone();
        let forward = forward(client, target, Arc::clone(&shared));
        shared.connections.lock().expect("no panic").push(tokio::spawn(forward));
    }
}

async fn forward(client: TcpStream, target: String, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        () = questions(client_read, server_write) => {}
        () = answers(server_read, client_write, &shared) => {}
    }
}

async fn questions(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let mut bytes = vec![0; PIECE_BYTES_MAX];
    while let Ok(count @ 1..) = from.read(&mut bytes[..shared.piece_bytes.load(Ordering::SeqCst)]).await {
        tokio::time::sleep(Duration::from_millis(shared.delay_ms.load(Ordering::SeqCst))).await;
        if !shared.swallows_answers.load(Ordering::SeqCst) && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
