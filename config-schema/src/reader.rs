//! Walks a JSON tree: each node knows its place, and each complaint goes into the report.
//!
//! A function that reads returns `None` only after it has reported why, so callers read all fields first and
//! give up (`?`) last: that is how one run finds every error. What fields exist and mean is no concern of
//! this file.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::errors::{ConfigError, Report};
use crate::json::Json;
use crate::place::{Place, quoted};
use crate::suggest::nearest;

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

/// The word for a value of a set.
pub(crate) fn word_of<T: Choice + PartialEq>(value: T) -> &'static str {
    T::CHOICES.iter().find(|(_, choice)| *choice == value).map_or("", |(word, _)| *word)
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

    pub(crate) fn is_number(&self) -> bool {
        matches!(self.json, Json::Whole(_) | Json::OtherNumber)
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self.json, Json::Object(_))
    }

    pub(crate) fn wrong_type(&self, expected: &str, report: &mut Report) {
        let found = match self.json {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
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

    /// The number, if it is one in digits; nothing is reported.
    pub(crate) fn json_whole(&self) -> Option<u64> {
        match self.json {
            Json::Whole(number) => Some(*number),
            _ => None,
        }
    }

    /// The place as it is shown in messages.
    pub(crate) fn place(&self) -> String {
        self.place.to_string()
    }

    pub(crate) fn boolean(&self, report: &mut Report) -> Option<bool> {
        let Json::Bool(value) = self.json else {
            self.wrong_type("true or false", report);
            return None;
        };
        Some(*value)
    }

    /// Text of so many characters, all of which are fine; `what` says what it should have been.
    pub(crate) fn text_of(
        &self,
        chars: RangeInclusive<usize>,
        is_fine: fn(char) -> bool,
        what: &str,
        report: &mut Report,
    ) -> Option<&'a str> {
        let text = self.text(report)?;
        if chars.contains(&text.chars().count()) && text.chars().all(is_fine) {
            return Some(text);
        }
        self.report(report, format!("{} is not {what}", quoted(text)));
        None
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
        self.check_len(&len, items.len(), report);
        let node = |(index, json)| Node { json, place: Place::Item(&self.place, index) };
        Some(items.iter().take(*len.end()).enumerate().map(node).collect())
    }

    /// One text, or a list of several of which any will do; none may come twice.
    pub(crate) fn one_or_more<T: PartialEq>(
        &'a self,
        most: usize,
        report: &mut Report,
        mut read: impl FnMut(&Node<'a>, &mut Report) -> Option<T>,
    ) -> Option<Vec<T>> {
        if self.is_text() {
            return read(self, report).map(|one| vec![one]);
        }
        if !self.is_list() {
            self.wrong_type("a string or a list of strings", report);
            return None;
        }
        let nodes = self.list(1..=most, report)?;
        let items: Vec<Option<T>> = nodes.iter().map(|node| read(node, report)).collect();
        for (index, (node, item)) in nodes.iter().zip(&items).enumerate() {
            if item.is_some() && items.iter().take(index).any(|earlier| earlier == item) {
                node.report(report, "is in this list already; leave it out");
            }
        }
        items.into_iter().collect()
    }

    /// The fields of an object whose names are the user's own to choose.
    pub(crate) fn entries(
        &'a self,
        len: RangeInclusive<usize>,
        report: &mut Report,
    ) -> Option<Vec<(&'a str, Node<'a>)>> {
        let Json::Object(fields) = self.json else {
            self.wrong_type("an object", report);
            return None;
        };
        self.check_len(&len, fields.len(), report);
        let mut seen = Seen::default();
        let mut entries = Vec::with_capacity(fields.len().min(*len.end()));
        for (name, json) in fields.iter().take(*len.end()) {
            let field = Node { json, place: Place::Field(&self.place, name) };
            if seen.insert(name) {
                entries.push((name.as_str(), field));
            } else {
                field.report(report, "is written more than once; keep one");
            }
        }
        Some(entries)
    }

    fn check_len(&self, len: &RangeInclusive<usize>, found: usize, report: &mut Report) {
        let (least, most) = (*len.start(), *len.end());
        if len.contains(&found) {
            return;
        }
        let bound = if found < least { format!("at least {least}") } else { format!("at most {most}") };
        self.report(report, format!("must have {bound} {}, not {found}", plural(least, most, found)));
    }

    /// An object with these fields at most.
    pub(crate) fn object(&'a self, known: &[&str], report: &mut Report) -> Option<Object<'a>> {
        let Json::Object(fields) = self.json else {
            self.wrong_type("an object", report);
            return None;
        };
        let mut seen = Seen::default();
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

/// The names of an object's fields so far. A map like the others of this crate: each kind of map is code in the
/// module that ships.
#[derive(Default)]
struct Seen(BTreeMap<Box<[u8]>, usize>);

impl Seen {
    /// Whether the name is new.
    fn insert(&mut self, name: &str) -> bool {
        self.0.insert(name.as_bytes().into(), 0).is_none()
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

    /// Reads a field that may be absent; the outer `None` is a field that is wrong.
    #[expect(clippy::option_option, reason = "wrong, absent and given are three things")]
    pub(crate) fn maybe<T>(
        &self,
        name: &'a str,
        report: &mut Report,
        read: impl FnOnce(&Node<'a>, &mut Report) -> Option<T>,
    ) -> Option<Option<T>> {
        self.optional(name, None, report, |node, report| read(node, report).map(Some))
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
