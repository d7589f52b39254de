//! Regions as lines of text.

use std::fmt::Write;

use super::words::{footer, gaps_line, head, heading, looked, missing, printable, size, span};
use crate::access::AccessReport;
use crate::raw::{RawHead, RawSnapshot};
use crate::row::RegionRow;
use crate::units::{self, bytes, significant};

/// The regions of a snapshot as text for people.
#[must_use]
pub fn access_text(a: &AccessReport) -> String {
    let mut out = head(&a.title, &a.basis);
    out.pop();
    let (shown, all) = (units::count(a.regions.len() as u64), units::count(a.nr_regions));
    let _ = writeln!(out, "snapshot {}, {shown} of {all} regions\n", a.seq);
    for t in &a.targets {
        let left_out = match t.left_out_bytes {
            0 => String::new(),
            n => format!(", {} of it not monitored", bytes(n)),
        };
        let _ = writeln!(out, "target {}: {}{left_out}", t.target, printable(&t.label));
    }
    out += &heads("target");
    a.regions.iter().for_each(|row| line(&mut out, row));
    out + &footer(&a.basis)
}

/// The data before the first snapshot, as text.
#[must_use]
pub fn raw_head_text(h: &RawHead) -> String {
    let title = if h.title.is_empty() { "" } else { "# " };
    let damaged = gaps_line(&h.gaps);
    let damaged = if damaged.is_empty() { damaged } else { format!("# {damaged}") };
    let missing = missing(h.missing);
    let missing = if missing.is_empty() { String::new() } else { format!("# {missing}\n") };
    format!(
        "{title}{}# hot: touched at {} or more; cold: untouched for {} or more; warm: the rest\n# {}\n{missing}{}{}",
        heading(&h.title),
        units::hz(h.hot_hz),
        span(h.cold_ms),
        looked(&h.look),
        damaged,
        heads("#")
    )
}

/// A snapshot as text: a line that begins with `#` for it and for each target, and a line per region.
#[must_use]
pub fn raw_text(s: &RawSnapshot) -> String {
    let mut out =
        format!("# snapshot {}, {:.3} s to {:.3} s\n", s.seq, s.from_ms / 1e3, s.to_ms / 1e3);
    for t in &s.targets {
        let _ = writeln!(
            out,
            "# target {}: {}, {} regions, {} resident, {} unknown, {} not monitored",
            t.target,
            printable(&t.label),
            units::count(t.regions.len() as u64),
            size(t.resident_bytes),
            bytes(t.unknown_bytes),
            bytes(t.left_out_bytes)
        );
        t.regions.iter().for_each(|row| line(&mut out, row));
    }
    out
}

/// The names of the columns; `first` is the name of the column with the target's number.
fn heads(first: &str) -> String {
    let cells = ["size", "state", "rate, Hz (95 %), in", "age", "resident", "unknown", "rate is"];
    columns(first, "address", cells.map(str::to_owned), "mapping")
}

fn line(out: &mut String, r: &RegionRow) {
    let high = if r.rate_high_hz.is_finite() { hz(r.rate_high_hz) } else { String::new() };
    let low = hz(r.rate_low_hz);
    // Without a page that can be observed there is no rate.
    let rate = match r.is_observable() {
        true => format!("{} ({low}..{high}){}", hz(r.rate_hz), part(r.touched_bp)),
        false => "-".to_owned(),
    };
    let cells = [
        bytes(r.size_bytes),
        r.state.name().to_owned(),
        rate,
        format!("{}{}", if r.age_ms.is_none() { ">= " } else { "" }, span(r.age_low_ms)),
        size(r.resident_bytes),
        bytes(r.unknown_bytes),
        support(r),
    ];
    let range = format!("{:012x}-{:012x}", r.range.start, r.range.end);
    *out += &columns(&r.target.to_string(), &range, cells, &printable(&r.mapping));
}

