//! `tidegate check`: all that is wrong with a config.

use std::io::Read;
use std::path::Path;

use tidegate_config::Config;

use crate::failure::Failure;

/// A longer file is no config.
const CONFIG_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn check(file: &Path) -> Result<(), Failure> {
    let name = if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() };
    let text = read(file).map_err(|why| Failure::other(format!("{name}: cannot be read: {why}")))?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        return Err(Failure::other(format!("{name}: is longer than {CONFIG_BYTES_MAX} bytes")));
    }
    let config = Config::from_json(&text).map_err(|errors| Failure::other(format!("{name}: {errors}")))?;
    let rules = config.rules.len();
    crate::print(&format!("{name}: fine, {rules} {}\n", if rules == 1 { "rule" } else { "rules" }))
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().take(CONFIG_BYTES_MAX + 1).read_to_end(&mut text)?;
    } else {
        std::fs::File::open(file)?.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut text)?;
    }
    Ok(text)
}
