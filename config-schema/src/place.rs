//! Where something stands in a config, and how text from a config is shown in messages.

use std::borrow::Cow;
use std::fmt;

/// Longer text from the config is cut in messages.
pub(crate) const SHOWN_CHARS_MAX: usize = 64;

/// Where a value stands.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
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

/// Text from the config as it may stand in a message: on one line, in quotes, not too long.
pub(crate) fn quoted(text: &str) -> String {
    let shown = shortened(text);
    if shown.len() < text.len() { format!("{:?}", format!("{shown}…")) } else { format!("{shown:?}") }
}

fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(SHOWN_CHARS_MAX).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or(text)
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
