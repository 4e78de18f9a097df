//! Charges after the response, in a real Envoy: by status, by a header, and when there is no response at all.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate_e2e::http::Reply;
use tidegate_e2e::{Envoy, Fault, Setup, http, poll};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::common::{KEY, assert_healthy, limit, start};

/// What a client asks of the upstream: a status, `reset` or `hang`.
const ANSWER: &str = "x-answer";
/// What the upstream shall say that the request cost.
const TOKENS: &str = "x-tokens";

/// A server that does what requests ask of it.
async fn obedient_upstream() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let obey = service_fn(async |request: Request<Incoming>| {
                let answer = request.headers().get(ANSWER).map_or("200", |answer| answer.to_str().unwrap());
                match answer {
                    "reset" => return Err("as you wish"),
                    "hang" => std::future::pending().await,
                    _ => {}
                }
                let mut response = Response::builder().status(answer);
                for tokens in request.headers().get_all(TOKENS) {
                    response = response.header(TOKENS, tokens);
                }
                Ok(response.body(Empty::<Bytes>::new()).expect("a response"))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), obey));
        }
        Ok::<_, Infallible>(())
    });
    address
}

async fn start_with(rule: Value) -> Envoy {
    let upstream = obedient_upstream().await;
    start(Setup::limits(json!({ "rules": [rule] })).upstream(upstream)).await
}

/// A request of ana's that the upstream answers so.
async fn ask(envoy: &Envoy, answer: &str, tokens: &[&str]) -> Reply {
    let mut headers: Vec<(&str, &[u8])> = vec![(KEY, b"ana"), (ANSWER, answer.as_bytes())];
    headers.extend(tokens.iter().map(|tokens| (TOKENS, tokens.as_bytes())));
    http::send(envoy.address(), http::get("/login", &headers)).await.unwrap()
}

/// A request of ana's that hangs in the upstream until the client drops it.
async fn hang(envoy: &Envoy) -> TcpStream {
    let mut stream = TcpStream::connect(envoy.address()).await.unwrap();
    let request = format!("GET /login HTTP/1.1\r\nhost: t\r\n{KEY}: ana\r\n{ANSWER}: hang\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Waits until Envoy has as many requests under way upstream.
async fn under_way(envoy: &Envoy, count: u64) {
    let name = "cluster.upstream.upstream_rq_active";
    poll::until(&format!("{count} requests under way"), async || match envoy.counter(name).await? {
        seen if seen == count => Ok(()),
        seen => Err(Fault::new(seen.to_string())),
    })
    .await
    .unwrap();
}

fn login() -> Value {
    json!({ "name": "login", "key": [{ "header": KEY }], "limits": [limit(3)], "count_status": [401, 403] })
}

fn tokens() -> Value {
    json!({
        "name": "tokens",
        "key": [{ "header": KEY }],
        "limits": [limit(100)],
        "cost": { "response_header": TOKENS, "max": 1_000, "default": 5, "reserve": 10 },
    })
}

#[tokio::test]
async fn only_wrong_passwords_are_counted() {
    let envoy = start_with(login()).await;
    for _ in 0..10 {
        for status in ["200", "404", "503"] {
            assert_eq!(ask(&envoy, status, &[]).await.status.to_string(), status);
        }
        assert_eq!(ask(&envoy, "reset", &[]).await.status, 503, "Envoy's own answer");
    }
    for status in [401, 403, 401] {
        assert_eq!(ask(&envoy, &status.to_string(), &[]).await.status, status);
    }
    for status in ["200", "401"] {
        assert_eq!(ask(&envoy, status, &[]).await.status, 429);
    }
    envoy.rule_metrics_reach("login", 45).await.unwrap();
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn guesses_at_once_are_bounded_and_who_leaves_has_not_guessed() {
    let envoy = start_with(login()).await;
    let mut hanging = Vec::new();
    for count in 1..=3 {
        hanging.push(hang(&envoy).await);
        under_way(&envoy, count).await;
    }
    assert_eq!(ask(&envoy, "401", &[]).await.status, 429, "three guesses are under way");
    // One client leaves before there is a response: its guess is given back.
    hanging.pop();
    poll::until("a refund", async || match ask(&envoy, "200", &[]).await.status {
        200 => Ok(()),
        status => Err(Fault::new(status.to_string())),
    })
    .await
    .unwrap();
    assert_eq!(ask(&envoy, "401", &[]).await.status, 401);
    assert_eq!(ask(&envoy, "401", &[]).await.status, 429, "and no more than that one");
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_response_names_its_cost_and_a_failed_one_is_free() {
    let envoy = start_with(tokens()).await;
    // Were one of these charged, the hundred would not last for the rest.
    for _ in 0..12 {
        assert_eq!(ask(&envoy, "reset", &[]).await.status, 503);
        assert_eq!(ask(&envoy, "500", &[]).await.status, 500);
        assert_eq!(ask(&envoy, "200", &["0"]).await.status, 200);
    }
    assert_eq!(ask(&envoy, "200", &["60"]).await.status, 200);
    assert_eq!(ask(&envoy, "200", &["7", "7"]).await.status, 200, "repeated: 5, as the default says");
    assert_eq!(ask(&envoy, "200", &["20"]).await.status, 200);
    // 15 are left: room for one reservation, which then costs more than there is.
    assert_eq!(ask(&envoy, "200", &["16"]).await.status, 200);
    assert_eq!(ask(&envoy, "200", &["0"]).await.status, 429);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn nobody_avoids_a_cost_by_leaving() {
    let envoy = start_with(tokens()).await;
    let mut hanging = Vec::new();
    for count in 1..=10 {
        hanging.push(hang(&envoy).await);
        under_way(&envoy, count).await;
    }
    drop(hanging);
    under_way(&envoy, 0).await;
    poll::until("Envoy to forget the requests", async || {
        match envoy.counter("http.edge.downstream_rq_active").await? {
            0 => Ok(()),
            active => Err(Fault::new(active.to_string())),
        }
    })
    .await
    .unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&envoy, "200", &["0"]).await.status, 429, "ten reservations of ten stay charged");
    }
    assert_healthy(&envoy).await;
}
