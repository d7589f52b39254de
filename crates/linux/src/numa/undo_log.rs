//! The file that notes changes of the machine's weights, so that they can be undone; writing and undoing them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::change::{RequestedWeights, RestoreResult};
use super::error::NumaError;
use super::weights::{WeightFiles, WeightSetting, weights_text};
use crate::state::{self, Thread, boot_id};

pub(super) const PATH: &str = "run/isotherm/interleave.json";
/// Maximal size of the file: enough for four times the weights of 1024 nodes.
const SIZE: usize = 64 << 10;
/// Version of the file's format.
const VERSION: u32 = 1;
/// Number of characters that an error shows of a file that is not understood.
const MAX_SHOWN_CHARS: usize = 120;
/// The file is locked only for a moment: the number of attempts, and the pause between them.
const WAITS: u32 = 200;
const WAIT: Duration = Duration::from_millis(10);

/// The setting before and after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    pub before: WeightSetting,
    /// In the automatic mode, these weights come from the kernel.
    pub wrote: WeightSetting,
}

/// Weights that are in force while one of the owners lives.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct NotedRun {
    pub change: Change,
    pub asked: BTreeMap<u32, u8>,
    pub owners: Vec<Thread>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UndoState {
    version: u32,
    boot_id: String,
    pub set: Option<Change>,
    pub run: Option<NotedRun>,
}

/// Why a setting was not written, and whether the previous one is restored.
#[derive(Debug)]
pub(super) struct NotWritten {
    pub undone: bool,
    pub why: NumaError,
}

/// The locked state file, and the files with the weights.
pub(super) struct UndoLog {
    root: PathBuf,
    file: File,
    pub files: WeightFiles,
    pub state: UndoState,
    /// what was restored after killed runs when this was opened
    pub swept: RestoreResult,
}

impl UndoLog {
    /// Locks the file, and restores the weights from before killed runs.
    pub fn open(root: &Path) -> Result<Self, NumaError> {
        let files = WeightFiles::find(root)?;
        let failed = |what| move |source| NumaError::State { what, path: root.join(PATH), source };
        if let Some(dir) = root.join(PATH).parent() {
            state::make_dir(dir).map_err(failed("make the directory of"))?;
        }
        let file = lock(&root.join(PATH)).map_err(failed("lock"))?;
        let boot_id = boot_id(root).map_err(failed("mark"))?;
        let known = read(&file, &root.join(PATH))?.filter(|s| s.boot_id == boot_id);
        let state = known.unwrap_or(UndoState { version: VERSION, boot_id, set: None, run: None });
        let swept = RestoreResult::default();
        let mut log = UndoLog { root: root.to_owned(), file, files, state, swept };
        log.swept = log.without_owners(|o| o.runs(root))?;
        Ok(log)
    }

    /// Keeps only owners for which `stays` is true. If none remains, restores the previous weights.
    pub fn without_owners(
        &mut self,
        stays: impl Fn(&Thread) -> bool,
    ) -> Result<RestoreResult, NumaError> {
        let Some(run) = &mut self.state.run else { return Ok(RestoreResult::default()) };
        run.owners.retain(stays);
        if !run.owners.is_empty() {
            self.save()?;
            return Ok(RestoreResult::default());
        }
        let change = run.change.clone();
        let done = self.undo(&change)?;
        self.state.run = None;
        self.save()?;
        Ok(done)
    }

    /// Fails while a run holds weights.
    pub fn refuse_runs(&self) -> Result<(), NumaError> {
        let Some(run) = &self.state.run else { return Ok(()) };
        let owner = run.owners.first().map_or(0, |o| o.pid);
        Err(NumaError::InUse { owner, theirs: weights_text(&run.asked) })
    }

