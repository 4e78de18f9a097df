//! The module that ships: small, and a stranger to every callback and host call that it does not need.

use std::collections::BTreeSet;

use tidegate_e2e::repository;
use wasmparser::{Parser, Payload};

/// Everything that a host may call. Envoy crosses into the VM for every callback that is exported, needed
/// or not; `proxy_on_delete` must stay, or the SDK keeps every request's context for ever.
const EXPORTS: [&str; 12] = [
    "_initialize",
    "malloc",
    "memory",
    "proxy_abi_version_0_2_1",
    "proxy_on_configure",
    "proxy_on_context_create",
    "proxy_on_delete",
    "proxy_on_http_call_response",
    "proxy_on_request_headers",
    "proxy_on_response_headers",
    "proxy_on_tick",
    "proxy_on_vm_start",
];

/// What the filter asks of a host.
const IMPORTS_USED: [&str; 18] = [
    "env.proxy_add_header_map_value",
    "env.proxy_continue_stream",
    "env.proxy_define_metric",
    "env.proxy_get_buffer_bytes",
    "env.proxy_get_current_time_nanoseconds",
    "env.proxy_get_header_map_pairs",
    "env.proxy_get_property",
    "env.proxy_get_shared_data",
    "env.proxy_http_call",
    "env.proxy_increment_metric",
    "env.proxy_log",
    "env.proxy_send_local_response",
    "env.proxy_set_effective_context",
    "env.proxy_set_property",
    "env.proxy_set_shared_data",
    "env.proxy_set_tick_period_milliseconds",
    "wasi_snapshot_preview1.clock_time_get",
    "wasi_snapshot_preview1.random_get",
];

/// What comes along with the SDK: default methods of its traits, which nobody calls but no linker can know.
/// Both hosts offer them. In neither list, and not to come in: `proxy_get_log_level`, which kills a worker
/// of Kong's at start.
const IMPORTS_OF_THE_SDK: [&str; 18] = [
    "env.proxy_call_foreign_function",
    "env.proxy_close_stream",
    "env.proxy_dequeue_shared_queue",
    "env.proxy_done",
    "env.proxy_enqueue_shared_queue",
    "env.proxy_get_header_map_value",
    "env.proxy_get_status",
    "env.proxy_grpc_call",
    "env.proxy_grpc_cancel",
    "env.proxy_grpc_close",
    "env.proxy_grpc_send",
    "env.proxy_grpc_stream",
    "env.proxy_register_shared_queue",
    "env.proxy_remove_header_map_value",
    "env.proxy_replace_header_map_value",
    "env.proxy_resolve_shared_queue",
    "env.proxy_set_buffer_bytes",
    "env.proxy_set_header_map_pairs",
];

const BYTES_MAX: usize = 520_000;

#[test]
fn exports_are_exactly_what_a_host_must_call() {
    let expected = EXPORTS.iter().map(|&name| name.to_owned()).collect();
    assert_same(
        &names(|payload| match payload {
            Payload::ExportSection(exports) => {
                exports.into_iter().map(|export| export.expect("an export").name.to_owned()).collect()
            }
            _ => Vec::new(),
        }),
        &expected,
    );
}

#[test]
fn imports_are_within_the_list() {
    let allowed = IMPORTS_USED.iter().chain(&IMPORTS_OF_THE_SDK);
    let allowed: BTreeSet<String> = allowed.map(|&name| name.to_owned()).collect();
    let imports = names(|payload| match payload {
        Payload::ImportSection(imports) => imports
            .into_imports()
            .map(|import| import.expect("an import"))
            .map(|import| format!("{}.{}", import.module, import.name))
            .collect(),
        _ => Vec::new(),
    });
    assert!(imports.contains("env.proxy_get_shared_data"), "an odd module: {imports:?}");
    let strange: Vec<_> = imports.difference(&allowed).collect();
    assert!(strange.is_empty(), "imports that are not on the list: {strange:?}");
}

#[test]
fn it_is_small() {
    let bytes = module().len();
    assert!(bytes < BYTES_MAX, "{bytes} bytes");
}

fn assert_same(seen: &BTreeSet<String>, expected: &BTreeSet<String>) {
    let missing: Vec<_> = expected.difference(seen).collect();
    let surplus: Vec<_> = seen.difference(expected).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:?}, surplus {surplus:?}");
}

fn names(of: impl Fn(Payload) -> Vec<String>) -> BTreeSet<String> {
    let module = module();
    let payloads = Parser::new(0).parse_all(&module);
    payloads.flat_map(|payload| of(payload.expect("a WebAssembly module"))).collect()
}

fn module() -> Vec<u8> {
    let path = repository::wasm_module().unwrap();
    std::fs::read(path).expect("the module can be read")
}
