//! The client's address as proxies write it.

use std::net::IpAddr;
use std::str;

/// Reads `1.2.3.4:567`, `[::1]:80`, or an address alone; a zone (`fe80::1%eth0`) is dropped.
///
/// Anything else is `None`: a Unix socket's path, a name, a port that is none.
pub fn parse(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let port_is_fine = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return without_zone(address)
            .parse()
            .ok()
            .filter(|address: &IpAddr| port_is_fine && address.is_ipv6());
    }
    match text.split_once(':') {
        Some((address, port)) if !port.contains(':') => {
            address.parse().ok().filter(|address: &IpAddr| is_port(port) && address.is_ipv4())
        }
        _ => without_zone(text).parse().ok(),
    }
}

fn without_zone(address: &str) -> &str {
    match address.split_once('%') {
        Some((address, zone)) if !zone.is_empty() && address.contains(':') => address,
        _ => address,
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn addresses() {
        let cases = [
            ("1.2.3.4:567", Some("1.2.3.4")),
            ("1.2.3.4", Some("1.2.3.4")),
            ("[::1]:80", Some("::1")),
            ("[::1]", Some("::1")),
            ("::1", Some("::1")),
            ("2001:db8::7", Some("2001:db8::7")),
            ("fe80::1%eth0", Some("fe80::1")),
            ("[fe80::1%eth0]:80", Some("fe80::1")),
            ("::ffff:1.2.3.4", Some("::ffff:1.2.3.4")),
            ("[::ffff:1.2.3.4]:9", Some("::ffff:1.2.3.4")),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text.as_bytes()), expected.map(|address| address.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_address() {
        let cases: [&[u8]; 18] = [
            b"",
            b":",
            b":80",
            b"[]:80",
            b"[::1",
            b"[::1]80",
            b"[::1]:",
            b"[1.2.3.4]:80",
            b"1.2.3.4:",
            b"1.2.3.4:http",
            b"1.2.3.4:+80",
            b"1.2.3.4:65536",
            b"1.2.3.4%eth0",
            b"1.2.3",
            b"01.2.3.4",
            b"localhost:80",
            b"/run/envoy.sock",
            b"\xff\xfe",
        ];
        for text in cases {
            assert_eq!(parse(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    proptest! {
        #[test]
        fn every_address_is_read_back(bits: u128, port: u16) {
            let v6 = Ipv6Addr::from_bits(bits);
            prop_assert_eq!(parse(format!("[{v6}]:{port}").as_bytes()), Some(IpAddr::V6(v6)));
            prop_assert_eq!(parse(v6.to_string().as_bytes()), Some(IpAddr::V6(v6)));
            let v4 = Ipv4Addr::from_bits(port.into());
            prop_assert_eq!(parse(format!("{v4}:{port}").as_bytes()), Some(IpAddr::V4(v4)));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, text in "[0-9a-f:.\\[\\]%]{0,40}") {
            parse(&bytes);
            parse(text.as_bytes());
        }
    }
}
