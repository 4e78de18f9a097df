//! Which requests a rule is about.

use crate::errors::Report;
use crate::path::{self, normalise};
use crate::reader::{Node, quoted};

/// At most this many methods in one match.
pub const METHODS_MAX: usize = 16;

const METHOD_LEN_MAX: usize = 32;
const PATH_LEN_MAX: usize = 4_096;
const FIELDS: &[&str] = &["path", "path_prefix", "method"];

/// Which requests a rule is about. All that is given must hold; the default matches every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// What the normalised path must be; `None` is any.
    pub path: Option<PathMatch>,
    /// The methods, any of which will do; empty is any.
    pub methods: Vec<String>,
}

/// What a normalised path must be. The text itself is in normal form, or it could never match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Equal to this.
    Exact(String),
    /// Begins with this, letter by letter: `/api` also matches `/apiary`.
    Prefix(String),
}

impl Match {
    /// Whether a request is meant; `normalised_path` is what [`normalise`] gives.
    pub fn matches(&self, method: &[u8], normalised_path: &[u8]) -> bool {
        let path_fits = match &self.path {
            None => true,
            Some(PathMatch::Exact(path)) => path.as_bytes() == normalised_path,
            Some(PathMatch::Prefix(prefix)) => normalised_path.starts_with(prefix.as_bytes()),
        };
        path_fits && (self.methods.is_empty() || self.methods.iter().any(|one| one.as_bytes() == method))
    }

    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let exact = object.optional("path", None, report, |node, report| {
            read_path(node, "", report).map(|path| Some(PathMatch::Exact(path)))
        });
        let prefix = object.optional("path_prefix", None, report, |node, report| {
            read_path(node, ANY_TAIL, report).map(|path| Some(PathMatch::Prefix(path)))
        });
        let methods = object.optional("method", Vec::new(), report, read_methods);
        if let (Some(_), Some(prefix)) = (object.get("path"), object.get("path_prefix")) {
            prefix.report(report, "cannot stand beside \"path\"; keep one of the two");
        }
        Some(Self { path: exact?.or(prefix?), methods: methods? })
    }
}

/// Stands for what may follow a prefix, so that `/.` is not taken for the dot segment that it may not become.
/// It is no hexadecimal digit and completes no percent-encoding.
const ANY_TAIL: &str = "x";

