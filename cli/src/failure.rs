//! Why the program ends early, and the exit code that tells a script so.

use std::process::ExitCode;

/// Why the program ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Something that has no code of its own: 1. A config with errors too.
    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// An option that cannot be: 2, as for one that does not exist.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// The address cannot be listened on: 3.
    pub(crate) fn listen(message: impl Into<String>) -> Self {
        Self { code: 3, message: message.into() }
    }

    /// The store is not there: 4.
    pub(crate) fn store(message: impl Into<String>) -> Self {
        Self { code: 4, message: message.into() }
    }

    /// A file for tokens, TLS or rules is bad: 5.
    pub(crate) fn file(message: impl Into<String>) -> Self {
        Self { code: 5, message: message.into() }
    }

    pub(crate) fn report(self) -> ExitCode {
        eprintln!("tidegate: {}", self.message);
        ExitCode::from(self.code)
    }
}
