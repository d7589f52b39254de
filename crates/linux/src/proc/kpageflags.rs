//! `/proc/kpageflags`: the use of each page frame.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use isotherm_core::Unknown;

use super::{Mglru, ProcError};

const PATH: &str = "proc/kpageflags";

/// The flags of one page frame. The numbers are those of `linux/kernel-page-flags.h`, which all kernels
/// share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFlags(pub u64);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident: $($bit:literal)|+;)*) => {
        impl PageFlags {
            $($(#[$doc])* #[must_use] pub fn $name(self) -> bool {
                self.0 & (0 $(| 1 << $bit)+) != 0
            })*
        }
    };
}

flags! {
    /// changed since it was written to swap or to its file last
    is_dirty: 4;
    /// on an LRU list, also the list of unevictable pages
    is_lru: 5;
    /// free, on a list of the buddy allocator
    is_free: 10;
    /// mapped by a process
    is_mapped: 11;
    /// anonymous
    is_anonymous: 12;
    /// anonymous or shared memory, even if it is on no list
    is_user: 12 | 14;
    /// anonymous, with a copy in swap
    is_in_swap_cache: 13;
    /// the first page of a folio
    is_head: 15;
    /// a later page of a folio
    is_tail: 16;
    /// part of an explicit huge page
    is_hugetlb: 17;
    /// no memory, or offline
    is_hole: 20 | 23;
    /// the zero page, or the huge zero page
    is_zero: 24;
}

impl PageFlags {
    /// Whether an anonymous page has returned from swap since it was filled. The kernel marks such a page as dirty when it
    /// drops the copy in swap. Of a new page, it sets only the bit in the page table until it moves the page, or gives it to
    /// a device.
    #[must_use]
    pub fn has_returned(self) -> bool {
        self.is_anonymous() && (self.is_dirty() || self.is_in_swap_cache())
    }
}

/// The content of a page frame, for ways to look by page frame: idle page tracking, and kernel DAMON for
/// physical memory. Both observe pages that are on an LRU list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameContent {
    /// no memory in use
    Nothing,
    /// memory whose accesses they cannot observe
    Unknown(Unknown),
    /// a page that they observe; this frame, the first of its folio, represents it
    Seen(u64),
}

impl FrameContent {
    /// `hides`: whether this kernel does not record accesses by system calls by page frame.
    fn of(head: u64, flags: PageFlags, hides: bool) -> Self {
        match flags {
            f if f.is_hole() || f.is_free() || f.is_zero() => FrameContent::Nothing,
            f if f.is_hugetlb() => FrameContent::Unknown(Unknown::Hugetlb),
            f if hides && f.is_lru() && !f.is_mapped() && !f.is_anonymous() => {
                FrameContent::Unknown(Unknown::Cache)
            }
            f if f.is_lru() => FrameContent::Seen(head),
            // Too new to be on a list, or just being moved.
            f if f.is_user() => FrameContent::Unknown(Unknown::Unseen),
            _ => FrameContent::Unknown(Unknown::Special),
        }
    }
}

/// The open file.
#[derive(Debug)]
pub struct KPageFlags {
    file: File,
    mglru: Mglru,
}

impl KPageFlags {
    /// Opens the file.
    ///
    /// # Errors
    /// If the file does not exist, or this process is not root.
    pub fn open(root: &Path) -> Result<Self, ProcError> {
        let path = root.join(PATH);
        let file = File::open(&path).map_err(|e| ProcError::read(&path, e))?;
        Ok(KPageFlags { file, mglru: Mglru::open(root) })
    }

