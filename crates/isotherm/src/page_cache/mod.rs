//! The content of the page cache, by file, folder, control group, process and file system.
//!
//! A [`CacheReader`] reads a [`CacheReading`]: the files, each with its [`PageUse`]. A [`CacheWatch`] repeats that within
//! a budget, and groups and sorts the files as a [`RowOrder`] says.

mod by_calls;
mod heat;
mod kept;
mod names;
mod output;
mod page_use;
mod reader;
mod rows;
mod scope;
#[cfg(test)]
mod tests;
mod text;
mod watch;

pub(crate) use heat::MAX_WATCHED_FILES;
pub use heat::{CacheHeat, FileHeat, Observed};
pub use output::FilesOutput;
pub use page_use::{FileUse, MarkedBytes, PageUse};
pub(crate) use reader::FoundFile;
pub use reader::{CacheReader, CacheReading};
pub use rows::{By, Row, RowOrder, SortBy};
pub use scope::{FileScope, ScopeError};
pub use watch::CacheWatch;
