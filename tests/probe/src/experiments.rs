//! The experiments that need no more than the callback they are made in.

use crate::abi::{self, word};
use crate::callbacks::{ANSWERED, CONFIGURED, TICKING};

/// Makes the experiment of a path; a line for each thing tried.
pub(crate) fn run(path: &str) -> String {
    match path {
        "/shared-data" => shared_data(),
        "/counts" => counts(),
        "/clocks" => clocks(),
        "/properties" => properties(),
        "/metrics" => metrics(),
        "/headers" => headers(),
        "/twice" => twice(),
        _ => format!("{path} is no experiment\n"),
    }
}

/// The number in a value; 0 if there is none.
pub(crate) fn number(value: &[u8]) -> u64 {
    core::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn shared_data() -> String {
    let key = "probe/value";
    let mut seen = Vec::new();
    let mut say = |what: &str, status: u32| seen.push(format!("{what}: {}", word(status)));
    say("get what was never set", abi::shared(key).err().unwrap_or(0));
    say("set it with a version", abi::set_shared(key, "a", 77));
    say("set it without a version", abi::set_shared(key, "b", 0));
    say("and again", abi::set_shared(key, "c", 0));
    let (value, cas) = abi::shared(key).unwrap_or_default();
    say("set it with its version", abi::set_shared(key, "d", cas));
    say("set it with the version before", abi::set_shared(key, "e", cas));
    let (now, cas) = abi::shared(key).unwrap_or_default();
    say("set it to nothing", abi::set_shared(key, "", cas));
    let empty = abi::shared(key);
    say("get it", empty.as_ref().err().copied().unwrap_or(0));
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    format!("{}\nit was: {}, then {}\n", seen.join("\n"), text(&value), text(&now))
}

fn counts() -> String {
    let count = |counter| number(&abi::shared(counter).unwrap_or_default().0);
    format!(
        "on_configure ran: {}\nVMs that tick: {}\non_response_headers ran for own answers: {}\n",
        count(CONFIGURED),
        count(TICKING),
        count(ANSWERED) > 0,
    )
}

fn clocks() -> String {
    let ((time_status, time), (real_status, real)) = (abi::time(), abi::clock(abi::CLOCK_REAL));
    let (monotonic_status, before) = abi::clock(abi::CLOCK_MONOTONIC);
    let (_, after) = abi::clock(abi::CLOCK_MONOTONIC);
    let ((random_status, some), (_, others)) = (abi::random(), abi::random());
    let minute_ns = 60_000_000_000;
    format!(
        "time: {}\nreal clock: {}, agrees: {}\nmonotonic clock: {}, goes on: {}\nrandom: {}, differs: {}\n",
        word(time_status),
        word(real_status),
        time.abs_diff(real) < minute_ns,
        word(monotonic_status),
        after >= before,
        word(random_status),
        some != others,
    )
}

fn properties() -> String {
    let text = |path: &str| match abi::property(path) {
        Ok(value) => String::from_utf8_lossy(&value).into_owned(),
        Err(status) => word(status),
    };
    let address = text("source.address");
    format!(
        "source.address has a port: {}\nrequest.path: {}\nrequest.url_path: {}\nno.such.property: {}\n\
         set a name of one part: {}\nset a name of two parts: {}\n",
        address.contains(':'),
        text("request.path"),
        text("request.url_path"),
        text("no.such.property"),
        word(abi::set_property("probe", "seen")),
        word(abi::set_property("probe.part", "seen")),
    )
}

fn metrics() -> String {
    let (status, id) = abi::define_counter("probe_counter");
    let (again, same) = abi::define_counter("probe_counter");
    format!(
        "define: {}\ndefine again: {}, the same: {}\nincrement by 1: {}\nby 0: {}\nby -1: {}\n\
         one that nobody defined: {}\n",
        word(status),
        word(again),
        id == same,
        word(abi::increment(id, 1)),
        word(abi::increment(id, 0)),
        word(abi::increment(id, -1)),
        word(abi::increment(u32::MAX >> 8 << 2, 1)),
    )
}

/// In the request phase.
fn headers() -> String {
    let size =
        |returned: abi::Returned| {
            returned.map_or_else(word, |bytes| {
                if bytes.is_empty() { "ok, empty".to_owned() } else { "ok".to_owned() }
            })
        };
    format!(
        "request headers: {}\na request header that is not there: {}\nresponse headers: {}\n\
         add a response header: {}\nheaders of a call's answer: {}\n",
        size(abi::header_pairs(abi::MAP_REQUEST)),
        size(abi::header(abi::MAP_REQUEST, "x-not-there")),
        size(abi::header_pairs(abi::MAP_RESPONSE)),
        word(abi::add_header(abi::MAP_RESPONSE, "x-early", "1")),
        size(abi::header_pairs(abi::MAP_CALL_RESPONSE)),
    )
}

/// In the response phase.
pub(crate) fn in_the_response_phase() -> String {
    let size =
        |returned: abi::Returned| {
            returned.map_or_else(word, |bytes| {
                if bytes.is_empty() { "ok, empty".to_owned() } else { "ok".to_owned() }
            })
        };
    format!(
        "request headers: {}\nresponse headers: {}\nadd a request header: {}\nadd a response header: {}\n",
        size(abi::header_pairs(abi::MAP_REQUEST)),
        size(abi::header_pairs(abi::MAP_RESPONSE)),
        word(abi::add_header(abi::MAP_REQUEST, "x-late", "1")),
        word(abi::add_header(abi::MAP_RESPONSE, "x-in-time", "1")),
    )
}

/// Safe, says the host: to go on although the request was answered, and to answer twice.
fn twice() -> String {
    let first = "answered once, and nothing broke\n";
    abi::reply(first);
    abi::continue_request();
    first.to_owned()
}
