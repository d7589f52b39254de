//! A kdamond of ours as a source of snapshots.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    Attrs, Cost, EndReason, Nanos, OpsError, RegionView, Snapshot, Source, Step, TargetId,
    TargetView,
};

use super::attrs::KdamondAttrs;
use super::error::DamonError;
use super::reader::Reader;
use super::results::Aggregated;
use super::seat::Seat;
use super::sysfs::{Context, Operations};
use super::tried;
use super::views::{Scale, fit, views};
use super::watched::{Member, Watched, members};
use crate::sys::{CpuLaps, monotonic};

/// A kdamond that tells nothing for so many aggregation intervals, and this time, is given up.
const SILENT_INTERVALS: u32 = 20;
const SILENT: Duration = Duration::from_secs(10);
/// How often it is asked whether there is a result that is due, at most and at least.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_secs(1);

/// A kdamond of ours, which runs until it is dropped.
pub struct Kdamond {
    // Fields are dropped in this order: nobody reads a kdamond that is gone.
    reader: Reader,
    seat: Seat,
    root: PathBuf,
    operations: Operations,
    asked: KdamondAttrs,
    /// as in force now
    attrs: Attrs,
    members: Vec<Member>,
    clock: Clock,
    cpu: CpuLaps,
    thread_cpu: Duration,
    seq: u64,
    ended: Option<EndReason>,
}

#[derive(Debug)]
struct Clock {
    last_end: Nanos,
    /// what an aggregation interval really takes
    pace: Duration,
    last_result: Nanos,
    next_update: Nanos,
    /// results dropped by then
    dropped: u64,
}

impl Kdamond {
    /// Sets up a kdamond and starts it; what a killed isotherm has left is taken away before.
    /// `root` is `/`, or a tree for tests.
    ///
    /// # Errors
    /// If DAMON is not there, or somebody else's, or does not take what is asked.
    pub fn start(root: &Path, watched: Watched, asked: KdamondAttrs) -> Result<Self, DamonError> {
        let attrs = asked.attrs.checked()?;
        let operations = watched.operations();
        let members = members(root, watched)?;
        if members.is_empty() {
            return Err(DamonError::NoTargets);
        }
        let mut seat = Seat::take(root)?;
        let reader = Reader::open(root, &mut seat, attrs.max_regions)?;
        let mut kdamond = Kdamond {
            reader,
            seat,
            root: root.to_owned(),
            operations,
            asked,
            attrs,
            members,
            clock: Clock::begin(&attrs),
            cpu: CpuLaps::begin(),
            thread_cpu: Duration::ZERO,
            seq: 0,
            ended: None,
        };
        kdamond.seat.set_up(&kdamond.context())?;
        kdamond.begin()?;
        Ok(kdamond)
    }

    fn begin(&mut self) -> Result<(), DamonError> {
        self.seat.start()?;
        self.clock = Clock::begin(&self.attrs);
        self.clock.dropped = self.reader.dropped();
        self.thread_cpu = Duration::ZERO;
        self.reader.begin(self.clock.last_end, &self.attrs);
        Ok(())
    }

    fn context(&self) -> Context {
        let unit = self.unit();
        let monitoring_attrs = self.asked.monitoring_attrs();
        let sample_us = monitoring_attrs.intervals.sample_us;
        Context {
            operations: self.operations,
            addr_unit: self.asked.addr_unit,
            monitoring_attrs,
            targets: self.members.iter().map(|m| m.target(unit)).collect(),
            schemes: match self.reader {
                Reader::Trace(_) => Vec::new(),
                Reader::Tried(..) => tried::schemes(self.members.len(), sample_us),
            },
            ..Context::default()
        }
    }

    fn unit(&self) -> u64 {
        self.asked.addr_unit.unwrap_or(1).max(1)
    }

    /// By which interface results come, and why not by the better one.
    #[must_use]
    pub fn results(&self) -> String {
        self.reader.to_string()
    }

