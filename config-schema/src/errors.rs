//! What is wrong with a config: every error at once, each with its place.

use std::fmt;

use crate::place::Place;

/// At most this many errors are kept; the rest are counted.
pub const ERRORS_MAX: usize = 100;

/// One error: where, what, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    path: String,
    message: String,
}

/// All that is wrong with one config; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
    more: usize,
}

/// Collects errors while a config is read.
#[derive(Debug, Default)]
pub(crate) struct Report {
    errors: Vec<ConfigError>,
    more: usize,
}

impl ConfigError {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// The place, such as `rules[0].match.path`; `config` is the whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The reason and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl ConfigErrors {
    /// The errors in the order in which they were found; at most [`ERRORS_MAX`].
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }

    /// How many were found beyond those that are kept.
    pub fn more(&self) -> usize {
        self.more
    }
}

impl ConfigErrors {
    /// The same errors where the whole is not a config but `root`.
    pub(crate) fn about(mut self, root: &str) -> Self {
        for error in &mut self.errors {
            if error.path == Place::Root.to_string() {
                root.clone_into(&mut error.path);
            }
        }
        self
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self { errors: vec![error], more: 0 }
    }
}

/// One error is one line; several are a heading and a line each.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.errors.as_slice() {
            return only.fmt(f);
        }
        let total = self.errors.len().saturating_add(self.more);
        write!(f, "{total} errors in the config:")?;
        for error in &self.errors {
            write!(f, "\n  {error}")?;
        }
        if self.more > 0 {
            write!(f, "\n  and {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
impl std::error::Error for ConfigErrors {}

impl Report {
    pub(crate) fn add(&mut self, error: ConfigError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// The value that was read, if nothing was wrong on the way.
    ///
    /// A reader that gives up says why; should one forget, the config is still refused.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.errors.is_empty() => Ok(value),
            None if self.errors.is_empty() => Err(ConfigError::new("config", "could not be read").into()),
            _ => Err(ConfigErrors { errors: self.errors, more: self.more }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn report_of(count: usize) -> ConfigErrors {
        let mut report = Report::default();
        for number in 0..count {
            report.add(ConfigError::new(format!("rules[{number}]"), "is wrong"));
        }
        report.finish(Some(())).unwrap_err()
    }

    #[test]
    fn one_error_is_one_line() {
        assert_eq!(report_of(1).to_string(), "rules[0]: is wrong");
    }

    #[test]
    fn several_errors_have_a_heading() {
        assert_eq!(
            report_of(2).to_string(),
            "2 errors in the config:\n  rules[0]: is wrong\n  rules[1]: is wrong"
        );
    }

    #[test]
    fn errors_are_bounded_and_the_rest_counted() {
        let exactly = report_of(ERRORS_MAX);
        assert_eq!((exactly.errors().len(), exactly.more()), (ERRORS_MAX, 0));
        assert!(!exactly.to_string().contains("more"));

        let errors = report_of(ERRORS_MAX + 7);
        assert_eq!((errors.errors().len(), errors.more()), (ERRORS_MAX, 7));
        assert!(errors.to_string().starts_with("107 errors in the config:\n"));
        assert!(errors.to_string().ends_with("\n  and 7 more"));
    }

    #[test]
    fn a_missing_value_is_refused_even_without_a_reason() {
        let errors = Report::default().finish::<()>(None).unwrap_err();
        assert_eq!(errors.to_string(), "config: could not be read");
    }
}
