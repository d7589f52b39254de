//! How much memory do targets need, how much could they give up, and how much would come back?
//!
//! C(T) is the memory that is idle for T or more, and R(T) the part of it that is touched per second. Whoever
//! gives up what is idle for T saves C(T), and R(T) comes back. The objective bounds R by a share of the working
//! set a minute, as in far memory (Lagar-Cavilla et al., ASPLOS 2019): its T is the least that meets it.

mod cache;
mod presence;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AgeCurve, AgeHistogram, Attribution, CacheCurve, CacheTrace, IdleMemory, KNOWN_SHARE,
    MIN_AGE_S, MIN_RECORD_S, NO_AGES, Nanos, RegionView, Snapshot, TargetId, TargetView,
    idle_times, idle_times_from, kept_together, together, too_much_unknown,
};
use serde::Serialize;

use crate::basis::ms;
use crate::distribution::Distribution;
use crate::filter::{FilterError, Gate, Options};
use crate::units::MIB;

use self::presence::{Presence, counted_again, most_at_once};

pub use cache::{CacheNeed, CacheRow, ScanRow};

/// Idle times of the table, in s.
const TABLE_IDLE_TIMES_S: [f64; 17] = [
    5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0,
    3600.0, 7200.0, 14_400.0,
];
/// Headroom of a limit above the need, and the growth of returns within it that makes a cliff.
const HEADROOM: f64 = 0.05;
const CLIFF: f64 = 10.0;
/// The shortest idle time in s below which a cliff may lie. Ages below [`MIN_AGE_S`] are not known well enough for an
/// answer, but well enough for a factor of ten.
const SHORTEST_CLIFF_S: f64 = 0.25;
/// The need is the memory that is kept in this share of the time, in percent: in all but half an hour of a day.
pub(crate) const NEEDED_PERCENT: f64 = 98.0;
/// Maximum number of different sizes for an exact percentile.
const SIZES: usize = 1 << 14;
/// Maximum number of accesses to files that are kept.
const MAX_ACCESSES: usize = 4 << 20;
/// CPU time for paging out a page to swap in compressed memory: `docs/concepts/acting.md`.
const PAGE_OUT: Duration = Duration::from_nanos(4220);

/// The goals of a [`Need`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Objective {
    /// memory that may come back per minute, in percent of the working set
    pub percent_per_minute: f64,
    /// time for which the program waits until a page is back
    pub fault: Duration,
}

impl Default for Objective {
    /// 0.2 % a minute, as in far memory; 20 us, the time for swap in compressed memory.
    fn default() -> Self {
        Objective { percent_per_minute: 0.2, fault: Duration::from_micros(20) }
    }
}

/// How much memory a record's targets need.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Need {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// heading
    pub title: String,
    /// begin of the used part of the record
    pub from_ms: f64,
    /// its end
    pub to_ms: f64,
    /// the objective: memory that may come back per minute, in percent of the working set
    pub objective_percent_per_minute: f64,
    /// time for which the program waits until a page is back
    pub fault_us: f64,
    /// number of targets that have ended: their ages do not count, their memory does
    pub ended_targets: u64,
    /// All targets together, and if there are several, each of them or of their control groups. Empty if they are
    /// files, whose need is `cache`.
    pub needs: Vec<NeedRow>,
    /// the page cache that files need, if accesses to them were listed
    pub cache: Option<CacheNeed>,
}

