//! The heat of a process over time and address: two cells in each character.

use isotherm_core::TargetId;
use isotherm_report::{Cell, Cells, rate_char};
use isotherm_view::Area;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span, Text};

use super::text::{clock, known, printable, size};
use crate::app::App;
use crate::color::Colors;

/// Draws the areas of a process, highest addresses first, and the axis of time.
pub fn draw(frame: &mut Frame<'_>, app: &App, target: TargetId, area: Rect) {
    let (Some(moment), Some(span)) = (app.moment(), app.shown()) else { return };
    let columns = usize::from(area.width);
    let height = usize::from(area.height).saturating_sub(2);
    let areas = app.view().areas(moment, target, app.zoom, 2 * height);
    let mut lines = Vec::new();
    for part in &areas {
        let cells = app.view().cells(target, &span, part.range, (part.rows, columns));
        lines.push(Line::raw(title(part)));
        lines.extend((0..part.rows / 2).rev().map(|row| line(app.colors, &cells, row)));
    }
    if areas.is_empty() {
        lines.push(Line::raw("no memory at this time"));
    }
    lines.truncate(height);
    lines.push(axis(app, columns));
    lines.push(legend(app.colors));
    frame.render_widget(Text::from(lines), area);
}

fn title(area: &Area) -> String {
    let (name, len, resident) =
        (printable(&area.name), size(area.range.len()), known(area.resident));
    format!("{name} {len}, {resident} resident, from {:#x}", area.range.start)
}

/// A line of characters: for each column, the cells of rows 2 `row` and 2 `row` + 1.
fn line(colors: Colors, cells: &Cells, row: usize) -> Line<'static> {
    let pair = |column| (cells.get(column, 2 * row + 1), cells.get(column, 2 * row));
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (text, style) in (0..cells.columns()).map(|column| character(colors, pair(column))) {
        match spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push(text),
            _ => spans.push(Span::styled(text.to_string(), style)),
        }
    }
    Line::from(spans)
}

/// The character of an upper and a lower cell, and its colours.
fn character(colors: Colors, (upper, lower): (Cell, Cell)) -> (char, Style) {
    if colors == Colors::None {
        return (plain(upper, lower), Style::new());
    }
    match (shade(colors, upper), shade(colors, lower)) {
        (None, None) => {
            let absent = [upper, lower].contains(&Cell::Absent);
            (if absent { '·' } else { ' ' }, Style::new())
        }
        (None, Some(lower)) => ('▄', Style::new().fg(lower)),
        (Some(upper), None) => ('▀', Style::new().fg(upper)),
        (Some(upper), Some(lower)) => ('▀', Style::new().fg(upper).bg(lower)),
    }
}

fn shade(colors: Colors, cell: Cell) -> Option<Color> {
    match cell {
        Cell::Rate(hz) => colors.rate(hz),
        Cell::Unknown => colors.unknown(),
        Cell::Damaged | Cell::Unmapped | Cell::Absent => None,
    }
}

/// The character of the hotter cell.
fn plain(upper: Cell, lower: Cell) -> char {
    match (upper, lower) {
        (Cell::Rate(a), Cell::Rate(b)) => rate_char(a.max(b)),
        (Cell::Rate(hz), _) | (_, Cell::Rate(hz)) => rate_char(hz),
        (Cell::Unknown, _) | (_, Cell::Unknown) => '?',
        _ => ' ',
    }
}

/// The time at the borders and in the middle, before the end of the shown time.
fn axis(app: &App, columns: usize) -> Line<'static> {
    let behind = app.behind().unwrap_or_default();
    // The clock may be younger than the length.
    let length = app.shown().map_or(app.length(), |shown| shown.end.since(shown.start));
    let label = |part: u32| format!("-{}", clock(behind + length * part / 2));
    let (left, middle, right) = (label(2), label(1), label(0));
    let right = if behind.is_zero() { "now".to_owned() } else { right };
    let half = columns / 2;
    let rest = columns.saturating_sub(half);
    Line::raw(format!("{left:<half$}{middle:<}{right:>0$}", rest.saturating_sub(middle.len())))
}

fn legend(colors: Colors) -> Line<'static> {
    let rates: [f32; 6] = [0.0, 0.1, 1.0, 10.0, 100.0, 1000.0];
    if colors == Colors::None {
        let ramp: String = rates.iter().map(|hz| rate_char(*hz)).collect();
        return Line::raw(format!(
            "{ramp}: not touched, 0.1 to 1000 Hz   ? unknown   blank: not resident"
        ));
    }
    let block = |color: Option<Color>| {
        Span::styled("█", color.map_or(Style::new(), |c| Style::new().fg(c)))
    };
    let mut spans = vec![block(colors.rate(0.0)), Span::raw(" not touched  0.1 ")];
    spans.extend(rates[1..].iter().map(|hz| block(colors.rate(*hz))));
    spans.push(Span::raw(" 1000 Hz  "));
    spans.push(block(colors.unknown()));
    spans.push(Span::raw(" unknown  · not resident"));
    Line::from(spans)
}
