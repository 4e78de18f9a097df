//! Batches in both encodings, over HTTP/1.1, HTTP/2 and TLS.

use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_config::wire::{Act, Answer, Batch, POSTCARD, openapi};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, pki_types::ServerName};

use crate::client::*;
use crate::*;

#[tokio::test]
async fn json_is_answered_in_json() {
    let service = run(Setup::default()).await;
    for left in [1, 0] {
        let reply = post(service.address, TAKE).await;
        assert_eq!(reply.status, 200);
        assert!(reply.head.contains("content-type: application/json"), "{reply:?}");
        let take = &reply.json()["groups"][0]["takes"][0];
        assert_eq!((take["taken"].as_u64(), take["remaining"].as_u64()), (Some(1), Some(left)));
    }
    let reply = post(service.address, TAKE).await;
    let take = &reply.json()["groups"][0]["takes"][0];
    assert_eq!((reply.status, take["taken"].as_u64()), (200, Some(0)), "a denial is an answer");
    assert!(take["retry_after_ms"].as_u64() > Some(0));
}

#[tokio::test]
async fn postcard_is_answered_in_postcard() {
    let service = run(Setup::default()).await;
    let body = Batch::from_json(TAKE.as_bytes()).expect("a batch").to_postcard();
    let headers = format!("content-type: {POSTCARD}; v=1\r\n");
    let reply = post_with(service.address, &headers, &body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.head.contains(&format!("content-type: {POSTCARD}")));
    let answer = Answer::from_postcard(&reply.body).expect("an answer");
    assert_eq!(answer.groups[0].takes[0].taken, 1);
    let json = post(service.address, TAKE).await.json();
    assert_eq!(json["epoch"].as_str(), Some(&*format!("{:016x}", answer.epoch)), "the same counters");
    assert_eq!(json["groups"][0]["takes"][0]["remaining"], 0);
}

#[tokio::test]
async fn states_are_told_in_both_encodings() {
    let service = run(Setup::default()).await;
    let asked = TAKE.replacen('{', r#"{"states": true, "#, 1);
    let json = post(service.address, &asked).await.json();
    let told = json["groups"][0]["states"][0].as_str().expect("a state").to_owned();
    let mut refund = Batch::from_json(asked.as_bytes()).expect("a batch");
    refund.groups[0].takes[0].act = Act::Refund { receipt: 0 };
    let headers = format!("content-type: {POSTCARD}\r\n");
    let reply = post_with(service.address, &headers, &refund.to_postcard()).await;
    let answer = Answer::from_postcard(&reply.body).expect("an answer");
    let state = answer.groups[0].states[0].as_ref().expect("a state");
    let hex = |byte: u8| format!("{byte:02x}");
    let hex: String = std::iter::once(state.kind()).chain(state.contents()).map(hex).collect();
    assert_eq!(hex, told, "the same counter, nothing given back");
}

#[tokio::test]
async fn http2_without_tls_is_spoken() {
    let service = run(Setup::default()).await;
    let stream = TokioIo::new(TcpStream::connect(service.address).await.expect("a connection"));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let ask = || {
        let uri = format!("http://{}/v1/take", service.address);
        let request = Request::post(uri).header("content-type", "application/json");
        request.body(Full::new(bytes::Bytes::from(TAKE))).expect("a request")
    };
    // Several at once on one connection.
    let [first, second, third] = [(); 3].map(|()| sender.send_request(ask()));
    let mut taken = 0;
    for reply in [first.await, second.await, third.await] {
        let body = reply.expect("a reply").into_body().collect().await.expect("a body").to_bytes();
        let json: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        taken += json["groups"][0]["takes"][0]["taken"].as_u64().expect("a number");
    }
    assert_eq!(taken, 2, "of 2/1h");
}

#[tokio::test]
async fn tls_is_spoken() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (TempFile::new(&made.cert.pem()), TempFile::new(&made.signing_key.serialize_pem()));
    let tls = Tls::from_files(&cert.0, &key.0).expect("TLS");
    let service = run(Setup { tls: Some(tls), ..Setup::default() }).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(service.address).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake");
    let head = post_head("content-type: application/json\r\n", TAKE.len());
    assert_eq!(exchange(&mut stream, &head, TAKE.as_bytes()).await.status, 200);

    let wrong = Tls::from_files(&key.0, &key.0).err().expect("no certificate").to_string();
    assert!(wrong.contains("has no certificate; give the chain in PEM"), "{wrong}");
    let wrong = Tls::from_files(&cert.0, &cert.0).err().expect("no key").to_string();
    assert!(wrong.contains("is not a private key in PEM"), "{wrong}");
}

#[tokio::test]
async fn a_retry_gets_the_same_answer() {
    let service = run(Setup::default()).await;
    let batch = r#"{"sender":{"proxy":"00000000000000aa","vm":1,"sequence":9},"groups":[{"takes":[{"rule":"r","limit":"9/1h","key":"k"}]}]}"#;
    let [first, again] =
        [post(service.address, batch).await.text(), post(service.address, batch).await.text()];
    assert_eq!(first, again);
}

/// Examples and answers are what the document says, and the document is served.
#[tokio::test]
async fn answers_are_as_the_document_says() {
    let service = run(Setup::default()).await;
    let served = get(service.address, "/openapi.json").await;
    assert_eq!(served.json(), openapi::document());
    let document = served.json();
    let schema = |name: &str| {
        let mut schema = document.clone();
        schema["$ref"] = format!("#/components/schemas/{name}").into();
        jsonschema::validator_for(&schema).expect("a schema")
    };
    let answer = post(service.address, TAKE).await.json();
    assert!(schema("Answer").is_valid(&answer), "{answer}");
    let batch: serde_json::Value = serde_json::from_str(TAKE).expect("JSON");
    assert!(schema("Batch").is_valid(&batch));
    let example =
        &document["paths"]["/v1/take"]["post"]["requestBody"]["content"]["application/json"]["example"];
    assert!(schema("Batch").is_valid(example), "{example}");
    let reply = post(service.address, &example.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let problem = post(service.address, "{}").await.json();
    assert!(schema("Problem").is_valid(&problem), "{problem}");
    for bad in
        [r#"{"groups": [{"takes": []}]}"#, r#"{"groups": [], "wait": 1}"#, r#"{"groups": [], "wait_ms": 0}"#]
    {
        assert!(!schema("Batch").is_valid(&serde_json::from_str(bad).expect("JSON")), "{bad}");
    }
}