/// The need of one target, or of all together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NeedRow {
    /// number of the target; `None` for a control group, and for all together
    pub target: Option<u32>,
    /// its name
    pub label: String,
    /// time for which idle ages were counted, also before the used part of the record
    pub counted_ms: f64,
    /// Mean error of an idle age.
    pub error_ms: f64,
    /// memory whose idle ages are known, resident, in swap or evicted: mean over the time
    pub known_bytes: u64,
    /// the part of it in swap, or evicted of mapped files and shared memory
    pub swapped_bytes: u64,
    /// the part of it in huge pages, of which only a whole one is idle
    pub huge_bytes: u64,
    /// resident memory whose accesses cannot be observed
    pub unknown_bytes: u64,
    /// memory of files and shared memory that may count more than once, because several targets map it
    pub counted_again_bytes: u64,
    /// the most memory at once of targets that have ended: limits must leave room for it, as it may be needed again
    pub ended_bytes: u64,
    /// the most memory at once, also of targets that have ended
    pub most_bytes: u64,
    /// by idle time, the shortest first
    pub curve: Vec<NeedPoint>,
    /// the answer, if there is one
    pub verdict: Option<RequiredMemory>,
    /// why there is no answer
    pub refused: Option<String>,
}

/// The saving and the cost of giving up the memory that is idle for some time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NeedPoint {
    /// the idle time
    pub idle_ms: f64,
    /// memory that is idle for this time or longer, mean over the time
    pub saved_bytes: u64,
    /// the rest of the memory, including unknown memory, mean over the time
    pub kept_bytes: u64,
    /// saved memory that would come back per second
    pub returned_bytes_per_second: f64,
    /// the same per minute, in percent of the kept memory
    pub returned_percent_per_minute: f64,
    /// time for which the program would wait for it, in percent of the time
    pub waiting_percent: f64,
    /// CPU time for paging out again what comes back, in percent of a CPU
    pub acting_percent: f64,
}

/// The memory that must stay so that the objective is met, and suggestions that follow from it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequiredMemory {
    /// the point at which the objective is met
    pub at: NeedPoint,
    /// what is idle there, comes back and costs at least, by the error of ages and counts
    pub at_least: NeedPoint,
    /// the same at most
    pub at_most: NeedPoint,
    /// memory that must stay at this point in 98 % of the time
    pub needed_bytes: u64,
    /// the same at least, by the error of ages and counts
    pub low_bytes: u64,
    /// the same at most
    pub high_bytes: u64,
    /// Whether the record is too short to exclude that all memory must stay: then `high_bytes` is the most at once.
    pub high_is_most: bool,
    /// Just below the limit, far more comes back: lower it in steps.
    pub is_cliff: bool,
    /// suggestions
    #[serde(flatten)]
    pub limits: SuggestedLimits,
    /// the suggestions for `low_bytes`
    pub low_limits: SuggestedLimits,
    /// the suggestions for `high_bytes`
    pub high_limits: SuggestedLimits,
}

/// Suggestions for limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SuggestedLimits {
    /// `memory.high`, also the request of a Kubernetes container: the need, memory of targets that have ended, and
    /// headroom
    pub memory_high_bytes: u64,
    /// `memory.max`, also its limit: the most memory at any time and headroom
    pub memory_max_bytes: u64,
    /// memory of the smallest usual instance: a power of two
    pub instance_bytes: u64,
}

/// Makes a [`Need`] from snapshots, which must be pushed in order of time.
#[derive(Debug)]
pub struct NeedBuilder {
    options: Options,
    objective: Objective,
    gate: Gate,
    curves: BTreeMap<TargetId, AgeCurve>,
    presences: BTreeMap<TargetId, Presence>,
    /// targets of the last snapshot that has any
    last: Vec<TargetId>,
    /// targets that are files
    files: BTreeSet<TargetId>,
    /// control groups of the targets, if rows are groups
    groups: Option<BTreeMap<TargetId, Attribution>>,
    traces: Vec<Arc<CacheTrace>>,
    /// number of their accesses
    accesses: usize,
    /// sizes of page caches to try
    sizes: Vec<u64>,
    /// resident memory of the files in the last snapshot
    cached: u64,
}

impl NeedBuilder {
    /// A builder that has received no snapshot.
    #[must_use]
    pub fn new(options: Options, objective: Objective) -> Self {
        NeedBuilder {
            gate: Gate::new(options.filter.clone()),
            options,
            objective,
            curves: BTreeMap::new(),
            presences: BTreeMap::new(),
            last: Vec::new(),
            files: BTreeSet::new(),
            groups: None,
            traces: Vec::new(),
            accesses: 0,
            sizes: Vec::new(),
            cached: 0,
        }
    }

