//! The last events of a run, readable. A run that fails is run again with its trace on: it is the same run.

use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// How many lines are kept; with 0 none is even written.
    lines_max: usize,
    lines: VecDeque<String>,
    left_out: u64,
}

impl Trace {
    pub(crate) fn of(lines_max: usize) -> Self {
        Self { lines_max, ..Self::default() }
    }

    pub(crate) fn add(&mut self, line: impl FnOnce() -> String) {
        if self.lines_max == 0 {
            return;
        }
        if self.lines.len() == self.lines_max {
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
