//! Path templates: `/orgs/{org}/repos/*`.

use crate::errors::Report;
use crate::path;
use crate::place::quoted;
use crate::reader::Node;

/// At most this many segments in one template.
pub const SEGMENTS_MAX: usize = 64;

const NAME_LEN_MAX: usize = 64;

/// A path whose segments may be left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    segments: Vec<Segment>,
    /// Whether anything may follow, written as `/**` at the end.
    is_open: bool,
}

/// One segment of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Exactly this, in normal form.
    Literal(String),
    /// Any segment that is not empty, which keys can name: `{org}`.
    Named(String),
    /// Any segment that is not empty: `*`.
    Any,
}

impl Template {
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether a segment has this name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.segments.iter().any(|segment| matches!(segment, Segment::Named(other) if other == name))
    }

    /// Whether a path in normal form fits.
    pub(crate) fn matches(&self, normal_path: &[u8]) -> bool {
        let mut found = segments_of(normal_path);
        let fits = self.segments.iter().all(|segment| found.next().is_some_and(|text| segment.matches(text)));
        fits && (self.is_open || found.next().is_none())
    }

    /// What a path that fits has in the place of a name.
    pub(crate) fn value<'p>(&self, name: &str, normal_path: &'p [u8]) -> Option<&'p [u8]> {
        let is_it = |segment: &Segment| matches!(segment, Segment::Named(other) if other == name);
        let index = self.segments.iter().position(is_it)?;
        segments_of(normal_path).nth(index)
    }

    /// How it is written.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            text.push('/');
            match segment {
                Segment::Literal(literal) => text.push_str(literal),
                Segment::Named(name) => text.extend(["{", name, "}"]),
                Segment::Any => text.push('*'),
            }
        }
        text.push_str(if self.is_open { "/**" } else { "" });
        text
    }

    /// A text that is known to begin with `/`.
    pub(crate) fn read(text: &str, node: &Node, report: &mut Report) -> Option<Self> {
        let inner = text.strip_prefix('/').unwrap_or(text);
        let (inner, is_open) = match inner.strip_suffix("**") {
            Some("") => (None, true),
            Some(before) => (Some(before.strip_suffix('/').unwrap_or(inner)), before.ends_with('/')),
            None => (Some(inner), false),
        };
        let mut segments: Vec<Segment> = Vec::new();
        for text in inner.into_iter().flat_map(|inner| inner.split('/')) {
            let segment = read_segment(text, node, report)?;
            if let Segment::Named(name) = &segment
                && segments.contains(&segment)
            {
                node.report(report, format!("has two segments named {}; rename one", quoted(name)));
                return None;
            }
            segments.push(segment);
        }
        let template = Self { segments, is_open };
        if template.segments.len() > SEGMENTS_MAX {
            node.report(report, format!("has too many segments; the most is {SEGMENTS_MAX}"));
            return None;
        }
        template.is_normal(node, report).then_some(template)
    }

    /// A template whose literals are not in normal form would never match.
    fn is_normal(&self, node: &Node, report: &mut Report) -> bool {
        let example = self.text().replace(['{', '}'], "").replace("**", "x");
        let normal = path::normalise(example.as_bytes());
        if *normal == *example.as_bytes() {
            return true;
        }
        let reason = "is not in normal form and would never match; write it without needless";
        let advice = "percent-encoding, empty segments and dot segments";
        node.report(report, format!("{} {reason} {advice}", quoted(&self.text())));
        false
    }
}

impl Segment {
    fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Literal(literal) => literal.as_bytes() == text,
            Self::Named(_) | Self::Any => !text.is_empty(),
        }
    }
}

/// The segments of a path in normal form; `/` has one, which is empty.
pub(crate) fn segments_of(normal_path: &[u8]) -> impl Iterator<Item = &[u8]> {
    normal_path.strip_prefix(b"/").unwrap_or(normal_path).split(|byte| *byte == b'/')
}

fn read_segment(text: &str, node: &Node, report: &mut Report) -> Option<Segment> {
    if text == "*" {
        return Some(Segment::Any);
    }
    let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match name {
        Some(name) if is_segment_name(name) => Some(Segment::Named(name.to_owned())),
        None if !text.contains(['{', '}', '*']) => Some(Segment::Literal(text.to_owned())),
        _ => {
            let advice =
                "write \"{name}\" with small letters, digits and \"_\", \"*\" for any, and \"**\" at the end";
            node.report(report, format!("{} is not a segment of a template; {advice}", quoted(text)));
            None
        }
    }
}

/// Whether a named segment can have this name.
pub(crate) fn is_segment_name(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= NAME_LEN_MAX
        && name.bytes().all(is_fine)
}
