//! Rewrites the golden JSON Schema, `tidegate.schema.json`.

fn main() -> std::io::Result<()> {
    std::fs::write(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tidegate.schema.json"),
        tidegate_config::schema::text(),
    )
}
