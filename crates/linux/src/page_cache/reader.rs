//! Loads and runs the BPF program that reads the page cache.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Seek, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;

use isotherm_core::PAGE_SIZE;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, ProgramInput, ProgramMut};
use rustix::fs::{MemfdFlags, memfd_create};

use super::directories::{Directories, MAX_DEPTH};
use super::{PageCacheError, TMPFS};
use crate::cache_skel::{CacheSkel, CacheSkelBuilder, types};
use crate::storage::Storage;
use crate::walker::{WalkMethod, bpf_help};

/// Files of one run, as in `cache.bpf.c`.
const MAX_FILES: usize = 8192;
/// Files of the first run that finds any: the caller may then have the others counted.
const FIRST_FILES: u32 = 1024;
/// Dentries of one run, as in `cache.bpf.c`.
const MAX_DENTRIES: usize = 4096;
/// Magic number of XFS.
const XFS: u64 = 0x5846_5342;
/// Attempts to list the files of a super block. An attempt fails if a file is removed at which a run has stopped.
const ATTEMPTS: u32 = 50;

/// Reads the page cache of the machine.
pub struct PageCache {
    // Declared before the storage it refers to, so that it is dropped first.
    pub(super) skel: CacheSkel<'static>,
    _storage: Storage,
    /// the super block of tmpfs files without a folder, from which the search for the others begins
    first: u64,
    seed: u64,
    /// see [`Self::count_below`]
    count_below: u64,
}

// SAFETY: the skeleton holds raw pointers to maps and programs of its own object, which has no other user.
// libbpf objects may be used from any thread, but only from one at a time: every method that uses them takes
// `&mut self`.
unsafe impl Send for PageCache {}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperBlock {
    pub(super) address: u64,
    /// magic number of its type
    pub magic: u64,
    /// major and minor number
    pub device: (u32, u32),
    /// the kernel's name for it: that of the device, or of the type
    pub name: String,
}

/// A file with pages in the cache, or with notes of evicted pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedFile {
    pub(super) inode: u64,
    pub(super) super_block: u64,
    id: u64,
    version: u64,
    /// number of the inode
    pub ino: u64,
    /// pages in the cache
    pub pages: u64,
    /// size in bytes
    pub size: u64,
    /// names in the file system; 0 for a file that was deleted
    pub links: u32,
    /// type and permissions
    pub mode: u16,
    /// device number, of a device file
    pub device: (u32, u32),
    /// a process maps it: then accesses leave no mark on its pages
    pub is_mapped: bool,
    /// identity of its folder; 0 if the kernel has no name in memory
    pub folder: u64,
    name: Range<usize>,
}

/// Identity of a file: super block, number, and what differs between files that have this number.
pub type FileKey = (u64, u64, u64);

impl SuperBlock {
    /// Whether a file of a listing is one of this file system.
    #[must_use]
    pub fn has(&self, file: &CachedFile) -> bool {
        self.address == file.super_block
    }
}

impl CachedFile {
    /// An identity as long as the file is in memory. No later file has it, even if it has the same number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// An identity as long as its file system is mounted: also after it has left the memory and returned.
    #[must_use]
    pub fn key(&self) -> FileKey {
        (self.super_block, self.ino, self.version)
    }
}

/// Files that were listed already. On XFS a removed inode may return with its address, number and generation, at the
/// head of the list. If it was the cursor, the next run begins there again.
#[derive(Debug, Default)]
struct Listed(HashSet<FileKey>);

impl Listed {
    fn leave_out(&mut self, listing: &mut Listing) {
        listing.files.retain(|file| self.0.insert(file.key()));
    }
}

/// Files and their names.
#[derive(Debug, Default)]
pub struct Listing {
    /// the files
    pub files: Vec<CachedFile>,
    names: Vec<u8>,
    /// files that are not among them: see [`PageCache::count_below`]
    pub counted: CountedFiles,
}

/// The sum of files that were counted, but not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountedFiles {
    /// number of files
    pub files: u64,
    /// their size in bytes
    pub size: u64,
    /// pages in the cache
    pub cached: u64,
    /// pages as in [`CachedRange::evicted`]
    pub evicted: u64,
    /// pages with changes that are not on the disk yet
    pub dirty: u64,
    /// pages that are being written to the disk
    pub writeback: u64,
    /// cached pages of files that a process maps
    pub mapped: u64,
    /// cached pages that samples represent: each one 64 pages
    pub sampled: u64,
    /// those of them with [`PageMarks::referenced`] or [`PageMarks::active`]
    pub referenced: u64,
    /// those of them with [`PageMarks::active`]
    pub active: u64,
}

