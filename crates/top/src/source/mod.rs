//! Where the events of a view come from. Each source is a thread.

mod live;
mod pressure;
mod replay;
mod service;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm::stop::Stop;
use isotherm_record::Event;

pub use live::LiveOptions;
pub use replay::ReplayOptions;
pub use service::ServiceOptions;

/// Maximum number of news that wait for the view.
const MAX_WAITING: usize = 4096;
/// The longest time that a source sleeps, so that it notices the end of the view.
const NAP: Duration = Duration::from_millis(100);

/// Something that the view should know.
#[allow(clippy::large_enum_variant, reason = "events are not kept")]
pub enum News {
    /// the next event of the recording
    Event(Event),
    /// percent of the last 10 s in which a process waited for memory, by control group
    Pressure(BTreeMap<Arc<str>, f32>),
    /// there will be no more, for this reason
    Ended(Result<String>),
}

/// What to show.
pub enum Source {
    /// processes that are watched now
    Live(LiveOptions),
    /// a running service
    Service(ServiceOptions),
    /// a record that is played
    Replay(ReplayOptions),
}

impl Source {
    /// The name of the source for the head line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Source::Live(_) => "live",
            Source::Service(_) => "service",
            Source::Replay(_) => "replay",
        }
    }

    /// Starts it in a thread of its own.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(self) -> Result<Feed> {
        let (send, receive) = sync_channel(MAX_WAITING);
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let work = move || {
            let to = NewsSender { send, over };
            let ended = match self {
                Source::Live(o) => live::watch(&o, &to),
                Source::Service(o) => service::follow(&o, &to),
                Source::Replay(o) => replay::play(&o, &to),
            };
            let _ = to.send.send(News::Ended(ended));
        };
        let thread = std::thread::Builder::new().name("source".into()).spawn(work);
        let thread = thread.context("cannot start a thread for the source")?;
        Ok(Feed { receive, is_over, thread: Some(thread) })
    }
}

/// The sending end.
struct NewsSender {
    send: SyncSender<News>,
    /// the view has ended
    over: Arc<AtomicBool>,
}

impl NewsSender {
    /// Sends news without waiting. Snapshots of a view that does not keep up are lost. Returns whether the view
    /// still exists.
    fn offer(&self, news: News) -> bool {
        let _ = self.send.try_send(news);
        self.is_open()
    }

    /// Sends news, and waits until there is room. Returns whether the view still exists.
    fn send(&self, news: News) -> bool {
        self.send.send(news).is_ok() && self.is_open()
    }

    /// Waits, and returns whether the view still exists then.
    fn wait(&self, time: Duration) -> bool {
        let begin = Instant::now();
        while let Some(rest) = time.checked_sub(begin.elapsed()).filter(|rest| !rest.is_zero()) {
            if !self.is_open() {
                return false;
            }
            std::thread::sleep(rest.min(NAP));
        }
        self.is_open()
    }

    fn is_open(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

/// The receiving end.
pub struct Feed {
    receive: Receiver<News>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Waits for the next news; `None` if `stop` is over before.
    pub(crate) fn next(&mut self, stop: &Stop) -> Option<News> {
        while !stop.is_over() {
            match self.receive.recv_timeout(Duration::from_millis(50)) {
                Ok(news) => return Some(news),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Takes all news that have come. Returns whether the source still exists.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(News)) -> bool {
        loop {
            match self.receive.try_recv() {
                Ok(news) => take(news),
                Err(e) => return e == TryRecvError::Empty,
            }
        }
    }

    /// Waits until the source has undone its changes to the machine.
    pub(crate) fn join(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.receive);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}
