//! `make demo-global`: two real Envoys and a counter, one limit over both, and a counter that dies and comes back in
//! the middle. `--once` ends after the tables and fails if the limits did not hold.

use std::process::ExitCode;

use serde_json::{Value, json};
use tidegate_config::Config;
use tidegate_e2e::fault::Context;
use tidegate_e2e::http::{self, Request};
use tidegate_e2e::{Counter, Envoy, Fault, Fleet, Setup, load, poll, setup, window};
use tokio::signal::unix::{SignalKind, signal};

const PATH: &str = "/orders";
const PROXIES: usize = 2;
const CONNECTIONS: usize = 4;
/// What each client sends to each Envoy: more than the whole limit, so that either alone would let all of it pass.
const SENT_EACH: usize = 30;
/// How long the Envoys wait for the counter. A counter that is killed refuses at once.
const PATIENCE: &str = "5s";
/// Before the counter dies, while it is gone, and when it is back.
const PHASES: [(&str, &[&str]); 3] = [
    ("The counter is there: one limit, whichever Envoy is asked", &["ana", "ben"]),
    ("The counter is killed: each Envoy keeps to its share of the limit", &["cleo"]),
    (
        "The counter is back: it was told of cleo's requests, and has forgotten ana's",
        &["cleo", "ana", "dora"],
    ),
];

/// What became of one client's requests.
struct Row {
    client: &'static str,
    allowed: Vec<usize>,
    denied: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let once = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [argument] if argument == "--once" => true,
        _ => {
            eprintln!("The demo takes no argument but --once.");
            return ExitCode::FAILURE;
        }
    };
    // Whichever comes first. Leaving drops the Envoys and the counter, which stops them.
    let ended = tokio::select! {
        ended = run(once) => ended,
        interrupted = interruption() => interrupted,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

async fn run(once: bool) -> Result<(), Fault> {
    let (limit, limits) = example_limits()?;
    let mut counter = Counter::in_memory().await?;
    let setup = Setup::global(limits).counters(&[counter.address()]);
    let fleet = Fleet::start(&setup, PROXIES).await?;
    println!(
        "Two Envoys and a counter are running, with {} (but for a longer window, so that none ends while you look).\n\
         Each client sends {SENT_EACH} requests to each Envoy at once.\n",
        setup::GLOBAL
    );

    know_each_other(&fleet).await?;
    let rows = phase(&fleet, 0, limit).await?;
    assert_held(&rows, &[limit, limit])?;

    counter.kill()?;
    away(&fleet).await?;
    let rows = phase(&fleet, 1, limit).await?;
    assert_held(&rows, &[limit])?;
    if rows[0].allowed.iter().any(|&allowed| allowed != limit / PROXIES) {
        return Err(Fault::new(format!("The shares did not hold: {:?} were allowed.", rows[0].allowed)));
    }

    counter.restart().await?;
    told(&fleet).await?;
    let rows = phase(&fleet, 2, limit).await?;
    assert_held(&rows, &[0, limit])?;
    println!(
        "What it had counted before it was killed (ana, ben) is gone: it keeps counts in memory. On Redis"
    );
    println!("(tidegate serve --store redis://…) they stay.\n");
    if !once {
        for envoy in fleet.envoys() {
            println!("Envoy is running at http://{}", envoy.address());
        }
        println!("Try: curl -i -H 'x-api-key: eve' http://{}{PATH}", fleet.envoys()[0].address());
        println!("Ctrl-C stops everything.");
        std::future::pending::<()>().await;
    }
    Ok(())
}

async fn interruption() -> Result<(), Fault> {
    let mut terminate = signal(SignalKind::terminate()).context("no signals")?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt.context("no signals")?,
        _ = terminate.recv() => {}
    }
    println!("\nStopping the Envoys and the counter.");
    Ok(())
}

