//! `strip-exports IN OUT [ALSO]…`: writes the filter's module IN to OUT with only the exports that it needs, and those
//! named.
//!
//! Fails, and leaves OUT as it was, when one of those is missing from IN. It knows nothing of what the functions do.

mod keep;
mod strip;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [input, output, also @ ..] = arguments.as_slice() else {
        eprintln!("usage: strip-exports IN.wasm OUT.wasm [ALSO]...");
        return ExitCode::from(2);
    };
    match run(Path::new(input), Path::new(output), also) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("strip-exports: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run(input: &Path, output: &Path, also: &[OsString]) -> Result<(), String> {
    let also = also.iter().filter_map(|name| name.to_str());
    let keep: Vec<&str> = keep::KEEP.iter().copied().chain(also).collect();
    let wasm = std::fs::read(input).map_err(|error| format!("cannot read {}: {error}.", input.display()))?;
    let stripped = strip::strip(&wasm, &keep, keep::INSTEAD)
        .map_err(|error| format!("cannot strip {}: {error}", input.display()))?;
    write_whole(output, &stripped).map_err(|error| format!("cannot write {}: {error}.", output.display()))
}

/// Writes beside the file and renames, so that an Envoy that loads it meanwhile never sees half a module.
fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    std::fs::write(&beside, bytes)?;
    std::fs::rename(&beside, path)
}
