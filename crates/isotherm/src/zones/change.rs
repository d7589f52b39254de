//! Changes between two readings. A figure that the kernel does not report is `None`.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_core::PAGE_SIZE;
use isotherm_linux::proc::{Counters, Zone};
use isotherm_mm::jain;
use serde::Serialize;

use super::reading::ZoneSample;

/// The changes during an interval.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// length of the interval, in seconds
    pub seconds: f64,
    /// by kind of zone, over all nodes, in the kernel's order, lowest addresses first
    pub kinds: Vec<KindChange>,
    /// Jain's index of allocated pages over the size of each kind of ordinary zone, from 0 to 1; 1: each kind
    /// got its fair share by size. `None` if nothing was allocated in ordinary zones
    pub fairness: Option<f64>,
    /// The kernel keeps its LRU lists by node, not by zone, and does not distribute allocations over zones by
    /// size (since Linux 4.8).
    pub lists_by_node: bool,
    /// each node
    pub nodes: Vec<NodeChange>,
    /// reclaim of the whole machine
    pub reclaim: ReclaimedBytes,
    /// times that kswapd was started and had work to do
    pub kswapd_runs: Option<u64>,
    /// times that kswapd reached the low or the high watermark and the zone fell below it again at once
    pub kswapd_woken_again: Option<u64>,
    /// stalls in which memory was compacted for a large block
    pub compaction_stalls: Option<u64>,
}

/// Changes of a kind of zone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindChange {
    /// its name
    pub zone: String,
    /// Whether ordinary allocations may use these zones. False if the zones are smaller than their reserve.
    pub ordinary: bool,
    /// of all zones of this kind
    pub managed_bytes: u64,
    /// share of all memory, from 0 to 1
    pub size_share: f64,
    /// allocated
    pub allocated_bytes: Option<u64>,
    /// share of all allocated memory, from 0 to 1
    pub allocated_share: f64,
    /// increase of free memory
    pub freed_bytes: i64,
    /// reclaimed here; reported before Linux 4.8
    pub reclaimed_bytes: Option<u64>,
    /// allocations that had to reclaim directly before they succeeded here; since Linux 4.10
    pub stalls: Option<u64>,
    /// pages that reclaim skipped because it was for other zones; since Linux 4.8
    pub skipped_bytes: Option<u64>,
}

/// Changes of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeChange {
    /// its number
    pub node: u32,
    /// CPU time of its kswapd, in ms
    pub kswapd_cpu_ms: Option<u64>,
    /// scanned and reclaimed here, by kswapd and directly; reported since Linux 7.0
    pub reclaim: Option<ReclaimedBytes>,
    /// allocations here that were meant for here, and that were meant for elsewhere; in calls
    pub numa_hit: Option<u64>,
    /// pages that were meant for another node
    pub numa_miss: Option<u64>,
    /// pages that were read back after they were reclaimed
    pub refaulted_bytes: Option<u64>,
}

/// Memory scanned and reclaimed, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ReclaimedBytes {
    /// scanned by kswapd
    pub kswapd_scanned_bytes: Option<u64>,
    /// reclaimed by kswapd
    pub kswapd_stolen_bytes: Option<u64>,
    /// scanned by allocating tasks (direct reclaim)
    pub direct_scanned_bytes: Option<u64>,
    /// reclaimed by allocating tasks
    pub direct_stolen_bytes: Option<u64>,
}

impl Change {
    /// The changes from a reading to a later one.
    pub fn between(a: &ZoneSample, b: &ZoneSample) -> Self {
        let machine = CounterDeltas(&a.vmstat, &b.vmstat);
        let mut kinds = kinds(a, b, &machine);
        share(&mut kinds);
        Change {
            seconds: b.at.since(a.at).as_secs_f64(),
            fairness: fairness(&kinds),
            lists_by_node: !b.zones.nodes.is_empty(),
            nodes: nodes(a, b),
            reclaim: ReclaimedBytes::of(&machine),
            kswapd_runs: machine.of("pageoutrun"),
            kswapd_woken_again: sum([
                machine.of_all("kswapd_low_wmark_hit_quickly"),
                machine.of_all("kswapd_high_wmark_hit_quickly"),
            ]),
            compaction_stalls: machine.of("compact_stall"),
            kinds,
        }
    }

    /// Bytes allocated, over all kinds of zones.
    pub fn allocated(&self) -> u64 {
        self.kinds.iter().filter_map(|k| k.allocated_bytes).sum()
    }
}

impl ReclaimedBytes {
    fn of(counters: &CounterDeltas<'_>) -> Self {
        let bytes = |begin: &str| counters.of_all(begin).map(bytes);
        ReclaimedBytes {
            kswapd_scanned_bytes: bytes("pgscan_kswapd"),
            kswapd_stolen_bytes: bytes("pgsteal_kswapd"),
            direct_scanned_bytes: bytes("pgscan_direct"),
            direct_stolen_bytes: bytes("pgsteal_direct"),
        }
    }
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_SIZE)
}

/// The sum of the reported values; `None` if there are none.
fn sum(values: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    values.into_iter().flatten().fold(None, |sum: Option<u64>, n| Some(sum.unwrap_or(0) + n))
}

/// Two readings of counters, the earlier one first.
struct CounterDeltas<'a>(&'a Counters, &'a Counters);

