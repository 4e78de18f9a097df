//! The filter cannot panic and always answers, whatever the host does.

use crate::mock::{ALL_CALLS, Call, Fault, Flavour, MockHost, overwrite, serialise};
use proptest::prelude::*;
use tidegate_filter::{Engine, Status, Verdict};

const CONFIG: &str = r#"{ "table": { "slots": 64 }, "response": { "headers": "both" }, "route_metadata": true, "rules": [
    { "name": "api", "key": [{ "header": "x-api-key" }, "client_ip"], "limits": ["2/1h", "9/1d"], "when_full": "strict" },
    { "name": "other", "key": [{ "header": "x-api-key" }], "limits": ["3/1h"] },
    { "name": "after", "key": [{ "header": "x-api-key" }], "limits": ["9/1h"], "count_status": [200],
      "cost": { "response_header": "x-cost", "max": 3, "reserve": 2 } },
    { "name": "tried", "key": ["client_ip"], "limits": ["1/1h"], "mode": "shadow" } ] }"#;

/// Every status of the ABI, and some that are not in it.
fn statuses() -> impl Iterator<Item = Status> {
    let others = (2..=12).chain([99, u32::MAX]).filter(|status| *status != 8).map(Status::Other);
    [Status::NotFound, Status::CasMismatch].into_iter().chain(others)
}

fn work(host: &MockHost, engine: &mut Engine) {
    for number in 0..5 {
        host.bring(&[("x-api-key", b"ana")]);
        if let Verdict::Continue(mut passage) = engine.on_request(host, 1) {
            // Refunds one, charges one more, refunds all.
            let (status, cost) = [("200", "1"), ("200", "3"), ("404", "2")][number % 3];
            host.respond(status, &[("x-cost", cost.as_bytes())]);
            engine.on_response(host, &mut passage);
            engine.on_no_response(host, &mut passage);
        }
        engine.on_tick(host);
        host.advance(300);
    }
}

#[test]
fn every_status_from_every_call() {
    let mut configured = 0;
    let mut refused = 0;
    for flavour in [Flavour::Envoy, Flavour::Kong] {
        for call in ALL_CALLS {
            for status in statuses() {
                for (after, times) in
                    [(0, 1), (1, 1), (2, 1), (0, usize::MAX), (3, usize::MAX), (70, usize::MAX)]
                {
                    let mut host = MockHost::new(CONFIG);
                    host.flavour = flavour;
                    host.fault.set(Some(Fault { call, status, after, times }));
                    match Engine::configure(&host) {
                        Ok(mut engine) => {
                            configured += 1;
                            work(&host, &mut engine);
                            assert_heals(
                                &host,
                                &mut engine,
                                &format!("{flavour:?} {call:?} {status:?} {after}"),
                            );
                        }
                        Err(refusal) => {
                            refused += 1;
                            assert!(refusal.to_string().len() > 20, "says what is wrong: {refusal}");
                        }
                    }
                }
            }
        }
    }
    assert!(configured > 1_000 && refused > 50, "{configured} ran, {refused} were refused");
}

/// When the fault is over, the filter limits again.
fn assert_heals(host: &MockHost, engine: &mut Engine, what: &str) {
    host.fault.set(None);
    engine.on_tick(host);
    host.advance(2_000);
    let admitted = host.admitted(engine, "somebody new", 9);
    assert_eq!(admitted, 2, "{what}");
}

#[test]
fn a_failed_call_lets_the_request_pass_and_is_counted() {
    for call in [Call::Headers, Call::Time, Call::Get, Call::Set] {
        let host = MockHost::new(CONFIG);
        let mut engine = host.engine();
        host.fault.set(Some(Fault { call, status: Status::Other(10), after: 0, times: 1 }));
        assert!(host.admits(&mut engine, "ana"), "{call:?}");
        host.fault.set(None);
        engine.on_tick(&host);
        assert!(host.metric("tidegate_errors") >= 1, "{call:?}");
    }
}

#[test]
fn a_denial_that_cannot_be_sent_lets_the_request_pass() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    assert_eq!(host.admitted(&mut engine, "ana", 3), 2);
    host.fault.set(Some(Fault { call: Call::Reply, status: Status::Other(10), after: 0, times: 1 }));
    assert!(host.admits(&mut engine, "ana"), "else it would hang");
    assert!(!host.admits(&mut engine, "ana"));
}

