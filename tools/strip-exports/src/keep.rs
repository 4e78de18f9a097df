//! The exports that the filter's module needs, and why each is kept.

/// Everything that the module may export, in the order of its life. All must be there, and nothing else stays.
///
/// Envoy skips a callback that is not exported, and each call into the module costs it about 0.4 µs: the SDK exports
/// every callback there is, whether the filter uses it or not.
pub(crate) const KEEP: &[&str] = &[
    // The host reads and writes its arguments here ...
    "memory",
    // ... in memory that it asks for by this name. (The ABI's `proxy_on_memory_allocate` exists only on WASI.)
    "malloc",
    // Tells the host which ABI this is; without it the module is refused.
    "proxy_abi_version_0_2_1",
    // Runs the SDK's `main!` block, which registers the root context.
    "_initialize",
    "proxy_on_context_create",
    "proxy_on_vm_start",
    "proxy_on_configure",
    // Flushes the metrics, and speaks to the counter.
    "proxy_on_tick",
    // The answer to a call: ours, in the SDK's place.
    "proxy_on_http_call_response",
    "proxy_on_request_headers",
    "proxy_on_response_headers",
    // The filter has nothing to do here, but the SDK frees its context in it: without it every request leaks one.
    "proxy_on_delete",
];

/// Exports of ours that take the place of the SDK's: ours, and the name that the host calls. The linker would not have
/// two of one name.
pub(crate) const INSTEAD: &[(&str, &str)] =
    &[("tidegate_on_http_call_response", "proxy_on_http_call_response")];
