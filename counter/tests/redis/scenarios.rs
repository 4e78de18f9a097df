//! The scenarios of every store, on a server for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_counter::store::redis::RedisStore;

use crate::outages::options;
use crate::server::Server;
use crate::suite::{self, Home};

const START_MS: u64 = 1_790_000_000_000;

struct OnRedis {
    now_ms: Arc<AtomicU64>,
    store: RedisStore,
    _server: Server,
}

impl Home for OnRedis {
    type Store = RedisStore;

    fn store(&self) -> &RedisStore {
        &self.store
    }

    fn advance_ms(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

async fn home(_name: &str) -> OnRedis {
    let server = Server::start();
    let now_ms = Arc::new(AtomicU64::new(START_MS));
    let options = options(&server.url()).with_test_clock(Arc::clone(&now_ms));
    OnRedis { now_ms, store: RedisStore::connect(&options).await.expect("connected"), _server: server }
}

crate::scenarios!(home);
