//! The table of processes or control groups.

use isotherm_view::{By, Column, Key, TableRow};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};

use super::text::{age, known, number, percent, size, sparkline};
use crate::app::App;

/// A column, its title and its width; the name has the least of its widths.
type ColumnLayout = (Column, &'static str, usize);
const COLUMNS: [ColumnLayout; 12] = [
    (Column::Name, "NAME", 12),
    (Column::Pid, "PID", 7),
    (Column::Resident, "RES", 5),
    (Column::Hot, "HOT", 5),
    (Column::Warm, "WARM", 5),
    (Column::Cold, "COLD", 5),
    (Column::Unknown, "UNKN", 5),
    (Column::OldestCold, "OLD", 4),
    (Column::Saved, "SAVED", 5),
    (Column::Refaults, "RF/S", 4),
    (Column::Pressure, "PSI%", 4),
    (Column::OwnCost, "OWN%", 4),
];
/// Least and greatest width of a sparkline.
const SPARK: (usize, usize) = (8, 60);

/// Draws the table: the sums over all processes, the titles, and a row for each.
pub fn draw(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let width = usize::from(area.width);
    let columns = columns(app, width);
    let fixed = fixed(&columns);
    let free = width.saturating_sub(fixed);
    let names = app.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let name = names.clamp(COLUMNS[0].2, free.saturating_sub(SPARK.0 + 2).max(COLUMNS[0].2));
    let spark = (width.saturating_sub(fixed + name + 2)).min(SPARK.1);
    let mut lines = vec![totals(app, width), titles(app, &columns, name, spark)];
    let height = usize::from(area.height).saturating_sub(lines.len());
    let selection = app.selection();
    let first = (selection + 1).saturating_sub(height);
    for (i, row) in app.rows.iter().enumerate().skip(first).take(height) {
        let text = line(app, row, &columns, name, spark);
        let selected = i == selection;
        let style =
            if selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        // The selection is visible on terminals without attributes too.
        let mark = if selected { '>' } else { ' ' };
        lines.push(Line::styled(format!("{mark}{text}"), style));
    }
    if app.rows.is_empty() {
        let none = if app.filter.is_empty() {
            "no process"
        } else {
            "nothing matches the filter: Esc shows all"
        };
        lines.push(Line::raw(none));
    }
    frame.render_widget(Text::from(lines), area);
}

/// The columns of a table of this width. Without room for all, the own cost is left out. If rows are sorted by it, it
/// is in the place of the pressure.
fn columns(app: &App, width: usize) -> Vec<ColumnLayout> {
    let has_room = width >= fixed(&COLUMNS) + COLUMNS[0].2 + SPARK.0 + 2;
    let left_out = if app.column == Column::OwnCost { Column::Pressure } else { Column::OwnCost };
    COLUMNS.into_iter().filter(|(column, ..)| has_room || *column != left_out).collect()
}

/// The width of all columns but the name, with a space before each.
fn fixed(columns: &[ColumnLayout]) -> usize {
    columns.iter().skip(1).map(|(.., width)| width + 1).sum()
}

/// The course of the memory of all processes.
fn totals(app: &App, width: usize) -> Line<'static> {
    let Some(span) = app.shown() else { return Line::default() };
    let part = (width / 3).saturating_sub(2);
    let course = |(name, column): (&str, Column)| {
        let label = format!("{name} ");
        let bars = part.saturating_sub(label.len()).min(SPARK.1);
        label + &sparkline(&app.view().series(&Key::All, column, &span, bars))
    };
    let all = [("hot", Column::Hot), ("cold", Column::Cold), ("refaults", Column::Refaults)];
    Line::raw(all.map(course).join("  "))
}

fn titles(app: &App, columns: &[ColumnLayout], name: usize, spark: usize) -> Line<'static> {
    let title = |(column, title, width): &ColumnLayout| {
        let sorted = *column == app.column;
        let title = match (*column, app.by) {
            (Column::Name, By::Cgroup) => "GROUP",
            (Column::Pid, By::Cgroup) => "PROCS",
            _ => title,
        };
        let arrow = if app.descending { "v" } else { "^" };
        // The arrow is never cut: rather the title.
        let room = if *column == Column::Name { title.len() } else { width - 1 };
        let text = if sorted { format!("{title:.room$}{arrow}") } else { title.to_owned() };
        if *column == Column::Name {
            format!(" {text:<name$}")
        } else {
            format!(" {text:>width$.width$}")
        }
    };
    let mut text: String = columns.iter().map(title).collect();
    if spark > 0 {
        text += &format!(" {:<spark$.spark$}", spark_title(spark_column(app)));
    }
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED))
}

/// The column whose course a row shows: that by which rows are sorted, if it has one.
fn spark_column(app: &App) -> Column {
    match app.column {
        Column::Name | Column::Pid => Column::Hot,
        column => column,
    }
}

fn spark_title(column: Column) -> &'static str {
    match column {
        Column::Resident => "resident",
        Column::Warm => "warm",
        Column::Cold => "cold",
        Column::Unknown => "unknown",
        Column::OldestCold => "oldest",
        Column::Saved => "saved",
        Column::Refaults => "refaults",
        Column::Pressure => "pressure",
        Column::OwnCost => "own cost",
        Column::Hot | Column::Name | Column::Pid => "hot",
    }
}

fn line(app: &App, row: &TableRow, columns: &[ColumnLayout], name: usize, spark: usize) -> String {
    let mut text = String::new();
    for (column, _, width) in columns {
        match column {
            // The end of the path of a group says more than its start.
            Column::Name => text += &format!("{:<name$}", tail(&app.label(row), name)),
            _ => text += &format!(" {:>width$.width$}", cell(app, row, *column)),
        }
    }
    if let (Some(span), 1..) = (app.shown(), spark) {
        text.push(' ');
        text += &sparkline(&app.view().series(&row.key, spark_column(app), &span, spark));
    }
    text
}

fn tail(text: &str, width: usize) -> String {
    let n = text.chars().count();
    if n <= width || !text.starts_with('/') {
        return text.chars().take(width).collect();
    }
    let rest: String = text.chars().skip(n + 2 - width).collect();
    format!("..{rest}")
}

fn cell(app: &App, row: &TableRow, column: Column) -> String {
    let f = &row.figures;
    match column {
        Column::Name => row.name.clone(),
        Column::Pid if matches!(row.key, Key::Cgroup(_)) => row.processes.to_string(),
        Column::Pid => row.pid.map(|pid| pid.to_string()).unwrap_or_default(),
        Column::Resident => known(app.view().missing().resident(f.heat.resident())),
        Column::Hot => size(f.heat.hot),
        Column::Warm => size(f.heat.warm),
        Column::Cold => size(f.heat.cold),
        Column::Unknown => size(f.heat.unknown),
        Column::OldestCold => f.oldest_cold.map_or_else(|| "-".to_owned(), age),
        Column::Saved => size(f.saved),
        Column::Refaults => number(row.refaults_per_second),
        Column::Pressure => row.pressure.map_or_else(|| "-".to_owned(), |p| format!("{p:.1}")),
        Column::OwnCost => percent(row.own_cpu),
    }
}
