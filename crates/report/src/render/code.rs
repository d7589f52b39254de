//! Memory by code, as text.

use std::fmt::Write;

use super::words::{footer, head, memory_name, printable, size, span};
use crate::code::{
    ALLOCATION, ChangedRow, Code, CodeChange, CodeMemory, CodeSide, Estimate, RefaultRow,
    StackFrame, per_mib_saved,
};
use crate::units::{self, bytes, percent, significant};

/// The figures as text for people, with at most `top` rows.
#[must_use]
pub fn code_text(c: &Code, top: usize) -> String {
    let mut out = head(&c.title, &c.basis);
    let names = ["cold", "(95 %)", "warm", "hot", "unknown", "resident", "idle", "(95 %)"];
    out += &columns(names.map(str::to_owned), &format!("by {}", c.by));
    for row in c.rows.iter().take(top) {
        out += &line(&row.memory, &printable(&row.name));
    }
    if c.rows.len() > top {
        let _ = writeln!(out, "and {} more: --top N", units::count((c.rows.len() - top) as u64));
    }
    if c.by != "data" {
        out += &line(&without_stack(c), "(without a stack)");
    }
    out += &line(&c.all, &format!("all {}", memory_name(&c.all)));
    out + &reach(c) + &footer(&c.basis)
}

/// What has changed from one report to another as text, with at most `top` rows.
#[must_use]
pub fn code_change_text(c: &CodeChange, top: usize) -> String {
    let side = |name: &str, s: &CodeSide| {
        let stacks = percent(s.with_stack.of_any_heat.bytes, s.all.of_any_heat.bytes);
        format!(
            "{name:<7} {} resident, {} cold; {stacks:.1} % of the memory has a stack: {}\n{}",
            resident(&s.all),
            bytes(s.all.cold.bytes.round() as u64),
            printable(&s.title),
            too_much(&s.all, &s.with_stack)
        )
    };
    let mut out = side("before:", &c.before) + &side("after:", &c.after) + "\n";
    let heads = ["resident", "change", "", "cold", "change"].map(str::to_owned);
    out += &change_columns(heads, &format!("by {}", c.by));
    for row in c.rows.iter().take(top) {
        out += &change_line(row);
    }
    if c.rows.len() > top {
        let _ = writeln!(out, "and {} more: --top N", units::count((c.rows.len() - top) as u64));
    }
    let all = ChangedRow {
        name: format!("all {}", memory_name(&c.after.all)),
        before: c.before.all,
        after: c.after.all,
    };
    out + &change_line(&all)
        + "\nresident and cold are those after; ~ marks a change within the 95 % intervals of the samples\n"
}

fn change_line(row: &ChangedRow) -> String {
    let size = |n: f64| bytes(n.abs().round() as u64);
    let change = |n: f64| match n {
        n if n.abs() < 0.5 => "-".to_owned(),
        n => format!("{}{}", if n < 0.0 { '-' } else { '+' }, size(n)),
    };
    let cells = [
        resident(&row.after),
        change(row.resident_change()),
        if row.is_certain() { " " } else { "~" }.to_owned(),
        size(row.after.cold.bytes),
        change(row.cold_change()),
    ];
    change_columns(cells, &printable(&row.name))
}

fn change_columns([resident, change, noise, cold, cold_change]: [String; 5], name: &str) -> String {
    format!("{resident:>10} {change:>11} {noise:<1} {cold:>10} {cold_change:>11}  {name}\n")
}

/// The call stacks that brought memory back, with at most `top` rows.
#[must_use]
pub fn refaults_text(c: &Code, top: usize) -> String {
    let mut out = head(&c.title, &c.basis);
    let all: u64 = c.refaults.iter().map(|r| r.faults).sum();
    if all == 0 {
        out += "no major fault was sampled: no memory came back from swap or from a file\n";
        return out + &footer(&c.basis);
    }
    let _ = writeln!(
        out,
        "{} major faults, {} a second, each of which brought one page or more back{}\n\n{:>9} {:>9} {:>12} {:>7}  stack, the outermost function first",
        units::count(all),
        significant(c.refaults_per_second),
        for_saved(c),
        "faults",
        "a second",
        "a minute/MiB",
        "share"
    );
    for row in c.refaults.iter().take(top) {
        refault(&mut out, row, all);
    }
    if c.refaults.len() > top {
        let _ = writeln!(out, "and {} more: --top N", c.refaults.len() - top);
    }
    out + &footer(&c.basis)
}

/// What the faults are the price of.
fn for_saved(c: &Code) -> String {
    let Some(per_mib) = per_mib_saved(c.refaults_per_second, c.saved_bytes) else {
        return String::new();
    };
    let saved = c.saved_bytes.unwrap_or(0.0);
    let saved = bytes(saved.round() as u64);
    format!("\n{saved} in swap on average: {} faults a minute for each MiB", significant(per_mib))
}

fn refault(out: &mut String, row: &RefaultRow, all: u64) {
    let _ = writeln!(
        out,
        "{:>9} {:>9} {:>12} {:>5.1} %  {}",
        units::count(row.faults),
        significant(row.per_second),
        row.per_minute_per_mib_saved.map_or_else(|| "-".to_owned(), significant),
        percent(row.faults as f64, all as f64),
        printable(&path(&row.frames, " > "))
    );
}

