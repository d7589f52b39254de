//! Reads the page cache of the machine, or of the chosen files.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use isotherm_core::PAGE_SIZE;
use isotherm_linux::cgroup::MemoryGroups;
use isotherm_linux::page_cache::{
    BLOCK_DEVICES, CachedFile, CachedRange, CountedFiles, HUGETLBFS, ListCursor, ListStep, Listing,
    OVERLAYFS, PageCache, PageCacheError, SuperBlock, TMPFS,
};
use isotherm_linux::proc::{self, Mglru, Mount, mountinfo};
use isotherm_linux::sys::open_regular_itself;
use rustix::fs::{Mode, OFlags, open};
use tracing::warn;

use super::by_calls::{self, each_file};
use super::heat::Observed;
use super::names::Names;
use super::page_use::{FileKind, FileSum, FileUse, PageUse};
use super::rows::{By, RowOrder, SortBy, first_files};
use super::scope::{ChosenMount, FileScope, ScopeError, is_within, mount_of, mounts_of};
use crate::ROOT;

/// So many files are kept at least before those that do not come first are left out; of a great limit, twice as many.
const MANY_FILES: usize = 10_000;
/// Magic number of btrfs, and the inode of its metadata.
const BTRFS: u64 = 0x9123_683e;
const BTRFS_METADATA: u64 = 1;

/// Reads the page cache, repeatedly if requested.
pub struct CacheReader {
    way: Way,
    scope: FileScope,
    mount: Option<ChosenMount>,
    /// `mount` was not mounted the last time
    is_unmounted: bool,
    /// the numbers of the chosen groups, as they were found last; `None`: all groups
    chosen: Option<HashSet<u64>>,
    search: Search,
}

/// Where the search for new files goes on: the place of a super block, and the place in its files.
#[derive(Default)]
struct Search {
    turn: usize,
    at: ListCursor,
}

enum Way {
    Bpf(Box<PageCache>),
    /// system calls, with the reason why not BPF
    Calls(String),
}

/// The page cache at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CacheReading {
    /// the files with pages in the cache, or with notes of evicted pages
    pub files: Vec<FileUse>,
    /// control groups by their numbers
    pub groups: MemoryGroups,
    /// names of processes by the files that they hold; empty unless it was wanted
    pub holders: HashMap<u64, Vec<String>>,
    /// remarks on memory that the figures do not contain, in sentences
    pub remarks: Vec<String>,
    /// the same files as the kernel knows them; empty without BPF
    pub(super) cached: Vec<CachedFile>,
    /// further files, which are only counted
    pub(super) rest: FileSum,
}

impl CacheReading {
    /// Adds the files of another one.
    fn append(&mut self, mut other: CacheReading) {
        self.files.append(&mut other.files);
        self.cached.append(&mut other.cached);
        self.rest.add(other.rest.files, &other.rest.pages);
    }

    /// The cached pages of the last of the first `limit` files by these, if there are as many.
    fn last_pages(&self, limit: usize) -> Option<u64> {
        let mut pages: Vec<u64> = self.cached.iter().map(|file| file.pages).collect();
        let place = pages.len().checked_sub(limit.max(1))?;
        Some(*pages.select_nth_unstable(place).1)
    }

    /// Only counts the files after the first `limit`, if there are many.
    pub(super) fn keep_first(&mut self, sort: SortBy, limit: usize) {
        if self.files.len() < limit.saturating_mul(2).max(MANY_FILES) {
            return;
        }
        let first = first_files(&self.files, 0..self.files.len(), sort, limit);
        let mut is_kept = vec![false; self.files.len()];
        for i in first {
            is_kept.get_mut(i).into_iter().for_each(|kept| *kept = true);
        }
        for (file, _) in self.files.iter().zip(&is_kept).filter(|(_, kept)| !**kept) {
            self.rest.add(1, &file.pages);
        }
        let mut kept = is_kept.iter();
        self.files.retain(|_| kept.next() == Some(&true));
        let mut kept = is_kept.iter();
        self.cached.retain(|_| kept.next() == Some(&true));
    }
}

