//! From a request to the bytes that say who is counted.

use std::net::IpAddr;

use crate::key::KeyPart;
use crate::rule::Rule;

const MISSING: u8 = 0;
const PRESENT: u8 = 1;

/// What a request offers to keys.
pub trait RequestParts {
    /// Calls `each` with every value of the header, in order; the name is in lower case.
    fn header(&self, name: &[u8], each: &mut dyn FnMut(&[u8]));

    /// The client's address, if the proxy knows it.
    fn client_ip(&self) -> Option<IpAddr>;
}

impl Rule {
    /// Appends the key of a request to `out`; two requests are counted together exactly if their bytes are
    /// equal.
    ///
    /// Each part is one byte that says whether it is there, and if so its length (32 bits, little-endian) and
    /// its bytes: no value, however chosen, can look like two parts or like a missing one.
    pub fn write_key(&self, request: &impl RequestParts, out: &mut Vec<u8>) {
        for part in &self.key {
            match part {
                KeyPart::ClientIp => match request.client_ip() {
                    Some(address) => write_address(address, out),
                    None => out.push(MISSING),
                },
                KeyPart::Header(name) => write_header(name, request, out),
            }
        }
    }
}

/// Writes the one value of a header.
///
/// A header that comes twice counts as missing. Whichever of its values were taken, a client could rotate
/// that one and hold still the one that the upstream believes.
fn write_header(name: &str, request: &impl RequestParts, out: &mut Vec<u8>) {
    let start = out.len();
    let mut values: usize = 0;
    request.header(name.as_bytes(), &mut |value| {
        values = values.saturating_add(1);
        if values == 1 && !value.is_empty() {
            write_present(value, out);
        }
    });
    if values != 1 || out.len() == start {
        out.truncate(start);
        out.push(MISSING);
    }
}

fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(v4) => write_present(&v4.octets(), out),
        // A client usually has a whole /64 to itself: the low half is its own to choose.
        IpAddr::V6(v6) => write_present(&(v6.to_bits() & (u128::MAX << 64)).to_be_bytes(), out),
    }
}