#[test]
fn metrics_that_the_host_refuses_are_kept() {
    let host = MockHost::new(CONFIG);
    let mut engine = host.engine();
    host.admitted(&mut engine, "ana", 2);
    host.fault.set(Some(Fault {
        call: Call::AddToCounter,
        status: Status::Other(10),
        after: 0,
        times: usize::MAX,
    }));
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_allowed_rule_api"), 0);
    host.fault.set(None);
    engine.on_tick(&host);
    assert_eq!(host.metric("tidegate_allowed_rule_api"), 2);
}

#[test]
fn a_config_that_is_wrong_is_refused_with_its_path() {
    let host = MockHost::new(r#"{ "rules": [{ "nam": "x", "key": ["client_ip"], "limits": ["10/1m"] }] }"#);
    let refusal = Engine::configure(&host).err().expect("refused").to_string();
    assert!(refusal.contains("rules[0].nam"), "{refusal}");
}

proptest! {
    #[test]
    fn any_headers(bytes in any::<Vec<u8>>(), pairs in prop::collection::vec(any::<(String, Vec<u8>)>(), 0..20)) {
        let host = MockHost::new(CONFIG);
        let mut engine = host.engine();
        *host.headers.borrow_mut() = bytes;
        engine.on_request(&host, 1);
        let pairs: Vec<(&str, &[u8])> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        *host.headers.borrow_mut() = serialise(&pairs);
        engine.on_request(&host, 1);
    }

    #[test]
    fn any_response_and_metadata(response in any::<Vec<u8>>(), pairs in prop::collection::vec(any::<(String, Vec<u8>)>(), 0..20), metadata in any::<Vec<u8>>()) {
        let host = MockHost::new(CONFIG);
        let mut engine = host.engine();
        let property = "xds.route_metadata.filter_metadata.tidegate.limits";
        host.properties.borrow_mut().insert(property.into(), metadata);
        let pairs: Vec<(&str, &[u8])> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        for bytes in [response, serialise(&pairs)] {
            host.bring(&[("x-api-key", b"ana")]);
            if let Verdict::Continue(mut passage) = engine.on_request(&host, 1) {
                *host.response.borrow_mut() = bytes;
                engine.on_response(&host, &mut passage);
            }
        }
    }

    #[test]
    fn any_path_and_key(path in any::<Vec<u8>>(), key in any::<Vec<u8>>(), client in any::<String>()) {
        let host = MockHost::new(CONFIG);
        let mut engine = host.engine();
        *host.client.borrow_mut() = client;
        let headers: [(&str, &[u8]); 3] = [(":method", b"GET"), (":path", &path), ("x-api-key", &key)];
        for _ in 0..4 {
            *host.headers.borrow_mut() = serialise(&headers);
            engine.on_request(&host, 1);
        }
        for reply in host.replies.borrow().iter() {
            for (_, value) in &reply.headers {
                prop_assert!(value.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{value:?}");
            }
        }
    }

    #[test]
    fn any_shared_data(bytes in prop::collection::vec(any::<u8>(), 0..300), keep_head in any::<bool>()) {
        let host = MockHost::new(CONFIG);
        let mut engine = host.engine();
        host.admitted(&mut engine, "ana", 2);
        let keys: Vec<Vec<u8>> = host.data.borrow().keys().cloned().collect();
        for key in keys {
            let old = host.data.borrow().get(&key).map(|(value, _)| value.clone()).unwrap_or_default();
            let kept = if keep_head { 12.min(old.len()) } else { 0 };
            let mut value = old[..kept].to_vec();
            value.extend(&bytes);
            value.resize(old.len(), 0x7f);
            overwrite(&host.data, &key, &value);
        }
        work(&host, &mut engine);
        if let Ok(mut engine) = Engine::configure(&host) {
            work(&host, &mut engine);
        }
    }

    #[test]
    fn any_config(text in any::<String>()) {
        let _ = Engine::configure(&MockHost::new(&text));
    }

    #[test]
    fn any_clock(times in prop::collection::vec(any::<u64>(), 1..30)) {
        let host = MockHost::new(CONFIG);
        let mut engine = host.engine();
        for now_ms in times {
            host.now_ms.set(now_ms);
            host.admits(&mut engine, "ana");
            engine.on_tick(&host);
        }
    }
}
