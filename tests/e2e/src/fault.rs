//! The one error of the harness: a sentence for the person who runs it.

use std::fmt;

/// What went wrong, as a sentence.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault(String);

impl Fault {
    /// A fault from its sentence.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As [`fmt::Display`], so that an `unwrap` in a test shows the sentence and not its escaped form.
impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Fault {}

/// Puts "while doing what" before an error's own words.
pub trait Context<T> {
    /// The value, or a fault that says `what` failed and why.
    fn context(self, what: &str) -> Result<T, Fault>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, what: &str) -> Result<T, Fault> {
        self.map_err(|error| Fault(format!("{what}: {error}")))
    }
}
