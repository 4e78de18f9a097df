//! How a rule is written.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;
use tidegate_core::REQUESTS_MAX;

use super::key::{KeyPartForm, PlanByForm};
use super::limit::LimitForm;
use super::matches::MatchForm;
use super::parts::{self, LINE_PATTERN, NAME_PATTERN, PLAIN_PATTERN};
use super::response::ResponseForm;
use crate::global::{self, OnFailure, WhenEmpty};
use crate::key::KEY_PARTS_MAX;
use crate::key_values::{KEY_VALUE_LEN_MAX, KEY_VALUES_MAX};
use crate::limit::LIMITS_MAX;
use crate::plans::PLANS_MAX;
use crate::rule::{KeyMissing, Mode, WhenFull};
use crate::statuses::{STATUS_MAX, STATUS_MIN, STATUSES_MAX};
use crate::subjects::CIDRS_MAX;

/// A rule: which requests it is about, whom it counts, and how many it lets through.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Rule")]
#[schemars(extend("oneOf" = [
    { "required": ["limits"], "description": "With the same limits for all." },
    { "required": ["plans"], "description": "With plans." },
]))]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct RuleForm {
    /// The rule's name in metrics, logs and responses; no two rules may share it, with `-` and `_` taken as
    /// one. Counts belong to it: they start again when the rule is renamed, or when the algorithm or the window
    /// of a limit changes, and go on when only the number of requests does.
    #[schemars(regex(pattern = NAME_PATTERN))]
    name: String,
    /// Which requests the rule is about. Default: all.
    #[schemars(rename = "match", default, with = "MatchForm")]
    matches: Option<()>,
    /// Who is counted: requests that agree in all of these are counted together.
    #[schemars(length(min = 1, max = KEY_PARTS_MAX), extend("uniqueItems" = true))]
    key: Vec<KeyPartForm>,
    /// What happens to a request in which a part of the key is missing.
    #[schemars(default, with = "KeyMissing", extend("default" = "shared"))]
    key_missing: Option<()>,
    /// The limits, all of which must allow a request; no two with the same algorithm and window (and, with
    /// `sliding_buckets`, number of buckets), for they would share a counter. Either this or `plans`.
    #[schemars(default, with = "Vec<LimitForm>", length(min = 1, max = LIMITS_MAX))]
    limits: Option<()>,
    /// Limits that depend on who asks. Either this or `limits`.
    #[schemars(default, with = "PlansForm")]
    plans: Option<()>,
    /// Those whom the rule neither counts nor denies.
    #[schemars(default, with = "SubjectsForm")]
    exempt: Option<()>,
    /// Those whom the rule always denies, unless they are exempt.
    #[schemars(default, with = "SubjectsForm")]
    deny: Option<()>,
    /// How much a request counts.
    #[schemars(default, with = "CostForm", extend("default" = 1))]
    cost: Option<()>,
    /// Whether a denied request counts too, so that a client who never pauses never gets in.
    #[schemars(default, with = "bool", extend("default" = false))]
    count_denied: Option<()>,
    /// Which responses count, by their status: numbers and classes such as `"5xx"`. A request takes its cost before it
    /// goes on, and gets it back when the response has another status, or when there is none because the client left.
    /// Default: every request counts. Not with `count_denied` or `global`.
    #[schemars(default, schema_with = "statuses")]
    count_status: Option<()>,
    /// What to do with a request that is over a limit.
    #[schemars(default, with = "Mode", extend("default" = "enforce"))]
    mode: Option<()>,
    /// For how many keys in a hundred the rule is enforced; for the others it is in shadow. A key stays on its side
    /// as long as the number does not change, and when it grows, none is let off.
    #[schemars(default, with = "u8", range(max = 100), extend("default" = 100))]
    enforced_percent: Option<()>,
    /// What the client sees. What is given here takes the place of the same field of the config's response.
    #[schemars(default, with = "ResponseForm")]
    response: Option<()>,
    /// What a new key starts from when it must displace another's count because the table is full. Default:
    /// `strict` if a client cannot make up values for the key (`client_ip`, `mtls_uri_san`, `jwt`, `route` and
    /// `constant` only), else `lenient`.
    #[schemars(default, with = "WhenFull")]
    when_full: Option<()>,
    /// Whether a route's metadata may tighten the rule. Not with `plans`.
    #[schemars(default, with = "bool", extend("default" = false))]
    overridable: Option<()>,
    /// Keeps the limits across a fleet, by the config's `counter`. Default: each proxy counts for itself.
    #[schemars(default, with = "GlobalForm")]
    global: Option<()>,
}

/// Limits that depend on who asks. Counters do not: a client whose plan changes keeps its count in each limit for
/// which the new plan has one with the same algorithm and window.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Plans")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct PlansForm {
    /// The plan of those who have no other. It must have `limits`.
    #[schemars(schema_with = "plan_name")]
    default: (),
    /// A header or a claim that names the plan, for those who are no members of one. A name that is not known counts
    /// as none. Whoever can send that header chooses its plan: take one that your gateway sets.
    #[schemars(default, with = "PlanByForm")]
    by: Option<()>,
    /// The limits of each plan, by its name (1 to 64 letters, digits, `.`, `_`, `-`). Every plan must be the default,
    /// have members, or be named by `by`.
    #[schemars(schema_with = "plan_limits")]
    limits: (),
    /// Who is in which plan, by the value of the rule's key; written as in `exempt`. Nobody can be in two.
    #[schemars(default, schema_with = "plan_members")]
    members: Option<()>,
}

