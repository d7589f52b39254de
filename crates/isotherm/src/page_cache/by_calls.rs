//! Counting the pages of named files by system calls, where BPF is not available.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use isotherm_linux::page_cache::cached;
use isotherm_linux::proc::Mount;
use isotherm_linux::sys::open_regular_itself;
use isotherm_report::counted;

use super::page_use::{FileKind, FileUse, PageUse};
use super::scope::mount_of;

/// The first path that could not be read, with the reason, and the number of these paths.
#[derive(Debug, Default)]
pub(super) struct Refused(Option<(String, u64)>);

impl Refused {
    fn add(&mut self, path: &Path, why: &io::Error) {
        self.0.get_or_insert_with(|| (format!("{}: {why}", path.display()), 0)).1 += 1;
    }

    fn remark(self, name: &str, done: &str) -> Option<String> {
        let (first, number) = self.0?;
        Some(format!("{} could not be {done}, the first one is {first}", counted(number, name)))
    }
}

/// Counts the files, each once, and appends remarks if some could not be counted. A file without cached pages is left out,
/// unless it is one of `paths`.
pub(super) fn read(paths: &[PathBuf], mounts: &[Mount], remarks: &mut Vec<String>) -> Vec<FileUse> {
    let (mut refused, mut seen) = (Refused::default(), HashSet::new());
    let named: HashSet<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let mut found = Vec::new();
    let folders = each_file(paths, &mut |path| {
        let read = open_regular_itself(path).and_then(|file| {
            let metadata = file.metadata()?;
            let is_new = seen.insert((metadata.dev(), metadata.ino()));
            is_new.then(|| Ok(PageUse::of_calls(metadata.len(), &cached(&file)?))).transpose()
        });
        match read {
            Ok(Some(pages)) if !pages.is_empty() || named.contains(path) => {
                found.push(FileUse {
                    name: path.display().to_string(),
                    file_system: mount_of(mounts, path)
                        .map_or("".into(), |m| m.point.to_string_lossy().into()),
                    id: 0,
                    pages,
                    groups: Vec::new(),
                    kind: FileKind::default(),
                });
            }
            Ok(_) => {}
            Err(e) => refused.add(path, &e),
        }
    });
    remarks.extend(refused.remark("file", "counted"));
    remarks.extend(folders.remark("folder", "read"));
    found
}

/// Calls `each` for the regular files among the paths and below them, without following links. Returns the folders that
/// cannot be read.
pub(super) fn each_file(paths: &[PathBuf], each: &mut dyn FnMut(&Path)) -> Refused {
    let (mut folders, mut refused) = (Vec::new(), Refused::default());
    for path in paths {
        match std::fs::symlink_metadata(path) {
            Ok(m) if m.is_dir() => folders.push(path.clone()),
            Ok(m) if m.is_file() => each(path),
            _ => {}
        }
    }
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| refused.add(&folder, &e));
        for entry in entries.into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(t) if t.is_dir() => folders.push(entry.path()),
                Ok(t) if t.is_file() => each(&entry.path()),
                _ => {}
            }
        }
    }
    refused
}
