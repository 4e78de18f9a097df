//! The script, and how the server knows it.

use std::sync::LazyLock;

use tidegate_config::wire::{REMEMBERED_MS, STATES_BYTES_MAX};
use tidegate_core::{BUCKET_UNITS_MAX, BUCKETS_MAX, DAY_MS, REQUESTS_MAX, SMALL_STATE_BYTES};

/// The place in the ring of a batch without a sender.
pub(super) const NO_SENDER: u8 = 255;
/// How long the epoch lives without a service: longer than any pause between two.
pub(super) const EPOCH_MS: u64 = 30 * 86_400_000;

pub(super) const ALL: u8 = 0;
pub(super) const SOME: u8 = 1;
pub(super) const FORCE: u8 = 2;
pub(super) const REFUND: u8 = 3;

pub(super) const FIXED_WINDOW: u8 = 1;
pub(super) const SLIDING_WINDOW: u8 = 2;
pub(super) const TOKEN_BUCKET: u8 = 3;
pub(super) const SLIDING_BUCKETS: u8 = 5;
pub(super) const SLIDING_LOG: u8 = 6;

/// One script of the parts in the folder beside this file, its words in capitals replaced by numbers: to the server a
/// word would be a variable, and cost time.
pub(super) static TEXT: LazyLock<String> = LazyLock::new(|| with_numbers(PARTS));

/// The name under which a server that has loaded it finds it: its SHA-1 in hexadecimal.
pub(super) fn hash() -> String {
    redis::Script::new(&TEXT).get_hash().to_owned()
}

const PARTS: &str = concat!(
    include_str!("script/0_words.lua"),
    include_str!("script/1_fixed_window.lua"),
    include_str!("script/2_sliding_window.lua"),
    include_str!("script/3_token_bucket.lua"),
    include_str!("script/4_numbers.lua"),
    include_str!("script/5_sliding_buckets.lua"),
    include_str!("script/6_sliding_log.lua"),
    include_str!("script/7_batch.lua"),
);

/// What each word in capitals stands for.
fn number(word: &str) -> Option<String> {
    let number = match word {
        "ALL" => ALL.into(),
        "FORCE" => FORCE.into(),
        "REFUND" => REFUND.into(),
        "FIXED_WINDOW" => FIXED_WINDOW.into(),
        "SLIDING_WINDOW" => SLIDING_WINDOW.into(),
        "TOKEN_BUCKET" => TOKEN_BUCKET.into(),
        "SLIDING_BUCKETS" => SLIDING_BUCKETS.into(),
        "NO_SENDER" => NO_SENDER.into(),
        "REMEMBERED_MS" => REMEMBERED_MS,
        "STATES_BYTES_MAX" => STATES_BYTES_MAX as u64,
        "EPOCH_MS" => EPOCH_MS,
        "DAY_MS" => DAY_MS,
        "REQUESTS_MAX" => REQUESTS_MAX,
        "BUCKET_UNITS_MAX" => BUCKET_UNITS_MAX,
        // A bucket that warms up keeps what is missing in 36 bits, and times are seconds that fit 32.
        "WARMING_MISSING_MAX" => (1 << 36) - 1,
        "TIMESTAMP_MS_MAX" => u64::from(u32::MAX) * 1_000,
        "WINDOW_NUMBER_MAX" => u32::MAX.into(),
        "COUNTS_MAX" => u64::from(BUCKETS_MAX) + 1,
        "RUNS_MAX" => 1_000,
        "WEIGHT_ONE" => 1 << 16,
        "SMALL_STATE_BYTES" => 1 + u64::try_from(SMALL_STATE_BYTES).ok()?,
        // More than any limit ever has.
        "ENOUGH" => 1 << 48,
        // Never, or endless.
        "ENDLESS" => return Some("-1".to_owned()),
        _ => return None,
    };
    Some(number.to_string())
}

fn with_numbers(parts: &str) -> String {
    let mut text = String::with_capacity(parts.len());
    for line in parts.lines() {
        let (code, comment) = line.split_at(line.find("--").unwrap_or(line.len()));
        let mut rest = code;
        while !rest.is_empty() {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let starts_word = rest.starts_with(is_word);
            let end = rest.find(|c| is_word(c) != starts_word).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            text.push_str(number(word).as_deref().unwrap_or(word));
            rest = after;
        }
        text.push_str(comment);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_in_capitals_is_a_number() {
        for line in TEXT.lines() {
            let code = line.split("--").next().unwrap_or_default();
            let words = code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let capitals = |word: &&str| word.len() > 1 && word.starts_with(|c: char| c.is_ascii_uppercase());
            for word in words.filter(capitals) {
                let is_known =
                    ["KEYS", "ARGV", "TIME", "MGET", "SET", "GET", "HGET", "HSET", "PEXPIRE", "PX"];
                let is_format = word.starts_with('B') || word.starts_with('I');
                assert!(is_known.contains(&word) || is_format, "{word} in {line}");
            }
        }
    }
}