/// A list of keys and networks. At least one of the two is given.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Subjects", extend("minProperties" = 1))]
#[expect(dead_code, reason = "a form is only described, never built")]
struct SubjectsForm {
    /// Values of the rule's key: a text, or, if the key has several parts, a list with a text for each. A value (or
    /// every text of a list) can be written as `sha256:` and the 64 hexadecimal digits of its SHA-256, so that secrets
    /// stay out of the config. A `client_ip` is written as the first address of its network.
    #[schemars(default, schema_with = "key_values")]
    values: Option<()>,
    /// Networks such as `10.0.0.0/8` that the client's address lies in, whatever the rule's key is.
    #[schemars(default, schema_with = "cidrs")]
    cidrs: Option<()>,
}

/// How much a request counts.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "Cost")]
#[expect(dead_code, reason = "a form is only described, never built")]
enum CostForm {
    /// Always so much.
    Fixed(#[schemars(range(min = 1, max = REQUESTS_MAX))] u64),
    /// As much as a header of the request says.
    Header(HeaderCostForm),
    /// As much as a header of the response says.
    Response(ResponseCostForm),
}

/// A cost that a header of the request names, in digits.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "HeaderCost")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct HeaderCostForm {
    /// The name of the header.
    #[schemars(schema_with = "parts::header_name")]
    header: (),
    /// What a request costs whose header is missing, repeated, 0 or no number. Not above `max`.
    #[schemars(default, with = "u64", range(min = 1, max = REQUESTS_MAX), extend("default" = 1))]
    default: Option<()>,
    /// What a request costs at most, whatever its header says.
    #[schemars(range(min = 1, max = REQUESTS_MAX))]
    max: u64,
}

/// A cost that a header of the response names, in digits: tokens or bytes, say. Not with `count_denied` or `global`.
/// A request takes `reserve` before it goes on. The response settles it: too much is given back, and what is missing is
/// charged even if the limit has less, so that the next requests wait for it. What is reserved stays charged when
/// the client leaves before there is a response.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "ResponseCost")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct ResponseCostForm {
    /// The name of the header. `0` in it is free.
    #[schemars(schema_with = "parts::header_name")]
    response_header: (),
    /// What a request costs whose response lacks the header, repeats it or has no number in it. A response with a
    /// status from 500 up that lacks it costs nothing, unless `count_status` names the status. Not above `max`.
    #[schemars(default, with = "u64", range(min = 1, max = REQUESTS_MAX), extend("default" = 1))]
    default: Option<()>,
    /// What a request costs at most, whatever the header says.
    #[schemars(range(min = 1, max = REQUESTS_MAX))]
    max: u64,
    /// What a request takes before it goes on. The larger it is, the fewer requests can be under way before the first of
    /// them is charged: at most as many as the limit has room for. Not above `max`. Default: as `default`.
    #[schemars(default, with = "u64", range(min = 1, max = REQUESTS_MAX))]
    reserve: Option<()>,
}

/// How a limit is kept across a fleet.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Global")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct GlobalForm {
    /// When the counter is asked.
    mode: global::Word,
    /// With `lease`: by how much the fleet may pass the limit, from `0%` to `100%`.
    #[schemars(default, schema_with = "percent", extend("default" = "0%"))]
    overshoot: Option<()>,
    /// With `sync`: how often each proxy reports, from 10ms to 1m.
    #[schemars(default, schema_with = "parts::duration", extend("default" = "100ms"))]
    sync_every: Option<()>,
    /// With `lease`: what a request does that finds nothing granted.
    #[schemars(default, with = "WhenEmpty", extend("default" = "wait"))]
    when_empty: Option<()>,
    /// What holds while the counter cannot be reached.
    #[schemars(default, with = "OnFailure", extend("default" = "share"))]
    on_failure: Option<()>,
}

fn percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^(0|[1-9][0-9]?|100)%$" })
}

fn plan_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": PLAIN_PATTERN })
}

fn plan_limits(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "type": "array",
            "items": generator.subschema_for::<LimitForm>(),
            "minItems": 1,
            "maxItems": LIMITS_MAX,
        },
        "propertyNames": { "pattern": PLAIN_PATTERN },
        "minProperties": 1,
        "maxProperties": PLANS_MAX,
    })
}

fn plan_members(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": key_values(generator),
        "minProperties": 1,
        "maxProperties": PLANS_MAX,
    })
}

fn key_values(_: &mut SchemaGenerator) -> Schema {
    let text = parts::text(LINE_PATTERN, 1, KEY_VALUE_LEN_MAX);
    let one = parts::described(text.clone(), "The value of a key with one part.");
    let several = json!({
        "description": "The values of a key with several parts.",
        "type": "array",
        "items": text,
        "minItems": 2,
        "maxItems": KEY_PARTS_MAX,
    });
    json_schema!({
        "type": "array",
        "items": { "anyOf": [one, several] },
        "minItems": 1,
        "maxItems": KEY_VALUES_MAX,
        "uniqueItems": true,
    })
}

fn statuses(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "anyOf": [
            { "description": "One status.", "type": "integer", "minimum": STATUS_MIN, "maximum": STATUS_MAX },
            { "description": "All statuses that begin so.", "type": "string", "pattern": "^[1-5]xx$" },
        ] },
        "minItems": 1,
        "maxItems": STATUSES_MAX,
        "uniqueItems": true,
    })
}

fn cidrs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "string", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$" },
        "minItems": 1,
        "maxItems": CIDRS_MAX,
        "uniqueItems": true,
    })
}
