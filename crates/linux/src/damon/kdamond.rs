//! isotherm's kdamond as a source of snapshots.

mod targets;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Attrs, Cost, EndReason, Nanos, OpsError, Snapshot, Source, Step, TargetId};

use super::attrs::KdamondAttrs;
use super::clock::Clock;
use super::error::DamonError;
use super::members::{Member, MonitoredMemory, members, target_views};
use super::own_kdamond::OwnKdamond;
use super::reader::Reader;
use super::results::AggregationResult;
use super::sysfs::{Context, Operations};
use super::tried;
use super::views::Scale;
use crate::sys::{CpuLaps, monotonic};

/// Interval of the check for new targets while there are none.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// isotherm's own kdamond, which runs until it is dropped.
pub struct Kdamond {
    // Fields are dropped in this order, so that the reader ends before the kdamond.
    reader: Reader,
    own_kdamond: OwnKdamond,
    root: PathBuf,
    operations: Operations,
    asked: KdamondAttrs,
    /// attributes in force
    attrs: Attrs,
    members: Vec<Member>,
    clock: Clock,
    next_update: Nanos,
    cpu: CpuLaps,
    thread_cpu: Duration,
    seq: u64,
    /// targets that wait for the next change, and its earliest time
    waiting: Option<Vec<(TargetId, i32)>>,
    next_change: Nanos,
    /// time of the next check of tuned intervals
    next_tuned: Nanos,
    /// Targets were changed, and no result has come since.
    committed: bool,
    /// Continues without targets, because new ones may come.
    outlives: bool,
    ended: Option<EndReason>,
}

impl Kdamond {
    /// Sets up a kdamond and starts it, if there are targets. Before that, removes a kdamond that a killed
    /// isotherm has left. `root` is `/`, or a directory tree for tests.
    ///
    /// # Errors
    /// If DAMON is missing, has another user, or refuses the attributes.
    pub fn start(
        root: &Path,
        watched: MonitoredMemory,
        asked: KdamondAttrs,
    ) -> Result<Self, DamonError> {
        let asked = asked.checked()?;
        let attrs = asked.attrs;
        let operations = watched.operations();
        let members = members(root, watched)?;
        let mut own_kdamond = OwnKdamond::take(root)?;
        let reader = Reader::open(root, &mut own_kdamond, attrs.max_regions)?;
        let mut kdamond = Kdamond {
            reader,
            own_kdamond,
            root: root.to_owned(),
            operations,
            asked,
            attrs,
            members,
            clock: Clock::begin(monotonic(), attrs.interval()),
            next_update: Nanos(0),
            cpu: CpuLaps::begin(),
            thread_cpu: Duration::ZERO,
            seq: 0,
            waiting: None,
            next_change: Nanos(0),
            next_tuned: Nanos(0),
            committed: false,
            outlives: false,
            ended: None,
        };
        kdamond.begin()?;
        Ok(kdamond)
    }

    /// Starts the kdamond with all targets that have not ended: DAMON refuses ended ones.
    fn begin(&mut self) -> Result<(), DamonError> {
        loop {
            self.members.retain(|m| !m.is_over());
            if self.members.is_empty() {
                return Ok(());
            }
            self.own_kdamond.set_up(&self.context())?;
            match self.own_kdamond.start() {
                Ok(()) => break,
                Err(_) if self.members.iter().any(Member::has_ended) => {}
                Err(e) => return Err(e),
            }
        }
        self.clock = Clock::begin(monotonic(), self.attrs.interval());
        self.thread_cpu = Duration::ZERO;
        self.committed = false;
        self.reader.begin(self.clock.last_end(), &self.attrs);
        Ok(())
    }