    /// The content of each of `frames`. Adjacent frames need one read. Frame 0 stands for a hidden frame.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn contents(&self, frames: &[u64]) -> io::Result<Vec<FrameContent>> {
        let mut contents = Vec::with_capacity(frames.len());
        // The previous frame, and the head of its folio with its flags.
        let mut last: Option<(u64, u64, PageFlags)> = None;
        let hides = self.mglru.hides_reads();
        for (&frame, flags) in frames.iter().zip(self.of(frames)?) {
            let follows = last.filter(|(before, ..)| before.checked_add(1) == Some(frame));
            let head = match (flags, follows) {
                _ if frame == 0 => None,
                (f, _) if !f.is_tail() || f.is_hugetlb() => Some((frame, f)),
                (_, Some((_, head, flags))) => Some((head, flags)),
                _ => self.head_of(frame)?,
            };
            last = head.map(|(head, flags)| (frame, head, flags));
            let unseen = FrameContent::Unknown(Unknown::Unseen);
            contents
                .push(head.map_or(unseen, |(head, flags)| FrameContent::of(head, flags, hides)));
        }
        Ok(contents)
    }

    /// The flags of each of `frames`. Frames beyond the end of memory are holes. Adjacent frames need one
    /// read.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn of(&self, frames: &[u64]) -> io::Result<Vec<PageFlags>> {
        const HOLE: u64 = 1 << 20;
        let mut all = Vec::with_capacity(frames.len());
        for run in frames.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
            let mut words = vec![HOLE.to_ne_bytes(); run.len()];
            let at = run.first().map_or(0, |f| f.saturating_mul(8));
            self.file.read_at(words.as_flattened_mut(), at)?;
            all.extend(words.into_iter().map(|w| PageFlags(u64::from_ne_bytes(w))));
        }
        Ok(all)
    }

    /// The first frame of the folio that contains `tail`, and its flags. `None` if the folio has just gone,
    /// or is a huge page that is larger than the blocks of the buddy allocator.
    ///
    /// A folio begins at a multiple of its size, which is a power of two. So among the multiples of 2, 4, 8
    /// ... before `tail`, the first head is that of its folio: nearer multiples lie within the folio.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn head_of(&self, tail: u64) -> io::Result<Option<(u64, PageFlags)>> {
        const MAX_ORDER: u32 = 10;
        for order in 1..=MAX_ORDER {
            let frame = tail >> order << order;
            match self.of(&[frame])?.first() {
                Some(flags) if flags.is_head() => return Ok(Some((frame, *flags))),
                Some(flags) if flags.is_tail() => {}
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    const HEAD: u64 = 1 << 15;
    const TAIL: u64 = 1 << 16;

    fn file(words: &[u64]) -> (tempfile::TempDir, KPageFlags) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let bytes: Vec<[u8; 8]> = words.iter().map(|w| w.to_ne_bytes()).collect();
        std::fs::write(root.path().join(PATH), bytes.concat()).unwrap();
        let flags = KPageFlags::open(root.path()).unwrap();
        (root, flags)
    }

    #[test]
    fn flags_of_frames_in_any_order() {
        let (_root, flags) = file(&[0, 1 << 5, 1 << 10, 1 << 12, 1 << 24]);
        let got = flags.of(&[3, 1, 2, 3, 4, 5, 6, 1 << 50]).unwrap();
        let letter = |f: &PageFlags| match f {
            f if f.is_lru() => 'l',
            f if f.is_free() => 'f',
            f if f.is_user() => 'u',
            f if f.is_zero() => 'z',
            f if f.is_hole() => '-',
            _ => '?',
        };
        assert_eq!(got.iter().map(letter).collect::<String>(), "ulfuz---");
    }

    #[test]
    fn pages_that_were_in_swap_have_a_copy_there_or_are_dirty() {
        let (dirty, anonymous, in_swap_cache) = (1 << 4, 1 << 12, 1 << 13);
        assert!(!PageFlags(anonymous).has_returned(), "new");
        assert!(PageFlags(anonymous | in_swap_cache).has_returned());
        assert!(PageFlags(anonymous | dirty).has_returned());
        assert!(!PageFlags(dirty).has_returned(), "of a file");
    }

    #[test]
    fn unmapped_memory_is_unknown_where_reads_leave_no_trace() {
        let (lru, mapped, anon, shared) = (1u64 << 5, 1 << 11, 1 << 12, 1 << 14);
        // Pages of files (unmapped and mapped), anonymous and shared memory, and a folio of a file.
        let (root, _) =
            file(&[0, lru, lru | mapped, lru | anon, lru | shared, 1 << 10, HEAD | lru, TAIL]);
        let contents = |mglru: Option<&str>| {
            if let Some(text) = mglru {
                put(root.path(), "sys/kernel/mm/lru_gen/enabled", text);
            }
            let flags = KPageFlags::open(root.path()).unwrap();
            flags.contents(&[1, 2, 3, 4, 5, 6, 7]).unwrap()
        };
        use FrameContent::{Nothing, Seen};
        let all = [Seen(1), Seen(2), Seen(3), Seen(4), Nothing, Seen(6), Seen(6)];
        assert_eq!(contents(None), all, "a kernel without MGLRU");
        assert_eq!(contents(Some("0x0000\n")), all);
        let cache = FrameContent::Unknown(Unknown::Cache);
        let some = [cache, Seen(2), Seen(3), cache, Nothing, cache, cache];
        assert_eq!(contents(Some("0x0007\n")), some);
    }

    #[test]
    fn each_tail_finds_its_head() {
        // folios of 1, 1, 2, 4 and 8 pages, and a tail whose head has gone
        let (_root, flags) = file(
            &[&[0, 0, HEAD, TAIL, HEAD][..], &[TAIL; 3], &[HEAD], &[TAIL; 7], &[0, TAIL]].concat(),
        );
        let head = |tail| flags.head_of(tail).unwrap().map(|(frame, _)| frame);
        assert_eq!([3, 5, 6, 7].map(head), [Some(2), Some(4), Some(4), Some(4)]);
        assert_eq!((9..16).map(head).collect::<Vec<_>>(), [Some(8); 7]);
        assert_eq!((head(17), head(100)), (None, None));
    }
}