/// The stacks as lines `outermost;...;innermost BYTES`, which flame graph programs read. Which bytes is the
/// caller's choice.
#[must_use]
pub fn folded(c: &Code, of: impl Fn(&CodeMemory) -> Estimate) -> String {
    let mut out = String::new();
    for row in &c.stacks {
        let n = of(&row.memory).bytes.round() as u64;
        if n > 0 {
            let _ = writeln!(out, "{} {n}", printable(&path(&row.frames, ";")));
        }
    }
    out
}

fn path(frames: &[StackFrame], separator: &str) -> String {
    let names: Vec<String> = frames.iter().map(|f| f.function.replace([';', '\n'], ":")).collect();
    names.join(separator)
}

/// A warning if samples describe more memory than is resident, by more than their error.
fn too_much(all: &CodeMemory, with_stack: &CodeMemory) -> &'static str {
    match with_stack.of_any_heat.low > all.of_any_heat.bytes {
        true => {
            "WARNING: the samples stand for more memory than is resident, so the figures by code are too high: an \
             earlier isotherm wrote the record, or one that could not use BPF\n"
        }
        false => "",
    }
}

/// What no sample describes. Samples may by chance describe a little more than there is: the share of the memory that
/// has a stack shows it.
fn without_stack(c: &Code) -> CodeMemory {
    let rest = |all: Estimate, with: Estimate| Estimate {
        bytes: (all.bytes - with.bytes).max(0.0),
        low: (all.bytes - with.high).max(0.0),
        high: (all.bytes - with.low).max(0.0),
    };
    let (all, with) = (&c.all, &c.with_stack);
    let of_any_heat = rest(all.of_any_heat, with.of_any_heat);
    let part = |all, with| {
        let part = rest(all, with);
        let [bytes, low] = [part.bytes, part.low].map(|n| n.min(of_any_heat.bytes));
        Estimate { bytes, low, high: part.high.min(of_any_heat.high) }
    };
    CodeMemory {
        hot: part(all.hot, with.hot),
        warm: part(all.warm, with.warm),
        cold: part(all.cold, with.cold),
        unknown: part(all.unknown, with.unknown),
        of_any_heat,
        resident: all.resident.map(|_| of_any_heat),
        idle_ms: 0.0,
        idle_interval_ms: None,
    }
}

/// The coverage and the limits of the figures.
fn reach(c: &Code) -> String {
    if c.by == "data" {
        return String::new();
    }
    let share = percent(c.with_stack.of_any_heat.bytes, c.all.of_any_heat.bytes);
    let short = 100.0 * c.short_stacks;
    let mut out = format!(
        "\n{} samples; {share:.1} % of the {} has a stack, {short:.1} % of it a short one (fewer than 3 named \
         functions)\n",
        units::count(c.samples),
        memory_name(&c.all)
    );
    out += too_much(&c.all, &c.with_stack);
    out += match c.owner == ALLOCATION {
        true => {
            "memory belongs to the code that allocated it; stacks of threads, files, what the program maps itself and \
             the allocator's own memory have no stack (--first-touch shows who touched them); in targets without \
             sampled allocations, memory belongs to the code that touched it first\n"
        }
        false => {
            "a page belongs to the code that touched it first; memory that was touched before isotherm attached, \
             or that an allocator reuses, has no stack or that of its first use\n"
        }
    };
    out += "heat is known by page: cold pages have no hot object, but a hot page may contain cold objects\n";
    if short > 10.0 {
        out +=
            "short stacks: the program lacks frame pointers (-fno-omit-frame-pointer) or symbols\n";
    }
    out
}

/// The resident memory, or `?` if the record does not contain it.
fn resident(m: &CodeMemory) -> String {
    size(m.resident.map(|e| e.bytes.round() as u64))
}

fn line(m: &CodeMemory, name: &str) -> String {
    let size = |e: Estimate| bytes(e.bytes.round() as u64);
    let interval = match m.cold {
        // Of hot memory, the cell would only repeat what a few samples are.
        e if e.bytes < 1.0 || (e.high - e.low).abs() < 1.0 => String::new(),
        e => format!("({}..{})", bytes(e.low.round() as u64), bytes(e.high.round() as u64)),
    };
    let idle = if m.idle_ms > 0.0 { span(m.idle_ms) } else { "-".to_owned() };
    let of_idle = match m.idle_interval_ms {
        Some([low, high]) if high - low >= 1.0 => format!("({}..{})", span(low), span(high)),
        _ => String::new(),
    };
    let (cold, resident) = (size(m.cold), resident(m));
    let cells =
        [cold, interval, size(m.warm), size(m.hot), size(m.unknown), resident, idle, of_idle];
    columns(cells, name)
}

fn columns(
    [cold, interval, warm, hot, unknown, resident, idle, of_idle]: [String; 8],
    name: &str,
) -> String {
    format!(
        "{cold:>10} {interval:<24} {warm:>10} {hot:>10} {unknown:>10} {resident:>10} {idle:>8} {of_idle:<18}  {name}\n"
    )
}
