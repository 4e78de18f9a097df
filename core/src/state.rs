//! What is remembered of one limit for one key, and its byte form.
//!
//! The byte form is a kind byte (the version in the high four bits, the code in the low four) and contents,
//! little-endian. Small states have [`SMALL_STATE_BYTES`] of contents, unused bytes zero; the others are as long
//! as they need to be, their numbers in groups of seven bits, low first, the high bit set on all but the last:
//!
//! | algorithm | code | contents |
//! |---|---|---|
//! | `fixed_window` | 1 | window (4 bytes), count (5) |
//! | `sliding_window` | 2 | window (4), current (5), previous (5) |
//! | `token_bucket` | 3 | at in ms (6), missing (7) |
//! | `token_bucket` with a warm-up | 4 | at in ms (42 bits), missing (36 bits), cold (34 bits) |
//! | `sliding_buckets` | 5 | window, then the counts, the latest first; the last is not 0 |
//! | a grant of any | 7 | left (5), until in ms (6), window (3) |
//! | `sliding_log` | 6 | for each time, the oldest first: ms since the one before (the first since the epoch), count |

use crate::bytes::{Reader, Writer, varint};
use crate::fixed_window::FixedWindow;
use crate::grant::Grant;
use crate::limit::{BUCKET_UNITS_MAX, BUCKETS_MAX, REQUESTS_MAX, WARM_UP_UNITS_MAX};
use crate::sliding_buckets::SlidingBuckets;
use crate::sliding_log::{RUNS_MAX, Run, SlidingLog};
use crate::sliding_window::SlidingWindow;
use crate::token_bucket::{TokenBucket, WARMING_MISSING_MAX};
use crate::{Algorithm, Limit, Timestamp};
use alloc::vec::Vec;

/// How many bytes of contents a small state has.
pub const SMALL_STATE_BYTES: usize = 14;

/// The version of the byte form. A state of another version is as good as none.
const VERSION: u8 = 1;

const CODE_BITS: u32 = 4;
const CODE_MASK: u8 = 0x0f;
const FIXED_WINDOW: u8 = 1;
const SLIDING_WINDOW: u8 = 2;
const TOKEN_BUCKET: u8 = 3;
const WARMING_BUCKET: u8 = 4;
const SLIDING_BUCKETS: u8 = 5;
const SLIDING_LOG: u8 = 6;
const GRANT: u8 = 7;

const WARMING_AT_BITS: u32 = 42;
const WARMING_MISSING_BITS: u32 = 36;
const _: () = assert!(WARMING_MISSING_MAX < 1 << WARMING_MISSING_BITS);
const WARMING_COLD_BITS: u32 = 34;
const _: () = assert!(WARM_UP_UNITS_MAX < 1 << WARMING_COLD_BITS);
const _: () = assert!(WARMING_AT_BITS + WARMING_MISSING_BITS + WARMING_COLD_BITS == 8 * 14);

/// What is remembered of one limit for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of an [`Algorithm::FixedWindow`] limit.
    FixedWindow(FixedWindow),
    /// Of an [`Algorithm::SlidingWindow`] limit.
    SlidingWindow(SlidingWindow),
    /// Of an [`Algorithm::TokenBucket`] limit.
    TokenBucket(TokenBucket),
    /// Of an [`Algorithm::SlidingBuckets`] limit.
    SlidingBuckets(SlidingBuckets),
    /// Of an [`Algorithm::SlidingLog`] limit.
    SlidingLog(SlidingLog),
    /// What was taken from a limit of any algorithm ahead of demand.
    Grant(Grant),
}

/// Bytes that are no state: of another version, or with impossible contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadState;

impl Limit {
    /// Whether its states fit [`SMALL_STATE_BYTES`].
    pub const fn has_small_state(&self) -> bool {
        !matches!(self.algorithm(), Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog)
    }
}

impl State {
    /// The version and the algorithm.
    pub fn kind(&self) -> u8 {
        let code = match self {
            Self::FixedWindow(_) => FIXED_WINDOW,
            Self::SlidingWindow(_) => SLIDING_WINDOW,
            Self::TokenBucket(TokenBucket { cold: None, .. }) => TOKEN_BUCKET,
            Self::TokenBucket(_) => WARMING_BUCKET,
            Self::SlidingBuckets(_) => SLIDING_BUCKETS,
            Self::SlidingLog(_) => SLIDING_LOG,
            Self::Grant(_) => GRANT,
        };
        (VERSION << CODE_BITS) | code
    }

    /// The contents of a small state; none of another.
    pub fn small_contents(&self) -> Option<[u8; SMALL_STATE_BYTES]> {
        let mut contents = [0; SMALL_STATE_BYTES];
        let mut writer = Writer::new(&mut contents);
        match self {
            Self::FixedWindow(state) => {
                writer.u32(state.window);
                writer.uint::<5>(state.count);
            }
            Self::SlidingWindow(state) => {
                writer.u32(state.window);
                writer.uint::<5>(state.current);
                writer.uint::<5>(state.previous);
            }
            Self::TokenBucket(TokenBucket { at, missing, cold: None }) => {
                writer.uint::<6>(at.ms());
                writer.uint::<7>(*missing);
            }
            Self::TokenBucket(TokenBucket { at, missing, cold: Some(cold) }) => {
                let missing = u128::from(*missing) << WARMING_AT_BITS;
                let cold = u128::from(*cold) << WARMING_AT_BITS << WARMING_MISSING_BITS;
                let packed = u128::from(at.ms()) | missing | cold;
                if let Some(low) = packed.to_le_bytes().first_chunk::<SMALL_STATE_BYTES>() {
                    writer.array(*low);
                }
            }
            Self::Grant(Grant { left, until, window }) => {
                writer.uint::<5>(*left);
                writer.uint::<6>(until.ms());
                writer.uint::<3>((*window).into());
            }
            Self::SlidingBuckets(_) | Self::SlidingLog(_) => return None,
        }
        Some(contents)
    }