/// A path that is in normal form, at least once `tail` follows it.
///
/// One that is not is refused rather than normalised: what the config says is then what is compared.
fn read_path(node: &Node, tail: &str, report: &mut Report) -> Option<String> {
    let text = node.text(report)?;
    if !text.starts_with('/') {
        node.report(report, format!("{} must begin with \"/\"", quoted(text)));
        return None;
    }
    if text.contains(path::ENDS) {
        node.report(
            report,
            format!("{} must end before \"?\" or \"#\": only the path is compared", quoted(text)),
        );
        return None;
    }
    if text.chars().count() > PATH_LEN_MAX {
        node.report(report, format!("is too long; a path has at most {PATH_LEN_MAX} characters"));
        return None;
    }
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

fn read_methods(node: &Node, report: &mut Report) -> Option<Vec<String>> {
    if node.is_text() {
        return read_method(node, report).map(|method| vec![method]);
    }
    if !node.is_list() {
        node.wrong_type("a string or a list of strings", report);
        return None;
    }
    let nodes = node.list(1..=METHODS_MAX, report)?;
    let methods: Vec<Option<String>> = nodes.iter().map(|node| read_method(node, report)).collect();
    for (index, (node, method)) in nodes.iter().zip(&methods).enumerate() {
        if method.is_some() && methods.iter().take(index).any(|earlier| earlier == method) {
            node.report(report, "is in this list already; leave it out");
        }
    }
    methods.into_iter().collect()
}

fn read_method(node: &Node, report: &mut Report) -> Option<String> {
    let text = node.text(report)?;
    let is_fine =
        |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    let starts_well = text.starts_with(|c: char| c.is_ascii_uppercase());
    if starts_well && text.len() <= METHOD_LEN_MAX && text.bytes().all(is_fine) {
        return Some(text.to_owned());
    }
    node.report(report, format!("{} is not a method; write it in capitals, such as \"POST\"", quoted(text)));
    None
}

/// How a match is written.
#[cfg(feature = "schema")]
pub(crate) mod form {
    use super::{METHODS_MAX, PATH_LEN_MAX};

    const PATH_PATTERN: &str = "^/[^?#]*$";
    const METHOD_PATTERN: &str = "^[A-Z][A-Z0-9_-]{0,31}$";

    /// Which requests a rule is about. All that is given must hold.
    #[derive(schemars::JsonSchema)]
    #[schemars(deny_unknown_fields, rename = "Match")]
    #[schemars(extend("not" = { "required": ["path", "path_prefix"] }))]
    #[expect(dead_code, reason = "a form is only described, never built")]
    pub(crate) struct MatchForm {
        /// The path must be equal to this. Paths are compared without query and in normal form: dot segments
        /// and double slashes resolved, needless percent-encoding decoded; this one must be in that form too.
        #[schemars(default, with = "String", length(max = PATH_LEN_MAX), regex(pattern = PATH_PATTERN))]
        path: Option<String>,
        /// The path must begin with this, letter by letter: `/api` also matches `/apiary`, `/api/` does not.
        #[schemars(default, with = "String", length(max = PATH_LEN_MAX), regex(pattern = PATH_PATTERN))]
        path_prefix: Option<String>,
        /// The method, or a list of methods of which any will do; in capitals. Default: any method.
        #[schemars(default, with = "MethodForm")]
        method: Option<MethodForm>,
    }

    /// One method or several.
    #[derive(schemars::JsonSchema)]
    #[schemars(untagged, rename = "Method")]
    #[expect(dead_code, reason = "a form is only described, never built")]
    pub(crate) enum MethodForm {
        /// One method.
        One(#[schemars(regex(pattern = METHOD_PATTERN))] String),
        /// Any of several methods.
        Several(
            #[schemars(length(min = 1, max = METHODS_MAX), extend("uniqueItems" = true))]
            #[schemars(inner(regex(pattern = METHOD_PATTERN)))]
            Vec<String>,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn read(text: &str) -> Result<Match, String> {
        let tree = json::parse(text.as_bytes()).unwrap();
        let mut report = Report::default();
        let read = Match::read(&Node::root(&tree), &mut report);
        report.finish(read).map_err(|errors| errors.to_string())
    }

    fn matches(config: &str, method: &str, raw_path: &str) -> bool {
        read(config).unwrap().matches(method.as_bytes(), &normalise(raw_path.as_bytes()))
    }

    #[test]
    fn an_empty_match_takes_every_request() {
        assert!(matches("{}", "GET", "/"));
        assert!(matches("{}", "", ""));
    }

    #[test]
    fn a_path_is_compared_in_its_normal_form() {
        let login = r#"{"path": "/login"}"#;
        for raw in
            ["/login", "//login", "/%6cogin", "/x/../login", "/login?next=/", "/%2e/login", "http://h/login"]
        {
            assert!(matches(login, "GET", raw), "{raw}");
        }
        for raw in ["/", "/login/", "/Login", "/login2", "/x/login", "/logi%6e/x"] {
            assert!(!matches(login, "GET", raw), "{raw}");
        }
    }

    #[test]
    fn a_prefix_is_compared_letter_by_letter() {
        let api = r#"{"path_prefix": "/api/"}"#;
        for raw in ["/api/", "/api/v1", "/api//v1", "/x/../api/v1", "/%61pi/v1"] {
            assert!(matches(api, "GET", raw), "{raw}");
        }
        for raw in ["/api", "/apiary", "/api/../x", "/"] {
            assert!(!matches(api, "GET", raw), "{raw}");
        }
        assert!(matches(r#"{"path_prefix": "/api"}"#, "GET", "/apiary"));
        assert!(matches(r#"{"path_prefix": "/."}"#, "GET", "/.git/config"));
        assert!(!matches(r#"{"path_prefix": "/."}"#, "GET", "/./login"));
    }

    #[test]
    fn methods_are_any_of() {
        assert!(matches(r#"{"method": "POST"}"#, "POST", "/"));
        assert!(!matches(r#"{"method": "POST"}"#, "GET", "/"));
        assert!(!matches(r#"{"method": "POST"}"#, "post", "/"));
        for (method, expected) in [("GET", true), ("M-SEARCH", true), ("PUT", false), ("", false)] {
            assert_eq!(matches(r#"{"method": ["GET", "M-SEARCH"]}"#, method, "/"), expected, "{method}");
        }
    }

    #[test]
    fn path_and_method_must_both_hold() {
        let config = r#"{"path": "/login", "method": "POST"}"#;
        assert!(matches(config, "POST", "/login"));
        assert!(!matches(config, "GET", "/login"));
        assert!(!matches(config, "POST", "/logout"));
    }

    #[test]
    fn a_path_that_could_never_match_is_refused_with_its_normal_form() {
        let cases = [
            ("path", "//login", "/login"),
            ("path", "/%6cogin", "/login"),
            ("path", "/a/.", "/a/"),
            ("path", "/a%2fb", "/a%2Fb"),
            ("path", "/caf\u{e9}", "/caf%C3%A9"),
            ("path_prefix", "/a/../b/", "/b/"),
            ("path_prefix", "/100%", "/100%25"),
            ("path_prefix", "/%4", "/%254"),
        ];
        for (field, text, normal) in cases {
            let message = read(&format!(r#"{{"{field}": "{text}"}}"#)).unwrap_err();
            assert!(message.ends_with(&format!("would never match; write \"{normal}\"")), "{message}");
            assert!(read(&format!(r#"{{"{field}": "{normal}"}}"#)).is_ok(), "{normal}");
        }
    }

    #[test]
    fn a_path_is_measured_in_characters_as_by_the_schema() {
        let path = |len: usize, letter: &str| read(&format!(r#"{{"path": "/{}"}}"#, letter.repeat(len - 1)));
        assert!(path(PATH_LEN_MAX, "a").is_ok());
        assert!(path(PATH_LEN_MAX + 1, "a").unwrap_err().contains("is too long"));
        assert!(path(PATH_LEN_MAX, "é").unwrap_err().contains("is not in normal form"));
    }
}
