//! The effects of settings, as text and as a picture.

use std::fmt::Write;

use super::RenderError;
use super::lines::lines_picture;
use super::picture::Picture;
use super::words::{heading, printable, span};
use crate::lines::{ChartLine, Lines, Plot};
use crate::units::{MIB, bytes, significant};
use crate::whatif::{WhatIf, WhatIfPoint, WhatIfRow};

/// Lines of the table over time.
const LINES: usize = 12;
/// Width of the bar of saved memory.
const BAR_WIDTH: usize = 12;

/// The effects of settings, as text for people.
#[must_use]
pub fn what_if_text(w: &WhatIf) -> String {
    let mut out = format!(
        "{}{} to {} of the record, played; a page takes {} us to page out, and {} us to come back\n\n",
        heading(&w.title),
        span(w.from_ms),
        span(w.to_ms),
        significant(w.page_out_us),
        significant(w.fault_us)
    );
    let width = w.settings.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(7);
    if w.sound().count() > 0 {
        let _ = writeln!(
            out,
            "  {:<width$}{:>12}{:>12}  {:<BAR_WIDTH$}{:>14}{:>14}{:>10}{:>10}{:>12}",
            "setting",
            "saved",
            "kept",
            "",
            "out a second",
            "back a second",
            "waiting",
            "acting",
            "quota full"
        );
    }
    let compares = w.sound().count() > 1;
    for row in &w.settings {
        let _ = match &row.refused {
            Some(why) => writeln!(out, "  {:<width$}  no figures: {why}", printable(&row.name)),
            None => writeln!(out, "{}", line(row, width, compares)),
        };
    }
    w.sound().for_each(|row| out += &tiers(row));
    let mut sound = w.sound();
    if let (Some(row), None) = (sound.next(), sound.next()) {
        out += &if row.tiers.is_empty() { over_time(row) } else { String::new() };
    }
    if w.sound().count() > 0 { out + &notes(w, compares) } else { out }
}

fn line(row: &WhatIfRow, width: usize, compares: bool) -> String {
    let share = row.saved_bytes as f64 / row.memory_bytes.max(1) as f64;
    let bar = "#".repeat((share * BAR_WIDTH as f64).round() as usize);
    format!(
        "{} {:<width$}{:>12}{:>12}  {bar:<BAR_WIDTH$}{:>14}{:>14}{:>10}{:>10}{:>12}",
        if row.is_best && compares { '*' } else { ' ' },
        printable(&row.name),
        bytes(row.saved_bytes),
        bytes(row.memory_bytes.saturating_sub(row.saved_bytes)),
        bytes(row.paged_out_bytes_per_second.round() as u64),
        bytes(row.returned_bytes_per_second.round() as u64),
        format!("{} %", significant(row.waiting_percent)),
        format!("{} %", significant(row.acting_percent)),
        format!("{} %", significant(row.quota_full_percent)),
    )
}

fn tiers(row: &WhatIfRow) -> String {
    if row.tiers.is_empty() {
        return String::new();
    }
    let mean = match row.access_ns {
        Some(ns) => format!("{} ns per access on average", significant(ns)),
        None => "no access was counted".to_owned(),
    };
    let mut out = format!(
        "\n{}: {mean}\n  {:<12}{:>10}{:>18}{:>18}\n",
        printable(&row.name),
        "tier",
        "access",
        "accesses a second",
        "down a second"
    );
    for tier in &row.tiers {
        let _ = writeln!(
            out,
            "  {:<12}{:>10}{:>18}{:>18}",
            bytes(tier.size_bytes),
            format!("{} ns", significant(tier.latency_ns)),
            significant(tier.accesses_per_second),
            bytes(tier.moved_down_bytes_per_second.round() as u64)
        );
    }
    out
}

fn over_time(row: &WhatIfRow) -> String {
    let mut out = format!(
        "\nover time\n  {:<20}{:>12}{:>12}{:>14}{:>14}\n",
        "from", "saved", "kept", "out a second", "back a second"
    );
    let each = row.over_time.len().div_ceil(LINES).max(1);
    for part in row.over_time.chunks(each) {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
        let mean = |of: fn(&WhatIfPoint) -> f64| {
            let sum: f64 = part.iter().map(|p| of(p) * (p.to_ms - p.from_ms)).sum();
            (sum / (last.to_ms - first.from_ms).max(1e-9)).round() as u64
        };
        let saved = mean(|p| p.saved_bytes as f64);
        let _ = writeln!(
            out,
            "  {:<20}{:>12}{:>12}{:>14}{:>14}",
            span(first.from_ms),
            bytes(saved),
            bytes(mean(|p| p.memory_bytes as f64).saturating_sub(saved)),
            bytes(mean(|p| p.paged_out_bytes_per_second)),
            bytes(mean(|p| p.returned_bytes_per_second))
        );
    }
    out
}

