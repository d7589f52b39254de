//! `isotherm agent`: watches, and writes rows until there is a reason to end.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Nanos, Snapshot};
use isotherm_linux::sys::{self, KeptCapabilities};
use sd_notify::NotifyState;
use tracing::info;

use super::{Agent, AgentError, LakeOptions};
use crate::control::{Control, Request, Response};
use crate::follow::{Follower, Selection};
use crate::metrics::{MetricsExporter, MetricsTo};
use crate::notify::Notify;
use crate::record::sweep;
use crate::session::{Job, JobContext, Progress, SavedAges, Session, SessionEnd, WatchStatus};
use crate::stop::Stop;
use crate::watch::{AttrsFor, LookBy, WatchedMemory, open};
use crate::words::STATUS;

/// The options of the agent: its processes, its lake, its socket and its metrics.
pub struct AgentOptions {
    /// the processes to watch
    pub targets: Selection,
    /// how to look
    pub look: LookBy,
    /// seed of the random numbers; `None`: different each time
    pub seed: Option<u64>,
    /// the lake
    pub lake: LakeOptions,
    /// The agent ends after this time.
    pub duration: Option<Duration>,
    /// path of the control socket; `None`: no socket
    pub control: Option<PathBuf>,
    /// destination of the metrics
    pub metrics: Option<MetricsTo>,
    /// interval between two writes of the metrics
    pub metrics_every: Duration,
}

/// Watches until there is a reason to end.
///
/// # Errors
/// If it cannot start, or the source fails.
pub fn run(
    o: &AgentOptions,
    attrs: &dyn AttrsFor,
    progress: Box<dyn Progress>,
) -> Result<SessionEnd, AgentError> {
    let stop = Stop::at_signals()?;
    sweep();
    let mut ready = open(&WatchedMemory::processes(), o.look, attrs)?;
    let attrs = ready.attrs(attrs)?;
    let mut follower = Follower::new(ready.watched());
    follower.attach_all(ready.hold(), &o.targets)?;
    let control = o.control.as_deref().map(Control::open).transpose()?;
    let metrics = MetricsExporter::open(o.metrics.as_ref(), o.metrics_every)?;
    let agent = Agent::open(Some(&o.lake), false)?;
    let (files, frames) = (ready.requires_files(), ready.requires_frames());
    let kept = KeptCapabilities { reading: files, writing: true, frames, locking: false };
    sys::drop_privileges(kept).map_err(AgentError::Privileges)?;
    let _ = follower.news();
    let seed = o.seed.unwrap_or_else(|| sys::monotonic().0);
    let session = Session::begin(ready, follower, attrs, seed, progress)?;
    let mut session = session.speaking(control, metrics, Notify::from_env()).writing(agent);
    let ages = o.control.as_deref().map(SavedAges::beside);
    ages.iter().for_each(|ages| ages.take_up(&mut session));
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    Notify::say(&[NotifyState::Ready]);
    let ended = session.run(&mut AgentJob, &stop);
    Notify::say(&[NotifyState::Stopping]);
    session.state().status.clear();
    if ended.is_ok() {
        ages.iter().for_each(|ages| ages.leave(&session));
    }
    session.stop().map_err(AgentError::from)?;
    let end = ended?;
    let (status, rows) = (&session.state().status, session.state().agent.spent());
    info!(
        target: STATUS,
        "ran {:.1} s: {}; {:.3} s of CPU time for rows",
        status.seconds(),
        status.cost(),
        rows.as_secs_f64()
    );
    Ok(end)
}

/// The session itself makes the rows. This answers requests.
struct AgentJob;

impl Job for AgentJob {
    type Status = WatchStatus;
    type Error = AgentError;

    fn snapshot(
        &mut self,
        on: &mut JobContext<'_>,
        s: &Arc<Snapshot>,
    ) -> Result<ControlFlow<SessionEnd>, AgentError> {
        on.state.status.show(s, String::new);
        Ok(ControlFlow::Continue(()))
    }

    fn request(
        &mut self,
        on: &mut JobContext<'_>,
        request: Request,
    ) -> Result<Response<WatchStatus>, AgentError> {
        match request {
            Request::Status => {
                let scene = on.state.scene(None);
                Ok(Response::status(WatchStatus::new(&scene, on.watch.attrs(), false, None)))
            }
            Request::Snapshot { after, from } => {
                Ok(Response::snapshot(on.state.snapshots(after, from.map(Nanos))?))
            }
            Request::Stop => Ok(Response::done()),
            Request::Attributes(new) => {
                let attrs = new.over(on.attrs()?).map_err(AgentError::Attributes)?;
                on.watch.set_attrs(attrs).map_err(crate::session::SessionError::from)?;
                on.state.status.set_attrs(&attrs);
                Ok(Response::done())
            }
            Request::Targets { add, remove } => {
                on.state.follower.set_targets(on.watch.hold(), &add, &remove)?;
                on.follow(self)?;
                Ok(Response::done())
            }
            Request::Pause | Request::Resume | Request::Commit { .. } | Request::Record { .. } => {
                Err(AgentError::OnlyRows)
            }
        }
    }
}
