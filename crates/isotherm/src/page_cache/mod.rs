//! The content of the page cache, by file, folder, control group, process and file system.
//!
//! A [`Reader`] reads a [`Reading`]: the files, each with its [`PageUse`]. [`rows`] groups and sorts them.

mod by_calls;
mod figures;
mod names;
mod reader;
mod rows;
mod scope;
#[cfg(test)]
mod tests;
pub mod text;

pub use figures::{FileUse, Marks, PageUse};
pub(crate) use reader::FoundFile;
pub use reader::{Reader, Reading};
pub use rows::{By, Row, SortBy, rows, total};
pub use scope::{Scope, ScopeError};