impl Listing {
    /// The name of a file of this listing, in its folder.
    #[must_use]
    pub fn name(&self, file: &CachedFile) -> Cow<'_, str> {
        String::from_utf8_lossy(self.names.get(file.name.clone()).unwrap_or_default())
    }
}

/// A place in the files of a super block, from which to go on. It begins with the first file.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListCursor {
    inode: u64,
    id: u64,
}

/// How a part of a list of files has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListStep {
    /// There are more files.
    More,
    /// These were the last ones.
    End,
    /// The file at which the last part ended has been removed: begin again.
    Lost,
}

/// A part of a file: at most 64 pages, or a part of one folio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedRange {
    /// index of the first page
    pub first: u64,
    /// pages in the cache
    pub cached: u32,
    /// pages of which the kernel notes that it has evicted them; of tmpfs, pages in swap
    pub evicted: u32,
    /// pages with changes that are not on the disk yet
    pub dirty: u32,
    /// pages that are being written to the disk
    pub writeback: u32,
    /// one of the cached pages, chosen by a hash; none if it has just left the cache
    pub sample: Option<PageMarks>,
}

/// The marks of the kernel on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageMarks {
    /// `PG_referenced`: it was read once, or once more since it was activated
    pub referenced: bool,
    /// `PG_active`: it was read at least twice, if MGLRU is off
    pub active: bool,
    /// the cgroup that it is charged to, by the inode number of its directory; 0: none
    pub group: u64,
}

impl PageCache {
    /// Loads the program, and checks on a file of our own that it reads the truth.
    ///
    /// # Errors
    /// If the kernel does not load the program, with the remedy, or if it does not read the truth.
    pub fn load() -> Result<Self, PageCacheError> {
        Self::load_with(WalkMethod::Direct)
            .or_else(|e| Self::load_with(WalkMethod::Probe).map_err(|_| e))
    }

