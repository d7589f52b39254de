//! Accesses to files through mappings: our own monitor, over the mapped parts of the files in all processes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Cost, Liveness, Look, Mapping, Monitor, MonitorKind, Nanos, OpsError, RegionView,
    Snapshot, Space, Step, Survey, TargetId, watch,
};
use isotherm_linux::page_cache::MappedPart;
use isotherm_linux::{Processes, Way, WayError};
use tracing::debug;

use crate::usage::UsageError;
use crate::watch::{AttrsFor, DefaultAttrs};

/// Maximum number of processes whose mappings are looked at: those that map the most.
const MAX_PROCESSES: usize = 64;
/// Limit of the cost of looking at mapped parts: 0.5 % of a CPU.
const BUDGET_PPM: u32 = 5_000;

/// Watches the mapped parts of files.
pub struct MappedFiles {
    monitor: Box<dyn Monitor<Ops = MappedOnly>>,
    processes: BTreeMap<i32, TargetId>,
    parts: Vec<MappedPart>,
    regions: MappedRegions,
}

/// By file, its mapped parts as regions. Those of a process are adjacent.
pub type MappedRegions = HashMap<u64, Vec<MappedRegion>>;

/// A part of a file in a process that maps it.
#[derive(Debug, Clone, Copy)]
pub struct MappedRegion {
    pub pid: i32,
    /// offsets in the file
    pub range: AddrRange,
    pub region: RegionView,
}

impl MappedFiles {
    /// Opens the best way to look at processes, and its name.
    pub fn open(seed: u64) -> Result<(Self, Way), MappedError> {
        let best = Way::best()?;
        let mut ops = MappedOnly { ops: best.ops, wanted: BTreeMap::new() };
        let reads_all = ops.survey().is_some();
        let mut attrs = DefaultAttrs.attrs_for(best.way, reads_all)?;
        if attrs.monitor == MonitorKind::Exposure {
            attrs.budget_ppm = BUDGET_PPM;
        }
        let mut monitor = watch(ops, attrs, &[], seed).map_err(UsageError::from)?;
        monitor.outlive_targets();
        let (processes, parts) = (BTreeMap::new(), Vec::new());
        Ok((MappedFiles { monitor, processes, parts, regions: HashMap::new() }, best.way))
    }

    /// Watches these parts from now on. A process that cannot be attached is left out.
    pub fn set_parts(&mut self, mut parts: Vec<MappedPart>) {
        let mut sizes: BTreeMap<i32, u64> = BTreeMap::new();
        parts.iter().for_each(|p| *sizes.entry(p.holder.pid).or_default() += p.range.len());
        let mut largest: Vec<(i32, u64)> = sizes.into_iter().collect();
        largest.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
        largest.truncate(MAX_PROCESSES);
        let is_wanted = |pid: &i32| largest.iter().any(|(wanted, _)| wanted == pid);
        parts.retain(|p| is_wanted(&p.holder.pid));
        parts.sort_by_key(|p| p.holder.pid);
        let ops = self.monitor.ops();
        let ended = ops.ops.ended();
        self.processes.retain(|pid, target| {
            let stays = is_wanted(pid) && !ended.contains(target);
            if !stays {
                ops.ops.detach(*target);
            }
            stays
        });
        for (pid, _) in largest {
            let Entry::Vacant(place) = self.processes.entry(pid) else { continue };
            match ops.ops.attach(pid) {
                Ok(target) => _ = place.insert(target),
                Err(e) => debug!("process {pid} maps a file and cannot be watched: {e}"),
            }
        }
        ops.wanted.clear();
        for part in &parts {
            if let Some(target) = self.processes.get(&part.holder.pid) {
                ops.wanted.entry(*target).or_default().push(part.range);
            }
        }
        self.parts = parts;
        self.monitor.set_targets(&self.processes.values().copied().collect::<Vec<_>>());
    }

    /// Does the work that is due; returns the cost, and until when to wait.
    pub fn step(&mut self, now: Nanos) -> Result<(Cost, Nanos), OpsError> {
        match self.monitor.step(now)? {
            Step::Wait(until) => Ok((Cost::default(), until)),
            Step::Snapshot(s) => {
                self.regions = self.in_files(&s);
                Ok((s.cost, now))
            }
            Step::End(_) => Ok((Cost::default(), now + Duration::from_secs(1))),
        }
    }

    /// The last snapshot, by file.
    pub fn regions(&self) -> &MappedRegions {
        &self.regions
    }

    fn in_files(&self, s: &Arc<Snapshot>) -> MappedRegions {
        let mut regions = MappedRegions::new();
        for part in &self.parts {
            let target = self.processes.get(&part.holder.pid);
            let view = s.targets.iter().find(|view| Some(&view.id) == target);
            let all = view.map(|view| &view.regions[..]).unwrap_or_default();
            let from = all.partition_point(|r| r.range.end <= part.range.start);
            for region in all.iter().skip(from) {
                let Some(range) = region.range.intersect(&part.range) else { break };
                let offset = |at: u64| part.offset.saturating_add(at - part.range.start);
                let range = AddrRange::new(offset(range.start), offset(range.end));
                let of_file = regions.entry(part.holder.file).or_default();
                of_file.push(MappedRegion { pid: part.holder.pid, range, region: *region });
            }
        }
        regions
    }
}

/// Why mapped parts cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappedError {
    /// no way to look
    #[error(transparent)]
    Way(#[from] WayError),
    /// wrong attributes
    #[error(transparent)]
    Attrs(#[from] UsageError),
}

/// Processes, of whose memory only some ranges exist.
pub struct MappedOnly {
    ops: Box<dyn Processes>,
    wanted: BTreeMap<TargetId, Vec<AddrRange>>,
}

impl Space for MappedOnly {
    fn mappings(&mut self, target: TargetId, out: &mut Vec<Mapping>) -> Result<Liveness, OpsError> {
        let liveness = self.ops.mappings(target, out)?;
        let wanted = self.wanted.get(&target);
        let all = std::mem::take(out);
        for mapping in all {
            let parts = wanted.into_iter().flatten().filter_map(|r| mapping.range.intersect(r));
            out.extend(parts.map(|range| Mapping { range, ..mapping.clone() }));
        }
        Ok(liveness)
    }

    fn ran(&mut self, target: TargetId) -> Option<Duration> {
        self.ops.ran(target)
    }

    fn activity(&mut self, target: TargetId) -> Option<isotherm_core::Activity> {
        self.ops.activity(target)
    }
}

impl Look for MappedOnly {
    fn look(
        &mut self,
        asks: &[isotherm_core::Ask],
        out: &mut Vec<isotherm_core::Seen>,
    ) -> Result<Cost, OpsError> {
        self.ops.look(asks, out)
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        self.ops.survey()
    }
}
