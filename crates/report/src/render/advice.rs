//! Advice as text.

use std::fmt::Write;

use super::words::{footer, head, printable, span};
use crate::advice::{ActionRow, Advice, AdvisedAction, RangeRow, Sizing};
use crate::names::short;
use crate::units::{bytes, percent, significant};

/// Advice as text for people, with at most `top` ranges per action.
#[must_use]
pub fn advice_text(a: &Advice, top: usize) -> String {
    let mut out = head(&a.title, &a.basis);
    for t in a.targets.iter().filter(|_| a.targets.len() > 1) {
        let _ = writeln!(out, "target {}: {}", t.target, printable(&t.label));
    }
    a.actions.iter().for_each(|row| out += &action(a, row, top));
    out += &silence(a);
    a.sizing.iter().for_each(|s| out += &sizing(a, s));
    out + &footer(&a.basis)
}

/// The purpose of an action, and its total effect.
fn action(a: &Advice, row: &ActionRow, top: usize) -> String {
    let size = bytes(row.size_bytes);
    let (age, came) = (span(a.min_age_ms), came_back(row.returns, a));
    let (what, worth) = match row.action {
        AdvisedAction::Lock => (
            "keep (mlock): hot in most of the record, or touched again and again; the hottest first",
            format!(
                "{size} of {} allowed, with {} of all touches seen",
                bytes(a.lock_limit_bytes),
                share(row.access_percent)
            ),
        ),
        AdvisedAction::Hugepage => (
            "huge pages (MADV_HUGEPAGE): 2 MiB each, hot in most of the record, nearly all touched",
            format!("{size}, with {} of all touches seen", share(row.access_percent)),
        ),
        AdvisedAction::Pageout => (
            "page out (MADV_PAGEOUT): idle to the end, and never touched after it was idle",
            format!("{}, idle for {age} or more", resident(row)),
        ),
        AdvisedAction::Cold => (
            "first to go (MADV_COLD): idle to the end, but it has come back before",
            format!("{}, idle for {age} or more; {came}", resident(row)),
        ),
    };
    if row.ranges == 0 {
        return format!("{what}\n    none{}\n\n", why_none(a, row.action));
    }
    let mut out = format!("{what}\n    {worth}\n");
    let own: Vec<&RangeRow> = a.ranges.iter().filter(|r| r.action == row.action).collect();
    own.iter().take(top).for_each(|r| out += &range(a, r));
    if own.len() > top {
        let rest: u64 = own.iter().skip(top).map(|r| r.size_bytes).sum();
        let _ = writeln!(out, "    {} more, {}: --top or --json", own.len() - top, bytes(rest));
    }
    if let Some(scheme) = &row.scheme {
        let _ = writeln!(out, "  as a scheme, wherever it is so:  {scheme}");
    }
    out + "\n"
}

/// The resident memory of an action, or all its memory if it is not known which part is resident.
fn resident(row: &ActionRow) -> String {
    row.resident_bytes
        .map_or_else(|| bytes(row.size_bytes), |resident| format!("{} resident", bytes(resident)))
}

/// Why there is no range for an action: a record that is too short shows nothing about cold memory.
fn why_none(a: &Advice, action: AdvisedAction) -> String {
    let is_short = a.basis.to_ms - a.basis.from_ms < a.min_age_ms;
    match action {
        AdvisedAction::Pageout | AdvisedAction::Cold if is_short => {
            let age = span(a.min_age_ms);
            format!(": the record is shorter than {age}; record for longer, or lower --min-age")
        }
        _ => String::new(),
    }
}

fn range(a: &Advice, r: &RangeRow) -> String {
    let of = if a.targets.len() > 1 { format!("target {} ", r.target) } else { String::new() };
    let heat = match r.idle_since_ms {
        Some(since) => format!("idle since {}; {}", span(since), came_back(r.returns, a)),
        None => format!(
            "{} Hz, hot for {:.0} % of the time, {} of touches",
            significant(r.rate_hz),
            r.hot_percent,
            share(r.access_percent)
        ),
    };
    format!(
        "  {of}{} ({} from {:#x}): {} at offset {:#x}\n      {heat}\n      {}\n",
        printable(short(&r.mapping)),
        bytes(r.mapping_range.len()),
        r.mapping_range.start,
        bytes(r.size_bytes),
        r.offset_bytes,
        r.call
    )
}

