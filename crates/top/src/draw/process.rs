//! The page of a process: its heat over time and address, its mappings, and its idle ages.

use isotherm_core::TargetId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};

use super::text::{known, number, printable, size};
use super::{ages, heat};
use crate::app::App;

/// Least width of the mappings; where there is more room, ages are next to them.
const MAPS: u16 = 50;

/// Draws the page.
pub fn draw(frame: &mut Frame<'_>, app: &App, target: TargetId, area: Rect) {
    let below = (area.height / 3).clamp(4, 14);
    let [title, map, below] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(below)])
            .areas(area);
    let name = printable(&app.view().name(target));
    let pid = app.view().target(target).and_then(|fact| fact.pid);
    let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    let zoom = app.zoom.map(|z| format!("  {z:?}, Esc shows all")).unwrap_or_default();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Line::styled(format!("{name}{pid}{zoom}"), bold), title);
    heat::draw(frame, app, target, map);
    let [maps, histogram] =
        Layout::horizontal([Constraint::Min(MAPS), Constraint::Percentage(38)]).areas(below);
    mappings(frame, app, maps);
    ages::draw(frame, app, target, histogram);
}

fn mappings(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let name = usize::from(area.width).saturating_sub(33);
    let head = format!(
        " {:<name$} {:>5} {:>5} {:>5} {:>5} {:>6}",
        "MAPPING", "RES", "HOT", "COLD", "UNKN", "MAX Hz"
    );
    let mut lines = vec![Line::styled(head, Style::new().add_modifier(Modifier::UNDERLINED))];
    let height = usize::from(area.height).saturating_sub(1);
    let first = (app.map + 1).saturating_sub(height);
    for (i, m) in app.maps.iter().enumerate().skip(first).take(height) {
        let text = format!(
            "{}{:<name$.name$} {:>5} {:>5} {:>5} {:>5} {:>6}",
            if i == app.map { '>' } else { ' ' },
            printable(isotherm_report::short_name(&m.name)),
            known(app.view().missing().resident(m.heat.resident())),
            size(m.heat.hot),
            size(m.heat.cold),
            size(m.heat.unknown),
            number(m.hottest_hz.into()),
        );
        let style =
            if i == app.map { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        lines.push(Line::styled(text, style));
    }
    frame.render_widget(Text::from(lines), area);
}
