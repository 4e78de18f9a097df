//! Who is counted: the parts of a rule's key.

use crate::errors::Report;
use crate::header_name;
use crate::json::Json;
use crate::json_text::Fields;
use crate::matcher::{Match, read_parameter_name};
use crate::path_match::PathMatch;
use crate::place::quoted;
use crate::reader::{Choice, Node, Object, word_of};
use crate::template::is_segment_name;
use crate::text::is_on_a_line;

/// At most this many parts in one key.
pub const KEY_PARTS_MAX: usize = 8;
/// The name under which the proxy keeps a token's payload, if a key does not say.
pub const JWT_PAYLOAD_DEFAULT: &str = "jwt_payload";
/// At most this many steps to a claim.
pub const CLAIM_STEPS_MAX: usize = 8;

pub(crate) const TEXT_LEN_MAX: usize = 256;
const OBJECT_FIELDS: &[&str] =
    &["header", "path_segment", "query", "cookie", "jwt", "payload", "constant", "lowercase"];
const SOURCE_FIELDS: &[&str] = &["header", "path_segment", "query", "cookie", "jwt", "constant"];

/// One part of a key. Requests whose parts are all equal are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Where its value comes from.
    pub source: KeySource,
    /// Whether capital letters (of ASCII) count as small ones.
    pub lowercase: bool,
}

/// Where the value of a key's part comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The network that the client's address lies in.
    ClientIp,
    /// The URI of the client's certificate.
    MtlsUriSan,
    /// The name of the route.
    Route,
    /// The host that is asked for.
    Host,
    /// The method.
    Method,
    /// A request header, by its name in lower case.
    Header(String),
    /// A segment of the path, by its name in the rule's template.
    PathSegment(String),
    /// A parameter of the query.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// A claim of a verified token.
    Jwt(Box<JwtClaim>),
    /// Always the same.
    Constant(String),
}

/// A claim and where to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtClaim {
    /// The name under which the proxy keeps the token's payload.
    pub payload: String,
    /// The way to the claim, from the outside in.
    pub path: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    ClientIp,
    MtlsUriSan,
    Route,
    Host,
    Method,
}

impl Choice for Word {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("client_ip", Self::ClientIp),
        ("mtls_uri_san", Self::MtlsUriSan),
        ("route", Self::Route),
        ("host", Self::Host),
        ("method", Self::Method),
    ];
}

impl KeySource {
    /// Whether a client cannot make up as many values as it likes.
    pub(crate) fn is_fixed(&self) -> bool {
        match self {
            Self::ClientIp | Self::MtlsUriSan | Self::Route | Self::Jwt(_) | Self::Constant(_) => true,
            Self::Host
            | Self::Method
            | Self::Header(_)
            | Self::PathSegment(_)
            | Self::Query(_)
            | Self::Cookie(_) => false,
        }
    }
}

impl From<KeySource> for KeyPart {
    fn from(source: KeySource) -> Self {
        Self { source, lowercase: false }
    }
}

impl KeyPart {
    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        const EXPECTED: &str = r#""client_ip" or an object such as {"header": "x-api-key"}"#;
        if node.is_object() {
            return read_object(node, report);
        }
        if !node.is_text() {
            node.wrong_type(EXPECTED, report);
            return None;
        }
        let text = node.text(report)?;
        if let Some((_, word)) = Word::CHOICES.iter().find(|(word, _)| *word == text) {
            let source = match word {
                Word::ClientIp => KeySource::ClientIp,
                Word::MtlsUriSan => KeySource::MtlsUriSan,
                Word::Route => KeySource::Route,
                Word::Host => KeySource::Host,
                Word::Method => KeySource::Method,
            };
            return Some(source.into());
        }
        let others = r#""mtls_uri_san", "route", "host", "method""#;
        node.report(report, format!("{} is not a key; write {EXPECTED} (or {others})", quoted(text)));
        None
    }

    pub(crate) fn json(&self) -> Json {
        let mut fields = Fields::default();
        match &self.source {
            KeySource::ClientIp => return word_of(Word::ClientIp).into(),
            KeySource::MtlsUriSan => return word_of(Word::MtlsUriSan).into(),
            KeySource::Route => return word_of(Word::Route).into(),
            KeySource::Host => return word_of(Word::Host).into(),
            KeySource::Method => return word_of(Word::Method).into(),
            KeySource::Header(name) => fields.put("header", name.as_str()),
            KeySource::PathSegment(name) => fields.put("path_segment", name.as_str()),
            KeySource::Query(name) => fields.put("query", name.as_str()),
            KeySource::Cookie(name) => fields.put("cookie", name.as_str()),
            KeySource::Jwt(claim) => {
                fields.put("jwt", claim.path_json());
                let payload = claim.payload.as_str();
                fields.put_if(payload != JWT_PAYLOAD_DEFAULT, "payload", || payload.into());
            }
            KeySource::Constant(text) => fields.put("constant", text.as_str()),
        }
        fields.put_if(self.lowercase, "lowercase", || true.into());
        fields.into()
    }
}

impl JwtClaim {
    fn path_json(&self) -> Json {
        let is_plain = self.path.iter().all(|step| !step.contains('.'));
        if is_plain {
            self.path.join(".").into()
        } else {
            self.path.iter().map(|step| step.as_str().into()).collect::<Vec<Json>>().into()
        }
    }
}

