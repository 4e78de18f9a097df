//! The one file that knows the host's ABI (proxy-wasm 0.2.1).
//!
//! The SDK dispatches the callbacks, but for one: the answer to a call. The SDK would hand it to the request that was
//! active when the call was made and drop it when that is gone; we want all answers, so the build puts an export of
//! ours in the place of the SDK's (tools/strip-exports). Every host call is made through declarations of our own, for the SDK's
//! wrappers panic on statuses that hosts do return, and a panic takes a worker's VM down.
//!
//! Safety, for every host call below: each pointer is to a live value of ours and comes with its length, or
//! is to a local that the host writes one value of its type to before it returns.

#![expect(unsafe_code, reason = "host calls are foreign functions")]

use crate::{Call, Engine, HeaderPair, Host, Passage, Reply, Slip, Status, Verdict};
use core::cell::RefCell;
use core::ptr::null_mut;
use log::{Level, LevelFilter, Log, Metadata, Record};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};
use std::rc::Rc;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, message: *const u8, size: usize) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        size_max: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_add_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_get_property(path: *const u8, path_size: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, size: usize) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(key: *const u8, key_size: usize, value: *const u8, size: usize, cas: u32)
    -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_http_call(
        upstream: *const u8,
        upstream_size: usize,
        headers: *const u8,
        headers_size: usize,
        body: *const u8,
        body_size: usize,
        trailers: *const u8,
        trailers_size: usize,
        timeout_ms: u32,
        token: *mut u32,
    ) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn random_get(bytes: *mut u8, size: usize) -> u32;
    fn clock_time_get(clock: u32, precision_ns: u64, time: *mut u64) -> u32;
}

const BUFFER_CALL_RESPONSE_BODY: u32 = 4;
const BUFFER_PLUGIN_CONFIGURATION: u32 = 7;
const MAP_REQUEST_HEADERS: u32 = 0;
const MAP_RESPONSE_HEADERS: u32 = 2;
const MAP_CALL_RESPONSE_HEADERS: u32 = 6;
const METRIC_COUNTER: u32 = 0;
const STREAM_REQUEST: u32 = 0;
const CLOCK_MONOTONIC: u32 = 1;
/// A header map with nothing in it.
const NO_HEADERS: [u8; 4] = [0; 4];

/// The proxy around this module.
struct Proxy;

fn checked(status: u32) -> Result<(), Status> {
    match status {
        0 => Ok(()),
        1 => Err(Status::NotFound),
        8 => Err(Status::CasMismatch),
        other => Err(Status::Other(other)),
    }
}

/// Takes over what a host call returned. An Ok with no data is an empty value.
fn received(status: u32, data: *mut u8, size: usize) -> Result<Vec<u8>, Status> {
    checked(status)?;
    if data.is_null() || size == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: a host that says Ok has allocated `size` bytes through this module's `malloc` export, which
    // makes a boxed slice of that length and gives it away; from here on it is ours alone.
    let boxed = unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(data, size)) };
    Ok(boxed.into_vec())
}

impl Host for Proxy {
    fn now_ns(&self) -> Result<u64, Status> {
        let mut time = 0;
        checked(unsafe { proxy_get_current_time_nanoseconds(&raw mut time) })?;
        Ok(time)
    }

    fn monotonic_ns(&self) -> Result<u64, Status> {
        let mut time = 0;
        checked(unsafe { clock_time_get(CLOCK_MONOTONIC, 1, &raw mut time) })?;
        Ok(time)
    }

    fn configuration(&self) -> Result<Vec<u8>, Status> {
        buffer(BUFFER_PLUGIN_CONFIGURATION)
    }

    fn request_headers(&self) -> Result<Vec<u8>, Status> {
        header_map(MAP_REQUEST_HEADERS)
    }

    fn response_headers(&self) -> Result<Vec<u8>, Status> {
        header_map(MAP_RESPONSE_HEADERS)
    }

    fn property(&self, path: &[&str]) -> Result<Vec<u8>, Status> {
        let path = path.join("\0");
        let (mut data, mut size) = (null_mut(), 0);
        let status = unsafe { proxy_get_property(path.as_ptr(), path.len(), &raw mut data, &raw mut size) };
        received(status, data, size)
    }

