//! Running schemes.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{ActionEvent, Engine};
use isotherm_core::{Act, Attribution, CodeMapping, Fault, Nanos, Snapshot, TargetId};
use isotherm_linux::{proc, sys};
use isotherm_record::TargetInfo;
use tracing::{debug, info, warn};

use super::aim_line::AimLine;
use super::dry::{Counted, Dry};
use super::event::LogLine;
use super::log::Log;
use super::major_faults::MajorFaults;
use super::meter::Meter;
use super::recording::SideRecord;
use super::refaults::{RefaultRates, Refaults};
use super::saved::Saved;
use super::state::ServiceStatus;
use super::status;
use super::table::SchemeTable;
use super::{RequiredPrivileges, ServiceConfig, ServiceError};
use crate::ROOT;
use crate::control::{Request, Response};
use crate::follow::Follower;
use crate::session::{Job, JobContext, SessionEnd, SessionError, probes};
use crate::stacks::{StackNews, Stacks, try_target};
use crate::words::STATUS;

/// Minimum time between two steps of the schemes.
const MIN_STEP_INTERVAL: Duration = Duration::from_millis(10);

/// The job that runs schemes.
pub struct SchemeJob {
    pub(super) engine: Engine,
    pub(super) meter: Meter,
    /// facts about the watched targets
    pub(super) facts: BTreeMap<TargetId, TargetInfo>,
    /// major faults of the targets, for schemes with an objective
    faults: MajorFaults,
    log: Option<Log>,
    pub(super) begin: Nanos,
    /// whether a snapshot has arrived, on which schemes can act
    has_snapshot: bool,
    pub(super) paused: bool,
    /// the privileges kept for the schemes at the start
    pub(super) required: RequiredPrivileges,
    pub(super) config: Rc<dyn ServiceConfig>,
    /// changes to the configuration that were received at run time
    pub(super) saved: Option<Saved>,
    pub(super) recording: SideRecord,
    /// the sampled page faults with their call stacks, and those that bring memory back
    stacks: Option<(Stacks, Refaults)>,
    counted: Counted,
    stepped: Nanos,
    /// whether a message has reported that schemes are inactive
    pub(super) warned: bool,
}

impl SchemeJob {
    /// Runs schemes as `config` defines. Schemes that replace them may use no privilege beyond `required`.
    pub fn new(
        engine: Engine,
        meter: Meter,
        log: Option<Log>,
        recording: SideRecord,
        stacks: Option<Stacks>,
        required: RequiredPrivileges,
        config: Rc<dyn ServiceConfig>,
    ) -> Self {
        let begin = sys::monotonic();
        SchemeJob {
            engine,
            meter,
            facts: BTreeMap::new(),
            faults: MajorFaults::default(),
            log,
            begin,
            has_snapshot: false,
            paused: false,
            required,
            config,
            saved: None,
            recording,
            stacks: stacks.map(|stacks| (stacks, Refaults::new(begin))),
            counted: Counted::default(),
            stepped: begin,
            warned: false,
        }
    }

    /// Whether this is a dry run.
    pub(super) fn dry(&self) -> bool {
        self.config.acting().dry_run
    }

    /// Adds the targets that are watched from the start.
    pub fn add_targets(&mut self, facts: Vec<TargetInfo>) -> Result<(), ServiceError> {
        facts.into_iter().try_for_each(|fact| self.target(&fact))
    }

    /// The files that the targets execute, if their stacks are sampled.
    pub(super) fn code(&self) -> BTreeMap<TargetId, Arc<Vec<CodeMapping>>> {
        self.stacks.as_ref().map(|(stacks, _)| stacks.code()).unwrap_or_default()
    }

    /// The sampled pages with their stacks, if they are sampled.
    pub(super) fn pages(&self) -> Vec<Fault> {
        self.stacks.as_ref().map(|(stacks, _)| stacks.pages()).unwrap_or_default()
    }

    /// Which code brings memory back, if stacks are sampled.
    pub(super) fn refault_rates(&self) -> Option<RefaultRates> {
        let (stacks, refaults) = self.stacks.as_ref()?;
        let pids = self.facts.values().filter_map(|fact| Some((fact.id, fact.pid?))).collect();
        Some(refaults.rates(sys::monotonic(), &stacks.code(), &pids))
    }

    /// Writes the last faults, and the state of all sampled pages, into a record that ends now.
    pub(super) fn complete_record(&mut self) {
        if self.recording.is_on() {
            self.write_stacks(sys::monotonic(), Stacks::finish);
        }
    }

    fn write_stacks(&mut self, now: Nanos, read: fn(&mut Stacks, Nanos) -> Vec<StackNews>) {
        let Some((stacks, refaults)) = &mut self.stacks else { return };
        refaults.turn(now);
        for news in read(stacks, now) {
            if let StackNews::Fault(f) = &news {
                refaults.push(f);
            }
            self.recording.stacks(news);
        }
    }

    /// When schemes are due to act without a new snapshot.
    fn due(&self) -> Option<Nanos> {
        let is_at_work = self.has_snapshot && !self.paused;
        is_at_work.then(|| Some(self.engine.due()?.max(self.stepped + MIN_STEP_INTERVAL))).flatten()
    }

