//! The last events of a run, readable. A run that fails is run again with its trace on: it is the same run.

use std::collections::VecDeque;

/// Lines kept.
const LINES_MAX: usize = 200;

#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    is_on: bool,
    lines: VecDeque<String>,
    left_out: u64,
}

impl Trace {
    pub(crate) fn on() -> Self {
        Self { is_on: true, ..Self::default() }
    }

    pub(crate) fn add(&mut self, line: impl FnOnce() -> String) {
        if !self.is_on {
            return;
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
            self.left_out += 1;
        }
        self.lines.push_back(line());
    }

    /// The text, with what was left out.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("… {} earlier events\n", self.left_out);
        for line in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}