fn write_present(value: &[u8], out: &mut Vec<u8>) {
    match u32::try_from(value.len()) {
        Ok(length) => {
            out.push(PRESENT);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(value);
        }
        Err(_) => out.push(MISSING),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[derive(Default)]
    struct Request {
        headers: Vec<(&'static str, Vec<u8>)>,
        client_ip: Option<IpAddr>,
    }

    impl RequestParts for Request {
        fn header(&self, name: &[u8], each: &mut dyn FnMut(&[u8])) {
            for (_, value) in self.headers.iter().filter(|(header, _)| header.as_bytes() == name) {
                each(value);
            }
        }

        fn client_ip(&self) -> Option<IpAddr> {
            self.client_ip
        }
    }

    fn rule(key: &str) -> Rule {
        let text = format!(r#"{{"rules": [{{"name": "r", "key": {key}, "limits": ["1/s"]}}]}}"#);
        Config::from_json(text.as_bytes()).unwrap().rules.remove(0)
    }

    fn key_of(rule: &Rule, request: &Request) -> Vec<u8> {
        let mut out = Vec::new();
        rule.write_key(request, &mut out);
        out
    }

    fn with_headers(headers: &[(&'static str, &[u8])]) -> Request {
        let headers = headers.iter().map(|(name, value)| (*name, value.to_vec())).collect();
        Request { headers, client_ip: None }
    }

    fn from_ip(text: &str) -> Request {
        Request { headers: Vec::new(), client_ip: Some(text.parse().unwrap()) }
    }

    #[test]
    fn a_key_is_appended_as_documented() {
        let rule = rule(r#"["client_ip", {"header": "X-Key"}, {"header": "x-other"}]"#);
        let mut request = with_headers(&[("x-key", b"ab\xff")]);
        request.client_ip = Some("1.2.3.4".parse().unwrap());
        let mut out = b"before".to_vec();
        rule.write_key(&request, &mut out);
        assert_eq!(out, b"before\x01\x04\0\0\0\x01\x02\x03\x04\x01\x03\0\0\0ab\xff\0");
    }

    #[test]
    fn a_header_that_is_missing_empty_or_repeated_is_one_and_the_same() {
        let rule = rule(r#"[{"header": "x-key"}]"#);
        let missing = key_of(&rule, &Request::default());
        assert_eq!(missing, [MISSING]);
        let cases: [&[(&'static str, &[u8])]; 7] = [
            &[("x-key", b"")],
            &[("x-key", b"a"), ("x-key", b"b")],
            &[("x-key", b"b"), ("x-key", b"a")],
            &[("x-key", b"a"), ("x-key", b"a")],
            &[("x-key", b""), ("x-key", b"a")],
            &[("x-key", b"a"), ("x-key", b"")],
            &[("x-key", b"a"), ("other", b"x"), ("x-key", b"b"), ("x-key", b"c")],
        ];
        for headers in cases {
            assert_eq!(key_of(&rule, &with_headers(headers)), missing, "{headers:?}");
        }
        assert_ne!(key_of(&rule, &with_headers(&[("x-key", b"a")])), missing);
        assert_ne!(key_of(&rule, &with_headers(&[("x-key", b"\0")])), missing);
    }

    #[test]
    fn a_missing_part_leaves_the_others_in_force() {
        let rule = rule(r#"["client_ip", {"header": "x-key"}]"#);
        assert_ne!(key_of(&rule, &from_ip("1.2.3.4")), key_of(&rule, &from_ip("1.2.3.5")));
        assert_eq!(key_of(&rule, &Request::default()), [MISSING, MISSING]);
    }

    #[test]
    fn addresses_of_one_client_are_one_key() {
        let rule = rule(r#"["client_ip"]"#);
        let cases = [
            ("1.2.3.4", "1.2.3.4", true),
            ("1.2.3.4", "1.2.3.5", false),
            ("1.2.3.4", "::ffff:1.2.3.4", true),
            ("1.2.3.4", "::1.2.3.4", false),
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ];
        for (one, other, is_same) in cases {
            let keys = [one, other].map(|text| key_of(&rule, &from_ip(text)));
            assert_eq!(keys[0] == keys[1], is_same, "{one} {other}");
        }
        assert_eq!(key_of(&rule, &from_ip("::1")).len(), 1 + 4 + 16);
    }

    /// What one request offers to a key of two headers and the address.
    type Offer = (Vec<Vec<u8>>, Vec<Vec<u8>>, Option<IpAddr>);

    fn offer() -> impl Strategy<Value = Offer> {
        // Few different bytes, the tags among them, so that clashes are likely if there can be any.
        let value = || prop::collection::vec(0..3_u8, 0..8);
        let values = || prop::collection::vec(value(), 0..3);
        let address = prop_oneof![
            Just(None),
            (0..4_u32).prop_map(|bits| Some(IpAddr::V4(Ipv4Addr::from_bits(bits)))),
            (0..4_u128).prop_map(|bits| Some(IpAddr::V6(Ipv6Addr::from_bits(bits << 63)))),
        ];
        (values(), values(), address)
    }

    /// What the key should tell apart, said without bytes.
    fn meaning((one, two, address): &Offer) -> (Option<Vec<u8>>, Option<Vec<u8>>, Option<IpAddr>) {
        let sole = |values: &Vec<Vec<u8>>| match values.as_slice() {
            [value] if !value.is_empty() => Some(value.clone()),
            _ => None,
        };
        let network = |address: IpAddr| match address {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            IpAddr::V4(_) => address,
        };
        (sole(one), sole(two), address.map(network))
    }

    proptest! {
        #[test]
        fn keys_are_equal_exactly_if_their_parts_are(first in offer(), second in offer()) {
            let rule = rule(r#"[{"header": "one"}, {"header": "two"}, "client_ip"]"#);
            let [first_key, second_key] = [&first, &second].map(|(one, two, client_ip)| {
                let ones = one.iter().map(|value| ("one", value.clone()));
                let twos = two.iter().map(|value| ("two", value.clone()));
                key_of(&rule, &Request { headers: ones.chain(twos).collect(), client_ip: *client_ip })
            });
            prop_assert_eq!(first_key == second_key, meaning(&first) == meaning(&second));
        }
    }
}
