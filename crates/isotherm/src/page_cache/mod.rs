//! The content of the page cache, by file, folder, control group, process and file system.
//!
//! A [`Reader`] reads a [`CacheScan`]: the files, each with its [`PageUse`]. [`rows`] groups and sorts them.

mod by_calls;
mod names;
mod output;
mod page_use;
mod reader;
mod rows;
mod scope;
#[cfg(test)]
mod tests;
mod text;

pub use output::FilesOutput;
pub use page_use::{FileUse, Marks, PageUse};
pub(crate) use reader::FoundFile;
pub use reader::{CacheScan, Reader};
pub use rows::{By, Row, SortBy, rows, total};
pub use scope::{Scope, ScopeError};
