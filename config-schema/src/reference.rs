//! The reference of all fields, made from the descriptions in the JSON Schema.

use serde_json::Value;

use crate::schema::json_schema;

const HEAD: &str = "\
# The config, field by field

<!-- Written by `make schema` from the types in config-schema. Change those, not this. -->

A config is one JSON object. Unknown fields are refused, null is refused, and all errors are reported at once, each with
its place. What a field means if it is left out stands under *default*; a field without one may be left out unless it is
marked *required*. `tidegate.schema.json` says the same to editors.
";

/// The reference as the text of a file.
pub fn text() -> String {
    let schema = json_schema().to_value();
    let mut out = HEAD.to_owned();
    write_section("Config", &schema, &mut out);
    for (name, definition) in schema.get("$defs").and_then(Value::as_object).into_iter().flatten() {
        write_section(name, definition, &mut out);
    }
    out
}

fn write_section(name: &str, schema: &Value, out: &mut String) {
    let description = schema["description"].as_str().unwrap_or_default();
    push(out, format_args!("\n## {name}\n\n{}\n", cell(description)));
    if let Some(fields) = schema["properties"].as_object() {
        push(out, format_args!("\n| field | type | default | |\n|---|---|---|---|\n"));
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (field, value) in fields {
            let default = match &value["default"] {
                Value::Null if required.contains(&field.as_str()) => "*required*".to_owned(),
                Value::Null => String::new(),
                default => format!("`{default}`"),
            };
            let description = value["description"].as_str().unwrap_or_default();
            push(out, format_args!("| `{field}` | {} | {default} | {} |\n", kind(value), cell(description)));
        }
    }
    let choices = ["oneOf", "anyOf"].iter().find_map(|one| schema[*one].as_array());
    if let (Some(choices), None) = (choices, schema["properties"].as_object()) {
        out.push('\n');
        for choice in choices {
            let description = choice["description"].as_str().unwrap_or_default();
            push(out, format_args!("- {}: {}\n", kind(choice), cell(description)));
        }
    }
}

/// Writing into memory cannot fail.
fn push(out: &mut String, text: std::fmt::Arguments) {
    out.push_str(&text.to_string());
}

/// Text that cannot end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").trim().to_owned()
}

/// What kind of value a schema takes, in words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_ascii_lowercase());
    }
    if let Some(word) = schema.get("const") {
        return format!("`{word}`");
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<String>>().join(" or ");
    }
    match schema["type"].as_str().unwrap_or_default() {
        "string" => "text".to_owned(),
        "boolean" => "true or false".to_owned(),
        "integer" => format!("number{}", bounds(schema)),
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if schema.get("additionalProperties").is_some_and(Value::is_object) => {
            format!("by name: {}", kind(&schema["additionalProperties"]))
        }
        other => other.to_owned(),
    }
}

fn bounds(schema: &Value) -> String {
    match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
        (Some(least), Some(most)) => format!(" from {least} to {most}"),
        _ => String::new(),
    }
}
