//! Chooses the minimum age of a scheme by the idle ages of pages, so that an objective is met.
//!
//! As in far memory (Lagar-Cavilla et al., ASPLOS 2019): each minute has a best age, by what was idle and touched
//! in it. The 98th percentile of the last hour's best ages applies, or that of this minute if it is greater. What
//! really comes back corrects the choice.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::aim_step::{AimReason, AimStep, CHOICE_INTERVAL, TARGET_SHARE};
use super::cache_aim::CacheAim;
use super::error::SchemeError;
use super::metrics::Metrics;
use crate::age_curve::{AgeCurve, IdleMemory, LIKELY_EVENTS, idle_times, together};
use crate::call::TargetId;
use crate::range::PAGE_SIZE;
use crate::snapshot::Snapshot;
use crate::time::Nanos;
use crate::tuning::MAX_WITHIN;

/// The objective of a scheme that chooses its minimum age itself, for each control group of its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aim {
    /// Maximum of the working set that is read back from disk or swap within a minute, in parts per million: 2000
    /// is 0.2 %.
    Refaults(u32),
    /// Share of the memory to give up, of 10,000.
    Save(u32),
}

/// As in the option `--aim`.
impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Aim::Refaults(ppm) => write!(f, "refault {}%", f64::from(ppm) / 1e4),
            Aim::Save(bp) => write!(f, "save {}%", f64::from(bp) / 1e2),
        }
    }
}

/// Time over which best ages are kept.
const HISTORY: Duration = Duration::from_secs(3600);
/// The monitor counts ages each minute. isotherm pages out nothing more of a process whose ages are late by this time, or
/// by two snapshots if these are longer.
const MAX_AGE_DELAY: Duration = Duration::from_secs(15);
/// Shortest time after which the returns are known well enough to stop at once,
const MIN_STOP_TIME: Duration = Duration::from_secs(10);
/// if they are this many times the allowed returns.
const STOP_FACTOR: f64 = 3.0;
/// If too much memory returned, ages become longer by this factor. If far less than allowed returned, they become
/// shorter, but not shorter than the age by the curve.
const LENGTHEN_FACTOR: f64 = 1.25;
const SHORTEN_FACTOR: f64 = 0.9;
const MAX_AGE_FACTOR: f64 = 16.0;
/// The longest age in s by the curve: a correction must have room above it.
const MAX_AGE: f64 = MAX_WITHIN.as_secs() as f64 / MAX_AGE_FACTOR;
/// Bytes of page cache in one request, at least and at most: the kernel reclaims 32 pages at a time, and a request blocks
/// until it is done.
const CACHE_UNIT: u64 = 32 * PAGE_SIZE;
const CACHE_BATCH: u64 = 1 << 20;

impl Aim {
    pub(super) fn check(self) -> Result<(), SchemeError> {
        let possible = match self {
            Aim::Refaults(ppm) => (1..=1_000_000).contains(&ppm),
            Aim::Save(bp) => (1..=10_000).contains(&bp),
        };
        if possible { Ok(()) } else { Err(SchemeError::Aim(self.to_string())) }
    }

    /// The best age in s by these curves, if there is one among the ages that are known. It allows for `unseen` more
    /// touches of counted pages.
    fn best(self, curves: &[&AgeCurve], longest: f64, unseen: f64) -> Option<f64> {
        let at = |age: f64| together(curves.iter().copied(), age);
        match self {
            Aim::Refaults(_) => idle_times(longest).find(|age| {
                let b = at(*age);
                b.returned + unseen * b.bytes_per_s_of_one_touch
                    <= self.allowed(&b).unwrap_or(0.0) * TARGET_SHARE
            }),
            Aim::Save(bp) => {
                let enough = |b: IdleMemory| b.idle >= (b.idle + b.kept) * f64::from(bp) / 1e4;
                idle_times(longest).take_while(|age| enough(at(*age))).last()
            }
        }
    }

