//! `make demo`: a real Envoy with Tidegate in front of a small server, and three clients of different
//! appetite. `--once` ends after the table and fails if the limits did not hold.

use std::net::SocketAddr;
use std::process::ExitCode;

use tidegate_config::Config;
use tidegate_e2e::fault::Context;
use tidegate_e2e::http::{self, Reply, Request};
use tidegate_e2e::upstream::Upstream;
use tidegate_e2e::{Envoy, Fault, Filter, Setup, load, setup};
use tokio::signal::unix::{SignalKind, signal};

/// The clients and how many requests each sends: below the limit, above it, and far above it.
const CLIENTS: [(&str, usize); 3] = [("ana", 6), ("ben", 14), ("cleo", 25)];
const CONNECTIONS: usize = 4;

/// The example's limit and how it is written.
struct Limit {
    requests: usize,
    shorthand: String,
}

/// What became of one client's requests.
struct Row {
    client: &'static str,
    sent: usize,
    allowed: usize,
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
    // Whichever comes first. Leaving drops Envoy and the server, which stops both.
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
    let limit = example_limit()?;
    let upstream = Upstream::start().await?;
    let envoy = Envoy::start(Setup::new(Filter::Example).upstream(upstream.address())).await?;

    let rows = burst(envoy.address()).await?;
    print_table(&rows, &limit);
    let denied = http::send(envoy.address(), from("cleo")).await?;
    print_reply(&denied);
    assert_held(&rows, &limit, &denied, upstream.served())?;
    if !once {
        let address = envoy.address();
        println!("Envoy is running at http://{address}");
        println!("Try: curl -i -H 'x-api-key: ana' http://{address}/");
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
    println!("\nStopping Envoy.");
    Ok(())
}

/// The one limit of the example in envoy/.
fn example_limit() -> Result<Limit, Fault> {
    let limits = setup::example_limits()?;
    let config = Config::from_json(limits.as_bytes()).context("the example's limits")?;
    let text: serde_json::Value = serde_json::from_str(&limits).context("the example's limits")?;
    let shorthand = text["rules"][0]["limits"][0].as_str().unwrap_or_default().to_owned();
    let requests =
        config.rules.first().and_then(|rule| rule.limits(0).first()).map(|limit| limit.limit.requests());
    let requests = requests.and_then(|requests| usize::try_from(requests).ok());
    requests
        .map(|requests| Limit { requests, shorthand })
        .ok_or_else(|| Fault::new("The example in envoy/ has no limit to show."))
}

/// All clients at once, over a few connections.
///
/// The window slides and rounds against the client, so a burst of moments is counted whole even if a
/// window ends in the middle of it.
async fn burst(envoy: SocketAddr) -> Result<Vec<Row>, Fault> {
    let order: Vec<&'static str> = (0..CLIENTS.iter().map(|&(_, sent)| sent).max().unwrap_or(0))
        .flat_map(|turn| CLIENTS.iter().filter(move |&&(_, sent)| turn < sent).map(|&(client, _)| client))
        .collect();
    let clients = order.clone();
    let answers = load::run(envoy, CONNECTIONS, order.len(), move |index| from(order[index])).await?;
    let count = |client, status| {
        let of_client = clients.iter().enumerate().filter(|&(_, &other)| other == client);
        of_client.filter(|&(index, _)| answers.status(index) == status).count()
    };
    let row = |(client, sent)| Row { client, sent, allowed: count(client, 200), denied: count(client, 429) };
    Ok(CLIENTS.into_iter().map(row).collect())
}

fn from(client: &str) -> Request {
    http::get("/", &[("x-api-key", client.as_bytes())])
}

fn print_table(rows: &[Row], limit: &Limit) {
    println!("Three clients, each with its own API key, at once:\n");
    println!("  {:<8}{:>8}{:>10}{:>9}{:>9}", "client", "sent", "allowed", "denied", "limit");
    for Row { client, sent, allowed, denied } in rows {
        println!("  {client:<8}{sent:>8}{allowed:>10}{denied:>9}{:>9}", limit.shorthand);
    }
    println!();
}

fn print_reply(reply: &Reply) {
    println!("What a denied client sees:\n");
    let status = hyper::StatusCode::from_u16(reply.status).unwrap_or_default();
    println!("  HTTP/1.1 {status}");
    for (name, value) in &reply.headers {
        println!("  {name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    println!("\n  {}\n", String::from_utf8_lossy(&reply.body).trim_end());
}

fn assert_held(rows: &[Row], limit: &Limit, denied: &Reply, served: u64) -> Result<(), Fault> {
    for Row { client, sent, allowed, denied } in rows {
        let expected = (*sent).min(limit.requests);
        if *allowed != expected || allowed + denied != *sent {
            return Err(Fault::new(format!(
                "The limits did not hold: {client} sent {sent} and was allowed {allowed} and denied \
                 {denied}, where {expected} should have been allowed."
            )));
        }
    }
    let allowed: usize = rows.iter().map(|row| row.allowed).sum();
    if denied.status != 429 || served != allowed as u64 {
        return Err(Fault::new(format!(
            "The limits did not hold: one more request got {}, and {served} instead of {allowed} requests \
             reached the server.",
            denied.status
        )));
    }
    Ok(())
}
