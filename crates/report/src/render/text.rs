//! A summary as text.

use std::fmt::Write;

use isotherm_core::PAGE_SIZE;

use super::words::{self, gaps_line, heading, looked, printable, span};
use crate::names::short;
use crate::summary::{Bytes, MappingRow, MonitorFigures, Summary, TargetRow};
use crate::units::{self, bytes, percent};

/// A mapping with a smaller share of the resident memory is small.
const SMALL_PART: f64 = 0.001;
/// Smallest width of the column of names, in characters.
const NAME_WIDTH: usize = 24;
/// Maximum length of the name of a target. Files may differ only at the end of their paths, and by kind of access.
const MAX_LABEL_CHARS: usize = 60;
/// Maximum number of targets in the text.
const MAX_TARGETS: usize = 1000;
/// Width of a size, in characters.
const SIZE_WIDTH: usize = 11;

/// The summary as text for people, with at most `top` mappings.
#[must_use]
pub fn summary_text(s: &Summary, top: usize) -> String {
    let mut out = head(s);
    out += &heat(s);
    out += &working_set(s);
    if s.targets.len() > 1 {
        let mut rows: Vec<_> = s.targets.iter().map(|t| (t.label.clone(), &t.bytes)).collect();
        let more = rows.len().saturating_sub(MAX_TARGETS);
        if more > 0 {
            rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(bytes.resident_bytes));
            rows.truncate(MAX_TARGETS);
        }
        out += &table("by target", MAX_LABEL_CHARS, rows.into_iter());
        if more > 0 {
            let _ =
                writeln!(out, "  and {} more, each with less memory", units::count(more as u64));
        }
    }
    out += &mappings(&s.mappings, top);
    out += &monitor(s);
    out += &definitions(s);
    out
}

fn head(s: &Summary) -> String {
    // The intervals of the other monitors vary.
    let intervals = match s.monitor.kind {
        "regions" => format!("of {}, sampled every {}", span(s.aggr_ms), span(s.sample_ms)),
        _ => format!("of {} on average", span((s.to_ms - s.from_ms) / s.snapshots.max(1) as f64)),
    };
    format!(
        "{}{} to {} of the record, {} snapshot{} {intervals}\n\n",
        heading(&s.title),
        span(s.from_ms),
        span(s.to_ms),
        units::count(s.snapshots),
        if s.snapshots == 1 { "" } else { "s" },
    )
}

fn heat(s: &Summary) -> String {
    let mut out = format!(
        "{:<NAME_WIDTH$}{:>SIZE_WIDTH$}{:>10}{:>SIZE_WIDTH$}\n",
        "", "mean", "share", "last"
    );
    let whole = s.mean.of_any_heat() as f64;
    let mut row = |name: &str, mean: u64, last: u64| {
        let share = format!("{:.1} %", percent(mean as f64, whole));
        let (mean, last) = (at_least_a_page(mean), bytes(last));
        let _ =
            writeln!(out, "{name:<NAME_WIDTH$}{mean:>SIZE_WIDTH$}{share:>10}{last:>SIZE_WIDTH$}");
    };
    row("hot", s.mean.hot_bytes, s.last.hot_bytes);
    row("warm", s.mean.warm_bytes, s.last.warm_bytes);
    row("cold", s.mean.cold_bytes, s.last.cold_bytes);
    row("unknown", s.mean.unknown_bytes, s.last.unknown_bytes);
    for (why, &mean) in &s.mean.unknown_bytes_by_reason {
        let last = s.last.unknown_bytes_by_reason.get(why).copied().unwrap_or(0);
        row(&format!("  {why}"), mean, last);
    }
    match s.mean.resident_bytes.zip(s.last.resident_bytes) {
        Some((mean, last)) => row("resident", mean, last),
        None => {
            let _ = writeln!(
                out,
                "{:<NAME_WIDTH$}{:>SIZE_WIDTH$}{:>10}{:>SIZE_WIDTH$}",
                "resident", "?", "", "?"
            );
        }
    }
    for (name, mean, last) in [
        ("not resident", s.mean.absent_bytes, s.last.absent_bytes),
        ("not monitored", Some(s.mean.left_out_bytes), Some(s.last.left_out_bytes)),
        ("dirty", Some(s.mean.dirty_bytes), Some(s.last.dirty_bytes)),
        ("under writeback", Some(s.mean.writeback_bytes), Some(s.last.writeback_bytes)),
    ] {
        let Some((mean, last)) = mean.zip(last) else { continue };
        if mean > 0 || last > 0 {
            let _ = writeln!(
                out,
                "{name:<NAME_WIDTH$}{:>SIZE_WIDTH$}{:>10}{:>SIZE_WIDTH$}",
                at_least_a_page(mean),
                "",
                bytes(last)
            );
        }
    }
    out
}

