//! What the client sees.

use crate::body::Body;
use crate::errors::Report;
use crate::header_name::{self, Purpose};
use crate::json::Json;
use crate::json_text::Fields;
use crate::reader::{Choice, Node, word_of};
use crate::text::is_header_text;

/// At most this many headers of the config's own in a response.
pub const EXTRA_HEADERS_MAX: usize = 16;

pub(crate) const STATUS_MIN: u16 = 400;
pub(crate) const STATUS_MAX: u16 = 599;
pub(crate) const STATUS_DEFAULT: u16 = 429;
pub(crate) const HEADER_VALUE_LEN_MAX: usize = 1_024;
pub(crate) const CONTENT_TYPE_LEN_MAX: usize = 128;
const FIELDS: &[&str] = &["status", "headers", "body", "content_type", "extra_headers", "grpc"];

/// What the client sees of its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status of a denied request.
    pub status: u16,
    /// Which headers tell clients about their limits, on allowed and on denied requests.
    pub headers: HeaderFamily,
    /// The body of a denied request; `None` is a problem document.
    pub body: Option<Body>,
    /// The type of that body; `None` leaves it to the body.
    pub content_type: Option<String>,
    /// More headers of a denied request: names in lower case and values.
    pub extra_headers: Vec<(String, String)>,
    /// The status of a denied gRPC request.
    pub grpc: GrpcStatus,
}

/// What a rule says about its responses; what it does not say is as in the config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponsePatch {
    /// See [`Response::status`].
    pub status: Option<u16>,
    /// See [`Response::headers`].
    pub headers: Option<HeaderFamily>,
    /// See [`Response::body`].
    pub body: Option<Body>,
    /// See [`Response::content_type`].
    pub content_type: Option<String>,
    /// See [`Response::extra_headers`].
    pub extra_headers: Option<Vec<(String, String)>>,
    /// See [`Response::grpc`].
    pub grpc: Option<GrpcStatus>,
}

/// Which headers tell clients about their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum HeaderFamily {
    /// No headers.
    #[default]
    #[cfg_attr(feature = "schema", schemars(rename = "none"))]
    None,
    /// `RateLimit` and `RateLimit-Policy`, as in the IETF's draft.
    #[cfg_attr(feature = "schema", schemars(rename = "ratelimit"))]
    RateLimit,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    #[cfg_attr(feature = "schema", schemars(rename = "x-ratelimit"))]
    XRateLimit,
    /// Both families.
    #[cfg_attr(feature = "schema", schemars(rename = "both"))]
    Both,
}

/// The status of a denied gRPC request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum GrpcStatus {
    /// `RESOURCE_EXHAUSTED` (8): the client should not try again at once.
    #[default]
    ResourceExhausted,
    /// `UNAVAILABLE` (14): many clients try again by themselves.
    Unavailable,
}

impl HeaderFamily {
    /// Whether `RateLimit` and `RateLimit-Policy` are wanted.
    pub fn has_ratelimit(self) -> bool {
        matches!(self, Self::RateLimit | Self::Both)
    }

    /// Whether `X-RateLimit-…` are wanted.
    pub fn has_x_ratelimit(self) -> bool {
        matches!(self, Self::XRateLimit | Self::Both)
    }
}

impl GrpcStatus {
    /// The number of the status.
    pub fn code(self) -> u8 {
        match self {
            Self::ResourceExhausted => 8,
            Self::Unavailable => 14,
        }
    }
}

impl Choice for HeaderFamily {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("ratelimit", Self::RateLimit),
        ("x-ratelimit", Self::XRateLimit),
        ("both", Self::Both),
    ];
}

impl Choice for GrpcStatus {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("resource_exhausted", Self::ResourceExhausted), ("unavailable", Self::Unavailable)];
}

impl Default for Response {
    fn default() -> Self {
        Self {
            status: STATUS_DEFAULT,
            headers: HeaderFamily::default(),
            body: None,
            content_type: None,
            extra_headers: Vec::new(),
            grpc: GrpcStatus::default(),
        }
    }
}

