//! The description of the admin API, written down.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Writes `spec/openapi.yaml`. A test of the admin API fails while it says something else.
pub(crate) fn run() -> Result<()> {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path.push("spec");
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    path.push("openapi.yaml");
    fs::write(&path, bridge_dlq_admin::openapi_yaml())
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}