    /// Writes the wanted setting. If that fails, restores the previous one.
    pub fn write(
        &self,
        wanted: &RequestedWeights,
        before: &WeightSetting,
    ) -> Result<(), NotWritten> {
        let written = match wanted {
            RequestedWeights::Weights(weights) => {
                weights.iter().try_for_each(|(&node, &weight)| self.files.write(node, weight))
            }
            RequestedWeights::Auto => self.files.write_auto(true),
            RequestedWeights::Default => self.files.write_default(),
        };
        written.map_err(|why| {
            let undo = |wrote| self.undo(&Change { before: before.clone(), wrote });
            NotWritten { undone: self.files.read().and_then(undo).is_ok(), why }
        })
    }

    /// Restores the previous setting, where the written one is still in force.
    pub fn undo(&self, Change { before, wrote }: &Change) -> Result<RestoreResult, NumaError> {
        let now = self.files.read()?;
        let mut done = RestoreResult::default();
        let by_mode = wrote.auto == Some(true);
        // The kernel derives the weights of the automatic mode again.
        if by_mode && before.auto == Some(true) {
            return Ok(done);
        }
        let mode_stands = now.auto == wrote.auto;
        for (&node, &weight) in &now.weights {
            let Some(&first) = before.weights.get(&node) else { continue };
            let same = wrote.weights.get(&node) == Some(&weight);
            // While the mode is in force, all weights come from the kernel.
            let derived = by_mode && mode_stands;
            let stands = derived || (same && (mode_stands || by_mode));
            if stands && (derived || weight != first) {
                self.files.write(node, first)?;
                done.nodes.push(node);
            } else if weight != first {
                done.left.push(node);
            }
        }
        let is_manual = || self.files.read().map(|s| s.auto == Some(false));
        if before.auto == Some(true) && done.left.is_empty() && is_manual()? {
            match self.files.write_auto(true) {
                Ok(()) => done.mode = true,
                // The mode was on, but the kernel cannot derive weights: they are as before.
                Err(NumaError::NoBandwidth) => done.mode_lost = true,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Writes the state file.
    pub fn save(&self) -> Result<(), NumaError> {
        let path = self.root.join(PATH);
        state::write(&self.file, SIZE, &self.state).map_err(|source| NumaError::State {
            what: "write",
            path,
            source,
        })
    }

    /// Writes the state file; returns the current setting.
    pub fn close(self) -> Result<WeightSetting, NumaError> {
        self.save()?;
        self.files.read()
    }
}

/// Removes a file without content.
impl Drop for UndoLog {
    fn drop(&mut self) {
        if self.state.set.is_none() && self.state.run.is_none() {
            let _ = fs::remove_file(self.root.join(PATH));
        }
    }
}

/// The content of the state file; none in a new file. A file that is not understood is an error, because it may
/// be the only note of the previous weights.
fn read(file: &File, path: &Path) -> Result<Option<UndoState>, NumaError> {
    let failed = |source| NumaError::State { what: "read", path: path.to_owned(), source };
    let mut text = String::new();
    file.take(SIZE as u64).read_to_string(&mut text).map_err(failed)?;
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    match serde_json::from_str::<UndoState>(text) {
        Ok(state) if state.version == VERSION => Ok(Some(state)),
        _ => {
            let text = text.chars().take(MAX_SHOWN_CHARS).collect();
            Err(NumaError::Note { path: path.to_owned(), text })
        }
    }
}

/// Whether a killed run has left weights that were not restored.
pub(super) fn has_leftover(root: &Path) -> bool {
    let file = File::open(root.join(PATH)).ok();
    let run = file.and_then(|f| state::read::<UndoState>(&f, SIZE)).and_then(|s| s.run);
    run.is_some_and(|run| !run.owners.iter().any(|o| o.runs(root)))
}

fn lock(path: &Path) -> io::Result<File> {
    for _ in 0..WAITS {
        if let Some(file) = state::lock(path, true)? {
            return Ok(file);
        }
        sleep(WAIT);
    }
    Err(io::Error::from(io::ErrorKind::ResourceBusy))
}
