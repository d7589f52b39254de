//! Processes that are watched now.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm::control::{Request, Response};
use isotherm::follow::{Follower, Selection, StartedCommand, resolve};
use isotherm::record::{facts, sweep};
use isotherm::session::{
    EventReceiver, EventSender, Job, JobContext, Progress, Session, SessionEnd, SessionError,
    events,
};
use isotherm::stop::Stop;
use isotherm::watch::{AttrsFor, LookBy, WatchedMemory, open};
use isotherm_core::{Attribution, Snapshot};
use isotherm_linux::sys::{self, KeptCapabilities};
use isotherm_record::{Event, TargetInfo};
use isotherm_view::Index;
use tokio::sync::watch as newest;
use tracing::info;

use crate::server::Server;
use crate::source::{PageSource, SourceKind};
use crate::{WebOptions, announce, farewell, live_limits};

/// Maximum number of regions that wait for the index, of about 100 bytes each. Beyond it, the page misses the newest.
const MAX_WAITING_REGIONS: usize = 50_000;
/// Time to end a command after the server was stopped.
const NO_TIME: Duration = Duration::ZERO;

/// The memory to watch, and how.
pub struct WatchOptions {
    /// the processes
    pub targets: Selection,
    /// whether to watch these processes, files, or physical memory
    pub what: WatchedMemory,
    /// how to look
    pub look: LookBy,
    /// seed of the random numbers; `None`: different each time
    pub seed: Option<u64>,
}

/// Watches processes and shows them, until a signal. When all processes have ended, the page stays.
///
/// # Errors
/// If the processes cannot be watched, or the server cannot start.
pub fn watch(
    live: &WatchOptions,
    attrs: &dyn AttrsFor,
    options: &WebOptions,
    progress: Box<dyn Progress>,
) -> Result<()> {
    let seed = live.seed.unwrap_or_else(|| sys::monotonic().0);
    let stop = Stop::at_signals()?.at(options.duration.map(|d| sys::monotonic() + d));
    sweep();
    let mut ready = open(&live.what, live.look, attrs)?;
    let attrs = ready.attrs(attrs)?;
    let mut follower = Follower::new(ready.watched());
    follower.attach_all(ready.hold(), &live.targets)?;
    let program = resolve(&live.targets.command)?;
    let index = Index::new(live_limits(options.thresholds));
    let source = Arc::new(PageSource::new(SourceKind::Live, "live".to_owned(), None, index));
    let (changes, changed) = newest::channel(0);
    let server = Server::start(&options.listen, vec![Arc::clone(&source)], changed)?;
    let facts = facts(attrs, seed, ready.describe());
    let mut started = follower.start(ready.hold(), program, &live.targets.command, &[])?;
    let files = ready.requires_files();
    sys::drop_privileges(KeptCapabilities {
        reading: files,
        writing: files && live.targets.may_be_strangers(),
        frames: ready.requires_frames(),
        ..KeptCapabilities::default()
    })
    .context("cannot give up capabilities")?;
    announce(&server);
    let (send, receive) = events(MAX_WAITING_REGIONS);
    let job = &mut WebJob { send };
    // If the other thread has failed, the page stands still.
    let _ = job.send.offer(Event::Header(facts));
    follower.news().into_iter().for_each(|fact| _ = job.send.offer(Event::Target(fact)));
    let (kept, kept_changes) = (Arc::clone(&source), changes.clone());
    let keep = move || keep(&receive, &kept, &kept_changes);
    std::thread::Builder::new().name("keep".into()).spawn(keep).context("cannot start a thread")?;
    let mut session = Session::begin(ready, follower, attrs, seed, progress)?;
    let ended = session.run(job, &stop)?;
    session.stop()?;
    session.state().status.clear();
    if ended == SessionEnd::TargetsGone {
        source.end("the watched processes have ended");
        changes.send_modify(|n| *n += 1);
        info!("the watched processes have ended: the page stays until Ctrl-C");
        stop.wait();
    }
    if job.send.missed() > 0 {
        let missed = job.send.missed();
        info!("{missed} snapshots are not in the page, because the machine was too busy");
    }
    if let Some(command) = &mut started {
        end(command, &stop)?;
    }
    farewell(&server);
    Ok(())
}

/// Ends the command that was started.
fn end(command: &mut StartedCommand, stop: &Stop) -> Result<()> {
    command.end(&stop.until(sys::monotonic() + NO_TIME)?)?;
    Ok(())
}

/// Hands events to the thread that keeps the index. It never waits.
struct WebJob {
    send: EventSender<Event>,
}

impl Job for WebJob {
    type Status = ();
    type Error = SessionError;

    fn target(&mut self, fact: &TargetInfo) -> Result<(), SessionError> {
        let _ = self.send.offer(Event::Target(fact.clone()));
        Ok(())
    }

    fn attribution(&mut self, a: Attribution) -> Result<(), SessionError> {
        let _ = self.send.offer(Event::Attribution(a));
        Ok(())
    }

    fn snapshot(
        &mut self,
        on: &mut JobContext<'_>,
        s: &Arc<Snapshot>,
    ) -> Result<ControlFlow<SessionEnd>, SessionError> {
        on.state.status.show(s, String::new);
        let _ = self.send.offer(Event::Snapshot(Arc::clone(s)));
        Ok(ControlFlow::Continue(()))
    }

    fn request(
        &mut self,
        _: &mut JobContext<'_>,
        _: Request,
    ) -> Result<Response<()>, SessionError> {
        Err(SessionError::NoRequests)
    }
}

/// Adds events to the index as they come.
fn keep(receive: &EventReceiver<Event>, source: &PageSource, changes: &newest::Sender<u64>) {
    while let Some(event) = receive.next() {
        let is_snapshot = matches!(event, Event::Snapshot(_));
        source.change().push(event);
        if is_snapshot {
            changes.send_modify(|n| *n += 1);
        }
    }
}
