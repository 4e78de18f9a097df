//! Which characters a text of the config may have.

/// Letters, digits, `.`, `_` and `-`.
pub(crate) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// Anything that can stand on one line.
pub(crate) fn is_on_a_line(c: char) -> bool {
    !c.is_control()
}

/// What can stand in the value of a header: letters, digits, signs and spaces of ASCII.
pub(crate) fn is_header_text(c: char) -> bool {
    matches!(c, ' '..='~')
}

/// The same without spaces.
pub(crate) fn is_visible(c: char) -> bool {
    c.is_ascii_graphic()
}

/// What RFC 9110 calls `tchar`: the letters of a header's name.
pub(crate) fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}
