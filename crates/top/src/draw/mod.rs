//! Draws the view.

mod ages;
mod heat;
mod help;
mod process;
mod table;
mod text;

use isotherm_report::time;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use crate::app::{App, KeyMode, ViewPage};
pub use text::printable;
use text::size;

/// The least size of a terminal, in characters.
const MIN_SIZE_CHARS: (u16, u16) = (40, 10);

/// Draws the state on a frame.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let area = frame.area();
    if area.width < MIN_SIZE_CHARS.0 || area.height < MIN_SIZE_CHARS.1 {
        let text =
            format!("the terminal is smaller than {} x {}", MIN_SIZE_CHARS.0, MIN_SIZE_CHARS.1);
        frame.render_widget(Line::raw(text), area);
        return;
    }
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)])
            .areas(area);
    draw_head(frame, app, head);
    match (&app.mode, &app.page) {
        (KeyMode::Help, _) => help::draw(frame, body),
        _ if app.moment().is_none() => {
            frame.render_widget(Line::raw("Waiting for the first snapshot ..."), body);
        }
        (_, ViewPage::Table) => table::draw(frame, app, body),
        (_, ViewPage::Process(id)) => process::draw(frame, app, *id, body),
    }
    draw_foot(frame, app, foot);
}

/// Two lines: all memory and the cost of watching; the limits of hot and cold, and the time that is shown.
fn draw_head(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let name = "isotherm";
    let mut first = name.to_owned();
    if let (Some(total), Some(moment)) = (&app.total, app.moment()) {
        let (heat, cost) = (&total.figures.heat, app.view().cost(moment));
        first += &format!(
            "  {} proc  hot {}  warm {}  cold {}  unkn {}  own {:.1} %  lost {:.1} %",
            total.processes,
            size(heat.hot),
            size(heat.warm),
            size(heat.cold),
            size(heat.unknown),
            cost.looking * 100.0,
            cost.lost * 100.0,
        );
        // A cut number would read as another one.
        if first.chars().count() > area.width.into() {
            first = first[name.len()..].trim_start().to_owned();
        }
    }
    let t = app.view().thresholds();
    let when = match (app.behind(), &app.ended) {
        (Some(behind), _) => format!("PAUSED at -{}", text::clock(behind)),
        (None, Some(why)) => format!("ENDED: {}", printable(why)),
        (None, None) => "live".to_owned(),
    };
    let second = format!(
        "hot from {} Hz, cold from {}  last {}  {when}{}",
        t.hot_hz,
        time(t.cold_age),
        time(app.length()),
        match app.marks {
            (None, _) => "",
            (Some(_), None) => "  mark set",
            (Some(_), Some(_)) => "  time marked",
        }
    );
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let lines = vec![Line::styled(first, bold), Line::raw(second)];
    frame.render_widget(ratatui::text::Text::from(lines), area);
}

fn draw_foot(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let line = match &app.mode {
        KeyMode::Filter(text) => {
            format!("filter: {}_  (Enter keeps it, Esc shows all)", printable(text))
        }
        KeyMode::Save(text) => format!("save to: {}_  (Enter saves, Esc cancels)", printable(text)),
        _ if !app.message.is_empty() => printable(&app.message),
        KeyMode::Help => "any key closes the help".to_owned(),
        KeyMode::Normal => match app.page {
            ViewPage::Table => {
                "? help  Enter open  Tab groups  s sort  / filter  space pause  q quit"
            }
            ViewPage::Process(_) => {
                "? help  Enter zoom  Esc back  space pause  m mark  w save  q quit"
            }
        }
        .to_owned(),
    };
    frame.render_widget(Line::styled(line, Style::new().add_modifier(Modifier::REVERSED)), area);
}
