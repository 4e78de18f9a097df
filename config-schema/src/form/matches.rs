//! How a match is written.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::parts::{self, LINE_PATTERN, TOKEN_PATTERN, one_or_more};
use crate::conditions::VALUES_MAX;
use crate::header_name::HEADER_NAME_LEN_MAX;
use crate::matcher::{ALTERNATIVES_MAX, CONDITIONS_MAX, NAME_LEN_MAX};
use crate::path_match::PATH_LEN_MAX;

const HOST_PATTERN: &str = r"^((\*\.)?[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*|\[[0-9A-Fa-f:.]+\])$";

/// Which requests a rule is about. All that is given must hold; of a list any will do. At most one of `path`,
/// `path_prefix` and `path_template` is given.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Match")]
#[schemars(extend("allOf" = [
    { "not": { "required": ["path", "path_prefix"] } },
    { "not": { "required": ["path", "path_template"] } },
    { "not": { "required": ["path_prefix", "path_template"] } },
]))]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct MatchForm {
    /// The name of the route in the proxy.
    #[schemars(default, schema_with = "names")]
    route: Option<()>,
    /// The name of the virtual host in the proxy.
    #[schemars(default, schema_with = "names")]
    virtual_host: Option<()>,
    /// The host that is asked for: exactly this one, or with `*.example.com` every one below `example.com`. Without
    /// port; small and capital letters mean the same.
    #[schemars(default, schema_with = "hosts")]
    host: Option<()>,
    /// The path must be equal to this. Paths are compared without query and in normal form: dot segments
    /// and double slashes resolved, needless percent-encoding decoded; this one must be in that form too.
    #[schemars(default, schema_with = "paths")]
    path: Option<()>,
    /// The path must begin with this, letter by letter: `/api` also matches `/apiary`, `/api/` does not.
    #[schemars(default, schema_with = "paths")]
    path_prefix: Option<()>,
    /// The path must fit this: `/orgs/{org}/repos/*`. `{name}` stands for one segment that keys can name, `*` for one
    /// segment, and `/**` at the end for whatever follows, also nothing. At most 64 segments.
    #[schemars(default, schema_with = "paths")]
    path_template: Option<()>,
    /// The method, in capitals.
    #[schemars(default, schema_with = "methods")]
    method: Option<()>,
    /// What headers must be, by their names. Of a header that is sent several times any value will do.
    #[schemars(default, schema_with = "headers")]
    headers: Option<()>,
    /// What parameters of the query must be, by their names; names and values are compared decoded.
    #[schemars(default, schema_with = "query")]
    query: Option<()>,
    /// What must not match: a match, or a list of which none may.
    #[schemars(default, schema_with = "not")]
    not: Option<()>,
}

/// What a value must be. Exactly one field is given.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "ValueMatch", extend("minProperties" = 1, "maxProperties" = 1))]
#[expect(dead_code, reason = "a form is only described, never built")]
struct ValueMatchForm {
    /// Whether it must be there at all, whatever its value, or must not.
    #[schemars(default, with = "bool")]
    present: Option<()>,
    /// It must be equal to this; the same as the text alone.
    #[schemars(default, schema_with = "value")]
    equals: Option<()>,
    /// It must be equal to one of these; the same as the list alone.
    #[schemars(default, schema_with = "value_list")]
    one_of: Option<()>,
    /// It must begin with this.
    #[schemars(default, schema_with = "prefixes")]
    prefix: Option<()>,
}

fn names(_: &mut SchemaGenerator) -> Schema {
    one_or_more(&parts::text(LINE_PATTERN, 1, NAME_LEN_MAX), ALTERNATIVES_MAX)
}

fn hosts(_: &mut SchemaGenerator) -> Schema {
    one_or_more(&parts::text(HOST_PATTERN, 1, 253), ALTERNATIVES_MAX)
}

fn paths(_: &mut SchemaGenerator) -> Schema {
    one_or_more(&parts::text("^/[^?#]*$", 1, PATH_LEN_MAX), ALTERNATIVES_MAX)
}

fn methods(_: &mut SchemaGenerator) -> Schema {
    one_or_more(&json!({ "type": "string", "pattern": "^[A-Z][A-Z0-9_-]{0,31}$" }), ALTERNATIVES_MAX)
}

fn headers(generator: &mut SchemaGenerator) -> Schema {
    conditions(generator, &parts::text(TOKEN_PATTERN, 1, HEADER_NAME_LEN_MAX))
}

fn query(generator: &mut SchemaGenerator) -> Schema {
    conditions(generator, &parts::text(LINE_PATTERN, 1, NAME_LEN_MAX))
}

fn conditions(generator: &mut SchemaGenerator, name: &Value) -> Schema {
    let equal = parts::described(parts::value_text(0), "Equal to this.");
    json_schema!({
        "type": "object",
        "propertyNames": name,
        "additionalProperties": {
            "anyOf": [
                equal,
                parts::list(&parts::value_text(0), VALUES_MAX, "Equal to one of these."),
                { "description": "Something else.", "$ref": generator.subschema_for::<ValueMatchForm>().get("$ref") },
            ],
        },
        "minProperties": 1,
        "maxProperties": CONDITIONS_MAX,
    })
}

fn value(_: &mut SchemaGenerator) -> Schema {
    parts::schema_of(parts::value_text(0))
}

fn value_list(_: &mut SchemaGenerator) -> Schema {
    let mut list = parts::list(&parts::value_text(0), VALUES_MAX, "");
    list.as_object_mut().and_then(|list| list.remove("description"));
    parts::schema_of(list)
}

fn prefixes(_: &mut SchemaGenerator) -> Schema {
    one_or_more(&parts::value_text(1), VALUES_MAX)
}

fn not(generator: &mut SchemaGenerator) -> Schema {
    let reference = generator.subschema_for::<MatchForm>();
    let one = json!({ "$ref": reference.get("$ref"), "minProperties": 1 });
    let described = parts::described(one.clone(), "One that must not match.");
    json_schema!({
        "anyOf": [
            described,
            {
                "description": "Several of which none may match.",
                "type": "array",
                "items": one,
                "minItems": 1,
                "maxItems": ALTERNATIVES_MAX,
            },
        ],
    })
}
