//! The figures that goals, watermarks and filters use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    Aim, FilterKind, GroupCache, MemoryMetrics, Metrics, Prices, Process, Scheme, Scope,
};
use isotherm_core::{Attribution, Nanos, Snapshot, TargetId, TargetView, Thresholds};
use isotherm_linux::cgroup::{Cgroup, CgroupError, Version};
use isotherm_linux::sys::read_regular;
use isotherm_linux::{counts_stalls, fragmentation, free, of_group, of_machine, proc, swap};
use tracing::info;

use super::MeterError;
use super::continued_pressure::ContinuedPressure;
use super::needs::{RequiredMetric, is_of_targets, needs};
use crate::follow::Selection;
use crate::schemes::TARGETS;
use crate::words::chain;

/// Advice for a kernel that does not count stalls of the targets: first for options, then for keys of a file.
const NO_STALLS: &str = "--goal psi=SHARE uses the control group of the targets: give --all to \
                         use the whole machine, or --goal refault=SHARE, or leave out --goal";
const NO_STALLS_OF: &str = "of = \"machine\" uses the figures of the whole machine";

/// Advice for targets without a common group: first for options, then for keys of a file.
const NO_COMMON_GROUP: &str = ", and --goal requires a common one: give --all to use the whole machine, or leave out \
                               --goal";
const NO_COMMON_GROUP_OF: &str =
    ": choose whose pressure counts, with of = \"PATH\" or of = \"machine\"";

/// Time between two readings of page caches.
const CACHE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum length of a file that holds a number, in bytes.
const MAX_NUMBER: u64 = 64;

/// Reads the figures that the schemes use, and no others.
#[derive(Default)]
pub struct Meter {
    scopes: Vec<Scope>,
    /// groups that a scheme names by path
    groups: BTreeMap<Arc<str>, Cgroup>,
    free: bool,
    fragmentation: bool,
    files: BTreeSet<Arc<str>>,
    /// whether a filter uses the pid or the name of targets
    by_process: bool,
    /// pids and names of the targets at the last snapshot
    processes: BTreeMap<TargetId, Process>,
    /// sequence number of the last snapshot for which names and groups were read
    looked_up: Option<u64>,
    /// which schemes use a figure that cannot be read yet, and why
    missing: Vec<String>,
    /// whether a scheme has an objective, and uses the major faults of each target
    by_fault: bool,
    /// whether a filter or an objective uses the control group of targets
    by_group: bool,
    /// whether a scheme uses the memory pressure of the targets' group
    pressure_of_targets: bool,
    /// this pressure, whichever group has it
    pressure: ContinuedPressure,
    /// why that pressure cannot be read
    rests: Option<String>,
    /// name of the scheme that was made from options
    of_options: Option<Arc<str>>,
    /// whether that scheme uses the pressure of the targets' group
    pressure_by_option: bool,
    /// what it costs to take memory away, if a scheme uses that
    prices: Prices,
    /// control group of each target
    of_targets: BTreeMap<TargetId, Option<Cgroup>>,
    /// The path by which that group was looked up last: processes move to other groups.
    attributed: BTreeMap<TargetId, Arc<str>>,
    /// whether an objective bounds the refaults of page cache
    by_cache: bool,
    /// A request has changed the targets, which may no longer be whole groups.
    has_other_targets: bool,
    /// page cache of the targets' groups, and the time of this reading
    caches: BTreeMap<Arc<str>, GroupCache>,
    caches_read: Option<Nanos>,
    /// whether the kernel reclaims page cache alone from a group
    reclaims_cache: BTreeMap<Arc<str>, bool>,
}

