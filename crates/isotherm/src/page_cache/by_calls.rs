//! Counting the pages of named files by system calls, where BPF is not available.

use std::path::{Path, PathBuf};

use isotherm_linux::page_cache::cached;
use isotherm_linux::proc::Mount;
use isotherm_linux::sys::open_regular_itself;
use isotherm_report::counted;

use super::page_use::{FileKind, FileUse, PageUse};
use super::scope::mount_of;

/// Counts the files, and appends a remark if some could not be counted.
pub(super) fn read(paths: &[PathBuf], mounts: &[Mount], remarks: &mut Vec<String>) -> Vec<FileUse> {
    let mut refused: Option<(String, u64)> = None;
    let mut found = Vec::new();
    each_file(paths, &mut |path| {
        let read = open_regular_itself(path).and_then(|file| {
            let size = file.metadata()?.len();
            Ok(PageUse::of_calls(size, &cached(&file)?))
        });
        match read {
            Ok(pages) => found.push(FileUse {
                name: path.display().to_string(),
                file_system: mount_of(mounts, path)
                    .map_or("".into(), |m| m.point.to_string_lossy().into()),
                id: 0,
                pages,
                groups: Vec::new(),
                kind: FileKind::default(),
            }),
            Err(e) => refused.get_or_insert_with(|| (format!("{}: {e}", path.display()), 0)).1 += 1,
        }
    });
    if let Some((first, files)) = refused {
        remarks.push(format!(
            "{} could not be counted, the first one is {first}",
            counted(files, "file")
        ));
    }
    found
}

/// Calls `each` for the regular files among the paths and below them, without following links.
pub(super) fn each_file(paths: &[PathBuf], each: &mut dyn FnMut(&Path)) {
    let mut folders = Vec::new();
    for path in paths {
        match std::fs::symlink_metadata(path) {
            Ok(m) if m.is_dir() => folders.push(path.clone()),
            Ok(m) if m.is_file() => each(path),
            _ => {}
        }
    }
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(t) if t.is_dir() => folders.push(entry.path()),
                Ok(t) if t.is_file() => each(&entry.path()),
                _ => {}
            }
        }
    }
}
