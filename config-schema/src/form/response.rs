//! How a response is written.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::parts::{self, HEADER_TEXT_PATTERN, TOKEN_PATTERN};
use crate::body::BODY_LEN_MAX;
use crate::header_name::HEADER_NAME_LEN_MAX;
use crate::response::{
    CONTENT_TYPE_LEN_MAX, EXTRA_HEADERS_MAX, GrpcStatus, HEADER_VALUE_LEN_MAX, HeaderFamily, STATUS_MAX,
    STATUS_MIN,
};

/// What the client sees of its limits.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Response")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct ResponseForm {
    /// The status of a denied request. Default: 429.
    #[schemars(default, with = "u16", range(min = STATUS_MIN, max = STATUS_MAX))]
    status: Option<()>,
    /// Which headers tell clients about their limits, on allowed and on denied requests. Default: `none`.
    #[schemars(default, with = "HeaderFamily")]
    headers: Option<()>,
    /// The body of a denied request. `{rule}`, `{retry_after}` (seconds; nothing if waiting does not help) and `{limit}`
    /// are filled in; no other name may stand in braces. Default: a problem document (RFC 9457).
    #[schemars(default, with = "String", length(max = BODY_LEN_MAX))]
    body: Option<()>,
    /// The content type of the body. Default: `text/plain; charset=utf-8` if there is a `body`, else
    /// `application/problem+json`.
    #[schemars(default, schema_with = "content_type")]
    content_type: Option<()>,
    /// More headers of a denied request, values by names: at most 16, none of which the filter or the proxy sets itself.
    #[schemars(default, schema_with = "extra_headers")]
    extra_headers: Option<()>,
    /// The status of a denied gRPC request. Default: `resource_exhausted`.
    #[schemars(default, with = "GrpcStatus")]
    grpc: Option<()>,
}

fn content_type(_: &mut SchemaGenerator) -> Schema {
    parts::schema_of(parts::text("^[0-9A-Za-z][!-.0-~]*/[0-9A-Za-z][ -~]*$", 1, CONTENT_TYPE_LEN_MAX))
}

fn extra_headers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": parts::text(TOKEN_PATTERN, 1, HEADER_NAME_LEN_MAX),
        "additionalProperties": parts::text(HEADER_TEXT_PATTERN, 0, HEADER_VALUE_LEN_MAX),
        "maxProperties": EXTRA_HEADERS_MAX,
    })
}
