//! Exports a record for other tools: one file for each format.

mod arrow;
mod damo_json;
mod parquet;
mod perf_script;
mod perfetto;
mod tables;

use arrow_schema::ArrowError;

use crate::bad::InvalidField;
use crate::event::{Event, Lost, ReadError};
use crate::reader::Reader;

pub use self::arrow::export_arrow;
pub use self::damo_json::export_damo_json;
pub use self::parquet::export_parquet;
pub use self::perf_script::export_perf_script;
pub use self::perfetto::export_perfetto;
pub use self::tables::Table;

/// Approximate size of the snapshots in one Arrow record batch, in bytes.
const BATCH_BYTES: usize = 1 << 20;

/// The result of an export.
#[derive(Debug)]
pub struct Exported {
    /// number of exported snapshots
    pub snapshots: u64,
    /// set if the record has no end: worth a warning
    pub torn: Option<ReadError>,
    /// data that were skipped
    pub lost: Lost,
}

/// Why a record cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// the record cannot be read
    #[error(transparent)]
    Read(#[from] ReadError),
    /// the output cannot be written
    #[error("cannot write the export: {0}")]
    Write(String),
    /// one file contains two recordings
    #[error("there is more than one recording in this record: export them one by one")]
    Mixed,
}

impl From<std::io::Error> for ExportError {
    fn from(e: std::io::Error) -> Self {
        ExportError::Write(e.to_string())
    }
}

impl From<ArrowError> for ExportError {
    fn from(e: ArrowError) -> Self {
        ExportError::Write(e.to_string())
    }
}

impl From<InvalidField> for ExportError {
    fn from(why: InvalidField) -> Self {
        ExportError::Write(why.to_string())
    }
}

/// Gives each event of a record to `take`, which returns whether it was a snapshot of the export. A missing end is
/// no error.
fn each(
    mut reader: Reader,
    mut take: impl FnMut(&Event) -> Result<bool, ExportError>,
) -> Result<Exported, ExportError> {
    let (mut snapshots, mut torn, mut begun) = (0, None, false);
    for event in reader.by_ref() {
        match event {
            Ok(Event::Header(_)) if begun => return Err(ExportError::Mixed),
            Ok(event) => {
                begun |= matches!(event, Event::Header(_));
                snapshots += u64::from(take(&event)?);
            }
            Err(e @ ReadError::Torn { .. }) => torn = Some(e),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(Exported { snapshots, torn, lost: reader.lost() })
}
