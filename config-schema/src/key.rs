//! Who is counted: the parts of a rule's key.

use crate::errors::Report;
use crate::reader::{Node, quoted};

/// At most this many parts in one key.
pub const KEY_PARTS_MAX: usize = 8;

const HEADER_NAME_LEN_MAX: usize = 128;
const FIELDS: &[&str] = &["header"];

/// One part of a key. Requests whose parts are all equal are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum KeyPart {
    /// The client's address; of an IPv6 address the first 64 bits, which are what one client has.
    ClientIp,
    /// The value of a request header, by its name. A header that is missing, empty or sent more than once
    /// counts as missing, and all requests without it are counted together.
    Header(
        /// The name of the header; small and capital letters mean the same.
        #[cfg_attr(
            feature = "schema",
            schemars(length(min = 1, max = HEADER_NAME_LEN_MAX), regex(pattern = HEADER_NAME_PATTERN))
        )]
        String,
    ),
}

#[cfg(feature = "schema")]
const HEADER_NAME_PATTERN: &str = "^[0-9A-Za-z!#$%&'*+.^_`|~-]+$";

pub(crate) fn read_key(node: &Node, report: &mut Report) -> Option<Vec<KeyPart>> {
    let nodes = node.list(1..=KEY_PARTS_MAX, report)?;
    let read: Vec<Option<KeyPart>> = nodes.iter().map(|node| read_part(node, report)).collect();
    for (index, (node, part)) in nodes.iter().zip(&read).enumerate() {
        if part.is_some() && read.iter().take(index).any(|earlier| earlier == part) {
            node.report(report, "is in this key already; leave it out");
        }
    }
    read.into_iter().collect()
}

fn read_part(node: &Node, report: &mut Report) -> Option<KeyPart> {
    const EXPECTED: &str = r#""client_ip" or an object such as {"header": "x-api-key"}"#;
    if node.is_object() {
        let object = node.object(FIELDS, report)?;
        let advice = r#"name the header that is the key, such as {"header": "x-api-key"}"#;
        return object.required("header", advice, report, read_header_name).map(KeyPart::Header);
    }
    if !node.is_text() {
        node.wrong_type(EXPECTED, report);
        return None;
    }
    let text = node.text(report)?;
    if text == "client_ip" {
        return Some(KeyPart::ClientIp);
    }
    node.report(report, format!("{} is not a key; write {EXPECTED}", quoted(text)));
    None
}

/// A header's name in lower case, as proxies give it out.
fn read_header_name(node: &Node, report: &mut Report) -> Option<String> {
    let name = node.text(report)?;
    let is_token = !name.is_empty() && name.bytes().all(is_token_byte);
    let problem = if name.starts_with(':') {
        "is a pseudo header and cannot be a key; name an ordinary request header"
    } else if name.eq_ignore_ascii_case("host") {
        "is kept outside the headers by the proxy and would always be missing; name another header"
    } else if !is_token {
        "is not the name of a header; use letters, digits and \"-\", such as \"x-api-key\""
    } else if name.len() > HEADER_NAME_LEN_MAX {
        "is too long; a header's name has at most 128 characters"
    } else {
        return Some(name.to_ascii_lowercase());
    };
    node.report(report, format!("{} {problem}", quoted(name)));
    None
}

/// What RFC 9110 calls `tchar`.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
