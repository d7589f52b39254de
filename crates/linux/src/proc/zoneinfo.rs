//! `/proc/zoneinfo`: the zones of each memory node, their watermarks and counters.

use std::collections::BTreeMap;
use std::path::Path;

use isotherm_core::{AddrRange, PAGE_SIZE};
use serde::Serialize;

use super::{ProcError, read_limited};

/// Enough for 8192 CPUs in 40 zones.
const LIMIT: u64 = 64 << 20;

/// Counters by their names in the kernel. They count pages, or events (`numa_hit`, `pgscan_*`).
pub type Counters = BTreeMap<String, u64>;

/// The content of `/proc/zoneinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ZoneInfo {
    /// The counters of each node with memory. Before Linux 4.8 the zones had them.
    pub nodes: BTreeMap<u32, Counters>,
    /// The zones in the order of the file: by node, the lowest addresses first; including empty zones.
    pub zones: Vec<Zone>,
}

/// A zone of a node. All sizes are in pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// the node of the zone
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `HighMem`, `Movable` or `Device`
    pub name: String,
    /// free pages, without those on per-CPU lists
    pub free: u64,
    /// the limits with which the kernel compares free pages
    pub watermarks: ReportedWatermarks,
    /// pages from the first to the last, including holes
    pub spanned: u64,
    /// pages from the first to the last, without holes
    pub present: u64,
    /// `present` without pages that were reserved at boot
    pub managed: u64,
    /// pages reserved for contiguous allocations; old kernels do not report them
    pub cma: Option<u64>,
    /// `lowmem_reserve`: at index i, free pages that are kept from allocations that zone i could have served
    pub protection: Vec<u64>,
    /// the first page frame; `None` for empty zones
    pub start_pfn: Option<u64>,
    /// kswapd has given up on the node (on old kernels: on the zone)
    pub unreclaimable: Option<bool>,
    /// one for each online CPU; empty for empty zones
    pub pagesets: Vec<Pageset>,
    /// all further counters of the zone
    pub counters: Counters,
}

/// The watermarks of a zone in pages, as the kernel uses them: including `boost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReportedWatermarks {
    /// temporary addition to all watermarks after fragmentation
    pub boost: Option<u64>,
    /// below it only reclaim and urgent requests may allocate
    pub min: u64,
    /// below it the allocator starts kswapd
    pub low: u64,
    /// kswapd sleeps when free pages reach it
    pub high: u64,
    /// kswapd reclaims up to it to allow promotion (Linux 6.12 and later)
    pub promo: Option<u64>,
}

/// The free pages of a zone on the list of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pageset {
    /// number of the CPU
    pub cpu: u32,
    /// pages on the list
    pub count: u64,
    /// above it pages return to the zone
    pub high: u64,
    /// pages that move at once
    pub batch: u64,
    /// lower bound of `high`
    pub high_min: Option<u64>,
    /// upper bound of `high`
    pub high_max: Option<u64>,
    /// a CPU adds its part of a counter to the zone's when the part exceeds this
    pub stat_threshold: Option<u64>,
}

impl Zone {
    /// The physical addresses from the zone's first page to its last, including holes.
    #[must_use]
    pub fn span(&self) -> Option<AddrRange> {
        let start = self.start_pfn.filter(|_| self.spanned > 0)?.checked_mul(PAGE_SIZE)?;
        let end = start.checked_add(self.spanned.checked_mul(PAGE_SIZE)?)?;
        Some(AddrRange::new(start, end))
    }
}

/// Reads `/proc/zoneinfo`.
///
/// # Errors
/// If the file does not exist, or a zone lacks a figure that all kernels report.
pub fn zoneinfo(root: &Path) -> Result<ZoneInfo, ProcError> {
    let path = root.join("proc/zoneinfo");
    let text = read_limited(&path, LIMIT)?;
    parse_zoneinfo(&text).map_err(|what| ProcError::parse(&path, &what))
}

