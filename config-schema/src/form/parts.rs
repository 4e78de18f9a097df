//! Pieces of schema that several forms have in common.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::conditions::VALUE_LEN_MAX;
use crate::header_name::HEADER_NAME_LEN_MAX;

pub(crate) const DURATION_PATTERN: &str = "^[1-9][0-9]{0,10}(ms|s|m|h|d)$";
pub(crate) const NAME_PATTERN: &str = r"^[a-z][a-z0-9_-]{0,63}$";
pub(crate) const PLAIN_PATTERN: &str = r"^[A-Za-z0-9._-]{1,64}$";
/// What can stand on one line: no control characters.
pub(crate) const LINE_PATTERN: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
/// ASCII without control characters.
pub(crate) const HEADER_TEXT_PATTERN: &str = "^[ -~]*$";
pub(crate) const VISIBLE_PATTERN: &str = "^[!-~]*$";
pub(crate) const TOKEN_PATTERN: &str = "^[0-9A-Za-z!#$%&'*+.^_`|~-]+$";

/// A text that fits a pattern and has so many characters.
pub(crate) fn text(pattern: &str, least: usize, most: usize) -> Value {
    json!({ "type": "string", "pattern": pattern, "minLength": least, "maxLength": most })
}

/// One of these, or a list of several of which any will do.
pub(crate) fn one_or_more(item: &Value, most: usize) -> Schema {
    let one = described(item.clone(), "One.");
    json_schema!({ "anyOf": [one, list(item, most, "Any of several.")] })
}

pub(crate) fn described(mut schema: Value, description: &str) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("description".to_owned(), description.into());
    }
    schema
}

pub(crate) fn list(item: &Value, most: usize, description: &str) -> Value {
    json!({
        "description": description,
        "type": "array",
        "items": item,
        "minItems": 1,
        "maxItems": most,
        "uniqueItems": true,
    })
}

pub(crate) fn schema_of(value: Value) -> Schema {
    value.try_into().unwrap_or_default()
}

pub(crate) fn header_name(_: &mut SchemaGenerator) -> Schema {
    schema_of(text(TOKEN_PATTERN, 1, HEADER_NAME_LEN_MAX))
}

pub(crate) fn value_text(least: usize) -> Value {
    text(LINE_PATTERN, least, VALUE_LEN_MAX)
}

pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": DURATION_PATTERN })
}

pub(crate) fn namespace(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": PLAIN_PATTERN })
}
