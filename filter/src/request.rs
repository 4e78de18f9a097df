//! What a request brought, as far as rules and keys ask for it.

use crate::headers::Headers;
use crate::host::Host;
use core::cell::OnceCell;
use std::borrow::Cow;
use std::net::IpAddr;
use tidegate_config::{RequestParts, client_ip, path};

/// A request in the hands of the filter.
pub(crate) struct Request<'a, H> {
    host: &'a H,
    headers: Headers<'a>,
    /// The method; empty if there is none.
    pub(crate) method: &'a [u8],
    /// The path as rules see it: normalised, without the query.
    pub(crate) path: Cow<'a, [u8]>,
    /// Read once, and only if a key wants it: it costs a host call.
    client_ip: OnceCell<Option<IpAddr>>,
}

impl<'a, H: Host> Request<'a, H> {
    pub(crate) fn new(host: &'a H, headers: Headers<'a>) -> Self {
        let mut method: &[u8] = b"";
        let mut raw_path: &[u8] = b"";
        for (name, value) in headers.iter() {
            match name {
                b":method" => method = value,
                b":path" => raw_path = value,
                _ => {}
            }
        }
        Self { host, headers, method, path: path::normalise(raw_path), client_ip: OnceCell::new() }
    }
}

impl<H: Host> RequestParts for Request<'_, H> {
    fn header(&self, name: &[u8], each: &mut dyn FnMut(&[u8])) {
        for (_, value) in self.headers.iter().filter(|(other, _)| *other == name) {
            each(value);
        }
    }

    fn client_ip(&self) -> Option<IpAddr> {
        *self.client_ip.get_or_init(|| {
            let address = self.host.property(&["source", "address"]).ok()?;
            client_ip::parse(&address)
        })
    }
}
