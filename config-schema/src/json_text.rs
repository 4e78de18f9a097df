//! A JSON tree as text that people like to read: what fits on a line stands on one.

use crate::json::Json;

const LINE_LEN_MAX: usize = 100;
const INDENT: usize = 2;

/// The fields of an object, in the order in which they are written.
#[derive(Default)]
pub(crate) struct Fields(Vec<(String, Json)>);

impl Fields {
    pub(crate) fn put(&mut self, name: &str, value: impl Into<Json>) {
        self.0.push((name.to_owned(), value.into()));
    }

    /// Writes a field only if it is not as it would be anyway.
    pub(crate) fn put_if(&mut self, is_written: bool, name: &str, value: impl FnOnce() -> Json) {
        if is_written {
            self.put(name, value());
        }
    }

    pub(crate) fn put_some<T: Into<Json>>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Fields> for Json {
    fn from(fields: Fields) -> Self {
        Self::Object(fields.0)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<Vec<Self>> for Json {
    fn from(items: Vec<Self>) -> Self {
        Self::List(items)
    }
}

/// One item as itself, several as a list.
pub(crate) fn one_or_list(items: impl IntoIterator<Item = impl Into<Json>>) -> Json {
    let mut items: Vec<Json> = items.into_iter().map(Into::into).collect();
    match items.len() {
        1 => items.remove(0),
        _ => Json::List(items),
    }
}

impl Json {
    /// The tree as text, with a line end at its end.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(0, &mut out);
        out.push('\n');
        out
    }

    /// The tree as text on one line.
    pub(crate) fn to_line(&self) -> String {
        let mut out = String::new();
        self.write_flat(&mut out);
        out
    }

    fn write(&self, indent: usize, out: &mut String) {
        let start = out.len();
        self.write_flat(out);
        let is_short = out.len().saturating_sub(start).saturating_add(indent) <= LINE_LEN_MAX;
        let inner = indent.saturating_add(INDENT);
        match self {
            Self::List(items) if !is_short => {
                out.truncate(start);
                write_broken(('[', ']'), items, indent, out, |item, out| item.write(inner, out));
            }
            Self::Object(fields) if !is_short => {
                out.truncate(start);
                write_broken(('{', '}'), fields, indent, out, |(name, value), out| {
                    write_text(name, out);
                    out.push_str(": ");
                    value.write(inner, out);
                });
            }
            _ => {}
        }
    }

    fn write_flat(&self, out: &mut String) {
        match self {
            // A number that the config has no use for is never written.
            Self::Null | Self::OtherNumber => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Whole(number) => out.push_str(&number.to_string()),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    item.write_flat(out);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    out.push_str(if index == 0 { " " } else { ", " });
                    write_text(name, out);
                    out.push_str(": ");
                    value.write_flat(out);
                }
                out.push_str(if fields.is_empty() { "}" } else { " }" });
            }
        }
    }
}

fn write_broken<T>(
    (open, close): (char, char),
    items: &[T],
    indent: usize,
    out: &mut String,
    write_item: impl Fn(&T, &mut String),
) {
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        out.extend(std::iter::repeat_n(' ', indent.saturating_add(INDENT)));
        write_item(item, out);
    }
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
    out.push(close);
}

pub(crate) fn write_text(text: &str, out: &mut String) {
    // Writing a text into memory cannot fail.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}
