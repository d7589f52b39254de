//! Writes rows in a thread of its own. The session never waits for it, and what waits is bounded.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use isotherm_fleet::{Lake, LakeError, Rows};
use tracing::{info, warn};

use crate::words::chain;

/// Number of minutes that may wait.
const MOST_WAITING: usize = 120;

/// The rows of one minute.
struct Batch {
    minute: i64,
    rows: Rows,
    /// minutes for which there was no room
    lost: usize,
}

/// The thread, once there are rows.
pub struct Store {
    lake: Option<Lake>,
    running: Option<(SyncSender<Batch>, JoinHandle<()>)>,
    lost: usize,
}

impl Store {
    /// Writes to this lake.
    pub fn new(lake: Lake) -> Self {
        Store { lake: Some(lake), running: None, lost: 0 }
    }

    /// Sends the rows of a minute. If too many wait, they are lost and counted.
    pub fn send(&mut self, minute: i64, rows: Rows) {
        // Capabilities are those of a thread: it begins when the session has dropped its own.
        if let Some(lake) = self.lake.take() {
            let (send, receive) = sync_channel(MOST_WAITING);
            let thread = std::thread::Builder::new().name("lake".to_owned());
            match thread.spawn(move || write(lake, &receive)) {
                Ok(thread) => self.running = Some((send, thread)),
                Err(e) => warn!("rows are not written, because no thread can be started: {e}"),
            }
        }
        let Some((send, _)) = &self.running else { return };
        let batch = Batch { minute, rows, lost: std::mem::take(&mut self.lost) };
        if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
            send.try_send(batch)
        {
            self.lost = batch.lost + 1;
        }
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

fn write(mut lake: Lake, receive: &Receiver<Batch>) {
    let mut report = Report::default();
    while let Ok(batch) = receive.recv() {
        lake.lose(batch.lost);
        report.of("the lake", lake.append(batch.minute, batch.rows));
    }
}

/// Reports the first failure of a series, and its end.
#[derive(Default)]
struct Report {
    failed: bool,
}

impl Report {
    fn of(&mut self, what: &str, result: Result<(), LakeError>) {
        match result {
            Err(e) if !self.failed => {
                warn!("rows wait in memory until {what} can be written again: {}", chain(&e));
                self.failed = true;
            }
            Ok(()) if self.failed => {
                info!("{what} can be written again");
                self.failed = false;
            }
            _ => {}
        }
    }
}
