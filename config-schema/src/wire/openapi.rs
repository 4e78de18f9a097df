//! The counter's `OpenAPI` document, made from the types that it reads and writes.

use serde_json::{Value, json};

use super::problem::PROBLEM_JSON;
use super::{BODY_BYTES_MAX, JSON, POSTCARD, form};

/// The document as JSON text.
pub fn text() -> String {
    format!("{:#}\n", document())
}

/// The document.
pub fn document() -> Value {
    let mut schemas = form::schemas("#/components/schemas");
    schemas.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate counter",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Keeps limits across a fleet of proxies.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" }
        },
        "paths": {
            "/v1/take": { "post": take() },
            "/healthz": { "get": text_page("Whether the process runs", &["200"]) },
            "/readyz": { "get": text_page("Whether a batch would be applied now", &["200", "503"]) },
            "/metrics": { "get": text_page("Metrics in Prometheus' text format", &["200"]) },
            "/openapi.json": { "get": {
                "summary": "This document",
                "responses": { "200": { "description": "The document", "content": { JSON: { "schema": { "type": "object" } } } } }
            } }
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } }
        }
    })
}

fn take() -> Value {
    let refusals = [
        ("400", "The body is no batch: each error names its field"),
        ("401", "The token is missing or wrong"),
        ("408", "The body did not come in time"),
        ("409", "The sequence is too old to know whether it was applied; nothing is charged"),
        ("413", "The body is too long"),
        ("415", "The content type is not known"),
        ("500", "The store answered what it never should"),
        ("503", "The store is unreachable, full or busy"),
        ("504", "The caller's time is over"),
    ];
    let mut responses = json!({ "200": {
        "description": "What came of each take",
        "content": {
            JSON: { "schema": { "$ref": "#/components/schemas/Answer" } },
            POSTCARD: { "schema": { "type": "string", "format": "binary" } }
        }
    } });
    if let Some(responses) = responses.as_object_mut() {
        for (status, description) in refusals {
            let content = json!({ PROBLEM_JSON: { "schema": { "$ref": "#/components/schemas/Problem" } } });
            responses.insert(status.to_owned(), json!({ "description": description, "content": content }));
        }
    }
    json!({
        "summary": "Takes from limits, or gives back",
        "description": format!(
            "A batch of groups; each group is all or none. The body has at most {BODY_BYTES_MAX} bytes. The answer \
             is in the encoding of the request."
        ),
        "security": [{ "token": [] }, {}],
        "parameters": [{
            "name": "x-envoy-expected-rq-timeout-ms",
            "in": "header",
            "description": "For how long the caller waits, in milliseconds; the smaller of this and `wait_ms` counts.",
            "schema": { "type": "integer", "minimum": 1, "maximum": 4_294_967_295_u32 }
        }],
        "requestBody": {
            "required": true,
            "content": {
                JSON: { "schema": { "$ref": "#/components/schemas/Batch" }, "example": example() },
                POSTCARD: { "schema": { "type": "string", "format": "binary" } }
            }
        },
        "responses": responses
    })
}

/// A batch that is answered, for whoever tries the page, and for tools that make requests of their own.
fn example() -> Value {
    json!({
        "sender": { "proxy": "5f0c00000000000a", "vm": 3, "sequence": 41 },
        "groups": [
            { "takes": [
                { "rule": "login", "limit": "100/1m", "key": "ana" },
                { "rule": "login", "limit": { "requests": 10, "per": "1s", "algorithm": "token_bucket" }, "key": "ana" }
            ] },
            { "takes": [{ "rule": "export", "limit": "5/1h", "key": "bob", "n": 2, "manner": "some" }] }
        ]
    })
}

fn text_page(summary: &str, statuses: &[&str]) -> Value {
    let content = json!({ "text/plain": { "schema": { "type": "string" } } });
    let response =
        |status: &&str| ((*status).to_owned(), json!({ "description": summary, "content": content }));
    let responses: serde_json::Map<String, Value> = statuses.iter().map(response).collect();
    json!({ "summary": summary, "responses": responses })
}

fn problem() -> Value {
    json!({
        "description": "Why a request is not served (RFC 9457).",
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": false,
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "errors": { "type": "array", "items": {
                "type": "object",
                "required": ["field", "message"],
                "additionalProperties": false,
                "properties": { "field": { "type": "string" }, "message": { "type": "string" } }
            } },
            "more_errors": { "type": "integer" }
        }
    })
}