    /// Lets the schemes act on the last snapshot, and reports the results.
    fn act(&mut self, on: &mut JobContext<'_>) -> Result<(), ServiceError> {
        let Some(s) = on.state.last.clone().filter(|_| !self.paused) else { return Ok(()) };
        let pids = on.state.follower.pid_of();
        let attributions = &on.state.attributions;
        self.meter.note_groups(pids.keys().filter_map(|id| attributions.of(*id)));
        let mut metrics = self.meter.read(ROOT.as_ref(), &s, &pids);
        if self.meter.needs_faults() {
            let hold = on.watch.hold();
            let read = |id, pid| {
                let stat = proc::stat(ROOT.as_ref(), pid).ok()?;
                hold.is_alive(id).then_some(stat.major_faults)
            };
            let known = |id| attributions.of(id).map(|a| (a.at, a.major_faults));
            metrics.major_faults = self.faults.read(&pids, known, read, sys::monotonic());
        }
        if let Some(why) = self.meter.rests().filter(|_| !std::mem::replace(&mut self.warned, true))
        {
            warn!("schemes that depend on the pressure of the targets are suspended: {why}");
        }
        let (now, mut events) = (sys::monotonic(), Vec::new());
        let act = on.watch.act().ok_or(ServiceError::CannotAct)?;
        let is_dry = self.dry();
        if is_dry {
            self.counted.keep(&s.targets, now);
        }
        let mut dry = Dry { act, counted: &mut self.counted, now };
        let act: &mut dyn Act = if is_dry { &mut dry } else { dry.act };
        let mut reported = probes::TracedAct { act, pids: &pids };
        let done = self.engine.step(now, &s, &metrics, &mut reported, &mut events);
        self.stepped = sys::monotonic();
        debug!("the schemes have done {} operations", events.len());
        on.state.with_agent(|agent, scene| agent.acted(&events, scene));
        self.report(&s, &events)?;
        self.report_choices()?;
        Ok(done.map_err(SessionError::from)?)
    }

    /// Reports the choices of schemes with an objective.
    fn report_choices(&mut self) -> Result<(), ServiceError> {
        let steps = self.engine.take_aim_steps();
        let lines: Vec<AimLine<'_>> = steps.iter().map(AimLine::new).collect();
        lines.iter().for_each(|line| info!("{}", line.words()));
        match &mut self.log {
            Some(log) if !lines.is_empty() => log.write(&lines),
            _ => Ok(()),
        }
    }

    fn report(&mut self, s: &Snapshot, events: &[ActionEvent]) -> Result<(), ServiceError> {
        if events.is_empty() || self.log.is_none() && !self.dry() {
            return Ok(());
        }
        let dry = self.dry();
        let line = |e| (e, LogLine::new(e, s, self.facts.get(&e.target), dry));
        let lines: Vec<(&ActionEvent, LogLine<'_>)> = events.iter().map(line).collect();
        if self.dry() {
            let mut out = std::io::stdout().lock();
            let mut reported = lines.iter().filter(|(_, line)| line.is_reported());
            reported.try_for_each(|(e, line)| writeln!(out, "{}", line.words(e.at, self.begin)))?;
        }
        let lines: Vec<LogLine<'_>> = lines.into_iter().map(|(_, line)| line).collect();
        self.log.as_mut().map_or(Ok(()), |log| log.write(&lines))
    }

    /// Prints the results and the reason for the end, unless it was an error, and returns the table.
    pub fn end(&self, because: Option<&SessionEnd>, follower: &Follower) -> SchemeTable {
        let time = sys::monotonic().since(self.begin);
        if let Some(because) = because {
            let because = match because {
                SessionEnd::Stopped(why) if !why.is_empty() => why,
                _ => "all targets have ended",
            };
            let who = follower.summary();
            info!(target: STATUS, "ran {:.1} s ({because}): {who}", time.as_secs_f64());
        }
        SchemeTable::new(&self.engine, time, self.dry())
    }
}

impl Job for SchemeJob {
    type Status = ServiceStatus;
    type Error = ServiceError;

    fn turn(&mut self, _: &mut JobContext<'_>, now: Nanos) -> Result<(), ServiceError> {
        self.write_stacks(now, Stacks::turn);
        self.recording.flush_if_due(now);
        Ok(())
    }

    fn target(&mut self, fact: &TargetInfo) -> Result<(), ServiceError> {
        self.recording.target(fact);
        if let Some((stacks, _)) = &mut self.stacks {
            try_target(stacks, fact);
        }
        self.facts.insert(fact.id, fact.clone());
        Ok(())
    }

    fn gone(&mut self, target: TargetId) {
        self.facts.remove(&target);
        if let Some((stacks, _)) = &mut self.stacks {
            stacks.gone(target);
        }
    }

    fn attribution(&mut self, a: Attribution) -> Result<(), ServiceError> {
        self.recording.attribution(a);
        Ok(())
    }

    fn snapshot(
        &mut self,
        on: &mut JobContext<'_>,
        s: &Arc<Snapshot>,
    ) -> Result<ControlFlow<SessionEnd>, ServiceError> {
        self.has_snapshot = true;
        self.recording.snapshot(s);
        self.act(on)?;
        on.state.status.show(s, || status::done(&self.engine, self.dry()));
        Ok(ControlFlow::Continue(()))
    }

    fn work(&mut self, on: &mut JobContext<'_>) -> Result<bool, ServiceError> {
        let is_due = self.due().is_some_and(|due| due <= sys::monotonic());
        if is_due {
            self.act(on)?;
        }
        Ok(is_due)
    }

    fn by(&self) -> Option<Nanos> {
        let stacks = self.stacks.as_ref().map(|(stacks, _)| stacks.by());
        self.due().into_iter().chain(self.recording.flush_by()).chain(stacks).min()
    }

    fn reload(&mut self, on: &mut JobContext<'_>) {
        self.reload(on);
    }

    fn request(
        &mut self,
        on: &mut JobContext<'_>,
        request: Request,
    ) -> Result<Response<ServiceStatus>, ServiceError> {
        self.done(on, request)
    }

    fn engine(&self) -> Option<&Engine> {
        Some(&self.engine)
    }
}