impl CacheReader {
    /// Opens the reader, and checks that the scope exists.
    ///
    /// # Errors
    /// If a path or a group does not exist, or if only BPF could find the files and it is not available.
    pub fn open(scope: FileScope) -> Result<Self, ScopeError> {
        let paths = scope.paths.iter().map(|path| real_path(path));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        if let Some(other) = paths.iter().find(|path| !path.is_file() && !path.is_dir()) {
            return Err(ScopeError::Kind(other.clone()));
        }
        let mount = scope.mount.as_deref().map(real_path).transpose()?;
        let mounts = mountinfo(ROOT.as_ref()).map_err(PageCacheError::from)?;
        let mount = mount.map(|path| ChosenMount::find(path, &mounts)).transpose()?;
        let scope = FileScope { paths, ..scope };
        let way = match PageCache::load() {
            Ok(cache) => Way::Bpf(Box::new(cache)),
            Err(e) if scope.paths.is_empty() || !scope.cgroups.is_empty() => {
                return Err(ScopeError::NamedOnly { reason: e.to_string() });
            }
            Err(e) => Way::Calls(e.to_string()),
        };
        Ok(CacheReader {
            way,
            scope,
            mount,
            is_unmounted: false,
            chosen: None,
            search: Search::default(),
        })
    }

    /// Why BPF is not used, if it is not.
    #[must_use]
    pub fn why_not_bpf(&self) -> Option<&str> {
        match &self.way {
            Way::Bpf(_) => None,
            Way::Calls(reason) => Some(reason),
        }
    }

    /// Reads the page cache, for rows of this kind. `seen` was observed just before. If `is_once`, it keeps only the
    /// first files, where each row is one.
    ///
    /// # Errors
    /// If the kernel refuses, or if the group has been removed.
    pub fn read(
        &mut self,
        order: &RowOrder,
        is_once: bool,
        seen: Observed<'_>,
    ) -> Result<CacheReading, ScopeError> {
        let mounts = mountinfo(ROOT.as_ref()).map_err(PageCacheError::from)?;
        match &mut self.way {
            Way::Bpf(cache) => {
                let (scope, mount) = (&self.scope, self.mount.as_ref());
                let mut bpf = Bpf { cache, scope, mount, mounts: &mounts };
                let (scan, chosen) = bpf.read(order, is_once, seen)?;
                self.chosen = chosen;
                Ok(scan)
            }
            Way::Calls(reason) if matches!(order.by, By::Process | By::Cgroup) => {
                Err(ScopeError::NamedOnly { reason: reason.clone() })
            }
            Way::Calls(_) => {
                let mut remarks = Vec::new();
                let files = by_calls::read(&self.scope.paths, &mounts, &mut remarks);
                Ok(CacheReading { files, remarks, ..CacheReading::default() })
            }
        }
    }

    /// The files of the scope, and the page cache to read them from. With control groups, these are the files with
    /// pages that are charged to them, and each has the number of these pages. A group that does not exist has none.
    ///
    /// # Errors
    /// If BPF is not available, or the kernel refuses.
    pub(crate) fn find(&mut self) -> Result<(Vec<FoundFile>, &mut PageCache), ScopeError> {
        let mounts = mountinfo(ROOT.as_ref()).map_err(PageCacheError::from)?;
        let unmounted = self.mount.as_ref().filter(|mount| mount.device(&mounts).is_none());
        match unmounted {
            Some(mount) if !self.is_unmounted => warn!("{}", mount.gone()),
            _ => {}
        }
        self.is_unmounted = unmounted.is_some();
        match &mut self.way {
            Way::Bpf(cache) => {
                let (scope, mount) = (&self.scope, self.mount.as_ref());
                let mut bpf = Bpf { cache, scope, mount, mounts: &mounts };
                let mut found = bpf.find_all()?;
                self.chosen = match self.scope.cgroups.is_empty() {
                    true => None,
                    false => Some(bpf.chosen_groups(&MemoryGroups::read(ROOT.as_ref()))),
                };
                if let Some(chosen) = &self.chosen {
                    charged_only(cache, &mut found, chosen)?;
                }
                Ok((found, cache))
            }
            Way::Calls(reason) => Err(ScopeError::NamedOnly { reason: reason.clone() }),
        }
    }

