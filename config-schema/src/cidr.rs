//! Networks: an address and how many of its bits count.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::errors::Report;
use crate::place::quoted;
use crate::reader::Node;

const V4_BITS: u8 = 32;
const V6_BITS: u8 = 128;

/// A network such as `10.0.0.0/8`; an address alone is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    first: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Whether an address, in its canonical form, lies in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && masked(address, self.prefix) == self.first
    }

    fn parse(text: &str) -> Option<(IpAddr, u8)> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { V4_BITS } else { V6_BITS };
        let prefix = match prefix {
            Some(digits) => u8::try_from(crate::duration::whole_number(digits)?).ok()?,
            None => bits,
        };
        (prefix <= bits).then_some((address, prefix))
    }

    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let text = node.text(report)?;
        let Some((address, prefix)) = Self::parse(text) else {
            let advice = "write one such as \"10.0.0.0/8\" or \"2001:db8::/32\"";
            node.report(report, format!("{} is not a network; {advice}", quoted(text)));
            return None;
        };
        let first = masked(address, prefix);
        if first != address {
            let reason = format!("has bits beyond its prefix; write \"{first}/{prefix}\"");
            node.report(report, format!("{} {reason}", quoted(text)));
            return None;
        }
        if address.to_canonical() != address {
            let reason = "is IPv4 in IPv6 dress and would never match; write it as IPv4";
            node.report(report, format!("{} {reason}", quoted(text)));
            return None;
        }
        Some(Self { first, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

/// The first address of the network that an address lies in.
pub(crate) fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(V4_BITS.saturating_sub(prefix).into()).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(V6_BITS.saturating_sub(prefix).into()).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn networks_contain_their_addresses() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "1.2.3.4", false),
            ("1.2.3.4", "1.2.3.4", true),
            ("1.2.3.4", "1.2.3.5", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
        ];
        for (network, address, expected) in cases {
            let (first, prefix) = Cidr::parse(network).unwrap();
            assert_eq!(
                Cidr { first, prefix }.contains(address.parse().unwrap()),
                expected,
                "{network} {address}"
            );
        }
    }

    #[test]
    fn anything_else_is_no_network() {
        for text in ["", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/08", "::/129", "10/8", "10.0.0.0/-1", "x"]
        {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }
}
