//! What the filter asks of a proxy. One implementation calls the real host; the tests have another.
//!
//! Every call can fail with any status, and no caller may assume otherwise.

use std::borrow::Cow;
use tidegate_core::Timestamp;

const NS_PER_MS: u64 = 1_000_000;

/// A status of a host call other than Ok.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There is no such thing.
    NotFound,
    /// Somebody else wrote in between.
    CasMismatch,
    /// Any other status, by its number in the ABI.
    Other(u32),
}

/// A header: its name in lower case and a value that holds no control characters.
pub type HeaderPair = (Cow<'static, str>, String);

/// An answer that the proxy gives in the upstream's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u32,
    /// The headers.
    pub headers: Vec<HeaderPair>,
    /// The body.
    pub body: Vec<u8>,
    /// The status for a gRPC request, which gets no HTTP status of ours.
    pub grpc_status: i32,
}

/// The proxy, as far as the filter needs it.
pub trait Host {
    /// The time in nanoseconds since the Unix epoch.
    fn now_ns(&self) -> Result<u64, Status>;

    /// The plugin's configuration, as text.
    fn configuration(&self) -> Result<Vec<u8>, Status>;

    /// All headers of the request in the ABI's serialised form, which `headers` reads.
    fn request_headers(&self) -> Result<Vec<u8>, Status>;

    /// All headers of the response, in the same form; only while the response's headers are handled.
    fn response_headers(&self) -> Result<Vec<u8>, Status>;

    /// A property of the plugin, the connection or the request.
    fn property(&self, path: &[&str]) -> Result<Vec<u8>, Status>;

    /// Sets a property that access logs can show.
    fn set_property(&self, name: &str, value: &[u8]) -> Result<(), Status>;

    /// A value of the proxy's shared data, and its version.
    fn shared(&self, key: &[u8]) -> Result<(Vec<u8>, u32), Status>;

    /// Replaces a shared value that still has version `cas`. 0 asks for no version: Envoy then writes
    /// whatever is there, Kong only if nothing is.
    fn set_shared(&self, key: &[u8], value: &[u8], cas: u32) -> Result<(), Status>;

    /// Answers the request.
    fn reply(&self, reply: &Reply) -> Result<(), Status>;

    /// Adds a header to the response; only while the response's headers are handled.
    fn add_response_header(&self, name: &str, value: &str) -> Result<(), Status>;

    /// Makes a counter metric and gives its id.
    fn define_counter(&self, name: &str) -> Result<u32, Status>;

    /// Adds to a counter metric. Not 0: hosts refuse that.
    fn add_to_counter(&self, id: u32, amount: u64) -> Result<(), Status>;

    /// Fills `bytes` with random ones.
    fn random(&self, bytes: &mut [u8]) -> Result<(), Status>;
}

/// The time as the filter counts it.
pub(crate) fn now(host: &impl Host) -> Result<Timestamp, Status> {
    host.now_ns().map(|now_ns| Timestamp::from_ms(now_ns.div_euclid(NS_PER_MS)))
}
