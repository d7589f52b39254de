//! Processes that are watched now.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context, Result};
use isotherm::control::{Request, Response};
use isotherm::follow::{Follower, Selection};
use isotherm::record::{facts, sweep};
use isotherm::session::{Job, JobContext, Session, SessionEnd, SessionError, Silent};
use isotherm::stop::Stop;
use isotherm::watch::{AttrsFor, LookBy, WatchedMemory, open};
use isotherm_core::{Attribution, Snapshot};
use isotherm_linux::sys::{self, KeptCapabilities};
use isotherm_record::{Event, TargetInfo};

use super::NewsSender;
use super::pressure::Pressures;

/// The processes to watch, and how.
pub struct LiveOptions {
    /// the processes
    pub targets: Selection,
    /// how to look
    pub look: LookBy,
    /// the attributes of the monitor
    pub attrs: Box<dyn AttrsFor + Send>,
    /// seed of the random numbers; `None`: different each time
    pub seed: Option<u64>,
}

/// Watches until a signal, or until the view or all processes have ended.
pub fn watch(o: &LiveOptions, to: &mut NewsSender) -> Result<String> {
    let seed = o.seed.unwrap_or_else(|| sys::monotonic().0);
    let stop = Stop::at_signals()?;
    sweep();
    let mut ready = open(&WatchedMemory::Processes(Vec::new()), o.look, &*o.attrs)?;
    let attrs = ready.attrs(&*o.attrs)?;
    let mut follower = Follower::new(ready.watched());
    follower.attach_all(ready.hold(), &o.targets)?;
    let facts = facts(attrs, seed, ready.describe());
    let files = ready.requires_files();
    sys::drop_privileges(KeptCapabilities {
        reading: files,
        writing: files && o.targets.may_be_strangers(),
        frames: ready.requires_frames(),
        ..KeptCapabilities::default()
    })
    .context("cannot give up capabilities")?;
    to.offer(Event::Header(facts));
    for fact in follower.news() {
        to.offer(Event::Target(fact));
    }
    let mut session = Session::begin(ready, follower, attrs, seed, Box::new(Silent))?;
    let mut job = TopJob { to, pressures: Pressures::default() };
    let end = session.run(&mut job, &stop);
    session.stop()?;
    Ok(match end? {
        SessionEnd::TargetsGone => "all processes have ended".to_owned(),
        SessionEnd::Stopped(why) => why,
        SessionEnd::Full => String::new(),
    })
}

/// Hands events to the view.
struct TopJob<'a> {
    to: &'a mut NewsSender,
    pressures: Pressures,
}

impl Job for TopJob<'_> {
    type Status = ();
    type Error = SessionError;

    fn target(&mut self, fact: &TargetInfo) -> Result<(), SessionError> {
        self.to.offer(Event::Target(fact.clone()));
        Ok(())
    }

    fn attribution(&mut self, a: Attribution) -> Result<(), SessionError> {
        self.pressures.attribution(&a);
        self.to.offer(Event::Attribution(a));
        Ok(())
    }

    fn snapshot(
        &mut self,
        _: &mut JobContext<'_>,
        s: &Arc<Snapshot>,
    ) -> Result<ControlFlow<SessionEnd>, SessionError> {
        if let Some(news) = self.pressures.read() {
            self.to.pressure(news);
        }
        Ok(match self.to.offer(Event::Snapshot(Arc::clone(s))) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(SessionEnd::Stopped(String::new())),
        })
    }

    fn request(
        &mut self,
        _: &mut JobContext<'_>,
        _: Request,
    ) -> Result<Response<()>, SessionError> {
        Err(SessionError::NoRequests)
    }
}