impl Response {
    /// What a rule's responses are: its own fields, and for the rest those of the config.
    #[must_use]
    pub fn with(&self, patch: &ResponsePatch) -> Self {
        Self {
            status: patch.status.unwrap_or(self.status),
            headers: patch.headers.unwrap_or(self.headers),
            body: patch.body.clone().or_else(|| self.body.clone()),
            content_type: patch.content_type.clone().or_else(|| self.content_type.clone()),
            extra_headers: patch.extra_headers.clone().unwrap_or_else(|| self.extra_headers.clone()),
            grpc: patch.grpc.unwrap_or(self.grpc),
        }
    }

    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        ResponsePatch::read(node, report).map(|patch| Self::default().with(&patch))
    }

    pub(crate) fn json(&self) -> Json {
        let absent = Self::default();
        let patch = ResponsePatch {
            status: Some(self.status).filter(|status| *status != absent.status),
            headers: Some(self.headers).filter(|headers| *headers != absent.headers),
            body: self.body.clone(),
            content_type: self.content_type.clone(),
            extra_headers: Some(self.extra_headers.clone()).filter(|headers| !headers.is_empty()),
            grpc: Some(self.grpc).filter(|grpc| *grpc != absent.grpc),
        };
        patch.json()
    }
}

impl ResponsePatch {
    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let status = object.maybe("status", report, |node, report| {
            node.whole(STATUS_MIN.into()..=STATUS_MAX.into(), report)
                .and_then(|status| u16::try_from(status).ok())
        });
        let headers = object.maybe("headers", report, Node::choice);
        let body = object.maybe("body", report, Body::read);
        let content_type = object.maybe("content_type", report, read_content_type);
        let extra_headers = object.maybe("extra_headers", report, read_extra_headers);
        let grpc = object.maybe("grpc", report, Node::choice);
        Some(Self {
            status: status?,
            headers: headers?,
            body: body?,
            content_type: content_type?,
            extra_headers: extra_headers?,
            grpc: grpc?,
        })
    }

    pub(crate) fn json(&self) -> Json {
        let mut fields = Fields::default();
        fields.put_some("status", self.status.map(u64::from));
        fields.put_some("headers", self.headers.map(word_of));
        fields.put_some("body", self.body.as_ref().map(Body::text));
        fields.put_some("content_type", self.content_type.as_deref());
        fields.put_some(
            "extra_headers",
            self.extra_headers.as_ref().map(|headers| {
                let mut fields = Fields::default();
                for (name, value) in headers {
                    fields.put(name, value.as_str());
                }
                fields
            }),
        );
        fields.put_some("grpc", self.grpc.map(word_of));
        fields.into()
    }
}

fn read_content_type(node: &Node, report: &mut Report) -> Option<String> {
    let what = "a content type; write one such as \"text/plain; charset=utf-8\"";
    let text = node.text_of(1..=CONTENT_TYPE_LEN_MAX, is_header_text, what, report)?;
    let is_fine = text.split_once('/').is_some_and(|(kind, rest)| {
        let is_word = |word: &str| word.starts_with(|c: char| c.is_ascii_alphanumeric());
        is_word(kind) && is_word(rest) && !kind.contains(' ')
    });
    if is_fine {
        return Some(text.to_owned());
    }
    node.report(report, format!("{} is not {what}", crate::place::quoted(text)));
    None
}

fn read_extra_headers(node: &Node, report: &mut Report) -> Option<Vec<(String, String)>> {
    let entries = node.entries(0..=EXTRA_HEADERS_MAX, report)?;
    let mut headers: Vec<Option<(String, String)>> = Vec::with_capacity(entries.len());
    for (name, node) in &entries {
        let name = header_name::check(name, Purpose::Respond, node, report);
        let what = "the value of a header; write at most 1024 letters, digits, signs and spaces of ASCII";
        let value = node.text_of(0..=HEADER_VALUE_LEN_MAX, is_header_text, what, report);
        if name.is_some() && headers.iter().flatten().any(|(earlier, _)| Some(earlier) == name.as_ref()) {
            node.report(report, "is in this list already; leave it out");
        }
        headers.push(name.zip(value).map(|(name, value)| (name, value.to_owned())));
    }
    headers.into_iter().collect()
}
