//! Rules that are switched off everywhere at once, by a file.

use std::path::Path;
use std::sync::Arc;

use tidegate_config::wire::is_rule_name;

use crate::watched_file::{FileError, Watched};

/// The most rules that can be switched off so: each answer carries all their names.
const RULES_OFF_MAX: usize = 256;

/// The names of rules that are switched off. Each answer carries them.
pub struct RulesOff(Option<Watched<Vec<String>>>);

impl RulesOff {
    /// No rule is off.
    pub fn none() -> Self {
        Self(None)
    }

    /// The rules that a file names, one on each line. The file is read again when it changes.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        Watched::open(path, parse).map(|file| Self(Some(file)))
    }

    /// Reads the file again, if there is one; what is bad changes nothing. Says whether there is something new.
    pub fn reload(&self) -> Result<bool, FileError> {
        self.0.as_ref().map_or(Ok(false), Watched::reload)
    }

    pub(crate) fn names(&self) -> Option<Arc<Vec<String>>> {
        self.0.as_ref().map(Watched::get)
    }
}

fn parse(text: &str) -> Result<Vec<String>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let names: Vec<String> = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let error = || format!("line {number} is not the name of a rule; write one on each line");
            is_rule_name(line).then(|| line.to_owned()).ok_or_else(error)
        })
        .collect::<Result<_, _>>()?;
    if names.len() > RULES_OFF_MAX {
        return Err(format!("has {} names; the most is {RULES_OFF_MAX}", names.len()));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_on_lines() {
        assert_eq!(
            parse("login\n\n# not now\n search \n"),
            Ok(vec!["login".to_owned(), "search".to_owned()])
        );
        assert_eq!(parse(""), Ok(Vec::new()), "an empty file switches all on");
        assert!(parse("login\nNo\n").unwrap_err().starts_with("line 2 is not the name of a rule"));
    }
}
