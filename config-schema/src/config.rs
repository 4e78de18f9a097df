//! The whole config.

use crate::client_address::ClientAddress;
use crate::counter::Counter;
use crate::errors::{ConfigErrors, Report};
use crate::json::{self, Json};
use crate::json_text::Fields;
use crate::names::Names;
use crate::place::quoted;
use crate::reader::Node;
use crate::response::Response;
use crate::rule::Rule;
use crate::rule_json::Context;
use crate::table::Table;
use crate::text::{is_on_a_line, is_plain};

/// At most this many rules in one config, those of all routes included.
pub const RULES_MAX: usize = 10_000;
/// The version of the language that this crate reads.
pub const VERSION: u64 = 1;

pub(crate) const ROUTE_NAME_LEN_MAX: usize = 256;
/// The longest namespace.
pub const NAMESPACE_LEN_MAX: usize = 64;
const FIELDS: &[&str] = &[
    "$schema",
    "version",
    "enabled",
    "namespace",
    "client_ip",
    "table",
    "response",
    "counter",
    "rules",
    "routes",
    "route_metadata",
];
const ROUTE_FIELDS: &[&str] = &["rules"];

/// Rate limits of a proxy: which requests are counted, by what, and how many are let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether any rule is looked at.
    pub enabled: bool,
    /// Configs with one namespace share the counters of rules with one name; `None` is the name of the plugin.
    pub namespace: Option<String>,
    /// Where the client's address is found, and how much of it counts.
    pub client_ip: ClientAddress,
    /// The store of counters in the proxy's memory.
    pub table: Table,
    /// What the client sees of its limits.
    pub response: Response,
    /// The service that keeps global limits.
    pub counter: Option<Counter>,
    /// All rules, those of routes after the others. Every rule that matches a request applies to it.
    pub rules: Vec<Rule>,
    /// Whether rules in a route's own metadata are read.
    pub route_metadata: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: true,
            namespace: None,
            client_ip: ClientAddress::default(),
            table: Table::default(),
            response: Response::default(),
            counter: None,
            rules: Vec::new(),
            route_metadata: false,
        }
    }
}

impl Config {
    /// Reads a config from JSON text and reports all that is wrong with it.
    ///
    /// On a 64-bit machine [`RULES_MAX`] rules of ordinary size (two limits, two parts of the key, a path and methods;
    /// 200 bytes of text each) take less than 32 MiB while they are read, and less than 12 MiB afterwards together
    /// with the index of a [`crate::RuleSet`]; a test holds both. On wasm32 it is about half.
    pub fn from_json(text: &[u8]) -> Result<Self, ConfigErrors> {
        let tree = json::parse(text)?;
        let mut report = Report::default();
        let config = Self::read(&Node::root(&tree), &mut report);
        report.finish(config)
    }

