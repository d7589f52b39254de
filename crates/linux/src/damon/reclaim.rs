//! A kdamond of ours that pages out what nobody has touched for long, wherever it lies in physical memory.
//! What it does is the kernel's DAMON_RECLAIM
//! (`Documentation/admin-guide/mm/damon/reclaim.rst`), by a scheme in sysfs.

use std::path::Path;
use std::time::Duration;

use isotherm_core::{AddrRange, PAGE_SIZE};

use super::attrs::KdamondAttrs;
use super::error::DamonError;
use super::seat::Seat;
use super::sysfs::{
    AccessPattern, Action, Bounds, Context, Filter, FilterType, Goal, GoalMetric, Operations,
    Quotas, Region, Scheme, Stats, Target, WatermarkMetric, Watermarks, Weights,
};
use crate::proc::Mglru;

/// What is paged out, and how much of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reclaim {
    /// how it is watched
    pub attrs: KdamondAttrs,
    /// physical addresses
    pub memory: Vec<AddrRange>,
    /// untouched for so long
    pub min_age: Duration,
    /// time for it in each window, in whole milliseconds, 1 at least; none: no bound
    pub time: Option<Duration>,
    /// bytes in each window, 1 at least; none: no bound
    pub bytes: Option<u64>,
    /// of the quotas
    pub window: Duration,
    /// free memory of the machine, of 10,000, high, mid and low, and how often that is looked at
    pub watermarks: Option<([u32; 3], Duration)>,
    /// some tasks wait for memory for so long in each window: what the quota is moved by
    pub stalled: Option<Duration>,
    /// not what is anonymous
    pub skip_anon: bool,
    /// only count
    pub dry: bool,
}

/// What it has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reclaimed {
    /// regions that it was tried on
    pub tried: u64,
    /// their bytes
    pub tried_bytes: u64,
    /// regions of which something went
    pub applied: u64,
    /// bytes that went
    pub applied_bytes: u64,
    /// windows in which a quota was used up
    pub exceeded: u64,
}

/// What a filter keeps from being paged out, as the kernel does not note that it is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    /// nothing: MGLRU is off
    Nothing,
    /// what no process maps
    Unmapped,
    /// all that is not anonymous: before Linux 6.15 there is no filter for what no process maps
    Files,
}

/// The kdamond at work, until it is dropped.
pub struct Reclaimer {
    seat: Seat,
    context: Context,
    spared: Spared,
    mglru: Mglru,
    /// of those before, whose counts went with them
    before: Reclaimed,
    cpu_before: Duration,
}

impl Reclaimer {
    /// Sets up a kdamond, if nobody has one, and starts it. `root` is `/`, or a tree for tests.
    ///
    /// # Errors
    /// If DAMON is not there, or somebody else's, or does not take what is asked.
    pub fn start(root: &Path, asked: &Reclaim) -> Result<Self, DamonError> {
        let mglru = Mglru::open(root);
        let mut spared = if mglru.hides_reads() { Spared::Unmapped } else { Spared::Nothing };
        let mut context = context(asked, spared)?;
        let mut seat = Seat::take(root)?;
        match seat.set_up(&context) {
            Err(DamonError::Sysfs(e)) if e.is_refused(FilterType::Unmapped.name()) => {
                if asked.skip_anon {
                    return Err(DamonError::CacheUnseen);
                }
                spared = Spared::Files;
                context = self::context(asked, spared)?;
                seat.set_up(&context)?;
            }
            result => result?,
        }
        seat.start()?;
        let (before, cpu_before) = (Reclaimed::default(), Duration::ZERO);
        Ok(Reclaimer { seat, context, spared, mglru, before, cpu_before })
    }

    /// What is left alone since the kernel does not note how it is used.
    #[must_use]
    pub fn spared(&self) -> Spared {
        self.spared
    }

    /// Whether MGLRU was turned on since: page cache that is in use would be paged out as cold.
    #[must_use]
    pub fn is_misled(&self) -> bool {
        self.spared == Spared::Nothing && self.mglru.hides_reads()
    }

    /// What it has done since it was started first.
    ///
    /// # Errors
    /// If it has ended, or is not ours any more.
    pub fn reclaimed(&self) -> Result<Reclaimed, DamonError> {
        if !self.seat.is_running() {
            return Err(DamonError::Stopped);
        }
        Ok(self.before.and(&self.seat.stats()?))
    }

    /// CPU time of its thread so far.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.cpu_before + self.seat.cpu()
    }

    /// Ends watching and acting, for a while: what has been seen is forgotten.
    ///
    /// # Errors
    /// If it is not ours any more.
    pub fn pause(&mut self) -> Result<(), DamonError> {
        let (before, cpu_before) = (self.reclaimed()?, self.cpu());
        self.seat.stop()?;
        (self.before, self.cpu_before) = (before, cpu_before);
        Ok(())
    }

    /// What it had done when it was paused.
    #[must_use]
    pub fn before(&self) -> Reclaimed {
        self.before
    }

    /// Goes on after that.
    ///
    /// # Errors
    /// If it is not ours any more, or does not start.
    pub fn resume(&mut self) -> Result<(), DamonError> {
        self.seat.set_up(&self.context)?;
        self.seat.start()
    }

    /// Ends it, and takes it away.
    ///
    /// # Errors
    /// If it is not ours any more, or the kernel refuses. What stays then is marked as ours.
    pub fn stop(&mut self) -> Result<(), DamonError> {
        self.seat.stop()?;
        self.seat.leave()
    }
}

impl Reclaimed {
    fn and(self, s: &Stats) -> Self {
        Reclaimed {
            tried: self.tried + s.nr_tried.0,
            tried_bytes: self.tried_bytes + s.sz_tried.0,
            applied: self.applied + s.nr_applied.0,
            applied_bytes: self.applied_bytes + s.sz_applied.0,
            exceeded: self.exceeded + s.qt_exceeds.0,
        }
    }
}

fn context(asked: &Reclaim, spared: Spared) -> Result<Context, DamonError> {
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

/// Ages are counted in aggregation intervals.
fn scheme(asked: &Reclaim, spared: Spared, aggr: Duration) -> Scheme {
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
        // To the kernel 0 is no bound.
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
        // A filter rejects, unless told otherwise.
        filters: asked.skip_anon.then(anonymous).into_iter().chain(spared.filter()).collect(),
        ..Scheme::default()
    }
}

impl Spared {
    fn filter(self) -> Option<Filter> {
        let (kind, matching) = match self {
            Spared::Nothing => return None,
            Spared::Unmapped => (FilterType::Unmapped, true),
            Spared::Files => (FilterType::Anon, false),
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
