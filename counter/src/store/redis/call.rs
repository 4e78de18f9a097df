//! A batch as the script reads it, and its answer as the script packs it. `script/0_words.lua` tells the layout.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::Cmd;
use tidegate_config::wire::{
    Act, Batch, GroupAnswer, N_MAX, NUMBER_MAX, PUBLIC_KEY, SEQUENCES_KEPT, Subjects, Take,
};
use tidegate_core::{Algorithm, Limit, Manner, Outcome, Retry, State, Window};

use super::keys::{Keys, KeysOfBatch};
use super::names::Names;
use super::numbers::{self, ENDLESS, Numbers};
use super::script::{
    self, ALL, FIXED_WINDOW, FORCE, NO_SENDER, REFUND, SLIDING_BUCKETS, SLIDING_LOG, SLIDING_WINDOW, SOME,
    TOKEN_BUCKET,
};

const _: () = assert!(SEQUENCES_KEPT < 255, "a place in the ring is a byte, and one means none");

/// Odd, so that all numbers come before one comes again; and large, so that two services' do not meet soon.
const EPOCHS_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Taken, remaining, reset, retry, receipt.
const NUMBERS_OF_OUTCOME: usize = 5;

/// When a call happens. In service the server's clock tells, and the deadline is told in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct When {
    /// The time, if a test says so; 0 asks the server.
    pub now_ms: u64,
    /// After which nothing is done any more; 0 is never.
    pub not_after_ms: u64,
}

/// The names and the hash that calls need.
#[derive(Debug)]
pub struct Caller {
    pub(super) names: Names,
    /// From which epochs are drawn, should the server have none: another for each call, for it may lose its data
    /// more than once.
    epochs: AtomicU64,
    hash: String,
    epoch: String,
}

/// A batch, packed.
#[derive(Clone, Debug)]
pub struct Call {
    keys: Keys,
    packed: Vec<u8>,
}

/// What the script says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It came too late and was not applied.
    Late {
        /// The server's clock.
        now_ms: u64,
    },
    /// Its sequence is older than what is remembered; it was not applied.
    TooOld {
        /// The server's clock.
        now_ms: u64,
    },
    /// It was applied, now or, if it is a retry, before.
    Applied {
        /// The server's epoch.
        epoch: u64,
        /// The server's clock when it was applied.
        now_ms: u64,
        /// As many as the batch had.
        groups: Vec<GroupAnswer>,
    },
}

impl Caller {
    /// Calls for keys under `prefix`. No two services may have the same seed.
    pub fn new(prefix: &str, seed: u64) -> Self {
        let names = Names::new(prefix);
        Self { epoch: names.epoch(), names, epochs: AtomicU64::new(seed), hash: script::hash() }
    }

    /// Packs a batch.
    pub fn call(&self, batch: &Batch<'_>, when: When) -> Call {
        let takes = batch.take_count();
        let mut keys = KeysOfBatch::new(&self.names, &batch.namespace, &self.epoch, takes);
        let mut subjects = Subjects::new(PUBLIC_KEY, &batch.namespace);
        let mut packed = Vec::with_capacity(40 + takes * 45);
        put::<6>(&mut packed, when.now_ms);
        put::<6>(&mut packed, when.not_after_ms);
        packed.extend(self.epochs.fetch_add(EPOCHS_STEP, Ordering::Relaxed).to_le_bytes());
        let place = batch.sender.map(|sender| sender.sequence % SEQUENCES_KEPT);
        put::<1>(&mut packed, place.unwrap_or(NO_SENDER.into()));
        put::<7>(&mut packed, batch.sender.map_or(0, |sender| sender.sequence));
        put::<8>(&mut packed, batch.sender.map_or(0, |_| batch.fingerprint()));
        packed.push(batch.states.into());
        packed.extend(uses(batch));
        for group in &batch.groups {
            for (left, take) in (0..group.takes.len()).rev().zip(&group.takes) {
                put_length(&mut packed, left);
                let index = keys.counter(subjects.subject(take), &take.limit);
                put_take(&mut packed, take, index, || subjects.shift(take));
            }
        }
        let sender = batch.sender.map(|sender| self.names.sender(&batch.namespace, sender));
        Call { keys: keys.finish(sender), packed }
    }

    /// The command for a server that has the script.
    pub fn by_hash(&self, call: &Call) -> Cmd {
        command("EVALSHA", &self.hash, call)
    }

    /// The command for one that has not: it runs the script, and has it from then on.
    pub fn by_text(&self, call: &Call) -> Cmd {
        command("EVAL", &script::TEXT, call)
    }

    /// The command that loads the script.
    pub fn load(&self) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg("SCRIPT").arg("LOAD").arg(script::TEXT.as_str());
        cmd
    }

    /// The names of the batch's counters, each once, in the order of their first takes.
    pub fn counters(&self, batch: &Batch<'_>) -> Vec<String> {
        let call = self.call(&Batch { sender: None, ..batch.clone() }, When::default());
        call.keys.iter().skip(1).map(str::to_owned).collect()
    }
}

fn command(verb: &str, script: &str, call: &Call) -> Cmd {
    let bytes = call.keys.bytes() + call.packed.len() + script.len();
    let mut cmd = Cmd::with_capacity(call.keys.len() + 4, bytes + 24);
    cmd.arg(verb).arg(script).arg(call.keys.len());
    for key in call.keys.iter() {
        cmd.arg(key);
    }
    cmd.arg(call.packed.as_slice());
    cmd
}

