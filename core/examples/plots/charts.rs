//! Charts as SVG: small panels side by side, one for each algorithm, all with the same traffic and the same axes.

use std::fmt::Write;
use std::num::NonZeroU64;
use tidegate_core::{Limit, LimitError, Moment, Take, Timestamp, Window};

const MINUTE_MS: u64 = 60_000;
const LIMIT: u64 = 100;
/// A full minute, where a window begins.
const START_MS: u64 = 1_700_000_040_000;

/// The client is quiet at first, then asks so often without a pause, half a window before an edge.
const QUIET_MS: u64 = 40_000;
const ASKS_EVERY_MS: u64 = 200;
const SHOWN_MS: u64 = 5 * MINUTE_MS;

const PANEL_WIDTH: f64 = 250.0;
const PANEL_HEIGHT: f64 = 120.0;
const GAP_X: f64 = 50.0;
const GAP_Y: f64 = 62.0;
const MARGIN_TOP: f64 = 66.0;
const COLUMNS: u32 = 3;

/// All files: names and contents.
pub(crate) fn all() -> Result<[(&'static str, String); 3], LimitError> {
    Ok([
        ("last-minute.svg", last_minute()?),
        ("when-admitted.svg", when_admitted()?),
        ("warm-up.svg", warm_up()?),
    ])
}

fn algorithms() -> Result<[(&'static str, Limit); 6], LimitError> {
    Ok([
        ("fixed_window", Limit::fixed_window(LIMIT, Window::Ms(MINUTE_MS))?),
        ("sliding_window (default)", Limit::sliding_window(LIMIT, MINUTE_MS)?),
        ("sliding_buckets, 6", Limit::sliding_buckets(LIMIT, MINUTE_MS, 6)?),
        ("sliding_log", Limit::sliding_log(LIMIT, MINUTE_MS)?),
        ("token_bucket", Limit::token_bucket(LIMIT, MINUTE_MS, LIMIT, 0)?),
        ("leaky_bucket", Limit::token_bucket(LIMIT, MINUTE_MS, 1, 0)?),
    ])
}

/// How many passed within the minute that ends at each second.
fn last_minute() -> Result<String, LimitError> {
    let mut chart = Chart::new(
        "Admitted within the last minute",
        "Limit: 100 a minute. One client, quiet for 40 s, then asking 5 times a second.",
        Axis { most: 220.0, step: 100.0, end_ms: SHOWN_MS, tick_ms: MINUTE_MS },
        6,
    );
    for (name, limit) in algorithms()? {
        let admitted = admitted(&limit, (QUIET_MS..SHOWN_MS).step_by(step(ASKS_EVERY_MS)));
        let count = |end: u64| admitted.iter().filter(|at| **at <= end && **at + MINUTE_MS > end).count();
        let points: Vec<(u64, f64)> =
            (0..=SHOWN_MS).step_by(1_000).map(|end| (end, number(count(end)))).collect();
        let most = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        chart.panel(&format!("{name}: at most {most:.0}"), Some(number_of(LIMIT)), |panel| {
            panel.line(&points);
        });
    }
    Ok(chart.finish())
}

/// How many passed in each 5 seconds.
fn when_admitted() -> Result<String, LimitError> {
    const BIN_MS: u64 = 5_000;
    let mut chart = Chart::new(
        "When requests are let through",
        "The same client: admitted in each 5 s, of 25 asked for.",
        Axis { most: 30.0, step: 10.0, end_ms: SHOWN_MS, tick_ms: MINUTE_MS },
        6,
    );
    for (name, limit) in algorithms()? {
        let admitted = admitted(&limit, (QUIET_MS..SHOWN_MS).step_by(step(ASKS_EVERY_MS)));
        chart.panel(name, None, |panel| {
            panel.bars(&binned(&admitted, SHOWN_MS, BIN_MS), BIN_MS);
        });
    }
    Ok(chart.finish())
}

/// A bucket that wakes up slowly, beside one that does not.
fn warm_up() -> Result<String, LimitError> {
    const SHOWN_MS: u64 = 40_000;
    let mut chart = Chart::new(
        "A bucket that warms up",
        "10 a second, burst 10. One client, asking 20 times a second: admitted in each second.",
        Axis { most: 24.0, step: 10.0, end_ms: SHOWN_MS, tick_ms: 10_000 },
        2,
    );
    for (name, warm_up_ms) in [("token_bucket", 0), ("token_bucket, \"warm_up\": \"20s\"", 20_000)] {
        let limit = Limit::token_bucket(10, 1_000, 10, warm_up_ms)?;
        let admitted = admitted(&limit, (0..SHOWN_MS).step_by(50));
        chart.panel(name, Some(10.0), |panel| {
            panel.bars(&binned(&admitted, SHOWN_MS, 1_000), 1_000);
        });
    }
    Ok(chart.finish())
}

/// When one client was let through, of those times at which it asked.
fn admitted(limit: &Limit, asked: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut state = None;
    let mut passes = |at: &u64| {
        let moment = Moment { now: Timestamp::from_ms(START_MS + at), shift: 0 };
        let (outcome, after) = limit.take(state.take(), moment, Take::all(NonZeroU64::MIN));
        state = Some(after);
        !outcome.is_refused()
    };
    asked.filter(|at| passes(at)).collect()
}

fn binned(times: &[u64], end_ms: u64, bin_ms: u64) -> Vec<f64> {
    let bins = 0..end_ms.div_euclid(bin_ms);
    bins.map(|bin| number(times.iter().filter(|at| at.div_euclid(bin_ms) == bin).count())).collect()
}

fn step(ms: u64) -> usize {
    usize::try_from(ms).unwrap_or(usize::MAX)
}

fn number(count: usize) -> f64 {
    number_of(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Small numbers only, which a float holds exactly.
fn number_of(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The axes that all panels of a chart share.
#[derive(Clone, Copy)]
struct Axis {
    /// The top of the upward axis, and the distance of its lines.
    most: f64,
    step: f64,
    end_ms: u64,
    tick_ms: u64,
}

struct Chart {
    svg: String,
    axis: Axis,
    panels: u32,
}

struct Panel<'c> {
    svg: &'c mut String,
    axis: Axis,
    left: f64,
    top: f64,
}

impl Chart {
    fn new(title: &str, subtitle: &str, axis: Axis, panels: u32) -> Self {
        let columns = f64::from(panels.min(COLUMNS));
        let rows = f64::from(panels.div_ceil(COLUMNS));
        let width = GAP_X + columns * (PANEL_WIDTH + GAP_X);
        let height = MARGIN_TOP + rows * (PANEL_HEIGHT + GAP_Y);
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#333\">\n\
             <title>{title}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text x=\"{GAP_X}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{title}</text>\n\
             <text x=\"{GAP_X}\" y=\"42\">{subtitle}</text>"
        );
        Self { svg, axis, panels: 0 }
    }

    /// Adds a panel with its title, its axes, a line for the limit if there is one, and what `draw` draws.
    fn panel(&mut self, title: &str, limit: Option<f64>, draw: impl FnOnce(&mut Panel<'_>)) {
        let left = GAP_X + f64::from(self.panels % COLUMNS) * (PANEL_WIDTH + GAP_X);
        let top = MARGIN_TOP + 20.0 + f64::from(self.panels.div_euclid(COLUMNS)) * (PANEL_HEIGHT + GAP_Y);
        self.panels += 1;
        let mut panel = Panel { svg: &mut self.svg, axis: self.axis, left, top };
        let title = title.replace('"', "&quot;");
        panel.text(left, top - 8.0, "start", &format!("<tspan font-weight=\"bold\">{title}</tspan>"));
        panel.grid();
        draw(&mut panel);
        if let Some(limit) = limit {
            let y = panel.y(limit);
            let right = left + PANEL_WIDTH;
            let _ = writeln!(
                panel.svg,
                "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#c0392b\" stroke-dasharray=\"4 3\"/>"
            );
            let _ = writeln!(
                panel.svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#c0392b\">limit</text>",
                right - 2.0,
                y - 4.0
            );
        }
    }

    fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

impl Panel<'_> {
    fn x(&self, at_ms: u64) -> f64 {
        self.left + PANEL_WIDTH * number_of(at_ms) / number_of(self.axis.end_ms)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + PANEL_HEIGHT * (1.0 - value / self.axis.most)
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let _ = writeln!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    fn grid(&mut self) {
        let mut value = 0.0;
        while value <= self.axis.most {
            let (y, left, right) = (self.y(value), self.left, self.left + PANEL_WIDTH);
            let _ = writeln!(self.svg, "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#ddd\"/>");
            self.text(left - 6.0, y + 4.0, "end", &format!("{value:.0}"));
            value += self.axis.step;
        }
        let (top, bottom) = (self.top, self.top + PANEL_HEIGHT);
        for at_ms in (0..=self.axis.end_ms).step_by(step(self.axis.tick_ms)) {
            let x = self.x(at_ms);
            let _ = writeln!(self.svg, "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"#eee\"/>");
            let seconds = at_ms.div_euclid(1_000);
            self.text(x, bottom + 16.0, "middle", &format!("{}:{:02}", seconds.div_euclid(60), seconds % 60));
        }
    }

    fn line(&mut self, points: &[(u64, f64)]) {
        let mut path = String::new();
        for (index, (at_ms, value)) in points.iter().enumerate() {
            let verb = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{verb}{:.1} {:.1}", self.x(*at_ms), self.y(*value));
        }
        let _ =
            writeln!(self.svg, "<path d=\"{path}\" fill=\"none\" stroke=\"#1f6fb2\" stroke-width=\"1.8\"/>");
    }

    fn bars(&mut self, values: &[f64], bin_ms: u64) {
        let base = self.y(0.0);
        let mut path = String::new();
        for (bin, value) in (0..).zip(values).filter(|(_, value)| **value > 0.0) {
            let (left, right, top) = (self.x(bin * bin_ms), self.x((bin + 1) * bin_ms) - 0.6, self.y(*value));
            let _ = write!(path, "M{left:.1} {base:.1}V{top:.1}H{right:.1}V{base:.1}Z");
        }
        let _ = writeln!(self.svg, "<path d=\"{path}\" fill=\"#1f6fb2\"/>");
    }
}
