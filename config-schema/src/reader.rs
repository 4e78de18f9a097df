//! Walks a JSON tree: each node knows its place, and each complaint goes into the report.
//!
//! A function that reads returns `None` only after it has reported why, so callers read all fields first and
//! give up (`?`) last: that is how one run finds every error. What fields exist and mean is no concern of
//! this file.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

use crate::errors::{ConfigError, Report};
use crate::json::Json;
use crate::suggest::nearest;

/// Longer text from the config is cut in messages.
const SHOWN_CHARS_MAX: usize = 64;

/// A value of the tree and its place.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    json: &'a Json,
    place: Place<'a>,
}

/// An object whose field names were checked.
pub(crate) struct Object<'a> {
    fields: &'a [(String, Json)],
    place: &'a Place<'a>,
}

/// A set of values that are written as words.
pub(crate) trait Choice: Copy + 'static {
    const CHOICES: &'static [(&'static str, Self)];
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl<'a> Node<'a> {
    pub(crate) fn root(json: &'a Json) -> Self {
        Self { json, place: Place::Root }
    }

    pub(crate) fn report(&self, report: &mut Report, message: impl Into<String>) {
        report.add(ConfigError::new(self.place.to_string(), message));
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self.json, Json::Text(_))
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.json, Json::List(_))
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self.json, Json::Object(_))
    }

    pub(crate) fn wrong_type(&self, expected: &str, report: &mut Report) {
        let found = match self.json {
            Json::Null => "null",
            Json::Bool => "a boolean",
            Json::Whole(_) | Json::OtherNumber => "a number",
            Json::Text(_) => "a string",
            Json::List(_) => "a list",
            Json::Object(_) => "an object",
        };
        self.report(report, format!("must be {expected}, not {found}"));
    }

    pub(crate) fn text(&self, report: &mut Report) -> Option<&'a str> {
        let Json::Text(text) = self.json else {
            self.wrong_type("a string", report);
            return None;
        };
        Some(text)
    }

    /// A whole number, written in digits.
    pub(crate) fn whole(&self, range: RangeInclusive<u64>, report: &mut Report) -> Option<u64> {
        let (least, most) = (range.start(), range.end());
        match self.json {
            Json::Whole(number) if range.contains(number) => return Some(*number),
            Json::Whole(number) => {
                self.report(report, format!("must be from {least} to {most}, not {number}"));
            }
            Json::OtherNumber => {
                let advice = "in digits without a sign, point or exponent";
                self.report(report, format!("must be a whole number from {least} to {most}, {advice}"));
            }
            _ => self.wrong_type("a number", report),
        }
        None
    }

    /// One word of a set.
    pub(crate) fn choice<T: Choice>(&self, report: &mut Report) -> Option<T> {
        let text = self.text(report)?;
        if let Some((_, value)) = T::CHOICES.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let words: Vec<&str> = T::CHOICES.iter().map(|(word, _)| *word).collect();
        let found = quoted(text);
        let message = match nearest(text, &words) {
            Some(word) => format!("{found} is not known here; did you mean \"{word}\"?"),
            None => format!("{found} is not known here; choose one of {}", listed(&words)),
        };
        self.report(report, message);
        None
    }

    /// The items of a list; too few or too many are reported, and no more than allowed are given out.
    pub(crate) fn list(&'a self, len: RangeInclusive<usize>, report: &mut Report) -> Option<Vec<Node<'a>>> {
        let Json::List(items) = self.json else {
            self.wrong_type("a list", report);
            return None;
        };
        let (least, most) = (*len.start(), *len.end());
        if !len.contains(&items.len()) {
            let bound =
                if items.len() < least { format!("at least {least}") } else { format!("at most {most}") };
            self.report(
                report,
                format!("must have {bound} {}, not {}", plural(least, most, items.len()), items.len()),
            );
        }
        let node = |(index, json)| Node { json, place: Place::Item(&self.place, index) };
        Some(items.iter().take(most).enumerate().map(node).collect())
    }

    /// An object with these fields at most.
    pub(crate) fn object(&'a self, known: &[&str], report: &mut Report) -> Option<Object<'a>> {
        let Json::Object(fields) = self.json else {
            self.wrong_type("an object", report);
            return None;
        };
        let mut seen = BTreeSet::new();
        for (name, json) in fields {
            let field = Node { json, place: Place::Field(&self.place, name) };
            if !seen.insert(name) {
                field.report(report, "is written more than once; keep one");
            } else if !known.contains(&name.as_str()) {
                field.report(report, unknown_field(name, known));
            }
        }
        Some(Object { fields, place: &self.place })
    }
}

impl<'a> Object<'a> {
    pub(crate) fn get(&self, name: &'a str) -> Option<Node<'a>> {
        let (_, json) = self.fields.iter().find(|(field, _)| field == name)?;
        Some(Node { json, place: Place::Field(self.place, name) })
    }

    /// Reads a field, or takes the value for its absence.
    pub(crate) fn optional<T>(
        &self,
        name: &'a str,
        absent: T,
        report: &mut Report,
        read: impl FnOnce(&Node<'a>, &mut Report) -> Option<T>,
    ) -> Option<T> {
        match self.get(name) {
            Some(node) => read(&node, report),
            None => Some(absent),
        }
    }

    /// Reads a field that must be there; `advice` says what to write.
    pub(crate) fn required<T>(
        &self,
        name: &'a str,
        advice: &str,
        report: &mut Report,
        read: impl FnOnce(&Node<'a>, &mut Report) -> Option<T>,
    ) -> Option<T> {
        if let Some(node) = self.get(name) {
            return read(&node, report);
        }
        let place = Place::Field(self.place, name).to_string();
        report.add(ConfigError::new(place, format!("is missing; {advice}")));
        None
    }
}

/// Text from the config as it may stand in a message: on one line, in quotes, not too long.
pub(crate) fn quoted(text: &str) -> String {
    let shown = shortened(text);
    if shown.len() < text.len() { format!("{:?}", format!("{shown}…")) } else { format!("{shown:?}") }
}

fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(SHOWN_CHARS_MAX).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or(text)
}

fn unknown_field(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(word) => format!("unknown field; did you mean \"{word}\"?"),
        None => format!("unknown field; known here: {}", listed(known)),
    }
}

fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    quoted.join(", ")
}

fn plural(least: usize, most: usize, found: usize) -> &'static str {
    let bound = if found < least { least } else { most };
    if bound == 1 { "item" } else { "items" }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("config"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Field(Self::Root, name) => f.write_str(&field_step(name)),
            Self::Field(parent, name) if is_plain(name) => write!(f, "{parent}.{name}"),
            Self::Field(parent, name) => write!(f, "{parent}{}", field_step(name)),
        }
    }
}