fn notes(w: &WhatIf, compares: bool) -> String {
    let mut out = String::from("\n");
    if compares {
        out += "*: no other setting saves as much, with as little that comes back.\n";
    }
    out += "saved: paged out, mean from when the minimum age could be reached. back: touched while it is paged out, \
            if the program goes on as in the record.\nwaiting: of the time of one thread. acting: of one CPU. \
            quota full: of the time, the quota is used up.\n";
    let step = w.sound().map(|row| row.step_ms).fold(0.0, f64::max);
    if step > 1e3 {
        let _ = writeln!(
            out,
            "The record was looked at every {} at most, with quotas for as long.",
            span(step)
        );
    }
    out += "Page cache that is read by system calls, sockets and page tables are not in these figures.\n";
    out
}

/// What settings would do, as a picture: the front of several, or one over time.
///
/// # Errors
/// If the built-in font cannot be read.
pub fn what_if_picture(w: &WhatIf) -> Result<Picture, RenderError> {
    let mut sound = w.sound();
    let lines = match (sound.next(), sound.next()) {
        (Some(row), None) => course(w, row),
        _ => front(w),
    };
    lines_picture(&lines)
}

fn title(w: &WhatIf, instead: &str) -> String {
    if w.title.is_empty() { instead.to_owned() } else { w.title.clone() }
}

fn front(w: &WhatIf) -> Lines {
    let at = |row: &WhatIfRow| {
        let back = row.returned_bytes_per_second / isotherm_core::PAGE_SIZE as f64;
        (row.saved_bytes as f64 / MIB, back)
    };
    let sorted = |best: bool| {
        let mut rows: Vec<&WhatIfRow> = w.sound().filter(|row| !best || row.is_best).collect();
        rows.sort_by_key(|row| row.saved_bytes);
        rows
    };
    let points = sorted(true).into_iter().map(at).collect();
    let mut lines = vec![ChartLine { name: "best settings".to_owned(), points }];
    let dot = |row: &&WhatIfRow| ChartLine { name: row.name.clone(), points: vec![at(row)] };
    lines.extend(sorted(false).iter().map(dot));
    let most = w.sound().map(|row| row.saved_bytes).max().unwrap_or(0);
    let least = w.sound().map(|row| row.saved_bytes).min().unwrap_or(0);
    let mark = |i: u64| {
        let x = least + (most - least) / 4 * i;
        (x as f64 / MIB, bytes(x))
    };
    Lines {
        title: title(w, "Saved and returning memory by setting"),
        note: "The line joins the best settings: no other setting saves as much with as few returning pages.".to_owned(),
        x: "saved memory".to_owned(),
        y: "returning pages per second".to_owned(),
        marks: (0..=4).map(mark).collect(),
        plots: vec![Plot { name: "returning pages".to_owned(), lines }],
        basis: basis(w),
    }
}

fn course(w: &WhatIf, row: &WhatIfRow) -> Lines {
    let line = |name: &str, of: fn(&WhatIfPoint) -> f64| ChartLine {
        name: name.to_owned(),
        points: row.over_time.iter().map(|p| (p.to_ms / 1e3, of(p))).collect(),
    };
    Lines {
        title: title(w, "Memory, as it would be"),
        note: format!("{}: {} saved on average.", row.name, bytes(row.saved_bytes)),
        x: "time".to_owned(),
        y: "MiB".to_owned(),
        marks: Vec::new(),
        plots: vec![Plot {
            name: "memory".to_owned(),
            lines: vec![
                line("kept", |p| (p.memory_bytes.saturating_sub(p.saved_bytes)) as f64 / MIB),
                line("without", |p| p.memory_bytes as f64 / MIB),
            ],
        }],
        basis: basis(w),
    }
}

fn basis(w: &WhatIf) -> String {
    format!("{} to {} of the record, played", span(w.from_ms), span(w.to_ms))
}