    /// Calls `each` with the index of a file and a part of it that is charged to the chosen groups.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn parts(
        &mut self,
        files: &[CachedFile],
        mut each: impl FnMut(usize, CachedRange),
    ) -> Result<(), PageCacheError> {
        let Way::Bpf(cache) = &mut self.way else { return Ok(()) };
        cache.parts(files, |i, part| {
            if self.chosen.as_ref().is_none_or(|chosen| is_charged(&part, chosen)) {
                each(i, part);
            }
        })
    }

    /// Whether all pages of a file count, no matter to which group they are charged.
    pub(super) fn counts_all(&self) -> bool {
        self.chosen.is_none()
    }

    /// Searches the next inodes, at least 8192 unless there are fewer, for files with at least `min_pages` cached pages
    /// that are not known.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn search(
        &mut self,
        min_pages: u64,
        is_known: impl Fn(&CachedFile) -> bool,
    ) -> Result<Vec<(FileUse, CachedFile)>, ScopeError> {
        let Way::Bpf(cache) = &mut self.way else { return Ok(Vec::new()) };
        let mounts = mountinfo(ROOT.as_ref()).map_err(PageCacheError::from)?;
        let (scope, mount) = (&self.scope, self.mount.as_ref());
        let mut bpf = Bpf { cache, scope, mount, mounts: &mounts };
        let folders = bpf.folders();
        if folders.is_empty() && !scope.paths.is_empty() {
            return Ok(Vec::new());
        }
        let mounts = mounts_of(&mounts, &folders);
        let supers = bpf.super_blocks(&folders, &mounts, &mut Vec::new())?;
        let Search { turn, at } = &mut self.search;
        let mut found = Vec::new();
        for _ in 0..supers.len() {
            let Some(of) = supers.get(*turn % supers.len()) else { break };
            let below = bpf.folders_on(of, &folders, &mounts)?;
            let mut listing = Listing::default();
            let step = bpf.cache.list_next(of, &below, min_pages, at, &mut listing)?;
            listing.files.retain(|file| !is_known(file));
            name(bpf.cache, &mut Names::new(of, &mounts, &folders), listing, &mut found)?;
            if step == ListStep::More {
                break;
            }
            *turn += 1;
            *at = ListCursor::default();
        }
        let is_two_lists = found.is_empty() || !Mglru::open(ROOT.as_ref()).hides_reads();
        Ok(found.into_iter().map(|f| f.into_use(is_two_lists)).collect())
    }

    /// Reads the number of cached pages of files again: see [`PageCache::recount`].
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn recount(&mut self, files: &mut [CachedFile]) -> Result<(), PageCacheError> {
        self.page_cache().map_or(Ok(()), |cache| cache.recount(files))
    }

    /// The page cache, if BPF is available.
    pub(crate) fn page_cache(&mut self) -> Option<&mut PageCache> {
        match &mut self.way {
            Way::Bpf(cache) => Some(cache),
            Way::Calls(_) => None,
        }
    }
}

fn real_path(path: &Path) -> Result<PathBuf, ScopeError> {
    path.canonicalize().map_err(|source| ScopeError::Path { path: path.to_owned(), source })
}

