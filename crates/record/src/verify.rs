//! Whether a record is sound: its frames and checksums, each value, and all of it together.

use std::path::{Path, PathBuf};

use crate::content::Content;
use crate::event::{Event, Lost, ReadError};
use crate::reader::Reader;

/// Problems that are kept with their words.
const KEPT: usize = 20;

/// What a record is worth.
#[derive(Debug)]
pub struct Verdict {
    /// snapshots that were read
    pub snapshots: u64,
    /// regions in them
    pub regions: u64,
    /// targets, over all recordings in it
    pub targets: u64,
    /// what is wrong: the first 20 problems, in the order of the record
    pub problems: Vec<Problem>,
    /// how many problems there are
    pub nr_problems: u64,
    /// what could not be read because of damage
    pub lost: Lost,
    /// The end is missing: the recording was killed or still goes on, which is no damage.
    pub torn: Option<ReadError>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// in which file
    pub path: PathBuf,
    /// byte at which the frame begins that holds it
    pub at: u64,
    /// in which snapshot, if in one
    pub snapshot: Option<u64>,
    /// in words
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

impl Verdict {
    /// Whether nothing is wrong. A missing end is nothing wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.nr_problems == 0
    }

    fn note(&mut self, problem: Problem) {
        self.nr_problems += 1;
        if self.problems.len() < KEPT {
            self.problems.push(problem);
        }
    }
}

/// Reads the record at `path` to its end, with the older files of the same recording, and goes on
/// behind what is damaged.
///
/// # Errors
/// If it cannot be opened or read, is no record, or is of a later version.
pub fn verify(path: &Path) -> Result<Verdict, ReadError> {
    if let Some(Err(e)) = Reader::open(path)?.next()
        && !matches!(e, ReadError::Damaged { .. } | ReadError::Torn { .. })
    {
        return Err(e);
    }
    check(Reader::open(path)?.skip_damaged())
}

fn check(mut reader: Reader) -> Result<Verdict, ReadError> {
    let mut content = Content::default();
    let mut verdict = Verdict {
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
            verdict.note(damage);
            begun = true;
        }
        let event = match event {
            None => break,
            Some(Ok(event)) => event,
            // Not even what the record is was read.
            Some(Err(torn @ ReadError::Torn { .. })) if !begun => return Err(torn),
            Some(Err(torn @ ReadError::Torn { .. })) => {
                verdict.torn = Some(torn);
                break;
            }
            Some(Err(e)) => return Err(e),
        };
        begun = true;
        let snapshot = if let Event::Snapshot(s) = &event { Some(s.seq) } else { None };
        verdict.snapshots += u64::from(snapshot.is_some());
        let (path, at) = reader.place();
        for what in content.take(&event) {
            verdict.note(Problem { path: path.to_owned(), at, snapshot, what });
        }
    }
    verdict.regions = content.regions;
    verdict.targets = content.all_targets;
    verdict.lost = reader.lost();
    Ok(verdict)
}
