//! The lake: a row for each control group and minute, in Parquet files.
//!
//! Nothing here reads a machine or a clock: rows and times are passed in.

#[cfg(feature = "upload")]
mod bucket;
mod compact;
mod decode;
mod file;
mod lake;
mod row;
#[cfg(feature = "upload")]
mod upload;

#[cfg(feature = "upload")]
pub use bucket::{Bucket, BucketError};
pub use compact::{CompactedDay, Folder, LakeFiles, compact};
pub use decode::{decode, read};
pub use file::{Effort, LakeFileError, Writer};
pub use lake::{DiskLimits, HOUR_MS, Lake, LakeError, MINUTE_MS, StoredHour, day};
pub use row::{COLUMN_AGES, Group, LakeRow, Rows, schema};
#[cfg(feature = "upload")]
pub use upload::{UploadError, Uploader};
