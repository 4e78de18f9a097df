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

/// A call to another service.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The proxy's name for it.
    pub upstream: &'a str,
    /// The headers, with method, path and authority among them.
    pub headers: &'a [HeaderPair],
    /// The body.
    pub body: &'a [u8],
    /// How long it may take.
    pub timeout_ms: u32,
}

/// The proxy, as far as the filter needs it.
pub trait Host {
    /// The time in nanoseconds since the Unix epoch.
    fn now_ns(&self) -> Result<u64, Status>;

    /// The time in nanoseconds of a clock that nobody sets.
    fn monotonic_ns(&self) -> Result<u64, Status>;

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

    /// Begins a call to another service and gives the number by which its answer will come. Envoy makes it for the
    /// plugin, Kong for the request at hand or, from the tick, for the plugin.
    fn call(&self, call: &Call<'_>) -> Result<u32, Status>;

    /// All headers of the answer to a call, in the form of [`Self::request_headers`]; only while it is handled.
    fn answer_headers(&self) -> Result<Vec<u8>, Status>;

    /// The body of the answer to a call; only while it is handled.
    fn answer_body(&self) -> Result<Vec<u8>, Status>;

    /// Makes another request, or the plugin, the one that the next calls are about.
    fn enter(&self, context: u32) -> Result<(), Status>;

    /// Lets the request go on that waits.
    fn resume(&self) -> Result<(), Status>;

    /// Makes a counter metric and gives its id.
    fn define_counter(&self, name: &str) -> Result<u32, Status>;

    /// Adds to a counter metric. Not 0: hosts refuse that.
    fn add_to_counter(&self, id: u32, amount: u64) -> Result<(), Status>;

    /// Fills `bytes` with random ones.
    fn random(&self, bytes: &mut [u8]) -> Result<(), Status>;
}

/// The monotonic time as the filter counts it.
pub(crate) fn monotonic(host: &impl Host) -> Result<Timestamp, Status> {
    host.monotonic_ns().map(|ns| Timestamp::from_ms(ns.div_euclid(NS_PER_MS)))
}

/// The time as the filter counts it.
pub(crate) fn now(host: &impl Host) -> Result<Timestamp, Status> {
    host.now_ns().map(|now_ns| Timestamp::from_ms(now_ns.div_euclid(NS_PER_MS)))
}