fn came_back(returns: u64, a: &Advice) -> String {
    match returns {
        0 => "never came back".to_owned(),
        1 => format!("a block of {} came back once", bytes(a.block_bytes)),
        n => format!("blocks of {} came back {n} times", bytes(a.block_bytes)),
    }
}

fn share(percent: f64) -> String {
    format!("{} %", significant(percent))
}

/// The memory without advice.
fn silence(a: &Advice) -> String {
    let unknown = bytes(a.unknown_bytes_at_end);
    let mut out = format!("no advice on {unknown} that cannot be observed");
    if a.left_out_bytes > 0 {
        let _ = write!(out, ", nor on {} in too many small mappings", bytes(a.left_out_bytes));
    }
    if a.targets_left_out > 0 {
        let _ = write!(out, ", nor on {} more targets", a.targets_left_out);
    }
    out + "\n"
}

/// The basis of a limit.
fn basis(s: &Sizing) -> String {
    match (s.by_page_ages, s.without_ages_bytes) {
        (false, _) => format!(
            "region, because idle ages of pages are not known for {}: memory beside a hot page is not idle",
            span(s.window_ms)
        ),
        (true, 0) => "page".to_owned(),
        (true, rest) => format!(
            "page; all memory of targets that have ended, or have no idle ages for {}, counts as needed: at most {} at once",
            span(s.window_ms),
            bytes(rest)
        ),
    }
}

fn sizing(a: &Advice, s: &Sizing) -> String {
    let title =
        if a.sizing.len() > 1 { format!(", {}", printable(&s.label)) } else { String::new() };
    let window = span(s.window_ms);
    let mut out = format!(
        "\nhow big a limit{title}\n  resident at the end {}, {} of this unknown\n",
        s.resident_bytes.map_or_else(|| "?".to_owned(), bytes),
        bytes(s.unknown_bytes)
    );
    if let (Some(high), Some(max)) = (s.memory_high_bytes, s.memory_max_bytes) {
        let returned = s.returned_bytes_per_min;
        let saves = match s.resident_bytes.map(|resident| resident.checked_sub(high)) {
            None => "the record does not show how much is resident".to_owned(),
            Some(Some(saved @ 1..)) => format!("{} less than is resident", bytes(saved)),
            Some(_) => "not less than is resident: there is nothing to save".to_owned(),
        };
        let _ = writeln!(
            out,
            "  needed (touched within {window}, or unknown): p50 {}, p95 {}, max {}\n  \
             memory.high {}: p95 and {} % headroom; {saves}\n  memory.max  {}: max and {} % headroom\n  \
             idle for {window} or more, and touched again: {} a minute ({:.1} % of what is needed)",
            bytes(s.needed_p50_bytes),
            bytes(s.needed_p95_bytes),
            bytes(s.needed_max_bytes),
            bytes(high),
            significant(s.headroom_percent),
            bytes(max),
            significant(s.headroom_percent),
            bytes(returned.round() as u64),
            percent(returned, s.needed_p95_bytes as f64)
        );
        let _ = writeln!(out, "  counted by {}", basis(s));
    } else {
        let _ = writeln!(out, "  it was not there for longer than {window}: record for longer");
    }
    if !s.idle.is_empty() {
        let _ =
            writeln!(out, "  {:<14}{:>12}  {:>22}", "idle for", "mean", "touched again a minute");
    }
    for row in &s.idle {
        let returned = bytes(row.returned_bytes_per_min.round() as u64);
        let (idle, mean) = (span(row.idle_ms), bytes(row.idle_bytes));
        let _ = writeln!(out, "  {idle:<14}{mean:>12}  {returned:>22}");
    }
    out
}
