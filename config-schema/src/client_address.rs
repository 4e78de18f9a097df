//! Where the client's address is found, and how much of it counts.

use std::net::IpAddr;

use crate::cidr::masked;
use crate::client_ip;
use crate::errors::Report;
use crate::facts::RequestParts;
use crate::json::Json;
use crate::json_text::Fields;
use crate::reader::Node;

/// At most this many proxies in front are believed.
pub const TRUSTED_HOPS_MAX: u8 = 16;

pub(crate) const IPV4_PREFIX_MIN: u8 = 8;
pub(crate) const IPV4_PREFIX_MAX: u8 = 32;
pub(crate) const IPV6_PREFIX_MIN: u8 = 32;
pub(crate) const IPV6_PREFIX_MAX: u8 = 128;

const FIELDS: &[&str] = &["trusted_hops", "ipv4_prefix", "ipv6_prefix"];

/// Where the client's address is found, and how much of it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// Which entry of `x-forwarded-for` is the client, counted from the right; 0 is none of them but the other
    /// end of the connection.
    pub trusted_hops: u8,
    /// How many bits of an IPv4 address make a client.
    pub ipv4_prefix: u8,
    /// How many bits of an IPv6 address make a client.
    pub ipv6_prefix: u8,
}

impl Default for ClientAddress {
    fn default() -> Self {
        // Who has one address of IPv6 usually has a whole /64: the rest is its own to choose.
        Self { trusted_hops: 0, ipv4_prefix: IPV4_PREFIX_MAX, ipv6_prefix: 64 }
    }
}

impl ClientAddress {
    /// The client's address, in its canonical form.
    ///
    /// Entries are counted from the right over all the header's lines, for those on the left are whatever the
    /// client wrote. With fewer entries than trusted hops the request came by another way, and the connection
    /// says who it is. An entry that is no address is none: the address is then missing.
    pub(crate) fn find(self, request: &dyn RequestParts) -> Option<IpAddr> {
        let connection = || request.client_ip().map(|address| address.to_canonical());
        if self.trusted_hops == 0 {
            return connection();
        }
        let mut total: usize = 0;
        request.header(FORWARDED, &mut |line| total = total.saturating_add(entries(line).count()));
        let Some(wanted) = total.checked_sub(self.trusted_hops.into()) else {
            return connection();
        };
        let mut index: usize = 0;
        let mut found = None;
        request.header(FORWARDED, &mut |line| {
            for entry in entries(line) {
                if index == wanted {
                    found = client_ip::parse(entry);
                }
                index = index.saturating_add(1);
            }
        });
        found.map(|address| address.to_canonical())
    }

    /// The first address of the network by which an address is counted.
    pub(crate) fn network(self, address: IpAddr) -> IpAddr {
        let prefix = if address.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix };
        masked(address, prefix)
    }

    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let mut number = |name, absent, least: u8, most: u8| {
            object.optional(name, absent, report, |node, report| {
                let number = node.whole(least.into()..=most.into(), report)?;
                u8::try_from(number).ok()
            })
        };
        let absent = Self::default();
        let trusted_hops = number("trusted_hops", absent.trusted_hops, 0, TRUSTED_HOPS_MAX);
        let ipv4_prefix = number("ipv4_prefix", absent.ipv4_prefix, IPV4_PREFIX_MIN, IPV4_PREFIX_MAX);
        let ipv6_prefix = number("ipv6_prefix", absent.ipv6_prefix, IPV6_PREFIX_MIN, IPV6_PREFIX_MAX);
        Some(Self { trusted_hops: trusted_hops?, ipv4_prefix: ipv4_prefix?, ipv6_prefix: ipv6_prefix? })
    }

    pub(crate) fn json(self) -> Json {
        let absent = Self::default();
        let mut fields = Fields::default();
        let mut number =
            |name, value: u8, absent| fields.put_if(value != absent, name, || u64::from(value).into());
        number("trusted_hops", self.trusted_hops, absent.trusted_hops);
        number("ipv4_prefix", self.ipv4_prefix, absent.ipv4_prefix);
        number("ipv6_prefix", self.ipv6_prefix, absent.ipv6_prefix);
        fields.into()
    }
}

const FORWARDED: &[u8] = b"x-forwarded-for";

/// An empty entry is one too: it must not make another one count in its place.
fn entries(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}
