//! What rules make of requests, and the index against asking every rule.

use std::cell::Cell;
use std::net::IpAddr;

use proptest::prelude::*;
use tidegate_config::{Config, DeniedFor, Facts, Mode, Property, RequestParts, RuleSet, Subject};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use crate::{good, random};

#[derive(Clone, Debug, Default)]
struct Request {
    method: String,
    path: String,
    authority: String,
    headers: Vec<(String, String)>,
    client_ip: Option<IpAddr>,
    route: Option<String>,
    virtual_host: Option<String>,
    properties_read: Cell<usize>,
}

impl RequestParts for Request {
    fn header(&self, name: &[u8], each: &mut dyn FnMut(&[u8])) {
        for (_, value) in self.headers.iter().filter(|(header, _)| header.as_bytes() == name) {
            each(value.as_bytes());
        }
    }

    fn client_ip(&self) -> Option<IpAddr> {
        self.client_ip
    }

    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }

    fn path(&self) -> &[u8] {
        self.path.as_bytes()
    }

    fn authority(&self) -> &[u8] {
        self.authority.as_bytes()
    }

    fn property(&self, property: Property<'_>) -> Option<Vec<u8>> {
        self.properties_read.set(self.properties_read.get() + 1);
        match property {
            Property::RouteName => self.route.clone().map(String::into_bytes),
            Property::VirtualHostName => self.virtual_host.clone().map(String::into_bytes),
            Property::UriSan => None,
            Property::JwtClaim { payload, path } => {
                Some(format!("{payload}/{}", path.join("/")).into_bytes())
            }
        }
    }
}

fn get(path: &str) -> Request {
    Request {
        method: "GET".to_owned(),
        path: path.to_owned(),
        authority: "a.com".to_owned(),
        ..Request::default()
    }
}

fn with_headers(mut request: Request, headers: &[(&str, &str)]) -> Request {
    request.headers.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    request
}

