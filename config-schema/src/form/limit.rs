//! How a limit is written.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use tidegate_core::{BUCKETS_MAX, REQUESTS_MAX};

use super::parts;
use crate::limit::{Align, BUCKETS_DEFAULT, Word};

const SHORT_PATTERN: &str = "^(0|[1-9][0-9]{0,10})/(([1-9][0-9]{0,10})?(ms|s|m|h|d)|day|month)$";
const WINDOW_PATTERN: &str = "^([1-9][0-9]{0,10}(ms|s|m|h|d)|day|month)$";

/// How many requests in how much time.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "Limit")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) enum LimitForm {
    /// Requests and window in short, such as `"100/1m"` or `"50/s"`; units are ms, s, m, h and d. At most
    /// 2^36 requests; the window is from 1 s to 2^36 ms (about 795 days). `"1000000/day"` and `"/month"` count by
    /// the calendar in UTC, with `fixed_window`; all others are a `sliding_window`.
    Short(#[schemars(regex(pattern = SHORT_PATTERN))] String),
    /// The long form.
    Long(LongForm),
}

/// A limit with all its settings.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "LongLimit")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct LongForm {
    /// How many requests the window allows, of a bucket its rate per period; 0 denies all. With `sliding_log` at most
    /// 1000.
    #[schemars(range(max = REQUESTS_MAX))]
    requests: u64,
    /// How long the window is, such as `"1m"`; units are ms, s, m, h and d. From 1 s to 2^36 ms (about 795 days). Or
    /// `"day"` or `"month"` of the calendar in UTC, only with `fixed_window`.
    #[schemars(schema_with = "window")]
    per: (),
    /// How requests are counted. Default: `sliding_window`, of a day or a month of the calendar `fixed_window`.
    #[schemars(default, with = "Word")]
    algorithm: Option<()>,
    /// Where windows begin. Only with `sliding_window`, `fixed_window` and `sliding_buckets`, and not with a day or a
    /// month of the calendar.
    #[schemars(default, with = "Align", extend("default" = "key"))]
    align: Option<()>,
    /// How much a bucket holds: what can pass at once. Only with `token_bucket` (default: `requests`) and
    /// `leaky_bucket` (default: 1). 0 exactly if `requests` is.
    #[schemars(default, with = "u64", range(max = REQUESTS_MAX))]
    burst: Option<()>,
    /// Into how many sub-windows the window is divided, each a whole number of milliseconds and at least 1 s. Only
    /// with `sliding_buckets`.
    #[schemars(default, with = "u8", range(min = 1, max = BUCKETS_MAX), extend("default" = BUCKETS_DEFAULT))]
    buckets: Option<()>,
    /// How long a bucket that has been idle takes to reach its full rate, beginning with a third of it. Only with
    /// `token_bucket`. Default: none.
    #[schemars(default, schema_with = "parts::duration")]
    warm_up: Option<()>,
}

fn window(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": WINDOW_PATTERN })
}
