//! Properties of the policies, tested on random machines.

use isotherm_mm::{
    AllocRequest, Fair, Layout, LayoutError, LruType, Memory, Rules, ZoneBalance, ZoneKind,
};
use serde::Serialize;

use super::load::LabLoad;
use super::run::{LabError, run};
use super::streams::{StreamPhase, Streams};
use crate::paged::{DiskSpec, MachineSpec, NodeSpec, StreamOrder, ZoneSpec};
use crate::random::{below, mix};
use crate::workload::Op;

/// Tolerance of a share.
const SHARE_TOLERANCE: f64 = 0.03;
/// Minimum relative gain in speed that counts as a gain.
const GAIN: f64 = 0.05;
/// Maximum relative difference in speed that counts as no change.
const MAX_SPEED_DIFFERENCE: f64 = 0.01;

/// A property, and the number of machines on which it holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Property {
    /// the statement
    pub claim: &'static str,
    /// machines on which it was tested
    pub tried: u32,
    /// machines on which it holds
    pub held: u32,
    /// the first counterexample: the machine, and the result there
    pub against: Option<String>,
}

/// A test: whether the property holds on the machine, and the observed figures.
type Claim = fn(&Drawn) -> Result<(bool, String), LabError>;

const CLAIMS: [(&str, Claim); 6] = [
    ("with a DMA zone that is kept from all, v1 never resets and equals off", v1_is_off),
    ("baseline allocates to each zone its share by size", |d| is_fair(d, Fair::Baseline)),
    ("landed allocates to each zone its share by size", |d| is_fair(d, Fair::Landed)),
    ("landed resets less than a third as often as baseline", resets_less),
    ("a reader of what was just written gains where fairness is broken", reader_gains),
    ("an isolated cold reader gains nothing there", cold_reader_gains_nothing),
];

/// A random machine with one node of 5 to 10 GiB.
struct Drawn {
    seed: u64,
    cpus: u32,
    dma32: i64,
    normal: i64,
}

/// Tests all properties on this many machines.
///
/// # Errors
/// If a machine cannot be built, which should never happen.
pub fn properties(seed: u64, machines: u32) -> Result<Vec<Property>, LabError> {
    let mut found = Vec::new();
    for (claim, holds) in CLAIMS {
        let mut property = Property { claim, tried: 0, held: 0, against: None };
        for i in 0..machines {
            let drawn = Drawn::new(mix(seed, i.into()));
            let (held, seen) = holds(&drawn)?;
            property.tried += 1;
            property.held += u32::from(held);
            if !held && property.against.is_none() {
                property.against = Some(format!("{}: {seen}", drawn.name()));
            }
        }
        found.push(property);
    }
    Ok(found)
}

impl Drawn {
    fn new(key: u64) -> Self {
        let number = |which, from: u32, to: u32| {
            let n = below(mix(key, which), u64::from(to - from));
            i64::from(from) + i64::try_from(n).unwrap_or(0)
        };
        Drawn {
            seed: key,
            cpus: u32::try_from(number(1, 1, 9)).unwrap_or(1),
            dma32: number(2, 500_000, 780_000),
            normal: number(3, 550_000, 1_700_000),
        }
    }

    fn name(&self) -> String {
        format!("{} CPUs, DMA32 {} pages, Normal {}", self.cpus, self.dma32, self.normal)
    }

    fn zones(&self) -> [(ZoneKind, i64); 3] {
        [(ZoneKind::Dma, 3976), (ZoneKind::Dma32, self.dma32), (ZoneKind::Normal, self.normal)]
    }

    /// Reads a file of twice the memory's size, while kswapd keeps pace.
    fn streamed(&self, fair: Fair) -> Result<Memory, LayoutError> {
        let layout = Layout::single(self.cpus, &self.zones());
        let mut memory = Memory::new(&layout, fair.rules())?;
        for i in 0..u64::try_from(2 * layout.managed()).unwrap_or(0) {
            let request = AllocRequest {
                cpu: u32::try_from(i % u64::from(self.cpus)).unwrap_or(0),
                node: 0,
                class: ZoneKind::Normal,
                kind: Some(LruType::File),
                write: false,
                owner: i,
            };
            // An allocation cannot fail: there are always clean pages to reclaim.
            let _ = memory.allocate(request, &mut ());
            if i % 32 == 31 {
                memory.run_kswapd(0, 128, &mut ());
            }
        }
        Ok(memory)
    }

