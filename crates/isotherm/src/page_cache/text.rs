//! The figures as text.

use std::fmt::Write;

use isotherm_core::Thresholds;
use isotherm_report::{bytes, counted, printable};

use super::heat::MAX_WATCHED_FILES;
use super::page_use::PageUse;
use super::rows::{By, Row};

/// Width of a column.
const WIDTH: usize = 11;

/// The columns that options add.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// the rates of reads
    pub reads: bool,
    /// the heat
    pub heat: bool,
    /// for how long it was observed
    pub watched_ms: Option<u64>,
}

impl Shown {
    /// The cells of a row, or the heads of their columns.
    fn cells(self, rate: &str, heat: &[String; 4]) -> String {
        let rate = self.reads.then(|| rate.to_owned());
        let heat = self.heat.then(|| heat.iter().cloned());
        rate.into_iter()
            .chain(heat.into_iter().flatten())
            .map(|cell| format!("{cell:>WIDTH$}"))
            .collect()
    }
}

/// The sum, a table of the rows, and the number and the resident bytes of the remaining rows.
#[must_use]
pub fn table(total: &Row<'_>, rows: &[Row<'_>], rest: (u64, u64), by: By, shown: Shown) -> String {
    let mut out = format!(
        "{} cached of {}{}{}\n\n",
        bytes(total.pages.resident_bytes),
        counted(total.files, "file"),
        some(", dirty", total.pages.dirty_bytes),
        some(", evicted", total.pages.evicted_bytes),
    );
    let heads = ["resident", "of size", "dirty", "evicted", "read once", "read again", "mapped"];
    let more = shown.cells("read/s", &["hot", "warm", "cold", "unknown"].map(str::to_owned));
    let _ = write!(out, "{}{more}", cells(heads.map(str::to_owned)));
    let _ = writeln!(out, "  {}", if by == By::File { "file" } else { "   files  name" });
    for row in rows {
        let files = if by == By::File { String::new() } else { format!("{:>8}  ", row.files) };
        let heat = row.pages.heat;
        let heat = heat.map(|h| [h.hot_bytes, h.warm_bytes, h.cold_bytes, h.unknown_bytes]);
        let heat: [_; 4] = std::array::from_fn(|i| amount(heat.map(|parts| parts[i])));
        let rate = amount(row.pages.read_bytes_per_second);
        let more = shown.cells(&rate, &heat);
        let cells = cells(figures(&row.pages));
        let _ = writeln!(out, "{cells}{more}  {files}{}", printable(&row.name));
    }
    if rest.0 > 0 {
        // A page may be in several rows.
        let amount = if by == By::Process { String::new() } else { format!(", {}", bytes(rest.1)) };
        let _ = writeln!(out, "{} more{amount}: --limit shows them", rest.0);
    }
    out
}

/// The ages of the figures, unless they are new.
#[must_use]
pub fn ages(listed_ms_ago: u64, read_ms_ago: u64) -> String {
    if listed_ms_ago == 0 {
        return String::new();
    }
    format!(
        "\nAll files were listed {} s ago, and the first ones were read at most {} s ago: --budget.\n",
        listed_ms_ago.div_ceil(1000),
        read_ms_ago.div_ceil(1000)
    )
}

/// Remarks on memory that the figures do not contain, one sentence per line.
#[must_use]
pub fn remarks(total: &Row<'_>, by: By, of_reading: &[String], shown: Shown) -> String {
    let mut lines = of_reading.to_vec();
    if let Some(marks) = total.pages.marks {
        lines.push(
            "read once, read again: share of the cached pages that the kernel has marked so, from a sample of one \
             page in 64. Pages without a mark are unknown, not cold: writes and accesses through mappings leave none."
                .to_owned(),
        );
        if marks.active_bytes.is_none() {
            lines.push(
                "read again is unknown: MGLRU is on, and counts in bits that the kernel does not describe."
                    .to_owned(),
            );
        }
    }
    if shown.reads {
        lines.push(
            "read/s: bytes that system calls have read from the cache per second, from a sample of one page in 64. \
             Reads of tmpfs, O_DIRECT and accesses through mappings are not observed."
                .to_owned(),
        );
    }
    if let Some(ms) = shown.watched_ms {
        let Thresholds { hot_hz, cold_age } = Thresholds::default();
        lines.push(format!(
            "hot, warm, cold: by the accesses of the last {} s. Hot pages had {hot_hz} a second or more, cold ones none for \
             {} s. unknown: tmpfs and metadata, unmapped files before Linux 6.12, and files that are not among the \
             {MAX_WATCHED_FILES} with the most cached pages.",
            ms / 1000,
            cold_age.as_secs()
        ));
    }
    if shown.watched_ms.is_some() && by == By::Cgroup {
        let text = "The pages of each group are presumed to be as hot as the others of their file.";
        lines.push(text.to_owned());
    }
    if by == By::Process {
        lines.push("A file counts for each process that has it open or maps it.".to_owned());
    }
    lines.iter().map(|line| format!("\n{line}")).collect::<String>() + "\n"
}

fn some(what: &str, figure: Option<u64>) -> String {
    figure.filter(|n| *n > 0).map_or_else(String::new, |n| format!("{what} {}", bytes(n)))
}

fn cells(cells: [String; 7]) -> String {
    cells.iter().map(|cell| format!("{cell:>WIDTH$}")).collect()
}

fn amount(figure: Option<u64>) -> String {
    match figure {
        None => "?".to_owned(),
        Some(0) => "-".to_owned(),
        Some(n) => bytes(n),
    }
}

fn figures(p: &PageUse) -> [String; 7] {
    let gone = p.evicted_bytes.zip(p.swapped_bytes).map(|(a, b)| a + b).or(p.evicted_bytes);
    let marks = p.marks.filter(|m| m.sampled_bytes > 0);
    let mark = |part: Option<u64>| match (marks, part) {
        (Some(m), Some(part)) => share(part, m.sampled_bytes),
        _ if p.resident_bytes == 0 => "-".to_owned(),
        _ => "?".to_owned(),
    };
    [
        bytes(p.resident_bytes),
        share(p.resident_bytes, p.size_bytes),
        amount(p.dirty_bytes),
        amount(gone),
        mark(marks.map(|m| m.referenced_bytes)),
        mark(marks.and_then(|m| m.active_bytes)),
        p.mapped_bytes.map_or_else(|| "?".to_owned(), |n| share(n, p.resident_bytes)),
    ]
}

fn share(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "-".to_owned();
    }
    // The last page of a file is cached as a whole.
    format!("{:.0} %", (100.0 * part as f64 / whole as f64).min(100.0))
}
