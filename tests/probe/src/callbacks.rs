//! What the host calls.

use crate::abi;
use crate::experiments;
use core::cell::{Cell, RefCell};

const CONTINUE: u32 = 0;
const PAUSE: u32 = 1;
const TICK_MS: u32 = 50;

/// Counters in shared data.
pub(crate) const CONFIGURED: &str = "probe/configured";
pub(crate) const TICKING: &str = "probe/ticking";
pub(crate) const ANSWERED: &str = "probe/answered";

thread_local! {
    static TICKED: Cell<bool> = const { Cell::new(false) };
    static ROOT: Cell<u32> = const { Cell::new(0) };
    /// The call that is under way: its number and the request that waits for it.
    static WAITING: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
    /// The requests that go on, to be looked at again when their response comes.
    static GONE_ON: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Raises a counter in shared data, whatever the host calls creation.
fn raise(counter: &str) {
    loop {
        let (value, cas) = match abi::shared(counter) {
            Ok((value, cas)) => (experiments::number(&value), cas),
            Err(_) => (0, 0),
        };
        if abi::set_shared(counter, &(value + 1).to_string(), cas) == 0 {
            return;
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn _initialize() {}

#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut u8 {
    Box::leak(vec![0; size].into_boxed_slice()).as_mut_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(context: u32, parent: u32) {
    if parent == 0 {
        ROOT.set(context);
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_: u32, _: usize) -> u32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(_: u32, _: usize) -> u32 {
    raise(CONFIGURED);
    u32::from(abi::set_tick(TICK_MS) == 0)
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(_: u32) {
    if !TICKED.replace(true) {
        raise(TICKING);
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(context: u32, _: usize, _: usize) -> u32 {
    let path = abi::header(abi::MAP_REQUEST, ":path").unwrap_or_default();
    let path = String::from_utf8_lossy(&path).into_owned();
    if let Some(upstream) = path.strip_prefix("/call/") {
        return call(context, upstream);
    }
    if path == "/phases" {
        GONE_ON.with_borrow_mut(|gone_on| gone_on.push(context));
        return CONTINUE;
    }
    abi::reply(&experiments::run(&path));
    PAUSE
}

/// Calls, and answers when the answer comes; or at once, if there will be none.
fn call(context: u32, upstream: &str) -> u32 {
    let timeout_ms = if upstream == "late" { 200 } else { 5_000 };
    let (status, token) = abi::call(upstream, timeout_ms);
    if status != 0 {
        abi::reply(&format!("call: {}\n", abi::word(status)));
        return PAUSE;
    }
    WAITING.set(Some((token, context)));
    PAUSE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(
    context: u32,
    token: u32,
    headers: usize,
    body_size: usize,
    _: usize,
) {
    let Some((expected, request)) = WAITING.take() else { return };
    if token != expected {
        return;
    }
    let caller = if context == ROOT.get() { "root" } else { "request" };
    let status = match abi::header(abi::MAP_CALL_RESPONSE, ":status") {
        Ok(status) => String::from_utf8_lossy(&status).into_owned(),
        Err(status) => abi::word(status),
    };
    let body = abi::buffer(abi::BUFFER_CALL_RESPONSE).map_or_else(abi::word, |body| {
        if body.len() == body_size {
            "as long as announced".to_owned()
        } else {
            "of another length".to_owned()
        }
    });
    let effective = abi::word(abi::set_effective_context(request));
    abi::reply(&format!(
        "call: ok\nanswered in the context of the {caller}\nany headers: {}\n:status: {status}\nbody: {body}\n\
         set_effective_context of the request: {effective}\n",
        headers > 0
    ));
    abi::set_effective_context(context);
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(context: u32, _: usize, _: usize) -> u32 {
    raise(ANSWERED);
    let is_ours = GONE_ON.with_borrow_mut(|gone_on| {
        let found = gone_on.iter().position(|other| *other == context);
        found.map(|place| gone_on.swap_remove(place)).is_some()
    });
    if is_ours {
        let seen = experiments::in_the_response_phase();
        abi::add_header(abi::MAP_RESPONSE, "x-probe", seen.trim_end().replace('\n', "; ").as_str());
    }
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(_: u32) {}
