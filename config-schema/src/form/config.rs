//! How the whole config is written.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::parts::{self, LINE_PATTERN, VISIBLE_PATTERN};
use super::response::ResponseForm;
use super::rule::RuleForm;
use crate::client_address::{
    IPV4_PREFIX_MAX, IPV4_PREFIX_MIN, IPV6_PREFIX_MAX, IPV6_PREFIX_MIN, TRUSTED_HOPS_MAX,
};
use crate::config::{ROUTE_NAME_LEN_MAX, RULES_MAX, VERSION};
use crate::counter::{CLUSTER_LEN_MAX, TOKEN_LEN_MAX};
use crate::table::Table;

/// Rate limits of a proxy: which requests are counted, by what, and how many are let through.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, title = "Tidegate config", rename = "Config")]
#[schemars(extend("anyOf" = [
    { "required": ["rules"], "description": "With rules for all routes." },
    { "required": ["routes"], "description": "With rules for single routes." },
]))]
#[expect(dead_code, reason = "a form is only described, never built")]
pub(crate) struct ConfigForm {
    /// Where this schema is, for editors; it limits nothing.
    #[schemars(rename = "$schema", default, with = "String")]
    schema: Option<()>,
    /// The version of the language. Only 1 is known.
    #[schemars(default, schema_with = "version")]
    version: Option<()>,
    /// `false` switches every rule off at once; requests pass uncounted, and counts are kept.
    #[schemars(default, with = "bool", extend("default" = true))]
    enabled: Option<()>,
    /// Configs with one namespace share the counters of rules with one name. Default: the name of the plugin
    /// that holds this config.
    #[schemars(default, schema_with = "parts::namespace")]
    namespace: Option<()>,
    /// Where the client's address is found, and how much of it counts.
    #[schemars(default, with = "ClientAddressForm")]
    client_ip: Option<()>,
    /// The store of counters in the proxy's memory.
    #[schemars(default, with = "Table")]
    table: Option<()>,
    /// What the client sees of its limits.
    #[schemars(default, with = "ResponseForm")]
    response: Option<()>,
    /// The service that keeps the limits of rules with `global`.
    #[schemars(default, with = "CounterForm")]
    counter: Option<()>,
    /// The rules, at most 10000 with those of routes. Every rule that matches a request applies to it. May be left
    /// out if there are `routes`.
    #[schemars(default, with = "Vec<RuleForm>", length(max = RULES_MAX))]
    rules: Option<()>,
    /// Rules for single routes, by the route's name in the proxy. They apply beside `rules`.
    #[schemars(default, schema_with = "routes")]
    routes: Option<()>,
    /// Whether a route's own metadata is read too: JSON text under `filter_metadata.tidegate.limits`, such as
    /// `{"rules": [...], "tighten": {"login": ["20/1m"]}}`. It can add rules and tighten those that are `overridable`. If
    /// it is wrong, nothing of it holds, and a metric counts it. Costs a read for every request. Envoy only.
    #[schemars(default, with = "bool", extend("default" = false))]
    route_metadata: Option<()>,
}

/// Where the client's address is found, and how much of it counts.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "ClientIp")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct ClientAddressForm {
    /// Which entry of `X-Forwarded-For` is the client, counted from the right over all lines of the header. 0 takes
    /// the other end of the connection. Count every proxy that adds an entry and is yours, also this one if it adds
    /// the address of its peer before rules are looked at (Envoy's `use_remote_address`). With fewer entries the
    /// connection's address is taken; an entry that is no address makes the client's address missing.
    #[schemars(default, with = "u8", range(max = TRUSTED_HOPS_MAX), extend("default" = 0))]
    trusted_hops: Option<()>,
    /// How many bits of an IPv4 address make a client.
    #[schemars(default, with = "u8", range(min = IPV4_PREFIX_MIN, max = IPV4_PREFIX_MAX), extend("default" = 32))]
    ipv4_prefix: Option<()>,
    /// How many bits of an IPv6 address make a client. Who has one address usually has a whole /64.
    #[schemars(default, with = "u8", range(min = IPV6_PREFIX_MIN, max = IPV6_PREFIX_MAX), extend("default" = 64))]
    ipv6_prefix: Option<()>,
}

/// The service that keeps global limits.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Counter")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct CounterForm {
    /// The proxy's name for the service: a cluster of Envoy, `host:port` in Kong.
    #[schemars(schema_with = "cluster")]
    cluster: (),
    /// The authority of calls to it. Default: the cluster's name.
    #[schemars(default, schema_with = "cluster")]
    authority: Option<()>,
    /// How long it may take to answer, from 1ms to 10s.
    #[schemars(default, schema_with = "parts::duration", extend("default" = "50ms"))]
    timeout: Option<()>,
    /// A secret that proves that this proxy may ask. Printable ASCII without spaces.
    #[schemars(default, schema_with = "token")]
    token: Option<()>,
    /// What keeps its counters apart from those of others. Default: the config's namespace.
    #[schemars(default, schema_with = "parts::namespace")]
    namespace: Option<()>,
}

/// The rules of one route.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Route")]
#[expect(dead_code, reason = "a form is only described, never built")]
struct RouteForm {
    /// The rules, which apply to requests on this route only; their `match` cannot name a `route`.
    #[schemars(length(max = RULES_MAX))]
    rules: Vec<RuleForm>,
}

fn version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "const": VERSION, "default": VERSION })
}

fn routes(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": generator.subschema_for::<RouteForm>(),
        "propertyNames": parts::text(LINE_PATTERN, 1, ROUTE_NAME_LEN_MAX),
        "maxProperties": RULES_MAX,
    })
}

fn cluster(_: &mut SchemaGenerator) -> Schema {
    parts::schema_of(parts::text(VISIBLE_PATTERN, 1, CLUSTER_LEN_MAX))
}

fn token(_: &mut SchemaGenerator) -> Schema {
    parts::schema_of(parts::text(VISIBLE_PATTERN, 1, TOKEN_LEN_MAX))
}
