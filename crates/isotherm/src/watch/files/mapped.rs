//! Accesses to files through mappings: our own monitor, over the mapped parts of the files in all processes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Cost, Liveness, Look, Mapping, Monitor, MonitorKind, Nanos, OpsError, RegionView,
    Snapshot, Space, Step, Survey, TargetId, TargetView, watch,
};
use isotherm_linux::page_cache::MappedPart;
use isotherm_linux::proc::is_first_namespace;
use isotherm_linux::{Processes, Way, WayError};
use tracing::debug;

use crate::ROOT;
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
    /// in these processes
    parts: Vec<MappedPart>,
    /// in others: the file and offsets
    unwatched: Vec<(u64, AddrRange)>,
    last: Option<Arc<Snapshot>>,
    regions: MappedRegions,
}

/// By file, its mapped parts as regions. Those of a process are adjacent.
pub type MappedRegions = HashMap<u64, Vec<MappedRegion>>;

/// A part of a file in a process that maps it.
#[derive(Debug, Clone, Copy)]
pub struct MappedRegion {
    /// 0: some processes that are not watched
    pub pid: i32,
    /// offsets in the file
    pub range: AddrRange,
    /// `None`: accesses of the process were not observed
    pub region: Option<RegionView>,
}

impl MappedFiles {
    /// Opens the best way to look at processes, and its name.
    pub fn open(seed: u64) -> Result<(Self, Way), MappedError> {
        if !is_first_namespace(ROOT.as_ref()) {
            return Err(MappedError::Namespace);
        }
        let best = Way::best()?;
        let mut ops = MappedOnly { ops: best.ops, wanted: BTreeMap::new() };
        let reads_all = ops.survey().is_some();
        let mut attrs = DefaultAttrs.attrs_for(best.way, reads_all)?;
        if attrs.monitor == MonitorKind::Exposure {
            attrs.budget_ppm = BUDGET_PPM;
        }
        let mut monitor = watch(ops, attrs, &[], seed).map_err(UsageError::from)?;
        monitor.outlive_targets();
        let mapped = MappedFiles {
            monitor,
            processes: BTreeMap::new(),
            parts: Vec::new(),
            unwatched: Vec::new(),
            last: None,
            regions: HashMap::new(),
        };
        Ok((mapped, best.way))
    }

    /// Watches these parts from now on. What other processes do with their parts is unknown: those that map less than
    /// the largest, and those that cannot be attached.
    pub fn set_parts(&mut self, mut parts: Vec<MappedPart>) {
        let mut sizes: BTreeMap<i32, u64> = BTreeMap::new();
        parts.iter().for_each(|p| *sizes.entry(p.holder.pid).or_default() += p.range.len());
        let mut largest: Vec<(i32, u64)> = sizes.into_iter().collect();
        largest.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
        largest.truncate(MAX_PROCESSES);
        let is_wanted = |pid: &i32| largest.iter().any(|(wanted, _)| wanted == pid);
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
        let is_unwatched = |p: &mut MappedPart| !self.processes.contains_key(&p.holder.pid);
        self.unwatched = joined(parts.extract_if(.., is_unwatched).map(|p| in_file(&p, p.range)));
        parts.sort_by_key(|p| p.holder.pid);
        self.parts = parts;
        self.monitor.set_targets(&self.processes.values().copied().collect::<Vec<_>>());
        self.place_regions();
    }

    /// Does the work that is due; returns the cost, and until when to wait.
    pub fn step(&mut self, now: Nanos) -> Result<(Cost, Nanos), OpsError> {
        match self.monitor.step(now)? {
            Step::Wait(until) => Ok((Cost::default(), until)),
            Step::Snapshot(s) => {
                let cost = s.cost;
                self.last = Some(s);
                self.place_regions();
                Ok((cost, now))
            }
            Step::End(_) => Ok((Cost::default(), now + Duration::from_secs(1))),
        }
    }

    /// The last snapshot, by file, with the parts that are not watched.
    pub fn regions(&self) -> &MappedRegions {
        &self.regions
    }

