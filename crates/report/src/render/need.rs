//! How much memory is needed, as text and as a picture.

use std::fmt::Write;

use super::RenderError;
use super::lines::lines_picture;
use super::picture::Picture;
use super::words::{heading, printable, span};
use crate::lines::{ChartLine, Lines, Plot};
use crate::need::{
    CacheNeed, CacheRow, NEEDED_PERCENT, Need, NeedPoint, NeedRow, RequiredMemory, ScanRow,
    SuggestedLimits,
};
use crate::units::{MIB, bytes, percent, significant};

/// Memory that may count more than once is printed from this share of all memory on.
const MIN_SHARED_PERCENT: f64 = 1.0;
/// Maximum number of scanned files in the text.
const MAX_SCANS: usize = 10;
/// Length of a bar for all memory.
const BAR_WIDTH: usize = 24;

/// The need as text for people.
#[must_use]
pub fn need_text(n: &Need) -> String {
    match &n.cache {
        Some(cache) if n.needs.is_empty() => cache_text(n, cache),
        Some(cache) => idle_text(n) + "\n" + &cache_text(n, cache),
        None => idle_text(n),
    }
}

fn cache_text(n: &Need, c: &CacheNeed) -> String {
    let mut out = format!(
        "{}{} to {} of the record; the page cache of {} file{}\n\n",
        heading(&n.title),
        span(n.from_ms),
        span(n.to_ms),
        c.files,
        if c.files == 1 { "" } else { "s" }
    );
    if let Some(why) = &c.refused {
        let _ = writeln!(out, "no answer: {}", printable(why));
    }
    if let Some(v) = &c.verdict {
        let _ = writeln!(
            out,
            "it needs {} for a hit ratio of {}: at most 1 point below that of a cache for all {}",
            bytes(v.cache_bytes),
            cache_hits(v),
            bytes(c.accessed_bytes)
        );
    }
    if let Some(now) = &c.now {
        let _ = writeln!(
            out,
            "  now it has {}: {}, {} a second from the disk",
            bytes(now.cache_bytes),
            cache_hits(now),
            from_disk(now)
        );
    }
    if !c.curve.is_empty() {
        out += &cache_table(c);
    }
    out
}

/// `98.1 % (97.4 to 98.7 %)`.
fn cache_hits(row: &CacheRow) -> String {
    let [low, high] = [row.hit_low_percent, row.hit_high_percent];
    format!("{:.1} % ({low:.1} to {high:.1} %)", row.hit_percent)
}

fn from_disk(row: &CacheRow) -> String {
    bytes(row.disk_bytes_per_second.round() as u64)
}

/// The hit ratio of caches of several sizes.
fn cache_table(c: &CacheNeed) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "  {:.0} pages read a second; one page in {} sampled",
        c.reads_per_second, c.sampled_one_in
    );
    let _ = writeln!(
        out,
        "  {:>12}{:>12}{:>22}{:>24}",
        "page cache", "hit ratio", "95 % interval", "from the disk a second"
    );
    for row in &c.curve {
        let _ = writeln!(
            out,
            "  {:>12}{:>12}{:>22}{:>24}",
            bytes(row.cache_bytes),
            format!("{:.1} %", row.hit_percent),
            format!("{:.1} to {:.1} %", row.hit_low_percent, row.hit_high_percent),
            from_disk(row)
        );
    }
    out += "\nhit ratio: pages read from the cache, of all pages that are read, in the second half of the record. \
            The cache is presumed to hold only these files, by the kernel's rules without MGLRU.\n";
    if !c.scans.is_empty() {
        out += &scans_text(&c.scans);
    }
    out
}

fn scans_text(scans: &[ScanRow]) -> String {
    let mut out = format!(
        "\nfiles that were read in sequence, and their effect in a cache of the present size\n  {:>12}{:>12}{:>16}{:>16}  file\n",
        "brought in", "read once", "evicted others", "of it missed"
    );
    for scan in scans.iter().take(MAX_SCANS) {
        let _ = writeln!(
            out,
            "  {:>12}{:>12}{:>16}{:>16}  {}",
            bytes(scan.brought_in_bytes),
            bytes(scan.read_once_bytes),
            bytes(scan.evicted_bytes),
            bytes(scan.missed_bytes),
            printable(&scan.name)
        );
    }
    if let Some(more) = scans.len().checked_sub(MAX_SCANS + 1) {
        let _ = writeln!(out, "  and {} more", more + 1);
    }
    out + "evicted others: pages of other files that left the cache for these. Of it missed: those that were read again \
           later.\n"
}

