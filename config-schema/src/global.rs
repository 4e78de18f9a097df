//! Limits that hold across a fleet.

use crate::duration;
use crate::errors::Report;
use crate::json::Json;
use crate::json_text::Fields;
use crate::place::quoted;
use crate::reader::{Choice, Node, Object, word_of};

/// How often a proxy that syncs does so, if the config does not say.
pub const SYNC_EVERY_MS_DEFAULT: u64 = 100;

pub(crate) const SYNC_EVERY_MS_MIN: u64 = 10;
pub(crate) const SYNC_EVERY_MS_MAX: u64 = 60_000;
const FIELDS: &[&str] = &["mode", "overshoot", "sync_every", "when_empty", "on_failure"];

/// How a limit is kept across a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Global {
    /// When the counter is asked.
    pub mode: GlobalMode,
    /// What holds while the counter cannot be reached.
    pub on_failure: OnFailure,
}

/// When the counter is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalMode {
    /// About each request.
    Exact,
    /// After the fact, at an interval.
    Sync {
        /// The interval.
        every_ms: u64,
    },
    /// Ahead of demand.
    Lease {
        /// By how many percent the fleet may pass the limit.
        overshoot_percent: u8,
        /// What a request does that finds nothing granted.
        when_empty: WhenEmpty,
    },
}

/// What a request does that finds nothing granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum WhenEmpty {
    /// It waits for the counter's answer.
    #[default]
    Wait,
    /// It is denied at once.
    Deny,
}

/// What holds while the counter cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename_all = "snake_case"))]
pub enum OnFailure {
    /// Each proxy enforces its share: the limit divided by the number of proxies.
    #[default]
    Share,
    /// Each proxy enforces the whole limit by itself.
    Local,
    /// Every request is let through.
    Open,
    /// Every request is denied.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename_all = "snake_case", rename = "GlobalMode")
)]
/// When the counter is asked.
pub(crate) enum Word {
    /// About each request, which waits for the answer: never over the limit, one round trip more.
    Exact,
    /// After the fact, at an interval: no latency, over the limit by what others admit within one interval.
    Sync,
    /// Ahead of demand: no latency while a grant is left, over the limit by at most the declared overshoot.
    Lease,
}

impl Choice for Word {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("exact", Self::Exact), ("sync", Self::Sync), ("lease", Self::Lease)];
}

impl Choice for WhenEmpty {
    const CHOICES: &'static [(&'static str, Self)] = &[("wait", Self::Wait), ("deny", Self::Deny)];
}

impl Choice for OnFailure {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("share", Self::Share), ("local", Self::Local), ("open", Self::Open), ("closed", Self::Closed)];
}

impl Global {
    pub(crate) fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let object = node.object(FIELDS, report)?;
        let mode =
            object.required("mode", "choose \"exact\", \"sync\" or \"lease\"", report, Node::choice::<Word>);
        let overshoot = object.optional("overshoot", 0, report, read_percent);
        let every_ms = object.optional("sync_every", SYNC_EVERY_MS_DEFAULT, report, |node, report| {
            duration::read(node, SYNC_EVERY_MS_MIN..=SYNC_EVERY_MS_MAX, report)
        });
        let when_empty = object.optional("when_empty", WhenEmpty::default(), report, Node::choice);
        let on_failure = object.optional("on_failure", OnFailure::default(), report, Node::choice);
        let word = mode?;
        let is_at_home = belongs(&object, word, report);
        let (overshoot_percent, every_ms, when_empty) = (overshoot?, every_ms?, when_empty?);
        let mode = match word {
            Word::Exact => GlobalMode::Exact,
            Word::Sync => GlobalMode::Sync { every_ms },
            Word::Lease => GlobalMode::Lease { overshoot_percent, when_empty },
        };
        let on_failure = on_failure?;
        is_at_home.then_some(Self { mode, on_failure })
    }

    pub(crate) fn json(self) -> Json {
        let mut fields = Fields::default();
        match self.mode {
            GlobalMode::Exact => fields.put("mode", word_of(Word::Exact)),
            GlobalMode::Sync { every_ms } => {
                fields.put("mode", word_of(Word::Sync));
                fields.put_if(every_ms != SYNC_EVERY_MS_DEFAULT, "sync_every", || {
                    duration::shortest_text(every_ms).into()
                });
            }
            GlobalMode::Lease { overshoot_percent, when_empty } => {
                fields.put("mode", word_of(Word::Lease));
                fields.put_if(overshoot_percent > 0, "overshoot", || format!("{overshoot_percent}%").into());
                fields
                    .put_if(when_empty != WhenEmpty::default(), "when_empty", || word_of(when_empty).into());
            }
        }
        fields.put_if(self.on_failure != OnFailure::default(), "on_failure", || {
            word_of(self.on_failure).into()
        });
        fields.into()
    }
}

/// Whether every field that is given means something in this mode.
fn belongs(object: &Object, word: Word, report: &mut Report) -> bool {
    let homes = [("overshoot", Word::Lease), ("when_empty", Word::Lease), ("sync_every", Word::Sync)];
    let mut is_fine = true;
    for (field, home) in homes {
        if let (Some(node), true) = (object.get(field), home != word) {
            let reason = format!("belongs to {}, not to {}", word_of(home), word_of(word));
            node.report(report, format!("{reason}; leave it out or choose another mode"));
            is_fine = false;
        }
    }
    is_fine
}

fn read_percent(node: &Node, report: &mut Report) -> Option<u8> {
    let text = node.text(report)?;
    let number = text.strip_suffix('%').and_then(duration::whole_number);
    match number.and_then(|number| u8::try_from(number).ok()) {
        Some(percent) if percent <= 100 => Some(percent),
        _ => {
            let advice = "write a whole number from 0 to 100 and \"%\", such as \"5%\"";
            node.report(report, format!("{} is not a share; {advice}", quoted(text)));
            None
        }
    }
}
