//! How the parts of a key are written.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::parts::{self, LINE_PATTERN, TOKEN_PATTERN};
use crate::key::{CLAIM_STEPS_MAX, TEXT_LEN_MAX};
use crate::matcher::NAME_LEN_MAX;

/// One part of a key. Requests whose parts are all equal are counted together. A part is missing if the request has
/// none, an empty one, or several: `key_missing` says what then.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "KeyPart")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) enum KeyPartForm {
    /// A word.
    Word(KeyWordForm),
    /// A request header.
    Header(HeaderPartForm),
    /// A segment of the path.
    PathSegment(PathSegmentPartForm),
    /// A parameter of the query.
    Query(QueryPartForm),
    /// A cookie.
    Cookie(CookiePartForm),
    /// A claim of a verified token.
    Jwt(JwtPartForm),
    /// Always the same.
    Constant(ConstantPartForm),
}

/// What names a plan.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "PlanBy")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) enum PlanByForm {
    /// A request header.
    Header(HeaderPartForm),
    /// A claim of a verified token.
    Jwt(JwtPartForm),
}

/// A part of a key that needs no more than a word.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case", rename = "KeyWord")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) enum KeyWordForm {
    /// The client's address, as far as the config's `client_ip` says that it counts.
    ClientIp,
    /// The URI in the client's certificate (mTLS).
    MtlsUriSan,
    /// The name of the route in the proxy.
    Route,
    /// The host that is asked for, in small letters and without port.
    Host,
    /// The method.
    Method,
}

/// The value of a request header.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "HeaderPart")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct HeaderPartForm {
    /// The name of the header; small and capital letters mean the same.
    #[schemars(schema_with = "parts::header_name")]
    header: (),
    /// Whether capital letters (of ASCII) in the value count as small ones.
    #[schemars(default, with = "bool", extend("default" = false))]
    lowercase: Option<()>,
}

/// A segment of the path.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "PathSegmentPart")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct PathSegmentPartForm {
    /// The segment's name, which every `path_template` of the rule must have.
    #[schemars(schema_with = "segment_name")]
    path_segment: (),
    /// Whether capital letters (of ASCII) in the value count as small ones.
    #[schemars(default, with = "bool", extend("default" = false))]
    lowercase: Option<()>,
}

/// The value of a query parameter, decoded.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "QueryPart")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct QueryPartForm {
    /// The name of the parameter, decoded.
    #[schemars(schema_with = "parameter_name")]
    query: (),
    /// Whether capital letters (of ASCII) in the value count as small ones.
    #[schemars(default, with = "bool", extend("default" = false))]
    lowercase: Option<()>,
}

/// The value of a cookie.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "CookiePart")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct CookiePartForm {
    /// The name of the cookie.
    #[schemars(schema_with = "cookie_name")]
    cookie: (),
    /// Whether capital letters (of ASCII) in the value count as small ones.
    #[schemars(default, with = "bool", extend("default" = false))]
    lowercase: Option<()>,
}

/// A claim of a token that Envoy's `jwt_authn` filter verified before this one.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "JwtPart")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct JwtPartForm {
    /// The claim: its name, with dots between the steps to one inside another (`realm.org`), or a list of the steps if
    /// a name has dots itself.
    #[schemars(schema_with = "claim")]
    jwt: (),
    /// The name that `payload_in_metadata` of the token's provider has in `jwt_authn`.
    #[schemars(default, schema_with = "payload", extend("default" = crate::key::JWT_PAYLOAD_DEFAULT))]
    payload: Option<()>,
    /// Whether capital letters (of ASCII) in the value count as small ones.
    #[schemars(default, with = "bool", extend("default" = false))]
    lowercase: Option<()>,
}

/// A part that is the same in every request: alone, it makes one counter for all.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "ConstantPart")]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct ConstantPartForm {
    /// The value.
    #[schemars(schema_with = "payload")]
    constant: (),
}

fn segment_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[a-z][a-z0-9_]{0,63}$" })
}

fn parameter_name(_: &mut SchemaGenerator) -> Schema {
    parts::schema_of(parts::text(LINE_PATTERN, 1, NAME_LEN_MAX))
}

fn cookie_name(_: &mut SchemaGenerator) -> Schema {
    parts::schema_of(parts::text(TOKEN_PATTERN, 1, TEXT_LEN_MAX))
}

fn payload(_: &mut SchemaGenerator) -> Schema {
    parts::schema_of(parts::text(LINE_PATTERN, 1, TEXT_LEN_MAX))
}

fn claim(_: &mut SchemaGenerator) -> Schema {
    let step = r"[^.\x00-\x1f\x7f-\x9f]{1,256}";
    let dotted = format!(r"^{step}(\.{step}){{0,7}}$");
    json_schema!({
        "anyOf": [
            { "type": "string", "pattern": dotted, "description": "The claim's name, or names with dots between them." },
            {
                "description": "The steps to the claim, from the outside in.",
                "type": "array",
                "items": json!(parts::text(LINE_PATTERN, 1, TEXT_LEN_MAX)),
                "minItems": 1,
                "maxItems": CLAIM_STEPS_MAX,
            },
        ],
    })
}
