//! Reads the recordings of other tools: one file for each format.
//!
//! An importer holds the data that it reads, in 24 bytes a region. The limits are 32 Mi regions and 8 Mi results
//! of a target, so 1.1 GiB, and for `perf.data` 8 Mi events more. It refuses what is larger.

mod assemble;
mod damo_binary;
mod damo_json;
mod events;
mod fault;
mod json;
mod perf_data;
mod scale;
mod series;
mod trace_text;

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::bufread::ZlibDecoder;
use isotherm_core::Snapshot;

use crate::frame::MAGIC;
use crate::header::{RecordingHeader, TargetInfo};

use self::assemble::Assembler;
use self::fault::Fault;
use self::scale::{Scale, ScaleError};
use self::series::{MAX_IMPORTED_REGIONS, Results};

/// Bytes at the beginning of a file that determine its format.
const FORMAT_BYTES: usize = 4096;
/// Bytes per read of the input.
const BUFFER: usize = 256 << 10;

/// The format of a recording of another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// damo's `json`
    Json,
    /// damo's `json_compressed`, its default
    JsonCompressed,
    /// damo's binary records, versions 0 to 2, until damo 2.0.2
    Binary,
    /// text of `perf script`, `trace-cmd report` or the kernel's `trace` file
    TraceText,
    /// `perf.data`
    PerfData,
}

impl Format {
    /// The name in messages and in the facts of a record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Json => "damo json",
            Format::JsonCompressed => "damo json_compressed",
            Format::Binary => "damo record",
            Format::TraceText => "trace text",
            Format::PerfData => "perf.data",
        }
    }

    /// Recognises a format by the first bytes of a file.
    fn of(first: &[u8]) -> Option<Self> {
        let blank = first.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(first.len());
        match first {
            _ if first.starts_with(perf_data::MAGIC) => Some(Format::PerfData),
            _ if first.starts_with(damo_binary::MAGIC) => Some(Format::Binary),
            // the header of zlib: its method, and a checksum of both bytes
            [0x78, flags, ..] if (0x7800 + u32::from(*flags)) % 31 == 0 => {
                Some(Format::JsonCompressed)
            }
            _ if matches!(first.get(blank), Some(b'[' | b'{')) => Some(Format::Json),
            _ if first.len() > blank && !first.contains(&0) => Some(Format::TraceText),
            _ if damo_binary::is_version_0(first) => Some(Format::Binary),
            _ => None,
        }
    }
}

/// The intervals of a recording whose file does not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Presumed {
    /// sampling interval
    pub sample: Option<Duration>,
    /// aggregation interval
    pub aggr: Option<Duration>,
}

/// Why a given interval is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntervalError {
    /// The file has another one.
    #[error(
        "{option} is {given:?}, but the {name} interval of the file is {stated:?}: leave out {option}"
    )]
    Stated {
        /// kind of the interval
        name: &'static str,
        /// option of the program that gives it
        option: &'static str,
        /// the given interval
        given: Duration,
        /// interval of the file
        stated: Duration,
    },
    /// It is too short or too long. A sampling interval is at most half of the aggregation interval.
    #[error(
        "{option} is {given:?}, but must be from {least:?} to {most:?} for this file: give another one, or leave out {option}"
    )]
    Range {
        /// option of the program that gives it
        option: &'static str,
        /// the given interval
        given: Duration,
        /// minimum
        least: Duration,
        /// maximum
        most: Duration,
    },
}

/// Why a file cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// path of the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// The file is a record of isotherm.
    #[error(
        "{} is a record of isotherm: reports read it as it is",
        path.display()
    )]
    Own {
        /// path of the file
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error("{} is empty: see whether the program that should have written it has failed", path.display())]
    NoBytes {
        /// path of the file
        path: PathBuf,
    },
    /// No known format begins like this.
    #[error(
        "{} has no known format: give a record of damo (json, json_compressed, or binary), perf.data, or the text of \
         perf script or trace-cmd report",
        path.display()
    )]
    Unknown {
        /// path of the file
        path: PathBuf,
    },
    /// The content contradicts the format.
    #[error(
        "{} is no valid {}: at byte {at}{}, {why}",
        path.display(), format.name(), if *format == Format::JsonCompressed { " of its uncompressed text" } else { "" }
    )]
    Invalid {
        /// path of the file
        path: PathBuf,
        /// format of the file
        format: Format,
        /// offset of the place
        at: u64,
        /// the fault at that place
        why: String,
    },
    /// The file has more than an importer may hold in memory.
    #[error(
        "{} has more than {most} {what} (byte {at}): divide the recording, and import the parts",
        path.display()
    )]
    Large {
        /// path of the file
        path: PathBuf,
        /// offset of the first that is too much
        at: u64,
        /// limit
        most: usize,
        /// the quantity that exceeds its limit
        what: &'static str,
    },
    /// The targets have different intervals, so that the longer results are in too many snapshots.
    #[error(
        "{} has targets of different intervals, which need more than {most} regions beyond those of the file: \
         divide the recording, and import the parts",
        path.display()
    )]
    Repeated {
        /// path of the file
        path: PathBuf,
        /// limit
        most: usize,
    },
    /// The file has no result of DAMON.
    #[error("{} is {} without any result of DAMON: record again while DAMON runs, with damo or with perf record -e damon:damon_aggregated", path.display(), format.name())]
    Empty {
        /// path of the file
        path: PathBuf,
        /// format of the file
        format: Format,
    },
    /// A given interval contradicts the file, or is not possible.
    #[error("cannot import {}: {source}", path.display())]
    Interval {
        /// path of the file
        path: PathBuf,
        /// the interval
        source: IntervalError,
    },
    /// The intervals of the file are invalid.
    #[error(transparent)]
    Attrs(#[from] isotherm_core::AttrsError),
}

