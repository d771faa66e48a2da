//! Comparing with published schemas.

use boon::{Compiler, Schemas};
use serde_json::Value;

/// A place that nothing is fetched from.
const PLACE: &str = "https://schema.invalid/it.json";

/// What is wrong with `value` by the schema at `pointer` in `schema`.
pub(crate) fn against(schema: &str, pointer: &str, value: &Value) -> Result<(), String> {
    let schema = serde_json::from_str(schema).unwrap();
    let mut compiler = Compiler::new();
    compiler.add_resource(PLACE, schema).unwrap();
    let mut schemas = Schemas::new();
    let index = compiler.compile(&format!("{PLACE}{pointer}"), &mut schemas);
    let index = index.unwrap_or_else(|error| panic!("{pointer}: {error}"));
    let valid = schemas.validate(value, index);
    valid.map_err(|error| format!("{error:#}"))
}
