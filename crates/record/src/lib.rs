//! The record file: the stored snapshots of a [`Source`](isotherm_core::Source).
//!
//! A record consists of nine tables: snapshots, mappings, targets, attribution, ages, faults, code, traces and end.
//! Each table is an Arrow IPC stream, and each of its messages is in a frame of its own, so that damage to one frame
//! does not affect the others. The frames of all tables are interleaved, in the order in which they are written. The
//! schema message of the snapshots contains the [`RecordingHeader`]. `docs/abi/testing/record.md` is the
//! specification.
//!
//! ```
//! use isotherm_core::{Attrs, Nanos};
//! use isotherm_record::{Event, RecordingHeader, FileEndReason, Limits, Reader, Writer};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("demo.isotherm");
//! let facts = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
//! let writer = Writer::create(&path, &facts, Limits::default())?;
//! // writer.snapshot(&snapshot)? for each snapshot that the source delivers
//! writer.finish(FileEndReason::Stopped, "")?;
//!
//! for event in Reader::open(&path)? {
//!     if let Event::Header(f) = event? {
//!         assert_eq!(f, facts);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`import`] converts recordings of other tools to records, and [`edit`] writes changed copies of records.

mod ages;
mod attributions;
mod bad;
mod check;
mod columns;
mod content;
mod damo;
pub mod edit;
mod event;
mod export;
mod faults;
mod files;
mod frame;
mod header;
pub mod import;
mod limits;
mod lists;
mod mappings;
mod message;
mod outcome;
mod packed;
mod quality;
mod reader;
mod round;
mod rows;
mod scalars;
mod sets;
mod state;
mod tables;
mod traces;
mod verify;
mod versions;
mod writer;

#[cfg(test)]
mod documented;

pub use event::{Event, Lost, ReadError, TornReason};
pub use export::{
    ExportError, Exported, Table, export_arrow, export_damo_json, export_parquet,
    export_perf_script, export_perfetto,
};
pub use files::{AtomicFiles, RecordFiles, Sink};
pub use header::{End, FileEndReason, RecordingHeader, TargetInfo, cut};
pub use limits::{Limits, LimitsError};
pub use outcome::{RecordProgress, RecordingTotals, WriteError};
pub use reader::{FramePosition, Reader};
pub use round::rounded;
pub use verify::{Problem, Verification, verify};
pub use writer::Writer;
