//! Which requests a rule is about.

use crate::conditions::{Condition, conditions_json, read_conditions};
use crate::errors::Report;
use crate::facts::Facts;
use crate::header_name::{self, Purpose};
use crate::host::HostMatch;
use crate::json::Json;
use crate::json_text::{Fields, one_or_list};
use crate::path_match::{PathKind, PathMatch};
use crate::place::quoted;
use crate::query::each_parameter;
use crate::reader::{Node, Object};
use crate::text::is_on_a_line;

/// At most this many alternatives in one field of a match.
pub const ALTERNATIVES_MAX: usize = 16;
/// At most this many headers, and as many query parameters, in one match.
pub const CONDITIONS_MAX: usize = 16;

pub(crate) const NAME_LEN_MAX: usize = 256;
const METHOD_LEN_MAX: usize = 32;
const FIELDS: &[&str] = &[
    "route",
    "virtual_host",
    "host",
    "path",
    "path_prefix",
    "path_template",
    "method",
    "headers",
    "query",
    "not",
];

/// Which requests a rule is about. All that is given must hold; of several values in one field any will do. The
/// default matches every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// The names of the route; empty is any, also one without a name.
    pub routes: Vec<String>,
    /// The names of the virtual host; empty is any.
    pub virtual_hosts: Vec<String>,
    /// The hosts; empty is any.
    pub hosts: Vec<HostMatch>,
    /// What the normalised path must be, all of one kind; empty is any.
    pub paths: Vec<PathMatch>,
    /// The methods; empty is any.
    pub methods: Vec<String>,
    /// What headers must be.
    pub headers: Vec<Condition>,
    /// What parameters of the query must be.
    pub query: Vec<Condition>,
    /// None of these may match.
    pub not: Vec<Match>,
}

impl Match {
    /// Whether a request is meant. What costs the proxy most is looked at last.
    pub fn matches(&self, facts: &Facts) -> bool {
        let any_text = |texts: &[String], value: &[u8]| texts.iter().any(|text| text.as_bytes() == value);
        let any_name =
            |names: &[String], value: Option<&[u8]>| value.is_some_and(|value| any_text(names, value));
        (self.methods.is_empty() || any_text(&self.methods, facts.method()))
            && (self.paths.is_empty() || self.paths.iter().any(|path| path.matches(facts.path())))
            && (self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(facts.host())))
            && self.headers.iter().all(|condition| header_fits(condition, facts))
            && self.query.iter().all(|condition| parameter_fits(condition, facts))
            && (self.routes.is_empty() || any_name(&self.routes, facts.route()))
            && (self.virtual_hosts.is_empty() || any_name(&self.virtual_hosts, facts.virtual_host()))
            && !self.not.iter().any(|not| not.matches(facts))
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let routes = read_texts(&object, "route", report, read_name);
        let virtual_hosts = read_texts(&object, "virtual_host", report, read_name);
        let hosts = read_texts(&object, "host", report, HostMatch::read);
        let paths = read_paths(&object, report);
        let methods = read_texts(&object, "method", report, read_method);
        let headers = object.optional("headers", Vec::new(), report, |node, report| {
            read_conditions(node, CONDITIONS_MAX, report, |name, node, report| {
                header_name::check(name, Purpose::Match, node, report)
            })
        });
        let query = object.optional("query", Vec::new(), report, |node, report| {
            read_conditions(node, CONDITIONS_MAX, report, read_parameter_name)
        });
        let not = object.optional("not", Vec::new(), report, read_not);
        Some(Self {
            routes: routes?,
            virtual_hosts: virtual_hosts?,
            hosts: hosts?,
            paths: paths?,
            methods: methods?,
            headers: headers?,
            query: query?,
            not: not?,
        })
    }

    pub(crate) fn json(&self) -> Json {
        let mut fields = Fields::default();
        let mut put =
            |name: &str, texts: Vec<Json>| fields.put_if(!texts.is_empty(), name, || one_or_list(texts));
        let all = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
        put("route", all(&self.routes));
        put("virtual_host", all(&self.virtual_hosts));
        put("host", self.hosts.iter().map(|host| host.text().into()).collect());
        if let Some(first) = self.paths.first() {
            put(first.kind().field(), self.paths.iter().map(|path| path.text().into()).collect());
        }
        put("method", all(&self.methods));
        fields.put_if(!self.headers.is_empty(), "headers", || conditions_json(&self.headers));
        fields.put_if(!self.query.is_empty(), "query", || conditions_json(&self.query));
        fields.put_if(!self.not.is_empty(), "not", || one_or_list(self.not.iter().map(Self::json)));
        fields.into()
    }
}

