//! The harness counts right: Envoy's own limiter in Tidegate's place gives a known answer.

use std::path::Path;

use tidegate_e2e::upstream::Upstream;
use tidegate_e2e::{Filter, Setup, http, load};

use crate::common::start;

#[tokio::test]
async fn the_load_sees_what_envoy_and_the_upstream_see() {
    let upstream = Upstream::start().await.unwrap();
    let setup = Setup::new(Filter::EnvoysOwn(700)).workers(4).upstream(upstream.address());
    let envoy = start(setup).await;

    let answers = load::run(envoy.address(), 32, 1_000, |_| http::get("/", &[])).await.unwrap();

    assert_eq!((answers.count(200), answers.count(429), answers.strange()), (700, 300, 0));
    assert_eq!(answers.admitted_per_group(100).iter().sum::<usize>(), 700);
    assert_eq!(upstream.served(), 700);
    assert_eq!(envoy.counter("own.http_local_rate_limit.rate_limited").await.unwrap(), 300);
    for worker in 0..4 {
        let connections = format!("listener.127.0.0.1_0.worker_{worker}.downstream_cx_total");
        assert_eq!(envoy.counter(&connections).await.unwrap(), 8, "worker {worker}");
    }
}

#[tokio::test]
async fn an_envoy_that_is_dropped_is_gone() {
    let envoy = start(Setup::new(Filter::EnvoysOwn(1))).await;
    let process = format!("/proc/{}", envoy.pid());
    assert!(Path::new(&process).exists());
    drop(envoy);
    assert!(!Path::new(&process).exists());
}