impl Meter {
    /// A meter for these schemes, while `pids` are watched. [`Meter::missing`] lists missing figures that may
    /// appear later, such as those of a control group or a file. A scheme does nothing while one of its figures is
    /// missing. For the scheme named `of_options`, which was made from options, errors suggest options.
    ///
    /// # Errors
    /// If a scheme uses a figure that can never be read here.
    pub fn new<'a>(
        root: &Path,
        schemes: impl Iterator<Item = &'a Scheme>,
        pids: &[i32],
        of_options: Option<&str>,
    ) -> Result<Self, MeterError> {
        let of_options = of_options.map(Arc::from);
        let mut meter = Meter { of_options, ..Meter::default() };
        for scheme in schemes {
            let named = || format!("scheme `{}`", scheme.name);
            for need in needs(scheme) {
                let by_option = meter.of_options.as_ref() == Some(&scheme.name);
                let lack = meter.add(root, need, pids, by_option).map_err(|e| {
                    MeterError::Scheme { scheme: scheme.name.to_string(), source: Box::new(e) }
                })?;
                let rests = |why| format!("{} does nothing until this can be read: {why}", named());
                meter.missing.extend(lack.map(|e| rests(chain(&e))));
            }
            if scheme.quota.weights.cost > 0 {
                meter.prices = prices(root);
            }
            meter.by_group |= scheme.aim.is_some();
            meter.by_fault |= scheme.aim.is_some();
            meter.by_cache |= matches!(scheme.aim, Some(Aim::Refaults(_)));
            for filter in &scheme.filters {
                meter.by_group |= matches!(filter.kind, FilterKind::Cgroup(_));
                meter.by_process |= matches!(filter.kind, FilterKind::Pid(_) | FilterKind::Comm(_));
            }
        }
        Ok(meter)
    }

    /// The same for these targets. If they are not whole groups, the page cache of their groups may belong to other
    /// processes, and is left alone.
    pub fn selecting(self, targets: &Selection) -> Self {
        Meter { by_cache: self.by_cache && targets.is_of_whole_groups(), ..self }
    }

    /// The same as the successor of another meter: counters continue.
    pub fn after(self, before: Meter) -> Self {
        let Meter { pressure, has_other_targets, .. } = before;
        let by_cache = self.by_cache && !has_other_targets;
        Meter { pressure, by_cache, has_other_targets, ..self }
    }

    /// Notes that a request has changed the targets. The page cache of their groups is left alone from now on, as in
    /// [`Meter::selecting`].
    pub fn note_other_targets(&mut self) {
        if self.by_cache {
            info!(
                "page cache that no process maps stays from now on: a request has changed the targets, which may no \
                 longer be whole control groups"
            );
        }
        (self.by_cache, self.has_other_targets) = (false, true);
        self.caches.clear();
    }

    /// Whether a scheme reads a number from a file, which may belong to another user.
    pub fn reads_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Whether a scheme uses [`Metrics::major_faults`], which this meter does not read.
    pub fn needs_faults(&self) -> bool {
        self.by_fault
    }

    /// Descriptions of the figures that cannot be read yet.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Reads this figure from now on. Returns why it cannot be read yet.
    fn add(
        &mut self,
        root: &Path,
        need: RequiredMetric<'_>,
        pids: &[i32],
        by_option: bool,
    ) -> Result<Option<MeterError>, MeterError> {
        match need {
            RequiredMetric::Free => {
                free(root)?;
                self.free = true;
            }
            RequiredMetric::Fragmentation => {
                fragmentation(root)?;
                self.fragmentation = true;
            }
            RequiredMetric::File(path) => {
                self.files.insert(path.clone());
                return Ok(number(path).err());
            }
            RequiredMetric::Scope(scope) => return Ok(self.add_scope(root, scope)),
            RequiredMetric::Faults(scope) => return Ok(self.add_pressure(root, scope, by_option)),
            RequiredMetric::Stalls(scope) => {
                return match self.add_pressure(root, scope, by_option) {
                    None => self.check_stalls(root, scope, pids, by_option),
                    lack => Ok(lack),
                };
            }
        }
        Ok(None)
    }

    fn add_pressure(&mut self, root: &Path, scope: &Scope, by_option: bool) -> Option<MeterError> {
        if is_of_targets(scope) {
            self.pressure_of_targets = true;
            self.pressure_by_option |= by_option;
        }
        self.add_scope(root, scope)
    }

    fn add_scope(&mut self, root: &Path, scope: &Scope) -> Option<MeterError> {
        if !self.scopes.contains(scope) {
            self.scopes.push(scope.clone());
        }
        let Scope::Group(name) = scope else { return None };
        self.by_group = true;
        self.find_group(root, name).err().map(Into::into)
    }

    fn find_group(&mut self, root: &Path, name: &Arc<str>) -> Result<(), CgroupError> {
        if **name != *TARGETS && !self.groups.contains_key(name) {
            let group = Cgroup::find(root, Path::new(&**name))?;
            self.groups.insert(name.clone(), group);
        }
        Ok(())
    }

    /// Without this check, a goal for stalls would always seem to be met on a kernel that does not count them.
    /// Returns why they cannot be read for the present targets.
    fn check_stalls(
        &self,
        root: &Path,
        scope: &Scope,
        pids: &[i32],
        by_option: bool,
    ) -> Result<Option<MeterError>, MeterError> {
        let check = |group| counts_stalls(root, group).map_err(MeterError::Stalls);
        match scope {
            Scope::Machine => check(None)?,
            _ if is_of_targets(scope) => {
                let groups = pids.iter().map(|&pid| Cgroup::of_process(root, pid));
                let group = match common(groups.collect::<Vec<_>>().iter(), by_option) {
                    Ok(group) => group,
                    Err(several) => return Ok(Some(several)),
                };
                let help = if by_option { NO_STALLS } else { NO_STALLS_OF };
                let source = |e| MeterError::StallsOfTargets { help, source: Box::new(e) };
                check(group.as_ref()).map_err(source)?;
            }
            Scope::Group(name) => check(self.groups.get(name))?,
        }
        Ok(None)
    }

    /// Notes the control groups of targets: the next read looks up a group that has changed.
    pub fn note_groups<'a>(&mut self, attributions: impl Iterator<Item = &'a Attribution>) {
        for a in attributions.filter(|_| self.by_group) {
            if self.attributed.get(&a.target) != Some(&a.cgroup) {
                self.attributed.insert(a.target, Arc::clone(&a.cgroup));
                self.of_targets.remove(&a.target);
            }
        }
    }

    /// The present figures; `s` is the last snapshot, and `pids` maps its targets to processes.
    pub fn read(&mut self, root: &Path, s: &Snapshot, pids: &BTreeMap<TargetId, i32>) -> Metrics {
        if self.by_group {
            self.of_targets.retain(|target, _| pids.contains_key(target));
            self.attributed.retain(|target, _| pids.contains_key(target));
            for (&target, &pid) in pids {
                self.of_targets.entry(target).or_insert_with(|| Cgroup::of_process(root, pid));
            }
        }
        // Names change with exec, and groups are created. A lookup per snapshot suffices; there are many steps
        // between snapshots.
        if self.looked_up.replace(s.seq) != Some(s.seq) {
            self.look_up(root, pids);
            let is_old = |at: Nanos| s.end.since(at) >= CACHE_INTERVAL;
            if self.by_cache && self.caches_read.is_none_or(is_old) {
                self.caches_read = Some(s.end);
                self.read_caches();
            }
        }
        let mut metrics = Metrics {
            cgroups: self.paths(),
            caches: self.caches.clone(),
            processes: self.processes.clone(),
            prices: self.prices,
            free_bp: self.free.then(|| free(root).ok()).flatten(),
            fragmentation_bp: self.fragmentation.then(|| fragmentation(root).ok()).flatten(),
            user: self.files.iter().filter_map(|p| Some((p.clone(), number(p).ok()?))).collect(),
            ..Metrics::default()
        };
        for scope in self.scopes.clone() {
            match &scope {
                Scope::Machine => {
                    metrics.machine = with_working_set(of_machine(root), s, |_| true);
                }
                Scope::Group(name) => {
                    let figures = self.of_scope(root, name, s, pids);
                    metrics.groups.extend(figures.map(|f| (name.clone(), f)));
                }
            }
        }
        metrics
    }

    fn look_up(&mut self, root: &Path, pids: &BTreeMap<TargetId, i32>) {
        if self.by_process {
            let of = |(&target, &pid)| Some((target, process(root, pid)?));
            self.processes = pids.iter().filter_map(of).collect();
        }
        for scope in self.scopes.clone() {
            if let Scope::Group(name) = scope {
                let _ = self.find_group(root, &name);
            }
        }
    }

    fn read_caches(&mut self) {
        let of_targets = self.of_targets.values().flatten().filter(|g| g.version() == Version::V2);
        let groups: BTreeMap<Arc<str>, &Cgroup> = of_targets.map(|g| (path(g), g)).collect();
        self.reclaims_cache.retain(|path, _| groups.contains_key(path));
        for (path, group) in &groups {
            if !self.reclaims_cache.contains_key(path) {
                let possible = group.reclaim_cache(0).map_err(|e| chain(&e));
                if let Err(why) = &possible {
                    info!("page cache that no process maps stays: {why}");
                }
                self.reclaims_cache.insert(path.clone(), possible.is_ok());
            }
        }
        let of = |(path, group): (Arc<str>, &Cgroup)| {
            self.reclaims_cache.get(&path).filter(|possible| **possible)?;
            Some((path, group.unmapped_cache()?))
        };
        self.caches = groups.into_iter().filter_map(of).collect();
    }

    /// Why the schemes that use the pressure of the targets are inactive now; `None` if they are not.
    pub fn rests(&self) -> Option<&str> {
        self.rests.as_deref().filter(|_| self.pressure_of_targets)
    }

    fn of_scope(
        &mut self,
        root: &Path,
        name: &str,
        s: &Snapshot,
        pids: &BTreeMap<TargetId, i32>,
    ) -> Option<MemoryMetrics> {
        if name == TARGETS {
            let pressure = match common(self.of_targets.values(), self.pressure_by_option) {
                Ok(group) => {
                    let now = group.as_ref().map_or_else(|| of_machine(root), of_group).pressure;
                    now.map(|now| self.pressure.next(group, now))
                }
                Err(e) => {
                    self.rests.get_or_insert_with(|| e.to_string());
                    None
                }
            };
            let of = |&pid| Some(proc::resident(root, pid).ok()?.all);
            let resident = Some(pids.values().filter_map(of).sum());
            return Some(with_working_set(
                MemoryMetrics { pressure, resident, working_set: None },
                s,
                |_| true,
            ));
        }
        let group = self.groups.get(name).filter(|g| g.exists())?;
        let inside = |view: &TargetView| {
            let of = self.of_targets.get(&view.id).and_then(Option::as_ref);
            of.is_some_and(|of| of.dir().starts_with(group.dir()))
        };
        Some(with_working_set(of_group(group), s, inside))
    }

    fn paths(&self) -> BTreeMap<TargetId, Arc<str>> {
        let of = self.of_targets.iter();
        of.filter_map(|(&target, group)| Some((target, path(group.as_ref()?)))).collect()
    }
}