    fn context(&self) -> Context {
        let unit = self.unit();
        // Intervals that the kernel has tuned stay in force.
        let asked = KdamondAttrs { attrs: self.attrs, ..self.asked.clone() };
        let monitoring_attrs = asked.monitoring_attrs();
        let sample_us = monitoring_attrs.intervals.sample_us;
        Context {
            operations: self.operations,
            addr_unit: asked.addr_unit,
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

    /// The interface that delivers results, and why it is not the better one.
    #[must_use]
    pub fn results(&self) -> String {
        self.reader.to_string()
    }

    /// The attributes in force: the kernel may have tuned them.
    #[must_use]
    pub fn attrs(&self) -> Attrs {
        self.attrs
    }

    /// Continue after all targets have ended: new ones may come.
    pub fn outlive_targets(&mut self) {
        self.outlives = true;
    }

    /// Stops and removes the kdamond: the next step returns [`Step::End`].
    ///
    /// # Errors
    /// If another user has replaced the kdamond, or the kernel refuses. In the second case it stays marked as
    /// isotherm's.
    pub fn stop(&mut self) -> Result<(), DamonError> {
        self.ended.get_or_insert(EndReason::Stopped);
        self.own_kdamond.stop()?;
        self.own_kdamond.leave()
    }

    fn try_step(&mut self, now: Nanos) -> Result<Step, DamonError> {
        if let Some(why) = self.ended {
            return Ok(Step::End(why));
        }
        self.take_waiting(now)?;
        if self.members.iter().all(Member::is_over) {
            return self.nobody(now);
        }
        match self.look(now) {
            // The kernel refuses to answer if targets have ended in the meantime.
            Err(_) if self.members.iter().all(Member::is_over) => self.nobody(now),
            looked => looked,
        }
    }

    fn look(&mut self, now: Nanos) -> Result<Step, DamonError> {
        if now >= self.next_update {
            self.next_update = now + self.attrs.update;
            self.update(now)?;
        }
        match self.reader.next(now, self.attrs.interval(), &self.own_kdamond)? {
            Some(result) => Ok(Step::Snapshot(Arc::new(self.snapshot(result)))),
            None => {
                self.check(now)?;
                Ok(Step::Wait(self.clock.next(now)))
            }
        }
    }

    /// Handles the case that no target remains.
    fn nobody(&mut self, now: Nanos) -> Result<Step, DamonError> {
        if !self.outlives {
            self.ended = Some(EndReason::TargetsGone);
            return Ok(Step::End(EndReason::TargetsGone));
        }
        if self.own_kdamond.is_running() {
            self.own_kdamond.stop()?;
        }
        Ok(Step::Wait(now + ASK_AGAIN))
    }

    /// Checks whether an overdue kdamond was stopped.
    fn check(&mut self, now: Nanos) -> Result<(), DamonError> {
        if self.clock.is_late(now) && !self.own_kdamond.is_running() {
            // The kernel has accepted a change of targets, and then could not continue.
            return if self.committed { self.restart() } else { Err(DamonError::Stopped) };
        }
        if self.clock.is_silent(now) {
            return Err(DamonError::Silent { dropped: self.reader.dropped() });
        }
        Ok(())
    }

    fn update(&mut self, now: Nanos) -> Result<(), DamonError> {
        let members = self.members.iter_mut().filter(|m| !m.dropped);
        for member in members {
            // A target that cannot be read any more has ended; the next step detects that.
            let _ = member.update(now);
        }
        // The kernel answers after one sampling interval.
        if self.asked.intervals_goal.is_some() && now >= self.next_tuned {
            self.next_tuned = now + self.attrs.interval();
            let tuned = self.own_kdamond.tuned()?;
            self.attrs.sample = Duration::from_micros(tuned.sample_us);
            self.attrs.aggr = Duration::from_micros(tuned.aggr_us);
        }
        Ok(())
    }

    fn snapshot(&mut self, result: AggregationResult) -> Snapshot {
        self.committed = false;
        let (start, length) = self.clock.interval(result.at, self.reader.dropped());
        let samples = self.attrs.samples();
        let scale = Scale {
            samples,
            sample: length / samples,
            aggr: self.clock.pace(),
            unit: self.unit(),
            oldest: Duration::MAX,
        };
        let end = self.clock.last_end();
        let looks = result.targets.values().map(Vec::len).sum::<usize>() as u64;
        let looks = looks * u64::from(samples);
        let most = self.attrs.max_regions as usize;
        let targets = target_views(&mut self.members, result, end, scale, most);
        let thread = self.own_kdamond.cpu();
        let cpu = self.cpu.lap() + thread.saturating_sub(self.thread_cpu);
        self.thread_cpu = thread;
        self.seq += 1;
        // DAMON clears without a flush, so there are no shootdowns.
        let cost = Cost { cpu, looks, pages: looks, clears: 0, lost: Duration::ZERO };
        Snapshot { seq: self.seq - 1, start, end, attrs: self.attrs, cost, quality: None, targets }
    }
}

impl Source for Kdamond {
    /// A step lasts as long as reading the mappings of all targets. Without tracefs, or if the kernel tunes the
    /// intervals, it lasts up to a sampling interval and 0.1 s longer. With new targets it lasts up to an
    /// aggregation interval longer, if that is at most one second.
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        self.try_step(now).map_err(|e| OpsError::Failed(e.to_string()))
    }
}