fn idle_text(n: &Need) -> String {
    let mut out = format!(
        "{}{} to {} of the record; at most {} % of the working set may come back each minute\n",
        heading(&n.title),
        span(n.from_ms),
        span(n.to_ms),
        significant(n.objective_percent_per_minute)
    );
    out += &match n.ended_targets {
        0 => String::new(),
        1 => "a target has ended: its idle memory does not count, and limits leave room for it\n"
            .to_owned(),
        n => format!(
            "{n} targets have ended: their idle memory does not count, and limits leave room for them\n"
        ),
    };
    // Without ages, the reason is the same for all targets.
    let rows = match n.needs.iter().all(|row| row.counted_ms == 0.0) {
        true => n.needs.get(..1).unwrap_or_default(),
        false => &n.needs,
    };
    for row in rows {
        if rows.len() > 1 {
            let _ = write!(out, "\n{}", printable(&row.label));
        }
        out += "\n";
        out += &verdict(row);
        out += &curve(row);
    }
    let _ = writeln!(
        out,
        "\nsaved: idle for this time or longer. back: touched after that, if it goes on as in the record. \
         waiting: at {} us for a page.\nThese figures do not contain sockets, page tables, or page cache that is \
         read by system calls, unless its files are targets.",
        significant(n.fault_us)
    );
    out
}

fn verdict(row: &NeedRow) -> String {
    let all = row.known_bytes + row.unknown_bytes;
    let mut out = match (&row.verdict, &row.refused) {
        (Some(v), _) => answer(row, v),
        (None, Some(why)) => format!("no answer: {}\n", printable(why)),
        (None, None) => String::new(),
    };
    if row.counted_ms == 0.0 {
        return out;
    }
    let parts = [
        ("in swap or evicted", row.swapped_bytes),
        ("in huge pages", row.huge_bytes),
        ("unknown", row.unknown_bytes),
    ];
    let named: Vec<String> =
        parts.iter().filter(|p| p.1 > 0).map(|(name, n)| format!("{} {name}", bytes(*n))).collect();
    let named =
        if named.is_empty() { String::new() } else { format!(", including {}", named.join(", ")) };
    let _ = writeln!(
        out,
        "  it has {} on average{named}, and {} at most; ages were counted for {}, accurate to {}",
        bytes(all),
        bytes(row.most_bytes),
        span(row.counted_ms),
        span(row.error_ms)
    );
    if percent(row.counted_again_bytes as f64, all as f64) >= MIN_SHARED_PERCENT {
        let _ = writeln!(
            out,
            "  up to {} of it may count more than once: files and shared memory that several targets map",
            bytes(row.counted_again_bytes)
        );
    }
    if row.ended_bytes > 0 {
        let _ = writeln!(
            out,
            "  targets that have ended had {} at once: the limits have room for it",
            bytes(row.ended_bytes)
        );
    }
    out
}

fn answer(row: &NeedRow, v: &RequiredMemory) -> String {
    let p = &v.at;
    let all = p.kept_bytes + p.saved_bytes;
    let mut out = format!(
        "it needs {} ({} to {}) in {NEEDED_PERCENT} % of the time, and on average {} of {}\n  \
         {} can be given up on average ({:.0} %): it is idle for {} or longer\n",
        bytes(v.needed_bytes),
        bytes(v.low_bytes),
        bytes(v.high_bytes),
        bytes(p.kept_bytes),
        bytes(all),
        between(v, |p| bytes(p.saved_bytes)),
        percent(p.saved_bytes as f64, all as f64),
        span(p.idle_ms.round()),
    );
    if v.high_is_most && v.low_bytes < v.high_bytes {
        out += "  the upper end is the most memory at once: the record is too short to exclude that all of it is needed\n";
    }
    let _ = writeln!(
        out,
        "  {} a minute of it come back\n  the cost: it waits for that in {} of the time, and paging it out again \
         takes {} of a CPU",
        between(v, |p| bytes((p.returned_bytes_per_second * 60.0).round() as u64)),
        between(v, |p| format!("{} %", significant(p.waiting_percent))),
        between(v, |p| format!("{} %", significant(p.acting_percent)))
    );
    if v.is_cliff {
        out += "  a cliff: with 5 % less, more than ten times as much may come back; lower a limit in steps\n";
    }
    if row.huge_bytes * 2 > row.known_bytes {
        out += "  most of it is in huge pages, of which only a whole one is idle: with small pages more may be\n";
    }
    let of = |value: fn(&SuggestedLimits) -> u64| {
        let [low, at, high] = [v.low_limits, v.limits, v.high_limits].map(|l| bytes(value(&l)));
        if low == high { at } else { format!("{at} ({low} to {high})") }
    };
    let _ = writeln!(
        out,
        "  memory.high, Kubernetes request: {}\n  memory.max, Kubernetes limit: {}\n  instance: {}",
        of(|l| l.memory_high_bytes),
        of(|l| l.memory_max_bytes),
        of(|l| l.instance_bytes)
    );
    out
}

/// A figure of the answer with its interval.
fn between(v: &RequiredMemory, figure: fn(&NeedPoint) -> String) -> String {
    let [least, at, most] = [&v.at_least, &v.at, &v.at_most].map(figure);
    if least == most { at } else { format!("{at} ({least} to {most})") }
}