    /// Bytes that may return per second; `None` for an objective that does not bound them.
    fn allowed(self, b: &IdleMemory) -> Option<f64> {
        match self {
            Aim::Refaults(ppm) => Some(b.kept * f64::from(ppm) / 1e6 / 60.0),
            Aim::Save(_) => None,
        }
    }

    /// Bytes that may be out of memory; `None` for an objective without such a share.
    fn savable(self, b: &IdleMemory) -> Option<f64> {
        match self {
            Aim::Refaults(_) => None,
            Aim::Save(bp) => Some((b.idle + b.kept) * f64::from(bp) / 1e4),
        }
    }
}

type Group = Option<Arc<str>>;

/// The choices of one scheme.
#[derive(Debug, Clone, Default)]
pub(super) struct Aims {
    groups: BTreeMap<Group, GroupAim>,
    of_targets: BTreeMap<TargetId, Group>,
    /// major faults of each target when they were known last
    faults: BTreeMap<TargetId, u64>,
    /// page cache of the groups
    caches: BTreeMap<Arc<str>, CacheAim>,
    /// time up to which the groups have received room in their quotas
    granted: Option<Nanos>,
    /// number of the last snapshot whose ages were added
    seen: Option<u64>,
}

impl Aims {
    /// Adds a snapshot and metrics. A snapshot may be the only one with the newest ages, so each must be added.
    pub fn observe(&mut self, snapshot: &Snapshot, metrics: &Metrics) {
        if self.seen.replace(snapshot.seq) != Some(snapshot.seq) {
            self.add(snapshot, metrics);
        }
    }

    /// Appends new choices of `scheme` to `steps`. Unless it `acts`, it learns from the curves only: no returns follow
    /// from its choices, and none of these is a step.
    pub fn update(
        &mut self,
        (scheme, aim): (&Arc<str>, Aim),
        (snapshot, metrics): (&Snapshot, &Metrics),
        now: Nanos,
        acts: bool,
        steps: &mut Vec<AimStep>,
    ) {
        let mut add = |step: Option<AimStep>, group: &Group| {
            let named = |s| AimStep { scheme: scheme.clone(), group: group.clone(), ..s };
            steps.extend(step.map(named));
        };
        let late = MAX_AGE_DELAY.max(snapshot.end.since(snapshot.start) * 2);
        let oldest = now.0.saturating_sub((CHOICE_INTERVAL + late).as_nanos() as u64) as f64 / 1e9;
        for (path, group) in &mut self.groups {
            group.curves.retain(|_, curve| curve.end().is_some_and(|end| end >= oldest));
            add(group.decide(aim, now, acts), path);
        }
        if !acts {
            self.caches.clear();
            self.granted = None;
            return;
        }
        let Aim::Refaults(ppm) = aim else { return };
        self.caches.retain(|path, _| metrics.caches.contains_key(path));
        for (path, cache) in &metrics.caches {
            let choice = self.caches.entry(path.clone()).or_default();
            add(choice.decide(f64::from(ppm) / 1e6, *cache, now), &Some(path.clone()));
        }
    }

    fn add(&mut self, snapshot: &Snapshot, metrics: &Metrics) {
        let group_of = |id: TargetId| metrics.cgroups.get(&id).cloned();
        self.of_targets = snapshot.targets.iter().map(|t| (t.id, group_of(t.id))).collect();
        // A process may have moved to another group since its faults were read.
        let mut returned: BTreeMap<&Group, u64> = BTreeMap::new();
        for (id, n) in &metrics.major_faults {
            if let Some(group) = self.of_targets.get(id) {
                let before = self.faults.insert(*id, *n).unwrap_or(*n);
                *returned.entry(group).or_default() += n.saturating_sub(before);
            }
        }
        self.faults.retain(|id, _| self.of_targets.contains_key(id));
        for target in &snapshot.targets {
            let Some(ages) = &target.ages else { continue };
            let group = self.groups.entry(group_of(target.id)).or_default();
            group.curves.entry(target.id).or_default().push(ages, snapshot.end);
            group.acted.remove(&target.id);
        }
        for (path, group) in &mut self.groups {
            group.curves.retain(|id, _| self.of_targets.get(id) == Some(path));
            group.acted.retain(|id, _| group.curves.contains_key(id));
            let is_known = group.curves.keys().all(|id| metrics.major_faults.contains_key(id));
            let pages = returned.get(path).copied().unwrap_or_default();
            group.count(is_known.then_some(pages));
        }
        self.groups.retain(|_, group| !group.curves.is_empty());
    }

