//! Reads the page cache of the machine, or of the chosen files.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use isotherm_core::PAGE_SIZE;
use isotherm_linux::cgroup::MemoryGroups;
use isotherm_linux::page_cache::{
    CachedFile, CachedRange, Directories, FileReadCounts, HUGETLBFS, Listing, OVERLAYFS, PageCache,
    PageCacheError, SuperBlock, TMPFS,
};
use isotherm_linux::proc::{self, Mglru, Mount, mountinfo};
use isotherm_linux::sys::open_regular_itself;
use rustix::fs::{Mode, OFlags, open};
use tracing::warn;

use super::by_calls::{self, each_file};
use super::names::Names;
use super::page_use::{FileKind, FileUse, PageUse};
use super::scope::{ChosenMount, Scope, ScopeError, is_within, mount_of, mounts_of};
use crate::ROOT;

/// Reads the page cache, repeatedly if requested.
pub struct Reader {
    way: Way,
    scope: Scope,
    mount: Option<ChosenMount>,
    /// `mount` was not mounted the last time
    is_unmounted: bool,
    /// the numbers of the chosen groups, as they were found last; `None`: all groups
    chosen: Option<HashSet<u64>>,
}

enum Way {
    Bpf(Box<PageCache>),
    /// system calls, with the reason why not BPF
    Calls(String),
}

/// The page cache at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CacheScan {
    /// the files with pages in the cache, or with notes of evicted pages
    pub files: Vec<FileUse>,
    /// control groups by their numbers
    pub groups: MemoryGroups,
    /// names of processes by the files that they hold; empty unless it was wanted
    pub holders: HashMap<u64, Vec<String>>,
    /// remarks on memory that the figures do not contain, in sentences
    pub remarks: Vec<String>,
}

impl Reader {
    /// Opens the reader, and checks that the scope exists.
    ///
    /// # Errors
    /// If a path or a group does not exist, or if only BPF could find the files and it is not available.
    pub fn open(scope: Scope) -> Result<Self, ScopeError> {
        let paths = scope.paths.iter().map(|path| real_path(path));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        if let Some(other) = paths.iter().find(|path| !path.is_file() && !path.is_dir()) {
            return Err(ScopeError::Kind(other.clone()));
        }
        let mount = scope.mount.as_deref().map(real_path).transpose()?;
        let mounts = mountinfo(ROOT.as_ref()).map_err(PageCacheError::from)?;
        let mount = mount.map(|path| ChosenMount::find(path, &mounts)).transpose()?;
        let scope = Scope { paths, ..scope };
        let way = match PageCache::load() {
            Ok(cache) => Way::Bpf(Box::new(cache)),
            Err(e) if scope.paths.is_empty() || !scope.cgroups.is_empty() => {
                return Err(ScopeError::NamedOnly { reason: e.to_string() });
            }
            Err(e) => Way::Calls(e.to_string()),
        };
        Ok(Reader { way, scope, mount, is_unmounted: false, chosen: None })
    }

    /// Why BPF is not used, if it is not.
    #[must_use]
    pub fn why_not_bpf(&self) -> Option<&str> {
        match &self.way {
            Way::Bpf(_) => None,
            Way::Calls(reason) => Some(reason),
        }
    }

