//! The counter service that global limits are kept by.

use std::fmt;

use crate::config::read_namespace;
use crate::duration;
use crate::errors::Report;
use crate::json::Json;
use crate::json_text::Fields;
use crate::reader::Node;
use crate::text::is_visible;

/// How long the counter may take, if the config does not say.
pub const TIMEOUT_MS_DEFAULT: u64 = 50;

pub(crate) const TIMEOUT_MS_MIN: u64 = 1;
pub(crate) const TIMEOUT_MS_MAX: u64 = 10_000;
pub(crate) const CLUSTER_LEN_MAX: usize = 256;
pub(crate) const TOKEN_LEN_MAX: usize = 1_024;
const FIELDS: &[&str] = &["cluster", "authority", "timeout", "token", "namespace"];

/// Where the counter is and how to speak to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The proxy's name for it: a cluster of Envoy, `host:port` in Kong.
    pub cluster: String,
    /// The authority of calls to it; `None` is the cluster's name.
    pub authority: Option<String>,
    /// How long it may take.
    pub timeout_ms: u64,
    /// What proves that the proxy may ask.
    pub token: Option<Token>,
    /// What keeps its counters apart from those of others; `None` is the config's namespace.
    pub namespace: Option<String>,
}

/// A secret: shown by nothing but [`Token::reveal`] and the config that it came from.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Counter {
    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let advice = "name the cluster that the counter is reached by";
        let cluster = object.required("cluster", advice, report, |node, report| {
            let what =
                "the name of a cluster; write 1 to 256 letters, digits and signs of ASCII without spaces";
            node.text_of(1..=CLUSTER_LEN_MAX, is_visible, what, report)
        });
        let authority = object.maybe("authority", report, |node, report| {
            let what = "an authority; write one such as \"counter:8080\"";
            node.text_of(1..=CLUSTER_LEN_MAX, is_visible, what, report)
        });
        let timeout_ms = object.optional("timeout", TIMEOUT_MS_DEFAULT, report, |node, report| {
            duration::read(node, TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX, report)
        });
        let token = object.maybe("token", report, read_token);
        let namespace = object.maybe("namespace", report, read_namespace);
        Some(Self {
            cluster: cluster?.to_owned(),
            authority: authority?.map(str::to_owned),
            timeout_ms: timeout_ms?,
            token: token?,
            namespace: namespace?,
        })
    }

    pub(crate) fn json(&self) -> Json {
        let mut fields = Fields::default();
        fields.put("cluster", self.cluster.as_str());
        fields.put_some("authority", self.authority.as_deref());
        let timeout = || duration::shortest_text(self.timeout_ms).into();
        fields.put_if(self.timeout_ms != TIMEOUT_MS_DEFAULT, "timeout", timeout);
        fields.put_some("token", self.token.as_ref().map(Token::reveal));
        fields.put_some("namespace", self.namespace.as_deref());
        fields.into()
    }
}

/// A token's text is never part of a message.
fn read_token(node: &Node, report: &mut Report) -> Option<Token> {
    let text = node.text(report)?;
    if (1..=TOKEN_LEN_MAX).contains(&text.len()) && text.chars().all(is_visible) {
        return Some(Token(text.to_owned()));
    }
    node.report(report, "is not a token; write 1 to 1024 letters, digits and signs of ASCII without spaces");
    None
}
