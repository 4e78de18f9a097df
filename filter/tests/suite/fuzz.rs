//! Hostile requests, made from a seed: header soup, path soup, huge counts, bytes that are no text, maps that are cut
//! short. Whatever comes, the filter does not panic, gives a verdict, sends only clean header values, keeps its memory
//! and judges the same request in the same state in the same way.
//!
//! 30,000 requests in `make unit`; 600,000 with `TIDEGATE_SOAK=1` (`make soak`). A failure names its seed.

use crate::mock::{Flavour, MockHost};
use std::rc::Rc;
use tidegate_filter::{Engine, HeaderPair, Verdict};

/// Every source of a key, every kind of match, every algorithm, several rules at once.
const CONFIG: &str = r#"{
  "table": { "slots": 64, "large_keys": 64 },
  "client_ip": { "trusted_hops": 1 },
  "response": { "headers": "both", "extra_headers": { "x-why": "limits" } },
  "rules": [
    { "name": "header", "key": [{ "header": "x-api-key", "lowercase": true }], "limits": ["3/1h", "9/1d"], "when_full": "strict" },
    { "name": "address", "key": ["client_ip", "host", "method"], "limits": [{ "requests": 2, "per": "1m", "algorithm": "token_bucket" }] },
    { "name": "login", "match": { "path": "/login", "not": { "headers": { "x-skip": { "present": true } } } },
      "key": [{ "query": "user" }, { "cookie": "id" }], "limits": [{ "requests": 5, "per": "1h", "algorithm": "sliding_log" }] },
    { "name": "orgs", "match": { "path_template": "/orgs/{org}/**", "query": { "v": ["1", "2"] } },
      "key": [{ "path_segment": "org" }], "key_missing": "deny", "limits": [{ "requests": 4, "per": "10m", "algorithm": "sliding_buckets" }] },
    { "name": "cost", "match": { "path_prefix": "/cost" }, "key": [{ "jwt": "org" }], "limits": ["1000/1h"],
      "cost": { "header": "x-cost", "max": 68719476736, "default": 3 }, "count_denied": true },
    { "name": "plans", "key": [{ "header": "x-api-key" }], "mode": "shadow",
      "plans": { "default": "free", "by": { "header": "x-plan" }, "limits": { "free": ["1/1m"], "pro": ["68719476736/1d"] } },
      "exempt": { "cidrs": ["10.9.0.0/16"] }, "deny": { "values": ["banned"] },
      "response": { "body": "{rule} {retry_after} {limit}", "status": 503 } }
  ]
}"#;

const REQUESTS_PER_SEED: usize = 200;

#[test]
fn hostile_requests() {
    let soak = std::env::var_os("TIDEGATE_SOAK").is_some_and(|value| value == "1");
    let seeds = if soak { 3_000 } else { 150 };
    let mut ends = Ends::default();
    for seed in 1..=seeds {
        run(seed, &mut ends);
    }
    // A generator that never gets past the first check would find nothing.
    let Ends { passed, denied, unreadable } = ends;
    assert!(passed > 1_000 && denied > 1_000 && unreadable > 300, "{passed}, {denied}, {unreadable}");
}

/// How many requests met which end.
#[derive(Default)]
struct Ends {
    passed: usize,
    denied: usize,
    unreadable: u64,
}

