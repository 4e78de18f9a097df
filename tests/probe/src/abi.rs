//! The host calls that are tried, each with its status in words.
//!
//! Safety, for all of them: every pointer is to a live value of ours and comes with its length, or is to a local
//! that the host writes one value of its type to.

use core::ptr::null_mut;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
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
    fn proxy_get_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
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
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
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
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn random_get(bytes: *mut u8, size: usize) -> u32;
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
}

pub(crate) const MAP_REQUEST: u32 = 0;
pub(crate) const MAP_RESPONSE: u32 = 2;
pub(crate) const MAP_CALL_RESPONSE: u32 = 6;
pub(crate) const BUFFER_CALL_RESPONSE: u32 = 4;
pub(crate) const CLOCK_REAL: u32 = 0;
pub(crate) const CLOCK_MONOTONIC: u32 = 1;

const OK: u32 = 0;

/// A status in words.
pub(crate) fn word(status: u32) -> String {
    match status {
        OK => "ok".to_owned(),
        1 => "not found".to_owned(),
        2 => "bad argument".to_owned(),
        8 => "cas mismatch".to_owned(),
        10 => "internal failure".to_owned(),
        12 => "unimplemented".to_owned(),
        other => format!("status {other}"),
    }
}

/// What a call returned: data, or its status.
pub(crate) type Returned = Result<Vec<u8>, u32>;

fn returned(status: u32, data: *mut u8, size: usize) -> Returned {
    if status != OK {
        return Err(status);
    }
    if data.is_null() || size == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the host allocated it through our `malloc`, which gives away a boxed slice of that length.
    Ok(unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(data, size)) }.into_vec())
}

pub(crate) fn set_tick(period_ms: u32) -> u32 {
    unsafe { proxy_set_tick_period_milliseconds(period_ms) }
}

pub(crate) fn time() -> (u32, u64) {
    let mut time = 0;
    (unsafe { proxy_get_current_time_nanoseconds(&raw mut time) }, time)
}

pub(crate) fn clock(clock: u32) -> (u32, u64) {
    let mut time = 0;
    (unsafe { clock_time_get(clock, 1, &raw mut time) }, time)
}

pub(crate) fn random() -> (u32, [u8; 16]) {
    let mut bytes = [0; 16];
    (unsafe { random_get(bytes.as_mut_ptr(), bytes.len()) }, bytes)
}

pub(crate) fn buffer(buffer: u32) -> Returned {
    let (mut data, mut size) = (null_mut(), 0);
    let status = unsafe { proxy_get_buffer_bytes(buffer, 0, usize::MAX >> 1, &raw mut data, &raw mut size) };
    returned(status, data, size)
}

pub(crate) fn header_pairs(map: u32) -> Returned {
    let (mut data, mut size) = (null_mut(), 0);
    let status = unsafe { proxy_get_header_map_pairs(map, &raw mut data, &raw mut size) };
    returned(status, data, size)
}

pub(crate) fn header(map: u32, name: &str) -> Returned {
    let (mut data, mut size) = (null_mut(), 0);
    let status =
        unsafe { proxy_get_header_map_value(map, name.as_ptr(), name.len(), &raw mut data, &raw mut size) };
    returned(status, data, size)
}

pub(crate) fn add_header(map: u32, name: &str, value: &str) -> u32 {
    unsafe { proxy_add_header_map_value(map, name.as_ptr(), name.len(), value.as_ptr(), value.len()) }
}

pub(crate) fn property(path: &str) -> Returned {
    let path = path.replace('.', "\0");
    let (mut data, mut size) = (null_mut(), 0);
    let status = unsafe { proxy_get_property(path.as_ptr(), path.len(), &raw mut data, &raw mut size) };
    returned(status, data, size)
}

pub(crate) fn set_property(path: &str, value: &str) -> u32 {
    let path = path.replace('.', "\0");
    unsafe { proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len()) }
}

pub(crate) fn shared(key: &str) -> Result<(Vec<u8>, u32), u32> {
    let (mut data, mut size, mut cas) = (null_mut(), 0, 0);
    let status =
        unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), &raw mut data, &raw mut size, &raw mut cas) };
    returned(status, data, size).map(|value| (value, cas))
}

pub(crate) fn set_shared(key: &str, value: &str, cas: u32) -> u32 {
    unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas) }
}

/// Answers the current request.
pub(crate) fn reply(body: &str) -> u32 {
    let headers = 0_u32.to_le_bytes();
    unsafe {
        proxy_send_local_response(
            200,
            core::ptr::null(),
            0,
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            -1,
        )
    }
}

pub(crate) fn define_counter(name: &str) -> (u32, u32) {
    let mut id = 0;
    (unsafe { proxy_define_metric(0, name.as_ptr(), name.len(), &raw mut id) }, id)
}

pub(crate) fn increment(id: u32, offset: i64) -> u32 {
    unsafe { proxy_increment_metric(id, offset) }
}

/// Calls another service; the status, and the call's number.
pub(crate) fn call(upstream: &str, timeout_ms: u32) -> (u32, u32) {
    let headers =
        serialised(&[(":method", "GET"), (":path", "/"), (":authority", "probe"), (":scheme", "http")]);
    let none = 0_u32.to_le_bytes();
    let mut token = 0;
    let status = unsafe {
        proxy_http_call(
            upstream.as_ptr(),
            upstream.len(),
            headers.as_ptr(),
            headers.len(),
            core::ptr::null(),
            0,
            none.as_ptr(),
            none.len(),
            timeout_ms,
            &raw mut token,
        )
    };
    (status, token)
}

pub(crate) fn continue_request() -> u32 {
    unsafe { proxy_continue_stream(0) }
}

pub(crate) fn set_effective_context(context: u32) -> u32 {
    unsafe { proxy_set_effective_context(context) }
}

fn serialised(pairs: &[(&str, &str)]) -> Vec<u8> {
    let length = |length: usize| u32::try_from(length).unwrap_or(0).to_le_bytes();
    let mut bytes = length(pairs.len()).to_vec();
    for (name, value) in pairs {
        bytes.extend(length(name.len()));
        bytes.extend(length(value.len()));
    }
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend(text.as_bytes());
        bytes.push(0);
    }
    bytes
}
