//! By how much a fleet that syncs passes its limit, measured.

use std::fmt::Write;
use std::time::Instant;

use serde_json::json;

use crate::setup::COUNTER_CLUSTER;
use crate::{Counter, Fault, Fleet, Ledger, Relay, Setup, http, poll, window};

const RULE: &str = "synced";
const KEY: &str = "x-key";
const CONNECTIONS_EACH: usize = 8;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// So many proxies.
    pub proxies: usize,
    /// How often they sync.
    pub sync_every_ms: u64,
}

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Overshoot {
    /// What was measured.
    pub case: Case,
    /// The limit of the one key, in an hour.
    pub limit: usize,
    /// How many requests the fleet got.
    pub sent: usize,
    /// How many the fleet admitted.
    pub admitted: usize,
    /// How many of them the counter was told of.
    pub reported: u64,
    /// How many more it admitted when all was told.
    pub admitted_afterwards: usize,
    /// How many the fleet answered in one interval, about.
    pub answered_per_interval: u128,
}

/// All proxies of a fleet get twice `limit` requests of one key, as fast as they answer: one alone could use it up, and has
/// to stop by itself.
pub async fn measure(case: Case, limit: usize) -> Result<Overshoot, Fault> {
    let counter = Counter::in_memory().await?;
    let relay = Relay::to(counter.address()).await?;
    let rule = json!({
        "name": RULE,
        "key": [{ "header": KEY }],
        "limits": [{ "requests": limit, "per": window::just_begun(), "algorithm": "fixed_window", "align": "clock" }],
        "global": { "mode": "sync", "sync_every": format!("{}ms", case.sync_every_ms) },
    });
    let config = json!({ "counter": { "cluster": COUNTER_CLUSTER, "timeout": "10s" }, "rules": [rule] });
    let fleet = Fleet::start(&Setup::global(config).counters(&[relay.address()]), case.proxies).await?;
    // Every VM has spoken to the counter once, and is warm.
    fleet
        .hammer(CONNECTIONS_EACH, 200, |index| http::get("/", &[(KEY, format!("warm-{index}").as_bytes())]))
        .await?;
    told(&relay, 200 * case.proxies as u64).await?;

    let sent_each = 2 * limit;
    let (before, begun) = (relay.call_count(), Instant::now());
    let answers = fleet.hammer(CONNECTIONS_EACH, sent_each, |_| http::get("/", &[(KEY, b"ana")])).await?;
    let elapsed_ms = begun.elapsed().as_millis().max(1);
    let (sent, admitted) = (sent_each * case.proxies, answers.count(200));
    told(&relay, (200 * case.proxies + admitted) as u64).await?;
    let reported = Ledger::of(&relay.calls_from(before), RULE, None).charged();
    let more = fleet.hammer(CONNECTIONS_EACH, 100, |_| http::get("/", &[(KEY, b"ana")])).await?;
    Ok(Overshoot {
        case,
        limit,
        sent,
        admitted,
        reported,
        admitted_afterwards: more.count(200),
        answered_per_interval: sent as u128 * u128::from(case.sync_every_ms) / elapsed_ms,
    })
}

/// A table of Markdown.
pub fn table(measured: &[Overshoot]) -> String {
    let mut text = String::from(
        "| proxies | sync_every | limit | sent | admitted | over | answered in one interval, about |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for seen in measured {
        let over = seen.admitted.saturating_sub(seen.limit);
        let permille = over * 1_000 / seen.limit;
        let Case { proxies, sync_every_ms } = seen.case;
        let _ = writeln!(
            text,
            "| {proxies} | {sync_every_ms} ms | {} | {} | {} | {over} ({}.{}%) | {} |",
            seen.limit,
            seen.sent,
            seen.admitted,
            permille / 10,
            permille % 10,
            seen.answered_per_interval
        );
    }
    text
}

/// Waits until the counter was told of so many.
async fn told(relay: &Relay, count: u64) -> Result<(), Fault> {
    poll::until(&format!("{count} to be told"), async || {
        match Ledger::of(&relay.calls(), RULE, None).charged() {
            told if told >= count => Ok(()),
            told => Err(Fault::new(format!("{told} told"))),
        }
    })
    .await
}