    /// The minimum age for a target; `None` if none of its memory may be paged out. Nothing goes of a process that is
    /// new in its group: what it touches again is not known.
    pub fn age(&self, target: TargetId) -> Option<Duration> {
        let group = self.groups.get(self.of_targets.get(&target)?)?;
        group.age.filter(|_| group.curves.get(&target).is_some_and(was_counted))
    }

    /// The shortest of these ages.
    pub fn shortest(&self) -> Option<Duration> {
        self.groups.values().filter_map(|group| group.age).min()
    }

    /// Gives each group room in its quota for the time since the last call, the first time for `window`: the idle
    /// memory within a minute, plus twice the memory that returns. Unused room of up to a minute remains. With a share
    /// to save, the room ends at this share. Returns the room of all groups in bytes.
    pub fn grant(&mut self, window: Duration, now: Nanos) -> u64 {
        let since = self.granted.replace(now).map_or(window, |at| now.since(at));
        let seconds = since.min(CHOICE_INTERVAL).as_secs_f64();
        let of_cache = self.caches.values_mut().map(|cache| cache.add_room(seconds));
        of_cache.chain(self.groups.values_mut().map(|group| group.add_room(seconds))).sum()
    }

    /// The room of each group in bytes, from which the room of targets can be taken.
    pub fn rooms(&self) -> Rooms<'_> {
        let left = self.groups.iter().map(|(path, group)| (path, group.room as u64)).collect();
        Rooms { of_targets: &self.of_targets, left }
    }

    /// Subtracts bytes that were paged out of a target.
    pub fn charge(&mut self, target: TargetId, bytes: u64) {
        let group = self.of_targets.get(&target).and_then(|path| self.groups.get_mut(path));
        group.into_iter().for_each(|group| {
            group.room = (group.room - bytes as f64).max(0.0);
            *group.acted.entry(target).or_default() += bytes;
        });
    }

    /// The group with the most page cache that the kernel may be asked to reclaim, with at most `most` bytes. They count
    /// as reclaimed at once, so that groups with equal room take turns.
    pub fn take_cache(&mut self, most: u64) -> Option<(Arc<str>, u64)> {
        let (path, cache) = self.caches.iter_mut().max_by_key(|(_, cache)| cache.room())?;
        let bytes = cache.room().min(most).min(CACHE_BATCH);
        (bytes >= CACHE_UNIT).then(|| {
            cache.take(bytes);
            (path.clone(), bytes)
        })
    }
}

/// What may still be paged out of each group.
pub(super) struct Rooms<'a> {
    of_targets: &'a BTreeMap<TargetId, Group>,
    left: BTreeMap<&'a Group, u64>,
}

impl Rooms<'_> {
    /// Takes up to `wanted` bytes of the room of a target's group.
    pub fn take(&mut self, target: TargetId, wanted: u64) -> u64 {
        let group = self.of_targets.get(&target).and_then(|path| self.left.get_mut(path));
        group.map_or(0, |left| {
            let granted = wanted.min(*left);
            *left -= granted;
            granted
        })
    }
}

