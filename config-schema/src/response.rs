//! What the client sees.

use crate::errors::Report;
use crate::reader::{Choice, Node};

const FIELDS: &[&str] = &["headers"];

/// What the client sees of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Response {
    /// Which headers tell clients about their limits, on allowed and on denied requests.
    #[cfg_attr(feature = "schema", schemars(default, extend("default" = "none")))]
    pub headers: HeaderFamily,
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

impl Choice for HeaderFamily {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("ratelimit", Self::RateLimit),
        ("x-ratelimit", Self::XRateLimit),
        ("both", Self::Both),
    ];
}

impl Response {
    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let headers = object.optional("headers", HeaderFamily::default(), report, Node::choice)?;
        Some(Self { headers })
    }
}