    /// Rows are the control groups of these attributions, each including the groups below it.
    pub fn by_cgroup<'a>(&mut self, attributions: impl Iterator<Item = &'a Attribution>) {
        self.groups = Some(attributions.map(|a| (a.target, a.clone())).collect());
    }

    /// Also shows page caches of these sizes in bytes, if targets are files.
    pub fn try_sizes(&mut self, sizes: &[u64]) {
        self.sizes.extend_from_slice(sizes);
    }

    /// Adds accesses to files.
    ///
    /// Of very many, those of a smaller sample of the pages are kept.
    pub fn trace(&mut self, trace: &Arc<CacheTrace>) {
        self.traces.push(Arc::clone(trace));
        let accesses = |t: &Arc<CacheTrace>| t.accesses.len();
        self.accesses += accesses(trace);
        for next in trace.sampling.saturating_add(1)..u8::MAX {
            if self.accesses <= MAX_ACCESSES {
                break;
            }
            for trace in self.traces.iter_mut().filter(|t| t.sampling < next) {
                let trace = Arc::make_mut(trace);
                trace.sampling = next;
                trace.accesses.retain(|a| a.rarity >= next);
                trace.accesses.shrink_to_fit();
            }
            self.accesses = self.traces.iter().map(accesses).sum();
        }
    }

    /// Adds a snapshot, if it is in the selected time.
    pub fn push(&mut self, s: &Snapshot) {
        if self.gate.admit(s).is_none() {
            return;
        }
        if self.options.filter.views(s).next().is_some() {
            self.last.clear();
        }
        let resident = |view: &TargetView| -> u64 {
            view.regions.iter().map(RegionView::resident_bytes).sum()
        };
        self.cached = 0;
        for view in self.options.filter.views(s) {
            self.last.push(view.id);
            let bytes = resident(view);
            let presence = self.presences.entry(view.id);
            presence.or_insert_with(|| Presence::new(s.start)).see(view, bytes, s.end);
            let curve = self.curves.entry(view.id).or_default();
            if let Some(ages) = &view.ages {
                curve.push(ages, s.end);
            }
            if view.is_file() {
                self.files.insert(view.id);
                self.cached += bytes;
            }
        }
    }

    /// The figures.
    ///
    /// # Errors
    /// If there is no snapshot in the selected time.
    pub fn finish(mut self) -> Result<Need, FilterError> {
        let time = self.gate.found()?;
        let all = self.curves.len();
        self.curves.retain(|id, _| self.last.contains(id));
        let ended = all - self.curves.len();
        let cache = self.cache();
        if cache.is_some() {
            // Listed accesses are more exact for files than the ages of their windows.
            self.curves.retain(|id, _| !self.files.contains(id));
            self.presences.retain(|id, _| !self.files.contains(id));
        }
        let mut needs = Vec::new();
        if cache.is_none() || !self.presences.is_empty() {
            needs.push(self.row((None, "all together".to_owned()), |_| true));
        }
        if needs.is_empty() {
            // Only files.
        } else if let Some(groups) = &self.groups {
            let is_in = |id: &TargetId, path: &str| {
                groups.get(id).is_some_and(|a| a.groups().any(|group| group == path))
            };
            let paths = self.telling_groups(groups).into_iter();
            needs.extend(paths.map(|path| self.row((None, path.to_owned()), |id| is_in(id, path))));
        } else if self.curves.len() > 1 {
            let named = |id: &TargetId| (Some(id.0), self.options.label(*id));
            needs.extend(self.curves.keys().map(|id| self.row(named(id), |other| other == id)));
        }
        Ok(Need {
            schema_version: 1,
            title: self.options.title.clone(),
            from_ms: ms(time.start),
            to_ms: ms(time.end),
            objective_percent_per_minute: self.objective.percent_per_minute,
            fault_us: self.objective.fault.as_secs_f64() * 1e6,
            ended_targets: ended as u64,
            needs,
            cache,
        })
    }

    /// The hit ratio of the page cache; `None` if no accesses were listed.
    fn cache(&self) -> Option<CacheNeed> {
        let wanted = |id: TargetId| self.options.filter.wants(id);
        let middle = |t: &CacheTrace| Nanos(t.since.0.midpoint(t.until.0));
        let traces: Vec<&CacheTrace> = self.traces.iter().map(AsRef::as_ref).collect();
        let traces = traces.into_iter().filter(|t| self.gate.is_in_time(middle(t)));
        let files: BTreeSet<TargetId> =
            traces.clone().flat_map(|t: &CacheTrace| &t.accesses).map(|a| a.target).collect();
        let files = files.into_iter().filter(|id| wanted(*id)).count() as u64;
        (!self.traces.is_empty()).then(|| {
            let curve = CacheCurve::new(traces, wanted);
            let name = |id| self.options.label(id);
            CacheNeed::new(curve, files, self.cached, &self.sizes, name)
        })
    }

    /// The control groups of targets that are there, but no group above that has no other targets than a group below
    /// it.
    fn telling_groups<'a>(&self, groups: &'a BTreeMap<TargetId, Attribution>) -> Vec<&'a str> {
        let mut of: BTreeMap<&str, usize> = BTreeMap::new();
        for id in self.curves.keys() {
            let paths = groups.get(id).into_iter().flat_map(Attribution::groups);
            paths.for_each(|path| *of.entry(path).or_default() += 1);
        }
        let is_below = |path: &str, above: &str| {
            path != above
                && path.starts_with(above)
                && (above == "/" || path[above.len()..].starts_with('/'))
        };
        let says_more =
            |above: &str, nr: usize| !of.iter().any(|(path, n)| is_below(path, above) && *n == nr);
        of.iter().filter(|(path, n)| says_more(path, **n)).map(|(path, _)| *path).collect()
    }

    /// The row of the targets that `wants` selects.
    fn row(
        &self,
        (target, label): (Option<u32>, String),
        wants: impl Fn(&TargetId) -> bool,
    ) -> NeedRow {
        let curves = self.curves.iter().filter(|(id, _)| wants(id)).map(|(_, curve)| curve);
        let curves: &[&AgeCurve] = &curves.collect::<Vec<_>>();
        let presences = || self.presences.iter().filter(|(id, _)| wants(id));
        let (there, ended): (Vec<_>, Vec<_>) =
            presences().partition(|(id, _)| self.curves.contains_key(id));
        let ended = most_at_once(ended.into_iter().map(|(_, presence)| presence));
        let most = most_at_once(presences().map(|(_, presence)| presence));
        let sum = |of: fn(&AgeCurve) -> f64| curves.iter().map(|c| of(c)).sum::<f64>();
        let longest = |of: fn(&AgeCurve) -> f64| curves.iter().map(|c| of(c)).fold(0.0, f64::max);
        let needing = Needing {
            curves,
            objective: self.objective,
            known: sum(AgeCurve::bytes),
            unknown: sum(AgeCurve::unknown),
            most: most as f64,
            most_there: most_at_once(there.iter().map(|(_, presence)| *presence)) as f64,
            ended: ended as f64,
            observed: longest(AgeCurve::observed),
            error: longest(AgeCurve::error),
            longest: longest(AgeCurve::longest),
        };
        let verdict = needing.verdict();
        let (verdict, refused) = match verdict {
            Ok(verdict) => (Some(verdict), None),
            Err(why) => (None, Some(why)),
        };
        let steps = TABLE_IDLE_TIMES_S.iter().filter(|age| **age <= needing.longest);
        NeedRow {
            target,
            label,
            counted_ms: longest(AgeCurve::seconds) * 1e3,
            error_ms: needing.error * 1e3,
            known_bytes: needing.known.round() as u64,
            swapped_bytes: sum(AgeCurve::swapped).round() as u64,
            huge_bytes: sum(AgeCurve::huge).round() as u64,
            unknown_bytes: needing.unknown.round() as u64,
            counted_again_bytes: counted_again(there.into_iter().map(|(_, presence)| presence)),
            ended_bytes: ended,
            most_bytes: most,
            curve: steps.map(|age| needing.point(*age, needing.beyond(*age))).collect(),
            verdict,
            refused,
        }
    }
}

