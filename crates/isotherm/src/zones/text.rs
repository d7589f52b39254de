//! The figures as text.

use std::fmt::Write;

use isotherm_report::bytes;

use super::change::{Change, ReclaimedBytes};
use super::state::{State, ZoneState};

/// The present state as text.
pub fn state(s: &State) -> String {
    let mut out = format!(
        "{:16}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n",
        "zone", "size", "free", "per CPU", "min", "low", "high", "reserve"
    );
    for z in &s.zones {
        let sizes = [
            z.managed_bytes,
            z.free_bytes,
            z.per_cpu_bytes,
            z.min_bytes,
            z.low_bytes,
            z.high_bytes,
            z.reserve_bytes,
        ];
        let cells: String = sizes.iter().map(|&n| format!("{:>11}", bytes(n))).collect();
        let _ = writeln!(out, "{:16}{cells}", z.name());
    }
    if !s.empty.is_empty() {
        let _ = writeln!(out, "without memory: {}", s.empty.join(", "));
    }
    out + &fragmentation(&s.zones) + &pageblocks(&s.zones)
}

/// A table with one column per order.
fn fragmentation(zones: &[ZoneState]) -> String {
    let orders = zones.iter().map(|z| z.unusable.len()).max().unwrap_or(0);
    if orders == 0 {
        return String::new();
    }
    let heads: String = (0..orders).map(|o| format!("{:>7}", block(o))).collect();
    let mut out = format!("\n{:16}{heads}\n", "too small for");
    for z in zones.iter().filter(|z| !z.unusable.is_empty()) {
        let cells: String =
            z.unusable.iter().map(|u| format!("{:>7}", format!("{:.0} %", u * 100.0))).collect();
        let _ = writeln!(out, "{:16}{cells}", z.name());
    }
    out + "Share of the free memory that lies in smaller blocks than these.\n"
}

/// The size of a block, for example `2M`.
fn block(order: usize) -> String {
    let kib = 4_u64.checked_shl(u32::try_from(order).unwrap_or(u32::MAX)).unwrap_or(0);
    if kib < 1024 { format!("{kib}K") } else { format!("{}M", kib >> 10) }
}

fn pageblocks(zones: &[ZoneState]) -> String {
    let Some(first) = zones.iter().find(|z| !z.pageblocks.is_empty()) else {
        return String::new();
    };
    let heads: String = first.pageblocks.iter().map(|(t, _)| format!("{t:>13}")).collect();
    let mut out = format!("\n{:16}{heads}\n", "pageblocks");
    for z in zones.iter().filter(|z| !z.pageblocks.is_empty()) {
        let cells: String = z.pageblocks.iter().map(|(_, n)| format!("{n:>13}")).collect();
        let _ = writeln!(out, "{:16}{cells}", z.name());
    }
    out
}

/// The changes as text.
pub fn change(c: &Change) -> String {
    let mut out = format!(
        "{:16}{:>11}{:>12}{:>11}{:>12}{:>12}{:>9}{:>11}\n",
        format!("in {:.1} s", c.seconds),
        "size share",
        "allocated",
        "share",
        "free",
        "reclaimed",
        "stalls",
        "skipped"
    );
    for k in &c.kinds {
        let _ = writeln!(
            out,
            "{:16}{:>11}{:>12}{:>11}{:>12}{:>12}{:>9}{:>11}",
            k.zone,
            percent(k.size_share),
            size(k.allocated_bytes),
            percent(k.allocated_share),
            signed(k.freed_bytes),
            size(k.reclaimed_bytes),
            number(k.stalls),
            size(k.skipped_bytes)
        );
    }
    let fairness = c.fairness.map_or_else(|| "-".to_owned(), |f| format!("{f:.3}"));
    let _ = writeln!(
        out,
        "fairness {fairness} (Jain's index over ordinary zones)\n\
         all nodes: reclaimed {}; kswapd had work {} times; {} stalls to compact",
        reclaim(&c.reclaim),
        number(c.kswapd_runs),
        number(c.compaction_stalls)
    );
    for n in &c.nodes {
        let reclaimed =
            n.reclaim.map_or_else(String::new, |r| format!("; reclaimed {}", reclaim(&r)));
        let _ = writeln!(
            out,
            "node {}: kswapd {} ms of CPU; allocations {} as wanted, {} meant for elsewhere; refaulted {}{reclaimed}",
            n.node,
            number(n.kswapd_cpu_ms),
            number(n.numa_hit),
            number(n.numa_miss),
            size(n.refaulted_bytes)
        );
    }
    out
}

fn reclaim(r: &ReclaimedBytes) -> String {
    format!(
        "by kswapd {} of {} scanned, by allocating tasks {} of {}",
        size(r.kswapd_stolen_bytes),
        size(r.kswapd_scanned_bytes),
        size(r.direct_stolen_bytes),
        size(r.direct_scanned_bytes)
    )
}

/// A size; a dash if it is not reported.
fn size(n: Option<u64>) -> String {
    n.map_or_else(|| "-".to_owned(), bytes)
}

fn number(n: Option<u64>) -> String {
    n.map_or_else(|| "-".to_owned(), |n| n.to_string())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn signed(n: i64) -> String {
    format!("{}{}", if n < 0 { '-' } else { '+' }, bytes(n.unsigned_abs()))
}

/// The remarks, one per line.
pub fn remarks(remarks: &[String]) -> String {
    if remarks.is_empty() {
        return "Nothing stands out.\n".to_owned();
    }
    remarks.iter().map(|r| format!("- {r}\n")).collect()
}
