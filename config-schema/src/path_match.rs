//! What a path must be.

use crate::errors::Report;
use crate::path::{self, normalise};
use crate::place::quoted;
use crate::reader::Node;
use crate::template::Template;

pub(crate) const PATH_LEN_MAX: usize = 4_096;

/// What a normalised path must be. The text itself is in normal form, or it could never match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Equal to this.
    Exact(String),
    /// Begins with this, letter by letter: `/api` also matches `/apiary`.
    Prefix(String),
    /// Fits this template.
    Template(Template),
}

/// The three ways to write one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    Exact,
    Prefix,
    Template,
}

impl PathKind {
    pub(crate) const ALL: [Self; 3] = [Self::Exact, Self::Prefix, Self::Template];

    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Exact => "path",
            Self::Prefix => "path_prefix",
            Self::Template => "path_template",
        }
    }
}

impl PathMatch {
    pub(crate) fn matches(&self, normal_path: &[u8]) -> bool {
        match self {
            Self::Exact(path) => path.as_bytes() == normal_path,
            Self::Prefix(prefix) => normal_path.starts_with(prefix.as_bytes()),
            Self::Template(template) => template.matches(normal_path),
        }
    }

    pub(crate) fn kind(&self) -> PathKind {
        match self {
            Self::Exact(_) => PathKind::Exact,
            Self::Prefix(_) => PathKind::Prefix,
            Self::Template(_) => PathKind::Template,
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text.clone(),
            Self::Template(template) => template.text(),
        }
    }

    pub(crate) fn read(kind: PathKind, node: &Node, report: &mut Report) -> Option<Self> {
        let text = read_path(node, report)?;
        match kind {
            PathKind::Exact => normal_text(text, "", node, report).map(Self::Exact),
            PathKind::Prefix => normal_text(text, ANY_TAIL, node, report).map(Self::Prefix),
            PathKind::Template => Template::read(text, node, report).map(Self::Template),
        }
    }
}

/// Stands for what may follow a prefix, so that `/.` is not taken for the dot segment that it may not become.
/// It is no hexadecimal digit and completes no percent-encoding.
const ANY_TAIL: &str = "x";

fn read_path<'a>(node: &Node<'a>, report: &mut Report) -> Option<&'a str> {
    let text = node.text(report)?;
    let problem = if !text.starts_with('/') {
        format!("{} must begin with \"/\"", quoted(text))
    } else if text.contains(path::ENDS) {
        format!("{} must end before \"?\" or \"#\": only the path is compared", quoted(text))
    } else if text.chars().count() > PATH_LEN_MAX {
        format!("is too long; a path has at most {PATH_LEN_MAX} characters")
    } else {
        return Some(text);
    };
    node.report(report, problem);
    None
}

/// A path that is in normal form, at least once `tail` follows it.
///
/// One that is not is refused rather than normalised: what the config says is then what is compared.
fn normal_text(text: &str, tail: &str, node: &Node, report: &mut Report) -> Option<String> {
    let longer = format!("{text}{tail}");
    let normal = normalise(longer.as_bytes());
    if *normal == *longer.as_bytes() {
        return Some(text.to_owned());
    }
    let normal = String::from_utf8_lossy(&normal);
    let normal = normal.strip_suffix(tail).unwrap_or(&normal);
    node.report(
        report,
        format!("{} is not in normal form and would never match; write {}", quoted(text), quoted(normal)),
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn read(kind: PathKind, text: &str) -> Result<PathMatch, String> {
        let tree = json::parse(format!("\"{text}\"").as_bytes()).unwrap();
        let mut report = Report::default();
        let read = PathMatch::read(kind, &Node::root(&tree), &mut report);
        report.finish(read).map_err(|errors| errors.to_string())
    }

    fn matches(kind: PathKind, text: &str, raw_path: &str) -> bool {
        read(kind, text).unwrap().matches(&normalise(raw_path.as_bytes()))
    }

    #[test]
    fn a_path_is_compared_in_its_normal_form() {
        for raw in
            ["/login", "//login", "/%6cogin", "/x/../login", "/login?next=/", "/%2e/login", "http://h/login"]
        {
            assert!(matches(PathKind::Exact, "/login", raw), "{raw}");
            assert!(matches(PathKind::Template, "/login", raw), "{raw}");
        }
        for raw in ["/", "/login/", "/Login", "/login2", "/x/login", "/logi%6e/x"] {
            assert!(!matches(PathKind::Exact, "/login", raw), "{raw}");
            assert!(!matches(PathKind::Template, "/login", raw), "{raw}");
        }
    }

    #[test]
    fn a_prefix_is_compared_letter_by_letter() {
        for raw in ["/api/", "/api/v1", "/api//v1", "/x/../api/v1", "/%61pi/v1"] {
            assert!(matches(PathKind::Prefix, "/api/", raw), "{raw}");
        }
        for raw in ["/api", "/apiary", "/api/../x", "/"] {
            assert!(!matches(PathKind::Prefix, "/api/", raw), "{raw}");
        }
        assert!(matches(PathKind::Prefix, "/api", "/apiary"));
        assert!(matches(PathKind::Prefix, "/.", "/.git/config"));
        assert!(!matches(PathKind::Prefix, "/.", "/./login"));
    }

    #[test]
    fn a_path_that_could_never_match_is_refused_with_its_normal_form() {
        let cases = [
            (PathKind::Exact, "//login", "/login"),
            (PathKind::Exact, "/%6cogin", "/login"),
            (PathKind::Exact, "/a/.", "/a/"),
            (PathKind::Exact, "/a%2fb", "/a%2Fb"),
            (PathKind::Exact, "/caf\u{e9}", "/caf%C3%A9"),
            (PathKind::Prefix, "/a/../b/", "/b/"),
            (PathKind::Prefix, "/100%", "/100%25"),
            (PathKind::Prefix, "/%4", "/%254"),
        ];
        for (kind, text, normal) in cases {
            let message = read(kind, text).unwrap_err();
            assert!(message.ends_with(&format!("would never match; write \"{normal}\"")), "{message}");
            assert!(read(kind, normal).is_ok(), "{normal}");
        }
    }

    #[test]
    fn a_path_is_measured_in_characters_as_by_the_schema() {
        let path = |len: usize, letter: &str| read(PathKind::Exact, &format!("/{}", letter.repeat(len - 1)));
        assert!(path(PATH_LEN_MAX, "a").is_ok());
        assert!(path(PATH_LEN_MAX + 1, "a").unwrap_err().contains("is too long"));
        assert!(path(PATH_LEN_MAX, "é").unwrap_err().contains("is not in normal form"));
    }
}