    fn place_regions(&mut self) {
        let targets = self.last.as_ref().map(|s| &s.targets[..]).unwrap_or_default();
        self.regions = in_files(&self.parts, &self.processes, targets);
        for &(file, range) in &self.unwatched {
            let unwatched = MappedRegion { pid: 0, range, region: None };
            self.regions.entry(file).or_default().push(unwatched);
        }
    }
}

/// The regions of the processes, by file. A process without regions may have accessed all of its parts.
fn in_files(
    parts: &[MappedPart],
    processes: &BTreeMap<i32, TargetId>,
    targets: &[TargetView],
) -> MappedRegions {
    let mut regions = MappedRegions::new();
    for part in parts {
        let pid = part.holder.pid;
        let mut add = |addresses, region| {
            let (file, range) = in_file(part, addresses);
            regions.entry(file).or_default().push(MappedRegion { pid, range, region });
        };
        let target = processes.get(&pid);
        let view = targets.iter().find(|view| Some(&view.id) == target);
        let Some(all) = view.map(|view| &view.regions[..]).filter(|all| !all.is_empty()) else {
            add(part.range, None);
            continue;
        };
        let from = all.partition_point(|r| r.range.end <= part.range.start);
        for region in all.iter().skip(from) {
            let Some(addresses) = region.range.intersect(&part.range) else { break };
            add(addresses, Some(*region));
        }
    }
    regions
}

/// The file, and the offsets of these addresses of a part.
fn in_file(part: &MappedPart, addresses: AddrRange) -> (u64, AddrRange) {
    let offset = |at: u64| part.offset.saturating_add(at - part.range.start);
    (part.holder.file, AddrRange::new(offset(addresses.start), offset(addresses.end)))
}

/// The same offsets, each once: very many processes may map the same files.
fn joined(parts: impl Iterator<Item = (u64, AddrRange)>) -> Vec<(u64, AddrRange)> {
    let mut parts: Vec<_> = parts.collect();
    parts.sort_unstable();
    let mut out: Vec<(u64, AddrRange)> = Vec::new();
    for (file, range) in parts {
        match out.last_mut() {
            Some((of, last)) if *of == file && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            _ => out.push((file, range)),
        }
    }
    out
}

/// Why mapped parts cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappedError {
    /// The pids of mappings are those of the first namespace, and processes outside of isotherm's own cannot be found.
    #[error(
        "isotherm runs in a pid namespace, where it cannot find all processes that map a file: start it in the pid \
         namespace of the machine, in a container with --pid=host"
    )]
    Namespace,
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

#[cfg(test)]
mod tests {
    use isotherm_linux::page_cache::FileUser;

    use super::*;

    fn part(pid: i32, file: u64, start: u64, len: u64, offset: u64) -> MappedPart {
        let range = AddrRange::new(start, start + len);
        MappedPart { holder: FileUser { file, pid }, range, offset }
    }

    #[test]
    fn parts_of_processes_without_regions_are_not_observed() {
        let parts = [part(1, 7, 0x1000, 0x3000, 0), part(2, 7, 0x9000, 0x1000, 0x5000)];
        let found = in_files(&parts, &BTreeMap::from([(1, TargetId(0)), (2, TargetId(1))]), &[]);
        let found: Vec<_> =
            found[&7].iter().map(|r| (r.pid, r.range, r.region.is_none())).collect();
        let expected =
            [(1, AddrRange::new(0, 0x3000), true), (2, AddrRange::new(0x5000, 0x6000), true)];
        assert_eq!(found, expected);
    }

    #[test]
    fn unwatched_parts_count_once() {
        let parts = [
            part(1, 7, 0x1000, 0x3000, 0),
            part(2, 7, 0x9000, 0x1000, 0x2000),
            part(3, 7, 0x1000, 0x2000, 0x3000),
            part(3, 8, 0x5000, 0x1000, 0x3000),
            part(4, 8, 0x5000, 0x1000, 0x1000),
        ];
        let found = joined(parts.iter().map(|p| in_file(p, p.range)));
        let expected = [(7, 0, 0x5000), (8, 0x1000, 0x2000), (8, 0x3000, 0x4000)];
        assert_eq!(found, expected.map(|(file, start, end)| (file, AddrRange::new(start, end))));
    }
}