/// A config with one rule that has these fields besides its name.
fn one_rule(fields: &str) -> Config {
    good::read(&format!(r#"{{"rules": [{{"name": "r", {fields}}}]}}"#))
}

fn subject(config: &Config, request: &Request) -> (Subject, Vec<u8>) {
    let mut key = Vec::new();
    let subject = config.rules[0].subject(&Facts::new(request, config.client_ip), &mut key);
    (subject, key)
}

fn matches(matches: &str, request: &Request) -> bool {
    let config = one_rule(&format!(r#""match": {matches}, "key": ["client_ip"], "limits": ["1/s"]"#));
    config.rules[0].matches(&Facts::new(request, config.client_ip))
}

#[test]
fn every_field_of_a_match_counts() {
    let mut request = with_headers(get("/a/b?q=1&%71=2&e"), &[("x-a", "abc"), ("x-a", "z")]);
    request.route = Some("r".to_owned());
    request.authority = "b.A.com:80".to_owned();
    let cases = [
        ("{}", true),
        (r#"{"route": ["x", "r"], "host": "*.a.com", "path": "/a/b", "method": "GET"}"#, true),
        (r#"{"route": "x"}"#, false),
        (r#"{"virtual_host": "v"}"#, false),
        (r#"{"host": "a.com"}"#, false),
        (r#"{"host": ["a.com", "b.a.com"]}"#, true),
        (r#"{"path": ["/a", "/a/b"]}"#, true),
        (r#"{"path_prefix": "/a/c"}"#, false),
        (r#"{"path_template": "/{x}/b"}"#, true),
        (r#"{"path_template": "/a/*/**"}"#, true),
        (r#"{"path_template": "/a/*/*"}"#, false),
        (r#"{"path_template": "/a/b/**"}"#, true),
        (r#"{"headers": {"X-A": {"present": true}}}"#, true),
        (r#"{"headers": {"x-a": {"present": false}}}"#, false),
        (r#"{"headers": {"x-b": {"present": false}}}"#, true),
        (r#"{"headers": {"x-a": "z"}}"#, true),
        (r#"{"headers": {"x-a": ["y", "x"]}}"#, false),
        (r#"{"headers": {"x-a": {"prefix": "ab"}}}"#, true),
        (r#"{"query": {"q": "2"}}"#, true),
        (r#"{"query": {"q": "3"}}"#, false),
        (r#"{"query": {"e": {"present": true}}}"#, true),
        (r#"{"not": {"path": "/a/b"}}"#, false),
        (r#"{"not": [{"path": "/x"}, {"method": "POST"}]}"#, true),
        (r#"{"not": {"path": "/a/b", "not": {"method": "GET"}}}"#, true),
    ];
    for (text, expected) in cases {
        assert_eq!(matches(text, &request), expected, "{text}");
    }
    assert!(!matches(r#"{"path_template": "/orgs/{org}"}"#, &get("/orgs/")), "a segment is not empty");
    assert!(matches(r#"{"path_template": "/orgs/**"}"#, &get("/orgs")), "nothing may follow, too");
}

#[test]
fn keys_come_from_every_source() {
    let config = one_rule(
        r#""match": {"path_template": "/o/{org}"}, "limits": ["1/s"], "key": [{"path_segment": "org", "lowercase": true},
        {"query": "q"}, {"cookie": "c"}, {"jwt": "a.b"}, "host", "method", {"constant": "k"}, "route"]"#,
    );
    let mut request = with_headers(get("/o/ACME?q=%41"), &[("cookie", "x=1; c=v"), ("cookie", "y=2")]);
    request.route = Some("main".to_owned());
    let mut expected = Vec::new();
    for value in ["acme", "A", "v", "jwt_payload/a/b", "a.com", "GET", "k", "main"] {
        expected.push(1);
        expected.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
        expected.extend_from_slice(value.as_bytes());
    }
    assert_eq!(subject(&config, &request), (Subject::Counted, expected));
}

#[test]
fn what_comes_twice_or_not_at_all_is_missing() {
    for key in [r#"{"header": "x-k"}"#, r#"{"query": "q"}"#, r#"{"cookie": "c"}"#] {
        let config = one_rule(&format!(r#""key": [{key}], "limits": ["1/s"]"#));
        let twice = with_headers(
            get("/?q=a&q=b"),
            &[("x-k", "a"), ("x-k", "b"), ("cookie", "c=1"), ("cookie", "c=2")],
        );
        let empty = with_headers(get("/?q="), &[("x-k", ""), ("cookie", "c=")]);
        let once = with_headers(get("/?q=a"), &[("x-k", "a"), ("cookie", "c=1")]);
        for request in [&get("/"), &twice, &empty] {
            assert_eq!(subject(&config, request), (Subject::Counted, vec![0]), "{key}");
        }
        assert_eq!(subject(&config, &once).1[0], 1, "{key}");
    }
}

#[test]
fn a_missing_key_is_shared_skipped_or_denied() {
    let cases = [
        ("shared", Subject::Counted),
        ("skip", Subject::Skipped),
        ("deny", Subject::Denied(DeniedFor::LackingKey)),
    ];
    for (word, expected) in cases {
        let config =
            one_rule(&format!(r#""key": [{{"header": "x-k"}}], "limits": ["1/s"], "key_missing": "{word}""#));
        assert_eq!(subject(&config, &get("/")).0, expected, "{word}");
        assert_eq!(subject(&config, &with_headers(get("/"), &[("x-k", "a")])).0, Subject::Counted);
    }
}

#[test]
fn the_client_is_counted_from_the_right() {
    let cases: [(u8, &[&str], Option<&str>); 10] = [
        (0, &["6.6.6.6"], Some("9.9.9.9")),
        (1, &["6.6.6.6, 1.1.1.1"], Some("1.1.1.1")),
        (2, &["6.6.6.6, 1.1.1.1, 2.2.2.2"], Some("1.1.1.1")),
        (2, &["6.6.6.6", "1.1.1.1", "2.2.2.2"], Some("1.1.1.1")),
        (2, &["6.6.6.6, 1.1.1.1", "[2001:db8::1%eth0]:80"], Some("1.1.1.1")),
        (1, &["6.6.6.6, [2001:db8::1%eth0]:80"], Some("2001:db8::1")),
        (1, &["::ffff:1.1.1.1"], Some("1.1.1.1")),
        (2, &["6.6.6.6"], Some("9.9.9.9")),
        (1, &["1.1.1.1, unknown"], None),
        (1, &["1.1.1.1,"], None),
    ];
    for (hops, lines, expected) in cases {
        let mut config = one_rule(r#""key": ["client_ip"], "limits": ["1/s"]"#);
        config.client_ip.trusted_hops = hops;
        let headers: Vec<(&str, &str)> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
        let mut request = with_headers(get("/"), &headers);
        request.client_ip = Some("9.9.9.9".parse().unwrap());
        let found = Facts::new(&request, config.client_ip).client_ip();
        assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{hops} {lines:?}");
    }
}

#[test]
fn prefixes_make_clients() {
    let config = good::read(
        r#"{"client_ip": {"ipv4_prefix": 24, "ipv6_prefix": 48}, "rules": [{"name": "r", "key": ["client_ip"], "limits": ["1/s"]}]}"#,
    );
    let cases = [
        ("1.2.3.4", "1.2.3.99", true),
        ("1.2.3.4", "1.2.4.4", false),
        ("2001:db8:1:2::", "2001:db8:1:3::", true),
    ];
    for (one, other, is_same) in cases {
        let keys = [one, other].map(|text| {
            subject(&config, &Request { client_ip: Some(text.parse().unwrap()), ..Request::default() }).1
        });
        assert_eq!(keys[0] == keys[1], is_same, "{one} {other}");
    }
}

/// The SHA-256 of `secret`.
const SECRET_SHA256: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

#[test]
fn lists_name_keys_digests_and_networks() {
    let config = one_rule(&format!(
        r#""key": [{{"header": "x-k", "lowercase": true}}], "limits": ["1/s"], "key_missing": "deny",
        "exempt": {{"values": ["Friend", "sha256:{SECRET_SHA256}"], "cidrs": ["10.0.0.0/8"]}}, "deny": {{"values": ["foe"]}}"#
    ));
    let cases = [
        ("friend", Subject::Exempt),
        ("FRIEND", Subject::Exempt),
        ("secret", Subject::Exempt),
        ("Secret", Subject::Exempt),
        ("foe", Subject::Denied(DeniedFor::BeingListed)),
        ("other", Subject::Counted),
    ];
    for (value, expected) in cases {
        assert_eq!(subject(&config, &with_headers(get("/"), &[("x-k", value)])).0, expected, "{value}");
    }
    let inside = Request { client_ip: Some("10.1.2.3".parse().unwrap()), ..get("/") };
    assert_eq!(subject(&config, &inside).0, Subject::Exempt, "exempt from key_missing too");
    assert_eq!(subject(&config, &with_headers(inside, &[("x-k", "foe")])).0, Subject::Exempt, "exempt wins");
}

#[test]
fn plans_are_found_by_member_then_by_request() {
    let config = one_rule(&format!(
        r#""key": [{{"header": "x-k"}}], "plans": {{"default": "free", "by": {{"header": "x-plan"}},
        "limits": {{"free": ["50/s"], "std": ["500/s"], "pro": ["1000/s", "9/day"]}}, "members": {{"pro": ["sha256:{SECRET_SHA256}"]}}}}"#
    ));
    let cases: [(&[(&str, &str)], usize); 6] = [
        (&[], 0),
        (&[("x-k", "a")], 0),
        (&[("x-k", "secret")], 2),
        (&[("x-k", "secret"), ("x-plan", "std")], 2),
        (&[("x-k", "a"), ("x-plan", "std")], 1),
        (&[("x-k", "a"), ("x-plan", "gold")], 0),
    ];
    for (headers, expected) in cases {
        let request = with_headers(get("/"), headers);
        let (_, key) = subject(&config, &request);
        let found = config.rules[0].limit_set(&Facts::new(&request, config.client_ip), &key);
        assert_eq!(found, expected, "{headers:?}");
    }
    let counters = [0, 1, 2].map(|set| config.rules[0].limits(set)[0].counter());
    assert!(counters.iter().all(|counter| *counter == counters[0]), "a changed plan keeps its count");
}

#[test]
fn a_cost_is_bounded() {
    let config = one_rule(
        r#""key": ["client_ip"], "limits": ["1/s"], "cost": {"header": "x-c", "default": 2, "max": 9}"#,
    );
    let cases = [
        ("3", 3),
        ("9", 9),
        ("10", 9),
        ("99999999999999999999999", 9),
        ("0", 2),
        ("-1", 2),
        ("x", 2),
        ("", 2),
        ("007", 7),
    ];
    for (value, expected) in cases {
        let request = with_headers(get("/"), &[("x-c", value)]);
        assert_eq!(config.rules[0].cost(&Facts::new(&request, config.client_ip)).get(), expected, "{value}");
    }
    let twice = with_headers(get("/"), &[("x-c", "3"), ("x-c", "4")]);
    assert_eq!(config.rules[0].cost(&Facts::new(&twice, config.client_ip)).get(), 2);
}

#[test]
fn a_share_of_keys_is_enforced() {
    let share = |percent: u8| {
        let config =
            one_rule(&format!(r#""key": ["client_ip"], "limits": ["1/s"], "enforced_percent": {percent}"#));
        (0..1_000_u64)
            .filter(|number| config.rules[0].is_enforced((((2 * number + 1) << 31) / 1_000) << 32))
            .count()
    };
    assert_eq!([0, 1, 50, 99, 100].map(share), [0, 10, 500, 990, 1_000]);
    let config = one_rule(r#""key": ["client_ip"], "limits": ["1/s"]"#);
    assert!(config.rules[0].is_enforced(u64::MAX));
}

#[test]
fn route_metadata_adds_and_tightens_and_nothing_else() {
    let config = good::read(
        r#"{"rules": [{"name": "a", "key": ["client_ip"], "limits": ["100/1m", "9/day",
        {"requests": 10, "per": "1s", "algorithm": "token_bucket", "burst": 20}], "overridable": true},
        {"name": "b", "key": ["client_ip"], "limits": ["100/1m"]}]}"#,
    );
    let overlay = config
        .read_route_metadata(br#"{"rules": [{"name": "c", "key": ["client_ip"], "limits": ["1/s"]}], "tighten": {"a": ["20/1m"]}}"#)
        .unwrap();
    assert_eq!(overlay.rules[0].route, None, "whoever has read it is on the route, whatever its name");
    let requests: Vec<u64> = overlay.tightened[0].limits.iter().map(|limit| limit.limit.requests()).collect();
    assert_eq!((overlay.tightened[0].rule, requests), (0, vec![20, 9, 10]));
    let cases = [
        (
            r#"{"tighten": {"b": ["1/1m"]}}"#,
            r#"tighten.b: "b" is not a rule that the config marks as "overridable""#,
        ),
        (
            r#"{"tighten": {"a": ["101/1m"]}}"#,
            "tighten.a: allows more than the rule does, or in another manner; it can only be tightened",
        ),
        (
            r#"{"tighten": {"a": [{"requests": 11, "per": "1s", "algorithm": "token_bucket", "burst": 20}]}}"#,
            "tighten.a: allows more than the rule does, or in another manner; it can only be tightened",
        ),
        (
            r#"{"tighten": {"a": [{"requests": 10, "per": "1s", "algorithm": "token_bucket", "burst": 21}]}}"#,
            "tighten.a: allows more than the rule does, or in another manner; it can only be tightened",
        ),
        (
            r#"{"tighten": {"a": ["1/2m"]}}"#,
            "tighten.a: has a limit for which the rule has none of the same kind; only the number of requests can change",
        ),
        (
            r#"{"rules": [{"name": "b", "key": ["client_ip"], "limits": ["1/s"]}]}"#,
            r#"rules[0].name: "b" is taken by the config's rules[1]; names must differ, and in metrics "-" becomes "_""#,
        ),
        (
            r#"{"rules": [{"name": "c", "match": {"route": "r"}, "key": ["client_ip"], "limits": ["1/s"]}]}"#,
            r#"rules[0].match: names a "route", but the rule is under one already; leave it out"#,
        ),
        (r#"{"enabled": false}"#, r#"enabled: unknown field; known here: "rules", "tighten""#),
    ];
    for (text, expected) in cases {
        assert_eq!(config.read_route_metadata(text.as_bytes()).unwrap_err().to_string(), expected);
    }
}

/// What one request offers to a key of two headers and the address.
type Offer = (Vec<String>, Vec<String>, Option<IpAddr>);

fn offer() -> impl Strategy<Value = Offer> {
    // Few different bytes, the tags among them, so that clashes are likely if there can be any.
    let values = || prop::collection::vec("[\\x00-\\x02]{0,7}", 0..3);
    let address = prop_oneof![
        Just(None),
        (0..4_u32).prop_map(|bits| Some(IpAddr::V4(std::net::Ipv4Addr::from_bits(bits)))),
        (0..4_u128).prop_map(|bits| Some(IpAddr::V6(std::net::Ipv6Addr::from_bits(bits << 63)))),
    ];
    (values(), values(), address)
}

/// What the key should tell apart, said without bytes.
fn meaning((one, two, address): &Offer) -> (Option<String>, Option<String>, Option<IpAddr>) {
    let sole = |values: &Vec<String>| match values.as_slice() {
        [value] if !value.is_empty() => Some(value.clone()),
        _ => None,
    };
    let network = |address: IpAddr| match address {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        IpAddr::V4(_) => address,
    };
    (sole(one), sole(two), address.map(network))
}

proptest! {
    #[test]
    fn keys_are_equal_exactly_if_their_parts_are(first in offer(), second in offer()) {
        let config = one_rule(r#""key": [{"header": "one"}, {"header": "two"}, "client_ip"], "limits": ["1/s"]"#);
        let [first_key, second_key] = [&first, &second].map(|(one, two, client_ip)| {
            let ones = one.iter().map(|value| ("one".to_owned(), value.clone()));
            let twos = two.iter().map(|value| ("two".to_owned(), value.clone()));
            let request = Request { headers: ones.chain(twos).collect(), client_ip: *client_ip, ..get("/") };
            subject(&config, &request).1
        });
        prop_assert_eq!(first_key == second_key, meaning(&first) == meaning(&second));
    }
}

fn request() -> impl Strategy<Value = Request> {
    let paths = vec![
        "/",
        "/a",
        "/a/b",
        "/a/b/",
        "/a/b/c",
        "/aa",
        "/b/",
        "/b",
        "/x",
        "//a",
        "/a?q=1",
        "/a/b?q=ab&%C3%A9=1",
    ];
    let header =
        (prop::sample::select(vec!["x-a", "x-b"]), prop::sample::select(vec!["", "1", "2", "ab", "é"]));
    let name = |names: &[&str]| {
        prop::option::of(prop::sample::select(
            names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
        ))
    };
    (
        prop::sample::select(vec!["GET", "POST", "PUT"]),
        prop::sample::select(paths),
        prop::sample::select(vec!["a.com", "b.a.com", "c.b.a.com:80", "[::1]:80", "x"]),
        prop::collection::vec(header, 0..3),
        name(&["r", "s", "z é", "b.c"]),
        name(&["v", "w"]),
    )
        .prop_map(|(method, path, authority, headers, route, virtual_host)| {
            let request = Request {
                method: method.to_owned(),
                path: path.to_owned(),
                authority: authority.to_owned(),
                route,
                virtual_host,
                ..Request::default()
            };
            with_headers(request, &headers)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_index_finds_what_asking_every_rule_finds(
        configs in prop::collection::vec(random::config(), 1..8),
        requests in prop::collection::vec(request(), 1..16),
    ) {
        let rules = configs.iter().flat_map(|config| good::read(&config.to_string()).rules).collect();
        let set = RuleSet::new(rules);
        let mut found = Vec::new();
        for request in &requests {
            let facts = Facts::new(request, tidegate_config::ClientAddress::default());
            set.matching(&facts, &mut found);
            let is_found = |(_, rule): &(u32, &tidegate_config::Rule)| rule.mode != Mode::Off && rule.matches(&facts);
            let expected: Vec<u32> = (0..).zip(set.rules()).filter(is_found).map(|(number, _)| number).collect();
            prop_assert_eq!(&found, &expected, "{:?}", request);
        }
    }
}

/// Rules that differ from each other in one way, and that a request to `/` cannot match.
fn strangers(count: usize, matches: impl Fn(usize) -> String) -> Vec<String> {
    (0..count)
        .map(|number| {
            format!(
                r#"{{"name": "s{number}", "match": {}, "key": ["client_ip"], "limits": ["1/s"]}}"#,
                matches(number)
            )
        })
        .collect()
}

#[test]
fn the_work_does_not_grow_with_rules_that_cannot_match() {
    let ways: [fn(usize) -> String; 9] = [
        |number| format!(r#"{{"path": "/p{number}"}}"#),
        |number| format!(r#"{{"path_prefix": "/p{number}/"}}"#),
        |number| format!(r#"{{"path_template": "/orgs/{{org}}/p{number}"}}"#),
        |number| format!(r#"{{"host": "h{number}.com"}}"#),
        |number| format!(r#"{{"host": "*.h{number}.com", "path_prefix": "/"}}"#),
        |number| format!(r#"{{"route": "r{number}"}}"#),
        |number| format!(r#"{{"virtual_host": "v{number}", "method": ["GET", "POST"]}}"#),
        |number| format!(r#"{{"headers": {{"x-tenant": "t{number}"}}, "path_prefix": "/"}}"#),
        |number| format!(r#"{{"query": {{"tenant": ["t{number}", "u{number}"]}}}}"#),
    ];
    let always = r#"{"name": "always", "key": ["client_ip"], "limits": ["1/s"]}"#;
    let request = Request {
        route: Some("main".to_owned()),
        ..with_headers(get("/orgs/acme/x?tenant=t"), &[("x-tenant", "t")])
    };
    for (way, matches) in ways.iter().enumerate() {
        let [few, many] = [10, 9_999].map(|count| {
            let mut rules = strangers(count, matches);
            rules.push(always.to_owned());
            let config = good::read(&format!(r#"{{"rules": [{}]}}"#, rules.join(",")));
            let set = RuleSet::new(config.rules);
            let mut found = Vec::new();
            let work = set.matching(&Facts::new(&request, config.client_ip), &mut found);
            assert_eq!(found, [u32::try_from(count).unwrap()], "way {way}");
            work
        });
        assert_eq!(few, many, "way {way}");
        assert!(many < 12, "way {way}: {many}");
    }
}

#[test]
fn nothing_is_asked_of_the_proxy_that_no_rule_depends_on() {
    let rules = strangers(1_000, |number| format!(r#"{{"path": "/p{number}", "route": "r"}}"#));
    let config = good::read(&format!(r#"{{"rules": [{}]}}"#, rules.join(",")));
    let set = RuleSet::new(config.rules);
    let request = get("/");
    set.matching(&Facts::new(&request, config.client_ip), &mut Vec::new());
    assert_eq!(request.properties_read.get(), 0);
}