/// A recording of another tool, in memory. Its snapshots are those of a record.
#[derive(Debug)]
pub struct Import {
    format: Format,
    facts: RecordingHeader,
    presumed: bool,
    targets: Vec<TargetInfo>,
    results: Results,
    scales: Vec<Scale>,
}

impl Import {
    /// Reads a recording. Errors contain `name` as its path. The format is recognised by the content.
    ///
    /// # Errors
    /// If the input cannot be read, is in no known format, is damaged, or is too large.
    pub fn read(
        mut input: impl Read + Seek,
        name: &Path,
        version: &str,
        presumed: Presumed,
    ) -> Result<Self, ImportError> {
        let path = || name.to_owned();
        let io = |source| ImportError::Io { path: path(), source };
        let mut first = Vec::new();
        input.by_ref().take(FORMAT_BYTES as u64).read_to_end(&mut first).map_err(io)?;
        let len = input.seek(SeekFrom::End(0)).map_err(io)?;
        input.seek(SeekFrom::Start(0)).map_err(io)?;
        if first.is_empty() {
            return Err(ImportError::NoBytes { path: path() });
        }
        if first.starts_with(&MAGIC) {
            return Err(ImportError::Own { path: path() });
        }
        let format = Format::of(&first).ok_or_else(|| ImportError::Unknown { path: path() })?;
        let mut results = results(input, format, &first).map_err(|fault| match fault {
            Fault::Io(source) => io(source),
            Fault::At { at, why } => {
                // A section may be said to lie behind the end; in a compressed file, the text may do so.
                let at = if format == Format::JsonCompressed { at } else { at.min(len) };
                ImportError::Invalid { path: path(), format, at, why: why.into_owned() }
            }
            Fault::Large { at, most, what } => ImportError::Large { path: path(), at, most, what },
        })?;
        results.series.retain(|s| !s.spans.is_empty());
        if results.series.is_empty() {
            let none = || ImportError::Unknown { path: path() };
            // A text without any event is no trace.
            let empty = || ImportError::Empty { path: path(), format };
            let is_trace = first.windows(5).any(|w| w == b"damon");
            return Err(if format == Format::TraceText && !is_trace { none() } else { empty() });
        }
        let scales = results.series.iter_mut().map(|s| Scale::of(s, presumed));
        let scales = scales.collect::<Result<Vec<_>, _>>().map_err(|e| match e {
            ScaleError::Interval(source) => ImportError::Interval { path: path(), source },
            ScaleError::Attrs(e) => e.into(),
        })?;
        if Assembler::new(&results, &scales).repeats(MAX_IMPORTED_REGIONS) {
            return Err(ImportError::Repeated { path: path(), most: MAX_IMPORTED_REGIONS });
        }
        let targets = assemble::targets(&results);
        let facts = assemble::facts(&results, &scales, format, version);
        let presumed = scales.iter().any(|s| s.presumed);
        Ok(Import { format, facts, presumed, targets, results, scales })
    }

    /// The format of the file.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The facts of the recording, as far as the file has them.
    #[must_use]
    pub fn facts(&self) -> &RecordingHeader {
        &self.facts
    }

    /// Whether the sampling interval is presumed, because the file does not have it. The rates then have only a
    /// lower bound.
    #[must_use]
    pub fn is_presumed(&self) -> bool {
        self.presumed
    }

    /// Number of results that miss some of their regions, and were dropped.
    #[must_use]
    pub fn incomplete(&self) -> u64 {
        self.results.incomplete
    }

    /// The targets of the recording.
    #[must_use]
    pub fn targets(&self) -> &[TargetInfo] {
        &self.targets
    }

    /// The snapshots, in order of time.
    pub fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        Assembler::new(&self.results, &self.scales)
    }
}

fn results(input: impl Read + Seek, format: Format, first: &[u8]) -> Result<Results, Fault> {
    let buffered = |input| BufReader::with_capacity(BUFFER, input);
    match format {
        Format::Json => damo_json::read(input),
        Format::JsonCompressed => damo_json::read(ZlibDecoder::new(buffered(input))),
        Format::Binary => {
            damo_binary::read(buffered(input), !first.starts_with(damo_binary::MAGIC))
        }
        Format::TraceText => trace_text::read(buffered(input)),
        Format::PerfData => perf_data::read(input),
    }
}
