//! Where things are: files of this repository, and what `make` built or fetched.

use std::env;
use std::path::{Path, PathBuf};

use crate::Fault;
use crate::fault::Context;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the repository.
pub fn text(path: &str) -> Result<String, Fault> {
    std::fs::read_to_string(root().join(path)).context(&format!("{path} cannot be read"))
}

/// The Envoy binary.
pub fn envoy_binary() -> Result<PathBuf, Fault> {
    from_environment("TIDEGATE_ENVOY", "an Envoy binary")
}

/// The filter as it ships.
pub fn wasm_module() -> Result<PathBuf, Fault> {
    from_environment("TIDEGATE_WASM", "the built filter")
}

/// The module that tries what a host does.
pub fn probe_module() -> Result<PathBuf, Fault> {
    from_environment("TIDEGATE_PROBE_WASM", "the built probe")
}

/// The native program, which serves the counter.
pub fn tidegate_binary() -> Result<PathBuf, Fault> {
    from_environment("TIDEGATE_BIN", "the built program `tidegate`")
}

fn from_environment(variable: &str, what: &str) -> Result<PathBuf, Fault> {
    let advice = "run `make e2e` or `make demo`, which fetch and build what is needed";
    let path = env::var_os(variable)
        .map(PathBuf::from)
        .ok_or_else(|| Fault::new(format!("{variable} does not say where {what} is: {advice}.")))?;
    if path.is_file() {
        Ok(path)
    } else {
        Err(Fault::new(format!(
            "{variable} should name {what}, but {} is no file: {advice}.",
            path.display()
        )))
    }
}