/// The basis of a verdict; memory in bytes, times in s.
struct Needing<'a> {
    curves: &'a [&'a AgeCurve],
    objective: Objective,
    known: f64,
    unknown: f64,
    /// the most at once
    most: f64,
    /// the most at once of targets that have not ended
    most_there: f64,
    /// the most of targets that have ended, at once
    ended: f64,
    /// for how long touches were counted in the used part of the record
    observed: f64,
    error: f64,
    /// the longest age that is known
    longest: f64,
}

impl Needing<'_> {
    fn beyond(&self, age: f64) -> IdleMemory {
        together(self.curves.iter().copied(), age)
    }

    /// The memory that must stay so that no more comes back than after `age`, in nearly all of the time.
    fn needed(&self, age: f64) -> f64 {
        let mut over_time = Distribution::new(SIZES);
        let spans = kept_together(self.curves.iter().copied(), age).into_iter();
        spans.for_each(|(seconds, bytes)| over_time.push(bytes, seconds));
        // A short peak may be so high that the mean exceeds the percentile.
        (over_time.percentile(NEEDED_PERCENT) as f64).max(kept(&self.beyond(age)))
    }

    fn point(&self, age: f64, b: IdleMemory) -> NeedPoint {
        let kept = kept(&b);
        let pages = b.returned / isotherm_core::PAGE_SIZE as f64;
        NeedPoint {
            idle_ms: age * 1e3,
            saved_bytes: b.idle.round() as u64,
            kept_bytes: kept.round() as u64,
            returned_bytes_per_second: b.returned,
            returned_percent_per_minute: b.returned * 60.0 / kept.max(1.0) * 100.0,
            waiting_percent: pages * self.objective.fault.as_secs_f64() * 100.0,
            acting_percent: pages * PAGE_OUT.as_secs_f64() * 100.0,
        }
    }

    /// The shortest age at which no more than the objective comes back. `doubt` is -1 to 1: how far ages and
    /// counts are taken to be wrong, within their errors.
    fn meets(&self, doubt: f64) -> Option<f64> {
        idle_times(self.longest).find(|age| {
            let b = self.beyond((age + doubt * self.error).max(0.1));
            b.returned_at(doubt) <= self.allowed(kept(&self.beyond(*age)))
        })
    }

    fn verdict(&self) -> Result<RequiredMemory, String> {
        self.refusal()?;
        let met = self.meets(0.0).ok_or_else(|| self.too_short())?;
        let is_cliff = self.is_cliff(met);
        let age = if is_cliff { self.behind_cliff(met) } else { met };
        let needed = |doubt| self.meets(doubt).map(|age| self.needed(age));
        let high = needed(-1.0);
        if high.is_none() && self.observed < MIN_RECORD_S {
            return Err(format!(
                "{:.0} s are too short to exclude that more than the objective comes back; record for a minute or \
                 longer, or allow more with --objective",
                self.observed
            ));
        }
        let need = self.needed(age);
        let low = needed(1.0).unwrap_or(need).min(need);
        let high_is_most = high.is_none() && self.most_there >= need;
        let high = high.unwrap_or(self.most_there).max(need);
        let point = |doubt: f64| {
            let b = self.beyond((age + doubt * self.error).max(0.1));
            let returned = b.returned_at(doubt);
            self.point(age, IdleMemory { returned, ..b })
        };
        Ok(RequiredMemory {
            at: point(0.0),
            at_least: point(1.0),
            at_most: point(-1.0),
            needed_bytes: need.round() as u64,
            low_bytes: low.round() as u64,
            high_bytes: high.round() as u64,
            high_is_most,
            is_cliff,
            limits: self.limits(need),
            low_limits: self.limits(low),
            high_limits: self.limits(high),
        })
    }

    /// The suggestions if `need` bytes are needed.
    fn limits(&self, need: f64) -> SuggestedLimits {
        let max = self.most.max(need) * (1.0 + HEADROOM);
        let high = ((need + self.ended) * (1.0 + HEADROOM)).min(max);
        let round = |bytes: f64| ((bytes / MIB).ceil() * MIB) as u64;
        SuggestedLimits {
            memory_high_bytes: round(high),
            memory_max_bytes: round(max),
            instance_bytes: round(high).next_power_of_two(),
        }
    }

    /// Whether far more may come back if a little less is kept than at `age`: all ages of a bin may be its greatest one.
    fn is_cliff(&self, age: f64) -> bool {
        // Shorter ages are known for longer, in which there may have been less memory.
        let curves: Vec<AgeCurve> = self.curves.iter().map(|c| c.knowing(age)).collect();
        let beyond = |age: f64| together(curves.iter(), age);
        // Targets that know only shorter ages need all of their memory.
        let young = self.curves.iter().zip(&curves).filter(|(_, known)| known.is_empty());
        let others: f64 = young.map(|(all, _)| all.bytes() + all.unknown()).sum();
        let b = beyond(age);
        let need = kept(&b) + others;
        let shorter: Vec<f64> =
            idle_times_from(SHORTEST_CLIFF_S, self.longest).take_while(|a| *a < age).collect();
        // The shorter the age, the less is kept.
        let is_less = |a: &f64| kept(&beyond(*a)) + others <= need * (1.0 - HEADROOM);
        let less = shorter.partition_point(is_less).checked_sub(1).and_then(|i| shorter.get(i));
        let most = less.map_or(0.0, |a| beyond(AgeHistogram::bin_start(*a)).returned);
        most > CLIFF * b.returned.max(self.allowed(need))
    }

    /// The shortest age from `age` on that is certainly behind a cliff, or else the longest known one.
    fn behind_cliff(&self, age: f64) -> f64 {
        let is_behind = |a: &f64| {
            let most = self.beyond(AgeHistogram::bin_start(*a)).returned;
            most <= self.allowed(kept(&self.beyond(*a)))
        };
        let mut longer = idle_times(self.longest).skip_while(|a| *a < age);
        longer.find(is_behind).or(idle_times(self.longest).last()).unwrap_or(age)
    }

    /// Memory that may come back per second.
    fn allowed(&self, kept: f64) -> f64 {
        kept * self.objective.percent_per_minute / 100.0 / 60.0
    }

    fn refusal(&self) -> Result<(), String> {
        if self.curves.iter().all(|c| c.is_empty()) {
            return Err(NO_AGES.to_owned());
        }
        if let Some(why) = too_much_unknown(self.unknown / (self.known + self.unknown).max(1.0)) {
            return Err(why);
        }
        if self.longest < MIN_AGE_S {
            return Err(format!(
                "{:.0} s are too short: only ages up to two thirds of the record are known well; \
                 record for a minute or longer",
                self.longest / KNOWN_SHARE
            ));
        }
        Ok(())
    }

    fn too_short(&self) -> String {
        let age = idle_times(self.longest).last().unwrap_or(MIN_AGE_S);
        let p = self.point(age, self.beyond(age));
        format!(
            "the record is too short for this objective: of what is idle for {age:.0} s, {:.2} % of the \
             working set still comes back each minute, and longer ages are not known; record for at least {} \
             s, or allow more with --objective",
            p.returned_percent_per_minute,
            (age * 3.0 / 10.0).ceil() as u64 * 10
        )
    }
}

/// All memory that is not idle, with what is unknown, in bytes.
fn kept(b: &IdleMemory) -> f64 {
    b.kept + b.unknown
}

#[cfg(test)]
mod tests;
