//! Every problem that a request can get.

use crate::client::*;
use crate::*;

const JSON: &str = "content-type: application/json\r\n";

#[track_caller]
fn is_problem(reply: &Reply, status: u16, kind: &str, detail: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert!(reply.head.contains("content-type: application/problem+json"), "{reply:?}");
    let problem = reply.json();
    assert_eq!(problem["type"], format!("urn:tidegate:problem:{kind}"));
    assert_eq!(problem["status"], status);
    let found = problem["detail"].as_str().expect("text");
    assert!(found.contains(detail), "{found}");
}

#[tokio::test]
async fn a_body_that_is_no_batch_is_refused_with_its_fields() {
    let service = run(Setup::default()).await;
    let reply = post(service.address, "nonsense").await;
    is_problem(&reply, 400, "invalid_batch", "body: is not valid JSON at line 1, column 2");
    let reply =
        post(service.address, r#"{"groups":[{"takes":[{"rule":"r","limit":"1/s","key":"k","n":0}]}],"x":1}"#)
            .await;
    is_problem(&reply, 400, "invalid_batch", "2 errors");
    let errors = reply.json()["errors"].clone();
    let fields: Vec<&str> = errors
        .as_array()
        .expect("a list")
        .iter()
        .map(|error| error["field"].as_str().expect("text"))
        .collect();
    assert_eq!(fields, ["x", "groups[0].takes[0].n"]);
    let reply =
        post_with(service.address, "content-type: application/vnd.tidegate.v1+postcard\r\n", b"").await;
    is_problem(&reply, 400, "invalid_batch", "namespace: must be 1 to 64");
    let long = "n".repeat(65);
    for (body, detail) in [
        (format!(r#"{{"namespace":"{long}","groups":[]}}"#), "namespace: "),
        (TAKE.replace(r#""key""#, r#""n":68719476737,"key""#), "groups[0].takes[0].n: "),
        (TAKE.replacen('{', r#"{"wait_ms":60001,"#, 1), "wait_ms: "),
    ] {
        is_problem(&post(service.address, &body).await, 400, "invalid_batch", detail);
    }
    assert_eq!(service.control.asked.load(SeqCst), 0, "the store never saw them");
}

#[tokio::test]
async fn many_errors_are_cut_and_counted() {
    let service = run(Setup::default()).await;
    let takes = vec![r#"{"rule":"R","limit":"1/s","key":"k"}"#; 150].join(",");
    let reply = post(service.address, &format!(r#"{{"groups":[{{"takes":[{takes}]}}]}}"#)).await;
    is_problem(&reply, 400, "invalid_batch", "150 errors");
    assert_eq!(reply.json()["errors"].as_array().map(Vec::len), Some(20));
    assert_eq!(reply.json()["more_errors"], 130);
}

#[tokio::test]
async fn pages_methods_and_content_types_that_are_not_known() {
    let service = run(Setup::default()).await;
    is_problem(&get(service.address, "/").await, 404, "not_found", "/openapi.json");
    let reply = get(service.address, "/v1/take").await;
    is_problem(&reply, 405, "wrong_method", "only POST");
    assert!(reply.head.contains("allow: post"));
    let reply =
        request(service.address, "POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"").await;
    is_problem(&reply, 405, "wrong_method", "only GET");
    for headers in ["", "content-type: text/plain\r\n", "content-type: application/jsonp\r\n"] {
        let reply = post_with(service.address, headers, TAKE.as_bytes()).await;
        is_problem(
            &reply,
            415,
            "unknown_content_type",
            "application/json or application/vnd.tidegate.v1+postcard",
        );
    }
    for value in ["0", "-1", "soon", "99999999999"] {
        let headers = format!("{JSON}x-envoy-expected-rq-timeout-ms: {value}\r\n");
        let reply = post_with(service.address, &headers, TAKE.as_bytes()).await;
        is_problem(&reply, 400, "invalid_header", "x-envoy-expected-rq-timeout-ms: must be a whole number");
    }
}

#[tokio::test]
async fn what_the_store_says_has_a_status() {
    let service = run(Setup::default()).await;
    for (error, status, kind) in [
        (StoreError::Expired, 504, "expired"),
        (StoreError::Deadline, 504, "deadline"),
        (StoreError::Unreachable("gone".to_owned()), 503, "unreachable"),
        (StoreError::Full("OOM".to_owned()), 503, "full"),
        (StoreError::Busy, 503, "busy"),
        (StoreError::TooOld, 409, "too_old"),
        (StoreError::Broken("odd".to_owned()), 500, "broken"),
    ] {
        let said = error.to_string();
        *service.control.error.lock().expect("no panic") = Some(error);
        let reply = post(service.address, TAKE).await;
        is_problem(&reply, status, kind, &said);
        assert_eq!(reply.head.contains("retry-after: 1"), status == 503);
        let metrics = get(service.address, "/metrics").await.text();
        assert!(
            metrics.contains(&format!("tidegate_store_errors_total{{kind=\"{kind}\"}} 1\n")),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn a_take_whose_time_is_over_never_reaches_the_store() {
    let service = run(Setup::default()).await;
    let late = TAKE.replacen('{', r#"{"wait_ms":1,"#, 1);
    for (headers, body) in
        [(JSON.to_owned(), late.as_str()), (format!("{JSON}x-envoy-expected-rq-timeout-ms: 1\r\n"), TAKE)]
    {
        let mut stream = tokio::net::TcpStream::connect(service.address).await.expect("a connection");
        let head = post_head(&headers, body.len());
        let (first, rest) = body.split_at(10);
        tokio::io::AsyncWriteExt::write_all(&mut stream, format!("{head}{first}").as_bytes())
            .await
            .expect("sent");
        // The head must have been read before the rest comes, and longer ago than the caller waits.
        metrics_say(&service, "tidegate_requests_in_flight 1\n").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let reply = exchange(&mut stream, rest, b"").await;
        is_problem(&reply, 504, "expired", "deadline passed before the store was asked");
    }
    assert_eq!(service.control.asked.load(SeqCst), 0);
}
