//! Rewrites what is made from the config's types: the golden JSON Schema and the reference of all fields.

use std::fs::write;

fn main() -> std::io::Result<()> {
    write(concat!(env!("CARGO_MANIFEST_DIR"), "/tidegate.schema.json"), tidegate_config::schema::text())?;
    write(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config.md"), tidegate_config::reference::text())
}
