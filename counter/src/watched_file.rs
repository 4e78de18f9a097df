//! Small files that are read again when they change.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// A file that is longer is refused.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for FileError {}

/// A value that is read from a file's text, and the last good one.
pub(crate) struct Watched<T> {
    path: PathBuf,
    parse: fn(&str) -> Result<T, String>,
    last: RwLock<Last<T>>,
}

struct Last<T> {
    text: String,
    value: Arc<T>,
    /// The file was empty when it was last read: whoever writes it anew in place empties it first.
    is_empty_now: bool,
}

impl<T> Watched<T> {
    /// Reads the file; one that is bad is no start.
    pub(crate) fn open(path: &Path, parse: fn(&str) -> Result<T, String>) -> Result<Self, FileError> {
        let text = read(path)?;
        let value = parse(&text).map_err(|message| FileError { path: path.to_owned(), message })?;
        Ok(Self {
            path: path.to_owned(),
            parse,
            last: RwLock::new(Last { text, value: Arc::new(value), is_empty_now: false }),
        })
    }

    /// The last good value.
    pub(crate) fn get(&self) -> Arc<T> {
        self.last.read().unwrap_or_else(PoisonError::into_inner).value.clone()
    }

    /// Reads the file again. What is bad changes nothing, nor what is not whole: one that lost the end of a line and all
    /// after it, and one that is empty, until it is found so again. Says whether there is something new.
    pub(crate) fn reload(&self) -> Result<bool, FileError> {
        let text = read(&self.path)?;
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        let was_empty = std::mem::replace(&mut last.is_empty_now, text.is_empty());
        if last.text == text || (text.is_empty() && !was_empty) {
            return Ok(false);
        }
        let error = |message| FileError { path: self.path.clone(), message };
        if !text.is_empty() && !text.ends_with('\n') && last.text.starts_with(&text) {
            return Err(error("is cut off in a line; end the last line, too, with a newline".to_owned()));
        }
        last.value = Arc::new((self.parse)(&text).map_err(error)?);
        last.text = text;
        Ok(true)
    }
}

fn read(path: &Path) -> Result<String, FileError> {
    let error = |message| FileError { path: path.to_owned(), message };
    // A pipe would let us wait until somebody writes to it, a device for ever.
    match std::fs::metadata(path) {
        Ok(kind) if !kind.is_file() => return Err(error("is no ordinary file".to_owned())),
        _ => {}
    }
    let file = std::fs::File::open(path).map_err(|why| error(format!("cannot be opened: {why}")))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|why| error(format!("cannot be read as text: {why}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(error(format!("is longer than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}
