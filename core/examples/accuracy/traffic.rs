//! Traffic made from a seed.

/// What the made traffic is limited to, per minute.
pub(crate) const LIMIT: u64 = 100;

const START_MS: u64 = 1_700_000_000_000;
const MINUTE_MS: u64 = 60_000;
const MINUTES: u64 = 60;
const CLIENTS: u64 = 200;

/// A request of a client.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) at_ms: u64,
    pub(crate) client: u64,
}

pub(crate) fn all() -> [(&'static str, Vec<Request>); 4] {
    [
        ("steady", by_client(steady)),
        ("Poisson", by_client(poisson)),
        ("bursts at the edges", by_client(bursts_at_the_edges)),
        ("mostly quiet", by_client(mostly_quiet)),
    ]
}

/// One request after another, at the same distance: clients from half to one and a half times the limit.
fn steady(client: u64, _random: &mut Random) -> Vec<u64> {
    let step_ms = MINUTE_MS / around_the_limit(client);
    (0..MINUTES * MINUTE_MS / step_ms).map(|index| START_MS + client + index * step_ms).collect()
}

/// The same rates, at random.
fn poisson(client: u64, random: &mut Random) -> Vec<u64> {
    arrivals(around_the_limit(client), random)
}

/// Clients who send their whole minute's share within the second around each full minute: the worst case for
/// windows that begin on the clock, and a hard one for those that weigh.
fn bursts_at_the_edges(client: u64, random: &mut Random) -> Vec<u64> {
    let per_minute = around_the_limit(client);
    let burst = |minute: u64, random: &mut Random| {
        let edge_ms = START_MS - START_MS % MINUTE_MS + minute * MINUTE_MS;
        (0..per_minute).map(|_| edge_ms - 500 + random.below(1_000)).collect::<Vec<_>>()
    };
    (1..=MINUTES).flat_map(|minute| burst(minute, random)).collect()
}

/// As most traffic is: nearly all clients far below their limit, one in fifty above it.
fn mostly_quiet(client: u64, random: &mut Random) -> Vec<u64> {
    let per_minute = if client.is_multiple_of(50) { 2 * LIMIT } else { 1 + client % 20 };
    arrivals(per_minute, random)
}

fn around_the_limit(client: u64) -> u64 {
    LIMIT / 2 + client * LIMIT / CLIENTS
}

fn arrivals(per_minute: u64, random: &mut Random) -> Vec<u64> {
    (0..per_minute * MINUTES).map(|_| START_MS + random.below(MINUTES * MINUTE_MS)).collect()
}

fn by_client(times: impl Fn(u64, &mut Random) -> Vec<u64>) -> Vec<Request> {
    let mut random = Random(0x7169_6465_6761_7465);
    let mut requests: Vec<Request> = (0..CLIENTS)
        .flat_map(|client| {
            let at = times(client, &mut random);
            at.into_iter().map(move |at_ms| Request { at_ms, client })
        })
        .collect();
    requests.sort_by_key(|request| (request.at_ms, request.client));
    requests
}

/// `SplitMix64`: small, seeded, good enough to scatter arrivals.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