/// Parses `/proc/zoneinfo` of Linux 3.0 and later. Keeps unknown counters, and skips lines that are no
/// counters.
///
/// # Errors
/// A text, if a zone lacks a figure that all kernels report.
pub fn parse_zoneinfo(text: &str) -> Result<ZoneInfo, String> {
    let mut nodes: BTreeMap<u32, Counters> = BTreeMap::new();
    let mut zones: Vec<Raw> = Vec::new();
    let mut section = Section::Zone;
    for line in text.lines().map(str::trim) {
        if let Some(zone) = Raw::begun_by(line) {
            zones.push(zone);
            section = Section::Zone;
            continue;
        }
        let Some(zone) = zones.last_mut() else { continue };
        if line == "per-node stats" {
            section = Section::Node;
        } else if line == "pagesets" {
            section = Section::Pagesets;
        } else if let Some(list) = line.strip_prefix("protection: (") {
            let numbers = list.trim_end_matches(')').split(", ");
            zone.protection = numbers.filter_map(|n| n.parse().ok()).collect();
        } else if let Some((name, value)) = counter(line) {
            if name == "pages free" {
                section = Section::Zone;
            }
            match section {
                Section::Node => nodes.entry(zone.node).or_default().insert(name.into(), value),
                Section::Zone => zone.counters.insert(name.into(), value),
                Section::Pagesets => zone.of_pagesets(name, value).insert(name.into(), value),
            };
        }
    }
    let zones = zones.into_iter().map(Raw::typed).collect::<Result<_, _>>()?;
    Ok(ZoneInfo { nodes, zones })
}

enum Section {
    Node,
    Zone,
    Pagesets,
}

/// `name value` or `name: value`.
fn counter(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.rsplit_once(char::is_whitespace)?;
    Some((name.trim_end().trim_end_matches(':'), value.parse().ok()?))
}

/// A zone while it is parsed.
struct Raw {
    node: u32,
    name: String,
    counters: Counters,
    protection: Vec<u64>,
    pagesets: Vec<Counters>,
}

impl Raw {
    /// `Node 0, zone   Normal`
    fn begun_by(line: &str) -> Option<Raw> {
        let (node, name) = line.strip_prefix("Node ")?.split_once(", zone")?;
        let (node, name) = (node.parse().ok()?, name.trim().to_owned());
        let (counters, protection, pagesets) = (Counters::new(), Vec::new(), Vec::new());
        Some(Raw { node, name, counters, protection, pagesets })
    }

    /// The place of a counter among or after the pagesets.
    fn of_pagesets(&mut self, name: &str, value: u64) -> &mut Counters {
        if name == "cpu" {
            self.pagesets.push(Counters::from([(name.to_owned(), value)]));
        }
        let of_cpu = matches!(
            name,
            "cpu" | "count" | "high" | "batch" | "high_min" | "high_max" | "vm stats threshold"
        );
        match self.pagesets.last_mut().filter(|_| of_cpu) {
            Some(pageset) => pageset,
            None => &mut self.counters,
        }
    }

    fn typed(mut self) -> Result<Zone, String> {
        let place = format!("zone {} of node {}", self.name, self.node);
        let pagesets =
            self.pagesets.iter().map(|p| pageset(p, &place)).collect::<Result<_, _>>()?;
        let counters = &mut self.counters;
        let mut must = |name| counters.remove(name).ok_or_else(|| missing(&place, name));
        let (free, spanned) = (must("pages free")?, must("spanned")?);
        let (present, managed) = (must("present")?, must("managed")?);
        let (min, low, high) = (must("min")?, must("low")?, must("high")?);
        let mut may = |name| counters.remove(name);
        let watermarks =
            ReportedWatermarks { boost: may("boost"), min, low, high, promo: may("promo") };
        let unreclaimable = may("node_unreclaimable").or_else(|| may("all_unreclaimable"));
        Ok(Zone {
            free,
            watermarks,
            spanned,
            present,
            managed,
            cma: may("cma"),
            start_pfn: may("start_pfn"),
            unreclaimable: unreclaimable.map(|n| n != 0),
            pagesets,
            node: self.node,
            name: self.name,
            protection: self.protection,
            counters: self.counters,
        })
    }
}

fn missing(place: &str, name: &str) -> String {
    format!("{place} has no `{name}`")
}

fn pageset(raw: &Counters, place: &str) -> Result<Pageset, String> {
    let may = |name| raw.get(name).copied();
    let must = |name| may(name).ok_or_else(|| missing(place, name));
    Ok(Pageset {
        cpu: u32::try_from(must("cpu")?).map_err(|_| format!("{place} has too many CPUs"))?,
        count: must("count")?,
        high: must("high")?,
        batch: must("batch")?,
        high_min: may("high_min"),
        high_max: may("high_max"),
        stat_threshold: may("vm stats threshold"),
    })
}

#[cfg(test)]
#[path = "zoneinfo_tests.rs"]
mod tests;
