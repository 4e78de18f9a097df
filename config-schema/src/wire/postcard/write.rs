//! Writing the compact encoding.

use tidegate_core::{Algorithm, Manner, Outcome, Window};

use crate::limit::{Align, RuleLimit};
use crate::rule::WhenFull;
use crate::wire::{Act, Answer, Batch, Take, retry_after_ms};

impl Batch<'_> {
    /// The batch in the compact encoding.
    pub fn to_postcard(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.bytes(self.namespace.as_bytes());
        out.option(self.sender, |out, sender| {
            out.number(sender.proxy);
            out.number(sender.vm.into());
            out.number(sender.sequence);
        });
        out.option(self.wait_ms, |out, ms| out.number(ms.into()));
        out.byte(self.states.into());
        out.length(self.groups.len());
        for group in &self.groups {
            out.length(group.takes.len());
            for take in &group.takes {
                out.take(take);
            }
        }
        out.0
    }
}

impl Answer {
    /// The answer in the compact encoding.
    pub fn to_postcard(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.number(self.now_ms);
        out.number(self.epoch);
        out.number(self.proxies.into());
        out.length(self.rules_off.len());
        for rule in &self.rules_off {
            out.bytes(rule.as_bytes());
        }
        out.length(self.groups.len());
        for group in &self.groups {
            out.length(group.takes.len());
            for outcome in &group.takes {
                out.outcome(outcome);
            }
            out.length(group.states.len());
            for state in &group.states {
                out.option(state.as_ref(), |out, state| {
                    out.byte(state.kind());
                    out.bytes(&state.contents());
                });
            }
        }
        out.0
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn number(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.byte(low);
            }
            self.byte(low | 0x80);
        }
    }

    fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).unwrap_or(u64::MAX));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.byte(0),
            Some(value) => {
                self.byte(1);
                write(self, value);
            }
        }
    }

    fn take(&mut self, take: &Take<'_>) {
        self.bytes(take.rule.as_bytes());
        self.limit(&take.limit);
        self.bytes(&take.key);
        self.number(take.n.get());
        match take.act {
            Act::Take(Manner::All) => self.byte(0),
            Act::Take(Manner::Some) => self.byte(1),
            Act::Take(Manner::Force) => self.byte(2),
            Act::Refund { receipt } => {
                self.byte(3);
                self.number(receipt);
            }
        }
        self.byte(match take.when_full {
            WhenFull::Strict => 0,
            WhenFull::Lenient => 1,
        });
    }

    fn limit(&mut self, limit: &RuleLimit) {
        self.number(limit.limit.requests());
        match limit.limit.window() {
            Window::Ms(ms) => {
                self.byte(0);
                self.number(ms);
            }
            Window::Day => self.byte(1),
            Window::Month => self.byte(2),
        }
        match limit.limit.algorithm() {
            Algorithm::FixedWindow => self.byte(0),
            Algorithm::SlidingWindow => self.byte(1),
            Algorithm::SlidingBuckets { buckets } => {
                self.byte(2);
                self.byte(buckets);
            }
            Algorithm::SlidingLog => self.byte(3),
            Algorithm::TokenBucket { burst, warm_up_ms } => {
                self.byte(4);
                self.number(burst);
                self.number(warm_up_ms);
            }
        }
        self.byte(match limit.align {
            Align::Key => 0,
            Align::Clock => 1,
        });
    }

    fn outcome(&mut self, outcome: &Outcome) {
        self.number(outcome.taken);
        self.number(outcome.remaining);
        self.number(outcome.reset_ms);
        self.option(retry_after_ms(outcome.retry), Self::number);
        self.number(outcome.receipt);
    }
}