pub(crate) fn read_key(node: &Node, report: &mut Report) -> Option<Vec<KeyPart>> {
    let nodes = node.list(1..=KEY_PARTS_MAX, report)?;
    let read: Vec<Option<KeyPart>> = nodes.iter().map(|node| KeyPart::read(node, report)).collect();
    for (index, (node, part)) in nodes.iter().zip(&read).enumerate() {
        if part.is_some() && read.iter().take(index).any(|earlier| earlier == part) {
            node.report(report, "is in this key already; leave it out");
        }
    }
    read.into_iter().collect()
}

/// A key can name only segments that every template of its rule has.
pub(crate) fn check_segments(key: &[KeyPart], matches: &Match, node: &Node, report: &mut Report) {
    let has_name = |path: &PathMatch, name: &str| match path {
        PathMatch::Template(template) => template.has_name(name),
        PathMatch::Exact(_) | PathMatch::Prefix(_) => false,
    };
    for part in key {
        if let KeySource::PathSegment(name) = &part.source
            && (matches.paths.is_empty() || !matches.paths.iter().all(|path| has_name(path, name)))
        {
            let advice = format!("write \"path_template\" in \"match\" with {{{name}}} in each of its paths");
            node.report(
                report,
                format!("names the path segment {}, which is not there; {advice}", quoted(name)),
            );
        }
    }
}

fn read_object(node: &Node, report: &mut Report) -> Option<KeyPart> {
    let object = node.object(OBJECT_FIELDS, report)?;
    let given: Vec<&str> = SOURCE_FIELDS.iter().copied().filter(|name| object.get(name).is_some()).collect();
    let [field] = given.as_slice() else {
        let sources = r#""header", "path_segment", "query", "cookie", "jwt" and "constant""#;
        node.report(
            report,
            format!("must name exactly one of {sources}, such as {{\"header\": \"x-api-key\"}}"),
        );
        return None;
    };
    let lowercase = object.optional("lowercase", false, report, Node::boolean);
    if let (Some(node), false) = (object.get("payload"), *field == "jwt") {
        node.report(report, "belongs to \"jwt\" only; leave it out");
    }
    if let (Some(node), true) = (object.get("lowercase"), *field == "constant") {
        node.report(report, "does not belong to \"constant\"; leave it out");
    }
    let source = read_source(field, &object, report);
    Some(KeyPart { source: source?, lowercase: lowercase? })
}

fn read_source(field: &str, object: &Object, report: &mut Report) -> Option<KeySource> {
    let node = object.get(field)?;
    match field {
        "header" => header_name::read(&node, report).map(KeySource::Header),
        "path_segment" => read_segment_name(&node, report).map(KeySource::PathSegment),
        "query" => read_parameter_name(node.text(report)?, &node, report).map(KeySource::Query),
        "cookie" => read_cookie_name(&node, report).map(KeySource::Cookie),
        "constant" => {
            let what = "a constant; write 1 to 256 characters, none of them a control character";
            node.text_of(1..=TEXT_LEN_MAX, is_on_a_line, what, report)
                .map(|text| KeySource::Constant(text.to_owned()))
        }
        _ => read_jwt(&node, object, report).map(|claim| KeySource::Jwt(Box::new(claim))),
    }
}

fn read_segment_name(node: &Node, report: &mut Report) -> Option<String> {
    let text = node.text(report)?;
    if is_segment_name(text) {
        return Some(text.to_owned());
    }
    let advice = "write a small letter, then up to 63 small letters, digits or \"_\"";
    node.report(report, format!("{} is not the name of a segment; {advice}", quoted(text)));
    None
}

fn read_cookie_name(node: &Node, report: &mut Report) -> Option<String> {
    let what = "the name of a cookie; write 1 to 256 letters, digits and signs such as \"-\" or \"_\"";
    node.text_of(1..=TEXT_LEN_MAX, crate::text::is_token, what, report).map(str::to_owned)
}

fn read_jwt(node: &Node, object: &Object, report: &mut Report) -> Option<JwtClaim> {
    let what = "the name of a payload; write 1 to 256 characters, none of them a control character";
    let payload = object.optional("payload", JWT_PAYLOAD_DEFAULT, report, |node, report| {
        node.text_of(1..=TEXT_LEN_MAX, is_on_a_line, what, report)
    });
    let path = if node.is_text() {
        let text = node.text(report)?;
        let steps: Vec<String> = text.split('.').map(str::to_owned).collect();
        let is_fine = |step: &String| {
            (1..=TEXT_LEN_MAX).contains(&step.chars().count()) && step.chars().all(is_on_a_line)
        };
        if steps.len() > CLAIM_STEPS_MAX || !steps.iter().all(is_fine) {
            let advice = "write its name, such as \"org_id\" or \"realm.org\", or a list of the steps to it";
            node.report(report, format!("{} is not a claim; {advice}", quoted(text)));
            return None;
        }
        Some(steps)
    } else if node.is_list() {
        let nodes = node.list(1..=CLAIM_STEPS_MAX, report)?;
        let what = "a step to a claim; write 1 to 256 characters, none of them a control character";
        let step = |node: &Node, report: &mut Report| {
            node.text_of(1..=TEXT_LEN_MAX, is_on_a_line, what, report).map(str::to_owned)
        };
        let steps: Vec<Option<String>> = nodes.iter().map(|node| step(node, report)).collect();
        steps.into_iter().collect()
    } else {
        node.wrong_type("a string or a list of strings", report);
        None
    };
    Some(JwtClaim { payload: payload?.to_owned(), path: path? })
}
