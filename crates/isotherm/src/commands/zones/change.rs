//! The figures of what has happened between two readings.

use std::collections::BTreeMap;

use isotherm_core::PAGE_SIZE;
use isotherm_linux::proc::{Counters, Zone};
use isotherm_mm::jain;
use serde::Serialize;

use super::reading::Reading;

/// What has happened in a while.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    pub seconds: f64,
    /// by kind of zone, over all nodes, as the kernel counts; the lowest first
    pub kinds: Vec<KindChange>,
    /// Jain's index of pages allocated over the size of each kind of zone, of 0 to 1: 1 if each got
    /// what its size makes fair. Of ordinary zones; none if nothing was allocated in them
    pub fairness: Option<f64>,
    /// The kernel keeps its lists by node, not by zone, and does not share zones by size (since
    /// Linux 4.8).
    pub lists_by_node: bool,
    pub nodes: Vec<NodeChange>,
    pub reclaim: Reclaim,
    /// times that kswapd was woken with work to do
    pub kswapd_runs: u64,
    /// kswapd reached the low or the high watermark and fell below it again at once
    pub kswapd_woken_again: u64,
    /// stalls in which memory was compacted for a large block
    pub compaction_stalls: u64,
}

/// A kind of zone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindChange {
    pub zone: String,
    /// Whether ordinary allocations may come here: not if its zones are smaller than what they keep
    /// in reserve.
    pub ordinary: bool,
    /// of all zones of this kind
    pub managed_bytes: u64,
    /// of all memory, of 0 to 1
    pub size_share: f64,
    pub allocated_bytes: u64,
    /// of all that was allocated, of 0 to 1
    pub allocated_share: f64,
    /// growth of free memory
    pub freed_bytes: i64,
    /// allocations that had to reclaim by themselves before they came here
    pub stalls: u64,
    /// pages that reclaim passed over since it wanted others
    pub skipped_bytes: u64,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeChange {
    pub node: u32,
    /// of its kswapd, in ms
    pub kswapd_cpu_ms: u64,
    /// allocations here that were meant for here, and that were meant for elsewhere; in calls
    pub numa_hit: u64,
    pub numa_miss: u64,
    /// pages that have come back after they were reclaimed
    pub refaulted_bytes: u64,
}

/// Pages looked at and taken, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Reclaim {
    pub kswapd_scanned_bytes: u64,
    pub kswapd_stolen_bytes: u64,
    /// by who wanted to allocate
    pub direct_scanned_bytes: u64,
    pub direct_stolen_bytes: u64,
}

impl Change {
    /// From one reading to a later one.
    pub fn between(a: &Reading, b: &Reading) -> Self {
        let grown = |name: &str| Grown(&a.vmstat, &b.vmstat).of(name);
        let summed = |begin: &str| Grown(&a.vmstat, &b.vmstat).of_all(begin);
        let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE);
        let kinds = kinds(a, b);
        Change {
            seconds: b.at.since(a.at).as_secs_f64(),
            fairness: fairness(&kinds),
            lists_by_node: !b.zones.nodes.is_empty(),
            nodes: nodes(a, b),
            reclaim: Reclaim {
                kswapd_scanned_bytes: bytes(summed("pgscan_kswapd")),
                kswapd_stolen_bytes: bytes(summed("pgsteal_kswapd")),
                direct_scanned_bytes: bytes(summed("pgscan_direct")),
                direct_stolen_bytes: bytes(summed("pgsteal_direct")),
            },
            kswapd_runs: grown("pageoutrun"),
            kswapd_woken_again: summed("kswapd_low_wmark_hit_quickly")
                + summed("kswapd_high_wmark_hit_quickly"),
            compaction_stalls: grown("compact_stall"),
            kinds,
        }
    }

    /// Bytes allocated, of all kinds.
    pub fn allocated(&self) -> u64 {
        self.kinds.iter().map(|k| k.allocated_bytes).sum()
    }
}

/// Counters before and after.
struct Grown<'a>(&'a Counters, &'a Counters);

impl Grown<'_> {
    fn of(&self, name: &str) -> u64 {
        let at = |counters: &Counters| counters.get(name).copied().unwrap_or(0);
        at(self.1).saturating_sub(at(self.0))
    }

    /// Old kernels count by zone: `pgscan_kswapd_normal`. Throttling is another thing.
    fn of_all(&self, begin: &str) -> u64 {
        let is_one = |name: &&String| {
            let rest = name.strip_prefix(begin);
            rest.is_some_and(|r| r.is_empty() || r.starts_with('_') && r != "_throttle")
        };
        self.1.keys().filter(is_one).map(|name| self.of(name)).sum()
    }
}

