//! The body of a denied response as the config writes it: text with a few places to fill in.

use crate::errors::Report;
use crate::place::quoted;
use crate::reader::Node;

pub(crate) const BODY_LEN_MAX: usize = 4_096;

/// The type of such a body if the config does not say.
pub const BODY_CONTENT_TYPE_DEFAULT: &str = "text/plain; charset=utf-8";

/// Text in which `{rule}`, `{retry_after}` and `{limit}` are filled in. Every other brace stands for itself, so
/// that JSON can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(String);

/// What is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial<'a> {
    /// The name of the rule that said no.
    pub rule: &'a str,
    /// Seconds to wait; `None`, written as nothing, if waiting does not help.
    pub retry_after_s: Option<u64>,
    /// How many requests the limit allows.
    pub limit: u64,
}

#[derive(Clone, Copy)]
enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

const KNOWN: [&str; 3] = ["rule", "retry_after", "limit"];

impl Body {
    /// The text as the config has it.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The text with everything filled in. What is filled in are names and numbers, which break out of nothing.
    pub fn render(&self, denial: &Denial) -> String {
        let mut out = String::with_capacity(self.0.len());
        for piece in pieces(&self.0) {
            match piece {
                Piece::Placeholder("rule") => out.push_str(denial.rule),
                Piece::Placeholder("limit") => out.push_str(&denial.limit.to_string()),
                Piece::Placeholder(_) => out.extend(denial.retry_after_s.map(|seconds| seconds.to_string())),
                Piece::Text(text) => out.push_str(text),
            }
        }
        out
    }

    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let text = node.text(report)?;
        if text.chars().count() > BODY_LEN_MAX {
            node.report(report, format!("is too long; a body has at most {BODY_LEN_MAX} characters"));
            return None;
        }
        let is_unknown = |piece: &Piece| matches!(piece, Piece::Placeholder(name) if !KNOWN.contains(name));
        if let Some(Piece::Placeholder(name)) = pieces(text).find(is_unknown) {
            let placeholder = quoted(&format!("{{{name}}}"));
            let known = "{rule}, {retry_after} and {limit}";
            node.report(report, format!("{placeholder} is not filled in; what can be are {known}"));
            return None;
        }
        Some(Self(text.to_owned()))
    }
}

/// A placeholder is one or more small letters and `_` in braces.
fn pieces(mut rest: &str) -> impl Iterator<Item = Piece<'_>> {
    std::iter::from_fn(move || {
        let (piece, after) = next_piece(rest)?;
        rest = after;
        Some(piece)
    })
}

fn next_piece(text: &str) -> Option<(Piece<'_>, &str)> {
    if text.is_empty() {
        return None;
    }
    let Some(inner) = text.strip_prefix('{') else {
        let (before, after) = text.split_at_checked(text.find('{').unwrap_or(text.len()))?;
        return Some((Piece::Text(before), after));
    };
    let name_len = inner.bytes().take_while(|byte| byte.is_ascii_lowercase() || *byte == b'_').count();
    let (name, after) = inner.split_at_checked(name_len)?;
    match after.strip_prefix('}') {
        Some(after) if name_len > 0 => Some((Piece::Placeholder(name), after)),
        _ => text.split_at_checked(1).map(|(brace, after)| (Piece::Text(brace), after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn places_are_filled_in_and_other_braces_stay() {
        let denial = Denial { rule: "login", retry_after_s: Some(12), limit: 100 };
        let cases = [
            ("wait {retry_after} s", "wait 12 s"),
            (r#"{"rule": "{rule}", "limit": {limit}}"#, r#"{"rule": "login", "limit": 100}"#),
            ("{}{ rule }{{rule}}{", "{}{ rule }{login}{"),
            ("{Rule}", "{Rule}"),
            ("", ""),
            ("é{limit}é", "é100é"),
        ];
        for (text, expected) in cases {
            assert_eq!(Body(text.to_owned()).render(&denial), expected, "{text}");
        }
        let never = Denial { retry_after_s: None, ..denial };
        assert_eq!(Body("after {retry_after}.".to_owned()).render(&never), "after .");
    }
}