fn working_set(s: &Summary) -> String {
    let w = &s.working_set;
    format!(
        "\nworking set (hot + warm): p50 {}, p95 {}, max {}\n",
        bytes(w.p50_bytes),
        bytes(w.p95_bytes),
        bytes(w.max_bytes)
    )
}

/// The mappings. Small mappings with less than a page of hot or warm memory are
/// summed up in one row.
fn mappings(rows: &[MappingRow], top: usize) -> String {
    let resident: f64 = rows.iter().map(|r| r.bytes.of_any_heat() as f64).sum();
    let tells = |b: &Bytes| {
        b.hot_bytes.max(b.warm_bytes) >= PAGE_SIZE
            || b.of_any_heat() as f64 >= SMALL_PART * resident
    };
    let (mut shown, mut rest): (Vec<&MappingRow>, Vec<&MappingRow>) =
        rows.iter().partition(|r| tells(&r.bytes));
    rest.extend(shown.drain(top.min(shown.len())..));
    let mut all: Vec<(String, Bytes)> =
        shown.iter().map(|r| (short(&r.name).to_owned(), r.bytes.clone())).collect();
    if let Some((first, others)) = rest.split_first() {
        let mut sum = first.bytes.clone();
        others.iter().for_each(|r| sum.add(&r.bytes));
        all.push((format!("{} more", rest.len()), sum));
    }
    table("by mapping, mean", NAME_WIDTH - 1, all.iter().map(|(name, bytes)| (name.clone(), bytes)))
}

fn table<'a>(
    title: &str,
    max_chars: usize,
    rows: impl Iterator<Item = (String, &'a Bytes)>,
) -> String {
    let rows: Vec<(String, &Bytes)> = rows.map(|(name, b)| (cut(&name, max_chars), b)).collect();
    // One character is for a blank.
    let width = rows.iter().map(|(name, _)| name.chars().count() + 1).fold(NAME_WIDTH, usize::max);
    let heads = ["hot", "warm", "cold", "unknown", "resident"].map(|h| format!("{h:>SIZE_WIDTH$}"));
    let mut out = format!("\n{title:<width$}{}\n", heads.concat());
    for (name, b) in rows {
        let heats = [b.hot_bytes, b.warm_bytes, b.cold_bytes, b.unknown_bytes].map(Some);
        let sizes = heats.into_iter().chain([b.resident_bytes]).map(|n| {
            let size = n.map_or_else(|| "?".to_owned(), at_least_a_page);
            format!("{size:>SIZE_WIDTH$}")
        });
        let sizes: String = sizes.collect();
        let _ = writeln!(out, "{name:<width$}{sizes}");
    }
    out
}

/// A mean of less than a page is shown as such, because its bytes would be more precise than the data.
fn at_least_a_page(n: u64) -> String {
    if (1..PAGE_SIZE).contains(&n) { "< 4 KiB".to_owned() } else { bytes(n) }
}

/// A name of at most `max` characters. The middle of a longer one is cut.
fn cut(name: &str, max: usize) -> String {
    const BEGIN_CHARS: usize = 13;
    let name = printable(name);
    let n = name.chars().count();
    if n <= max {
        return name;
    }
    let begin: String = name.chars().take(BEGIN_CHARS).collect();
    let end: String = name.chars().skip(n + BEGIN_CHARS + 2 - max).collect();
    format!("{begin}..{end}")
}