fn kinds(a: &Reading, b: &Reading) -> Vec<KindChange> {
    let mut of_kind: BTreeMap<usize, (&str, Vec<&Zone>)> = BTreeMap::new();
    for z in b.zones.zones.iter().filter(|z| z.managed > 0) {
        let rank = super::state::kind(&z.name).map_or(usize::MAX, |k| k.index());
        of_kind.entry(rank).or_insert((&z.name, Vec::new())).1.push(z);
    }
    let free = |r: &Reading, name: &str| -> i64 {
        let zones = r.zones.zones.iter().filter(|z| z.name == name);
        zones.map(|z| i64::try_from(z.free).unwrap_or(i64::MAX)).sum()
    };
    let grown = Grown(&a.vmstat, &b.vmstat);
    let page = i64::try_from(PAGE_SIZE).unwrap_or(i64::MAX);
    let mut kinds: Vec<KindChange> = of_kind
        .into_values()
        .map(|(name, zones)| {
            let of = |what: &str| grown.of(&format!("{what}_{}", name.to_lowercase()));
            KindChange {
                zone: name.to_owned(),
                ordinary: zones.iter().any(|z| reserve(z) < z.managed),
                managed_bytes: zones.iter().map(|z| z.managed.saturating_mul(PAGE_SIZE)).sum(),
                size_share: 0.0,
                allocated_bytes: of("pgalloc").saturating_mul(PAGE_SIZE),
                allocated_share: 0.0,
                freed_bytes: (free(b, name) - free(a, name)).saturating_mul(page),
                stalls: of("allocstall"),
                skipped_bytes: of("pgskip").saturating_mul(PAGE_SIZE),
            }
        })
        .collect();
    let size: u64 = kinds.iter().map(|k| k.managed_bytes).sum();
    let allocated: u64 = kinds.iter().map(|k| k.allocated_bytes).sum();
    for k in &mut kinds {
        k.size_share = k.managed_bytes as f64 / size.max(1) as f64;
        k.allocated_share = k.allocated_bytes as f64 / allocated.max(1) as f64;
    }
    // Before Linux 4.8 stalls were not counted by zone: the highest one stands for all.
    if let Some(highest) = kinds.last_mut() {
        highest.stalls += grown.of("allocstall");
    }
    kinds
}

/// Pages that a zone keeps from what could be served by the highest zone of its node.
pub fn reserve(z: &Zone) -> u64 {
    z.protection.iter().copied().max().unwrap_or(0)
}

fn fairness(kinds: &[KindChange]) -> Option<f64> {
    let ordinary = kinds.iter().filter(|k| k.ordinary);
    jain(ordinary.map(|k| k.allocated_bytes as f64 / k.managed_bytes as f64))
}

fn nodes(a: &Reading, b: &Reading) -> Vec<NodeChange> {
    let none = Counters::new();
    let nodes: std::collections::BTreeSet<u32> = b.zones.zones.iter().map(|z| z.node).collect();
    let node = |node: u32| {
        let of_zones = |name: &str| -> u64 {
            let at = |r: &Reading| -> u64 {
                let zones = r.zones.zones.iter().filter(|z| z.node == node);
                zones.filter_map(|z| z.counters.get(name)).sum()
            };
            at(b).saturating_sub(at(a))
        };
        let counters = |r: &'_ Reading| r.zones.nodes.get(&node).cloned().unwrap_or(none.clone());
        let (before, after) = (counters(a), counters(b));
        let cpu = |r: &Reading| r.kswapd.get(&node).copied().unwrap_or_default();
        let ms = cpu(b).saturating_sub(cpu(a)).as_millis();
        NodeChange {
            node,
            kswapd_cpu_ms: u64::try_from(ms).unwrap_or(u64::MAX),
            numa_hit: of_zones("numa_hit"),
            numa_miss: of_zones("numa_miss"),
            refaulted_bytes: Grown(&before, &after)
                .of_all("workingset_refault")
                .saturating_mul(PAGE_SIZE),
        }
    };
    nodes.into_iter().map(node).collect()
}
