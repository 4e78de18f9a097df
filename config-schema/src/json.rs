//! JSON text as a small tree that loses nothing.
//!
//! Objects keep all their fields in order: a field that is written twice must be refused, and a map would
//! drop one of the two without a word. Numbers keep how they were written as far as the config cares: digits
//! or not.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::errors::ConfigError;

/// Deeper nesting is refused, so that no input can exhaust the stack of the proxy's VM.
const DEPTH_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// Written in digits only.
    Whole(u64),
    /// Below zero, with a point or an exponent, or beyond 64 bits: the config has no use for any of these.
    OtherNumber,
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Reads one JSON value and nothing after it.
pub(crate) fn parse(text: &[u8]) -> Result<Json, ConfigError> {
    if text.iter().all(u8::is_ascii_whitespace) {
        let advice = r#"is empty; the least that is allowed is {"rules": []}"#;
        return Err(ConfigError::new("config", advice));
    }
    tree(text).map_err(|place| {
        // Envoy hands over a google.protobuf.Struct as its binary form: seen by control bytes, which no JSON text
        // has.
        let is_binary = text.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace());
        let advice = "; it looks binary: in Envoy, give the JSON text as a google.protobuf.StringValue";
        ConfigError::new("config", format!("{place}{}", if is_binary { advice } else { "" }))
    })
}

/// The same for any JSON text; an error says where the text is no JSON.
pub(crate) fn tree(text: &[u8]) -> Result<Json, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let tree = Tree { depth: 0 }.deserialize(&mut deserializer);
    let whole = tree.and_then(|tree| deserializer.end().map(|()| tree));
    whole.map_err(|error| syntax_message(&error))
}

fn syntax_message(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let reason = error.to_string();
    let reason = reason.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&reason);
    format!("is not valid JSON at line {line}, column {column}: {reason}")
}

/// Builds a tree and knows how deep it is already.
#[derive(Clone, Copy)]
struct Tree {
    depth: usize,
}

impl Tree {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth.saturating_add(1);
        if depth > DEPTH_MAX {
            return Err(E::custom(format_args!("nested deeper than {DEPTH_MAX} levels")));
        }
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Tree { depth: 0 }.deserialize(deserializer)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Whole(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
        Ok(u64::try_from(number).map_or(Json::OtherNumber, Json::Whole))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Json, E> {
        Ok(Json::OtherNumber)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Json, E> {
        Ok(Json::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut object = Vec::new();
        while let Some(name) = fields.next_key::<String>()? {
            object.push((name, fields.next_value_seed(inner)?));
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn refusal(text: &[u8]) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_field_written_twice_is_kept_twice() {
        let tree = parse(br#"{"a": 1, "a": 2}"#).unwrap();
        let fields = vec![("a".to_owned(), Json::Whole(1)), ("a".to_owned(), Json::Whole(2))];
        assert_eq!(tree, Json::Object(fields));
    }

    #[test]
    fn only_digits_make_a_whole_number() {
        let cases: [(&[u8], Json); 8] = [
            (b"0", Json::Whole(0)),
            (b"18446744073709551615", Json::Whole(u64::MAX)),
            (b"18446744073709551616", Json::OtherNumber),
            (b"-1", Json::OtherNumber),
            (b"-0", Json::OtherNumber),
            (b"1.0", Json::OtherNumber),
            (b"1e3", Json::OtherNumber),
            (b"1E0", Json::OtherNumber),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap(), expected, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| [b"[".repeat(levels), b"]".repeat(levels)].concat();
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        assert!(refusal(&nested(DEPTH_MAX + 1)).contains("nested deeper than 32 levels"));
        assert!(refusal(&b"[".repeat(1_000_000)).contains("nested deeper than 32 levels"));
        assert!(refusal(&br#"{"a":"#.repeat(1_000)).contains("nested deeper than 32 levels"));
    }

    #[test]
    fn nothing_may_follow_the_value() {
        let message = refusal(b"{}\n{}");
        assert_eq!(message, "config: is not valid JSON at line 2, column 1: trailing characters");
    }

    #[test]
    fn a_protobuf_struct_gets_a_hint() {
        let message = refusal(b"\n\x0d\n\x05rules\x12\x042\x02\n\x00");
        assert!(message.ends_with("give the JSON text as a google.protobuf.StringValue"), "{message}");
    }

    #[test]
    fn text_that_is_not_utf8_is_refused() {
        assert!(refusal(b"{\"\xff\": 1}").starts_with("config: is not valid JSON at line 1"));
    }
}
