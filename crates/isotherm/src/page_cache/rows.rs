//! Groups files, and sorts the groups.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;

use super::page_use::{FileUse, PageUse};
use super::reader::CacheReading;

/// The kind of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum By {
    /// a file
    #[default]
    File,
    /// a folder, with its own files or with all below it
    Dir,
    /// the pages that are charged to a control group
    Cgroup,
    /// the files that a process has open or maps
    Process,
    /// the files of a file system
    Filesystem,
}

impl By {
    /// All of them, with the words that options have for them.
    pub const ALL: [(Self, &str); 5] = [
        (By::File, "file"),
        (By::Dir, "dir"),
        (By::Cgroup, "cgroup"),
        (By::Process, "process"),
        (By::Filesystem, "filesystem"),
    ];
}

/// By which figure rows are sorted, the greatest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SortBy {
    /// cached bytes
    #[default]
    Resident,
    /// bytes that are not on the disk yet
    Dirty,
    /// evicted bytes
    Evicted,
    /// bytes that were read at least twice
    Active,
    /// bytes read per second
    Reads,
    /// hot bytes
    Hot,
    /// cold bytes
    Cold,
    /// size of the files
    Size,
    /// alphabetically
    Name,
}

impl SortBy {
    /// All of them, with the words that options have for them.
    pub const ALL: [(Self, &str); 9] = [
        (SortBy::Resident, "resident"),
        (SortBy::Dirty, "dirty"),
        (SortBy::Evicted, "evicted"),
        (SortBy::Active, "active"),
        (SortBy::Reads, "reads"),
        (SortBy::Hot, "hot"),
        (SortBy::Cold, "cold"),
        (SortBy::Size, "size"),
        (SortBy::Name, "name"),
    ];
}

/// A row: files, and the sum of their pages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row<'a> {
    /// of the file, folder, group, process or file system
    pub name: Cow<'a, str>,
    /// number of its files
    pub files: u64,
    /// their cached pages
    #[serde(flatten)]
    pub pages: PageUse,
}

/// Which rows, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowOrder {
    /// kind of the rows
    pub by: By,
    /// For folders, the number of names in their paths. Without it, each file belongs to the folder that contains it.
    pub depth: Option<usize>,
    /// figure by which rows are sorted
    pub sort: SortBy,
    /// maximum number of rows
    pub limit: usize,
}

/// Sorts rows and keeps the first `limit`.
pub(super) fn sort_first(rows: &mut Vec<Row<'_>>, sort: SortBy, limit: usize) {
    let order = |a: &Row<'_>, b: &Row<'_>| {
        let figures = figure(&b.pages, sort).cmp(&figure(&a.pages, sort));
        figures.then_with(|| a.name.cmp(&b.name))
    };
    if limit < rows.len() {
        rows.select_nth_unstable_by(limit, order);
        rows.truncate(limit);
    }
    rows.sort_by(order);
}

/// The first `limit` of some places of files, in their order.
pub(super) fn first_files(
    files: &[FileUse],
    of: impl Iterator<Item = usize>,
    sort: SortBy,
    limit: usize,
) -> Vec<usize> {
    let place = |i: usize| Some((Reverse(figure(&files.get(i)?.pages, sort)), i));
    let mut places: Vec<_> = of.filter_map(place).collect();
    let name = |i: usize| files.get(i).map(|file| &file.name);
    let order = |a: &(Reverse<u64>, usize), b: &(Reverse<u64>, usize)| {
        a.0.cmp(&b.0).then_with(|| name(a.1).cmp(&name(b.1)))
    };
    if limit < places.len() {
        places.select_nth_unstable_by(limit, order);
        places.truncate(limit);
    }
    places.sort_by(order);
    places.into_iter().map(|(_, i)| i).collect()
}

pub(super) fn of_file(file: &FileUse) -> Row<'_> {
    Row { name: Cow::Borrowed(&file.name), files: 1, pages: file.pages }
}

/// The rows of all other kinds, in any order.
pub(super) fn grouped(reading: &CacheReading, by: By, depth: Option<usize>) -> Vec<Row<'static>> {
    let mut rows: HashMap<String, Row<'static>> = HashMap::new();
    let mut add = |name: &str, pages: &PageUse| match rows.get_mut(name) {
        Some(row) => {
            row.files += 1;
            row.pages.add(pages);
        }
        None => {
            let row = Row { name: Cow::Owned(name.to_owned()), files: 1, pages: *pages };
            rows.insert(name.to_owned(), row);
        }
    };
    for file in &reading.files {
        match by {
            By::File => {}
            By::Dir => add(&folder(&file.name, depth), &file.pages),
            By::Filesystem => add(&file.file_system, &file.pages),
            By::Cgroup => groups(reading, file).for_each(|(name, pages)| add(&name, &pages)),
            By::Process => match reading.holders.get(&file.id) {
                Some(names) => names.iter().for_each(|name| add(name, &file.pages)),
                None => add("[no process]", &file.pages),
            },
        }
    }
    rows.into_values().collect()
}

/// The groups of a file; each with the size of the file.
fn groups(reading: &CacheReading, file: &FileUse) -> impl Iterator<Item = (String, PageUse)> {
    let size_bytes = file.pages.size_bytes;
    file.groups.iter().map(move |&(number, pages)| {
        let name = match (number, reading.groups.path(number)) {
            (0, _) => "[not charged or evicted]".to_owned(),
            (_, Some(path)) => path.display().to_string(),
            (_, None) => format!("[removed group {number}]"),
        };
        (name, PageUse { size_bytes, ..pages })
    })
}

/// The folder of a file, or the one above it whose path has `depth` names. Names in brackets count as one.
fn folder(name: &str, depth: Option<usize>) -> Cow<'_, str> {
    let folder = Path::new(name).parent().unwrap_or(Path::new(name));
    let Some(depth) = depth else { return folder.to_string_lossy() };
    let names = depth + usize::from(folder.has_root());
    let cut = folder.ancestors().find(|above| above.components().count() <= names);
    cut.unwrap_or(folder).to_string_lossy()
}

fn figure(pages: &PageUse, sort: SortBy) -> u64 {
    let gone = pages.evicted_bytes.unwrap_or(0) + pages.swapped_bytes.unwrap_or(0);
    match sort {
        SortBy::Resident => pages.resident_bytes,
        SortBy::Dirty => pages.dirty_bytes.unwrap_or(0) + pages.writeback_bytes.unwrap_or(0),
        SortBy::Evicted => gone,
        SortBy::Active => pages.marks.and_then(|m| m.active_bytes).unwrap_or(0),
        SortBy::Reads => pages.read_bytes_per_second.unwrap_or(0),
        SortBy::Hot => pages.heat.map_or(0, |heat| heat.hot_bytes),
        SortBy::Cold => pages.heat.map_or(0, |heat| heat.cold_bytes),
        SortBy::Size => pages.size_bytes,
        SortBy::Name => 0,
    }
}
