//! Idle memory by age.

use isotherm_core::{PAGE_SIZE, TargetId};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};

use super::text::{age, size};
use crate::app::App;

/// Lower ends of the rows, in seconds.
const AGE_ROWS_S: [u64; 8] = [0, 1, 5, 10, 30, 60, 300, 1800];

/// Draws a bar for each span of ages, of memory that is resident or in swap.
pub fn draw(frame: &mut Frame<'_>, app: &App, target: TargetId, area: Rect) {
    let mut lines =
        vec![Line::styled(" IDLE FOR    MEMORY", Style::new().add_modifier(Modifier::UNDERLINED))];
    let ages = app.moment().and_then(|moment| app.view().ages(moment, target));
    let Some(ages) = ages else {
        lines.push(Line::raw(" not known yet: counted every 10 s"));
        return frame.render_widget(Text::from(lines), area);
    };
    let at_least = |seconds: u64| {
        (ages.idle.at_least(seconds as f64) + ages.swapped.at_least(seconds as f64))
            * PAGE_SIZE as f64
    };
    // The oldest rows are joined if there is no room for all.
    let rows = AGE_ROWS_S.len().min(usize::from(area.height).saturating_sub(1));
    let bytes = |i: usize| {
        let next = if i + 1 < rows { at_least(AGE_ROWS_S[i + 1]) } else { 0.0 };
        (at_least(AGE_ROWS_S[i]) - next).max(0.0)
    };
    let all: Vec<f64> = (0..rows).map(bytes).collect();
    let most = all.iter().fold(1.0, |a: f64, b| a.max(*b));
    let width = usize::from(area.width).saturating_sub(17) as f64;
    for (from, bytes) in AGE_ROWS_S.iter().zip(all) {
        let bar = "#".repeat((bytes / most * width).round() as usize);
        let from = age(std::time::Duration::from_secs(*from));
        lines.push(Line::raw(format!(" from {from:<5} {:>5} {bar}", size(bytes as u64))));
    }
    frame.render_widget(Text::from(lines), area);
}