/// Keeps the files with pages that are charged to the groups, with the number of these pages.
fn charged_only(
    cache: &mut PageCache,
    found: &mut Vec<FoundFile>,
    chosen: &HashSet<u64>,
) -> Result<(), PageCacheError> {
    let read: Vec<CachedFile> = found.iter().map(|f| f.file.clone()).collect();
    found.iter_mut().for_each(|f| f.file.pages = 0);
    cache.parts(&read, |i, part| {
        if let Some(f) = found.get_mut(i).filter(|_| is_charged(&part, chosen)) {
            f.file.pages += u64::from(part.cached);
        }
    })?;
    found.retain(|f| f.file.pages > 0);
    Ok(())
}

/// Whether the sampled page of a part is charged to one of the groups.
fn is_charged(part: &CachedRange, chosen: &HashSet<u64>) -> bool {
    part.sample.is_some_and(|sample| chosen.contains(&sample.group))
}

/// A file that was found, with its name.
pub(crate) struct FoundFile {
    pub file: CachedFile,
    pub name: String,
    pub file_system: Rc<str>,
    pub is_tmpfs: bool,
    /// see [`hides_reads`]
    pub hides_reads: bool,
}

/// Whether no tracepoint sees the reads of inode `ino` in a folder (0: without one): of tmpfs, and of metadata, which is a
/// file of a block device or of btrfs.
pub(super) fn hides_reads(magic: u64, ino: u64, folder: u64) -> bool {
    let is_metadata = magic == BTRFS && folder == 0 && ino == BTRFS_METADATA;
    magic == TMPFS || magic == BLOCK_DEVICES || is_metadata
}

impl FoundFile {
    /// The file without pages, and as the kernel knows it.
    fn into_use(self, is_two_lists: bool) -> (FileUse, CachedFile) {
        let FoundFile { file, name, file_system, is_tmpfs, hides_reads } = self;
        let found = FileUse {
            name,
            file_system,
            id: file.id(),
            pages: PageUse::of_size(file.size),
            groups: Vec::new(),
            kind: FileKind { is_tmpfs, hides_reads, is_mapped: file.is_mapped, is_two_lists },
        };
        (found, file)
    }
}

/// What a search for files finds.
enum Found {
    /// some files
    Files(Vec<FoundFile>),
    /// files that were only counted, and whether they are of tmpfs: [`PageCache::count_below`]
    Counted(CountedFiles, bool),
    /// The files since the last `End` are void.
    Void,
    /// The files so far are complete.
    End,
}

type EachFound<'a> = dyn FnMut(&mut PageCache, Found) -> Result<(), PageCacheError> + 'a;

struct Bpf<'a> {
    cache: &'a mut PageCache,
    scope: &'a FileScope,
    mount: Option<&'a ChosenMount>,
    mounts: &'a [Mount],
}