    /// The attributes in force: the kernel may have tuned them.
    #[must_use]
    pub fn attrs(&self) -> Attrs {
        self.attrs
    }

    /// Watches these processes from now on. What is known of those that stay is kept if none has
    /// ended or goes; else the kdamond is started anew, as DAMON knows targets by their position.
    /// One that has ended is passed over.
    ///
    /// # Errors
    /// If it does not watch processes, or the kernel refuses.
    pub fn set_targets(&mut self, targets: &[(TargetId, i32)]) -> Result<(), DamonError> {
        if self.operations != Operations::Vaddr {
            return Err(DamonError::FixedTargets);
        }
        let wanted = |m: &Member| targets.iter().any(|&(id, _)| id == m.id);
        self.members.iter_mut().for_each(|m| m.dropped |= !wanted(m));
        let new = targets.iter().filter(|(id, _)| !self.members.iter().any(|m| m.id == *id));
        let mut added = Vec::new();
        for &(id, pid) in new {
            match Member::process(&self.root, id, pid, Vec::new()) {
                Ok(member) => added.push(member),
                Err(DamonError::Attach(e)) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
        }
        if added.is_empty() {
            return Ok(());
        }
        let whole = self.members.iter().all(|m| !m.dropped && !m.has_ended());
        self.members.extend(added);
        self.clock.next_update = Nanos(0);
        if whole {
            self.seat.set_up(&self.context())?;
            // A target that ended meanwhile makes the kernel refuse, and maybe stop.
            if self.seat.commit().is_ok() && self.seat.is_running() {
                return Ok(());
            }
        }
        self.restart()
    }

    fn restart(&mut self) -> Result<(), DamonError> {
        self.seat.stop()?;
        self.members.retain(|m| !m.dropped && !m.has_ended());
        self.reader.forget()?;
        if self.members.is_empty() {
            self.ended = Some(EndReason::TargetsGone);
            return Ok(());
        }
        self.seat.set_up(&self.context())?;
        self.begin()
    }

    /// Ends it: the next step answers [`Step::End`]. It is taken away when dropped.
    ///
    /// # Errors
    /// If the kernel refuses to stop it.
    pub fn stop(&mut self) -> Result<(), DamonError> {
        self.ended.get_or_insert(EndReason::Stopped);
        self.seat.stop()
    }

    fn try_step(&mut self, now: Nanos) -> Result<Step, DamonError> {
        if let Some(why) = self.ended {
            return Ok(Step::End(why));
        }
        if self.members.iter().all(|m| m.dropped || m.has_ended()) {
            self.ended = Some(EndReason::TargetsGone);
            return Ok(Step::End(EndReason::TargetsGone));
        }
        if now >= self.clock.next_update {
            self.clock.next_update = now + self.attrs.update;
            self.update()?;
        }
        match self.reader.next(now, self.clock.pace)? {
            Some(result) => Ok(Step::Snapshot(Arc::new(self.snapshot(result)))),
            None => {
                self.clock.check(now, &self.seat, &self.reader)?;
                Ok(Step::Wait(self.clock.next(now)))
            }
        }
    }

    fn update(&mut self) -> Result<(), DamonError> {
        let members = self.members.iter_mut().filter(|m| !m.dropped);
        for member in members {
            // One that cannot be read any more has ended, which the next step finds.
            let _ = member.update();
        }
        if self.asked.intervals_goal.is_some() {
            let tuned = self.seat.tuned()?;
            self.attrs.sample = Duration::from_micros(tuned.sample_us);
            self.attrs.aggr = Duration::from_micros(tuned.aggr_us);
        }
        Ok(())
    }

    fn snapshot(&mut self, mut result: Aggregated) -> Snapshot {
        let (start, length) =
            self.clock.interval(result.at, self.attrs.interval(), self.reader.dropped());
        let samples = self.attrs.samples();
        let scale = Scale { samples, sample: length / samples.max(1), aggr: self.clock.pace };
        let unit = self.unit();
        let mut looks = 0;
        let mut regions: Vec<Vec<RegionView>> = Vec::with_capacity(self.members.len());
        for (i, member) in self.members.iter().enumerate() {
            let mut raw = result.targets.remove(&(i as u64)).unwrap_or_default();
            looks += raw.len() as u64 * u64::from(samples);
            raw.iter_mut().for_each(|r| r.scale(unit));
            let gone = member.dropped || member.has_ended();
            regions.push(if gone {
                Vec::new()
            } else {
                views(&raw, &member.areas, member.present(), scale)
            });
        }
        fit(&mut regions, self.attrs.max_regions as usize);
        let both = self.members.iter_mut().zip(regions);
        let mut targets: Vec<TargetView> = both
            .filter(|(m, _)| !m.dropped && !m.has_ended())
            .map(|(m, regions)| view(m, regions))
            .collect();
        targets.sort_by_key(|t| t.id);
        let thread = self.seat.cpu();
        let cpu = self.cpu.lap() + thread.saturating_sub(self.thread_cpu);
        self.thread_cpu = thread;
        self.seq += 1;
        Snapshot {
            seq: self.seq - 1,
            start,
            end: result.at,
            attrs: self.attrs,
            // DAMON clears without a flush: no shootdowns.
            cost: Cost { cpu, looks, pages: looks, clears: 0 },
            targets,
        }
    }
}

fn view(member: &mut Member, regions: Vec<RegionView>) -> TargetView {
    let sum = |ranges: &mut dyn Iterator<Item = u64>| ranges.sum::<u64>();
    let mapped = sum(&mut member.mappings.iter().map(|m| m.range.len()));
    let covered = sum(&mut regions.iter().map(|r| r.range.len()));
    TargetView {
        id: member.id,
        ran: member.ran(),
        mappings: Arc::clone(&member.mappings),
        left_out: mapped.saturating_sub(covered),
        regions,
    }
}

impl Clock {
    fn begin(attrs: &Attrs) -> Self {
        let now = monotonic();
        Clock {
            last_end: now,
            pace: attrs.interval(),
            last_result: now,
            next_update: now,
            dropped: 0,
        }
    }

