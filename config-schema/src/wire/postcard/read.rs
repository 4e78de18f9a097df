//! Reading the compact encoding, trusting nothing.

use std::borrow::Cow;
use std::num::NonZeroU64;

use tidegate_core::{Limit, Manner, Outcome, REQUESTS_MAX, Retry, State, Window};

use crate::config::is_namespace;
use crate::errors::{ConfigError, ConfigErrors};
use crate::limit::{Align, RuleLimit, is_calendar};
use crate::rule::WhenFull;
use crate::rule_json::is_rule_name;
use crate::wire::{
    Act, Answer, Batch, GROUPS_MAX, Group, GroupAnswer, KEY_BYTES_MAX, N_MAX, NUMBER_MAX, Sender, TAKES_MAX,
    Take, WAIT_MS_MAX,
};

/// Bytes that are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAnswer;

impl<'a> Batch<'a> {
    /// Reads a batch in the compact encoding; the first error ends it.
    pub fn from_postcard(bytes: &'a [u8]) -> Result<Self, ConfigErrors> {
        let mut reader = Reader { rest: bytes, group: None, take: None };
        let batch = reader.batch().and_then(|batch| {
            let rest = reader.rest.len();
            if rest == 0 {
                Ok(batch)
            } else {
                Err(Wrong::new("body", format!("has {rest} bytes after its end")))
            }
        });
        batch.map_err(|wrong| reader.error(wrong).into())
    }
}

impl Answer {
    /// Reads an answer in the compact encoding.
    pub fn from_postcard(bytes: &[u8]) -> Result<Self, BadAnswer> {
        let mut reader = Reader { rest: bytes, group: None, take: None };
        let answer = reader.answer().ok_or(BadAnswer)?;
        if reader.rest.is_empty() { Ok(answer) } else { Err(BadAnswer) }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    /// Where it is, for errors.
    group: Option<usize>,
    take: Option<usize>,
}

/// What is wrong with which field.
struct Wrong {
    field: &'static str,
    message: Cow<'static, str>,
}

impl Wrong {
    fn new(field: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { field, message: message.into() }
    }

    fn range(field: &'static str, least: u64, most: u64) -> Self {
        Self::new(field, format!("must be a number from {least} to {most}"))
    }
}

impl<'a> Reader<'a> {
    fn error(&self, wrong: Wrong) -> ConfigError {
        let path = match (self.group, self.take) {
            (Some(group), Some(take)) => format!("groups[{group}].takes[{take}].{}", wrong.field),
            (Some(group), None) => format!("groups[{group}].{}", wrong.field),
            _ => wrong.field.to_owned(),
        };
        ConfigError::new(path, wrong.message)
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let group = u64::from(byte & 0x7f);
            let shifted = group.checked_shl(shift)?;
            if shifted.checked_shr(shift) != Some(group) {
                return None;
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn number_to(&mut self, most: u64) -> Option<u64> {
        self.number().filter(|number| *number <= most)
    }

    fn length_to(&mut self, most: usize) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|length| *length <= most)
    }

    fn bytes_to(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = self.length_to(most)?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn text_to(&mut self, most: usize) -> Option<&'a str> {
        std::str::from_utf8(self.bytes_to(most)?).ok()
    }

    /// The outer `None` is what cannot be read.
    #[expect(clippy::option_option, reason = "wrong, absent and given are three things")]
    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    fn batch(&mut self) -> Result<Batch<'a>, Wrong> {
        let namespace = self.text_to(usize::MAX).filter(|text| is_namespace(text)).ok_or_else(|| {
            Wrong::new("namespace", "must be 1 to 64 letters, digits, \".\", \"_\" or \"-\"")
        })?;
        let sender = self.option(Self::sender).ok_or_else(|| {
            Wrong::new("sender", format!("must be proxy, vm (32 bits) and sequence, at most {NUMBER_MAX}"))
        })?;
        let wait_ms = self
            .option(|reader| u32::try_from(reader.number()?).ok().filter(|ms| (1..=WAIT_MS_MAX).contains(ms)))
            .ok_or_else(|| Wrong::range("wait_ms", 1, WAIT_MS_MAX.into()))?;
        let states = match self.byte() {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(Wrong::range("states", 0, 1)),
        };
        let too_many = || Wrong::new("groups", format!("must have at most {GROUPS_MAX} items"));
        let length = self.length_to(GROUPS_MAX).ok_or_else(too_many)?;
        let mut groups = Vec::with_capacity(length);
        let mut room = TAKES_MAX;
        for index in 0..length {
            self.group = Some(index);
            let group = self.group(room)?;
            room = room.saturating_sub(group.takes.len());
            groups.push(group);
        }
        self.group = None;
        Ok(Batch { namespace: namespace.into(), sender, wait_ms, states, groups })
    }

    fn sender(&mut self) -> Option<Sender> {
        Some(Sender {
            proxy: self.number()?,
            vm: u32::try_from(self.number()?).ok()?,
            sequence: self.number_to(NUMBER_MAX)?,
        })
    }

