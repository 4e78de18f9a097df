//! What a request costs, counted and not measured: host calls by kind, and the interpreter's fuel.

use crate::calls::Call;
use crate::global_spec::{Global, OnFailure};
use crate::journey::{Cost, Fate};
use crate::run::Simulation;
use crate::scenario::{Arrival, MS, Scenario};
use crate::spec::{Config, KeyPart, Limit, Request, Rule};
use std::collections::BTreeMap;
use std::fmt::Write;

const KEY: KeyPart = KeyPart::Header("x-key");

/// A config, and the request of which the cost is shown: the last of so many.
struct Case {
    name: &'static str,
    config: Config,
    request: Request,
    requests: u64,
    fate: Fate,
}

fn plenty() -> Limit {
    Limit::sliding(1_000_000, 60_000)
}

fn cases() -> Vec<Case> {
    let key = || Rule::new("key", KEY, vec![plenty()]);
    let allowed = |name, config| Case {
        name,
        config,
        request: Request::with_key("a"),
        requests: 9,
        fate: Fate::Admitted,
    };
    let three_limits = vec![
        Limit::sliding(1_000, 1_000),
        Limit::sliding(100_000, 60_000),
        Limit::fixed(1_000_000, 3_600_000),
    ];
    let three_keys = vec![
        key(),
        Rule::new("ip", KeyPart::ClientIp, vec![plenty()]),
        Rule::new("tenant", KeyPart::Header("x-tenant"), vec![plenty()]),
    ];
    let mut thousand: Vec<Rule> = (0..999)
        .map(|number| Rule::new(&format!("r{number}"), KEY, vec![plenty()]).under(&format!("/r{number}/")))
        .collect();
    thousand.push(key());
    let mut with_headers = Config::new(vec![key()]);
    with_headers.has_headers = true;
    let after = |status| Config::new(vec![key().counting(status)]);
    let mut with_metadata = Config::new(vec![key()]);
    with_metadata.metadata =
        Some(r#"{ "rules": [{ "name": "own", "key": [{ "header": "x-key" }], "limits": ["9/1h"] }] }"#);
    let of_fleet = |global| Config::new(vec![key().globally(global)]);
    let denied = |name, requests| Case {
        name,
        config: Config::new(vec![Rule::new("key", KEY, vec![Limit::fixed(1, 3_600_000)])]),
        request: Request::with_key("a"),
        requests,
        fate: Fate::Denied,
    };
    vec![
        allowed("no rules", Config::new(Vec::new())),
        allowed("no rule matches", Config::new(vec![key().under("/elsewhere/")])),
        allowed("one rule by a header", Config::new(vec![key()])),
        allowed("the same, with response headers", with_headers),
        allowed("three limits on one key", Config::new(vec![Rule::new("key", KEY, three_limits)])),
        allowed("three keys", Config::new(three_keys)),
        allowed("1,000 rules, one applies", Config::new(thousand)),
        allowed("one rule that counts 200 only", after(200)),
        allowed("one rule that counts 401 only: given back", after(401)),
        Case {
            request: Request::with_key("a").answered(None),
            ..allowed("the same, and the client leaves", after(401))
        },
        allowed("one rule, and one that the route adds", with_metadata),
        allowed("`exact`: its call is made, and answered", of_fleet(Global::exact(OnFailure::Share))),
        allowed("`lease`, with a grant", of_fleet(Global::lease(0, OnFailure::Share))),
        allowed("`sync`", of_fleet(Global::sync(100, OnFailure::Share))),
        denied("denied", 2),
        denied("denied again", 3),
    ]
}

fn cost(simulation: &Simulation, case: &Case) -> Result<Cost, String> {
    // One worker, so that the last request finds the VM as the others left it.
    let mut scenario = Scenario::new("costs", 1, case.config.clone());
    for number in 0..case.requests {
        let at_ns = 300 * MS + number * 40 * MS;
        scenario.arrivals.push(Arrival { at_ns, proxy: 0, request: case.request.clone() });
    }
    let (fate, cost) = simulation.last_cost(scenario)?;
    if fate == case.fate { Ok(cost) } else { Err(format!("{}: {fate:?}", case.name)) }
}

fn listed(calls: &BTreeMap<Call, u64>) -> String {
    let parts: Vec<String> = calls
        .iter()
        .map(
            |(call, times)| {
                if *times == 1 { call.name().to_owned() } else { format!("{} x{times}", call.name()) }
            },
        )
        .collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// The table of costs, as it is committed.
pub fn costs(simulation: &Simulation) -> Result<String, String> {
    let mut table = "\
# What a request costs

Made by `make sim-costs`, compared by `make sim`. Host calls are those of the request callback and of the response
callback (or of the stream's end, if there is no response); fuel is wasmi's, of all callbacks of the request. Host calls must agree exactly, fuel within 5%: it moves a
little with the compiler and with every change of the filter, and only more than that is news.

| case | host calls for the request | for the response | fuel |
|---|---|---|---|
"
    .to_owned();
    for case in cases() {
        let Cost { request_calls, response_calls, fuel } = cost(simulation, &case)?;
        let (request, response) = (listed(&request_calls), listed(&response_calls));
        writeln!(table, "| {} | {request} | {response} | {fuel} |", case.name).map_err(|_| "no memory")?;
    }
    Ok(table)
}
