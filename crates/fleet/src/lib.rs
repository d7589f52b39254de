//! The lake: a row for each control group and minute, in Parquet files.
//!
//! Nothing here reads a machine or a clock: rows and times are passed in.

mod file;
mod row;

pub use file::{Effort, FileError, Writer, read};
pub use row::{AGES, Group, Row, Rows, schema};