fn monitor(s: &Summary) -> String {
    let m = &s.monitor;
    let ran = |t: &TargetRow| t.cpu_percent.is_some();
    let target = match s.target_cpu_percent {
        Some(p) if s.targets.iter().all(ran) => format!("ran {p:.1} % of one CPU"),
        Some(p) => format!("ran {p:.1} % of one CPU, without targets whose time is unknown"),
        None => "unknown whether it ran; a process that does not run looks cold".to_owned(),
    };
    // Files do not run.
    let target =
        if s.look.starts_with("files:") { String::new() } else { format!("target    {target}\n") };
    // A monitor that neither looks nor uses CPU time does not exist: the record is imported.
    let cost = if m.looks_per_s == 0.0 && m.cpu_percent == 0.0 {
        "unknown cost: the record does not have it\n".to_owned()
    } else {
        format!(
            "{:.2} % of one CPU{}, {} looks/s, {} clears/s\n          \
             (a clear is a TLB shootdown on each CPU that runs the target)\n",
            m.cpu_percent,
            lost(m),
            units::count(m.looks_per_s.round() as u64),
            units::count(m.clears_per_s.round() as u64),
        )
    };
    format!(
        "\n{target}monitor   {cost}{}regions   {:.0} on average, {} at most, {} allowed\n",
        seen(m) + &support(&s.mean),
        m.regions_mean,
        units::count(m.regions_max as u64),
        units::count(u64::from(m.regions_bound)),
    )
}

/// The cost to the targets, and the limit on the total cost.
fn lost(m: &MonitorFigures) -> String {
    let lost = match m.lost_percent {
        0.0 => String::new(),
        lost => format!(" + {lost:.2} % lost"),
    };
    lost + &m.budget_percent.map(|b| format!(" (budget {b} %)")).unwrap_or_default()
}

/// Coverage and error of the snapshots, if the monitor reports them.
fn seen(m: &MonitorFigures) -> String {
    let Some(coverage) = m.coverage_percent else { return String::new() };
    let mut out = format!("seen      {coverage:.1} % of the observable memory");
    if let Some(error) = m.error_log2 {
        let _ = write!(out, ", rates within a factor of {:.2}", error.exp2());
    }
    out.push('\n');
    let restrained = m.restrained_percent.unwrap_or_default();
    if restrained > 0.0 {
        let _ = writeln!(
            out,
            "          cleared less in {restrained:.1} % of the time: memory was short"
        );
    }
    if let Some(stolen) = m.stolen_per_s.filter(|n| *n >= 0.5) {
        let n = units::count(stolen.round() as u64);
        let _ = writeln!(out, "          {n} pages/s were cleared by others (reclaim, a kdamond)");
    }
    out
}

/// The bases of the rates, if the record contains them.
fn support(mean: &Bytes) -> String {
    let parts = [
        (mean.measured_bytes, "measured"),
        (mean.extended_bytes, "extended"),
        (mean.old_bytes, "old"),
    ];
    let all = parts.iter().map(|(n, _)| *n as f64).sum::<f64>();
    if all <= 0.0 {
        return String::new();
    }
    let share = |(n, name): (u64, &str)| format!("{:.1} % {name}", percent(n as f64, all));
    format!("rates     {}\n", parts.map(share).join(", "))
}

fn definitions(s: &Summary) -> String {
    let cold = span(s.cold_ms);
    let early = if s.from_ms < s.cold_ms {
        let from = cold.replace(' ', "");
        format!("nothing can be cold in the first {cold}: --time {from}.. leaves them out\n")
    } else {
        String::new()
    };
    let support = match s.mean.extended_bytes + s.mean.old_bytes {
        0 => "",
        _ => "extended: presumed from a sample of its stretch; old: from an earlier time\n",
    };
    let missing = words::missing(s.missing);
    let end = if missing.is_empty() { "" } else { "\n" };
    format!(
        "\n{}hot: touched at {} or more; cold: untouched for {} or more; warm: the \
         rest\nunknown: resident, but its accesses cannot be observed\n{missing}{end}{support}{early}p95: not \
         exceeded for 95 % of the time; mean: over time; share: of resident\n{}\n",
        gaps_line(&s.gaps),
        units::hz(s.hot_hz),
        cold,
        looked(&s.look)
    )
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
