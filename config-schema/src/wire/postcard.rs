//! The compact encoding: what the crate `postcard` makes of the same fields in the same order, written by hand so
//! that it stays small inside the proxy and checks bounds while it reads.
//!
//! Numbers are in groups of seven bits, low first, the high bit set on all but the last. Texts, bytes and lists have
//! their length before them. An optional value has a byte before it: 0 for none, 1 for some. A choice is its number,
//! from 0, and what belongs to it:
//!
//! ```text
//! batch   namespace: text, sender: option of sender, wait_ms: option of number, states: byte (0: no, 1: yes),
//!         groups: list of group
//! sender  proxy: number, vm: number, sequence: number
//! group   takes: list of take
//! take    rule: text, limit, key: bytes, n: number,
//!         act: all | some | force | refund (receipt: number), when_full: strict | lenient
//! limit   requests: number, window: ms (number) | day | month,
//!         algorithm: fixed_window | sliding_window | sliding_buckets (buckets: byte) | sliding_log
//!                    | token_bucket (burst: number, warm_up_ms: number),
//!         align: key | clock
//! answer  now_ms: number, epoch: number, proxies: number, rules_off: list of text, groups: list of group
//! group   takes: list of take, states: list of option of state (empty unless asked for)
//! take    taken: number, remaining: number, reset_ms: number, retry_after_ms: option of number, receipt: number
//! state   kind: byte, contents: bytes
//! ```

mod read;
mod write;

pub use read::BadAnswer;
