//! Checks a record: its frames and checksums, each value, and the consistency of the whole.

use std::path::{Path, PathBuf};

use crate::content::Content;
use crate::event::{Event, Lost, ReadError};
use crate::reader::Reader;

/// Number of problems that are kept with their description.
const DESCRIBED_PROBLEMS: usize = 20;

/// The result of verifying a record.
#[derive(Debug)]
pub struct Verification {
    /// number of snapshots that were read
    pub snapshots: u64,
    /// number of regions in them
    pub regions: u64,
    /// number of targets, over all recordings in it
    pub targets: u64,
    /// the first 20 problems, in the order of the record
    pub problems: Vec<Problem>,
    /// total number of problems
    pub nr_problems: u64,
    /// data that could not be read because of damage
    pub lost: Lost,
    /// Set if the end is missing: the recording was killed or still runs, which is no damage.
    pub torn: Option<ReadError>,
}

/// One problem of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// file that contains it
    pub path: PathBuf,
    /// offset of the first byte of its frame
    pub at: u64,
    /// number of its snapshot, if it concerns one
    pub snapshot: Option<u64>,
    /// description
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, byte {}", self.path.display(), self.at)?;
        if let Some(seq) = self.snapshot {
            write!(f, ", snapshot {seq}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl Verification {
    /// Whether there is no problem. A missing end is not a problem.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.nr_problems == 0
    }

    fn note(&mut self, problem: Problem) {
        self.nr_problems += 1;
        if self.problems.len() < DESCRIBED_PROBLEMS {
            self.problems.push(problem);
        }
    }
}

/// Reads the record at `path` to its end, including the older files of the same recording. Continues after
/// damage.
///
/// # Errors
/// If it cannot be opened or read, is not a record, or has a later version.
pub fn verify(path: &Path) -> Result<Verification, ReadError> {
    if let Some(Err(e)) = Reader::open(path)?.next()
        && !e.is_repairable()
    {
        return Err(e);
    }
    check(Reader::open(path)?.skip_damaged())
}

fn check(mut reader: Reader) -> Result<Verification, ReadError> {
    let mut content = Content::default();
    let mut verification = Verification {
        snapshots: 0,
        regions: 0,
        targets: 0,
        problems: Vec::new(),
        nr_problems: 0,
        lost: Lost::default(),
        torn: None,
    };
    let mut begun = false;
    loop {
        let event = reader.next();
        for damage in reader.take_damage() {
            verification.note(damage);
            begun = true;
        }
        let event = match event {
            None => break,
            Some(Ok(event)) => event,
            // Not even the facts of the record could be read.
            Some(Err(torn @ ReadError::Torn { .. })) if !begun => return Err(torn),
            Some(Err(torn @ ReadError::Torn { .. })) => {
                verification.torn = Some(torn);
                break;
            }
            Some(Err(e)) => return Err(e),
        };
        begun = true;
        let snapshot = if let Event::Snapshot(s) = &event { Some(s.seq) } else { None };
        verification.snapshots += u64::from(snapshot.is_some());
        let (path, at) = reader.place();
        for what in content.take(&event) {
            verification.note(Problem { path: path.to_owned(), at, snapshot, what });
        }
    }
    verification.regions = content.regions;
    verification.targets = content.all_targets;
    verification.lost = reader.lost();
    Ok(verification)
}