fn header_fits(condition: &Condition, facts: &Facts) -> bool {
    condition.value.matches(|each| facts.header(&condition.name, each))
}

fn parameter_fits(condition: &Condition, facts: &Facts) -> bool {
    condition.value.matches(|each| {
        each_parameter(facts.query(), &mut |name, value| {
            if name == condition.name.as_bytes() {
                each(value);
            }
        });
    })
}

/// One text or several; absent is none.
fn read_texts<'a, T: PartialEq>(
    object: &Object<'a>,
    field: &'a str,
    report: &mut Report,
    read: fn(&Node, &mut Report) -> Option<T>,
) -> Option<Vec<T>> {
    object.optional(field, Vec::new(), report, |node, report| {
        node.one_or_more(ALTERNATIVES_MAX, report, |node, report| read(node, report))
    })
}

fn read_paths(object: &Object, report: &mut Report) -> Option<Vec<PathMatch>> {
    let given = PathKind::ALL.iter().filter(|kind| object.get(kind.field()).is_some());
    for (index, kind) in given.enumerate() {
        if let (1.., Some(node)) = (index, object.get(kind.field())) {
            let one = "\"path\", \"path_prefix\" and \"path_template\"";
            node.report(report, format!("cannot stand beside another of {one}; keep one of them"));
        }
    }
    let read = PathKind::ALL.map(|kind| {
        object.optional(kind.field(), Vec::new(), report, |node, report| {
            node.one_or_more(ALTERNATIVES_MAX, report, |node, report| PathMatch::read(kind, node, report))
        })
    });
    let [exact, prefix, template] = read;
    Some([exact?, prefix?, template?].concat())
}

/// The name of a route or a virtual host, as the proxy has it.
pub(crate) fn read_name(node: &Node, report: &mut Report) -> Option<String> {
    let what = "a name; write 1 to 256 characters, none of them a control character";
    node.text_of(1..=NAME_LEN_MAX, is_on_a_line, what, report).map(str::to_owned)
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

/// The name of a parameter or a cookie, as it is after decoding.
pub(crate) fn read_parameter_name(name: &str, node: &Node, report: &mut Report) -> Option<String> {
    if (1..=NAME_LEN_MAX).contains(&name.chars().count()) && name.chars().all(is_on_a_line) {
        return Some(name.to_owned());
    }
    let what = "a name; write 1 to 256 characters, none of them a control character";
    node.report(report, format!("{} is not {what}", quoted(name)));
    None
}

/// A match, or a list of several; an empty one would exclude every request.
fn read_not(node: &Node, report: &mut Report) -> Option<Vec<Match>> {
    let read = |node: &Node, report: &mut Report| {
        let read = Match::read(node, report)?;
        if read.is_empty() {
            node.report(report, "excludes every request; say which ones");
            return None;
        }
        Some(read)
    };
    if node.is_object() {
        return read(node, report).map(|one| vec![one]);
    }
    if !node.is_list() {
        node.wrong_type("an object or a list of objects", report);
        return None;
    }
    let nodes = node.list(1..=ALTERNATIVES_MAX, report)?;
    let matches: Vec<Option<Match>> = nodes.iter().map(|node| read(node, report)).collect();
    matches.into_iter().collect()
}