    /// Reads the page cache; with `holders`, also which processes hold which file. `reads` were counted just before.
    ///
    /// # Errors
    /// If the kernel refuses, or if the group has been removed.
    pub fn read(
        &mut self,
        holders: bool,
        reads: Option<&FileReadCounts>,
    ) -> Result<CacheScan, ScopeError> {
        let mounts = mountinfo(ROOT.as_ref()).map_err(PageCacheError::from)?;
        match &mut self.way {
            Way::Bpf(cache) => {
                let (scope, mount) = (&self.scope, self.mount.as_ref());
                Bpf { cache, scope, mount, mounts: &mounts }.read(holders, reads)
            }
            Way::Calls(reason) if holders => Err(ScopeError::NamedOnly { reason: reason.clone() }),
            Way::Calls(_) => {
                let mut remarks = Vec::new();
                let files = by_calls::read(&self.scope.paths, &mounts, &mut remarks);
                Ok(CacheScan { files, remarks, ..CacheScan::default() })
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
                let mut found = bpf.find(&mut Vec::new())?;
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
}

struct Bpf<'a> {
    cache: &'a mut PageCache,
    scope: &'a Scope,
    mount: Option<&'a ChosenMount>,
    mounts: &'a [Mount],
}

impl Bpf<'_> {
    fn read(
        &mut self,
        holders: bool,
        reads: Option<&FileReadCounts>,
    ) -> Result<CacheScan, ScopeError> {
        let mut remarks = Vec::new();
        let found = self.find(&mut remarks)?;
        let groups = MemoryGroups::read(ROOT.as_ref());
        let chosen = self.existing_groups(&groups)?;
        let is_two_lists = !Mglru::open(ROOT.as_ref()).hides_reads();
        let kind = |f: &FoundFile| FileKind {
            is_tmpfs: f.is_tmpfs,
            is_mapped: f.file.is_mapped,
            is_two_lists,
        };
        let read: Vec<CachedFile> = found.iter().map(|f| f.file.clone()).collect();
        let mut files: Vec<FileUse> = found.iter().map(file_use).collect();
        self.cache.parts(&read, |i, part| {
            let (Some(file), Some(found)) = (files.get_mut(i), found.get(i)) else { return };
            let group = part.sample.map_or(0, |sample| sample.group);
            if chosen.as_ref().is_some_and(|chosen| !chosen.contains(&group)) {
                return;
            }
            file.add_part(&part, &kind(found), group);
        })?;
        for (file, _) in files.iter_mut().zip(&found).filter(|(_, found)| !found.is_tmpfs) {
            let bytes = |reads: &FileReadCounts| reads.pages_per_second(file.id) * PAGE_SIZE as f64;
            file.pages.read_bytes_per_second = reads.map(|reads| bytes(reads) as u64);
        }
        // Only named files are shown without any page.
        let is_named = |f: &FileUse| self.scope.paths.iter().any(|p| p.as_os_str() == &*f.name);
        files.retain(|f| !f.groups.is_empty() || is_named(f));
        let holders = if holders { self.holders()? } else { HashMap::new() };
        Ok(CacheScan { files, groups, holders, remarks })
    }

    fn find(&mut self, remarks: &mut Vec<String>) -> Result<Vec<FoundFile>, ScopeError> {
        let (mut found, mut folders) = (Vec::new(), Vec::new());
        for path in &self.scope.paths {
            let mount = mount_of(self.mounts, path);
            let is_overlay = mount.is_some_and(|m| m.fs_type == "overlay");
            if !is_overlay && path.is_dir() {
                folders.push(path.clone());
            } else {
                // The pages of an overlay are those of files below it, which may be out of sight.
                self.open_files(path, mount, &mut found)?;
            }
        }
        if self.scope.paths.is_empty() || !folders.is_empty() {
            self.list(&folders, &mut found, remarks)?;
        }
        if self.scope.paths.len() > 1 {
            // A file may be below several of them.
            let mut seen = HashSet::new();
            found.retain(|f| seen.insert(f.file.id()));
        }
        Ok(found)
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
                Ok(listing) => found.extend(listing.files.into_iter().map(|file| FoundFile {
                    is_tmpfs: supers.iter().any(|s| s.magic == TMPFS && s.has(&file)),
                    file,
                    name: path.display().to_string(),
                    file_system: file_system.clone(),
                })),
                Err(e) => result = Err(e.into()),
            }
        });
        result
    }

    /// The cached files of the folders, or of all file systems, by the lists of the super blocks.
    fn list(
        &mut self,
        folders: &[PathBuf],
        found: &mut Vec<FoundFile>,
        remarks: &mut Vec<String>,
    ) -> Result<(), ScopeError> {
        let mounts = mounts_of(self.mounts, folders);
        let mut unnamed = (0_u64, 0_u64);
        for of in self.super_blocks(folders, &mounts, remarks)? {
            let mut listing = Listing::default();
            let open = open_folders(&of, folders, &mounts);
            let below = open.iter().map(|folder| self.cache.folder(folder));
            let below = below.collect::<Result<Vec<u64>, _>>()?;
            self.cache.list(&of, &below, &mut listing)?;
            let mut known = Directories::default();
            self.cache.name_folders(listing.files.iter().map(|f| f.folder), &mut known)?;
            let mut names = Names::new(&of, &mounts, folders);
            let file_system: Rc<str> = names.file_system().into();
            for file in &listing.files {
                match names.file(file, listing.name(file), &known) {
                    Some(name) => found.push(FoundFile {
                        file: file.clone(),
                        name,
                        file_system: file_system.clone(),
                        is_tmpfs: of.magic == TMPFS,
                    }),
                    None if file.folder == 0 => {
                        unnamed = (unnamed.0 + 1, unnamed.1 + file.pages * PAGE_SIZE);
                    }
                    None => {}
                }
            }
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

fn file_use(found: &FoundFile) -> FileUse {
    FileUse {
        name: found.name.clone(),
        file_system: found.file_system.clone(),
        id: found.file.id(),
        pages: PageUse::of_size(found.file.size),
        groups: Vec::new(),
    }
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