    /// Speed of a reader under `rules`, for a file of twice the memory's size that was just written.
    fn read_mb_s(&self, rules: Rules, drop_caches: bool) -> Result<f64, LabError> {
        let zone = |(kind, pages)| ZoneSpec { kind, pages };
        let node = NodeSpec { zones: self.zones().map(zone).into(), ..NodeSpec::default() };
        // A disk with seeks would reduce the gain by an amount that depends on the placement of files.
        let disk =
            DiskSpec { seek_track_us: 0, seek_full_us: 0, turn_us: 0, ..DiskSpec::default() };
        let spec = MachineSpec { disk, ..MachineSpec::of("drawn", self.cpus, vec![node]) };
        let phase = |op, drop_caches| StreamPhase {
            name: String::new(),
            op,
            order: StreamOrder::Sequential,
            pages: None,
            drop_caches,
        };
        let streams = Streams {
            about: String::new(),
            size: 2.0,
            threads: vec![1],
            phases: vec![phase(Op::Write, false), phase(Op::Read, drop_caches)],
        };
        let run = run(&spec, ("", rules), &LabLoad::Streams(streams), 1, self.seed)?;
        Ok(run.phases.last().map_or(0.0, |p| p.mb_s))
    }

    /// Relative gain of a reader with broken fairness over the baseline: kswapd ignores lower zones, as on
    /// 2014-06-30.
    fn gain(&self, drop_caches: bool) -> Result<f64, LabError> {
        let broken = Rules { balance: ZoneBalance::HighOnly, ..Fair::Landed.rules() };
        let baseline = self.read_mb_s(Fair::Baseline.rules(), drop_caches)?;
        Ok(self.read_mb_s(broken, drop_caches)? / baseline - 1.0)
    }
}

fn allocated(memory: &Memory) -> Vec<u64> {
    memory.zones().iter().map(|z| z.stats.allocated).collect()
}

fn layout_error(e: LayoutError) -> LabError {
    LabError::Machine(e.into())
}

fn v1_is_off(d: &Drawn) -> Result<(bool, String), LabError> {
    let v1 = d.streamed(Fair::V1).map_err(layout_error)?;
    let off = d.streamed(Fair::Off).map_err(layout_error)?;
    let (v1_pages, off_pages) = (allocated(&v1), allocated(&off));
    // The tolerance covers the first round, before the batches are used up, and its effects.
    let near = |(a, b): (&u64, &u64)| a.abs_diff(*b) * 200 <= *a.max(b);
    let held = v1.stats().resets == 0 && v1_pages.iter().zip(&off_pages).all(near);
    Ok((held, format!("{} resets, {v1_pages:?} and {off_pages:?}", v1.stats().resets)))
}

fn is_fair(d: &Drawn, fair: Fair) -> Result<(bool, String), LabError> {
    let memory = d.streamed(fair).map_err(layout_error)?;
    let pages = allocated(&memory);
    let share = pages[1] as f64 / (pages[1] + pages[2]) as f64;
    let by_size = d.dma32 as f64 / (d.dma32 + d.normal) as f64;
    Ok((
        (share - by_size).abs() < SHARE_TOLERANCE,
        format!("DMA32 got {share:.3} and has {by_size:.3}"),
    ))
}

fn resets_less(d: &Drawn) -> Result<(bool, String), LabError> {
    let resets = |fair| d.streamed(fair).map_err(layout_error).map(|m| m.stats().resets);
    let (baseline, landed) = (resets(Fair::Baseline)?, resets(Fair::Landed)?);
    Ok((landed > 0 && landed * 3 < baseline, format!("{landed} and {baseline} resets")))
}

fn reader_gains(d: &Drawn) -> Result<(bool, String), LabError> {
    let gain = d.gain(false)?;
    Ok((gain > GAIN, format!("{:.1} %", gain * 100.0)))
}

fn cold_reader_gains_nothing(d: &Drawn) -> Result<(bool, String), LabError> {
    let gain = d.gain(true)?;
    Ok((gain.abs() < MAX_SPEED_DIFFERENCE, format!("{:.1} %", gain * 100.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_properties_hold() {
        for p in properties(1, 1).unwrap() {
            assert_eq!(p.held, p.tried, "{p:?}");
        }
    }
}
