//! The report by control group or process, as text.

use std::fmt::Write;

use super::words::{footer, head, printable, span};
use crate::groups::{GroupBytes, GroupRow, Groups};
use crate::units::bytes;

/// Width of a name, in characters.
const NAME_WIDTH: usize = 36;

/// The figures as text for people, with at most `top` rows: means and the last snapshot, or, with `over_time`,
/// the values of each row over time.
#[must_use]
pub fn groups_text(g: &Groups, top: usize, over_time: bool) -> String {
    let mut out = head(&g.title, &g.basis);
    let first = if g.by == "cgroup" { "control group" } else { "process" };
    let shown = g.rows.get(..top.min(g.rows.len())).unwrap_or_default();
    if over_time {
        shown.iter().for_each(|row| course(&mut out, row));
    } else {
        out += &heads(&format!("by {first}: mean"), true);
        for row in shown {
            line(&mut out, &row.label, &row.mean, Some(row.refaulted_bytes));
        }
        out.push('\n');
        out += &heads(&format!("by {first}: last"), false);
        shown.iter().for_each(|row| line(&mut out, &row.label, &row.last, None));
    }
    if g.rows.len() > shown.len() {
        let _ = writeln!(out, "and {} more: --top N", g.rows.len() - shown.len());
    }
    if g.others > 0 {
        let _ = writeln!(out, "(others): {} that came when there were too many", g.others);
    }
    if g.by == "cgroup" {
        out += "\na control group includes the groups below it";
    }
    out += "\nsaved: in swap; refaulted: one page for each major fault\n";
    out + &footer(&g.basis)
}

fn course(out: &mut String, row: &GroupRow) {
    *out += &heads(&row.label, true);
    for part in &row.over_time {
        let time = format!("{} to {}", span(part.from_ms), span(part.to_ms));
        line(out, &time, &part.mean, Some(part.refaulted_bytes));
    }
    out.push('\n');
}

fn heads(first: &str, refaulted: bool) -> String {
    let mut names = vec!["resident", "hot", "warm", "cold", "unknown", "saved"];
    names.extend(refaulted.then_some("refaulted"));
    columns(first, names.into_iter().map(str::to_owned))
}

fn line(out: &mut String, name: &str, s: &GroupBytes, refaulted: Option<Option<u64>>) {
    let or_dash = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), bytes);
    let sizes = [s.hot_bytes, s.warm_bytes, s.cold_bytes, s.unknown_bytes].map(bytes);
    let resident = s.resident_bytes.map_or_else(|| "?".to_owned(), bytes);
    let cells = std::iter::once(resident).chain(sizes).chain([or_dash(s.saved_bytes)]);
    *out += &columns(name, cells.chain(refaulted.map(or_dash)));
}

fn columns(name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!(" {cell:>10}")).collect();
    format!("{:<NAME_WIDTH$}{cells}\n", short(name))
}

/// The end of a long name, because it is more informative than the start.
fn short(name: &str) -> String {
    let name = printable(name);
    let len = name.chars().count();
    // One character is for a blank.
    if len < NAME_WIDTH {
        return name;
    }
    let end: String = name.chars().skip(len - NAME_WIDTH + 2).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::basis::BasisTally;
    use crate::filter::Options;
    use std::time::Duration;

    /// Every user to whom a part of the tree is delegated can create groups.
    #[test]
    fn a_name_does_not_steer_the_terminal() {
        assert_eq!(short("/a\u{1b}[2J\nb"), "/a\u{fffd}[2J\u{fffd}b");
    }

    #[test]
    fn names_and_figures_stand_in_columns() {
        let mean = GroupBytes {
            resident_bytes: Some(3 << 20),
            hot_bytes: 1 << 20,
            ..GroupBytes::default()
        };
        let row = |label: &str, saved| GroupRow {
            target: None,
            label: label.into(),
            cgroup: None,
            mean: GroupBytes { saved_bytes: saved, ..mean },
            last: mean,
            refaulted_bytes: saved,
            over_time: Vec::new(),
        };
        let long = "/kubepods.slice/kubepods-burstable.slice/pod-1234.scope";
        let g = Groups {
            schema_version: 1,
            title: "x".into(),
            basis: BasisTally::default()
                .basis(&Options::default(), &(Duration::ZERO..Duration::from_secs(5))),
            by: "cgroup",
            every_ms: 1000.0,
            rows: vec![row("/", Some(4096)), row(long, None), row("/b", None)],
            others: 0,
        };
        let text = groups_text(&g, 2, false);
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("3.0 MiB")).collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("/ ") && lines[0].ends_with("4.0 KiB    4.0 KiB"), "{text}");
        let cells: Vec<&str> = lines[1].split_whitespace().collect();
        let sizes = ["3.0", "MiB", "1.0", "MiB", "0", "B", "0", "B", "0", "B", "-", "-"];
        assert_eq!(cells[1..], sizes);
        assert!(cells[0].starts_with('…') && cells[0].ends_with("pod-1234.scope"), "{text}");
        let wide: Vec<usize> = lines[..2].iter().map(|l| l.chars().count()).collect();
        assert_eq!(wide[0], wide[1]);
        assert!(text.contains("and 1 more: --top N"), "{text}");
    }
}