    /// When the interval that ended `at` began, and how long it was. Where results were dropped
    /// before, it is taken to be as long as others.
    fn interval(&mut self, at: Nanos, nominal: Duration, dropped: u64) -> (Nanos, Duration) {
        let length = at.since(self.last_end).max(Duration::from_nanos(1));
        let gap = std::mem::replace(&mut self.dropped, dropped) != dropped;
        let earliest = self.last_end;
        self.last_end = at;
        self.last_result = monotonic();
        if !gap {
            // A single late one says little of the others.
            self.pace = (self.pace * 7 + length) / 8;
            return (earliest, length.max(nominal / 2));
        }
        (earliest.max(Nanos(at.0.saturating_sub(self.pace.as_nanos() as u64))), self.pace)
    }

    /// When a result may be there.
    fn next(&self, now: Nanos) -> Nanos {
        let again = now + (self.pace / 20).clamp(SOONEST, LATEST);
        (self.last_end + self.pace + SOONEST).max(again).min(now + LATEST)
    }

    /// A kdamond that is overdue may have been stopped.
    fn check(&self, now: Nanos, seat: &Seat, reader: &Reader) -> Result<(), DamonError> {
        let silent = now.since(self.last_result);
        if silent > self.pace * 3 && !seat.is_running() {
            return Err(DamonError::Stopped);
        }
        if silent > self.pace * SILENT_INTERVALS + SILENT {
            return Err(DamonError::Silent { dropped: reader.dropped() });
        }
        Ok(())
    }
}

impl Source for Kdamond {
    /// A step lasts as long as it takes to read the mappings of all targets, and without tracefs up to
    /// a sampling interval and a tenth of a second more.
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        self.try_step(now).map_err(|e| OpsError::Failed(e.to_string()))
    }
}
