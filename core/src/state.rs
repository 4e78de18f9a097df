//! What is remembered of one limit for one key, and its byte form.
//!
//! The byte form is a kind byte (the version in the high four bits, the algorithm in the low four) and
//! [`STATE_BYTES`] of contents, little-endian, unused bytes zero:
//!
//! | algorithm | code | bytes 0–3 | bytes 4–8 | bytes 9–13 |
//! |---|---|---|---|---|
//! | `fixed_window` | 1 | window | count | 0 |
//! | `sliding_window` | 2 | window | current | previous |

use crate::bytes::{Reader, Writer};
use crate::fixed_window::FixedWindow;
use crate::grid::Grid;
use crate::limit::{Algorithm, Limit, REQUESTS_MAX};
use crate::sliding_window::SlidingWindow;
use crate::{Moment, Outcome, Take, Timestamp};

/// How many bytes a state has beside its kind.
pub const STATE_BYTES: usize = 14;

/// The version of the byte form. One state of another version is as good as none.
const VERSION: u8 = 1;

const CODE_BITS: u32 = 4;
const CODE_MASK: u8 = 0x0f;
const CODE_FIXED_WINDOW: u8 = 1;
const CODE_SLIDING_WINDOW: u8 = 2;

/// What is remembered of one limit for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a [`Algorithm::FixedWindow`] limit.
    FixedWindow(FixedWindow),
    /// Of a [`Algorithm::SlidingWindow`] limit.
    SlidingWindow(SlidingWindow),
}

/// A state as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateBytes {
    /// The version and the algorithm.
    pub kind: u8,
    /// The contents.
    pub contents: [u8; STATE_BYTES],
}

/// Bytes that are no state: of another version, or with impossible contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadState;

impl Limit {
    /// Decides one take. No state, or one of another algorithm, is a fresh one.
    pub fn take(&self, state: Option<State>, at: Moment, take: Take) -> (Outcome, State) {
        let grid = Grid::new(self, at);
        match self.own(state, &grid) {
            State::FixedWindow(state) => {
                let (outcome, state) = state.take(self.requests(), &grid, take);
                (outcome, State::FixedWindow(state))
            }
            State::SlidingWindow(state) => {
                let (outcome, state) = state.take(self.requests(), &grid, take);
                (outcome, State::SlidingWindow(state))
            }
        }
    }

    /// How much of the limit is used now; more than the limit is debt.
    pub fn used(&self, state: State, at: Moment) -> u64 {
        let grid = Grid::new(self, at);
        match self.own(Some(state), &grid) {
            State::FixedWindow(state) => state.at(&grid).used(),
            State::SlidingWindow(state) => state.at(&grid).used(&grid),
        }
    }

    /// When the state will be as good as none.
    pub fn expires(&self, state: State, at: Moment) -> Timestamp {
        let grid = Grid::new(self, at);
        grid.start(match self.own(Some(state), &grid) {
            State::FixedWindow(state) => state.fresh_from(),
            State::SlidingWindow(state) => state.fresh_from(),
        })
    }

    fn own(&self, state: Option<State>, grid: &Grid) -> State {
        match (self.algorithm(), state) {
            (Algorithm::FixedWindow, Some(state @ State::FixedWindow(_)))
            | (Algorithm::SlidingWindow, Some(state @ State::SlidingWindow(_))) => state,
            (Algorithm::FixedWindow, _) => State::FixedWindow(FixedWindow::fresh(grid)),
            (Algorithm::SlidingWindow, _) => State::SlidingWindow(SlidingWindow::fresh(grid)),
        }
    }
}

impl State {
    /// Gives back `amount` that was taken in `window` ([`Outcome::window`]). It goes to that window alone:
    /// if it counts no more, nothing happens. Whoever refunds does so at most once per take.
    #[must_use]
    pub fn refund(self, window: u32, amount: u64) -> Self {
        match self {
            Self::FixedWindow(state) => Self::FixedWindow(state.refund(window, amount)),
            Self::SlidingWindow(state) => Self::SlidingWindow(state.refund(window, amount)),
        }
    }

    /// The byte form.
    pub fn to_bytes(self) -> StateBytes {
        let mut contents = [0; STATE_BYTES];
        let mut writer = Writer::new(&mut contents);
        let code = match self {
            Self::FixedWindow(state) => {
                writer.u32(state.window);
                writer.u40(state.count);
                CODE_FIXED_WINDOW
            }
            Self::SlidingWindow(state) => {
                writer.u32(state.window);
                writer.u40(state.current);
                writer.u40(state.previous);
                CODE_SLIDING_WINDOW
            }
        };
        StateBytes { kind: (VERSION << CODE_BITS) | code, contents }
    }

    /// Reads a byte form, trusting nothing.
    pub fn from_bytes(bytes: &StateBytes) -> Result<Self, BadState> {
        if bytes.kind >> CODE_BITS != VERSION {
            return Err(BadState);
        }
        let mut reader = Reader::new(&bytes.contents);
        let state = match bytes.kind & CODE_MASK {
            CODE_FIXED_WINDOW => {
                Self::FixedWindow(FixedWindow { window: reader.u32(), count: count(&mut reader)? })
            }
            CODE_SLIDING_WINDOW => Self::SlidingWindow(SlidingWindow {
                window: reader.u32(),
                current: count(&mut reader)?,
                previous: count(&mut reader)?,
            }),
            _ => return Err(BadState),
        };
        if reader.rest_is_zero() { Ok(state) } else { Err(BadState) }
    }
}

fn count(reader: &mut Reader<'_>) -> Result<u64, BadState> {
    let count = reader.u40();
    if count > REQUESTS_MAX { Err(BadState) } else { Ok(count) }
}
