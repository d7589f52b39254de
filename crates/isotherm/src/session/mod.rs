//! Watches processes until there is a reason to end: the loop of all programs that watch.

mod attributions;
mod error;
mod events;
mod gauge;
mod history;
pub(crate) mod idle_ages;
mod job;
pub(crate) mod memory;
pub(crate) mod probes;
mod saved_ages;
pub(crate) mod scene;
mod state;
mod status;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::Engine;
use isotherm_core::{
    Attrs, CacheTrace, Driver, EndReason, KeptAges, Nanos, OpsError, Snapshot, TargetId, drive,
};
use isotherm_linux::sys;
use isotherm_record::{Event, FileEndReason, TargetInfo, WriteError};
use tracing::{debug, trace};

use crate::agent::Agent;
use crate::control::{self, Control};
use crate::follow::{Follower, Selection};
use crate::metrics::MetricsExporter;
use crate::notify::Notify;
use crate::served::{Ends, Wait};
use crate::stop::Stop;
use crate::watch::{DefaultAttrs, Looks, Ready, Watch, WatchError};

pub use attributions::Attributions;
pub use error::SessionError;
pub(crate) use error::via_session;
pub use events::{EventReceiver, EventSender, Weighed, events};
pub use gauge::{CostShares, SupportShares};
pub use history::{History, KeptSnapshots};
pub use idle_ages::IdleAges;
pub use job::Job;
pub(crate) use saved_ages::SavedAges;

use self::job::KeepLast;
pub use memory::BytesByHeat;
pub use scene::Scene;
pub use state::{Record as RecordState, WatchStatus};
pub use status::{Progress, Silent, Status};

/// Maximum number of control groups without processes whose counts are kept.
const MAX_LEFT_GROUPS: usize = 1024;

/// A time that has passed: [`SessionDriver::serve`] then only does what is due.
const NOW: Nanos = Nanos(0);

/// Why a session has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEnd {
    /// All targets have ended, and no new ones can join.
    TargetsGone,
    /// It was stopped: by a signal, its duration, or over the control socket.
    Stopped(String),
    /// The record has reached its maximum size.
    Full,
}

impl SessionEnd {
    /// The reason as a record holds it.
    #[must_use]
    pub fn why(&self) -> FileEndReason {
        match self {
            SessionEnd::TargetsGone => FileEndReason::TargetsGone,
            SessionEnd::Stopped(_) => FileEndReason::Stopped,
            SessionEnd::Full => FileEndReason::MaxSize,
        }
    }

    /// Additional text for the record.
    #[must_use]
    pub fn note(&self) -> &str {
        match self {
            SessionEnd::Stopped(note) => note,
            SessionEnd::TargetsGone | SessionEnd::Full => "",
        }
    }
}

/// The state of a session: its targets, what is known of them, and the interfaces to other programs.
pub struct SessionState {
    /// the processes
    pub follower: Follower,
    /// user, control group and name of each process
    pub attributions: Attributions,
    /// idle ages of the targets
    pub ages: IdleAges,
    /// duration and cost of watching
    pub status: Status,
    /// the last snapshot
    pub last: Option<Arc<Snapshot>>,
    /// the control socket
    pub control: Option<Control>,
    /// recent snapshots, if there is a socket to ask for them
    history: Option<History>,
    /// figures for Prometheus
    pub metrics: MetricsExporter,
    /// rows for a lake
    pub agent: Agent,
    /// notifications to the service manager
    pub(crate) notify: Notify,
}

impl SessionState {
    /// The present state, for readers; `engine` is that of the running schemes.
    #[must_use]
    pub fn scene<'a>(&'a self, engine: Option<&'a Engine>) -> Scene<'a> {
        Scene {
            snapshot: self.last.as_deref(),
            follower: &self.follower,
            attributions: &self.attributions,
            ages: &self.ages,
            status: &self.status,
            engine,
        }
    }

    /// The kept snapshots that start at `from` or later, as many as fit in an answer; without `from` the last one. `None`
    /// if there is none after the snapshot number `after`.
    ///
    /// # Errors
    /// If snapshots cannot be encoded.
    pub fn snapshots(
        &self,
        after: Option<u64>,
        from: Option<Nanos>,
    ) -> Result<Option<KeptSnapshots>, WriteError> {
        let Some(history) = &self.history else { return Ok(None) };
        from.map_or_else(|| history.last(after), |from| history.since(from))
    }

