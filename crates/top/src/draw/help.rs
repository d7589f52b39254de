//! The list of keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};

use crate::keys::HELP;

/// Draws the list.
pub fn draw(frame: &mut Frame<'_>, area: Rect) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let line = |(keys, does): &(&str, &str)| {
        Line::from(vec![Span::styled(format!(" {keys:<15} "), bold), Span::raw((*does).to_owned())])
    };
    let lines: Vec<Line<'_>> = HELP.iter().map(line).collect();
    frame.render_widget(Text::from(lines), area);
}
