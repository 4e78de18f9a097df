//! The beat: once a second, and when in doubt, the server is asked how it is.

use redis::{Cmd, Value};
use tidegate_config::wire::PROXY_SEEN_MS;

use super::names::Names;
use super::script::EPOCH_MS;

const TEXT: &str = include_str!("script/beat.lua");

/// The command, with the proxies that the server is to be told of, and the time if a test tells it, else 0. It is sent as text: once a second that costs
/// nothing, and works whatever the server has loaded.
pub(super) fn command(names: &Names, told: &[(String, Vec<u64>)], now_ms: u64) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg("EVAL").arg(TEXT).arg(told.len() + 2).arg(names.epoch()).arg(names.probe());
    for (namespace, _) in told {
        cmd.arg(names.proxies(namespace));
    }
    cmd.arg(EPOCH_MS).arg(PROXY_SEEN_MS).arg(now_ms);
    for (_, proxies) in told {
        let bytes: Vec<u8> = proxies.iter().flat_map(|proxy| proxy.to_be_bytes()).collect();
        cmd.arg(bytes);
    }
    cmd
}

/// The server's clock, and how many proxies each namespace has.
pub(super) fn read(value: Value) -> Option<(u64, Vec<u64>)> {
    let mut numbers: Vec<u64> = redis::from_redis_value(value).ok()?;
    if numbers.is_empty() {
        return None;
    }
    let now_ms = numbers.remove(0);
    Some((now_ms, numbers))
}