    /// Adds an event to the history, if there is one.
    fn keep(&mut self, event: impl FnOnce() -> Event) {
        if let Some(history) = &mut self.history {
            history.push(event());
        }
    }

    /// Hands the present state to the agent.
    pub(crate) fn with_agent<T>(&mut self, hand: impl FnOnce(&mut Agent, &Scene<'_>) -> T) -> T {
        let mut agent = std::mem::take(&mut self.agent);
        let done = hand(&mut agent, &self.scene(None));
        self.agent = agent;
        done
    }
}

/// A running session, as a [`Job`] sees it.
pub struct JobContext<'a> {
    /// the source of snapshots
    pub watch: &'a mut dyn Watch,
    /// the state of the session
    pub state: &'a mut SessionState,
}

impl JobContext<'_> {
    /// The attributes of our own monitor.
    ///
    /// # Errors
    /// If the kernel's monitor watches.
    pub fn attrs(&self) -> Result<Attrs, SessionError> {
        self.watch.attrs().ok_or(SessionError::KernelMonitor)
    }

    /// Attaches new processes, and drops processes that have ended.
    ///
    /// # Errors
    /// Errors of the source and of the job.
    pub fn follow<J: Job + ?Sized>(&mut self, job: &mut J) -> Result<(), J::Error> {
        let ended = self.state.follower.follow(self.watch.hold());
        let news = self.state.follower.news();
        if !news.is_empty() || !ended.is_empty() {
            let targets = self.state.follower.targets();
            self.watch.set_targets(&targets).map_err(SessionError::from)?;
        }
        self.name(&news, job)?;
        self.state.attributions.forget(&ended);
        for target in ended {
            debug!("target {} has ended, or is no longer selected", target.0);
            self.watch.hold().detach(target);
            job.gone(target);
        }
        Ok(())
    }

    /// Reads attributions that are due, and passes them and changed names to the job.
    fn attribute<J: Job + ?Sized>(&mut self, job: &mut J) -> Result<(), J::Error> {
        let SessionState { follower, attributions, .. } = &mut *self.state;
        let read = attributions.read(follower, self.watch.hold());
        let renamed = follower.renamed(&read);
        attributions.read_anew(&renamed);
        self.name(&renamed, job)?;
        for a in read {
            self.state.keep(|| Event::Attribution(a.clone()));
            job.attribution(a)?;
        }
        Ok(())
    }

    /// Drops lasting targets that the source has forgotten.
    fn forget<J: Job + ?Sized>(&mut self, job: &mut J) {
        let gone = self.watch.gone();
        self.state.follower.forget_lasting(&gone);
        gone.into_iter().for_each(|target| job.gone(target));
    }

    /// Reports new targets, or new names of targets.
    fn name<J: Job + ?Sized>(&mut self, facts: &[TargetInfo], job: &mut J) -> Result<(), J::Error> {
        for fact in facts {
            self.state.keep(|| Event::Target(fact.clone()));
            job.target(fact)?;
        }
        Ok(())
    }
}

/// A set of watched processes.
///
/// ```no_run
/// use isotherm::core::{Heat, Thresholds};
/// use isotherm::{Selection, Session};
///
/// let mut session = Session::open(&Selection::pid(4711))?;
/// while let Some(snapshot) = session.next_snapshot()? {
///     let regions = snapshot.targets.iter().flat_map(|target| &target.regions);
///     for region in regions.filter(|r| r.heat(&Thresholds::default()) == Heat::Hot) {
///         println!("{:#x}..{:#x} {:.1} Hz", region.range.start, region.range.end, region.rate.hz);
///     }
/// }
/// # Ok::<(), isotherm::session::SessionError>(())
/// ```
pub struct Session {
    watch: Box<dyn Watch>,
    state: SessionState,
    /// Some targets may have ended.
    ended: bool,
}

impl Session {
    /// Watches processes with the default monitor, in the best way to look that works here. Only
    /// [`Session::begin`] starts a selected command.
    ///
    /// # Errors
    /// If no way works, or a process cannot be watched: the reason, and what to do.
    pub fn open(selection: &Selection) -> Result<Self, SessionError> {
        let mut looks = Looks::open(None)?;
        let attrs = looks.attrs(&DefaultAttrs)?;
        let mut follower = Follower::new(None);
        follower.attach_all(looks.hold(), selection)?;
        Session::begin(Box::new(looks), follower, attrs, sys::monotonic().0, Box::new(Silent))
    }

