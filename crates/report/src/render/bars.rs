//! Quantities as lines of text with bars: their distribution, and their values over time.

use std::fmt::Write;

use super::words::{footer, head, span};
use crate::basis::Basis;
use crate::course::{Course, CourseColumn};
use crate::distribution::Percentile;
use crate::regions::Regions;
use crate::units::{self, bytes};
use crate::wss::Wss;

/// Widths of a name, a value and a bar, in characters.
const NAME_WIDTH: usize = 22;
const VALUE_WIDTH: usize = 13;
const BAR_WIDTH: usize = 42;
/// Number of lines of a table over time.
const LINES: usize = 25;

/// A quantity, and the character of its bar.
struct Series<'a> {
    name: &'a str,
    mark: char,
    course: &'a Course,
}

/// Quantities with the same unit, in ascending order: each is drawn over the later ones.
struct Table<'a> {
    series: Vec<Series<'a>>,
    number: fn(u64) -> String,
    /// the value of a full bar
    whole: u64,
}

/// The working set as text for people: its percentiles, or its values over time.
#[must_use]
pub fn wss_text(wss: &Wss, over_time: bool) -> String {
    let series = |name, mark, course| Series { name, mark, course };
    let table = Table {
        series: vec![
            series("hot", '#', &wss.hot_bytes),
            series("touched", '*', &wss.touched_bytes),
            series("working set", '-', &wss.working_set_bytes),
        ],
        number: bytes,
        whole: wss.working_set_bytes.max(),
    };
    let mut out = head(&wss.title, &wss.basis);
    out += &table.text(&wss.basis, over_time);
    out += "\ntouched: the touched part of regions with an access seen in the snapshot\n\
            working set: hot and warm: touched within the time after which memory is cold\n";
    out += exactness(wss.working_set_bytes.exact);
    out + &footer(&wss.basis)
}

/// The number of regions as text for people: its percentiles, or its values over time; and the sizes of
/// regions.
#[must_use]
pub fn regions_text(r: &Regions, over_time: bool) -> String {
    let table = Table {
        series: vec![Series { name: "regions", mark: '#', course: &r.regions }],
        number: units::count,
        whole: r.regions.max().max(r.max_regions.into()),
    };
    let mut out = head(&r.title, &r.basis);
    out += &table.text(&r.basis, over_time);
    let _ = writeln!(
        out,
        "\nallowed: {} to {} over all targets; more in {} of {} snapshots. A bar ends at what is allowed",
        units::count(r.min_regions.into()),
        units::count(r.max_regions.into()),
        units::count(r.snapshots_above_max),
        units::count(r.basis.snapshots),
    );
    out += exactness(r.regions.exact);
    let _ = writeln!(out, "\n{:<NAME_WIDTH$}{:>VALUE_WIDTH$}", "part of the regions", "size");
    for p in &r.sizes.percentiles {
        let _ = writeln!(out, "{:<NAME_WIDTH$}{:>VALUE_WIDTH$}", part(p), bytes(p.value));
    }
    let _ = writeln!(out, "{:<NAME_WIDTH$}{:>VALUE_WIDTH$}", "mean", bytes(r.sizes.mean_bytes));
    out += exactness(r.sizes.exact);
    out + &footer(&r.basis)
}

fn exactness(exact: bool) -> &'static str {
    if exact { "" } else { "so many values: percentiles are off by up to a thousandth, upwards\n" }
}

fn part(p: &Percentile) -> String {
    format!("{} %", units::significant(p.percent))
}

impl Table<'_> {
    fn text(&self, basis: &Basis, over_time: bool) -> String {
        if over_time { self.over_time(basis) } else { self.distribution() }
    }

    fn distribution(&self) -> String {
        let mut out = self.heads("part of the time");
        let Some(first) = self.series.first() else { return out };
        for (i, p) in first.course.percentiles.iter().enumerate() {
            let value = |s: &Series| s.course.percentiles.get(i).map_or(0, |p| p.value);
            out += &self.line(&part(p), &self.series.iter().map(value).collect::<Vec<_>>());
        }
        let means: Vec<u64> = self.series.iter().map(|s| s.course.mean).collect();
        out + &self.line("mean", &means)
    }

    fn over_time(&self, basis: &Basis) -> String {
        let mut out = self.heads("time, mean");
        let columns: Vec<_> = self.series.iter().map(|s| s.course.columns(basis, LINES)).collect();
        let width = (basis.to_ms - basis.from_ms) / LINES as f64;
        for i in 0..LINES {
            let mean =
                |c: &Vec<Option<CourseColumn>>| Some(c.get(i).copied()??.mean.round() as u64);
            let values: Option<Vec<u64>> = columns.iter().map(mean).collect();
            let from = basis.from_ms + i as f64 * width;
            let name = format!("{} to {}", span(from), span(from + width));
            out += &values.map_or(format!("{name}\n"), |values| self.line(&name, &values));
        }
        out
    }

    fn heads(&self, first: &str) -> String {
        let names: String =
            self.series.iter().map(|s| format!("{:>VALUE_WIDTH$}", s.name)).collect();
        let marks: Vec<_> = self.series.iter().map(|s| format!("{} {}", s.mark, s.name)).collect();
        format!("{first:<NAME_WIDTH$}{names}  {}\n", marks.join("  "))
    }

    fn line(&self, name: &str, values: &[u64]) -> String {
        let numbers: String =
            values.iter().map(|&v| format!("{:>VALUE_WIDTH$}", (self.number)(v))).collect();
        format!("{name:<NAME_WIDTH$}{numbers}  |{}|\n", self.bar(values))
    }

    fn bar(&self, values: &[u64]) -> String {
        let length =
            |v: u64| (v as f64 / self.whole.max(1) as f64 * BAR_WIDTH as f64).round() as usize;
        let mark = |x: usize| {
            let mut marks = self.series.iter().zip(values).filter(|(_, v)| x < length(**v));
            marks.next().map_or(' ', |(s, _)| s.mark)
        };
        (0..BAR_WIDTH).map(mark).collect()
    }
}
