//! The axis of addresses of a target: its areas, one above the other, without the memory between them that was never
//! resident.

use std::hash::{DefaultHasher, Hash, Hasher};

use isotherm_core::{AddrRange, Mapping};
use isotherm_report::SMALL_GAP;
use serde::Serialize;

/// Maximum number of areas; beyond it, the smallest gaps are drawn too.
const MAX_AREAS: usize = 256;
/// Bits of a version that a number of JavaScript has no room for.
const EXCESS_BITS: u32 = u64::BITS - 53;

/// Adjacent memory on the axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct AxisArea {
    /// first address, hexadecimal
    #[serde(serialize_with = "hex")]
    pub start: u64,
    /// length in bytes
    pub bytes: u64,
    /// name of its largest mapping
    pub name: String,
}

/// The areas of a target, in ascending order of address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Axis {
    /// differs for other areas, also between indexes; a number that JavaScript can represent
    pub version: u64,
    /// the areas
    pub areas: Vec<AxisArea>,
}

fn hex<S: serde::Serializer>(address: &u64, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&format!("{address:#x}"))
}

/// Resident addresses: sorted, and no two are adjacent.
#[derive(Debug, Default)]
pub struct Ranges(Vec<AddrRange>);

impl Ranges {
    /// Adds addresses.
    pub fn add(&mut self, range: AddrRange) {
        let from = self.0.partition_point(|r| r.end < range.start);
        let to = self.0.partition_point(|r| r.start <= range.end).max(from);
        let (mut start, mut end) = (range.start, range.end);
        for r in &self.0[from..to] {
            (start, end) = (start.min(r.start), end.max(r.end));
        }
        if to - from == 1 {
            self.0[from] = AddrRange::new(start, end);
        } else {
            self.0.splice(from..to, [AddrRange::new(start, end)]);
        }
    }

    /// The areas: ranges whose gap is small, or small compared with both neighbours, are one.
    fn areas(&self) -> Vec<AddrRange> {
        let gap = |a: &AddrRange, b: &AddrRange| b.start.saturating_sub(a.end);
        let near = |a: &AddrRange, b: &AddrRange| {
            gap(a, b) <= SMALL_GAP || gap(a, b) <= (a.len() / 8).saturating_add(b.len() / 8)
        };
        let mut areas = join(&self.0, near);
        if areas.len() > MAX_AREAS {
            let mut gaps: Vec<u64> = areas.windows(2).map(|w| gap(&w[0], &w[1])).collect();
            gaps.sort_unstable();
            let limit = gaps[areas.len() - MAX_AREAS];
            areas = join(&areas, |a, b| gap(a, b) <= limit);
        }
        areas
    }
}

fn join(ranges: &[AddrRange], near: impl Fn(&AddrRange, &AddrRange) -> bool) -> Vec<AddrRange> {
    let mut out: Vec<AddrRange> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if near(last, range) => *last = AddrRange::new(last.start, range.end),
            _ => out.push(*range),
        }
    }
    out
}

impl Axis {
    /// The axis of these addresses. If the areas grow, they have some room, so that they change rarely.
    #[must_use]
    pub fn new(ranges: &Ranges, mappings: &[Mapping], grow: bool) -> Self {
        let ranges = ranges.areas();
        let next = |i: usize| ranges.get(i + 1).map_or(u64::MAX, |r| r.start);
        let room = |i: usize, range: &AddrRange| match grow {
            true => range
                .len()
                .next_multiple_of((range.len() / 8).next_power_of_two())
                .min(next(i) - range.start),
            false => range.len(),
        };
        let area = |(i, range): (usize, &AddrRange)| AxisArea {
            start: range.start,
            bytes: room(i, range),
            name: name(range, mappings),
        };
        let areas: Vec<AxisArea> = ranges.iter().enumerate().map(area).collect();
        let mut hasher = DefaultHasher::new();
        areas.hash(&mut hasher);
        Axis { version: hasher.finish() >> EXCESS_BITS, areas }
    }