fn curve(row: &NeedRow) -> String {
    if row.curve.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "  {:<10}{:>12}{:>12}{:>14}{:>14}{:>10}  # kept\n",
        "idle for", "saved", "kept", "back a second", "% a minute", "waiting"
    );
    for p in &row.curve {
        let _ = writeln!(
            out,
            "  {:<10}{:>12}{:>12}{:>14}{:>14}{:>10}  |{:<BAR_WIDTH$}|",
            span(p.idle_ms),
            bytes(p.saved_bytes),
            bytes(p.kept_bytes),
            bytes(p.returned_bytes_per_second.round() as u64),
            significant(p.returned_percent_per_minute),
            format!("{} %", significant(p.waiting_percent)),
            "#".repeat(bar_length(p))
        );
    }
    out
}

/// Length of the bar for the kept memory.
fn bar_length(p: &NeedPoint) -> usize {
    let all = (p.kept_bytes + p.saved_bytes).max(1);
    (p.kept_bytes as f64 / all as f64 * BAR_WIDTH as f64).round() as usize
}

/// A picture of the returning memory over the kept memory. It shows the first row: all targets together.
///
/// # Errors
/// If the built-in font cannot be read.
pub fn need_picture(n: &Need) -> Result<Picture, RenderError> {
    match &n.cache {
        Some(cache) if n.needs.is_empty() => cache_picture(n, cache),
        _ => idle_picture(n),
    }
}

/// A picture of the hit ratio over the size of the page cache.
fn cache_picture(n: &Need, c: &CacheNeed) -> Result<Picture, RenderError> {
    let line = |name: &str, of: fn(&CacheRow) -> f64| ChartLine {
        name: name.to_owned(),
        points: c.curve.iter().map(|row| (row.cache_bytes as f64 / MIB, of(row))).collect(),
    };
    let mut lines = vec![
        line("hit ratio", |row| row.hit_percent),
        line("95 % interval, low", |row| row.hit_low_percent),
        line("high", |row| row.hit_high_percent),
    ];
    let point = |row: &CacheRow| vec![(row.cache_bytes as f64 / MIB, row.hit_percent)];
    if let Some(now) = &c.now {
        lines.push(ChartLine {
            name: format!("now {}", bytes(now.cache_bytes)),
            points: point(now),
        });
    }
    let last = c.curve.last().map_or(0, |row| row.cache_bytes);
    let mark = |i: u64| (last as f64 / MIB * i as f64 / 4.0, bytes(last / 4 * i));
    let note = match (&c.verdict, &c.refused) {
        (Some(v), _) => format!(
            "{} give a hit ratio of {:.1} %, at most 1 point below that of a cache for all pages.",
            bytes(v.cache_bytes),
            v.hit_percent
        ),
        (None, Some(why)) => printable(why).to_string(),
        (None, None) => String::new(),
    };
    lines_picture(&Lines {
        title: match n.title.is_empty() {
            true => "Hit ratio of the page cache".to_owned(),
            false => n.title.clone(),
        },
        note,
        x: "size of the page cache".to_owned(),
        y: "hit ratio in percent".to_owned(),
        marks: (0..=4).map(mark).collect(),
        plots: vec![Plot { name: "hit ratio".to_owned(), lines }],
        basis: format!("{} to {} of the record", span(n.from_ms), span(n.to_ms)),
    })
}

fn idle_picture(n: &Need) -> Result<Picture, RenderError> {
    let row = n.needs.first();
    let curve = row.map(|r| r.curve.as_slice()).unwrap_or_default();
    let at = |p: &NeedPoint| (p.kept_bytes as f64 / MIB, p.returned_bytes_per_second / MIB * 60.0);
    let mut points: Vec<(f64, f64)> = curve.iter().map(at).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all = row.map_or(0.0, |r| (r.known_bytes + r.unknown_bytes) as f64 / MIB);
    points.push((all, 0.0));
    let mut lines = vec![ChartLine { name: "comes back".to_owned(), points }];
    let verdict = row.and_then(|r| r.verdict.as_ref());
    if let Some(v) = verdict {
        let name = format!("needs {} on average", bytes(v.at.kept_bytes));
        lines.push(ChartLine { name, points: vec![at(&v.at)] });
    }
    let marks = (0..=4).map(|i| {
        let from = lines[0].points.first().map_or(0.0, |p| p.0);
        let x = from + (all - from) * f64::from(i) / 4.0;
        (x, bytes((x * MIB) as u64))
    });
    let note = match verdict {
        Some(v) => format!(
            "{} can be given up on average: it is idle for {} or longer. In {NEEDED_PERCENT} % of the time {} are needed.",
            bytes(v.at.saved_bytes),
            span(v.at.idle_ms.round()),
            bytes(v.needed_bytes)
        ),
        None => "The record gives no answer: see the report as text.".to_owned(),
    };
    lines_picture(&Lines {
        title: match n.title.is_empty() {
            true => "How much memory it needs".to_owned(),
            false => n.title.clone(),
        },
        note,
        x: "memory that is kept".to_owned(),
        y: "MiB that come back a minute".to_owned(),
        marks: marks.collect(),
        plots: vec![Plot { name: "what comes back".to_owned(), lines }],
        basis: format!("{} to {} of the record", span(n.from_ms), span(n.to_ms)),
    })
}