    /// Watches the targets in `ready`, which `follower` follows. `seed` starts the random numbers of the
    /// monitor.
    ///
    /// # Errors
    /// If the monitor cannot start.
    pub fn begin(
        ready: Box<dyn Ready>,
        follower: Follower,
        attrs: Attrs,
        seed: u64,
        progress: Box<dyn Progress>,
    ) -> Result<Self, SessionError> {
        let mut watch = ready.begin(attrs, &follower.targets(), seed)?;
        if follower.may_grow() {
            watch.outlive_targets();
        }
        debug!("watching with {attrs:?}");
        let state = SessionState {
            follower,
            attributions: Attributions::default(),
            ages: IdleAges::default(),
            status: Status::new(&attrs, progress),
            last: None,
            control: None,
            history: None,
            metrics: MetricsExporter::default(),
            agent: Agent::default(),
            notify: Notify::default(),
        };
        Ok(Session { watch, state, ended: true })
    }

    /// Adds the interfaces to other programs: the control socket, metrics, and the service manager.
    #[must_use]
    pub(crate) fn speaking(
        mut self,
        control: Option<Control>,
        metrics: MetricsExporter,
        notify: Notify,
    ) -> Self {
        self.state.history = control.is_some().then(|| History::new(self.state.follower.facts()));
        (self.state.control, self.state.metrics, self.state.notify) = (control, metrics, notify);
        self
    }

    /// Also writes rows to a lake.
    #[must_use]
    pub(crate) fn writing(mut self, agent: Agent) -> Self {
        self.state.agent = agent;
        self
    }

    /// The state of the session.
    #[must_use]
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// The next snapshot; `None` if all targets have ended. It catches no signal.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn next_snapshot(&mut self) -> Result<Option<Arc<Snapshot>>, SessionError> {
        let mut job = KeepLast { snapshot: None, first: true };
        self.run(&mut job, &Stop::never())?;
        Ok(job.snapshot)
    }

    /// The last snapshot within `time`. If there is none, the first one within the same time again. `None` if a
    /// signal arrives before the first snapshot.
    ///
    /// # Errors
    /// Errors of the source; or if all targets have ended.
    pub fn last_snapshot(
        &mut self,
        time: Duration,
        stop: &Stop,
    ) -> Result<Option<Arc<Snapshot>>, SessionError> {
        let end = sys::monotonic() + time;
        let mut job = KeepLast { snapshot: None, first: false };
        for (end, first) in [(end, false), (end + time, true)] {
            job.first = first;
            if job.snapshot.is_none()
                && self.run(&mut job, &stop.until(end)?)? == SessionEnd::TargetsGone
            {
                return Err(SessionError::Ended);
            }
        }
        Ok(job.snapshot)
    }

    /// Runs `job` until there is a reason to end; returns that reason.
    ///
    /// # Errors
    /// Errors of the source and of the job.
    pub fn run<J: Job>(&mut self, job: &mut J, stop: &Stop) -> Result<SessionEnd, J::Error> {
        let Session { watch, state, ended } = self;
        drive(&mut **watch, &mut SessionDriver { state, ended, job, stop }).map_err(|e| e.0)
    }

    /// Accesses to files after the last snapshot, and the files that were found since then.
    pub fn trace(&mut self) -> Option<(Vec<TargetInfo>, CacheTrace)> {
        let trace = self.watch.trace()?;
        Some((self.watch.news(), trace))
    }

    /// The known ages of the targets' pages, for the session that follows this one.
    #[must_use]
    pub fn kept_ages(&self) -> Vec<(TargetId, KeptAges)> {
        self.watch.kept_ages()
    }

    /// Continues from the ages of an earlier session; to be called before the first snapshot.
    pub fn resume_ages(&mut self, kept: Vec<(TargetId, KeptAges)>) {
        self.watch.resume_ages(kept);
    }

    /// Stops watching.
    ///
    /// # Errors
    /// If a change to the machine cannot be undone.
    pub fn stop(&mut self) -> Result<(), WatchError> {
        self.watch.stop()
    }
}

/// An error of a job, or of the source.
struct DriverError<E>(E);

impl<E: From<SessionError>> From<SessionError> for DriverError<E> {
    fn from(e: SessionError) -> Self {
        DriverError(e.into())
    }
}