/// One proxy, from its start on.
fn run(seed: u64, ends: &mut Ends) {
    let mut random = Random(seed);
    let mut host = MockHost::new(CONFIG);
    host.flavour = if seed.is_multiple_of(2) { Flavour::Envoy } else { Flavour::Kong };
    let mut engine = host.engine();
    for number in 0..REQUESTS_PER_SEED {
        let what = format!("seed {seed}, request {number}");
        arrive(&host, &mut random);
        // Dear: a config is read and a table copied for it.
        let expected = if random.one_in(16) { twin_verdict(&host) } else { None };
        host.access_log.borrow_mut().clear();
        let mut verdict = engine.on_request(&host, 1);
        match &mut verdict {
            Verdict::Continue(passage) => {
                ends.passed += 1;
                assert_clean(&passage.headers, &what);
                engine.on_response(&host, passage);
            }
            Verdict::Answered | Verdict::Wait(_) => {
                ends.denied += 1;
                let reply = host.last_reply();
                assert!((400..600).contains(&reply.status), "{what}: {}", reply.status);
                assert!(reply.body.len() < 8_192, "{what}: {} bytes", reply.body.len());
                assert_clean(&reply.headers, &what);
            }
        }
        if let Some(expected) = expected {
            assert_eq!(is_let_through(&verdict), expected, "{what}: a VM without memories judges the same");
        }
        for line in host.access_log.borrow().iter() {
            assert!(line.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{what}: {line:?}");
        }
        if random.one_in(8) {
            engine.on_tick(&host);
        }
    }
    engine.on_tick(&host);
    ends.unreadable += host.metric("tidegate_errors");
    assert_eq!(host.metric("tidegate_bad_states"), 0, "seed {seed}");
    assert_bounded(&host, seed);
}

fn is_let_through(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Continue(_))
}

/// What a fresh VM makes of the same request on a copy of the same state. It remembers no denial, so that the table
/// alone decides, and must come to the same end.
fn twin_verdict(host: &MockHost) -> Option<bool> {
    let mut twin = MockHost::new(CONFIG);
    twin.flavour = host.flavour;
    twin.data = Rc::new(std::cell::RefCell::new(host.data.borrow().clone()));
    twin.now_ms.set(host.now_ms.get());
    twin.client.borrow_mut().clone_from(&host.client.borrow());
    twin.properties.borrow_mut().clone_from(&host.properties.borrow());
    twin.headers.borrow_mut().clone_from(&host.headers.borrow());
    let mut engine = Engine::configure(&twin).ok()?;
    let first = engine.on_request(&twin, 1);
    Some(is_let_through(&first))
}

/// Nothing that a client sent may break out of a header.
fn assert_clean(headers: &[HeaderPair], what: &str) {
    for (name, value) in headers {
        assert!(
            name.bytes().all(|byte| byte.is_ascii_lowercase() || b"-0123456789".contains(&byte)),
            "{what}: {name}"
        );
        assert!(value.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{what}: {name}: {value:?}");
    }
}

/// No request makes shared data grow: what is there was laid out, or (on Kong) would have been.
fn assert_bounded(host: &MockHost, seed: u64) {
    const SLOTS_MAX: usize = 64 + 64;
    let data = host.data.borrow();
    assert!(data.len() <= SLOTS_MAX + 8, "seed {seed}: {} keys", data.len());
    let bytes: usize = data.values().map(|(value, _)| value.len()).sum();
    assert!(bytes <= 4 << 20, "seed {seed}: {bytes} bytes");
}

/// The next request, and the time and the connection that it comes with.
fn arrive(host: &MockHost, random: &mut Random) {
    host.advance(random.pick(&[0, 0, 1, 300, 1_001, 60_000, 3_600_000]));
    if random.one_in(50) {
        host.now_ms.set(random.pick(&[0, 1, u64::from(u32::MAX), crate::mock::T0, u64::MAX / 2_000_000]));
    }
    let client = random.pick(&[
        "10.0.0.1:1",
        "[2001:db8::1]:2",
        "10.9.1.1:3",
        "",
        "/run/x.sock",
        "fe80::1%eth0",
        "\u{fffd}",
    ]);
    *host.client.borrow_mut() = client.into();
    let claim = "metadata.filter_metadata.envoy.filters.http.jwt_authn.jwt_payload.org";
    let mut properties = host.properties.borrow_mut();
    properties.clear();
    if random.one_in(2) {
        properties.insert(claim.into(), random.bytes(12));
    }
    *host.headers.borrow_mut() = map(random);
}

/// A header map as the ABI has it: mostly whole, sometimes not.
fn map(random: &mut Random) -> Vec<u8> {
    let pairs = pairs(random);
    let mut bytes = serialised(&pairs);
    match random.below(24) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 => {
            // A count or a length that lies.
            let at = random.below(bytes.len().min(4 + 8 * pairs.len()).max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.pick(&[0, 1, 0x7f, 0xff]);
            }
        }
        2 => bytes = random.bytes(64),
        3 => bytes.clear(),
        _ => {}
    }
    bytes
}

