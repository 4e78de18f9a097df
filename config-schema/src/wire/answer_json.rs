//! An answer as JSON text.

use super::{Answer, GroupAnswer, retry_after_ms};
use tidegate_core::{Outcome, State};

/// About what a take's answer needs.
const TAKE_BYTES: usize = 96;
const REST_BYTES: usize = 160;

impl Answer {
    /// The answer as JSON text on one line. Written by hand: most of what a service on one core does is to read
    /// and write such texts.
    pub fn to_json(&self) -> Vec<u8> {
        let takes: usize = self.groups.iter().map(|group| group.takes.len()).sum();
        let mut text = Text(Vec::with_capacity(takes.saturating_mul(TAKE_BYTES).saturating_add(REST_BYTES)));
        text.raw(r#"{"now_ms":"#);
        text.number(self.now_ms);
        text.raw(r#","epoch":""#);
        text.hex(self.epoch);
        text.raw(r#"","proxies":"#);
        text.number(self.proxies.into());
        text.raw(r#","rules_off":"#);
        text.list(&self.rules_off, Text::name);
        text.raw(r#","groups":"#);
        text.list(&self.groups, Text::group);
        text.raw("}");
        text.0
    }
}

struct Text(Vec<u8>);

impl Text {
    fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.raw(itoa::Buffer::new().format(number));
    }

    /// Sixteen digits, as a number that passes what a reader of JSON counts exactly.
    fn hex(&mut self, number: u64) {
        number.to_be_bytes().into_iter().for_each(|byte| self.hex_byte(byte));
    }

    fn hex_byte(&mut self, byte: u8) {
        let digit = |nibble: u8| nibble.wrapping_add(if nibble < 10 { b'0' } else { b'a' - 10 });
        self.0.extend([digit(byte >> 4), digit(byte & 0x0f)]);
    }

    fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.raw("[");
        for (index, item) in items.iter().enumerate() {
            self.raw(if index == 0 { "" } else { "," });
            write(self, item);
        }
        self.raw("]");
    }

    /// The name of a rule, which has nothing that JSON would escape.
    #[expect(clippy::ptr_arg, reason = "it is called for each item of a list")]
    fn name(&mut self, name: &String) {
        self.raw("\"");
        self.raw(name);
        self.raw("\"");
    }

    fn group(&mut self, group: &GroupAnswer) {
        self.raw(r#"{"takes":"#);
        self.list(&group.takes, Self::take);
        if !group.states.is_empty() {
            self.raw(r#","states":"#);
            self.list(&group.states, Self::state);
        }
        self.raw("}");
    }

    /// The kind and the contents, as hex digits.
    #[expect(clippy::ref_option, reason = "it is called for each item of a list")]
    fn state(&mut self, state: &Option<State>) {
        let Some(state) = state else { return self.raw("null") };
        self.raw("\"");
        for byte in std::iter::once(state.kind()).chain(state.contents()) {
            self.hex_byte(byte);
        }
        self.raw("\"");
    }

    fn take(&mut self, outcome: &Outcome) {
        self.raw(r#"{"taken":"#);
        self.number(outcome.taken);
        self.raw(r#","remaining":"#);
        self.number(outcome.remaining);
        self.raw(r#","reset_ms":"#);
        self.number(outcome.reset_ms);
        self.raw(r#","retry_after_ms":"#);
        match retry_after_ms(outcome.retry) {
            Some(ms) => self.number(ms),
            None => self.raw("null"),
        }
        self.raw(r#","receipt":"#);
        self.number(outcome.receipt);
        self.raw("}");
    }
}
