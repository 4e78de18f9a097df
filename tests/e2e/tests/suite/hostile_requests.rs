//! Requests made to break a filter or to slip past a limit: each is answered, each is limited, and the
//! filter lives on.

use serde_json::json;
use tidegate_e2e::http;
use tidegate_e2e::{Envoy, Setup};

use crate::common::{KEY, admitted, admitted_of, assert_healthy, keyed, limit, rule, start};

const LIMIT: usize = 3;
const SENT: usize = 6;

#[tokio::test]
async fn odd_header_values_are_keys_like_any_other() {
    let envoy = start_tolerant().await;
    let long = "k".repeat(60 * 1024);
    let values: [(&str, &[u8]); 5] = [
        ("not UTF-8", b"\xff\xfe\x80"),
        ("also not UTF-8", b"\xff\xfe\x81"),
        ("60 KB", long.as_bytes()),
        ("60 KB and one more", &[long.as_bytes(), b"k"].concat()),
        ("quotes and escapes", br#"a"b\c;r=9%0d%0a{}"#),
    ];
    for (what, value) in values {
        let seen = admitted_of(&envoy, SENT, |_| http::get("/", &[(KEY, value)])).await;
        assert_eq!(seen, LIMIT, "{what}");
    }
    // Beside an ordinary key they change nothing.
    let seen = admitted_of(&envoy, SENT, |_| {
        http::get("/", &[(KEY, b"ana"), ("x-long", long.as_bytes()), ("x-odd", b"\x80\x81")])
    })
    .await;
    assert_eq!(seen, LIMIT);
    assert_alive(&envoy).await;
}

#[tokio::test]
async fn requests_without_a_usable_key_share_one_bucket() {
    let envoy = start_tolerant().await;
    let seen = admitted_of(&envoy, SENT, |index| match index % 3 {
        0 => http::get("/", &[]),
        1 => http::get("/", &[(KEY, b"")]),
        // A rotating first value in front of the real one must not buy a fresh bucket.
        _ => http::get("/", &[(KEY, format!("fresh-{index}").as_bytes()), (KEY, b"ana")]),
    })
    .await;
    assert_eq!(seen, LIMIT);
    assert_alive(&envoy).await;
}

#[tokio::test]
async fn every_version_of_http_is_limited_and_counted_together() {
    let envoy = start_tolerant().await;
    let old = || {
        let mut request = keyed("/", "old");
        *request.version_mut() = hyper::Version::HTTP_10;
        request
    };
    assert_eq!(admitted_of(&envoy, SENT, |_| old()).await, LIMIT);

    let mut seen = 0;
    for _ in 0..SENT {
        let reply = http::send_http2(envoy.address(), keyed("/", "new")).await.unwrap();
        match reply.status {
            200 => seen += 1,
            status => assert_eq!(status, 429),
        }
    }
    assert_eq!(seen, LIMIT);
    assert_eq!(admitted(&envoy, 1, "/", "new").await, 0, "HTTP/1.1 and HTTP/2 share the count");
    assert_alive(&envoy).await;
}

#[tokio::test]
async fn a_path_in_disguise_meets_its_rule() {
    let envoy = start_tolerant().await;
    let disguises =
        ["/login", "//login", "/%6cogin", "/./login", "/a/../login", "/login?fresh=1", "/login#x"];
    let mut seen = 0;
    for path in disguises {
        seen += admitted(&envoy, 1, path, "ana").await;
    }
    assert_eq!(seen, LIMIT_LOGIN, "of {disguises:?}");
    assert_alive(&envoy).await;
}

#[tokio::test]
async fn a_client_cannot_choose_its_address() {
    let envoy = start_tolerant().await;
    let seen = admitted_of(&envoy, SENT, |index| {
        let forged = format!("203.0.113.{index}");
        http::get("/ip", &[(KEY, forged.as_bytes()), ("x-forwarded-for", forged.as_bytes())])
    })
    .await;
    assert_eq!(seen, LIMIT);
    assert_alive(&envoy).await;
}

#[tokio::test]
async fn many_headers_and_odd_methods_are_answered() {
    let envoy = start_tolerant().await;
    let names: Vec<String> = (0..80).map(|index| format!("x-filler-{index}")).collect();
    let seen = admitted_of(&envoy, SENT, |_| {
        let fillers = names.iter().map(|name| (name.as_str(), b"x".as_slice()));
        http::get("/", &[(KEY, b"many".as_slice())].into_iter().chain(fillers).collect::<Vec<_>>())
    })
    .await;
    assert_eq!(seen, LIMIT);
    let methods = ["OPTIONS", "DELETE", "PUT", "TRACE", "PROPFIND"];
    let seen = admitted_of(&envoy, SENT, |index| {
        http::request(methods[index % methods.len()], "/", &[(KEY, b"odd")])
    })
    .await;
    assert_eq!(seen, LIMIT);
    assert_alive(&envoy).await;
}

/// The limit of `/login`, below the one that all paths share.
const LIMIT_LOGIN: usize = 2;

/// An Envoy that passes on what others refuse: large headers and HTTP/1.0.
async fn start_tolerant() -> Envoy {
    let mut login = rule("login", "/", &limit(LIMIT_LOGIN));
    login["match"] = json!({ "path": "/login" });
    let by_address = json!({
        "name": "by-address",
        "match": { "path": "/ip" },
        "key": ["client_ip"],
        "limits": [limit(LIMIT)],
    });
    let limits = json!({ "rules": [rule("general", "/", &limit(LIMIT)), login, by_address] });
    let setup = Setup::limits(limits)
        .connection_manager("max_request_headers_kb", json!(192))
        .connection_manager("http_protocol_options", json!({ "accept_http_10": true }));
    start(setup).await
}

/// The filter still limits, on every connection, and has nothing to complain about. A dead one would
/// answer 503, for the tests' Envoy fails closed.
async fn assert_alive(envoy: &Envoy) {
    assert_eq!(admitted(envoy, 20, "/", "afterwards").await, LIMIT);
    assert_healthy(envoy).await;
}