/// The choice for one control group.
#[derive(Debug, Clone, Default)]
struct GroupAim {
    curves: BTreeMap<TargetId, AgeCurve>,
    /// bytes that returned since the last choice; `None`: not known
    returned: Option<f64>,
    /// time of the last choice
    decided: Option<Nanos>,
    /// whether any choice was reported
    reported: bool,
    /// reason of the last choice
    why: Option<AimReason>,
    /// best ages in s, and when
    best: VecDeque<(Nanos, f64)>,
    /// factor on the ages of the curve, at least 1
    factor: f64,
    age: Option<Duration>,
    /// bytes that are idle for this age, the rest, and those that are expected to return per second
    idle: f64,
    kept: f64,
    expected: f64,
    /// bytes that may be paged out now
    room: f64,
    /// bytes that may return per second
    allowed: Option<f64>,
    /// bytes that may be out of memory, if the objective is a share to save
    savable: Option<f64>,
    /// bytes of each target that were paged out since its last ages, by which it has fewer in swap
    acted: BTreeMap<TargetId, u64>,
}

impl GroupAim {
    /// Adds the pages that returned since the last call, if they are known. The first ones after a time in which they
    /// were not known returned in that time.
    fn count(&mut self, pages: Option<u64>) {
        let new = pages.map(|pages| pages as f64 * PAGE_SIZE as f64);
        self.returned = new.map(|new| self.returned.map_or(0.0, |before| before + new));
    }

    /// Adds the room of the next `seconds`, up to that of a minute.
    fn add_room(&mut self, seconds: f64) -> u64 {
        let rate = self.idle / CHOICE_INTERVAL.as_secs_f64() + 2.0 * self.expected;
        self.room = (self.room + rate * seconds).min(rate * CHOICE_INTERVAL.as_secs_f64());
        if let Some(savable) = self.savable {
            self.room = self.room.min((savable - self.saved()).max(0.0));
        }
        self.room as u64
    }

    /// Bytes that are in swap or evicted, by the last ages and what was paged out since.
    fn saved(&self) -> f64 {
        let acted: u64 = self.acted.values().sum();
        self.curves.values().map(AgeCurve::swapped_at_end).sum::<f64>() + acted as f64
    }

    /// A choice, if one is due or cannot wait, and if the scheme `acts`.
    fn decide(&mut self, aim: Aim, now: Nanos, acts: bool) -> Option<AimStep> {
        if !acts {
            self.reported = false;
            self.returned = self.returned.map(|_| 0.0);
        }
        let Some(returned) = self.returned.filter(|_| !self.curves.is_empty()) else {
            (self.decided, self.returned) = (Some(now), None);
            let had_age = self.age.take().is_some();
            return (had_age && acts).then(|| self.step(now, AimReason::Lost, 0.0));
        };
        let since = self.decided.map_or(Duration::MAX, |at| now.since(at));
        let a_second = returned / since.as_secs_f64().max(1.0);
        let much = self.allowed.is_some_and(|most| a_second > most);
        if since < CHOICE_INTERVAL {
            if acts && !self.reported && self.age.is_some() {
                self.reported = true;
                return Some(self.step(now, AimReason::Curve, a_second));
            }
            let far = self.allowed.is_some_and(|most| a_second > STOP_FACTOR * most);
            let stop = self.age.is_some() && since >= MIN_STOP_TIME && far;
            // The next choice makes the age longer, by the memory that returned until then.
            let step = stop.then(|| self.step(now, AimReason::FarTooMuch, a_second));
            self.age = self.age.filter(|_| !stop);
            return step;
        }
        if !self.curves.values().any(was_counted) {
            return None;
        }
        self.factor = match self.allowed.filter(|_| acts) {
            Some(_) if much => (self.factor * LENGTHEN_FACTOR).min(MAX_AGE_FACTOR),
            Some(most) if a_second < most / 2.0 => self.factor * SHORTEN_FACTOR,
            _ => self.factor,
        }
        .max(1.0);
        let before = self.age;
        let choice = self.choose(aim, now);
        self.age = choice.ok().map(Duration::from_secs_f64);
        let reason = match (choice, much) {
            (Err(why), _) => why,
            (_, true) => AimReason::TooMuch,
            _ => AimReason::Curve,
        };
        let is_new = match (before, self.age) {
            (Some(before), Some(age)) => age.abs_diff(before) > before / 50,
            (before, age) => before != age,
        };
        (self.decided, self.returned) = (Some(now), Some(0.0));
        let out_of_range = reason == AimReason::NoAgeInRange && self.why != Some(reason);
        self.why = Some(reason);
        let report = !std::mem::replace(&mut self.reported, acts) || much || is_new || out_of_range;
        (report && acts).then(|| self.step(now, reason, a_second))
    }

