//! The client's address: the connection's, or the right entry of `X-Forwarded-For`, counted by its prefix.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::{Value, json};
use tidegate_e2e::http::{self, Request};
use tidegate_e2e::{Envoy, Part, Setup};
use tokio::net::TcpSocket;

use crate::common::{admitted_of, assert_healthy, start, two_each};

#[tokio::test]
async fn by_default_it_is_the_other_end_of_the_connection() {
    let envoy = start(Setup::limits(config(&json!({})))).await;
    for last in [2, 3] {
        let from = Ipv4Addr::new(127, 0, 0, last).into();
        // Ports differ, and so do the addresses that the client claims.
        assert_eq!(admitted_from(&envoy, from, |index| claiming(&format!("203.0.113.{index}"))).await, 2);
    }
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_prefix_of_ipv4_makes_neighbours_one_client() {
    let envoy = start(Setup::limits(config(&json!({ "ipv4_prefix": 24 })))).await;
    let mut seen = 0;
    for last in 2..6 {
        seen += admitted_from(&envoy, Ipv4Addr::new(127, 0, 0, last).into(), |_| http::get("/", &[])).await;
    }
    assert_eq!(seen, 2, "127.0.0.0/24 is one client");
    assert_eq!(admitted_from(&envoy, Ipv4Addr::new(127, 0, 1, 2).into(), |_| http::get("/", &[])).await, 2);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn a_connection_over_ipv6_is_a_client_too() {
    let address = json!({ "socket_address": { "address": "::1", "port_value": 0 } });
    let setup = Setup::limits(config(&json!({}))).field(Part::Listener, "address", address);
    let envoy = start(setup).await;
    assert_eq!(envoy.address().ip(), IpAddr::V6(Ipv6Addr::LOCALHOST));
    assert_eq!(admitted_from(&envoy, Ipv6Addr::LOCALHOST.into(), |_| http::get("/", &[])).await, 2);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn trusted_hops_count_from_the_right_and_never_from_the_left() {
    let envoy = start_behind_proxies(&json!({ "trusted_hops": 2 })).await;
    // The second from the right is the client; what stands left of it is the client's own invention.
    let one = |index: usize| claiming(&format!("203.0.113.{index}, 198.51.100.7, 10.0.0.{index}"));
    assert_eq!(admitted_of(&envoy, 6, one).await, 2);
    assert_eq!(admitted_of(&envoy, 6, |_| claiming("198.51.100.7, 198.51.100.8, 10.0.0.1")).await, 2);
    // Several lines are one list, in their order.
    let split = |_| {
        http::get(
            "/",
            &[("x-forwarded-for", b"198.51.100.7"), ("X-Forwarded-For", b"198.51.100.9, 10.0.0.1")],
        )
    };
    assert_eq!(admitted_of(&envoy, 6, split).await, 2, "198.51.100.9 is the second from the right");
    let across = |_| {
        http::get("/", &[("x-forwarded-for", b"1.1.1.1, 198.51.100.9"), ("x-forwarded-for", b"10.0.0.1")])
    };
    assert_eq!(
        admitted_of(&envoy, 3, across).await,
        0,
        "the same client again, from the end of another line"
    );
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn with_too_few_entries_the_connection_says_who_it_is() {
    // Envoy itself appends one entry here, so that there are two at most.
    let envoy = start(Setup::limits(config(&json!({ "trusted_hops": 3 })))).await;
    let few = |index: usize| match index % 2 {
        0 => claiming(&format!("203.0.113.{index}")),
        _ => http::get("/", &[]),
    };
    for last in [2, 3] {
        assert_eq!(admitted_from(&envoy, Ipv4Addr::new(127, 0, 0, last).into(), few).await, 2);
    }
    assert_healthy(&envoy).await;
}

/// A fact about Envoy that docs/rules.md warns of.
#[tokio::test]
async fn without_use_remote_address_the_connections_address_is_what_the_last_entry_claims() {
    let envoy = start_behind_proxies(&json!({})).await;
    assert_eq!(admitted_of(&envoy, 4, |index| claiming(&format!("198.51.100.{index}"))).await, 4);
    let last = |index: usize| claiming(&format!("203.0.113.{index}, 198.51.100.77"));
    assert_eq!(admitted_of(&envoy, 4, last).await, 2);
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn addresses_come_in_many_forms_and_garbage_is_none() {
    let envoy = start_behind_proxies(&json!({ "trusted_hops": 1 })).await;
    // All of these are one /64, whatever their port, zone or spelling.
    let forms = [
        "2001:db8:0:1::7",
        "2001:DB8::1:0:0:0:7",
        "[2001:db8:0:1::8]",
        "[2001:db8:0:1:ffff::9]:4711",
        "2001:db8:0:1::7%eth0",
        "[2001:db8:0:1::7%eth0]:80",
    ];
    assert_eq!(admitted_of(&envoy, forms.len(), |index| claiming(forms[index])).await, 2);
    assert_eq!(admitted_of(&envoy, 4, |_| claiming("2001:db8:0:2::7")).await, 2, "another /64");
    // An IPv4 address is the same with a port, and inside IPv6.
    let forms = ["198.51.100.7", "198.51.100.7:4711", "::ffff:198.51.100.7", "[::ffff:198.51.100.7]:80"];
    assert_eq!(admitted_of(&envoy, forms.len(), |index| claiming(forms[index])).await, 2);
    // What is no address makes the key missing, and all who lack it share one bucket.
    let garbage =
        ["", "unknown", "localhost", "198.51.100", "0x7f.1", "[::1", "198.51.100.7:http", "\"1.2.3.4\""];
    let seen =
        admitted_of(&envoy, garbage.len(), |index| claiming(&format!("1.2.3.4, {}", garbage[index]))).await;
    assert_eq!(seen, 2);
    let binary = |_| http::get("/", &[("x-forwarded-for", b"\xff\xfe".as_slice())]);
    assert_eq!(admitted_of(&envoy, 3, binary).await, 0, "the same bucket, empty by now");
    assert_healthy(&envoy).await;
}

#[tokio::test]
async fn at_the_edge_envoys_own_entry_is_the_one_hop() {
    // With use_remote_address Envoy appends its peer before filters run: `trusted_hops: 1` is then that peer.
    let envoy = start(Setup::limits(config(&json!({ "trusted_hops": 1 })))).await;
    for last in [2, 3] {
        let from = Ipv4Addr::new(127, 0, 0, last).into();
        assert_eq!(admitted_from(&envoy, from, |index| claiming(&format!("203.0.113.{index}"))).await, 2);
    }
    assert_healthy(&envoy).await;
}

fn config(client_ip: &Value) -> Value {
    json!({ "client_ip": client_ip, "rules": [two_each(&json!(["client_ip"]))] })
}

/// An Envoy that is not the edge: it leaves `X-Forwarded-For` as the proxies in front of it made it.
async fn start_behind_proxies(client_ip: &Value) -> Envoy {
    let setup = Setup::limits(config(client_ip))
        .connection_manager("use_remote_address", json!(false))
        .connection_manager("skip_xff_append", json!(true));
    start(setup).await
}

fn claiming(forwarded_for: &str) -> Request {
    http::get("/", &[("x-forwarded-for", forwarded_for.as_bytes())])
}

/// How many of six requests from this address pass.
async fn admitted_from(envoy: &Envoy, from: IpAddr, make: impl Fn(usize) -> Request) -> usize {
    let mut admitted = 0;
    for index in 0..6 {
        let socket = if from.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.expect("a socket");
        socket.bind(SocketAddr::new(from, 0)).expect("an address of this machine");
        let stream = socket.connect(envoy.address()).await.expect("a connection");
        match http::send_over(stream, make(index)).await.unwrap().status {
            200 => admitted += 1,
            status => assert_eq!(status, 429),
        }
    }
    admitted
}