    /// The config as JSON text, from which [`Config::from_json`] makes an equal one. What is as it would be anyway
    /// is left out. The counter's token is in it.
    pub fn to_json(&self) -> String {
        self.json().to_text()
    }

    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let schema = object.optional("$schema", "", report, Node::text);
        let version = object.optional("version", VERSION, report, read_version);
        let enabled = object.optional("enabled", true, report, Node::boolean);
        let namespace = object.maybe("namespace", report, read_namespace);
        let client_ip = object.optional("client_ip", ClientAddress::default(), report, ClientAddress::read);
        let table = object.optional("table", Table::default(), report, Table::read);
        let response = object.optional("response", Response::default(), report, Response::read);
        let counter = object.maybe("counter", report, Counter::read);
        let route_metadata = object.optional("route_metadata", false, report, Node::boolean);
        let mut context = Context {
            names: Names::default(),
            address: client_ip.unwrap_or_default(),
            has_counter: object.get("counter").is_some(),
        };
        let rules = match object.get("routes") {
            Some(_) => object.optional("rules", Vec::new(), report, |node, report| {
                read_rules(node, None, "rules".to_owned(), &mut context, report)
            }),
            None => {
                object.required("rules", "give a list of rules; it may be empty", report, |node, report| {
                    read_rules(node, None, "rules".to_owned(), &mut context, report)
                })
            }
        };
        let of_routes = object
            .optional("routes", Vec::new(), report, |node, report| read_routes(node, &mut context, report));
        schema?;
        version?;
        let mut rules = rules?;
        rules.append(&mut of_routes?);
        if rules.len() > RULES_MAX {
            node.report(
                report,
                format!("has {} rules in all, with those of routes; the most is {RULES_MAX}", rules.len()),
            );
        }
        rules.shrink_to_fit();
        Some(Self {
            enabled: enabled?,
            namespace: namespace?,
            client_ip: client_ip?,
            table: table?,
            response: response?,
            counter: counter?,
            rules,
            route_metadata: route_metadata?,
        })
    }

    fn json(&self) -> Json {
        let mut fields = Fields::default();
        fields.put("version", VERSION);
        fields.put_if(!self.enabled, "enabled", || false.into());
        fields.put_some("namespace", self.namespace.as_deref());
        fields.put_if(self.client_ip != ClientAddress::default(), "client_ip", || self.client_ip.json());
        fields.put_if(self.table != Table::default(), "table", || self.table.json());
        fields.put_if(self.response != Response::default(), "response", || self.response.json());
        fields.put_some("counter", self.counter.as_ref().map(Counter::json));
        fields.put_if(self.route_metadata, "route_metadata", || true.into());
        let of_route = |route: Option<&str>| {
            let rules = self.rules.iter().filter(|rule| rule.route.as_deref() == route);
            Json::from(rules.map(Rule::json).collect::<Vec<Json>>())
        };
        fields.put("rules", of_route(None));
        let mut routes = Fields::default();
        let mut last = None;
        for route in self.rules.iter().filter_map(|rule| rule.route.as_deref()) {
            if last != Some(route) {
                let mut one = Fields::default();
                one.put("rules", of_route(Some(route)));
                routes.put(route, one);
                last = Some(route);
            }
        }
        fields.put_if(!routes.is_empty(), "routes", || routes.into());
        fields.into()
    }
}

fn read_version(node: &Node, report: &mut Report) -> Option<u64> {
    if !node.is_number() {
        node.wrong_type("a number", report);
        return None;
    }
    if node.json_whole() != Some(VERSION) {
        node.report(report, format!("must be {VERSION}, the only version of this language that is known"));
        return None;
    }
    Some(VERSION)
}

pub(crate) fn is_namespace(text: &str) -> bool {
    // One that is plain has one byte for each character.
    (1..=NAMESPACE_LEN_MAX).contains(&text.len()) && text.chars().all(is_plain)
}

pub(crate) fn read_namespace(node: &Node, report: &mut Report) -> Option<String> {
    let what = "a namespace; write 1 to 64 letters, digits, \".\", \"_\" or \"-\"";
    node.text_of(1..=NAMESPACE_LEN_MAX, is_plain, what, report).map(str::to_owned)
}

/// A list of rules that stands at `place`.
pub(crate) fn read_rules(
    node: &Node,
    route: Option<&str>,
    place: String,
    context: &mut Context,
    report: &mut Report,
) -> Option<Vec<Rule>> {
    context.names.begin_list(place);
    let nodes = node.list(0..=RULES_MAX, report)?;
    let read = nodes.iter().map(|node| Rule::read(node, route, context, report));
    // All are read before the first failure counts.
    let read: Vec<Option<Rule>> = read.collect();
    read.into_iter().collect()
}

fn read_routes(node: &Node, context: &mut Context, report: &mut Report) -> Option<Vec<Rule>> {
    let entries = node.entries(0..=RULES_MAX, report)?;
    let mut all = Some(Vec::new());
    for (name, node) in &entries {
        let what = "a name; write 1 to 256 characters, none of them a control character";
        let is_name =
            (1..=ROUTE_NAME_LEN_MAX).contains(&name.chars().count()) && name.chars().all(is_on_a_line);
        if !is_name {
            node.report(report, format!("{} is not {what}", quoted(name)));
        }
        let rules = read_route(name, node, context, report);
        all = all.zip(rules.filter(|_| is_name)).map(|(mut all, mut rules)| {
            all.append(&mut rules);
            all
        });
    }
    all
}

fn read_route(name: &str, node: &Node, context: &mut Context, report: &mut Report) -> Option<Vec<Rule>> {
    let object = node.object(ROUTE_FIELDS, report)?;
    object.required("rules", "give the rules of the route", report, |node, report| {
        read_rules(node, Some(name), node.place(), context, report)
    })
}