    /// The age for the next minute in s, or why there is none.
    fn choose(&mut self, aim: Aim, now: Nanos) -> Result<f64, AimReason> {
        let hour_ago = Nanos(now.0.saturating_sub(HISTORY.as_nanos() as u64));
        self.curves.values_mut().for_each(|curve| curve.forget_before(hour_ago));
        let all: Vec<&AgeCurve> = self.curves.values().collect();
        let known = all.iter().map(|c| c.longest_at_end()).fold(0.0, f64::max);
        let longest = known.min(MAX_AGE);
        let minute_ago = Nanos(now.0.saturating_sub(CHOICE_INTERVAL.as_nanos() as u64));
        let last: Vec<AgeCurve> =
            self.curves.values().map(|curve| curve.after(minute_ago)).collect();
        let last: Vec<&AgeCurve> = last.iter().collect();
        let curves = if let Aim::Refaults(_) = aim { &last } else { &all };
        let best = aim.best(curves, longest, LIKELY_EVENTS).ok_or_else(|| {
            match aim.best(curves, longest, 0.0) {
                Some(_) => AimReason::FewCounted,
                // Less is idle for a longer time.
                None if known < MAX_AGE || matches!(aim, Aim::Save(_)) => AimReason::NoAge,
                None => AimReason::NoAgeInRange,
            }
        });
        self.best.retain(|(at, _)| *at >= hour_ago);
        self.best.extend(best.iter().map(|age| (now, *age)));
        let usual = match aim {
            Aim::Refaults(_) => percentile(self.best.iter().map(|(_, age)| *age), 0.98),
            Aim::Save(_) => 0.0,
        };
        let age = best.map(|age| age.max(usual) * self.factor);
        // Of longer ages nothing is known yet. What may return depends on the memory that there is now.
        let b = together(last.iter().copied(), age.unwrap_or(longest).min(longest));
        (self.idle, self.expected) = if age.is_ok() { (b.idle, b.returned) } else { (0.0, 0.0) };
        self.kept = if age.is_ok() { b.kept } else { b.kept + b.idle };
        self.allowed = aim.allowed(&b);
        self.savable = aim.savable(&b);
        age
    }

    fn step(&self, at: Nanos, why: AimReason, returned: f64) -> AimStep {
        let idle = self.savable.map_or(self.idle, |most| most.min(self.idle));
        // Of a part of the idle memory, as large a part returns.
        let part = if self.idle > 0.0 { idle / self.idle } else { 0.0 };
        AimStep {
            at,
            scheme: Arc::from(""),
            group: None,
            age: self.age.filter(|_| why != AimReason::FarTooMuch),
            why,
            idle: idle as u64,
            kept: (self.kept + self.idle - idle) as u64,
            expected: (self.expected * part * 60.0) as u64,
            returned: (returned * 60.0) as u64,
        }
    }
}

/// Whether touches were counted long enough for a choice.
fn was_counted(curve: &AgeCurve) -> bool {
    curve.observed() >= CHOICE_INTERVAL.as_secs_f64()
}

fn percentile(of: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    let at = (all.len() as f64 * share).ceil() as usize;
    all.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
#[path = "aim_tests.rs"]
mod tests;
