//! What a request brings, each thing fetched only when some rule asks for it, and then once.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

use crate::client_address::ClientAddress;
use crate::host;
use crate::path::normalise;

/// What the proxy knows about a request. Every method may cost a call to the host, so none is called unless a
/// rule depends on it.
pub trait RequestParts {
    /// Calls `each` with every value of the header, in order; the name is in lower case.
    fn header(&self, name: &[u8], each: &mut dyn FnMut(&[u8]));

    /// The address at the other end of the connection, if the proxy knows it.
    fn client_ip(&self) -> Option<IpAddr>;

    /// The method; empty if there is none.
    fn method(&self) -> &[u8];

    /// The target as it was sent, with its query; empty if there is none.
    fn path(&self) -> &[u8];

    /// The authority as it was sent (`:authority`, or the `host` header); empty if there is none.
    fn authority(&self) -> &[u8];

    /// Something that the proxy found out about the request.
    fn property(&self, property: Property<'_>) -> Option<Vec<u8>>;
}

/// Something that a proxy finds out about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property<'a> {
    /// The name of the route that the request takes.
    RouteName,
    /// The name of the virtual host that holds the route.
    VirtualHostName,
    /// The URI in the subject alternative name of the client's certificate.
    UriSan,
    /// A claim of a token that an earlier filter verified.
    JwtClaim {
        /// The name under which that filter keeps the token's payload.
        payload: &'a str,
        /// Where the claim stands in the payload, from the outside in.
        path: &'a [String],
    },
}

/// One request, in the form in which rules look at it.
pub struct Facts<'a> {
    request: &'a dyn RequestParts,
    address: ClientAddress,
    path: OnceCell<Cow<'a, [u8]>>,
    host: OnceCell<Cow<'a, [u8]>>,
    route: OnceCell<Option<Vec<u8>>>,
    virtual_host: OnceCell<Option<Vec<u8>>>,
    uri_san: OnceCell<Option<Vec<u8>>>,
    client_ip: OnceCell<Option<IpAddr>>,
}

impl<'a> Facts<'a> {
    /// Nothing is asked of the request yet.
    pub fn new(request: &'a dyn RequestParts, address: ClientAddress) -> Self {
        Self {
            request,
            address,
            path: OnceCell::new(),
            host: OnceCell::new(),
            route: OnceCell::new(),
            virtual_host: OnceCell::new(),
            uri_san: OnceCell::new(),
            client_ip: OnceCell::new(),
        }
    }

    /// The method as it was sent.
    pub fn method(&self) -> &'a [u8] {
        self.request.method()
    }

    /// The path in its normal form, without the query.
    pub fn path(&self) -> &[u8] {
        self.path.get_or_init(|| normalise(self.request.path()))
    }

    /// What stands between `?` and `#` in the target, as it was sent.
    pub fn query(&self) -> &'a [u8] {
        let target = self.request.path();
        let before_fragment = target.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mark = before_fragment.iter().position(|byte| *byte == b'?');
        mark.and_then(|mark| before_fragment.get(mark.saturating_add(1)..)).unwrap_or_default()
    }

    /// The host that is asked for: in small letters, without port and without a dot at its end.
    pub fn host(&self) -> &[u8] {
        self.host.get_or_init(|| host::normalise(self.request.authority()))
    }

    /// The name of the route, if it has one.
    pub fn route(&self) -> Option<&[u8]> {
        self.property(&self.route, Property::RouteName)
    }

    /// The name of the virtual host, if it has one.
    pub fn virtual_host(&self) -> Option<&[u8]> {
        self.property(&self.virtual_host, Property::VirtualHostName)
    }

    /// The URI of the client's certificate, if it showed one.
    pub fn uri_san(&self) -> Option<&[u8]> {
        self.property(&self.uri_san, Property::UriSan)
    }

    /// A claim of the request's token.
    pub(crate) fn jwt_claim(&self, payload: &str, path: &[String]) -> Option<Vec<u8>> {
        self.request.property(Property::JwtClaim { payload, path })
    }

    /// The client's address, found as the config says, in its canonical form and whole.
    pub fn client_ip(&self) -> Option<IpAddr> {
        *self.client_ip.get_or_init(|| self.address.find(self.request))
    }

    /// The network by which the client is counted.
    pub(crate) fn client_network(&self) -> Option<IpAddr> {
        self.client_ip().map(|address| self.address.network(address))
    }

    /// Calls `each` with every value of the header.
    pub(crate) fn header(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        self.request.header(name.as_bytes(), each);
    }

    fn property<'s>(&'s self, cell: &'s OnceCell<Option<Vec<u8>>>, property: Property) -> Option<&'s [u8]> {
        let value = cell.get_or_init(|| self.request.property(property).filter(|value| !value.is_empty()));
        value.as_deref()
    }
}