/// A plain name as it is, any other as `["…"]`.
fn field_step(name: &str) -> Cow<'_, str> {
    if is_plain(name) { Cow::Borrowed(name) } else { Cow::Owned(format!("[{}]", quoted(name))) }
}

fn is_plain(name: &str) -> bool {
    let is_plain_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$');
    !name.is_empty() && name.len() <= SHOWN_CHARS_MAX && name.chars().all(is_plain_char)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn places() {
        let rules = Place::Field(&Place::Root, "rules");
        let rule = Place::Item(&rules, 12);
        assert_eq!(Place::Root.to_string(), "config");
        assert_eq!(Place::Field(&rule, "path_prefix").to_string(), "rules[12].path_prefix");
        assert_eq!(Place::Field(&rule, "a.b").to_string(), r#"rules[12]["a.b"]"#);
        assert_eq!(Place::Field(&rule, "").to_string(), r#"rules[12][""]"#);
        assert_eq!(Place::Field(&Place::Root, "a\nb").to_string(), r#"["a\nb"]"#);
    }

    #[test]
    fn quoted_text_stays_on_one_line_and_short() {
        assert_eq!(quoted("it's\"\r\n\u{1b}[0m"), r#""it's\"\r\n\u{1b}[0m""#);
        let exactly = "é".repeat(SHOWN_CHARS_MAX);
        assert_eq!(quoted(&exactly), format!("\"{exactly}\""));
        assert_eq!(quoted(&format!("{exactly}x")), format!("\"{exactly}…\""));
    }
}