    pub(super) fn load_with(reading: WalkMethod) -> Result<Self, PageCacheError> {
        const MAX_TRIES: u32 = 5;
        let mut opened = Self::open(reading);
        for _ in 1..MAX_TRIES {
            // A signal, such as for the end of a child, interrupts the verifier.
            let Err(e) = &opened else { break };
            if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                break;
            }
            opened = Self::open(reading);
        }
        let mut cache = opened.map_err(|e| PageCacheError::Load {
            reason: crate::log::reason(&e),
            help: bpf_help(),
        })?;
        cache.prove()?;
        Ok(cache)
    }

    fn open(reading: WalkMethod) -> Result<Self, libbpf_rs::Error> {
        crate::log::quiet();
        // SAFETY: `PageCache` drops the skeleton, which has the only copy of the reference, before the storage.
        let (storage, place) = unsafe { Storage::new() };
        let mut skel = CacheSkelBuilder::default().open(place)?;
        if let Some(constants) = skel.maps.rodata_data.as_deref_mut() {
            constants.direct_loads = reading == WalkMethod::Direct;
        }
        Ok(PageCache { skel: skel.load()?, _storage: storage, first: 0, seed: 1, count_below: 0 })
    }

    /// A file of our own must have the pages that were written to it, all dirty, and the name that it was given.
    fn prove(&mut self) -> Result<(), PageCacheError> {
        const NAME: &str = "isotherm-proof";
        const PAGES: u64 = 3;
        let own = PageCacheError::path("write to", NAME);
        let made = memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(std::io::Error::from);
        let file = made.map(File::from).and_then(|mut file| {
            // Pages 0, 64 and 4096: a root, and nodes of all three levels.
            for page in [0, 64, 4096] {
                file.seek(std::io::SeekFrom::Start(page * PAGE_SIZE))?;
                file.write_all(&[1])?;
            }
            Ok(file)
        });
        let file = file.map_err(own)?;
        let listing = self.open_file(&file)?;
        let [found] = &listing.files[..] else {
            return Err(PageCacheError::Proof("it does not find an open file".into()));
        };
        let name = listing.name(found);
        let mut parts = Vec::new();
        self.parts(std::slice::from_ref(found), |_, part| parts.push((part.first, part.cached)))?;
        self.first = found.super_block;
        let supers = self.super_blocks()?;
        let has_tmpfs = supers.iter().any(|s| s.address == self.first && s.magic == TMPFS);
        let expected = [(0, 1), (64, 1), (4096, 1)];
        if !name.contains(NAME) || found.pages != PAGES || parts != expected || !has_tmpfs {
            return Err(PageCacheError::Proof(format!(
                "of a file with {PAGES} pages it reads the name {name:?}, {} pages and {parts:?}",
                found.pages
            )));
        }
        Ok(())
    }

    /// The super blocks of the machine, also those of other mount namespaces.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn super_blocks(&mut self) -> Result<Vec<SuperBlock>, PageCacheError> {
        self.bss()?.order.sb = self.first;
        run(&self.skel.progs.list_supers)?;
        let bss = self.bss()?;
        let found = bss.supers.get(..index(bss.found)).unwrap_or_default();
        let text = |id: &[i8; 32]| -> String {
            let bytes = id.iter().map(|&c| c.cast_unsigned()).take_while(|&c| c != 0);
            String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
        };
        Ok(found
            .iter()
            .map(|s| SuperBlock {
                address: s.sb,
                magic: s.magic,
                device: device(s.dev),
                name: text(&s.id),
            })
            .collect())
    }

    /// The file that is open, as the kernel caches it: for a file of an overlay, the file of the layer below.
    /// The listing is empty if it has no page cache of its own.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn open_file(&mut self, file: &File) -> Result<Listing, PageCacheError> {
        self.bss()?.order.fd = file.as_raw_fd();
        run(&self.skel.progs.keep_open_file)?;
        let mut listing = Listing::default();
        self.take_files(&mut listing)?;
        Ok(listing)
    }

    /// The identity of a folder that is open, as long as it is: see [`Self::list`].
    ///
    /// # Errors
    /// If the program does not run.
    pub fn folder(&mut self, open: &File) -> Result<u64, PageCacheError> {
        self.bss()?.order.fd = open.as_raw_fd();
        run(&self.skel.progs.find_folder)?;
        Ok(self.bss()?.folder)
    }

    /// Calls `each` with the files of a super block that have pages in the cache, or shadow entries of evicted pages,
    /// some thousand at a time. These are the files below the folders, and those whose names the kernel has dropped; all
    /// if there are no folders, or more than 16. With `None`, the files so far are void, and the list begins again.
    /// `each` may have small files counted: see [`Self::count_below`]. A super block that is unmounted has no files.
    ///
    /// # Errors
    /// If the program does not run, if the list changes too fast, or if `each` fails.
    pub fn list<E: From<PageCacheError>>(
        &mut self,
        of: &SuperBlock,
        below: &[u64],
        mut each: impl FnMut(&mut Self, Option<Listing>) -> Result<(), E>,
    ) -> Result<(), E> {
        // A file of XFS that returns would count twice. Of more folders, only names say which files are below them.
        let can_count = of.magic != XFS && below.len() <= self.bss()?.order.folders.len();
        for _ in 0..ATTEMPTS {
            let mut at = ListCursor::default();
            let mut listed = Listed::default();
            let mut max_files = FIRST_FILES;
            self.count_below = 0;
            loop {
                let mut listing = Listing::default();
                let order = types::order {
                    count_below: if can_count { self.count_below } else { 0 },
                    entries: max_files,
                    ..types::order::default()
                };
                let step = self.list_step(of, below, order, &mut at, &mut listing)?;
                if of.magic == XFS {
                    listed.leave_out(&mut listing);
                }
                if !listing.files.is_empty() {
                    max_files = u32::MAX;
                }
                each(self, Some(listing).filter(|_| step != ListStep::Lost))?;
                match step {
                    ListStep::More => {}
                    ListStep::End => return Ok(()),
                    ListStep::Lost => break,
                }
            }
        }
        if self.super_blocks()?.contains(of) {
            return Err(PageCacheError::Restless(of.name.clone(), ATTEMPTS).into());
        }
        // It was unmounted meanwhile. The last call of `each` was with `None`.
        Ok(())
    }

    /// Until the list ends, [`Self::list`] counts files with fewer cached pages instead of listing them: those whose
    /// cached and evicted pages are all among their first 64 and no large folio, if their folder is known. It looks at
    /// the marks of one page in 64.
    pub fn count_below(&mut self, pages: u64) {
        self.count_below = pages;
    }

    /// Appends the files with at least `min_pages` cached pages among the next 8192 inodes of a super block: see
    /// [`Self::list`].
    ///
    /// # Errors
    /// If the program does not run.
    pub fn list_next(
        &mut self,
        of: &SuperBlock,
        below: &[u64],
        min_pages: u64,
        at: &mut ListCursor,
        to: &mut Listing,
    ) -> Result<ListStep, PageCacheError> {
        let order = types::order { min_pages, entries: u32::MAX, ..types::order::default() };
        self.list_step(of, below, order, at, to)
    }

    fn list_step(
        &mut self,
        of: &SuperBlock,
        below: &[u64],
        request: types::order,
        at: &mut ListCursor,
        to: &mut Listing,
    ) -> Result<ListStep, PageCacheError> {
        let seed = self.seed;
        let order = &mut self.bss()?.order;
        *order =
            types::order { sb: of.address, cursor: at.inode, cursor_id: at.id, seed, ..request };
        if let Some(folders) = order.folders.get_mut(..below.len()) {
            folders.copy_from_slice(below);
        }
        run(&self.skel.progs.list_files)?;
        self.take_files(to)?;
        let bss = self.bss()?;
        to.counted = counted(&bss.counted);
        (at.inode, at.id) = (bss.order.cursor, bss.order.cursor_id);
        Ok(match (bss.lost, bss.more) {
            (0, 0) => ListStep::End,
            (0, _) => ListStep::More,
            _ => ListStep::Lost,
        })
    }

    fn take_files(&mut self, to: &mut Listing) -> Result<(), PageCacheError> {
        let bss = self.bss()?;
        let begin = to.names.len();
        let names = bss.names.get(..index(bss.name_end)).unwrap_or_default();
        to.names.extend(names.iter().map(|c| c.cast_unsigned()));
        let found = bss.files.get(..index(bss.found)).unwrap_or_default();
        to.files.extend(found.iter().map(|f| {
            let name = begin + index(f.name);
            CachedFile {
                inode: f.inode,
                super_block: f.sb,
                id: f.id,
                version: f.version,
                ino: f.ino,
                pages: f.pages,
                size: f.size,
                links: f.nlink,
                mode: f.mode,
                device: device(f.device),
                is_mapped: f.is_mapped != 0,
                folder: f.parent,
                name: name..name + index(f.name_bytes),
            }
        }));
        Ok(())
    }

    /// Calls `each` with the index of a file and a part of it, for all parts with cached or evicted pages, in their
    /// order. A file that has gone has none. Each call chooses other samples.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn parts(
        &mut self,
        files: &[CachedFile],
        mut each: impl FnMut(usize, CachedRange),
    ) -> Result<(), PageCacheError> {
        self.seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        for (batch, first) in files.chunks(MAX_FILES).zip((0..).step_by(MAX_FILES)) {
            let seed = self.seed;
            let bss = self.order(batch)?;
            bss.order.seed = seed;
            (bss.at.file, bss.at.page) = (0, 0);
            loop {
                run(&self.skel.progs.read_nodes)?;
                let bss = self.bss()?;
                for node in bss.nodes.get(..index(bss.found)).unwrap_or_default() {
                    if node.cached | node.evicted != 0 {
                        each(first + index(node.file), part(node));
                    }
                }
                if bss.more == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads the number of cached pages and the size of files again. A file that has gone has no pages, and keeps its
    /// size.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn recount(&mut self, files: &mut [CachedFile]) -> Result<(), PageCacheError> {
        for batch in files.chunks_mut(MAX_FILES) {
            for (slot, file) in self.order(batch)?.files.iter_mut().zip(&*batch) {
                slot.size = file.size;
            }
            run(&self.skel.progs.recount_files)?;
            for (file, found) in batch.iter_mut().zip(&self.bss()?.files) {
                (file.pages, file.size) = (found.pages, found.size);
            }
        }
        Ok(())
    }

    /// Orders these files, at most [`MAX_FILES`].
    fn order(&mut self, files: &[CachedFile]) -> Result<&mut types::bss, PageCacheError> {
        let bss = self.bss()?;
        for (slot, file) in bss.files.iter_mut().zip(files) {
            slot.inode = file.inode;
            slot.sb = file.super_block;
            slot.id = file.id;
        }
        let entries = u32::try_from(files.len()).unwrap_or(0);
        bss.order = types::order { entries, ..types::order::default() };
        Ok(bss)
    }

    /// Adds the folders to `known`, and all folders above them.
    ///
    /// # Errors
    /// If the program does not run.
    pub fn name_folders(
        &mut self,
        folders: impl IntoIterator<Item = u64>,
        known: &mut Directories,
    ) -> Result<(), PageCacheError> {
        let mut missing = known.missing(folders);
        // A folder that is removed at the same time may lead anywhere, but not endlessly.
        for _ in 0..MAX_DEPTH {
            if missing.is_empty() {
                break;
            }
            let mut above = Vec::new();
            for batch in missing.chunks(MAX_DENTRIES) {
                let bss = self.bss()?;
                for (slot, &dentry) in bss.dentries.iter_mut().zip(batch) {
                    slot.dentry = dentry;
                }
                bss.order.entries = u32::try_from(batch.len()).unwrap_or(0);
                run(&self.skel.progs.name_dentries)?;
                let bss = self.bss()?;
                for d in bss.dentries.get(..index(bss.found)).unwrap_or_default() {
                    let (from, bytes) = (index(d.name), index(d.name_bytes));
                    let name = bss.names.get(from..from + bytes).unwrap_or_default();
                    let name: Vec<u8> = name.iter().map(|c| c.cast_unsigned()).collect();
                    known.add(d.dentry, d.parent, String::from_utf8_lossy(&name).into_owned());
                    above.push(d.parent);
                }
                // The names did not fit: the rest is asked for again.
                above.extend(batch.get(index(bss.found)..).unwrap_or_default());
            }
            missing = known.missing(above);
        }
        Ok(())
    }

    fn bss(&mut self) -> Result<&mut types::bss, PageCacheError> {
        let missing = || PageCacheError::Run("its memory is not mapped".into());
        self.skel.maps.bss_data.as_deref_mut().ok_or_else(missing)
    }
}

fn part(node: &types::cache_node) -> CachedRange {
    // `enum sample` in `cache.bpf.c`.
    let is = |bit: u32| node.sample & bit != 0;
    let sample = is(1).then(|| PageMarks { referenced: is(2), active: is(4), group: node.group });
    let types::cache_node { first, cached, evicted, dirty, writeback, .. } = *node;
    CachedRange { first, cached, evicted, dirty, writeback, sample }
}

fn counted(of: &types::counted_files) -> CountedFiles {
    let types::counted_files { files, size, cached, evicted, dirty, .. } = *of;
    let types::counted_files { writeback, mapped, sampled, referenced, active, .. } = *of;
    CountedFiles {
        files,
        size,
        cached,
        evicted,
        dirty,
        writeback,
        mapped,
        sampled,
        referenced,
        active,
    }
}

/// Major and minor of the kernel's own form of a device number.
fn device(number: u32) -> (u32, u32) {
    (number >> 20, number & 0xf_ffff)
}

/// All numbers from the program are below the lengths of its arrays.
fn index(n: impl TryInto<usize>) -> usize {
    n.try_into().unwrap_or(usize::MAX)
}

fn run(program: &ProgramMut<'_>) -> Result<(), PageCacheError> {
    let done = program.test_run(ProgramInput::default());
    done.map(drop).map_err(|e| PageCacheError::Run(crate::log::reason(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(numbers: &[u64]) -> Listing {
        let file = |&ino: &u64| CachedFile {
            inode: 0,
            super_block: 1,
            id: ino,
            version: 0,
            ino,
            pages: 1,
            size: PAGE_SIZE,
            links: 1,
            mode: 0,
            device: (0, 0),
            is_mapped: false,
            folder: 0,
            name: 0..0,
        };
        Listing { files: numbers.iter().map(file).collect(), ..Listing::default() }
    }

    #[test]
    fn a_file_is_listed_once_although_the_list_begins_again() {
        let mut listed = Listed::default();
        let mut new = |numbers: &[u64]| {
            let mut listing = listing(numbers);
            listed.leave_out(&mut listing);
            listing.files.iter().map(|file| file.ino).collect::<Vec<_>>()
        };
        assert_eq!(new(&[1, 2, 3]), [1, 2, 3]);
        assert_eq!(new(&[9, 1, 2, 3, 4]), [9, 4]);
    }
}
