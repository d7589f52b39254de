//! A kdamond that pages out memory that was not touched for a long time, anywhere in physical memory. It does
//! the same as the kernel's DAMON_RECLAIM (`Documentation/admin-guide/mm/damon/reclaim.rst`), with a scheme in
//! sysfs.

use std::path::Path;
use std::time::Duration;

use isotherm_core::{AddrRange, PAGE_SIZE};

use super::attrs::KdamondAttrs;
use super::error::DamonError;
use super::own_kdamond::OwnKdamond;
use super::sysfs::{
    AccessPattern, Action, Bounds, Context, Filter, FilterType, Goal, GoalMetric, Operations,
    Quotas, Region, Scheme, Stats, Target, WatermarkMetric, Watermarks, Weights,
};
use crate::proc::Mglru;

/// Which memory is paged out, and how much of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ReclaimSpec {
    /// attributes of monitoring
    pub attrs: KdamondAttrs,
    /// ranges of physical addresses
    pub memory: Vec<AddrRange>,
    /// minimal time without an access
    pub min_age: Duration,
    /// time quota per window, in whole milliseconds, at least 1; none: no limit
    pub time: Option<Duration>,
    /// size quota per window in bytes, at least 1; none: no limit
    pub bytes: Option<u64>,
    /// length of the quota window
    pub window: Duration,
    /// high, mid and low watermark of the machine's free memory, in 1/10,000, and the interval of the check
    pub watermarks: Option<([u32; 3], Duration)>,
    /// goal of the quota: time per window for which some tasks wait for memory
    pub stalled: Option<Duration>,
    /// skip anonymous memory
    pub skip_anon: bool,
    /// only count, do not page out
    pub dry: bool,
}

/// The total work of a kdamond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReclaimTotals {
    /// regions to which the scheme was tried
    pub tried: u64,
    /// bytes of these regions
    pub tried_bytes: u64,
    /// regions of which at least a part was paged out
    pub applied: u64,
    /// bytes that were paged out
    pub applied_bytes: u64,
    /// windows in which a quota was exhausted
    pub exceeded: u64,
}

/// Memory that a filter excludes from paging out, because the kernel does not record its reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExcludedMemory {
    /// none: MGLRU is off
    Nothing,
    /// pages that no process maps
    Unmapped,
    /// all memory that is not anonymous: before Linux 6.15 there is no filter for unmapped pages
    Files,
}

/// A running kdamond; stopped when dropped.
pub struct ReclaimKdamond {
    own_kdamond: OwnKdamond,
    context: Context,
    spared: ExcludedMemory,
    mglru: Mglru,
    /// work of earlier runs, whose counters ended with them
    before: ReclaimTotals,
    cpu_before: Duration,
}

impl ReclaimKdamond {
    /// Sets up a kdamond, if no other user has one, and starts it. `root` is `/`, or a directory tree for
    /// tests.
    ///
    /// # Errors
    /// If DAMON is missing, has another user, or refuses the attributes.
    pub fn start(root: &Path, asked: &ReclaimSpec) -> Result<Self, DamonError> {
        let mglru = Mglru::open(root);
        let mut spared =
            if mglru.hides_reads() { ExcludedMemory::Unmapped } else { ExcludedMemory::Nothing };
        let mut context = context(asked, spared)?;
        let mut own_kdamond = OwnKdamond::take(root)?;
        match own_kdamond.set_up(&context) {
            Err(DamonError::Sysfs(e)) if e.is_refused(FilterType::Unmapped.name()) => {
                if asked.skip_anon {
                    return Err(DamonError::CacheUnseen);
                }
                spared = ExcludedMemory::Files;
                context = self::context(asked, spared)?;
                own_kdamond.set_up(&context)?;
            }
            result => result?,
        }
        own_kdamond.start()?;
        let (before, cpu_before) = (ReclaimTotals::default(), Duration::ZERO);
        Ok(ReclaimKdamond { own_kdamond, context, spared, mglru, before, cpu_before })
    }

    /// Memory that is excluded because the kernel does not record its use.
    #[must_use]
    pub fn spared(&self) -> ExcludedMemory {
        self.spared
    }

    /// Whether MGLRU was turned on since the start: then page cache in use would be paged out as cold.
    #[must_use]
    pub fn is_misled(&self) -> bool {
        self.spared == ExcludedMemory::Nothing && self.mglru.hides_reads()
    }

    /// The total work since the first start.
    ///
    /// # Errors
    /// If the kdamond has ended, or another user has replaced it.
    pub fn reclaimed(&self) -> Result<ReclaimTotals, DamonError> {
        if !self.own_kdamond.is_running() {
            return Err(DamonError::Stopped);
        }
        Ok(self.before.and(&self.own_kdamond.stats()?))
    }

