//! The targets of a kdamond, and their state that is known without DAMON.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Liveness, Mapping, Nanos, OpsError, RegionView, TargetId, TargetView, Unknown,
    join_touching,
};

use super::error::DamonError;
use super::resident::{Frames, Present, Resident};
use super::results::AggregationResult;
use super::sysfs::{Operations, Region, Target};
use super::views::{Scale, fit, views};
use crate::ops::ProcfsProcess;
use crate::physical::joined_pages;
use crate::proc::KPageFlags;
use crate::sys::process_cpu;

/// End of user addresses: above are the kernel and its `vsyscall` page.
const USER_END: u64 = 1 << 63;

/// The memory to watch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum MonitoredMemory {
    /// all memory of processes, by their pids
    Processes(Vec<(TargetId, i32)>),
    /// fixed ranges of a process
    Ranges {
        /// id in snapshots
        target: TargetId,
        /// pid of the process
        pid: i32,
        /// ranges of virtual addresses
        ranges: Vec<AddrRange>,
    },
    /// physical memory
    Physical {
        /// id in snapshots
        target: TargetId,
        /// ranges of physical addresses in bytes: sorted and disjoint
        ranges: Vec<AddrRange>,
        /// these ranges as mappings, with their names: sorted and disjoint
        mappings: Vec<Mapping>,
    },
}

impl MonitoredMemory {
    pub(super) fn operations(&self) -> Operations {
        match self {
            MonitoredMemory::Processes(_) => Operations::Vaddr,
            MonitoredMemory::Ranges { .. } => Operations::Fvaddr,
            MonitoredMemory::Physical { .. } => Operations::Paddr,
        }
    }
}

/// A target, at its position in DAMON.
pub(super) struct Member {
    pub id: TargetId,
    mappings: Arc<Vec<Mapping>>,
    /// adjacent mappings joined
    areas: Vec<AddrRange>,
    /// fixed ranges to watch; empty for all memory
    ranges: Vec<AddrRange>,
    kind: MemberKind,
    ran: Option<Duration>,
    /// when an `exec` was detected
    replaced: Option<Nanos>,
    /// whether to omit it from snapshots
    pub dropped: bool,
}

enum MemberKind {
    Process { process: Box<ProcfsProcess>, resident: Resident },
    Physical(Frames),
}

/// All members of `watched`. A process that has ended is skipped.
pub(super) fn members(root: &Path, watched: MonitoredMemory) -> Result<Vec<Member>, DamonError> {
    match watched {
        MonitoredMemory::Processes(all) => {
            let members = all.into_iter().map(|(id, pid)| Member::process(root, id, pid));
            members.filter_map(Result::transpose).collect()
        }
        MonitoredMemory::Ranges { target, pid, ranges } => {
            let Some(mut member) = Member::process(root, target, pid)? else {
                return Ok(Vec::new());
            };
            member.ranges = member.clipped(&ranges)?;
            Ok(vec![member])
        }
        MonitoredMemory::Physical { ranges, .. } if ranges.is_empty() => Err(DamonError::NoTargets),
        MonitoredMemory::Physical { target, ranges, mappings } => {
            let frames = Frames(KPageFlags::open(root)?);
            let mut member = Member::new(target, ranges, MemberKind::Physical(frames));
            member.set_mappings(mappings);
            Ok(vec![member])
        }
    }
}

impl Member {
    fn new(id: TargetId, ranges: Vec<AddrRange>, kind: MemberKind) -> Self {
        let (mappings, areas) = (Arc::default(), Vec::new());
        let (ran, replaced, dropped) = (None, None, false);
        Member { id, mappings, areas, ranges, kind, ran, replaced, dropped }
    }