    /// The contents, however long.
    pub fn contents(&self) -> Vec<u8> {
        let mut contents = Vec::new();
        match self {
            Self::SlidingBuckets(state) => {
                varint::write(state.window.into(), &mut contents);
                for count in &state.counts {
                    varint::write(*count, &mut contents);
                }
            }
            Self::SlidingLog(state) => {
                let mut before = 0;
                for Run { at, count } in &state.runs {
                    varint::write(at.ms().saturating_sub(before), &mut contents);
                    varint::write(*count, &mut contents);
                    before = at.ms();
                }
            }
            small => contents.extend(small.small_contents().unwrap_or_default()),
        }
        contents
    }

    /// Reads a byte form, trusting nothing.
    pub fn from_bytes(kind: u8, contents: &[u8]) -> Result<Self, BadState> {
        if kind >> CODE_BITS != VERSION {
            return Err(BadState);
        }
        match kind & CODE_MASK {
            SLIDING_BUCKETS => read_sliding_buckets(contents).ok_or(BadState),
            SLIDING_LOG => read_sliding_log(contents).ok_or(BadState),
            code => {
                let contents: &[u8; SMALL_STATE_BYTES] = contents.try_into().map_err(|_| BadState)?;
                read_small(code, contents).ok_or(BadState)
            }
        }
    }
}

fn read_small(code: u8, contents: &[u8; SMALL_STATE_BYTES]) -> Option<State> {
    let mut reader = Reader::new(contents);
    let state = match code {
        FIXED_WINDOW => State::FixedWindow(FixedWindow {
            window: reader.u32(),
            count: at_most(reader.uint::<5>(), REQUESTS_MAX)?,
        }),
        SLIDING_WINDOW => State::SlidingWindow(SlidingWindow {
            window: reader.u32(),
            current: at_most(reader.uint::<5>(), REQUESTS_MAX)?,
            previous: at_most(reader.uint::<5>(), REQUESTS_MAX)?,
        }),
        TOKEN_BUCKET => State::TokenBucket(TokenBucket {
            at: timestamp(reader.uint::<6>())?,
            missing: at_most(reader.uint::<7>(), BUCKET_UNITS_MAX)?,
            cold: None,
        }),
        WARMING_BUCKET => {
            let mut wide = [0; 16];
            if let Some(low) = wide.first_chunk_mut::<SMALL_STATE_BYTES>() {
                *low = reader.array();
            }
            let packed = u128::from_le_bytes(wide);
            let bits = |shift: u32, bits: u32| {
                let mask = u128::MAX.checked_shl(bits).map_or(u128::MAX, |high| !high);
                u64::try_from(packed.checked_shr(shift).unwrap_or(0) & mask).ok()
            };
            State::TokenBucket(TokenBucket {
                at: timestamp(bits(0, WARMING_AT_BITS)?)?,
                missing: bits(WARMING_AT_BITS, WARMING_MISSING_BITS)?,
                cold: Some(bits(WARMING_AT_BITS.saturating_add(WARMING_MISSING_BITS), WARMING_COLD_BITS)?),
            })
        }
        GRANT => State::Grant(Grant {
            left: at_most(reader.uint::<5>(), REQUESTS_MAX)?,
            until: timestamp(reader.uint::<6>())?,
            window: u32::try_from(reader.uint::<3>()).ok()?,
        }),
        _ => return None,
    };
    reader.rest_is_zero().then_some(state)
}

fn read_sliding_buckets(mut contents: &[u8]) -> Option<State> {
    let window = u32::try_from(varint::read(&mut contents)?).ok()?;
    let mut counts = Vec::new();
    while !contents.is_empty() {
        counts.push(at_most(varint::read(&mut contents)?, REQUESTS_MAX)?);
        if counts.len() > usize::from(BUCKETS_MAX).saturating_add(1) {
            return None;
        }
    }
    (counts.last() != Some(&0)).then_some(State::SlidingBuckets(SlidingBuckets { window, counts }))
}

fn read_sliding_log(mut contents: &[u8]) -> Option<State> {
    let mut runs: Vec<Run> = Vec::new();
    while !contents.is_empty() {
        let since_ms = varint::read(&mut contents)?;
        let count = at_most(varint::read(&mut contents)?, REQUESTS_MAX)?;
        let before = runs.last().map(|run| run.at.ms());
        let in_order = since_ms > 0 || before.is_none();
        let at = timestamp(before.unwrap_or(0).checked_add(since_ms)?)?;
        if count == 0 || !in_order || runs.len() >= RUNS_MAX {
            return None;
        }
        runs.push(Run { at, count });
    }
    Some(State::SlidingLog(SlidingLog { runs }))
}

fn at_most(value: u64, max: u64) -> Option<u64> {
    (value <= max).then_some(value)
}

/// A time that there is: one that is later than all times would be read back as another.
fn timestamp(ms: u64) -> Option<Timestamp> {
    Some(Timestamp::from_ms(ms)).filter(|at| at.ms() == ms)
}
