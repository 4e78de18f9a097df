//! The normal form of a path, in which rules compare.
//!
//! An upstream takes `/login`, `//login`, `/x/../login` and `/%6cogin` for one and the same, so a limit on
//! one must hold for all of them. The normal form
//! - has no query, no fragment, and begins with `/`;
//! - has no empty segment but the last, and no `.` or `..` segment, also if written as `%2e`;
//! - writes each character that may stand in a path as itself, and each other byte as `%` and two capital
//!   digits.
//!
//! `%2F` and `%25` therefore stay as they are. RFC 3986 lets only the unreserved characters change their
//! form; we also decode the reserved ones that a segment may hold (`:`, `@`, `;` …), because servers do, and
//! else `/v1/items%3Abatch` would be a way round a limit on `/v1/items:batch`.

use std::borrow::Cow;

/// What a path ends before.
pub(crate) const ENDS: [char; 2] = ['?', '#'];

/// The normal form of a request's target; borrowed if it is in that form already. Doing it again changes
/// nothing.
pub fn normalise(raw: &[u8]) -> Cow<'_, [u8]> {
    let path = without_authority(before_query(raw));
    if is_normal(path) { Cow::Borrowed(path) } else { Cow::Owned(rebuilt(path)) }
}

fn before_query(raw: &[u8]) -> &[u8] {
    raw.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default()
}

/// The path of `http://host/path`: a proxy may be asked in that form.
fn without_authority(target: &[u8]) -> &[u8] {
    let is_scheme_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let scheme_len = target.iter().take_while(|byte| is_scheme_byte(byte)).count();
    let rest = target.get(scheme_len..).and_then(|rest| rest.strip_prefix(b"://"));
    match rest {
        Some(rest) if scheme_len > 0 => {
            let authority_len = rest.iter().take_while(|byte| **byte != b'/').count();
            rest.get(authority_len..).unwrap_or_default()
        }
        _ => target,
    }
}

fn is_normal(path: &[u8]) -> bool {
    let Some(tail) = path.strip_prefix(b"/") else {
        return false;
    };
    let mut segments = tail.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let is_dots = matches!(segment, b"." | b"..");
        if is_dots || (segment.is_empty() && !is_last) || !is_normal_segment(segment) {
            return false;
        }
    }
    true
}

fn is_normal_segment(segment: &[u8]) -> bool {
    let mut rest = segment;
    while let Some((first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'%', [high, low, after @ ..]) if is_needed_escape(*high, *low) => after,
            (byte, _) if is_path_byte(*byte) => tail,
            _ => return false,
        };
    }
    true
}

/// Whether these two digits after a `%` are in their normal form.
fn is_needed_escape(high: u8, low: u8) -> bool {
    let is_capital = !high.is_ascii_lowercase() && !low.is_ascii_lowercase();
    is_capital && decoded(high, low).is_some_and(|byte| !is_path_byte(byte))
}

fn rebuilt(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len().saturating_add(1));
    let mut ends_in_slash = true;
    for segment in path.split(|byte| *byte == b'/') {
        let slash = out.len();
        out.push(b'/');
        let start = out.len();
        write_segment(segment, &mut out);
        let written = out.get(start..).unwrap_or_default();
        let is_parent = written == b"..";
        ends_in_slash = is_parent || matches!(written, b"" | b".");
        if ends_in_slash {
            out.truncate(slash);
        }
        if is_parent {
            let parent_end = out.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            out.truncate(parent_end);
        }
    }
    if ends_in_slash {
        out.push(b'/');
    }
    out
}

fn write_segment(segment: &[u8], out: &mut Vec<u8>) {
    let mut rest = segment;
    while let Some((first, tail)) = rest.split_first() {
        let mut byte = *first;
        rest = tail;
        // A "%" that encodes nothing falls through and is encoded itself: left alone, it could make an
        // encoding together with what is decoded behind it.
        if let (b'%', [high, low, after @ ..]) = (first, tail)
            && let Some(encoded) = decoded(*high, *low)
        {
            byte = encoded;
            rest = after;
        }
        if is_path_byte(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', capital_digit(byte >> 4), capital_digit(byte & 0x0f)]);
        }
    }
}

/// What RFC 3986 calls `pchar`, without the percent-encoded.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

