//! Writes rows in a thread of its own. The session never waits for it, and the number of waiting minutes is bounded.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use isotherm_fleet::{Lake, MINUTE_MS, Rows, Uploader};
use isotherm_linux::sys;
use tracing::{info, warn};

use crate::words::chain;

/// Maximum number of minutes that wait.
const MAX_WAITING_MINUTES: usize = 120;

/// The rows of one minute.
struct Batch {
    minute: i64,
    rows: Rows,
    /// minutes for which there was no room, or that were never complete
    lost: usize,
}

/// The thread, once there are rows.
pub struct Store {
    stopped: Option<(Lake, Option<Uploader>)>,
    running: Option<(SyncSender<Batch>, JoinHandle<()>)>,
    lost: usize,
    /// CPU time of the thread, in ns
    spent: Arc<AtomicU64>,
}

impl Store {
    /// Writes to this lake, and uploads it.
    pub fn new(lake: Lake, uploader: Option<Uploader>) -> Self {
        Store { stopped: Some((lake, uploader)), running: None, lost: 0, spent: Arc::default() }
    }

    /// CPU time of the thread.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent.load(Ordering::Relaxed))
    }

    /// Counts a minute whose rows were never made. The next rows report it.
    pub fn lose_minute(&mut self) {
        self.lost += 1;
    }

    #[cfg(test)]
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// Sends the rows of a minute. If too many wait, they are lost and counted.
    ///
    /// # Errors
    /// If the thread cannot be started, or has ended: no rows would be written any more.
    pub fn send(&mut self, minute: i64, rows: Rows) -> io::Result<()> {
        // Capabilities are those of a thread: it begins when the session has dropped its own.
        if let Some((lake, uploader)) = self.stopped.take() {
            let (send, receive) = sync_channel(MAX_WAITING_MINUTES);
            let thread = std::thread::Builder::new().name("lake".to_owned());
            let spent = Arc::clone(&self.spent);
            let thread = thread.spawn(move || write(lake, uploader, &receive, &spent))?;
            self.running = Some((send, thread));
        }
        let ended = || io::Error::other("the thread that writes them has ended");
        let (send, _) = self.running.as_ref().ok_or_else(ended)?;
        match send.try_send(Batch { minute, rows, lost: std::mem::take(&mut self.lost) }) {
            Err(TrySendError::Disconnected(_)) => return Err(ended()),
            Err(TrySendError::Full(batch)) => self.lost = batch.lost + 1,
            Ok(()) => {}
        }
        Ok(())
    }
}

/// Waits until everything is written.
impl Drop for Store {
    fn drop(&mut self) {
        if let Some((send, thread)) = self.running.take() {
            drop(send);
            let _ = thread.join();
        }
    }
}

fn write(
    mut lake: Lake,
    mut uploader: Option<Uploader>,
    receive: &Receiver<Batch>,
    spent: &AtomicU64,
) {
    let mut on_disk = Report::new("rows wait in memory, because they cannot be written");
    let mut uploaded = Report::new("rows wait on disk, because they cannot be uploaded");
    while let Ok(batch) = receive.recv() {
        lake.lose(batch.lost);
        on_disk.of(lake.append(batch.minute, batch.rows));
        if let Some(uploader) = &mut uploader {
            uploaded.of(uploader.turn(&mut lake, batch.minute + MINUTE_MS));
        }
        let cpu = u64::try_from(sys::thread_cpu().as_nanos()).unwrap_or(u64::MAX);
        spent.store(cpu, Ordering::Relaxed);
    }
    if let Some(uploader) = &mut uploader {
        uploaded.of(uploader.finish(&mut lake));
    }
}

/// Reports the first failure of a series, and its end.
struct Report {
    words: &'static str,
    failed: bool,
}

impl Report {
    fn new(words: &'static str) -> Self {
        Report { words, failed: false }
    }

    fn of<E: std::error::Error + 'static>(&mut self, result: Result<(), E>) {
        let failed = result.is_err();
        match result {
            Err(e) if !self.failed => warn!("{}: {}", self.words, chain(&e)),
            Ok(()) if self.failed => info!("no longer so: {}", self.words),
            _ => {}
        }
        self.failed = failed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by an audit: an agent whose thread had ended went on without writing a row.
    #[test]
    fn an_agent_without_its_thread_ends() {
        let (send, _) = sync_channel(MAX_WAITING_MINUTES);
        let thread = std::thread::spawn(|| ());
        let (stopped, spent) = (None, Arc::default());
        let mut store = Store { stopped, running: Some((send, thread)), lost: 0, spent };
        assert!(store.send(0, Rows::default()).is_err());
        store.running = None;
        assert!(store.send(0, Rows::default()).is_err(), "it was not started");
    }
}