    fn set_property(&self, name: &str, value: &[u8]) -> Result<(), Status> {
        checked(unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
    }

    fn shared(&self, key: &[u8]) -> Result<(Vec<u8>, u32), Status> {
        let (mut data, mut size, mut cas) = (null_mut(), 0, 0);
        let status = unsafe {
            proxy_get_shared_data(key.as_ptr(), key.len(), &raw mut data, &raw mut size, &raw mut cas)
        };
        received(status, data, size).map(|value| (value, cas))
    }

    fn set_shared(&self, key: &[u8], value: &[u8], cas: u32) -> Result<(), Status> {
        checked(unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas) })
    }

    fn reply(&self, reply: &Reply) -> Result<(), Status> {
        let headers = serialised(&reply.headers);
        checked(unsafe {
            proxy_send_local_response(
                reply.status,
                core::ptr::null(),
                0,
                reply.body.as_ptr(),
                reply.body.len(),
                headers.as_ptr(),
                headers.len(),
                reply.grpc_status,
            )
        })
    }

    fn add_response_header(&self, name: &str, value: &str) -> Result<(), Status> {
        checked(unsafe {
            proxy_add_header_map_value(
                MAP_RESPONSE_HEADERS,
                name.as_ptr(),
                name.len(),
                value.as_ptr(),
                value.len(),
            )
        })
    }

    fn call(&self, call: &Call<'_>) -> Result<u32, Status> {
        let headers = serialised(call.headers);
        let mut token = 0;
        checked(unsafe {
            proxy_http_call(
                call.upstream.as_ptr(),
                call.upstream.len(),
                headers.as_ptr(),
                headers.len(),
                call.body.as_ptr(),
                call.body.len(),
                NO_HEADERS.as_ptr(),
                NO_HEADERS.len(),
                call.timeout_ms,
                &raw mut token,
            )
        })?;
        Ok(token)
    }

    fn answer_headers(&self) -> Result<Vec<u8>, Status> {
        header_map(MAP_CALL_RESPONSE_HEADERS)
    }

    fn answer_body(&self) -> Result<Vec<u8>, Status> {
        buffer(BUFFER_CALL_RESPONSE_BODY)
    }

    fn enter(&self, context: u32) -> Result<(), Status> {
        checked(unsafe { proxy_set_effective_context(context) })
    }

    fn resume(&self) -> Result<(), Status> {
        checked(unsafe { proxy_continue_stream(STREAM_REQUEST) })
    }

    fn define_counter(&self, name: &str) -> Result<u32, Status> {
        let mut id = 0;
        checked(unsafe { proxy_define_metric(METRIC_COUNTER, name.as_ptr(), name.len(), &raw mut id) })?;
        Ok(id)
    }

    fn add_to_counter(&self, id: u32, amount: u64) -> Result<(), Status> {
        checked(unsafe { proxy_increment_metric(id, i64::try_from(amount).unwrap_or(i64::MAX)) })
    }

    fn random(&self, bytes: &mut [u8]) -> Result<(), Status> {
        checked(unsafe { random_get(bytes.as_mut_ptr(), bytes.len()) })
    }
}

fn buffer(buffer: u32) -> Result<Vec<u8>, Status> {
    let (mut data, mut size) = (null_mut(), 0);
    let status = unsafe { proxy_get_buffer_bytes(buffer, 0, usize::MAX, &raw mut data, &raw mut size) };
    received(status, data, size)
}

fn header_map(map: u32) -> Result<Vec<u8>, Status> {
    let (mut data, mut size) = (null_mut(), 0);
    let status = unsafe { proxy_get_header_map_pairs(map, &raw mut data, &raw mut size) };
    received(status, data, size)
}

/// A header map in the ABI's form; `headers` reads the same.
fn serialised(headers: &[HeaderPair]) -> Vec<u8> {
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = length(headers.len()).to_vec();
    for (name, value) in headers {
        bytes.extend_from_slice(&length(name.len()));
        bytes.extend_from_slice(&length(value.len()));
    }
    for (name, value) in headers {
        for text in [name.as_ref(), value] {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
    }
    bytes
}

/// Log lines go to the proxy's log; one that it will not take is gone, there is nowhere else to say so.
struct ProxyLog;

impl Log for ProxyLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = match record.level() {
            Level::Trace => 0,
            Level::Debug => 1,
            Level::Info => 2,
            Level::Warn => 3,
            Level::Error => 4,
        };
        let message = format!("tidegate: {}", record.args());
        unsafe { proxy_log(level, message.as_ptr(), message.len()) };
    }

    fn flush(&self) {}
}

/// A plugin and its requests share the engine. Callbacks of one VM do not overlap, and a borrow that fails
/// all the same lets the request pass instead of panicking.
type Shared = Rc<RefCell<Option<Engine>>>;

thread_local! {
    /// The plugins of this VM, for answers to calls, which come with no context of ours.
    static PLUGINS: RefCell<Vec<(u32, Shared)>> = const { RefCell::new(Vec::new()) };
}

fn set_tick(ms: u64) {
    let ms = u32::try_from(ms).unwrap_or(u32::MAX);
    if let Err(status) = checked(unsafe { proxy_set_tick_period_milliseconds(ms) }) {
        log::warn!("no tick ({status:?}): metrics, debts and reports will be late until the plugin ends");
    }
}

