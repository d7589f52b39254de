//! Reads a record, file by file and frame by frame.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use isotherm_core::Nanos;

use crate::bad::InvalidField;
use crate::event::{Event, Lost, ReadError, TornReason};
use crate::files::{is_written, part};
use crate::frame::{FrameError, FrameInput, Frames, StreamInput};
use crate::header::{FileEndReason, RecordingHeader};
use crate::limits::MAX_ROTATED_FILES;
use crate::state::{Known, StreamState};
use crate::verify::Problem;

/// Maximal number of damaged places that are kept until [`Reader::take_damage`].
const MAX_DAMAGE: usize = 100;

/// A place in a record, between two frames.
#[derive(Debug, Clone)]
pub struct FramePosition {
    path: PathBuf,
    /// the file that had this path
    file: Option<FileId>,
    later: VecDeque<LaterFile>,
    at: u64,
    known: Known,
}

/// A file of a record that remains to be read. While the record is recorded, it may get another path.
#[derive(Debug, Clone)]
struct LaterFile {
    path: PathBuf,
    file: Option<FileId>,
}

impl FramePosition {
    /// The memory that it occupies in addition to `before`, an earlier mark of the same record, in bytes. Marks share
    /// the mappings that have not changed between them.
    #[must_use]
    pub fn bytes_beyond(&self, before: Option<&FramePosition>) -> usize {
        let later = self.later.iter().map(|l| size_of::<LaterFile>() + l.path.as_os_str().len());
        size_of::<FramePosition>()
            + self.path.as_os_str().len()
            + later.sum::<usize>()
            + self.known.bytes_beyond(before.map(|before| &before.known))
    }
}

/// Reads a record: an iterator of its [`Event`]s. It ends after an error, unless the error is damage and damage
/// is skipped.
pub struct Reader {
    frames: Frames<Box<dyn FrameInput + Send>>,
    path: PathBuf,
    /// whether the input is the file at `path`
    named: bool,
    /// which file that is
    file: Option<FileId>,
    /// whether at least one frame was complete
    any: bool,
    /// files of the record that remain to be read
    later: VecDeque<LaterFile>,
    state: StreamState,
    ready: VecDeque<Event>,
    /// offset of the last frame
    at: u64,
    skips: bool,
    lost: Lost,
    /// damage that was skipped since the last `take_damage`
    damage: Vec<Problem>,
    done: bool,
}

