//! Physical memory, independent of the processes that use it.

use std::path::Path;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Ask, Cost, Liveness, Look, Mapping, OpsError, PAGE_SIZE, Seen, Space, TargetId,
};

use super::process::IdleError;
use super::tracking::{Tracking, Window};
use crate::ops::annotate::mapping_at;
use crate::physical::RamRange;
use crate::sys::CpuLaps;

/// The largest range of one ask, in bytes.
const LARGEST: u64 = 2 << 20;

/// The operations set for physical memory on kernels with idle page tracking. It has one target.
///
/// Free pages are absent. Memory that is on no LRU list (memory of the kernel itself or of drivers, hugetlb) is
/// unknown. A folio of several pages has one idle bit, so that the whole folio is as hot as its hottest page.
#[derive(Debug)]
pub struct Physical {
    tracking: Tracking,
    mappings: Vec<Mapping>,
    cpu: CpuLaps,
}

impl Physical {
    /// The only target.
    pub const PHYSICAL_TARGET: TargetId = TargetId(0);

    /// An operations set for `memory`: sorted and disjoint, as [`crate::physical_memory`] returns it. Memory
    /// that is plugged in later is not observed.
    ///
    /// # Errors
    /// If the kernel does not track idle pages, or isotherm does not run as root.
    pub fn new(root: &Path, memory: &[RamRange]) -> Result<Self, IdleError> {
        let mappings = memory.iter().map(RamRange::mapping).collect();
        Ok(Physical { tracking: Tracking::open(root)?, mappings, cpu: CpuLaps::begin() })
    }

    /// The frames of `range`; `None` if the range is not page-aligned, is larger than `LARGEST`, or is not
    /// inside one mapping.
    fn frames(&self, range: AddrRange) -> Option<Vec<u64>> {
        let is_whole =
            (range.start | range.end).is_multiple_of(PAGE_SIZE) && range.len() <= LARGEST;
        let mapping = mapping_at(&self.mappings, range.start).filter(|_| is_whole)?;
        let inside = mapping.range.intersect(&range) == Some(range);
        inside.then(|| (range.start / PAGE_SIZE..range.end / PAGE_SIZE).collect())
    }
}

fn is_known(target: TargetId) -> Result<(), OpsError> {
    if target == Physical::PHYSICAL_TARGET { Ok(()) } else { Err(OpsError::NoTarget(target)) }
}

impl Look for Physical {
    fn look(&mut self, asks: &[Ask], out: &mut Vec<Seen>) -> Result<Cost, OpsError> {
        let cost = self.tracking.look(asks, out, |tracking, ask| {
            is_known(ask.target)?;
            let Some(frames) = self.frames(ask.range) else {
                return Ok(Window::known(Seen::default()));
            };
            let pages = u32::try_from(frames.len()).unwrap_or(u32::MAX);
            tracking.read(pages, &frames)
        })?;
        Ok(Cost { cpu: self.cpu.lap(), ..cost })
    }
}

impl Space for Physical {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        is_known(target)?;
        out.clone_from(&self.mappings);
        Ok(Liveness::Alive)
    }

    /// None: a machine always runs something.
    fn ran(&mut self, _: TargetId) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_within_one_stretch_are_answered() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/mm/page_idle");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/kpageflags"), (1u64 << 5).to_ne_bytes().repeat(1024))
            .unwrap();
        let stretch = |start, end| RamRange {
            range: AddrRange::new(start, end),
            node: 1,
            zone: "Normal".into(),
        };
        let memory = [stretch(0x1000, 0x9000), stretch(0x9000, 0x40_0000)];
        assert!(Physical::new(root.path(), &memory).is_err(), "no bitmap");
        std::fs::write(dir.join("bitmap"), [0; 128]).unwrap();
        let mut ops = Physical::new(root.path(), &memory).unwrap();
        let mut mappings = Vec::new();
        assert_eq!(
            ops.mappings(Physical::PHYSICAL_TARGET, &mut mappings).unwrap(),
            Liveness::Alive
        );
        assert!(mappings.len() == 2 && mappings.iter().all(|m| &*m.name == "node 1 Normal"));
        let asks = [
            (0x2000, 0x4000),
            (0x8000, 0xa000),
            (0, 0x2000),
            (0x2000, 0x2800),
            (0x9000, 0x30_0000),
        ];
        let ask = |(start, end)| Ask {
            target: Physical::PHYSICAL_TARGET,
            range: AddrRange { start, end },
            clear: true,
        };
        let mut seen = Vec::new();
        let cost = ops.look(&asks.map(ask), &mut seen).unwrap();
        assert_eq!(
            seen.iter().map(|s| (s.pages, s.young)).collect::<Vec<_>>(),
            [(2, 2), (0, 0), (0, 0), (0, 0), (0, 0)]
        );
        assert_eq!((cost.pages, cost.clears), (2, 0));
        let other = Ask { target: TargetId(1), ..ask(asks[0]) };
        assert_eq!(ops.look(&[other], &mut seen), Err(OpsError::NoTarget(TargetId(1))));
    }
}