fn columns(target: &str, range: &str, cells: [String; 7], mapping: &str) -> String {
    let [size, state, rate, age, resident, unknown, support] = cells;
    format!(
        "{target:<6} {range:<25} {size:>10}  {state:<7}  {rate:<28}  {age:<8} {resident:>10} \
         {unknown:>10}  {support:<13}  {mapping}\n"
    )
}

/// The touched share of a region, unless it is 0 or 1: `, 1/16`.
fn part(touched_bp: u32) -> String {
    match touched_bp {
        0 | 9_500.. => String::new(),
        bp @ ..=5_000 => format!(", 1/{:.0}", 1e4 / f64::from(bp)),
        bp => format!(", {:.0} %", f64::from(bp) / 100.0),
    }
}

/// The basis of most of a rate, and its share if that is not all: `62 % extended`.
fn support(r: &RegionRow) -> String {
    match r.support.most().filter(|_| r.is_observable()) {
        None => "-".to_owned(),
        Some((9_950.., name)) => name.to_owned(),
        Some((bp, name)) => format!("{:.0} % {name}", f64::from(bp) / 100.0),
    }
}

fn hz(rate: f32) -> String {
    significant(f64::from(rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{AccessBuilder, Choice};
    use crate::filter::Options;
    use crate::raw::Raw;
    use crate::scene::{mapping, region, snapshot, target};
    use isotherm_core::{RateSupport, RegionView, Snapshot};
    use std::sync::Arc;

    fn one() -> Snapshot {
        let maps = vec![mapping(0x5500_0000_0000, 0x5500_0010_0000, "[heap]")];
        let mut open = region(0x5500_0008_0000, 0x5500_0010_0000, 0.0);
        open.rate.high = f32::INFINITY;
        let mut hot = region(0x5500_0000_0000, 0x5500_0008_0000, 50.0);
        hot.support = Some(RateSupport { measured_bp: 3_000, extended_bp: 6_200 });
        let regions: Vec<RegionView> = vec![hot, open];
        snapshot(3, 1.0, vec![target(0, maps, regions)])
    }

    #[test]
    fn a_region_is_a_line_under_its_head() {
        let mut builder = AccessBuilder::new(Options::default(), Choice::default());
        builder.push(&Arc::new(one()));
        let text = access_text(&builder.finish().unwrap());
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("[heap]")).collect();
        assert_eq!(
            lines,
            [
                "0      550000000000-550000080000  512.0 KiB  hot      50 (40..60)                   1 s       512.0 KiB        0 B  62 % extended  [heap]",
                "0      550000080000-550000100000  512.0 KiB  cold     0 (0..)                       60 s      512.0 KiB        0 B  measured       [heap]",
            ]
        );
        let heads = heads("target");
        for at in ["state", "rate", "age", "mapping"].map(|name| heads.find(name).unwrap()) {
            assert!(lines.iter().all(|l| !l[at..].starts_with(' ') && l[..at].ends_with(' ')));
        }
        assert!(text.contains("snapshot 3, 2 of 2 regions") && text.contains("unknown: 0 B"));
    }

    #[test]
    fn the_touched_share_is_reported_where_it_matters() {
        for (bp, text) in
            [(0, ""), (625, ", 1/16"), (5_000, ", 1/2"), (7_000, ", 70 %"), (9_990, "")]
        {
            assert_eq!(part(bp), text);
        }
    }

    #[test]
    fn raw_lines_without_a_mark_are_regions() {
        let mut raw = Raw::new(Options::default());
        let text = raw_head_text(&raw.head()) + &raw_text(&raw.snapshot(&one()).unwrap());
        assert_eq!(text.lines().filter(|l| !l.starts_with('#')).count(), 2);
        assert!(text.contains("# snapshot 3, 0.000 s to 1.000 s"), "{text}");
        assert!(text.contains("# target 0: target 0, 2 regions, 1.0 MiB resident, 0 B unknown"));
    }
}