impl Bpf<'_> {
    /// The files, and the numbers of the chosen groups; `None`: all groups.
    fn read(
        &mut self,
        order: &RowOrder,
        is_once: bool,
        seen: Observed<'_>,
    ) -> Result<(CacheReading, Option<HashSet<u64>>), ScopeError> {
        let (by_group, is_chosen) = (order.by == By::Cgroup, !self.scope.cgroups.is_empty());
        let groups = match by_group || is_chosen {
            true => MemoryGroups::read(ROOT.as_ref()),
            false => MemoryGroups::default(),
        };
        let chosen = self.existing_groups(&groups)?;
        let is_two_lists = !Mglru::open(ROOT.as_ref()).hides_reads();
        // Only named files are shown without any page.
        let named = &self.scope.paths;
        let is_named = |f: &FileUse| named.iter().any(|p| p.as_os_str() == &*f.name);
        let keep = Some(order.limit).filter(|_| is_once && order.by == By::File);
        // A file that is opened might be listed, too.
        let counts_rest = order.sort == SortBy::Resident
            && chosen.is_none()
            && seen.reads.is_none()
            && seen.heat.is_none()
            && named.iter().all(|path| !self.is_opened(path));
        let (mut scan, mut new) = (CacheReading::default(), CacheReading::default());
        let mut remarks = Vec::new();
        self.find(&mut remarks, &mut |cache, found| {
            match found {
                Found::Files(files) => {
                    let (mut files, cached): (Vec<_>, Vec<_>) =
                        files.into_iter().map(|found| found.into_use(is_two_lists)).unzip();
                    cache.parts(&cached, |i, part| {
                        let Some(file) = files.get_mut(i) else { return };
                        if chosen.as_ref().is_none_or(|chosen| is_charged(&part, chosen)) {
                            file.add_part(&part, by_group);
                        }
                    })?;
                    for (mut file, known) in files.into_iter().zip(cached) {
                        file.set_observed(seen);
                        if !file.pages.is_empty() || is_named(&file) {
                            new.files.push(file);
                            new.cached.push(known);
                        }
                    }
                    if let Some(limit) = keep {
                        new.keep_first(order.sort, limit);
                        if let Some(last) = new.last_pages(limit).filter(|_| counts_rest) {
                            cache.count_below(last + 1);
                        }
                    }
                }
                Found::Counted(counted, is_tmpfs) => {
                    let pages = PageUse::of_counted(&counted, is_tmpfs, is_two_lists);
                    new.rest.add(counted.files, &pages);
                }
                Found::Void => new = CacheReading::default(),
                Found::End => {
                    scan.append(std::mem::take(&mut new));
                    keep.into_iter().for_each(|limit| scan.keep_first(order.sort, limit));
                }
            }
            Ok(())
        })?;
        let holders = if order.by == By::Process { self.holders()? } else { HashMap::new() };
        Ok((CacheReading { groups, holders, remarks, ..scan }, chosen))
    }

    /// Whether the files of a path cannot be listed: the pages of an overlay are those of files below it, which may be
    /// out of sight.
    fn is_opened(&self, path: &Path) -> bool {
        let is_overlay = mount_of(self.mounts, path).is_some_and(|m| m.fs_type == "overlay");
        is_overlay || !path.is_dir()
    }

    /// The folders of the scope whose files can be listed.
    fn folders(&self) -> Vec<PathBuf> {
        self.scope.paths.iter().filter(|path| !self.is_opened(path)).cloned().collect()
    }

    fn find_all(&mut self) -> Result<Vec<FoundFile>, ScopeError> {
        let (mut all, mut complete) = (Vec::new(), 0);
        self.find(&mut Vec::new(), &mut |_, found| {
            match found {
                Found::Files(mut files) => all.append(&mut files),
                Found::Counted(..) => {}
                Found::Void => all.truncate(complete),
                Found::End => complete = all.len(),
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Calls `each` with the files of the scope, some at a time.
    fn find(
        &mut self,
        remarks: &mut Vec<String>,
        each: &mut EachFound<'_>,
    ) -> Result<(), ScopeError> {
        let (mut opened, folders) = (Vec::new(), self.folders());
        for path in self.scope.paths.iter().filter(|path| !folders.contains(path)) {
            self.open_files(path, mount_of(self.mounts, path), &mut opened)?;
        }
        // A file may be below several of the paths.
        let mut seen = HashSet::new();
        opened.retain(|f| seen.insert(f.file.id()));
        each(self.cache, Found::Files(opened))?;
        each(self.cache, Found::End)?;
        if self.scope.paths.is_empty() || !folders.is_empty() {
            self.list(&folders, &seen, remarks, each)?;
        }
        Ok(())
    }

    /// The files among a path and below it, each of which is opened.
    fn open_files(
        &mut self,
        path: &Path,
        mount: Option<&Mount>,
        found: &mut Vec<FoundFile>,
    ) -> Result<(), ScopeError> {
        let file_system: Rc<str> = mount.map_or("".into(), |m| m.point.to_string_lossy().into());
        let supers = self.cache.super_blocks()?;
        let mut result = Ok(());
        each_file(&[path.to_owned()], &mut |path| {
            let Ok(file) = open_regular_itself(path) else { return };
            match self.cache.open_file(&file) {
                Ok(listing) => found.extend(listing.files.into_iter().map(|file| {
                    let magic = supers.iter().find(|s| s.has(&file)).map_or(0, |s| s.magic);
                    FoundFile {
                        is_tmpfs: magic == TMPFS,
                        hides_reads: hides_reads(magic, file.ino, file.folder),
                        file,
                        name: path.display().to_string(),
                        file_system: file_system.clone(),
                    }
                })),
                Err(e) => result = Err(e.into()),
            }
        });
        result
    }

    /// The cached files of the folders, or of all file systems, by the lists of the super blocks; without those that
    /// were seen before.
    fn list(
        &mut self,
        folders: &[PathBuf],
        seen: &HashSet<u64>,
        remarks: &mut Vec<String>,
        each: &mut EachFound<'_>,
    ) -> Result<(), ScopeError> {
        let mounts = mounts_of(self.mounts, folders);
        let mut unnamed = (0_u64, 0_u64);
        for of in self.super_blocks(folders, &mounts, remarks)? {
            let below = self.folders_on(&of, folders, &mounts)?;
            let mut names = Names::new(&of, &mounts, folders);
            let mut unnamed_here = (0, 0);
            self.cache.list(&of, &below, |cache, listing| {
                let Some(mut listing) = listing else {
                    unnamed_here = (0, 0);
                    return each(cache, Found::Void);
                };
                if listing.counted.files > 0 {
                    each(cache, Found::Counted(listing.counted, of.magic == TMPFS))?;
                }
                listing.files.retain(|file| !seen.contains(&file.id()));
                let mut found = Vec::with_capacity(listing.files.len());
                let (files, pages) = name(cache, &mut names, listing, &mut found)?;
                unnamed_here = (unnamed_here.0 + files, unnamed_here.1 + pages * PAGE_SIZE);
                each(cache, Found::Files(found))?;
                // Then only names say which files are in the folders.
                if below.is_empty() && !folders.is_empty() {
                    cache.count_below(0);
                }
                Ok(())
            })?;
            each(self.cache, Found::End)?;
            unnamed = (unnamed.0 + unnamed_here.0, unnamed.1 + unnamed_here.1);
        }
        if unnamed.0 > 0 {
            remarks.push(format!(
                "Not counted: {} of page cache on these file systems, in files (by number: {}) whose names the \
                 kernel has dropped from memory. isotherm cannot determine whether they belong to the folder.",
                isotherm_report::bytes(unnamed.1),
                unnamed.0
            ));
        }
        Ok(())
    }

    /// The folders to list on a super block, as the kernel knows them.
    fn folders_on(
        &mut self,
        of: &SuperBlock,
        folders: &[PathBuf],
        mounts: &[&Mount],
    ) -> Result<Vec<u64>, PageCacheError> {
        let open = open_folders(of, folders, mounts);
        open.iter().map(|folder| self.cache.folder(folder)).collect()
    }

    /// The file systems of the scope. An overlay has no pages of its own.
    fn super_blocks(
        &mut self,
        folders: &[PathBuf],
        mounts: &[&Mount],
        remarks: &mut Vec<String>,
    ) -> Result<Vec<SuperBlock>, ScopeError> {
        let mut supers = self.cache.super_blocks()?;
        supers.retain(|s| s.magic != HUGETLBFS && s.magic != OVERLAYFS);
        if !folders.is_empty() {
            supers.retain(|s| mounts.iter().any(|m| m.device == s.device));
        }
        if let Some(mount) = self.mount {
            let device = mount.device(self.mounts);
            supers.retain(|s| Some(s.device) == device);
            if device.is_none() {
                remarks.push(mount.gone());
            }
        }
        Ok(supers)
    }

    /// The numbers of the chosen groups and of those below them; `None` for all.
    fn existing_groups(&self, groups: &MemoryGroups) -> Result<Option<HashSet<u64>>, ScopeError> {
        let is_missing = |path: &&PathBuf| groups.below(path).next().is_none();
        match self.scope.cgroups.iter().find(is_missing) {
            Some(path) => Err(ScopeError::NoGroup(path.clone())),
            None if self.scope.cgroups.is_empty() => Ok(None),
            None => Ok(Some(self.chosen_groups(groups))),
        }
    }

    /// The same, without a check whether the groups exist.
    fn chosen_groups(&self, groups: &MemoryGroups) -> HashSet<u64> {
        self.scope.cgroups.iter().flat_map(|path| groups.below(path)).collect()
    }

    fn holders(&mut self) -> Result<HashMap<u64, Vec<String>>, ScopeError> {
        let mut names: HashMap<i32, String> = HashMap::new();
        let mut holders: HashMap<u64, Vec<String>> = HashMap::new();
        for holder in self.cache.holders()? {
            let name = names.entry(holder.pid).or_insert_with(|| process_name(holder.pid));
            holders.entry(holder.file).or_default().push(name.clone());
        }
        Ok(holders)
    }
}

/// Appends the files of a listing that are in the folders, with their names. Returns the number of files for which the
/// kernel has no name in memory to decide that, and their pages.
fn name(
    cache: &mut PageCache,
    names: &mut Names<'_>,
    mut listing: Listing,
    found: &mut Vec<FoundFile>,
) -> Result<(u64, u64), PageCacheError> {
    cache.name_folders(listing.files.iter().map(|f| f.folder), &mut names.known)?;
    let mut unnamed = (0, 0);
    for file in std::mem::take(&mut listing.files) {
        match names.file(&file, &listing.name(&file)) {
            Some(name) => found.push(FoundFile {
                hides_reads: hides_reads(names.of.magic, file.ino, file.folder),
                file,
                name,
                file_system: names.file_system.clone(),
                is_tmpfs: names.of.magic == TMPFS,
            }),
            None if file.folder == 0 => unnamed = (unnamed.0 + 1, unnamed.1 + file.pages),
            None => {}
        }
    }
    Ok(unnamed)
}

/// The folders of a file system in which to look: those of `folders`, and mounts below them. None if one of them cannot
/// be opened.
fn open_folders(of: &SuperBlock, folders: &[PathBuf], mounts: &[&Mount]) -> Vec<File> {
    let is_on = |mount: &Mount| mount.device == of.device;
    let own = folders.iter().map(PathBuf::as_path).filter(|path| {
        let mount = mount_of(mounts.iter().copied(), path);
        mount.is_some_and(is_on)
    });
    let below = mounts.iter().filter(|m| is_on(m) && is_within(&m.point, folders));
    let paths = own.chain(below.map(|m| m.point.as_path()));
    if folders.is_empty() {
        Vec::new()
    } else {
        paths.map(open_path).collect::<Result<_, _>>().unwrap_or_default()
    }
}

/// Opens a folder only to identify it. Opening it to read it would mount what autofs mounts there, and might wait for
/// a server that is gone.
fn open_path(path: &Path) -> io::Result<File> {
    Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// The name and pid of a process. The pid is that of the first namespace: in another one, the name is unknown.
fn process_name(pid: i32) -> String {
    let comm = proc::is_first_namespace(ROOT.as_ref())
        .then(|| proc::comm(ROOT.as_ref(), pid).ok())
        .flatten();
    format!("{} {pid}", comm.as_deref().unwrap_or("process"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_opened_only_as_paths() {
        let folder = open_path("/".as_ref()).unwrap();
        assert!(rustix::fs::fcntl_getfl(&folder).unwrap().contains(OFlags::PATH));
    }
}
