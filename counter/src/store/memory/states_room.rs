//! How many bytes of states an answer may still tell.

use tidegate_config::wire::STATES_BYTES_MAX;
use tidegate_core::State;

/// What is left of [`STATES_BYTES_MAX`].
pub(super) struct StatesRoom {
    left: Option<usize>,
}

impl Default for StatesRoom {
    fn default() -> Self {
        Self { left: Some(STATES_BYTES_MAX) }
    }
}

impl StatesRoom {
    /// The state, if it has room: when one has none, no later one has.
    pub(super) fn take(&mut self, state: State) -> Option<State> {
        let bytes = 1 + state.contents().len();
        self.left = self.left.and_then(|left| left.checked_sub(bytes));
        self.left.map(|_| state)
    }

    /// Leaves of these what has room.
    pub(super) fn fit(&mut self, states: &mut [Option<State>]) {
        for state in states {
            *state = state.take().and_then(|state| self.take(state));
        }
    }
}