impl CounterDeltas<'_> {
    fn of(&self, name: &str) -> Option<u64> {
        let before = self.0.get(name).copied().unwrap_or(0);
        self.1.get(name).map(|after| after.saturating_sub(before))
    }

    /// The increase summed over zones, because old kernels count by zone: `pgscan_kswapd_normal`. Throttling is
    /// another counter and is left out.
    fn of_all(&self, begin: &str) -> Option<u64> {
        let is_one = |name: &&String| {
            let rest = name.strip_prefix(begin);
            rest.is_some_and(|r| r.is_empty() || r.starts_with('_') && r != "_throttle")
        };
        sum(self.1.keys().filter(is_one).map(|name| self.of(name)))
    }
}

fn kinds(a: &ZoneSample, b: &ZoneSample, machine: &CounterDeltas<'_>) -> Vec<KindChange> {
    let mut of_kind: BTreeMap<usize, (&str, Vec<&Zone>)> = BTreeMap::new();
    for z in b.zones.zones.iter().filter(|z| z.managed > 0) {
        let rank = kind(&z.name).map_or(usize::MAX, |k| k.index());
        of_kind.entry(rank).or_insert((&z.name, Vec::new())).1.push(z);
    }
    let one = |(name, zones): (&str, Vec<&Zone>)| {
        let of = |what: &str| machine.of(&format!("{what}_{}", name.to_lowercase()));
        KindChange {
            zone: name.to_owned(),
            ordinary: zones.iter().any(|z| reserve(z) < z.managed),
            managed_bytes: zones.iter().map(|z| bytes(z.managed)).sum(),
            size_share: 0.0,
            allocated_bytes: of("pgalloc").map(bytes),
            allocated_share: 0.0,
            freed_bytes: free(b, name).saturating_sub(free(a, name)),
            reclaimed_bytes: sum([of("pgsteal_kswapd"), of("pgsteal_direct")]).map(bytes),
            stalls: of("allocstall"),
            skipped_bytes: of("pgskip").map(bytes),
        }
    };
    let mut kinds: Vec<KindChange> = of_kind.into_values().map(one).collect();
    // Before Linux 4.10, stalls were not counted by zone: the total is attributed to the highest zone.
    if let Some(highest) = kinds.last_mut() {
        highest.stalls = sum([highest.stalls, machine.of("allocstall")]);
    }
    kinds
}

fn share(kinds: &mut [KindChange]) {
    let size: u64 = kinds.iter().map(|k| k.managed_bytes).sum();
    let allocated: u64 = kinds.iter().filter_map(|k| k.allocated_bytes).sum();
    for k in kinds {
        k.size_share = k.managed_bytes as f64 / size.max(1) as f64;
        k.allocated_share = k.allocated_bytes.unwrap_or(0) as f64 / allocated.max(1) as f64;
    }
}

/// Free bytes of all zones of a kind.
fn free(r: &ZoneSample, name: &str) -> i64 {
    let zones = r.zones.zones.iter().filter(|z| z.name == name);
    i64::try_from(zones.map(|z| bytes(z.free)).sum::<u64>()).unwrap_or(i64::MAX)
}

/// Pages that a zone reserves against allocations that the highest zone of its node could serve.
pub fn reserve(z: &Zone) -> u64 {
    z.protection.iter().copied().max().unwrap_or(0)
}

fn fairness(kinds: &[KindChange]) -> Option<f64> {
    let ordinary = kinds.iter().filter(|k| k.ordinary);
    jain(ordinary.filter_map(|k| Some(k.allocated_bytes? as f64 / k.managed_bytes as f64)))
}

fn nodes(a: &ZoneSample, b: &ZoneSample) -> Vec<NodeChange> {
    let nodes: BTreeSet<u32> = b.zones.zones.iter().map(|z| z.node).collect();
    nodes.into_iter().map(|node| of_node(a, b, node)).collect()
}

fn of_node(a: &ZoneSample, b: &ZoneSample, node: u32) -> NodeChange {
    let none = Counters::new();
    let own = |r: &'_ ZoneSample| r.zones.nodes.get(&node).cloned().unwrap_or_else(|| none.clone());
    let (before, after) = (own(a), own(b));
    let own = CounterDeltas(&before, &after);
    let of_zones = |name: &str| {
        let at = |r: &ZoneSample| {
            let zones = r.zones.zones.iter().filter(|z| z.node == node);
            sum(zones.map(|z| z.counters.get(name).copied()))
        };
        at(b).map(|after| after.saturating_sub(at(a).unwrap_or(0)))
    };
    let reclaim = ReclaimedBytes::of(&own);
    let cpu = |r: &ZoneSample| r.kswapd.get(&node).copied();
    let kswapd = cpu(b).map(|after| after.saturating_sub(cpu(a).unwrap_or_default()));
    NodeChange {
        node,
        kswapd_cpu_ms: kswapd.map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
        reclaim: (reclaim != ReclaimedBytes::default()).then_some(reclaim),
        numa_hit: of_zones("numa_hit"),
        numa_miss: of_zones("numa_miss"),
        refaulted_bytes: own.of_all("workingset_refault").map(bytes),
    }
}

/// `None` for zones of devices.
pub fn kind(name: &str) -> Option<isotherm_mm::ZoneKind> {
    isotherm_mm::KINDS.into_iter().find(|k| k.name() == name)
}
