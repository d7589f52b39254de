//! The figures of one reading.

use isotherm_core::PAGE_SIZE;
use isotherm_linux::proc::Zone;
use isotherm_mm::{WatermarkRule, ZoneKind, ZoneWatermarks, unusable_free_index, watermarks};
use serde::Serialize;

use super::change::{kind, reserve};
use super::reading::ZoneSample;

/// All zones, at one time.
#[derive(Debug, Clone, Serialize)]
pub struct State {
    /// by node, in ascending order of address
    pub zones: Vec<ZoneState>,
    /// names of zones without memory
    pub empty: Vec<String>,
}

/// A zone with memory.
#[derive(Debug, Clone, Serialize)]
pub struct ZoneState {
    /// number of its node
    pub node: u32,
    /// its name
    pub zone: String,
    /// memory present
    pub present_bytes: u64,
    /// memory managed by the page allocator
    pub managed_bytes: u64,
    /// free memory
    pub free_bytes: u64,
    /// memory on per-CPU lists, which is free too
    pub per_cpu_bytes: u64,
    /// watermark min
    pub min_bytes: u64,
    /// watermark low
    pub low_bytes: u64,
    /// watermark high
    pub high_bytes: u64,
    /// temporary boost of the watermarks; the reported watermarks include it
    pub boost_bytes: u64,
    /// watermarks by the kernel's formula; `None` if the kernel does not report all inputs
    pub expected: Option<FormulaWatermarks>,
    /// reserved against allocations that the highest zone of the node could serve
    pub reserve_bytes: u64,
    /// whether the kernel reports it as unreclaimable
    pub unreclaimable: bool,
    /// free blocks of 2^i pages at index i; empty if not reported
    pub free_blocks: Vec<u64>,
    /// for each order, the share of free memory that is in smaller blocks: the kernel's unusable free space
    /// index
    pub unusable: Vec<f64>,
    /// pageblocks by migrate type; empty if not reported
    pub pageblocks: Vec<(String, u64)>,
}

/// Watermarks by the formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FormulaWatermarks {
    /// watermark min
    pub min_bytes: u64,
    /// watermark low
    pub low_bytes: u64,
    /// watermark high
    pub high_bytes: u64,
}

impl State {
    /// The figures of a reading.
    pub fn new(r: &ZoneSample) -> Self {
        let all = &r.zones.zones;
        let lowmem = lowmem(all);
        let (empty, zones): (Vec<&Zone>, Vec<&Zone>) = all.iter().partition(|z| z.managed == 0);
        State {
            zones: zones.into_iter().map(|z| zone(r, z, lowmem)).collect(),
            empty: empty.into_iter().map(|z| format!("node {} {}", z.node, z.name)).collect(),
        }
    }
}

impl ZoneState {
    /// For example `node 0 Normal`.
    pub fn name(&self) -> String {
        format!("node {} {}", self.node, self.zone)
    }
}

fn zone(r: &ZoneSample, z: &Zone, lowmem: i64) -> ZoneState {
    let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE);
    let of_zone = |node: u32, name: &str| node == z.node && name == z.name;
    let blocks = r.free_blocks.iter().find(|b| of_zone(b.node, &b.zone));
    let free_blocks = blocks.map(|b| b.by_order.clone()).unwrap_or_default();
    let index = |order| unusable_free_index(&free_blocks, order).unwrap_or(1.0);
    let pageblocks = r.pageblocks.iter().find(|b| of_zone(b.node, &b.zone));
    ZoneState {
        node: z.node,
        zone: z.name.clone(),
        present_bytes: bytes(z.present),
        managed_bytes: bytes(z.managed),
        free_bytes: bytes(z.free),
        per_cpu_bytes: bytes(z.pagesets.iter().map(|p| p.count).sum()),
        min_bytes: bytes(z.watermarks.min),
        low_bytes: bytes(z.watermarks.low),
        high_bytes: bytes(z.watermarks.high),
        boost_bytes: bytes(z.watermarks.boost.unwrap_or(0)),
        expected: expected(r, z, lowmem),
        reserve_bytes: bytes(reserve(z)),
        unreclaimable: z.unreclaimable.unwrap_or(false),
        unusable: (0..free_blocks.len()).map(index).collect(),
        free_blocks,
        pageblocks: pageblocks.map(|b| b.by_type.clone()).unwrap_or_default(),
    }
}

/// Pages that count for `min_free_kbytes`: those that the kernel itself can use. Before Linux 6.5, the kernel
/// counted movable memory too.
fn lowmem(zones: &[Zone]) -> i64 {
    let counts = |z: &&Zone| kind(&z.name).is_some_and(|k| k < ZoneKind::HighMem);
    zones.iter().filter(counts).map(|z| pages(z.managed)).sum()
}

fn expected(r: &ZoneSample, z: &Zone, lowmem: i64) -> Option<FormulaWatermarks> {
    // The formula for movable memory differs between kernels.
    let kind = kind(&z.name).filter(|&k| k != ZoneKind::Movable)?;
    let factor = r.sysctl.watermark_scale_factor;
    let generation = factor.map_or(WatermarkRule::Ratio, WatermarkRule::Scale);
    let min_free = r.sysctl.min_free_kbytes?;
    let w: ZoneWatermarks = watermarks(kind, pages(z.managed), lowmem, min_free, generation);
    let bytes = |pages: i64| u64::try_from(pages).unwrap_or(0).saturating_mul(PAGE_SIZE);
    Some(FormulaWatermarks {
        min_bytes: bytes(w.min),
        low_bytes: bytes(w.low),
        high_bytes: bytes(w.high),
    })
}

fn pages(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