fn path(group: &Cgroup) -> Arc<str> {
    Arc::from(group.dir().to_string_lossy())
}

/// The prices of this machine: the mean time of its reads from disks so far, and where its swap is.
fn prices(root: &Path) -> Prices {
    let default = Prices::default();
    let read = proc::time_of_read(root).unwrap_or(default.read);
    match swap::is_compressed(root) {
        Some(false) => Prices::on_disk(read),
        _ => Prices { read, ..default },
    }
}

/// The group that contains all targets; `None` for the root of all groups.
fn common<'a>(
    groups: impl Iterator<Item = &'a Option<Cgroup>>,
    by_option: bool,
) -> Result<Option<Cgroup>, MeterError> {
    let mut all: Vec<&Option<Cgroup>> = groups.collect();
    all.dedup();
    match all[..] {
        [] => Ok(None),
        [group] => Ok(group.clone()),
        _ if by_option => Err(MeterError::SeveralGroups(NO_COMMON_GROUP)),
        _ => Err(MeterError::SeveralGroups(NO_COMMON_GROUP_OF)),
    }
}

fn process(root: &Path, pid: i32) -> Option<Process> {
    Some(Process { pid, comm: proc::stat(root, pid).ok()?.comm.into() })
}

/// Adds the working set: the recently touched bytes of the targets that `counts` selects.
fn with_working_set(
    f: MemoryMetrics,
    s: &Snapshot,
    counts: impl Fn(&TargetView) -> bool,
) -> MemoryMetrics {
    let thresholds = Thresholds::default();
    let views = s.targets.iter().filter(|view| counts(view));
    let touched = views.flat_map(|view| &view.regions).map(|region| {
        let bytes = region.bytes(&thresholds);
        bytes.hot + bytes.warm
    });
    MemoryMetrics { working_set: Some(touched.sum()), ..f }
}

/// The number that a file contains.
fn number(path: &str) -> Result<f64, MeterError> {
    let bytes = read_regular(path.as_ref(), MAX_NUMBER)
        .map_err(|source| MeterError::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    text.trim().parse().map_err(|source| MeterError::NoNumber {
        path: path.to_owned(),
        text: text.clone().into_owned(),
        source,
    })
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