/// The limit of the example's first rule; and the example, in which no window of that rule ends while somebody looks,
/// and a machine that is busy for a moment is not taken for a counter that is gone.
fn example_limits() -> Result<(usize, Value), Fault> {
    let limits = setup::limits_of(setup::GLOBAL)?;
    let config = Config::from_json(limits.as_bytes()).context("the example's limits")?;
    let limit = config.rules.first().and_then(|rule| rule.limits(0).first());
    let limit = limit.and_then(|limit| usize::try_from(limit.limit.requests()).ok());
    let limit = limit.ok_or_else(|| Fault::new("The example in envoy/ has no limit to show."))?;
    let mut limits: Value = serde_json::from_str(&limits).context("the example's limits")?;
    limits["counter"]["timeout"] = json!(PATIENCE);
    limits["rules"][0]["limits"] =
        json!([{ "requests": limit, "per": window::just_begun(), "align": "clock" }]);
    Ok((limit, limits))
}

/// Sends a phase's requests to all Envoys at once, and prints its table.
async fn phase(fleet: &Fleet, number: usize, limit: usize) -> Result<Vec<Row>, Fault> {
    let (title, clients) = PHASES[number];
    println!(
        "{title}\n\n  {:<8}{:>8}{:>16}{:>16}{:>9}{:>9}",
        "client", "sent", "allowed by 1", "allowed by 2", "denied", "limit"
    );
    let mut rows = Vec::new();
    for &client in clients {
        let answers = fleet.hammer(CONNECTIONS, SENT_EACH, move |_| from(client)).await?;
        let row = Row { client, allowed: answers.count_each(200), denied: answers.count(429) };
        if answers.strange() > 0 {
            return Err(Fault::new(format!("{client} got other answers than 200 and 429.")));
        }
        println!(
            "  {client:<8}{:>8}{:>16}{:>16}{:>9}{limit:>9}",
            PROXIES * SENT_EACH,
            row.allowed[0],
            row.allowed[1],
            row.denied
        );
        rows.push(row);
    }
    println!();
    Ok(rows)
}

fn from(client: &str) -> Request {
    http::get(PATH, &[("x-api-key", client.as_bytes())])
}

/// Every worker has heard from the counter how many proxies there are.
async fn know_each_other(fleet: &Fleet) -> Result<(), Fault> {
    for _ in 0..2 {
        fleet.hammer(8, 32, |index| from(&format!("warm-up-{index}"))).await?;
    }
    Ok(())
}

/// Every worker has found out that the counter is gone.
async fn away(fleet: &Fleet) -> Result<(), Fault> {
    for envoy in fleet.envoys() {
        poll::until("every worker to miss the counter", async || {
            load::run(envoy.address(), 8, 16, |index| from(&format!("missing-{index}"))).await?;
            at_least(envoy, "tidegate_fallbacks", 16).await
        })
        .await?;
    }
    Ok(())
}

/// Every worker has found the counter again and told it what was let through meanwhile.
async fn told(fleet: &Fleet) -> Result<(), Fault> {
    for envoy in fleet.envoys() {
        poll::until("every worker to find the counter again", async || {
            let before = envoy.metric("tidegate_fallbacks").await?;
            load::run(envoy.address(), 8, 16, |index| from(&format!("found-{index}"))).await?;
            at_least(envoy, "tidegate_counter_epochs", 1).await?;
            match envoy.metric("tidegate_fallbacks").await? {
                seen if seen == before => Ok(()),
                seen => Err(Fault::new(format!("{seen} requests were decided without the counter"))),
            }
        })
        .await?;
    }
    // Reports go with the next tick: cleo is denied when they have arrived.
    poll::until("the counter to be told", async || {
        let answer = http::send(fleet.envoys()[0].address(), from("cleo")).await?;
        if answer.status == 429 { Ok(()) } else { Err(Fault::new(answer.status.to_string())) }
    })
    .await
}

async fn at_least(envoy: &Envoy, metric: &str, value: u64) -> Result<(), Fault> {
    match envoy.metric(metric).await? {
        seen if seen >= value => Ok(()),
        seen => Err(Fault::new(format!("{metric} is {seen}"))),
    }
}

fn assert_held(rows: &[Row], expected: &[usize]) -> Result<(), Fault> {
    for (Row { client, allowed, denied }, &expected) in rows.iter().zip(expected) {
        let sum: usize = allowed.iter().sum();
        if sum != expected || sum + denied != PROXIES * SENT_EACH {
            return Err(Fault::new(format!(
                "The limits did not hold: {client} was allowed {allowed:?} and denied {denied}, where {expected} \
                 should have been allowed."
            )));
        }
    }
    Ok(())
}