    fn group(&mut self, room: usize) -> Result<Group<'a>, Wrong> {
        let length = self.length_to(usize::MAX).filter(|length| (1..=room).contains(length));
        let length = length.ok_or_else(|| {
            Wrong::new("takes", format!("must have at least 1 item, and a batch at most {TAKES_MAX} takes"))
        })?;
        // What the sender claims is not yet what it sent.
        let mut takes = Vec::with_capacity(length.min(self.rest.len()));
        for index in 0..length {
            self.take = Some(index);
            takes.push(self.take()?);
        }
        self.take = None;
        Ok(Group { takes })
    }

    fn take(&mut self) -> Result<Take<'a>, Wrong> {
        let rule = self.text_to(usize::MAX).filter(|text| is_rule_name(text)).ok_or_else(|| {
            Wrong::new("rule", "must be a small letter, then up to 63 small letters, digits, \"-\" or \"_\"")
        })?;
        let limit = self.limit()?;
        let key = self
            .bytes_to(KEY_BYTES_MAX)
            .ok_or_else(|| Wrong::new("key", format!("must have at most {KEY_BYTES_MAX} bytes")))?;
        let n = self.number_to(N_MAX).and_then(NonZeroU64::new).ok_or_else(|| Wrong::range("n", 1, N_MAX))?;
        let act = self.act().ok_or_else(|| {
            Wrong::new("act", format!("must be 0 to 2, or 3 and a receipt, at most {NUMBER_MAX}"))
        })?;
        let when_full = match self.byte() {
            Some(0) => WhenFull::Strict,
            Some(1) => WhenFull::Lenient,
            _ => return Err(Wrong::range("when_full", 0, 1)),
        };
        Ok(Take { rule: rule.into(), limit, key: key.into(), n, act, when_full })
    }

    fn act(&mut self) -> Option<Act> {
        Some(match self.byte()? {
            0 => Act::Take(Manner::All),
            1 => Act::Take(Manner::Some),
            2 => Act::Take(Manner::Force),
            3 => Act::Refund { receipt: self.number_to(NUMBER_MAX)? },
            _ => return None,
        })
    }

    fn limit(&mut self) -> Result<RuleLimit, Wrong> {
        let cut = || Wrong::new("limit", "cannot be read");
        let requests = self.number_to(REQUESTS_MAX).ok_or_else(cut)?;
        let window = match self.byte().ok_or_else(cut)? {
            0 => Window::Ms(self.number().ok_or_else(cut)?),
            1 => Window::Day,
            2 => Window::Month,
            _ => return Err(cut()),
        };
        let code = self.byte().ok_or_else(cut)?;
        if code != 0 && is_calendar(window) {
            return Err(Wrong::new(
                "limit",
                "cannot count a day or a month of the calendar; only fixed_window can",
            ));
        }
        let ms = window.ms_max();
        let limit = match code {
            0 => Limit::fixed_window(requests, window),
            1 => Limit::sliding_window(requests, ms),
            2 => Limit::sliding_buckets(requests, ms, self.byte().ok_or_else(cut)?),
            3 => Limit::sliding_log(requests, ms),
            4 => {
                let burst = self.number_to(REQUESTS_MAX).ok_or_else(cut)?;
                Limit::token_bucket(requests, ms, burst, self.number().ok_or_else(cut)?)
            }
            _ => return Err(cut()),
        };
        let limit = limit.map_err(|error| Wrong::new("limit", error.to_string()))?;
        let align = match self.byte() {
            Some(0) => Align::Key,
            Some(1) => Align::Clock,
            _ => return Err(Wrong::range("align", 0, 1)),
        };
        Ok(RuleLimit { limit, align, is_leaky: false })
    }

    fn answer(&mut self) -> Option<Answer> {
        let now_ms = self.number()?;
        let epoch = self.number()?;
        let proxies = u32::try_from(self.number()?).ok()?;
        let rules_off = self.list(|reader| reader.text_to(usize::MAX).map(str::to_owned))?;
        let groups = self.list(Self::group_answer)?;
        Some(Answer { now_ms, epoch, proxies, rules_off, groups })
    }

    fn group_answer(&mut self) -> Option<GroupAnswer> {
        let takes = self.list(Self::outcome)?;
        let states = self.list(|reader| reader.option(Self::state))?;
        (states.is_empty() || states.len() == takes.len()).then_some(GroupAnswer { takes, states })
    }

    fn state(&mut self) -> Option<State> {
        let kind = self.byte()?;
        State::from_bytes(kind, self.bytes_to(usize::MAX)?).ok()
    }

    /// A list of any length. It grows with what is really there: each item has at least one byte.
    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.length_to(self.rest.len())?;
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(read(self)?);
        }
        Some(items)
    }

    fn outcome(&mut self) -> Option<Outcome> {
        Some(Outcome {
            taken: self.number()?,
            remaining: self.number()?,
            reset_ms: self.number()?,
            retry: match self.option(Self::number)? {
                Some(0) => Retry::Now,
                Some(ms) => Retry::After(ms),
                None => Retry::Never,
            },
            receipt: self.number()?,
        })
    }
}