    /// Holds process `pid`; `None` if it has ended.
    pub fn process(root: &Path, id: TargetId, pid: i32) -> Result<Option<Self>, DamonError> {
        let process = match ProcfsProcess::attach(root, pid) {
            Ok(process) => Box::new(process),
            Err(e) if e.is_gone() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let kind = MemberKind::Process { process, resident: Resident::default() };
        Ok(Some(Member::new(id, Vec::new(), kind)))
    }

    /// The pages of `ranges`, sorted and disjoint, up to the end of the memory that is mapped now.
    fn clipped(&mut self, ranges: &[AddrRange]) -> Result<Vec<AddrRange>, DamonError> {
        let MemberKind::Process { process, .. } = &mut self.kind else {
            return Ok(ranges.to_vec());
        };
        let mut mappings = Vec::new();
        if process.mappings_into(&mut mappings).is_ok_and(|state| state == Liveness::Gone) {
            return Ok(Vec::new());
        }
        let user = mappings.iter().map(|m| m.range.end).filter(|&end| end <= USER_END);
        let all = AddrRange::new(0, user.max().unwrap_or(0));
        let ranges = joined_pages(ranges);
        let ranges: Vec<_> = ranges.iter().filter_map(|r| r.intersect(&all)).collect();
        if ranges.is_empty() { Err(DamonError::NoTargets) } else { Ok(ranges) }
    }

    /// The target for DAMON; addresses are in steps of `unit` bytes.
    pub fn target(&self, unit: u64) -> Target {
        let region = |r: &AddrRange| Region { start: r.start / unit, end: r.end / unit };
        Target {
            pid_target: self.pid().unwrap_or(0),
            regions: self.ranges.iter().map(region).collect(),
        }
    }

    /// The pid of its process; `None` for physical memory.
    pub fn pid(&self) -> Option<i32> {
        match &self.kind {
            MemberKind::Process { process, .. } => Some(process.pid),
            MemberKind::Physical(_) => None,
        }
    }

    /// Whether its process has ended. Physical memory never ends.
    pub fn has_ended(&self) -> bool {
        match &self.kind {
            MemberKind::Process { process, .. } => process.has_ended(),
            MemberKind::Physical(_) => false,
        }
    }

    /// Whether no further results about it are needed or possible.
    pub fn is_over(&self) -> bool {
        self.dropped || self.has_ended()
    }

    /// Reads its mappings and resident memory again.
    pub fn update(&mut self, now: Nanos) -> Result<(), OpsError> {
        let MemberKind::Process { process, resident } = &mut self.kind else { return Ok(()) };
        let mut mappings = Vec::new();
        match process.mappings_into(&mut mappings)? {
            Liveness::Gone => return Ok(()),
            Liveness::Replaced => self.replaced = Some(now),
            Liveness::Alive => {}
        }
        mappings.iter_mut().for_each(|m| m.unknown = m.unknown.filter(|&why| is_hidden(why)));
        if !self.ranges.is_empty() {
            mappings = within(&mappings, &self.ranges);
        }
        resident.read(&mut process.pagemap, &mappings);
        self.set_mappings(mappings);
        Ok(())
    }

    fn set_mappings(&mut self, mappings: Vec<Mapping>) {
        if *self.mappings != mappings {
            self.areas = join_touching(mappings.iter().map(|m| m.range));
            self.mappings = Arc::new(mappings);
        }
    }

    /// The time since its last `exec`; without limit if there was none.
    fn oldest(&self, now: Nanos) -> Duration {
        self.replaced.map_or(Duration::MAX, |at| now.since(at))
    }

    fn present(&self) -> &dyn Present {
        match &self.kind {
            MemberKind::Process { resident, .. } => resident,
            MemberKind::Physical(frames) => frames,
        }
    }

    fn view(&mut self, regions: Vec<RegionView>) -> TargetView {
        let mapped: u64 = self.mappings.iter().map(|m| m.range.len()).sum();
        let covered: u64 = regions.iter().map(|r| r.range.len()).sum();
        TargetView {
            id: self.id,
            ran: self.ran(),
            mappings: Arc::clone(&self.mappings),
            left_out: mapped.saturating_sub(covered),
            dirty: None,
            regions,
            ages: None,
        }
    }

    /// CPU time since the last call.
    fn ran(&mut self) -> Option<Duration> {
        let now = process_cpu(self.pid()?)?;
        let before = self.ran.replace(now)?;
        Some(now.saturating_sub(before))
    }
}

/// The result that ended at `end`, for all targets that are still watched, with at most `most` regions in
/// total.
pub(super) fn target_views(
    members: &mut [Member],
    mut result: AggregationResult,
    end: Nanos,
    scale: Scale,
    most: usize,
) -> Vec<TargetView> {
    let watched = (0u64..).zip(members).filter(|(_, m)| !m.is_over());
    let watched: Vec<(u64, &mut Member)> = watched.collect();
    let mut regions: Vec<Vec<RegionView>> = watched
        .iter()
        .map(|(position, member)| {
            let raw = result.targets.remove(position).unwrap_or_default();
            let scale = Scale { oldest: member.oldest(end), ..scale };
            views(&raw, &member.areas, member.present(), scale)
        })
        .collect();
    fit(&mut regions, most);
    let both = watched.into_iter().zip(regions);
    let mut targets: Vec<TargetView> = both.map(|((_, m), regions)| m.view(regions)).collect();
    targets.sort_by_key(|t| t.id);
    targets
}

/// Whether DAMON cannot observe such memory. DAMON also observes KVM guests, and clears the bits of locked,
/// shared and huge pages like those of any other page. It does not observe devices, or pages that are on no LRU
/// list.
fn is_hidden(why: Unknown) -> bool {
    matches!(why, Unknown::Dma | Unknown::Special)
}

fn within(mappings: &[Mapping], ranges: &[AddrRange]) -> Vec<Mapping> {
    let cut = |m: &Mapping, r: &AddrRange| {
        m.range.intersect(r).map(|range| Mapping { range, ..m.clone() })
    };
    mappings.iter().flat_map(|m| ranges.iter().filter_map(move |r| cut(m, r))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::OwnPages;
    use crate::walker::own_pid;

    const ROOT: &str = "/";
    /// Above any pid there may be.
    const ABOVE_ANY_PID: i32 = 1 << 23;

    #[test]
    fn ended_processes_are_skipped() {
        let pids = [ABOVE_ANY_PID, own_pid()];
        let all = MonitoredMemory::Processes(pids.map(|pid| (TargetId(7), pid)).to_vec());
        let pids: Vec<_> = members(ROOT.as_ref(), all).unwrap().iter().map(Member::pid).collect();
        assert_eq!(pids, [Some(own_pid())]);
        let ranges = vec![AddrRange::new(0, u64::MAX)];
        let ended = MonitoredMemory::Ranges { target: TargetId(0), pid: ABOVE_ANY_PID, ranges };
        assert!(members(ROOT.as_ref(), ended).unwrap().is_empty());
    }

    #[test]
    fn ranges_are_sorted_joined_and_clipped() {
        let own = OwnPages::map(8).unwrap();
        let (all, inner) = (own.range(0, 8), own.range(2, 3));
        let of = |ranges: Vec<AddrRange>| {
            let watched = MonitoredMemory::Ranges { target: TargetId(0), pid: own_pid(), ranges };
            members(ROOT.as_ref(), watched).map(|members| members[0].ranges.clone())
        };
        let odd = AddrRange::new(inner.start + 1, inner.end - 1);
        let first = own.range(0, 1);
        assert_eq!(of(vec![odd, first, inner]).unwrap(), [first, inner]);
        let open = of(vec![AddrRange::new(all.start, u64::MAX), all]).unwrap();
        assert!(open.len() == 1 && open[0].start == all.start, "{open:?}");
        assert!(open[0].end >= all.end && open[0].end <= USER_END, "{open:?}");
        let behind = of(vec![AddrRange::new(USER_END, u64::MAX)]);
        assert!(matches!(behind, Err(DamonError::NoTargets)));
    }
}
