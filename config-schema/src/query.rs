//! Parameters of a query and cookies: pairs in a row.

use std::borrow::Cow;

use crate::path::decoded;

/// Calls `each` with every parameter, name and value decoded. A name without `=` has an empty value.
pub(crate) fn each_parameter(query: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) {
    for pair in query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let (name, value) = split_pair(pair);
        each(&plain(name), &plain(value));
    }
}

/// Calls `each` with every cookie of one `cookie` header.
pub(crate) fn each_cookie(header: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) {
    for pair in header.split(|byte| *byte == b';') {
        let (name, value) = split_pair(pair.trim_ascii());
        each(name.trim_ascii_end(), value.trim_ascii_start());
    }
}

fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(at) => {
            (pair.get(..at).unwrap_or_default(), pair.get(at.saturating_add(1)..).unwrap_or_default())
        }
        None => (pair, b""),
    }
}

/// Without percent-encoding and with `+` as a space: however a client writes a value, it is one value.
fn plain(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if decoded(*high, *low).is_some() => {
                out.extend(decoded(*high, *low));
                rest = after;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(*byte),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn parameters(query: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        each_parameter(query.as_bytes(), &mut |name, value| found.push((text(name), text(value))));
        found
    }

    #[test]
    fn parameters_are_decoded() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            parameters("a=1&b=%32+x&%61=&c&&d=e=f"),
            [pair("a", "1"), pair("b", "2 x"), pair("a", ""), pair("c", ""), pair("d", "e=f"),]
        );
        assert_eq!(parameters("a=%4&b=%zz&c=%"), [pair("a", "%4"), pair("b", "%zz"), pair("c", "%")]);
        assert_eq!(parameters(""), []);
    }

    #[test]
    fn cookies_stand_between_semicolons() {
        let mut found = Vec::new();
        each_cookie(b"a=1; b = 2 ;c; =x", &mut |name, value| found.push((name.to_vec(), value.to_vec())));
        let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        assert_eq!(found, [pair("a", "1"), pair("b", "2"), pair("c", ""), pair("", "x")]);
    }
}
