//! The ages of the targets' pages, which a service leaves for the next one at a clean end.
//!
//! After a crash nothing is left: the crashed service may have cleared accessed bits that showed a touch.

use std::path::Path;
use std::time::Duration;

use isotherm_core::{KeptAges, KeptBlock, Nanos, PageMask, TargetId};
use isotherm_linux::{Thread, boot_id, sys};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::Session;
use crate::ROOT;
use crate::beside::StateFile;
use crate::follow::Follower;
use crate::words::chain;

/// Maximum size of the file in bytes. 65,536 counted pages have up to 4 MiB; thousands of processes have more.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Older ages are not used, because the kernel may have cleared accessed bits since.
const MAX_FILE_AGE: Duration = Duration::from_secs(3600);

/// `docs/abi/testing/state.md`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ages {
    boot: String,
    targets: Vec<TargetAges>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetAges {
    process: Thread,
    at_ns: u64,
    begun_ns: u64,
    shift: u32,
    whole: u32,
    blocks: Vec<BlockAges>,
}

/// Address, counted pages, returned pages, and their stamps.
type BlockAges = (u64, [u64; 8], [u64; 8], Vec<[u32; 3]>);

/// The file with the ages.
pub struct SavedAges(StateFile);

impl SavedAges {
    /// The file of the service on `socket`, which this process owns.
    pub fn beside(socket: &Path) -> Self {
        SavedAges(StateFile::new(socket, "ages", MAX_FILE_BYTES))
    }

    /// Passes the ages that the previous service left to `session`, before its first snapshot. Removes the file, so
    /// that a crash leaves none.
    pub fn take_up(&self, session: &mut Session) {
        let read = self.0.read::<Ages>();
        self.0.remove();
        let Ok(Some(ages)) = read.inspect_err(|e| self.warn("are not taken up", &chain(e))) else {
            return;
        };
        if boot_id(ROOT.as_ref()).ok().as_ref() != Some(&ages.boot) {
            return;
        }
        let (now, follower) = (sys::monotonic(), &session.state().follower);
        let recent = |t: &TargetAges| {
            let at = Nanos(t.at_ns);
            at <= now && now.since(at) <= MAX_FILE_AGE
        };
        let kept: Vec<(TargetId, KeptAges)> = ages
            .targets
            .into_iter()
            .filter(recent)
            .filter_map(|t| Some((target(follower, t.process)?, t.into())))
            .collect();
        if !kept.is_empty() {
            info!(
                "continues with the idle ages that the previous service knew, of {} of its processes",
                kept.len()
            );
            session.resume_ages(kept);
        }
    }

    /// Leaves what `session` knows for the next service.
    pub fn leave(&self, session: &Session) {
        let processes = session.state().follower.pid_of();
        let ages = |(id, kept): (TargetId, KeptAges)| {
            let process = Thread::now(ROOT.as_ref(), *processes.get(&id)?)?;
            Some(TargetAges::new(process, kept))
        };
        let targets: Vec<TargetAges> = session.kept_ages().into_iter().filter_map(ages).collect();
        if targets.is_empty() {
            return;
        }
        let written = boot_id(ROOT.as_ref()).and_then(|boot| self.0.write(&Ages { boot, targets }));
        if let Err(e) = written {
            self.warn("are not left for the next service", &e.to_string());
        }
    }

    fn warn(&self, what: &str, why: &str) {
        warn!("the idle ages in {} {what}: {why}", self.0.path.display());
    }
}

/// The target that is this process.
fn target(follower: &Follower, process: Thread) -> Option<TargetId> {
    let (_, id) = follower.processes().find(|(pid, _)| *pid == process.pid)?;
    process.lives(ROOT.as_ref()).then_some(id)
}

impl TargetAges {
    fn new(process: Thread, kept: KeptAges) -> Self {
        let block = |b: KeptBlock| (b.start, *b.pages.words(), *b.returned.words(), b.stamps);
        TargetAges {
            process,
            at_ns: kept.at.0,
            begun_ns: kept.begun.0,
            shift: kept.shift,
            whole: kept.whole,
            blocks: kept.blocks.into_iter().map(block).collect(),
        }
    }
}

impl From<TargetAges> for KeptAges {
    fn from(t: TargetAges) -> Self {
        let block = |(start, pages, returned, stamps): BlockAges| KeptBlock {
            start,
            pages: PageMask::from_words(pages),
            returned: PageMask::from_words(returned),
            stamps,
        };
        KeptAges {
            at: Nanos(t.at_ns),
            begun: Nanos(t.begun_ns),
            shift: t.shift,
            whole: t.whole,
            blocks: t.blocks.into_iter().map(block).collect(),
        }
    }
}