pub(crate) fn decoded(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some((digit(high)? << 4) | digit(low)?)
}

fn capital_digit(half: u8) -> u8 {
    b"0123456789ABCDEF".get(usize::from(half)).copied().unwrap_or(b'0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn normal_text(raw: &str) -> String {
        String::from_utf8(normalise(raw.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn normal_forms() {
        let cases = [
            // Nothing to do.
            ("/", "/"),
            ("/login", "/login"),
            ("/a/b/", "/a/b/"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/...", "/a/..."),
            ("/a/..b", "/a/..b"),
            ("/v1/items:batch", "/v1/items:batch"),
            // Query and fragment.
            ("/login?x=/..", "/login"),
            ("/login#x?y", "/login"),
            ("/login?", "/login"),
            ("/%3Fx", "/%3Fx"),
            ("/%23x", "/%23x"),
            // Slashes.
            ("//login", "/login"),
            ("/a///b//", "/a/b/"),
            ("//", "/"),
            // Dot segments.
            ("/./login", "/login"),
            ("/x/../login", "/login"),
            ("/x/..//login", "/login"),
            ("/../../login", "/login"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/..", "/"),
            ("/.", "/"),
            ("/a//../b", "/b"),
            ("/%2e/login", "/login"),
            ("/x/%2E%2e/login", "/login"),
            ("/x/.%2E/login", "/login"),
            // Percent-encoding.
            ("/%6cogin", "/login"),
            ("/%6Cogin", "/login"),
            ("/%7euser", "/~user"),
            ("/v1/items%3abatch", "/v1/items:batch"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2Fb", "/a%2Fb"),
            ("/..%2f..%2flogin", "/..%2F..%2Flogin"),
            ("/%256cogin", "/%256cogin"),
            ("/%00", "/%00"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a b", "/a%20b"),
            ("/a\\b", "/a%5Cb"),
            // What encodes nothing.
            ("/%", "/%25"),
            ("/%6", "/%256"),
            ("/%zz", "/%25zz"),
            ("/%%36c", "/%256c"),
            ("/%+6c", "/%25+6c"),
            // Other forms of a target.
            ("", "/"),
            ("?x", "/"),
            ("*", "/*"),
            ("login", "/login"),
            ("../login", "/login"),
            ("http://host/login", "/login"),
            ("HTTPS://user@host:8443//login?x", "/login"),
            ("http://host", "/"),
            ("://host/login", "/:/host/login"),
            ("/http://host/login", "/http:/host/login"),
        ];
        for (raw, expected) in cases {
            assert_eq!(normal_text(raw), expected, "{raw}");
        }
    }

    #[test]
    fn what_is_normal_is_borrowed() {
        for raw in ["/", "/login", "/a/b/", "/a%2Fb", "/.well-known/x", "/login?page=1", "http://host/login"]
        {
            assert!(matches!(normalise(raw.as_bytes()), Cow::Borrowed(_)), "{raw}");
        }
    }

    /// Targets that are likely to be odd.
    fn target() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![
                "/", "//", ".", "..", "%2e", "%2E", "%2f", "%", "%2", "%25", "%36", "%6c", "%3a", "%C3", "?", "#",
                "x", "6c", "http:", "://", "\\", ":", ";", " ",
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..4),
        ];
        prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn normalising_again_changes_nothing(raw in target()) {
            let once = normalise(&raw).into_owned();
            let twice = normalise(&once);
            prop_assert!(matches!(twice, Cow::Borrowed(_)), "{}", String::from_utf8_lossy(&once));
            prop_assert_eq!(&*twice, &*once);
        }

        #[test]
        fn a_normal_form_has_no_trace_of_what_it_resolves(raw in target()) {
            let normal = normalise(&raw).into_owned();
            prop_assert_eq!(normal.first(), Some(&b'/'));
            prop_assert!(!normal.windows(2).any(|pair| pair == b"//"));
            prop_assert!(!normal.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b"..")));
            prop_assert!(normal.iter().all(|byte| byte.is_ascii_graphic() && !b"?#\\".contains(byte)));
        }

        #[test]
        fn rebuilding_what_is_normal_changes_nothing(raw in target()) {
            let normal = normalise(&raw).into_owned();
            prop_assert_eq!(rebuilt(&normal), normal);
        }
    }
}