fn put_take(packed: &mut Vec<u8>, take: &Take<'_>, index: usize, shift: impl FnOnce() -> u64) {
    let (act, receipt) = match take.act {
        Act::Take(Manner::All) => (ALL, None),
        Act::Take(Manner::Some) => (SOME, None),
        Act::Take(Manner::Force) => (FORCE, None),
        Act::Refund { receipt } => (REFUND, Some(receipt)),
    };
    let limit = &take.limit.limit;
    let (algorithm, window_ms, shift_ms) = match (limit.algorithm(), limit.window()) {
        (Algorithm::FixedWindow, Window::Ms(ms)) => (FIXED_WINDOW, ms, shift() % ms),
        (Algorithm::FixedWindow, Window::Day) => (FIXED_WINDOW, limit.window_ms(), 0),
        (Algorithm::FixedWindow, Window::Month) => (FIXED_WINDOW, 0, 0),
        (Algorithm::SlidingWindow, _) => (SLIDING_WINDOW, limit.window_ms(), shift() % limit.window_ms()),
        (Algorithm::TokenBucket { .. }, _) => (TOKEN_BUCKET, limit.window_ms(), 0),
        (Algorithm::SlidingBuckets { buckets }, _) => {
            let step_ms = limit.window_ms() / u64::from(buckets);
            (SLIDING_BUCKETS, step_ms, shift() % step_ms)
        }
        (Algorithm::SlidingLog, _) => (SLIDING_LOG, limit.window_ms(), 0),
    };
    packed.extend([act, algorithm]);
    put_length(packed, index);
    put::<5>(packed, take.n.get().min(N_MAX));
    put::<5>(packed, limit.requests());
    put::<5>(packed, window_ms);
    put::<5>(packed, shift_ms);
    put_extras(packed, limit);
    if let Some(receipt) = receipt {
        put::<7>(packed, receipt.min(NUMBER_MAX));
    }
}

fn put_extras(packed: &mut Vec<u8>, limit: &Limit) {
    match limit.algorithm() {
        Algorithm::TokenBucket { burst, warm_up_ms } => {
            put::<6>(packed, burst);
            packed.push(u8::from(warm_up_ms > 0));
            put::<5>(packed, warm_up_ms * limit.requests());
        }
        Algorithm::SlidingBuckets { buckets } => packed.push(buckets),
        Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {}
    }
}

/// Which functions the script needs.
fn uses(batch: &Batch<'_>) -> [u8; 6] {
    let mut uses = [0; 6];
    for take in batch.groups.iter().flat_map(|group| &group.takes) {
        let limit = &take.limit.limit;
        let function = match limit.algorithm() {
            Algorithm::FixedWindow => 0,
            Algorithm::SlidingWindow => 2,
            Algorithm::TokenBucket { .. } => 3,
            Algorithm::SlidingBuckets { .. } => 4,
            Algorithm::SlidingLog => 5,
        };
        uses[function] = 1;
        uses[1] |= u8::from(limit.window() == Window::Month);
    }
    uses
}

/// The low `N` bytes.
fn put<const N: usize>(packed: &mut Vec<u8>, value: u64) {
    debug_assert!(N == 8 || value >> (8 * N) == 0, "{value} has more than {N} bytes");
    packed.extend(&value.to_le_bytes()[..N]);
}

/// A batch has at most `TAKES_MAX` of anything.
fn put_length(packed: &mut Vec<u8>, length: usize) {
    packed.extend(u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
}

impl Said {
    /// Reads what the script said to `batch`; none if that is no answer to it.
    pub fn read(bytes: &[u8], batch: &Batch<'_>) -> Option<Self> {
        let (letter, mut rest) = bytes.split_first()?;
        match letter {
            b'L' => Some(Self::Late { now_ms: get::<6>(&mut rest)? }),
            b'O' => Some(Self::TooOld { now_ms: get::<6>(&mut rest)? }),
            b'A' => {
                let epoch = get::<8>(&mut rest)?;
                let now_ms = get::<6>(&mut rest)?;
                let mut numbers = numbers::read(rest)?;
                if numbers.len() != batch.take_count() * NUMBERS_OF_OUTCOME {
                    // The sequence was another batch's: whatever that took, this is not its answer.
                    return Some(Self::TooOld { now_ms });
                }
                let group = |takes: usize| -> Option<GroupAnswer> {
                    let takes = (0..takes).map(|_| outcome(&mut numbers)).collect::<Option<_>>()?;
                    Some(GroupAnswer { takes, states: Vec::new() })
                };
                let asked = batch.groups.iter().map(|asked| asked.takes.len());
                let mut groups = asked.map(group).collect::<Option<Vec<_>>>()?;
                if batch.states {
                    read_states(numbers.rest(), &mut groups)?;
                }
                Some(Self::Applied { epoch, now_ms, groups })
            }
            _ => None,
        }
    }
}

fn outcome(numbers: &mut Numbers<'_>) -> Option<Outcome> {
    let mut next = || numbers.next();
    let (taken, remaining, reset_ms) = (next()?, next()?, next()?);
    let retry = match next()? {
        0 => Retry::Now,
        ENDLESS => Retry::Never,
        more => Retry::After(more - 1),
    };
    Some(Outcome { taken, remaining, reset_ms, retry, receipt: next()? })
}

/// One text for each take. What is no state is as good as none, to the script too.
fn read_states(bytes: &[u8], groups: &mut [GroupAnswer]) -> Option<()> {
    let mut texts = numbers::read(bytes)?;
    for group in groups {
        for _ in 0..group.takes.len() {
            let state = texts.next_text()?.split_first();
            let state = state.and_then(|(kind, contents)| State::from_bytes(*kind, contents).ok());
            group.states.push(state);
        }
    }
    (texts.len() == 0).then_some(())
}

fn get<const N: usize>(rest: &mut &[u8]) -> Option<u64> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(head);
    Some(u64::from_le_bytes(wide))
}
