//! The JSON Schema of the config language, made from the types that the parser fills.
//!
//! It cannot say all that the parser checks: names that clash, a field written twice, bounds inside a text. A
//! test lists these kinds and holds the two together in everything else.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Map, Value};

use crate::form::ConfigForm;

/// The schema as the text of a file: indented, with a line end at its end.
pub fn text() -> String {
    // The alternate form is the indented one.
    format!("{:#}\n", sorted(json_schema().to_value()))
}

pub(crate) fn json_schema() -> Schema {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<ConfigForm>();
    RecursiveTransform(tidy).transform(&mut schema);
    schema
}

/// Undoes what Rust's types and comments bring along and JSON does not know.
pub(crate) fn tidy(schema: &mut Schema) {
    // `None` means that a field is absent; null is refused.
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}

/// Fields by name, whatever order another crate in the build makes `serde_json` keep.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> = fields.into_iter().collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(
                fields.into_iter().map(|(name, value)| (name, sorted(value))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}
