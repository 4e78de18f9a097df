//! Names of headers, in lower case, as proxies give them out.

use crate::errors::Report;
use crate::place::quoted;
use crate::reader::Node;
use crate::text::is_token;

pub(crate) const HEADER_NAME_LEN_MAX: usize = 128;

/// What a header is named for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Who is counted, or how much.
    Read,
    /// Which requests are meant.
    Match,
    /// What a response has.
    Respond,
}

/// Headers of a response that the filter or the proxy sets.
const SET_ELSEWHERE: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "grpc-message",
    "grpc-status",
    "host",
    "keep-alive",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-envoy-ratelimited",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-retry-after",
];

pub(crate) fn read(node: &Node, report: &mut Report) -> Option<String> {
    let name = node.text(report)?;
    check(name, Purpose::Read, node, report)
}

/// The name in lower case, if there can be such a header for this purpose.
pub(crate) fn check(name: &str, purpose: Purpose, node: &Node, report: &mut Report) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let problem = if name.starts_with(':') {
        "is a pseudo header and cannot be used here; name an ordinary header"
    } else if purpose != Purpose::Respond && lower == "host" {
        "is kept outside the headers by the proxy and would always be missing; name another header, or use \"host\" \
         in a match or a key"
    } else if purpose == Purpose::Respond && SET_ELSEWHERE.contains(&lower.as_str()) {
        "is set by the filter or the proxy; leave it out"
    } else if name.is_empty() || !name.chars().all(is_token) {
        "is not the name of a header; use letters, digits and \"-\", such as \"x-api-key\""
    } else if name.len() > HEADER_NAME_LEN_MAX {
        "is too long; a header's name has at most 128 characters"
    } else {
        return Some(lower);
    };
    node.report(report, format!("{} {problem}", quoted(name)));
    None
}
