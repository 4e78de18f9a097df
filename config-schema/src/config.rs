//! The whole config.

use crate::errors::{ConfigErrors, Report};
use crate::json;
use crate::names::Names;
use crate::reader::{Node, quoted};
use crate::response::Response;
use crate::rule::Rule;
use crate::table::Table;

/// At most this many rules in one config.
pub const RULES_MAX: usize = 10_000;

const NAMESPACE_LEN_MAX: usize = 64;
const FIELDS: &[&str] = &["$schema", "namespace", "table", "response", "rules"];

/// Rate limits of a proxy: which requests are counted, by what, and how many are let through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(deny_unknown_fields, title = "Tidegate config")
)]
pub struct Config {
    /// Configs with one namespace share the counters of rules with one name. Default: the name of the plugin
    /// that holds this config.
    #[cfg_attr(
        feature = "schema",
        schemars(default, with = "String", regex(pattern = r"^[A-Za-z0-9._-]{1,64}$"))
    )]
    pub namespace: Option<String>,
    /// The store of counters in the proxy's memory.
    #[cfg_attr(feature = "schema", schemars(default = "Option::<Table>::default", with = "Table"))]
    pub table: Table,
    /// What the client sees of its limits.
    #[cfg_attr(feature = "schema", schemars(default = "Option::<Response>::default", with = "Response"))]
    pub response: Response,
    /// The rules. Every rule that matches a request applies to it.
    #[cfg_attr(feature = "schema", schemars(length(max = RULES_MAX)))]
    pub rules: Vec<Rule>,
}

impl Config {
    /// Reads a config from JSON text and reports all that is wrong with it.
    pub fn from_json(text: &[u8]) -> Result<Self, ConfigErrors> {
        let tree = json::parse(text)?;
        let mut report = Report::default();
        let config = Self::read(&Node::root(&tree), &mut report);
        report.finish(config)
    }

    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let schema = object.optional("$schema", "", report, Node::text);
        let namespace =
            object.optional("namespace", None, report, |node, report| read_namespace(node, report).map(Some));
        let table = object.optional("table", Table::default(), report, Table::read);
        let response = object.optional("response", Response::default(), report, Response::read);
        let rules = object.required("rules", "give a list of rules; it may be empty", report, read_rules);
        schema?;
        Some(Self { namespace: namespace?, table: table?, response: response?, rules: rules? })
    }
}

fn read_namespace(node: &Node, report: &mut Report) -> Option<String> {
    let text = node.text(report)?;
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=NAMESPACE_LEN_MAX).contains(&text.len()) && text.bytes().all(is_fine) {
        return Some(text.to_owned());
    }
    let advice = "1 to 64 letters, digits, \".\", \"_\" or \"-\"";
    node.report(report, format!("{} is not a namespace; write {advice}", quoted(text)));
    None
}

fn read_rules(node: &Node, report: &mut Report) -> Option<Vec<Rule>> {
    let nodes = node.list(0..=RULES_MAX, report)?;
    let mut names = Names::default();
    let read = nodes.iter().enumerate().map(|(index, node)| Rule::read(node, index, &mut names, report));
    // All are read before the first failure counts.
    let read: Vec<Option<Rule>> = read.collect();
    read.into_iter().collect()
}