impl Reader {
    /// Opens the record at `path`. Reads the older files of the same recording (FILE.1, FILE.2, ...) first.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let mut files = older(path);
        files.reverse();
        files.push(path.to_owned());
        let later = |path: PathBuf| {
            let file = open(&path).ok().and_then(|file| id(&file));
            LaterFile { path, file }
        };
        let mut later: VecDeque<LaterFile> = files.into_iter().map(later).collect();
        let first = later.pop_front().map_or_else(|| path.to_owned(), |first| first.path);
        let file = open(&first)?;
        let id = id(&file);
        Ok(Reader { later, named: true, file: id, ..Reader::of(Box::new(file), &first)? })
    }

    /// Reads a record from `input`; errors contain `name` as its path.
    ///
    /// # Errors
    /// Never because of the content of `input`.
    pub fn new(input: impl Read + Send + 'static, name: &Path) -> Result<Self, ReadError> {
        Reader::of(Box::new(StreamInput(input)), name)
    }

    fn of(input: Box<dyn FrameInput + Send>, name: &Path) -> Result<Self, ReadError> {
        let io = |e| ReadError::Io { path: name.to_owned(), source: io::Error::other(e) };
        Ok(Reader {
            frames: Frames::new(input),
            path: name.to_owned(),
            named: false,
            file: None,
            any: false,
            later: VecDeque::new(),
            state: StreamState::new().map_err(io)?,
            ready: VecDeque::new(),
            at: 0,
            skips: false,
            lost: Lost::default(),
            damage: Vec::new(),
            done: false,
        })
    }

    /// Skips damaged data and counts them, instead of ending with an error.
    #[must_use]
    pub fn skip_damaged(self) -> Self {
        Reader { skips: true, ..self }
    }

    /// Skips snapshots, and the mappings, ages, faults, code and traces beside them, without reading them: for callers
    /// that need only the other events. Damage in them is not found.
    #[must_use]
    pub fn without_snapshots(mut self) -> Self {
        self.state.pass_snapshots();
        self
    }

    /// Skips snapshots that end before `until` without reading them, unless they have idle ages. A few later ones
    /// may be skipped too. They do not count as lost, and damage in them may not be found. It holds until the next call.
    pub fn skip_until(&mut self, until: Nanos) {
        self.state.skip_until(until);
    }

    /// Reads only one of `one_in` frames of snapshots, for a first impression of a long record. A frame holds at most
    /// a few seconds. The snapshots of the others do not count as lost.
    #[must_use]
    pub fn sampled(mut self, one_in: u64) -> Self {
        self.state.sample(one_in);
        self
    }

    /// The place of the next frame, from which [`Reader::resume`] reads on. None if snapshots of the last frame
    /// remain, if there was none yet, or if the input has no path.
    #[must_use]
    pub fn mark(&self) -> Option<FramePosition> {
        let known = self.state.known().filter(|_| self.named && self.ready.is_empty())?;
        let (path, later) = (self.path.clone(), self.later.clone());
        Some(FramePosition { path, file: self.file, later, at: self.frames.at(), known })
    }

    /// Reads a record from a mark on.
    ///
    /// # Errors
    /// If its file cannot be opened, or another one has its name.
    pub fn resume(mark: &FramePosition) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io { path: mark.path.clone(), source };
        let mut file = File::open(&mark.path).map_err(io)?;
        if id(&file) != mark.file {
            let other = "another file now has this name: open the record again";
            return Err(io(io::Error::other(other)));
        }
        file.seek(SeekFrom::Start(mark.at)).map_err(io)?;
        let state = StreamState::after(mark.known.clone()).map_err(|e| io(io::Error::other(e)))?;
        let frames = Frames::after(Box::new(file) as Box<dyn FrameInput + Send>, mark.at);
        let later = mark.later.clone();
        let reader = Reader::new(io::empty(), &mark.path)?;
        let file = mark.file;
        Ok(Reader { frames, named: true, file, any: true, later, state, at: mark.at, ..reader })
    }

    /// The current file, and the offset of the frame of the last event.
    #[must_use]
    pub fn place(&self) -> (&Path, u64) {
        (&self.path, self.at)
    }

    /// Returns the damage that was skipped since the last call.
    pub(crate) fn take_damage(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.damage)
    }

    /// The data that were skipped so far.
    #[must_use]
    pub fn lost(&self) -> Lost {
        Lost { snapshots: self.state.missing(), ..self.lost }
    }

    /// Reads the next frame or snapshot, and adds its events to `ready`.
    fn step(&mut self) -> Result<(), ReadError> {
        if let Some(snapshot) = self.state.snapshot() {
            self.ready.push_back(Event::Snapshot(snapshot.map_err(|why| self.damaged(why))?));
            return Ok(());
        }
        let next = self.frames.next(|kind| !self.state.leaves_out(kind));
        self.at = self.frames.begin();
        match next {
            Ok(Some(frame)) => {
                self.any = true;
                let taken = self.state.take(frame, &mut self.ready);
                taken.map_err(|why| self.damaged(why))
            }
            Ok(None) => self.next_file(),
            Err(FrameError::Torn { at }) if self.skips && !self.later.is_empty() => {
                self.lose_end(at, "it ends in the middle of a frame");
                self.open_next()
            }
            Err(e) => Err(self.error(e)),
        }
    }

    /// Counts the missing rest of a file from `at` on. The next file continues the recording.
    fn lose_end(&mut self, at: u64, what: &str) {
        let len = self.path.metadata().map_or(at, |file| file.len());
        self.note_damage(at, what.to_owned());
        self.lost.places += 1;
        self.lost.bytes += len.saturating_sub(at);
    }

    fn next_file(&mut self) -> Result<(), ReadError> {
        let path = self.path.clone();
        if !self.any {
            return Err(ReadError::NotARecord { path });
        }
        if !self.state.ended() && !self.skips {
            return Err(self.torn(self.at, TornReason::Killed));
        }
        match self.state.ended() {
            ended if !self.later.is_empty() => {
                if !ended {
                    self.lose_end(self.at, "its end is missing");
                }
                self.open_next()
            }
            true => {
                self.done = true;
                Ok(())
            }
            false => Err(self.torn(self.at, TornReason::Killed)),
        }
    }

    /// Goes on with the next file, if there is one.
    fn open_next(&mut self) -> Result<(), ReadError> {
        let Some(next) = self.later.pop_front() else { return Ok(()) };
        let newest = self.later.back().unwrap_or(&next);
        let (path, file) = find(&next, &newest.path)?;
        self.file = id(&file);
        self.frames = Frames::new(Box::new(file));
        self.path = path;
        self.state.next_file();
        Ok(())
    }

    fn error(&self, e: FrameError) -> ReadError {
        let path = self.path.clone();
        match e {
            FrameError::Io(source) => ReadError::Io { path, source },
            FrameError::Torn { at } => self.torn(at, TornReason::Cut),
            FrameError::Version(found) => ReadError::Version { path, found },
            FrameError::NoMagic { at: 0 } if !self.skips => ReadError::NotARecord { path },
            FrameError::NoMagic { at } | FrameError::Damaged { at, .. } => {
                ReadError::Damaged { path, at, why: e.to_string() }
            }
        }
    }

    /// The error for a missing end. `why` is the reason unless a recorder still writes the file.
    fn torn(&self, at: u64, why: TornReason) -> ReadError {
        let written = self.named && self.later.is_empty() && is_written(&self.path);
        let why = if written { TornReason::Recording } else { why };
        ReadError::Torn { path: self.path.clone(), at, why }
    }

    fn damaged(&self, why: InvalidField) -> ReadError {
        ReadError::Damaged { path: self.path.clone(), at: self.at, why: why.to_string() }
    }

    fn note_damage(&mut self, at: u64, what: String) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Problem { path: self.path.clone(), at, snapshot: None, what });
        }
    }

    /// Skips damage at `at`, and continues at the next frame.
    fn skip(&mut self, at: u64, what: String) -> Result<(), ReadError> {
        self.note_damage(at, what);
        let path = self.path.clone();
        self.frames.skip().map_err(|source| ReadError::Io { path, source })?;
        self.state.skipped();
        let bytes = self.frames.at() - self.at;
        // a second bad row of the same frame is not a second place
        self.lost.places += u64::from(bytes > 0);
        self.lost.bytes += bytes;
        self.at = self.frames.at();
        Ok(())
    }
}

