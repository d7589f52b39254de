//! The page cache: which files it holds, which parts of them, and for whom.
//!
//! [`PageCache`] reads the kernel's own data structures by BPF: the lists of files of all super blocks, and the
//! tree of each file, whose nodes count its pages. No file is opened and no page is touched.
//! [`Cached`] asks the kernel about one open file, where BPF is not available.

mod act;
mod directories;
mod error;
mod holders;
mod locked;
mod of_file;
mod reader;
mod reads;

pub use act::FileAction;
pub use directories::Directories;
pub use error::PageCacheError;
pub use holders::{FileUser, MappedPart};
pub use locked::LockedParts;
pub use of_file::{Cached, cached};
pub use reader::{
    CachedFile, CachedRange, CountedFiles, FileKey, ListCursor, ListStep, Listing, PageCache,
    PageMarks, SuperBlock,
};
pub use reads::{AccessCount, FileReadCounts, ReadCounter, Traced, TracedAccess, Writes};

/// The magic number of tmpfs, whose pages are memory: they are not copies of a disk, and may be in swap.
pub const TMPFS: u64 = 0x0102_1994;
/// The magic number of overlayfs, whose files have their pages in the layers below.
pub const OVERLAYFS: u64 = 0x794c_7630;
/// The magic number of the files of block devices.
pub const BLOCK_DEVICES: u64 = 0x6264_6576;
/// The magic number of hugetlbfs, whose memory does not count as page cache.
pub const HUGETLBFS: u64 = 0x9584_58f6;