fn pairs(random: &mut Random) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = vec![
        (
            b":method".to_vec(),
            random.pick::<&[u8]>(&[b"GET", b"POST", b"get", b"", b"\xff", b"PRI"]).to_vec(),
        ),
        (b":path".to_vec(), path(random)),
        (
            b":authority".to_vec(),
            random.pick::<&[u8]>(&[b"a.test", b"A.TEST:80", b"[::1", b"", b"@", b"a@b:c@d"]).to_vec(),
        ),
    ];
    if random.one_in(10) {
        pairs.remove(random.below(pairs.len()));
    }
    let count = if random.one_in(200) { 12_000 } else { random.below(10) };
    for _ in 0..count {
        pairs.push(header(random));
    }
    if random.one_in(10) {
        pairs.reverse();
    }
    pairs
}

fn header(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let name = random.pick::<&[u8]>(&[
        b"x-api-key",
        b"x-api-key",
        b"x-forwarded-for",
        b"cookie",
        b"x-cost",
        b"x-plan",
        b"x-skip",
        b"X-Api-Key",
        b"",
        b":path",
        b"\xff\x00",
    ]);
    let value = match random.below(10) {
        0 => random.bytes(40),
        1 => b"a\r\nset-cookie: x=y\r\n\0".to_vec(),
        2 => vec![b'9'; random.below(40)],
        3 => vec![b','; random.below(2_000)],
        4 if random.one_in(20) => vec![b'x'; 200_000],
        _ => random
            .pick::<&[u8]>(&[
                b"ana",
                b"ben",
                b"ANA",
                b"banned",
                b"pro",
                b"free",
                b"id=7; id=8",
                b"id=\"7\"",
                b"; ; =",
                b"10.0.0.9, 10.9.0.1",
                b"1.2.3.4, [::1%x]:99999",
                b"18446744073709551616",
                b"-1",
                b"0",
                b"1",
                b"",
            ])
            .to_vec(),
    };
    (name.to_vec(), value)
}

fn path(random: &mut Random) -> Vec<u8> {
    const PIECES: [&[u8]; 24] = [
        b"/",
        b"//",
        b"login",
        b"orgs",
        b"acme",
        b"cost",
        b".",
        b"..",
        b"%2e",
        b"%",
        b"%6c",
        b"%zz",
        b"%00",
        b"%2f",
        b"\\",
        b";x=1",
        b"?",
        b"&user=a",
        b"user=%61",
        b"v=1",
        b"#",
        b"http://h",
        b"\xc3\xa9",
        b"\0",
    ];
    match random.below(6) {
        0 => b"/login?user=a".to_vec(),
        1 => b"/orgs/acme/x?v=1".to_vec(),
        2 => b"/cost".to_vec(),
        3 if random.one_in(30) => b"/..".repeat(30_000),
        _ => (0..random.below(12)).flat_map(|_| random.pick(&PIECES).to_vec()).collect(),
    }
}

fn serialised(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let length = |length: usize| u32::try_from(length).expect("short").to_le_bytes();
    let mut bytes = length(pairs.len()).to_vec();
    for (name, value) in pairs {
        bytes.extend(length(name.len()));
        bytes.extend(length(value.len()));
    }
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend(text);
        bytes.push(0);
    }
    bytes
}

/// xorshift64*: enough for soup, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).expect("a number");
        usize::try_from((self.next() >> 16) % bound).expect("below a usize")
    }

    fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn bytes(&mut self, length_max: usize) -> Vec<u8> {
        (0..self.below(length_max + 1)).map(|_| self.next().to_le_bytes()[3]).collect()
    }
}
