//! A heat map as text: half-blocks in colour, or plain characters.

use std::fmt::Write;

use super::axis::{Tick, size_ticks, time_ticks};
use super::color::{self, Palette, Rgb};
use super::heatmap::{omitted, size};
use super::style::DAMAGED;
use super::words;
use crate::heatmap::{Cell, CellSupport, Heatmap, Panel};
use crate::units;

/// The capabilities of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// colours of 24 bits
    TrueColor,
    /// the 256 colours
    Ansi256,
    /// plain ASCII, for files and terminals without colour
    Plain,
}

/// Number of characters to the left of the cells.
const LEFT: usize = 11;
/// Characters of rates, from not touched to 1000 Hz and more, half a decade each.
const RAMP: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];
/// The same for rates of which most is extended, and for old ones.
const EXTENDED: [char; 9] = ['_', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
const OLD: [char; 9] = ['0', '1', '2', '3', '4', '5', '6', '7', '8'];
const UNKNOWN: Rgb = [0x87, 0x90, 0x9d];
const BLACK: Rgb = [0, 0, 0];
/// The colour with which extended rates are mixed, and old rates more strongly.
const FADED: Rgb = [0x80, 0x80, 0x80];

/// The heat map as lines that fit the [`GridSize`] for which its cells were made.
///
/// [`GridSize`]: crate::GridSize
#[must_use]
pub fn terminal(map: &Heatmap, style: Style) -> String {
    let columns = map.panels.first().map_or(0, |p| p.cells.columns());
    let several = map.panels.windows(2).any(|w| w[0].target != w[1].target);
    let mut out = cut(&map.title, LEFT + columns) + "\n";
    let mut painter = Painter { style, palette: Palette::new(), now: (None, None) };
    for panel in &map.panels {
        out += &cut(&title(panel, several), LEFT + columns);
        out.push('\n');
        painter.panel(&mut out, panel);
    }
    time_axis(&mut out, map, columns, style);
    painter.legend(&mut out, map);
    basis(&mut out, map, columns, style);
    out
}

fn title(panel: &Panel, several: bool) -> String {
    let label = if several { format!("{}: ", panel.label) } else { String::new() };
    format!("{label}{} {}, from {:#x}", panel.name, size(panel), panel.range.start)
}

fn cut(text: &str, width: usize) -> String {
    words::printable(text).chars().take(width).collect()
}

fn time_axis(out: &mut String, map: &Heatmap, columns: usize, style: Style) {
    let (ticks, unit) = time_ticks(map.basis.from_ms / 1e3, map.basis.to_ms / 1e3, columns / 9);
    let (line, mark) = if style == Style::Plain { ('-', '+') } else { ('─', '┴') };
    let mut axis = vec![line; columns];
    let mut labels = vec![' '; columns + LEFT];
    for (i, Tick { at, label }) in ticks.iter().enumerate() {
        let x = ((at * columns as f64) as usize).min(columns.saturating_sub(1));
        axis[x] = mark;
        let label = if i == 0 { format!("{label} {unit}") } else { label.clone() };
        // The last label ends at the end of the line.
        let start = (x + LEFT).min(labels.len().saturating_sub(label.len()));
        labels.splice(start..start + label.len(), label.chars());
    }
    let axis: String = axis.into_iter().collect();
    let labels: String = labels.into_iter().collect();
    let _ = writeln!(out, "{:LEFT$}{axis}\n{}", "", labels.trim_end());
}

/// The unknown memory, and the way to look.
fn basis(out: &mut String, map: &Heatmap, columns: usize, style: Style) {
    let gaps = words::gaps(&map.basis.gaps);
    if !gaps.is_empty() {
        let mark = if style == Style::Plain { 'x' } else { '╳' };
        let _ = writeln!(out, "{:LEFT$}{mark} {gaps}", "");
    }
    for line in [words::unknown(&map.basis), words::look(&map.basis)] {
        *out += &cut(&format!("{:LEFT$}{line}", ""), LEFT + columns);
        out.push('\n');
    }
}

/// Writes cells, and keeps the current colours to avoid repeated escape sequences.
struct Painter {
    style: Style,
    palette: Palette,
    now: (Option<Rgb>, Option<Rgb>),
}

impl Painter {
    fn panel(&mut self, out: &mut String, panel: &Panel) {
        let lines = panel.cells.rows().div_ceil(2);
        let labels = labels(panel, lines);
        for line in (0..lines).rev() {
            let _ = write!(out, "{:>1$} ", labels[line], LEFT - 1);
            for column in 0..panel.cells.columns() {
                let cell = |row| (panel.cells.get(column, row), panel.cells.support(column, row));
                self.pair(out, cell(2 * line + 1), cell(2 * line));
            }
            self.color(out, None, None);
            out.push('\n');
        }
    }

    /// Writes one character for two cells.
    fn pair(&mut self, out: &mut String, upper: Supported, lower: Supported) {
        if [upper.0, lower.0].contains(&Cell::Damaged) {
            let (front, back) = (Some(DAMAGED[1]), Some(DAMAGED[0]));
            return self.put(out, front, back, if self.style == Style::Plain { 'x' } else { '╳' });
        }
        if self.style == Style::Plain {
            return out.push(plain(upper).max(plain(lower)).1);
        }
        let cells = [upper.0, lower.0];
        if cells == [Cell::Unknown; 2] {
            return self.put(out, Some(BLACK), Some(UNKNOWN), '/');
        }
        match (self.shade(upper), self.shade(lower)) {
            (None, None) if cells.contains(&Cell::Absent) => {
                self.put(out, Some(UNKNOWN), None, '·')
            }
            (None, None) => self.put(out, None, None, ' '),
            (None, lower) => self.put(out, lower, None, '▄'),
            (upper, lower) => self.put(out, upper, lower, '▀'),
        }
    }

    fn put(&mut self, out: &mut String, front: Option<Rgb>, back: Option<Rgb>, c: char) {
        self.color(out, front, back);
        out.push(c);
    }

    /// The colour of a cell; `None`, which is the terminal's background, if it is not resident.
    fn shade(&self, (cell, support): Supported) -> Option<Rgb> {
        match cell {
            Cell::Damaged | Cell::Unmapped | Cell::Absent => None,
            Cell::Unknown => Some(UNKNOWN),
            Cell::Rate(hz) => Some(faded(self.palette.of_rate(hz), support)),
        }
    }

    fn color(&mut self, out: &mut String, front: Option<Rgb>, back: Option<Rgb>) {
        if self.style == Style::Plain || self.now == (front, back) {
            return;
        }
        self.now = (front, back);
        out.push_str("\x1b[0m");
        for (kind, color) in [(38, front), (48, back)] {
            let _ = match (color, self.style) {
                (None, _) => Ok(()),
                (Some(c), Style::Ansi256) => write!(out, "\x1b[{kind};5;{}m", ansi256(c)),
                (Some([r, g, b]), _) => write!(out, "\x1b[{kind};2;{r};{g};{b}m"),
            };
        }
    }

    fn legend(&mut self, out: &mut String, map: &Heatmap) {
        if self.style == Style::Plain {
            let ramp: String = RAMP[1..].iter().collect();
            let _ = write!(
                out,
                "{:LEFT$}. not touched   {ramp} 0.1 to 1000 Hz, hot: {} ({})\n{:LEFT$}? unknown   blank: not resident",
                "",
                RAMP[step(map.basis.hot_hz as f32)],
                units::hz(map.basis.hot_hz),
                "",
            );
        } else {
            self.bar(out, map.basis.hot_hz);
        }
        self.support_legend(out, map);
        let rest = omitted(map);
        if !rest.is_empty() {
            let _ = writeln!(out, "{:LEFT$}{rest}", "");
        }
    }

    /// The legend of rates that are not measured, if there are any, and the end of the line.
    fn support_legend(&mut self, out: &mut String, map: &Heatmap) {
        let all = [(CellSupport::Extended, EXTENDED, "extended"), (CellSupport::Old, OLD, "old")];
        let any = |support| map.panels.iter().any(|p| p.cells.any(support));
        for (support, ramp, name) in all.into_iter().filter(|(support, ..)| any(*support)) {
            out.push_str("   ");
            if self.style == Style::Plain {
                let ramp: String = ramp.iter().collect();
                let _ = write!(out, "{ramp} {name}");
                continue;
            }
            for place in [0.0, 0.5, 1.0] {
                self.put(out, Some(faded(color::at(place), support)), None, '█');
            }
            self.color(out, None, None);
            let _ = write!(out, " {name}");
        }
        out.push('\n');
    }

    fn bar(&mut self, out: &mut String, hot_hz: f64) {
        let _ = write!(out, "{:LEFT$}", "");
        self.put(out, Some(color::untouched()), None, '█');
        self.color(out, None, None);
        out.push_str(" not touched   0.1 ");
        for i in 0..24 {
            self.put(out, Some(color::at(f64::from(i) / 23.0)), None, '█');
        }
        self.color(out, None, None);
        let _ = write!(out, " 1000 Hz, hot: ");
        self.put(out, Some(color::of_rate(hot_hz)), None, '█');
        self.color(out, None, None);
        let _ = write!(out, " {}\n{:LEFT$}", units::hz(hot_hz), "");
        self.put(out, Some(BLACK), Some(UNKNOWN), '/');
        self.color(out, None, None);
        out.push_str(" unknown   · not resident");
    }
}

/// A cell, and the basis of its rate.
type Supported = (Cell, CellSupport);

fn faded(color: Rgb, support: CellSupport) -> Rgb {
    match support {
        CellSupport::NotSaid | CellSupport::Measured => color,
        CellSupport::Extended => color::mixed(color, FADED, 0.4),
        CellSupport::Old => color::mixed(color, FADED, 0.75),
    }
}

/// A cell's character, and its rank when two cells share a character.
fn plain((cell, support): Supported) -> (usize, char) {
    let ramp = match support {
        CellSupport::NotSaid | CellSupport::Measured => RAMP,
        CellSupport::Extended => EXTENDED,
        CellSupport::Old => OLD,
    };
    match cell {
        Cell::Damaged | Cell::Unmapped | Cell::Absent => (0, ' '),
        Cell::Unknown => (2, '?'),
        Cell::Rate(hz) if hz > 0.0 => (3 + step(hz), ramp[step(hz)]),
        Cell::Rate(_) => (1, ramp[0]),
    }
}

/// The index in [`RAMP`] of a nonzero rate.
fn step(hz: f32) -> usize {
    let steps = RAMP.len() - 1;
    1 + ((color::position(f64::from(hz)) * steps as f64) as usize).min(steps - 1)
}

/// The label of each line, in ascending order of address: an offset that starts in that line.
fn labels(panel: &Panel, lines: usize) -> Vec<String> {
    let mut labels = vec![String::new(); lines];
    for tick in size_ticks(panel.range.len(), lines / 3) {
        if let Some(label) = labels.get_mut((tick.at * lines as f64) as usize) {
            *label = tick.label;
        }
    }
    labels
}

/// The character of a measured rate in a heat map without colour.
#[must_use]
pub fn rate_char(hz: f32) -> char {
    plain((Cell::Rate(hz), CellSupport::Measured)).1
}

/// The nearest of the 6 x 6 x 6 colours of a terminal with 256.
#[must_use]
pub fn ansi256([r, g, b]: Rgb) -> usize {
    const LEVELS: [i32; 6] = [0, 95, 135, 175, 215, 255];
    let nearest = |v: u8| {
        (0..6).min_by_key(|&i: &usize| (LEVELS[i] - i32::from(v)).abs()).unwrap_or_default()
    };
    16 + 36 * nearest(r) + 6 * nearest(g) + nearest(b)
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
