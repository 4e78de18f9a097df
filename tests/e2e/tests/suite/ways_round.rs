//! Ways round a limit, each tried as a client would write it, byte for byte.
//!
//! A limit is used up first; then every disguise must be denied like the plain request, or be refused by Envoy
//! itself. What cannot be told from an honest request is [`Fate::Free`]: `docs/rules.md` says what to do about it.

use serde_json::{Value, json};
use tidegate_e2e::http::{self, get, request};
use tidegate_e2e::{Envoy, Setup};

use crate::common::{KEY, admitted_of, assert_healthy, limit, start, two_each};

/// What becomes of a request once the limit is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Denied by the rule.
    Limited,
    /// Refused by Envoy, which does not let it reach any filter or upstream.
    Refused,
    /// Another request, as far as the rule can tell.
    Free,
}
use Fate::{Free, Limited, Refused};

#[tokio::test]
async fn a_path_in_disguise() {
    let envoy = start(quick(on_login(json!({ "path": "/login" })))).await;
    use_up(&envoy, "/login").await;
    for (target, fate) in [
        ("/login", Limited),
        ("//login", Limited),
        ("///login", Limited),
        ("/./login", Limited),
        ("/x/../login", Limited),
        ("/x/..//login", Limited),
        ("/../login", Limited),
        ("/%6cogin", Limited),
        ("/%6C%6F%67%69%6E", Limited),
        ("/%2e/login", Limited),
        ("/x/%2E%2e/login", Limited),
        ("/login?", Limited),
        ("/login?fresh=1", Limited),
        ("/login?/../x", Limited),
        ("/login#x", Refused),
        ("http://tidegate.test/login", Limited),
        ("HTTP://tidegate.test//login", Limited),
        ("/log\tin", Refused),
        ("/log in", Refused),
        ("login", Refused),
        // Not the same path, whatever an upstream makes of it.
        ("/login/", Free),
        ("/LOGIN", Free),
        ("/login;x=1", Free),
        ("/login/..;/login", Free),
        ("/;/login", Free),
        ("/login%2f", Free),
        ("/login%00", Free),
        ("/login%3F", Free),
        ("/login%23", Free),
        ("/\\login", Free),
        ("/%5clogin", Free),
        ("/%256cogin", Free),
    ] {
        assert_eq!(
            fate_of(&envoy, &format!("GET {target} HTTP/1.1\r\nHost: tidegate.test\r\n")).await,
            fate,
            "{target}"
        );
    }
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_prefix_meets_what_stands_behind_it() {
    let envoy = start(quick(on_login(json!({ "path_prefix": "/login" })))).await;
    use_up(&envoy, "/login").await;
    for target in [
        "/login/",
        "/login;x=1",
        "/login/..;/login",
        "/login%2f",
        "/login%00",
        "/login%3F",
        "/login%23x",
        "/login\\",
        "/login.json",
        "/login%20",
    ] {
        assert_eq!(
            fate_of(&envoy, &format!("GET {target} HTTP/1.1\r\nHost: tidegate.test\r\n")).await,
            Limited,
            "{target}"
        );
    }
    assert_healthy(&envoy).await;
}

/// With Envoy's own normalisation, which `docs/rules.md` recommends, rule, route and upstream see one path.
#[tokio::test]
async fn envoys_normalisation_closes_more() {
    let setup = quick(on_login(json!({ "path": "/login" })))
        .connection_manager("normalize_path", json!(true))
        .connection_manager("merge_slashes", json!(true))
        .connection_manager("path_with_escaped_slashes_action", json!("REJECT_REQUEST"));
    let envoy = start(setup).await;
    use_up(&envoy, "/login").await;
    for (target, fate) in [
        ("//login", Limited),
        ("/%6cogin", Limited),
        ("/\\login", Limited),
        ("/x\\..\\login", Limited),
        ("/login%2f", Refused),
        ("/%5clogin", Refused),
    ] {
        assert_eq!(
            fate_of(&envoy, &format!("GET {target} HTTP/1.1\r\nHost: tidegate.test\r\n")).await,
            fate,
            "{target}"
        );
    }
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_host_in_disguise() {
    let envoy = start(quick(on_login(json!({ "host": "a.test" })))).await;
    let to_a = |_| get("/", &[("host", b"a.test".as_slice())]);
    assert_eq!(admitted_of(&envoy, 3, to_a).await, 2);
    for (lines, fate) in [
        ("GET / HTTP/1.1\r\nHost: a.test\r\n", Limited),
        ("GET / HTTP/1.1\r\nHost: A.TEST\r\n", Limited),
        ("GET / HTTP/1.1\r\nHost: a.test.\r\n", Limited),
        ("GET / HTTP/1.1\r\nHost: a.test:8080\r\n", Limited),
        ("GET / HTTP/1.1\r\nhOsT:   a.test  \r\n", Limited),
        // The target's own host is what Envoy goes by.
        ("GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n", Limited),
        ("GET http://A.test:80/ HTTP/1.1\r\nHost: b.test\r\n", Limited),
        ("GET / HTTP/1.1\r\n", Refused),
        ("GET / HTTP/1.1\r\nHost: b.test\r\n", Free),
        // Envoy makes one host of them, "a.test,b.test", and routes by that.
        ("GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n", Free),
        ("GET / HTTP/1.1\r\nHost: b.test\r\nX-Forwarded-Host: a.test\r\n", Free),
    ] {
        assert_eq!(fate_of(&envoy, lines).await, fate, "{lines}");
    }
    let over_http2 = get("/", &[("host", b"A.test:443")]);
    assert_eq!(http::send_http2(envoy.address(), over_http2).await.unwrap().status, 429);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_method_in_disguise() {
    let envoy = start(quick(on_login(json!({ "method": "POST" })))).await;
    assert_eq!(admitted_of(&envoy, 3, |_| request("POST", "/", &[])).await, 2);
    for (lines, fate) in [
        ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n", Limited),
        (
            "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nX-HTTP-Method-Override: GET\r\n",
            Limited,
        ),
        // Envoy knows no such method.
        ("post / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n", Refused),
        // Frameworks that obey this header take it for a POST: leave `method` out, or match the header too.
        ("GET / HTTP/1.1\r\nHost: a.test\r\nX-HTTP-Method-Override: POST\r\n", Free),
    ] {
        assert_eq!(fate_of(&envoy, lines).await, fate, "{lines}");
    }
    assert_healthy(&envoy).await;
}

/// One bucket for all who have no single, whole value: a client that knows a trick shares it with all others.
#[tokio::test]
async fn a_key_that_is_no_one_value_is_missing() {
    let rules = json!([
        two_each(&json!([{ "header": KEY }])),
        { "name": "q", "match": { "path": "/q" }, "key": [{ "query": "user" }], "limits": [limit(2)] },
        { "name": "c", "match": { "path": "/c" }, "key": [{ "cookie": "id" }], "limits": [limit(2)] },
    ]);
    let envoy = start(quick(json!({ "rules": rules }))).await;
    let header = |index: usize| {
        let fresh = format!("fresh-{index}");
        match index % 4 {
            0 => get("/", &[(KEY, fresh.as_bytes()), (KEY, b"ana")]),
            1 => get("/", &[(KEY, b"ana"), ("X-Key", fresh.as_bytes())]),
            2 => get("/", &[(KEY, b"")]),
            _ => get("/", &[(KEY, b"  \t ")]),
        }
    };
    assert_eq!(admitted_of(&envoy, 8, header).await, 2);
    let own = |index: usize, path: &str| get(path, &[(KEY, format!("{path}-{index}").as_bytes())]);
    let query = |index: usize| match index % 4 {
        0 => own(index, &format!("/q?user=fresh-{index}&user=ana")),
        1 => own(index, &format!("/q?user=ana&%75ser=fresh-{index}")),
        2 => own(index, "/q?user="),
        _ => own(index, "/q?user"),
    };
    assert_eq!(admitted_of(&envoy, 8, query).await, 2);
    let cookie = |index: usize| {
        let key = format!("cookie-{index}");
        let (once, twice) = (format!("id=fresh-{index}"), format!("id=ana; id=fresh-{index}"));
        match index % 3 {
            0 => get("/c", &[(KEY, key.as_bytes()), ("cookie", twice.as_bytes())]),
            1 => get("/c", &[(KEY, key.as_bytes()), ("cookie", b"id=ana"), ("cookie", once.as_bytes())]),
            _ => get("/c", &[(KEY, key.as_bytes()), ("cookie", b"id=; x=y")]),
        }
    };
    assert_eq!(admitted_of(&envoy, 9, cookie).await, 2);
    assert_healthy(&envoy).await;
}

/// HTTP/2 sends a cookie in crumbs, HTTP/1.1 in one line: both are one cookie.
#[tokio::test]
async fn a_cookie_in_crumbs_is_whole() {
    let envoy = start(quick(json!({ "rules": [two_each(&json!([{ "cookie": "id" }]))] }))).await;
    let whole = |_| get("/", &[("cookie", b"theme=dark; id=ana".as_slice())]);
    assert_eq!(admitted_of(&envoy, 3, whole).await, 2);
    let crumbs = get("/", &[("cookie", b"theme=dark"), ("cookie", b"id=ana")]);
    assert_eq!(http::send_http2(envoy.address(), crumbs).await.unwrap().status, 429);
    let another = get("/", &[("cookie", b"theme=dark"), ("cookie", b"id=ben")]);
    assert_eq!(http::send_http2(envoy.address(), another).await.unwrap().status, 200, "counted apart");
    // To the letter: with quotes it is another value, and old frameworks drop them (docs/rules.md).
    assert_eq!(admitted_of(&envoy, 1, |_| get("/", &[("cookie", b"id=\"ana\"".as_slice())])).await, 1);
    assert_healthy(&envoy).await;
}

/// A header with underscores is another header to Envoy and to us, and the same one to a CGI script.
#[tokio::test]
async fn a_header_with_underscores() {
    let ana = |name: &str| format!("GET / HTTP/1.1\r\nHost: a.test\r\n{name}: ana\r\n");
    let limits = json!({ "rules": [two_each(&json!([{ "header": KEY }]))] });
    for (action, fate) in [("ALLOW", Free), ("REJECT_REQUEST", Refused)] {
        let options = json!({ "headers_with_underscores_action": action });
        let envoy =
            start(quick(limits.clone()).connection_manager("common_http_protocol_options", options)).await;
        assert_eq!(admitted_of(&envoy, 3, |_| get("/", &[(KEY, b"ana".as_slice())])).await, 2);
        assert_eq!(fate_of(&envoy, &ana("X-KEY")).await, Limited, "{action}");
        assert_eq!(fate_of(&envoy, &ana("x_key")).await, fate, "{action}");
        assert_healthy(&envoy).await;
    }
}

#[tokio::test]
async fn a_request_within_another() {
    let envoy = start(quick(on_login(json!({ "path": "/login" })))).await;
    use_up(&envoy, "/login").await;
    let inner = "GET /login HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    let length = inner.len();
    // Both lengths at once, and lengths that are none: Envoy does not guess.
    for head in [
        format!(
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n".to_owned(),
        format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let answer = http::send_raw(envoy.address(), format!("{head}{inner}").as_bytes()).await.unwrap();
        let statuses = statuses(&answer);
        assert!(statuses.iter().all(|status| matches!(status, 400 | 501)), "{head}{answer}");
    }
    // Sent one behind the other they are two requests, each judged by itself; a header's second line is its own.
    for head in ["", "X: a\r\n Transfer-Encoding: chunked\r\n"] {
        let pipelined = format!("GET /else HTTP/1.1\r\nHost: a.test\r\n{head}\r\n{inner}");
        let answer = http::send_raw(envoy.address(), pipelined.as_bytes()).await.unwrap();
        assert_eq!(statuses(&answer), [200, 429], "{answer}");
    }
    // A body is no request.
    let posted = format!(
        "POST /else HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{inner}"
    );
    let answer = http::send_raw(envoy.address(), posted.as_bytes()).await.unwrap();
    assert_eq!(statuses(&answer), [200], "{answer}");
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_header_that_is_too_large_is_refused_and_not_let_past() {
    let envoy = start(quick(json!({ "rules": [two_each(&json!([{ "constant": "all" }]))] }))).await;
    assert_eq!(admitted_of(&envoy, 3, |_| get("/", &[])).await, 2);
    let large = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Large: {}\r\n", "x".repeat(100_000));
    assert_eq!(fate_of(&envoy, &large).await, Refused);
    let many = "X-Many: x\r\n".repeat(200);
    assert_eq!(fate_of(&envoy, &format!("GET / HTTP/1.1\r\nHost: a.test\r\n{many}")).await, Refused);
    assert_healthy(&envoy).await;
}

/// An Envoy that closes at once whom it refuses, instead of after a second.
fn quick(limits: Value) -> Setup {
    Setup::limits(limits).connection_manager("delayed_close_timeout", json!("0.02s"))
}

/// Two requests for all who match.
fn on_login(matches: Value) -> Value {
    let mut rule = two_each(&json!([{ "constant": "all" }]));
    rule["match"] = matches;
    json!({ "rules": [rule] })
}

async fn use_up(envoy: &Envoy, path: &str) {
    assert_eq!(admitted_of(envoy, 3, |_| get(path, &[])).await, 2);
}

/// Sends a request line and headers, to the letter.
async fn fate_of(envoy: &Envoy, lines: &str) -> Fate {
    let answer = http::send_raw(envoy.address(), format!("{lines}Connection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    match statuses(&answer).first() {
        Some(429) => Limited,
        Some(200) => Free,
        None | Some(400..=428 | 430..=499 | 501) => Refused,
        Some(status) => panic!("{status} to {lines}"),
    }
}

/// The statuses of all answers on a connection.
fn statuses(answer: &str) -> Vec<u16> {
    let lines = answer.lines().filter_map(|line| line.split_once("HTTP/1.1 ")).map(|(_, rest)| rest);
    lines.filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}
