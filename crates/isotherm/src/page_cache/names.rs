//! Paths of cached files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use isotherm_linux::page_cache::{BLOCK_DEVICES, CachedFile, Directories, SuperBlock};
use isotherm_linux::proc::Mount;

use super::scope::is_within;

/// Names the files of one file system.
pub(super) struct Names<'a> {
    pub of: &'a SuperBlock,
    /// the name of the file system: where it is mounted, or else the kernel's name in brackets
    pub file_system: Rc<str>,
    /// the folders of files, and those above them
    pub known: Directories,
    /// the mounts of the file system, those of its root first
    mounts: Vec<&'a Mount>,
    /// only files in these folders, or below them; all if there are none
    within: &'a [PathBuf],
    /// paths of folders; `None` if they are outside of `within`
    folders: HashMap<u64, Option<Rc<str>>>,
    /// the last of them: the files of a folder often follow each other
    last: (u64, Option<Rc<str>>),
}

impl<'a> Names<'a> {
    pub fn new(of: &'a SuperBlock, mounts: &[&'a Mount], within: &'a [PathBuf]) -> Self {
        let mut mounts: Vec<&Mount> =
            mounts.iter().copied().filter(|m| m.device == of.device).collect();
        mounts.sort_by_key(|m| m.root.components().count());
        let file_system = match mounts.first() {
            Some(mount) => mount.point.display().to_string(),
            None => unmounted(of),
        };
        Names {
            of,
            file_system: file_system.into(),
            known: Directories::default(),
            mounts,
            within,
            folders: HashMap::new(),
            last: (0, None),
        }
    }

    /// The path of a file, or another name in brackets. `None` if the file is outside of the folders, or if that is
    /// unknown as the kernel has no name in memory.
    pub fn file(&mut self, file: &CachedFile, name: &str) -> Option<String> {
        if self.of.magic == BLOCK_DEVICES {
            return self.within.is_empty().then(|| device_name(file.device));
        }
        let folder = match file.folder {
            0 => None,
            id => self.folder(id),
        };
        let unnamed = || format!("{}/inode {}", unmounted(self.of), file.ino);
        let path = match folder {
            // The root ends with a slash.
            Some(folder) => [folder.trim_end_matches('/'), "/", name].concat(),
            None if self.within.is_empty() => unnamed(),
            None => return None,
        };
        Some(if file.links == 0 { path + " (deleted)" } else { path })
    }

    fn folder(&mut self, id: u64) -> Option<Rc<str>> {
        if self.last.0 != id {
            let found = match self.folders.get(&id) {
                Some(found) => found.clone(),
                None => self.known.path(id).and_then(|path| self.place(&path)).map(Rc::from),
            };
            self.folders.insert(id, found.clone());
            self.last = (id, found);
        }
        self.last.1.clone()
    }

    /// The place of a folder of the file system: where it is mounted within the chosen folders.
    fn place(&self, path: &str) -> Option<String> {
        let mounted = self.mounts.iter().filter_map(|mount| {
            let below = Path::new(path).strip_prefix(&mount.root).ok()?;
            Some(mount.point.join(below))
        });
        let place = mounted.into_iter().find(|place| is_within(place, self.within));
        let outside = || self.within.is_empty().then(|| format!("{}{path}", unmounted(self.of)));
        match place {
            // Joining nothing appends a slash.
            Some(place) => Some(place.components().collect::<PathBuf>().display().to_string()),
            None => outside().map(|path| path.trim_end_matches('/').to_owned()),
        }
    }
}

fn unmounted(of: &SuperBlock) -> String {
    let (major, minor) = of.device;
    format!("[{} {major}:{minor}]", of.name)
}

/// A block device, whose cache is mostly the metadata of the file system on it.
fn device_name((major, minor): (u32, u32)) -> String {
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    match link.ok().as_deref().and_then(Path::file_name) {
        Some(name) => format!("/dev/{}", name.to_string_lossy()),
        None => format!("[block device {major}:{minor}]"),
    }
}