impl Iterator for Reader {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.ready.pop_front() {
                // the record continues in the next file
                Some(Event::End(end))
                    if end.why == FileEndReason::Rotated && !self.later.is_empty() => {}
                Some(event) => return Some(Ok(event)),
                None if self.done => return None,
                None => {
                    let stepped = match self.step() {
                        Err(ReadError::Damaged { at, why, .. }) if self.skips => self.skip(at, why),
                        other => other,
                    };
                    if let Err(e) = stepped {
                        self.done = true;
                        return Some(Err(e));
                    }
                }
            }
        }
    }
}

fn open(path: &Path) -> Result<File, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    // a pipe: opening it could block, and it cannot be read twice
    let kind = path.metadata().map_err(io)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(ReadError::NotARecord { path: path.to_owned() });
    }
    File::open(path).map_err(io)
}

/// Opens a file of the record at `newest`. If the recording has begun new files since, it is at a later path.
fn find(wanted: &LaterFile, newest: &Path) -> Result<(PathBuf, File), ReadError> {
    let is_wanted = |path: PathBuf| {
        let file = open(&path).ok().filter(|file| id(file) == wanted.file)?;
        Some((path, file))
    };
    let paths =
        (1..MAX_ROTATED_FILES).map(|age| part(newest, age)).take_while(|path| path.exists());
    let found = [wanted.path.clone()].into_iter().chain(paths).find_map(is_wanted);
    found.ok_or_else(|| {
        let deleted = "the recording has deleted it meanwhile: read the record again";
        ReadError::Io { path: wanted.path.clone(), source: io::Error::other(deleted) }
    })
}

/// The device, the number and the birth of a file: another file may get the number once a file is deleted.
type FileId = (u64, u64, Option<std::time::SystemTime>);

fn id(file: &File) -> Option<FileId> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        file.metadata().ok().map(|file| (file.dev(), file.ino(), file.created().ok()))
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        None
    }
}

/// Older files of the same recording, the newest first. Files of an earlier recording with such names are
/// ignored. A file whose facts cannot be read belongs to the recording if an older one does.
fn older(path: &Path) -> Vec<PathBuf> {
    let Some(facts) = facts_of(path) else {
        return Vec::new();
    };
    let (mut all, mut sure) = (Vec::new(), 0);
    for path in (1..MAX_ROTATED_FILES).map(|age| part(path, age)) {
        match facts_of(&path) {
            Some(of) if of == facts => sure = all.len() + 1,
            None if path.exists() => {}
            _ => break,
        }
        all.push(path);
    }
    all.truncate(sure);
    all
}

/// The facts at the start of a file, if it has any.
fn facts_of(path: &Path) -> Option<RecordingHeader> {
    let mut reader = Reader::new(open(path).ok()?, path).ok()?;
    match reader.next() {
        Some(Ok(Event::Header(facts))) => Some(facts),
        _ => None,
    }
}