impl<E: From<SessionError>> From<OpsError> for DriverError<E> {
    fn from(e: OpsError) -> Self {
        SessionError::from(e).into()
    }
}

/// Drives a job while a session runs.
struct SessionDriver<'a, J> {
    state: &'a mut SessionState,
    ended: &'a mut bool,
    job: &'a mut J,
    stop: &'a Stop,
}

impl<J: Job> SessionDriver<'_, J> {
    /// Waits until the given time, or until there is something to do. Answers requests, and writes metrics.
    fn serve(
        &mut self,
        watch: &mut dyn Watch,
        until: Nanos,
    ) -> Result<ControlFlow<SessionEnd>, DriverError<J::Error>> {
        let mut on = JobContext { watch, state: self.state };
        let w = &mut *on.state;
        let others = [
            self.stop.end(),
            w.follower.by(),
            w.attributions.by(&w.follower),
            self.job.by(),
            w.metrics.by(),
            w.agent.by(),
            w.notify.by(),
        ];
        let until = others.into_iter().flatten().fold(until, Nanos::min);
        let (mut ends, mut signals) = (Ends::of(on.watch.hold()), self.stop);
        let until = ends.by(until);
        let all: [&mut dyn Wait; 2] = [&mut ends, &mut signals];
        let all = all.into_iter().chain(w.metrics.listener());
        let requests = control::wait(w.control.as_mut(), all, until);
        *self.ended = ends.come;
        let mut metrics = std::mem::take(&mut w.metrics);
        metrics.write_if_due(&w.scene(self.job.engine()));
        w.metrics = metrics;
        w.with_agent(|agent, scene| agent.turn(scene)).map_err(SessionError::Rows)?;
        let mut control = w.control.take();
        let stop = control::answer(control.as_mut(), requests, |r| self.job.request(&mut on, r));
        on.state.control = control;
        Ok(stop
            .map_or(ControlFlow::Continue(()), |why| ControlFlow::Break(SessionEnd::Stopped(why))))
    }
}