    /// The address ranges of `rows` rows, of which the lowest shows the byte `from` of the axis, and each one `bytes`.
    #[must_use]
    pub fn segments(&self, from: u64, bytes: u64, rows: usize) -> Vec<crate::pyramid::Segment> {
        let bytes = bytes.max(1);
        let to = from.saturating_add(bytes.saturating_mul(rows as u64));
        let row = |at: u64| (at - from) as f64 / bytes as f64;
        let (mut at, mut out) = (0u64, Vec::new());
        for area in &self.areas {
            let (start, end) = (at.max(from), at.saturating_add(area.bytes).min(to));
            if start < end {
                let range = AddrRange::new(area.start + (start - at), area.start + (end - at));
                out.push(crate::pyramid::Segment { range, rows: (row(start), row(end)) });
            }
            at = at.saturating_add(area.bytes);
        }
        out
    }
}

/// The name of the largest mapping within a range, and the number of other names.
fn name(range: &AddrRange, mappings: &[Mapping]) -> String {
    let mut names: Vec<(&str, u64)> = Vec::new();
    let first = mappings.partition_point(|m| m.range.end <= range.start);
    for m in mappings[first..].iter().take_while(|m| m.range.start < range.end) {
        let bytes = m.range.intersect(range).map_or(0, |r| r.len());
        let text = label(m);
        match names.iter().position(|(name, _)| *name == text) {
            Some(i) => names[i].1 += bytes,
            None if names.len() < 64 => names.push((text, bytes)),
            None => {}
        }
    }
    let largest = names.iter().max_by_key(|(_, bytes)| *bytes).map_or("", |(name, _)| name);
    match names.len() {
        0 | 1 => largest.to_owned(),
        n => format!("{largest} + {} more", n - 1),
    }
}

/// The name of a mapping, without the folders of a file.
#[must_use]
pub fn label(m: &Mapping) -> &str {
    match (&*m.name, m.kind.name()) {
        ("", kind) => kind,
        (name, _) if name.starts_with('/') => {
            name.rsplit('/').next().filter(|n| !n.is_empty()).unwrap_or(name)
        }
        (name, _) => name,
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::MappingKind;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn axis(ranges: &[(u64, u64)]) -> Axis {
        let mut all = Ranges::default();
        ranges.iter().for_each(|&(a, b)| all.add(AddrRange::new(a * MIB, b * MIB)));
        let mapping = |(a, b, name): (u64, u64, &str)| Mapping {
            range: AddrRange::new(a * MIB, b * MIB),
            kind: MappingKind::Anonymous,
            name: name.into(),
            unknown: None,
        };
        let maps = [(0, 90, ""), (90, 99, "/lib/a.so"), (1000, 2000, "[heap]")].map(mapping);
        Axis::new(&all, &maps, false)
    }

    #[test]
    fn small_gaps_are_drawn_and_large_ones_are_not() {
        let axis = axis(&[(0, 40), (41, 100), (1000, 1100), (1050, 1200)]);
        let areas: Vec<_> = axis.areas.iter().map(|a| (a.start / MIB, a.bytes / MIB)).collect();
        assert_eq!(areas, [(0, 100), (1000, 200)]);
        assert_eq!(axis.areas[0].name, "anonymous + 1 more");
        assert_eq!(axis.areas[1].name, "[heap]");
    }

    #[test]
    fn only_the_same_areas_have_the_same_version() {
        assert_eq!(axis(&[(0, 40)]), axis(&[(0, 40)]));
        assert_ne!(axis(&[(0, 40)]).version, axis(&[(0, 50)]).version);
        assert!(axis(&[(0, 40)]).version < 1 << 53);
    }

    #[test]
    fn rows_lie_in_the_areas_one_above_the_other() {
        let axis = axis(&[(0, 100), (1000, 1200)]);
        let segments = axis.segments(50 * MIB, 10 * MIB, 10);
        let of = |s: &crate::pyramid::Segment| (s.range.start / MIB, s.range.end / MIB, s.rows);
        let found: Vec<_> = segments.iter().map(of).collect();
        assert_eq!(found, [(50, 100, (0.0, 5.0)), (1000, 1050, (5.0, 10.0))]);
        assert!(axis.segments(300 * MIB, MIB, 10).is_empty());
    }
}
