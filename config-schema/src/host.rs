//! Hosts: the form in which they are compared, and patterns for them.

use std::borrow::Cow;

use crate::errors::Report;
use crate::place::quoted;
use crate::reader::Node;

const HOST_LEN_MAX: usize = 253;

/// Which hosts are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// This one.
    Exact(String),
    /// Every one that ends in this, which begins with a dot: `.example.com`, but not `example.com` itself.
    Suffix(String),
}

impl HostMatch {
    pub(crate) fn matches(&self, host: &[u8]) -> bool {
        match self {
            Self::Exact(name) => name.as_bytes() == host,
            Self::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_bytes()),
        }
    }

    /// How it is written.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Exact(name) => name.clone(),
            Self::Suffix(suffix) => format!("*{suffix}"),
        }
    }

    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let text = node.text(report)?;
        let name = text.to_ascii_lowercase();
        let (suffix, rest) = match name.strip_prefix('*') {
            Some(suffix) => (true, suffix.strip_prefix('.').unwrap_or_default()),
            None => (false, name.as_str()),
        };
        let is_fine = is_name(rest) || (!suffix && is_bracketed(rest));
        if text.len() <= HOST_LEN_MAX && is_fine {
            return Some(if suffix { Self::Suffix(format!(".{rest}")) } else { Self::Exact(name) });
        }
        let advice = "write one such as \"example.com\" or \"*.example.com\", without scheme, port and path";
        node.report(report, format!("{} is not a host; {advice}", quoted(text)));
        None
    }
}

/// Labels with a dot between them; none is empty, so that there is none at the end either.
fn is_name(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.split('.').all(|label| !label.is_empty() && label.bytes().all(is_fine))
}

/// An IPv6 address in brackets.
fn is_bracketed(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_fine = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    inner.is_some_and(|inner| !inner.is_empty() && inner.bytes().all(is_fine))
}

/// An authority as hosts are compared: no user, no port, small letters, no dot at the end.
///
/// `Example.com:443` and `example.com.` reach the same server as `example.com`; a rule for one holds for all.
pub(crate) fn normalise(authority: &[u8]) -> Cow<'_, [u8]> {
    let after_user = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at.saturating_add(1));
    let rest = authority.get(after_user..).unwrap_or_default();
    let end = if rest.starts_with(b"[") {
        rest.iter().position(|byte| *byte == b']').map_or(rest.len(), |end| end.saturating_add(1))
    } else {
        rest.iter().position(|byte| *byte == b':').unwrap_or(rest.len())
    };
    let host = rest.get(..end).unwrap_or_default();
    let host = host.strip_suffix(b".").unwrap_or(host);
    if host.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn authorities_are_compared_as_hosts() {
        let cases = [
            ("example.com", "example.com"),
            ("Example.COM:8443", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("user@example.com", "example.com"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[::1", "[::1"),
            ("", ""),
            (":80", ""),
        ];
        for (authority, expected) in cases {
            assert_eq!(normalise(authority.as_bytes()), expected.as_bytes(), "{authority}");
        }
    }

    #[test]
    fn a_suffix_is_not_the_domain_itself() {
        let suffix = HostMatch::Suffix(".example.com".to_owned());
        for (host, expected) in [
            ("a.example.com", true),
            ("a.b.example.com", true),
            ("example.com", false),
            ("badexample.com", false),
        ] {
            assert_eq!(suffix.matches(host.as_bytes()), expected, "{host}");
        }
    }
}