impl<'s, J: Job> Driver<dyn Watch + 's> for SessionDriver<'_, J> {
    type End = SessionEnd;
    type Error = DriverError<J::Error>;

    fn turn(
        &mut self,
        watch: &mut (dyn Watch + 's),
    ) -> Result<ControlFlow<SessionEnd, Nanos>, Self::Error> {
        let mut on = JobContext { watch, state: self.state };
        let now = sys::monotonic();
        on.state.notify.alive(now);
        if let Some(cause) = self.stop.cause() {
            return Ok(ControlFlow::Break(SessionEnd::Stopped(cause.to_string())));
        }
        if self.stop.take_reload_request() {
            self.job.reload(&mut on);
        }
        if std::mem::take(self.ended) || on.state.follower.is_due(now) {
            on.follow(self.job).map_err(DriverError)?;
            if !on.state.follower.any_alive(on.watch.hold()) {
                return Ok(ControlFlow::Break(SessionEnd::TargetsGone));
            }
        }
        on.attribute(self.job).map_err(DriverError)?;
        self.job.turn(&mut on, now).map_err(DriverError)?;
        Ok(ControlFlow::Continue(now))
    }

    fn wait(
        &mut self,
        watch: &mut (dyn Watch + 's),
        until: Nanos,
    ) -> Result<ControlFlow<SessionEnd>, Self::Error> {
        let mut on = JobContext { watch, state: self.state };
        let has_worked = self.job.work(&mut on).map_err(DriverError)?;
        self.serve(watch, if has_worked { NOW } else { until })
    }

    fn snapshot(
        &mut self,
        watch: &mut (dyn Watch + 's),
        s: Arc<Snapshot>,
    ) -> Result<ControlFlow<SessionEnd>, Self::Error> {
        probes::aggregated(&s, &self.state.follower.pid_of());
        trace!("snapshot {} has {} regions", s.seq, s.nr_regions());
        let SessionState { ages, attributions, last, .. } = &mut *self.state;
        ages.add(&s, |id| attributions.of(id));
        *last = Some(Arc::clone(&s));
        self.state.keep(|| Event::Snapshot(Arc::clone(&s)));
        let sent = self.state.with_agent(|agent, scene| agent.snapshot(&s, scene));
        sent.map_err(SessionError::Rows)?;
        let news = watch.news();
        self.state.follower.add_lasting(&news);
        let mut on = JobContext { watch, state: self.state };
        on.name(&news, self.job).map_err(DriverError)?;
        on.forget(self.job);
        if let ControlFlow::Break(end) = self.job.snapshot(&mut on, &s).map_err(DriverError)? {
            return Ok(ControlFlow::Break(end));
        }
        // A source that needs longer than its interval for a snapshot never waits.
        self.serve(watch, NOW)
    }

    fn ended(&mut self, why: EndReason) -> SessionEnd {
        match why {
            EndReason::TargetsGone => SessionEnd::TargetsGone,
            EndReason::Stopped | EndReason::Played => SessionEnd::Stopped(String::new()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;

    use isotherm_core::{Cost, Source, Step};
    use isotherm_linux::{HeldProcesses, Hold};

    use super::*;
    use crate::control::{Request, Response};
    use crate::watch::StaticTargets;

    /// Steps after which the source ends, so that a test ends that fails.
    const STEPS: u64 = 100;

    /// A source that is never ahead of time: what is due takes longer than the interval.
    struct LateWatch {
        steps: u64,
        /// Each step is a snapshot. Otherwise none is, and the job has work.
        delivers: bool,
        held: HeldProcesses,
    }

    impl Source for LateWatch {
        fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
            let seq = self.steps;
            self.steps += 1;
            if self.steps > STEPS {
                return Ok(Step::End(EndReason::Played));
            }
            if !self.delivers {
                return Ok(Step::Wait(now));
            }
            let (start, end, attrs) = (Nanos(seq), Nanos(seq + 1), Attrs::default());
            let (cost, quality, targets) = (Cost::default(), None, Vec::new());
            Ok(Step::Snapshot(Snapshot { seq, start, end, attrs, cost, quality, targets }.into()))
        }
    }

    impl Watch for LateWatch {
        fn hold(&mut self) -> &mut dyn Hold {
            &mut self.held
        }

        fn set_targets(&mut self, _: &[TargetId]) -> Result<(), WatchError> {
            Ok(())
        }

        fn stop(&mut self) -> Result<(), WatchError> {
            Ok(())
        }
    }

    /// A job that always has work, unless there are snapshots.
    #[derive(Default)]
    struct BusyJob {
        calls: u64,
    }

    impl Job for BusyJob {
        type Status = u64;
        type Error = SessionError;

        fn snapshot(
            &mut self,
            _: &mut JobContext<'_>,
            _: &Arc<Snapshot>,
        ) -> Result<ControlFlow<SessionEnd>, SessionError> {
            self.calls += 1;
            Ok(ControlFlow::Continue(()))
        }

        fn work(&mut self, _: &mut JobContext<'_>) -> Result<bool, SessionError> {
            self.calls += 1;
            Ok(true)
        }

        fn request(
            &mut self,
            _: &mut JobContext<'_>,
            _: Request,
        ) -> Result<Response<u64>, SessionError> {
            Ok(Response::status(self.calls))
        }
    }

    /// A session of a source that is never ahead of time, and `delivers` snapshots or none.
    pub(crate) fn late_session(control: Control, delivers: bool) -> Session {
        let lasting = StaticTargets { kind: "files", facts: Vec::new() };
        Session {
            watch: Box::new(LateWatch { steps: 0, delivers, held: HeldProcesses::default() }),
            state: SessionState {
                follower: Follower::new(Some(lasting)),
                attributions: Attributions::default(),
                ages: IdleAges::default(),
                status: Status::new(&Attrs::default(), Box::new(Silent)),
                last: None,
                control: Some(control),
                history: None,
                metrics: MetricsExporter::default(),
                agent: Agent::default(),
                notify: Notify::default(),
            },
            ended: true,
        }
    }

    #[test]
    fn requests_are_answered_although_a_snapshot_is_always_due() {
        for delivers in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("sock");
            let mut session = late_session(Control::open(&path).unwrap(), delivers);
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(b"{\"do\":\"status\"}\n{\"do\":\"stop\"}\n").unwrap();
            let mut job = BusyJob::default();
            let end = session.run(&mut job, &Stop::never()).unwrap();
            assert_eq!(end, SessionEnd::Stopped("stopped by a request".to_owned()), "{delivers}");
            drop(session);
            let answers: Vec<String> = BufReader::new(client).lines().map(Result::unwrap).collect();
            assert_eq!(answers, ["{\"ok\":true,\"status\":1}", "{\"ok\":true,\"status\":2}"]);
        }
    }
}