struct Root {
    id: u32,
    engine: Shared,
    ticks: bool,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let engine = match Engine::configure(&Proxy) {
            Ok(engine) => engine,
            Err(refusal) => {
                log::error!("{refusal}");
                return false;
            }
        };
        let engine_tick_ms = engine.tick_ms();
        if let Ok(mut shared) = self.engine.try_borrow_mut() {
            *shared = Some(engine);
        }
        // Once: a second period traps in Kong.
        if !self.ticks {
            self.ticks = true;
            set_tick(engine_tick_ms);
        }
        true
    }

    fn on_tick(&mut self) {
        with(&self.engine, |engine| engine.on_tick(&Proxy));
        see_to_waiting(&self.engine, self.id, SEEN_TO_MAX);
    }

    fn create_http_context(&self, context_id: u32) -> Option<Box<dyn HttpContext>> {
        let engine = Rc::clone(&self.engine);
        Some(Box::new(Stream { id: context_id, engine, passage: Passage::default(), slip: None }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// The last metrics, debts and refunds must not be lost with the plugin.
impl Drop for Root {
    fn drop(&mut self) {
        PLUGINS.with(|plugins| {
            if let Ok(mut plugins) = plugins.try_borrow_mut() {
                plugins.retain(|(id, _)| *id != self.id);
            }
        });
        with(&self.engine, |engine| engine.on_end(&Proxy));
    }
}

/// Does something with the engine, if there is one and nobody else has it.
fn with<T>(engine: &Shared, act: impl FnOnce(&mut Engine) -> T) -> Option<T> {
    engine.try_borrow_mut().ok()?.as_mut().map(act)
}

/// Requests that are let go on or answered in one callback. Each may enter this module again one level deeper, and
/// V8's stack ends; the others are seen to from the next tick or answer.
const SEEN_TO_MAX: usize = 32;

/// Sees to requests that have waited long enough, then returns to the context `home`; says how many they were.
///
/// Letting one go on or answering it may enter this module again, so nobody has the engine meanwhile. Whoever cannot be
/// entered is left alone: what is done would be done to another.
fn see_to_waiting(engine: &Shared, home: u32, at_most: usize) -> usize {
    let mut seen_to = 0_usize;
    while seen_to < at_most {
        let Some(stream) = with(engine, |engine| engine.next_done(&Proxy)).flatten() else { break };
        let is_entered = Proxy.enter(stream).is_ok();
        seen_to = seen_to.saturating_add(1);
        let goes_on = with(engine, |engine| engine.see_to(&Proxy, is_entered));
        if goes_on == Some(true) && Proxy.resume().is_err() {
            log::error!("a request that waited could not be resumed");
        }
    }
    if seen_to > 0 && Proxy.enter(home).is_err() {
        log::error!("the host would not go back to its own context");
    }
    seen_to
}

struct Stream {
    id: u32,
    engine: Shared,
    /// What the request left for its response.
    passage: Passage,
    /// Shared with whoever asks the counter for it, if it waits or did.
    slip: Option<Rc<Slip>>,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        let id = self.id;
        let verdict = with(&self.engine, |engine| engine.on_request(&Proxy, id));
        match verdict {
            Some(Verdict::Answered) => Action::Pause,
            Some(Verdict::Continue(passage)) => {
                self.passage = passage;
                Action::Continue
            }
            Some(Verdict::Wait(slip)) => {
                self.slip = Some(slip);
                Action::Pause
            }
            None => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        self.collect();
        if !self.passage.is_empty() {
            with(&self.engine, |engine| engine.on_response(&Proxy, &mut self.passage));
        }
        Action::Continue
    }
}

impl Stream {
    /// Takes what was decided while it waited.
    fn collect(&mut self) {
        if let Some(slip) = &self.slip {
            self.passage = slip.take_passage();
        }
    }
}

/// The host deletes every stream, also one that never had a response.
impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(slip) = &self.slip {
            slip.leave();
        }
        if self.passage.is_empty() {
            self.collect();
        }
        if !self.passage.is_empty() {
            with(&self.engine, |engine| engine.on_no_response(&Proxy, &mut self.passage));
        }
    }
}

/// The answer to a call. The build gives it the name that the host calls.
#[unsafe(no_mangle)]
extern "C" fn tidegate_on_http_call_response(
    _context_id: u32,
    token: u32,
    header_count: usize,
    body_size: usize,
    _trailer_count: usize,
) {
    let plugins = PLUGINS.with(|plugins| plugins.try_borrow().map(|plugins| plugins.clone()));
    for (root, engine) in plugins.unwrap_or_default() {
        let is_ours = with(&engine, |engine| engine.on_answer(&Proxy, token, header_count, body_size));
        if is_ours == Some(true) {
            let seen_to = see_to_waiting(&engine, root, SEEN_TO_MAX);
            with(&engine, |engine| engine.send_waiting(&Proxy));
            see_to_waiting(&engine, root, SEEN_TO_MAX.saturating_sub(seen_to));
            // From here and not from a tick, whose timer a host may not like to be replaced while it fires.
            if let Some(ms) = with(&engine, Engine::new_tick_ms).flatten() {
                set_tick(ms);
            }
            return;
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    if log::set_logger(&ProxyLog).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
    proxy_wasm::set_root_context(|id| {
        let engine = Shared::default();
        PLUGINS.with(|plugins| {
            if let Ok(mut plugins) = plugins.try_borrow_mut() {
                plugins.push((id, Rc::clone(&engine)));
            }
        });
        Box::new(Root { id, engine, ticks: false })
    });
}
