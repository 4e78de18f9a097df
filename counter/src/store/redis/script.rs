//! The script, and how the server knows it.

/// One script of the parts in the folder beside this file.
pub(super) const TEXT: &str = concat!(
    include_str!("script/0_words.lua"),
    include_str!("script/1_windows.lua"),
    include_str!("script/2_sliding_window.lua"),
    include_str!("script/3_token_bucket.lua"),
    include_str!("script/4_varints.lua"),
    include_str!("script/5_sliding_buckets.lua"),
    include_str!("script/6_sliding_log.lua"),
    include_str!("script/7_batch.lua"),
);

/// The name under which a server that has loaded it finds it: its SHA-1 in hexadecimal.
pub(super) fn hash() -> String {
    redis::Script::new(TEXT).get_hash().to_owned()
}
