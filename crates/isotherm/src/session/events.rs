//! Hands the events of a session to another thread. The session never waits for it, and what waits is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use isotherm_core::{Attribution, TargetId};
use isotherm_record::{Event, TargetInfo};

/// Something that waits to be received.
pub trait Weighed {
    /// About its size: 1 for each region, name or number that it has.
    fn weight(&self) -> usize;
}

impl Weighed for Event {
    fn weight(&self) -> usize {
        match self {
            Event::Snapshot(s) => 1 + s.targets.len() + s.nr_regions(),
            Event::Mappings { mappings, .. } => 1 + mappings.len(),
            _ => 1,
        }
    }
}

/// A channel in which about `limit` of weight may wait.
#[must_use]
pub fn events<T: Weighed + From<Event>>(limit: usize) -> (EventSender<T>, EventReceiver<T>) {
    let ((send, receive), waiting) = (channel(), Arc::new(AtomicUsize::new(0)));
    let sender = EventSender {
        send,
        limit,
        waiting: Arc::clone(&waiting),
        missed: 0,
        facts: BTreeMap::new(),
        attributions: BTreeMap::new(),
    };
    (sender, EventReceiver { receive, waiting })
}

/// The sending end.
///
/// While the other thread does not keep up, it misses snapshots. It does not miss names and control groups: those of
/// targets that still exist are sent as soon as there is room.
#[derive(Debug)]
pub struct EventSender<T> {
    send: Sender<T>,
    limit: usize,
    waiting: Arc<AtomicUsize>,
    missed: u64,
    /// what there was no room for
    facts: BTreeMap<TargetId, TargetInfo>,
    attributions: BTreeMap<TargetId, Attribution>,
}

impl<T: Weighed + From<Event>> EventSender<T> {
    /// Sends an event, or keeps or drops it if there is no room. Returns whether the receiver still exists.
    pub fn offer(&mut self, event: Event) -> bool {
        let has_room = self.has_room();
        match event {
            Event::Target(fact) if !has_room => _ = self.facts.insert(fact.id, fact),
            Event::Attribution(a) if !has_room => _ = self.attributions.insert(a.target, a),
            Event::Snapshot(s) if !has_room => {
                self.missed += 1;
                // Targets are numbered as they come: later ones are in the next snapshot.
                let last = s.targets.last().map(|view| view.id);
                let stays = |id: &TargetId| {
                    Some(*id) > last || s.targets.binary_search_by_key(id, |view| view.id).is_ok()
                };
                self.facts.retain(|id, _| stays(id));
                self.attributions.retain(|id, _| stays(id));
            }
            event => {
                let facts = std::mem::take(&mut self.facts).into_values().map(Event::Target);
                let attributions = std::mem::take(&mut self.attributions).into_values();
                let kept: Vec<Event> = facts.chain(attributions.map(Event::Attribution)).collect();
                return kept.into_iter().chain([event]).all(|event| self.send(event.into()));
            }
        }
        true
    }

    /// Whether there is room for more.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < self.limit
    }

    /// Sends something without a limit. Returns whether the receiver still exists.
    pub fn send(&self, what: T) -> bool {
        self.waiting.fetch_add(what.weight(), Ordering::Relaxed);
        self.send.send(what).is_ok()
    }

    /// Number of snapshots for which there was no room.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct EventReceiver<T> {
    receive: Receiver<T>,
    waiting: Arc<AtomicUsize>,
}

impl<T: Weighed> EventReceiver<T> {
    fn taken(&self, what: T) -> T {
        self.waiting.fetch_sub(what.weight(), Ordering::Relaxed);
        what
    }

    /// Waits for the next; `None` if the sender is gone.
    pub fn next(&self) -> Option<T> {
        self.receive.recv().ok().map(|what| self.taken(what))
    }

    /// Waits for the next, at most for `time`.
    ///
    /// # Errors
    /// If there is none, or the sender is gone.
    pub fn next_within(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        self.receive.recv_timeout(time).map(|what| self.taken(what))
    }

    /// The next that has come already.
    ///
    /// # Errors
    /// If there is none, or the sender is gone.
    pub fn try_next(&self) -> Result<T, TryRecvError> {
        self.receive.try_recv().map(|what| self.taken(what))
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::{Attrs, Cost, Nanos, Snapshot, TargetView};

    use super::*;

    fn snapshot(seq: u64, targets: &[u32]) -> Event {
        let view = |id: &u32| TargetView {
            id: TargetId(*id),
            ran: None,
            mappings: Arc::default(),
            left_out: 0,
            dirty: None,
            regions: vec![],
            ages: None,
        };
        Event::Snapshot(Arc::new(Snapshot {
            seq,
            start: Nanos(seq),
            end: Nanos(seq + 1),
            attrs: Attrs::default(),
            cost: Cost::default(),
            quality: None,
            targets: targets.iter().map(view).collect(),
        }))
    }

    fn fact(id: u32) -> Event {
        Event::Target(TargetInfo { id: TargetId(id), pid: Some(id), command: String::new() })
    }

    fn text(event: &Event) -> String {
        match event {
            Event::Target(fact) => format!("target {}", fact.id.0),
            Event::Snapshot(s) => format!("snapshot {}", s.seq),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_waits_is_bounded_and_no_name_of_a_living_target_is_lost() {
        let (mut send, receive) = events::<Event>(10);
        let mut seq = 0;
        for id in 0..1000 {
            // One target at a time, and the next one is known before it is in a snapshot.
            send.offer(fact(id));
            send.offer(snapshot(seq, &[id]));
            seq += 1;
        }
        send.offer(fact(1000));
        assert!(send.facts.len() <= 2, "{} facts are kept", send.facts.len());
        let all: Vec<String> =
            std::iter::from_fn(|| receive.try_next().ok()).map(|e| text(&e)).collect();
        assert_eq!(all.len(), 7, "{all:?}");
        assert_eq!(send.missed(), 997);
        assert!(send.has_room());
        send.offer(snapshot(seq, &[1000]));
        let all: Vec<String> =
            std::iter::from_fn(|| receive.try_next().ok()).map(|e| text(&e)).collect();
        assert_eq!(all[all.len() - 2..], ["target 1000", "snapshot 1000"]);
        drop(receive);
        assert!(!send.offer(fact(1)));
    }
}
