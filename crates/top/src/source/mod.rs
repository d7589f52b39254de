//! Where the events of a view come from. Each source is a thread.

mod live;
mod pressure;
mod replay;
mod service;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm::session::{EventReceiver, EventSender, Weighed, events};
use isotherm::stop::Stop;
use isotherm_record::Event;

pub use live::LiveOptions;
pub use replay::ReplayOptions;
pub use service::ServiceOptions;

/// Maximum number of regions that wait for the view, of about 100 bytes each.
const MAX_WAITING_REGIONS: usize = 200_000;
/// The longest time that a source sleeps, so that it notices the end of the view.
const NAP: Duration = Duration::from_millis(100);

/// Something that the view should know.
#[allow(clippy::large_enum_variant, reason = "events are not kept")]
#[non_exhaustive]
pub enum SourceEvent {
    /// the next event of the recording
    Event(Event),
    /// percent of the last 10 s in which a process waited for memory, by control group
    Pressure(BTreeMap<Arc<str>, f32>),
    /// what follows is of another service, with other targets
    Restarted,
    /// there will be no more, for this reason
    Ended(Result<String>),
}

impl From<Event> for SourceEvent {
    fn from(event: Event) -> Self {
        SourceEvent::Event(event)
    }
}

impl Weighed for SourceEvent {
    fn weight(&self) -> usize {
        match self {
            SourceEvent::Event(event) => event.weight(),
            SourceEvent::Pressure(groups) => groups.len(),
            SourceEvent::Restarted | SourceEvent::Ended(_) => 0,
        }
    }
}

/// The source to show.
#[non_exhaustive]
pub enum ViewSource {
    /// processes that are watched now
    Live(LiveOptions),
    /// a running service
    Service(ServiceOptions),
    /// a record that is played
    Replay(ReplayOptions),
}

impl ViewSource {
    /// Starts it in a thread of its own.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(self) -> Result<Feed> {
        let (events, receive) = events(MAX_WAITING_REGIONS);
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let work = move || {
            let mut to = NewsSender { events, over };
            let ended = match self {
                ViewSource::Live(o) => live::watch(&o, &mut to),
                ViewSource::Service(o) => service::follow(&o, &mut to),
                ViewSource::Replay(o) => replay::play(&o, &mut to),
            };
            let _ = to.events.send(SourceEvent::Ended(ended));
        };
        let thread = std::thread::Builder::new().name("source".into()).spawn(work);
        let thread = thread.context("cannot start a thread for the source")?;
        Ok(Feed { receive, is_over, thread: Some(thread) })
    }
}

/// The sending end.
struct NewsSender {
    events: EventSender<SourceEvent>,
    /// the view has ended
    over: Arc<AtomicBool>,
}

impl NewsSender {
    /// Sends an event without waiting: a view that does not keep up misses snapshots. Returns whether the view still
    /// exists.
    fn offer(&mut self, event: Event) -> bool {
        self.events.offer(event) && self.is_open()
    }

    /// Sends the pressures of control groups, if there is room.
    fn pressure(&mut self, groups: BTreeMap<Arc<str>, f32>) {
        if self.events.has_room() {
            self.events.send(SourceEvent::Pressure(groups));
        }
    }

    /// Sends an event, and waits until there is room. Returns whether the view still exists.
    fn send(&mut self, event: Event) -> bool {
        while !self.events.has_room() {
            if !self.wait(Duration::from_millis(20)) {
                return false;
            }
        }
        self.offer(event)
    }

    /// Waits, and returns whether the view still exists then.
    fn wait(&self, time: Duration) -> bool {
        let start = Instant::now();
        while let Some(rest) = time.checked_sub(start.elapsed()).filter(|rest| !rest.is_zero()) {
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
    receive: EventReceiver<SourceEvent>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Waits for the next news; `None` if `stop` is over before.
    pub(crate) fn next(&mut self, stop: &Stop) -> Option<SourceEvent> {
        while !stop.is_over() {
            match self.receive.next_within(Duration::from_millis(50)) {
                Ok(news) => return Some(news),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Takes all news that have come. Returns whether the source still exists.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(SourceEvent)) -> bool {
        loop {
            match self.receive.try_next() {
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
