//! What a request brought, as far as rules and keys ask for it. Properties are read only then: each costs a
//! host call.

use crate::headers::Headers;
use crate::host::Host;
use crate::table::HostKind;
use std::net::IpAddr;
use tidegate_config::{Property, RequestParts, client_ip};

/// A request in the hands of the filter.
pub(crate) struct Request<'a, H> {
    host: &'a H,
    kind: HostKind,
    headers: Headers<'a>,
    method: &'a [u8],
    path: &'a [u8],
    authority: &'a [u8],
}

impl<'a, H: Host> Request<'a, H> {
    pub(crate) fn new(host: &'a H, kind: HostKind, headers: Headers<'a>) -> Self {
        let mut request = Self { host, kind, headers, method: b"", path: b"", authority: b"" };
        for (name, value) in headers.iter() {
            match name {
                b":method" => request.method = value,
                b":path" => request.path = value,
                b":authority" => request.authority = value,
                _ => {}
            }
        }
        request
    }

    fn read(&self, path: &[&str]) -> Option<Vec<u8>> {
        self.host.property(path).ok()
    }
}

impl<H: Host> RequestParts for Request<'_, H> {
    fn header(&self, name: &[u8], each: &mut dyn FnMut(&[u8])) {
        for (_, value) in self.headers.iter().filter(|(other, _)| *other == name) {
            each(value);
        }
    }

    fn client_ip(&self) -> Option<IpAddr> {
        client_ip::parse(&self.read(&["source", "address"])?)
    }

    fn method(&self) -> &[u8] {
        self.method
    }

    fn path(&self) -> &[u8] {
        self.path
    }

    fn authority(&self) -> &[u8] {
        self.authority
    }

    /// Kong logs an error for each name that it does not know, so it is asked for nothing of Envoy's.
    fn property(&self, property: Property<'_>) -> Option<Vec<u8>> {
        match (self.kind, property) {
            (HostKind::Envoy, Property::RouteName) => self.read(&["xds", "route_name"]),
            (HostKind::Envoy, Property::VirtualHostName) => self.read(&["xds", "virtual_host_name"]),
            (HostKind::Envoy, Property::UriSan) => self.read(&["connection", "uri_san_peer_certificate"]),
            (HostKind::Envoy, Property::JwtClaim { payload, path }) => {
                let filter = ["metadata", "filter_metadata", "envoy.filters.http.jwt_authn", payload];
                let path: Vec<&str> = filter.into_iter().chain(path.iter().map(String::as_str)).collect();
                self.read(&path)
            }
            (HostKind::Kong, Property::RouteName) => self.read(&["kong", "route_name"]),
            (HostKind::Kong, _) => None,
        }
    }
}