    /// CPU time of its thread so far.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.cpu_before + self.own_kdamond.cpu()
    }

    /// Stops monitoring and paging out until [`ReclaimKdamond::resume`]. The monitoring results so far are lost.
    ///
    /// # Errors
    /// If another user has replaced the kdamond.
    pub fn pause(&mut self) -> Result<(), DamonError> {
        let (before, cpu_before) = (self.reclaimed()?, self.cpu());
        self.own_kdamond.stop()?;
        (self.before, self.cpu_before) = (before, cpu_before);
        Ok(())
    }

    /// The total work until the last pause.
    #[must_use]
    pub fn before(&self) -> ReclaimTotals {
        self.before
    }

    /// Continues after a pause.
    ///
    /// # Errors
    /// If another user has replaced the kdamond, or it does not start.
    pub fn resume(&mut self) -> Result<(), DamonError> {
        self.own_kdamond.set_up(&self.context)?;
        self.own_kdamond.start()
    }

    /// Stops and removes the kdamond.
    ///
    /// # Errors
    /// If another user has replaced the kdamond, or the kernel refuses. In the second case it stays marked as
    /// isotherm's.
    pub fn stop(&mut self) -> Result<(), DamonError> {
        self.own_kdamond.stop()?;
        self.own_kdamond.leave()
    }
}

impl ReclaimTotals {
    fn and(self, s: &Stats) -> Self {
        ReclaimTotals {
            tried: self.tried + s.nr_tried.0,
            tried_bytes: self.tried_bytes + s.sz_tried.0,
            applied: self.applied + s.nr_applied.0,
            applied_bytes: self.applied_bytes + s.sz_applied.0,
            exceeded: self.exceeded + s.qt_exceeds.0,
        }
    }
}

fn context(asked: &ReclaimSpec, spared: ExcludedMemory) -> Result<Context, DamonError> {
    let attrs = asked.attrs.clone().checked()?;
    if asked.memory.is_empty() {
        return Err(DamonError::NoTargets);
    }
    let regions = asked.memory.iter().map(|r| Region { start: r.start, end: r.end }).collect();
    Ok(Context {
        operations: Operations::Paddr,
        monitoring_attrs: attrs.monitoring_attrs(),
        targets: vec![Target { regions, ..Target::default() }],
        schemes: vec![scheme(asked, spared, attrs.attrs.aggr)],
        ..Context::default()
    })
}

/// The scheme; DAMON counts ages in aggregation intervals.
fn scheme(asked: &ReclaimSpec, spared: ExcludedMemory, aggr: Duration) -> Scheme {
    let age = asked.min_age.as_nanos().div_ceil(aggr.as_nanos().max(1));
    let longest = u64::from(u32::MAX);
    let age = u64::try_from(age).unwrap_or(longest).min(longest);
    Scheme {
        action: if asked.dry { Action::Stat } else { Action::PageOut },
        target_nid: -1,
        access_pattern: AccessPattern {
            sz: Bounds { min: PAGE_SIZE, max: u64::MAX },
            nr_accesses: Bounds { min: 0, max: 0 },
            age: Bounds { min: age, max: longest },
        },
        // For the kernel, 0 means no limit.
        quotas: Quotas {
            ms: asked.time.map_or(0, |time| millis(time).max(1)),
            bytes: asked.bytes.map_or(0, |bytes| bytes.max(1)),
            reset_interval_ms: millis(asked.window).max(1),
            weights: Weights { age_permil: 1, ..Weights::default() },
            goals: asked.stalled.iter().map(|&time| goal(time)).collect(),
            ..Quotas::default()
        },
        watermarks: asked.watermarks.map_or_else(Watermarks::default, |(marks, interval)| {
            let [high, mid, low] = marks.map(|bp| u64::from(bp / 10));
            let interval_us = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
            Watermarks { metric: WatermarkMetric::FreeMemRate, interval_us, high, mid, low }
        }),
        // The default of a filter is to reject.
        filters: asked.skip_anon.then(anonymous).into_iter().chain(spared.filter()).collect(),
        ..Scheme::default()
    }
}

impl ExcludedMemory {
    fn filter(self) -> Option<Filter> {
        let (kind, matching) = match self {
            ExcludedMemory::Nothing => return None,
            ExcludedMemory::Unmapped => (FilterType::Unmapped, true),
            ExcludedMemory::Files => (FilterType::Anon, false),
        };
        Some(Filter { kind, matching, ..Filter::default() })
    }
}

fn anonymous() -> Filter {
    Filter { kind: FilterType::Anon, matching: true, ..Filter::default() }
}

fn goal(stalled: Duration) -> Goal {
    let target_value = u64::try_from(stalled.as_micros()).unwrap_or(u64::MAX).max(1);
    Goal { target_metric: GoalMetric::SomeMemPsiUs, target_value, ..Goal::default() }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "reclaim_tests.rs"]
mod tests;
