//! `/proc/PID/maps`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use isotherm_core::{AddrRange, Mapping, MappingKind};

use super::{ProcError, pid_file, read_lines};

/// The kernel allows 65,530 areas by default. A line has about 100 bytes, but the path of a file may have any length.
pub(super) const LIMIT: u64 = 32 << 20;
/// Bytes that are kept of a name: with the default number of areas, all fit in one frame of a record.
const MAX_NAME_BYTES: usize = 512;
/// The kernel opens no longer path.
const MAX_PATH_BYTES: usize = 4096;

/// Opens `/proc/PID/maps`. While it is open, no later address space can be at the same kernel address.
///
/// # Errors
/// If there is no such process, or it may not be read.
pub(crate) fn open_maps(root: &Path, pid: i32) -> Result<File, ProcError> {
    let path = pid_file(root, pid, "maps");
    File::open(&path).map_err(|e| ProcError::read(&path, e))
}

/// The mappings of `pid` that it may access. Areas without any permission (guards, reservations) and the
/// kernel's own pages are left out. Long names are cut.
///
/// # Errors
/// If the file cannot be read or parsed, or is too long.
pub fn mappings(root: &Path, pid: i32) -> Result<Vec<Mapping>, ProcError> {
    let path = pid_file(root, pid, "maps");
    let mut found = Mappings::default();
    read_lines(&path, LIMIT, |line| found.add(line))?;
    Ok(found.all)
}

/// The error of a list of mappings that is too long.
pub(crate) fn too_long(root: &Path, pid: i32) -> ProcError {
    ProcError::Long { path: pid_file(root, pid, "maps"), limit: LIMIT }
}

/// A part of a file that a process may execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCode {
    /// its addresses
    pub range: AddrRange,
    /// its offset in the file
    pub offset: u64,
    /// path of the file, as the process sees it
    pub path: Arc<str>,
}

/// The files that `pid` may execute. An area that has changed while the kernel wrote the text begins after the previous
/// one, as in [`parse_maps`].
///
/// # Errors
/// If the file cannot be read.
pub fn code(root: &Path, pid: i32) -> Result<Vec<FileCode>, ProcError> {
    let (mut names, mut all, mut covered) = (Names::default(), Vec::new(), 0);
    read_lines(&pid_file(root, pid, "maps"), LIMIT, |line| {
        let Some(mut area) = parse_line(line) else { return Some(()) };
        area.begin_after(&mut covered);
        all.extend(file_code(&area, &mut names).filter(|file| !file.range.is_empty()));
        Some(())
    })?;
    Ok(all)
}

fn file_code(a: &Area<'_>, names: &mut Names) -> Option<FileCode> {
    let is_file = a.name.starts_with('/') && a.name.len() <= MAX_PATH_BYTES;
    let is_code = a.permissions.contains('x') && is_file;
    is_code.then(|| FileCode { range: a.range, offset: a.offset, path: names.shared(a.name) })
}

/// Parses the text of `/proc/PID/maps`. The result is sorted and disjoint.
///
/// The kernel writes the text page by page, and areas may change in between. An area that has grown downwards
/// meanwhile begins before the end of the previous one. Then the earlier line holds.
///
/// # Errors
/// The first line that cannot be parsed.
pub fn parse_maps(text: &str) -> Result<Vec<Mapping>, String> {
    let mut found = Mappings::default();
    text.lines().try_for_each(|line| found.add(line).ok_or_else(|| line.to_owned()))?;
    Ok(found.all)
}

#[derive(Default)]
struct Mappings {
    all: Vec<Mapping>,
    names: Names,
    /// end of the last area
    covered: u64,
}

impl Mappings {
    /// Adds the area of a line. None if it cannot be parsed.
    fn add(&mut self, line: &str) -> Option<()> {
        let mut area = parse_line(line)?;
        area.begin_after(&mut self.covered);
        let accessible = area.permissions.starts_with(|c| c != '-')
            || area.permissions.get(1..3).is_some_and(|wx| wx != "--");
        // Addresses in the upper half belong to the kernel ([vsyscall]).
        if accessible && area.range.end <= 1 << 56 && !area.range.is_empty() {
            self.all.push(Mapping {
                range: area.range,
                kind: kind(&area),
                name: self.names.shared(cut(area.name)),
                unknown: None,
            });
        }
        Some(())
    }
}

/// The first [`MAX_NAME_BYTES`] bytes of a name, or a little less, so that no character is cut.
fn cut(name: &str) -> &str {
    let end = (0..=MAX_NAME_BYTES.min(name.len())).rev().find(|&at| name.is_char_boundary(at));
    &name[..end.unwrap_or(0)]
}

struct Area<'a> {
    range: AddrRange,
    permissions: &'a str,
    offset: u64,
    inode: &'a str,
    name: &'a str,
}

impl Area<'_> {
    /// Cuts off the part that the earlier areas have covered.
    fn begin_after(&mut self, covered: &mut u64) {
        let start = self.range.start.max(*covered).min(self.range.end);
        self.offset = self.offset.saturating_add(start - self.range.start);
        self.range.start = start;
        *covered = (*covered).max(self.range.end);
    }
}

/// `start-end perms offset dev inode   name`. The name extends to the end of the line, including blanks.
fn parse_line(line: &str) -> Option<Area<'_>> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let hex = |s| u64::from_str_radix(s, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let aligned = start % 4096 == 0 && end % 4096 == 0 && start <= end;
    aligned.then_some(Area {
        range: AddrRange::new(start, end),
        permissions,
        offset: hex(offset)?,
        inode,
        name: name.trim_start(),
    })
}

fn kind(area: &Area<'_>) -> MappingKind {
    match area.name {
        "[heap]" => MappingKind::Heap,
        name if name.starts_with("[stack") => MappingKind::Stack,
        // A name that the program set with prctl(PR_SET_VMA_ANON_NAME).
        name if name.starts_with("[anon") => MappingKind::Anonymous,
        name if name.starts_with('[') => MappingKind::Special,
        "" if area.inode == "0" => MappingKind::Anonymous,
        _ => MappingKind::File,
    }
}

/// Shares one allocation among equal names: a process has thousands of areas, and dozens of names.
#[derive(Default)]
struct Names(std::collections::HashMap<String, Arc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = name.into();
        self.0.insert(name.to_owned(), Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    /// Found by a review: two threads that mapped files ended the recording, because such areas overlap.
    #[test]
    fn code_that_grew_while_it_was_read_begins_after_what_was_read() {
        let text = "1000-3000 r-xp 00000000 fe:00 1 /a\n1000-5000 r-xp 00000000 fe:00 1 /a\n\
                    4000-5000 r-xp 00003000 fe:00 1 /a\n";
        let root = tree([("proc/7/maps", text)]);
        let all = code(root.path(), 7).unwrap();
        let parts: Vec<_> = all.iter().map(|c| (c.range.start, c.range.end, c.offset)).collect();
        assert_eq!(parts, [(0x1000, 0x3000, 0), (0x3000, 0x5000, 0x2000)]);
    }

    const TEXT: &str = "\
55d8a0000000-55d8a0021000 r--p 00000000 fe:00 1234                       /usr/bin/a b (deleted)
55d8a1000000-55d8a1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 
7f0000021000-7f0004000000 ---p 00000000 00:00 0 
7f1000000000-7f1000001000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
7f2000000000-7f2000001000 --xp 00000000 00:00 0                          [anon: cache]
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
7ffd00100000-7ffd00104000 r--p 00000000 00:00 0                          [vvar]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn areas_kinds_and_names() {
        let maps = parse_maps(TEXT).unwrap();
        let short: Vec<_> = maps.iter().map(|m| (m.kind, &*m.name)).collect();
        use MappingKind::{Anonymous, File, Heap, Special, Stack};
        assert_eq!(
            short,
            [
                (File, "/usr/bin/a b (deleted)"),
                (Heap, "[heap]"),
                (Anonymous, ""),
                (File, "/dev/zero (deleted)"),
                (Anonymous, "[anon: cache]"),
                (Stack, "[stack]"),
                (Special, "[vvar]"),
            ]
        );
        assert_eq!(maps[1].range, AddrRange::new(0x55d8_a100_0000, 0x55d8_a102_1000));
    }

    #[test]
    fn only_files_with_execute_permission_are_code() {
        let line = "55d8a0002000-55d8a0004000 r-xp 00002000 fe:00 1234  /usr/bin/a b\n";
        let text = TEXT.to_owned() + line;
        let mut names = Names::default();
        let areas = text.lines().filter_map(parse_line);
        let code: Vec<_> = areas.filter_map(|area| file_code(&area, &mut names)).collect();
        let range = AddrRange::new(0x55d8_a000_2000, 0x55d8_a000_4000);
        assert_eq!(code, [FileCode { range, offset: 0x2000, path: "/usr/bin/a b".into() }]);
    }

    /// From a process of which two threads mapped and unmapped memory.
    #[test]
    fn mappings_that_change_during_the_read_are_disjoint() {
        let area = |(start, end): (u64, u64)| format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n");
        let covered = [(0x1000, 0x5000), (0x3000, 0x9000), (0x4000, 0x6000), (0x9000, 0xa000)];
        let maps = parse_maps(&covered.map(area).concat()).unwrap();
        let ranges: Vec<_> = maps.iter().map(|m| (m.range.start, m.range.end)).collect();
        assert_eq!(ranges, [(0x1000, 0x5000), (0x5000, 0x9000), (0x9000, 0xa000)]);
    }

    #[test]
    fn nonsense_is_said() {
        for bad in ["x", "1000-2000", "1000-zz r--p 0 0 0 ", "1001-2000 r--p 0 00:00 0 "] {
            assert_eq!(parse_maps(bad), Err(bad.to_owned()));
        }
    }

    /// 65,000 areas with names of 5 KB took seconds and 540 MB, or more than a frame of a record may have.
    #[test]
    fn long_names_of_mapped_files_are_cut_and_a_long_list_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/7");
        std::fs::create_dir_all(&process).unwrap();
        let name = "/é".repeat(1500);
        let write = |areas: u64| {
            let line =
                |n: u64| format!("{:x}-{:x} r-xp 0 fe:00 1 {name}\n", n << 12, (n + 1) << 12);
            std::fs::write(process.join("maps"), (1..=areas).map(line).collect::<String>())
                .unwrap();
        };
        write(100);
        let found = mappings(root.path(), 7).unwrap();
        assert_eq!((found.len(), &*found[99].name), (100, &name[..MAX_NAME_BYTES - 1]));
        assert_eq!(code(root.path(), 7).unwrap().len(), 0, "a path that nobody can open");
        write(LIMIT / 4000);
        for read in [mappings(root.path(), 7).err(), code(root.path(), 7).err()] {
            assert!(matches!(read, Some(ProcError::Long { .. })), "{read:?}");
        }
    }

    #[test]
    fn our_own() {
        let maps = mappings("/".as_ref(), crate::walker::own_pid()).unwrap();
        assert!(maps.iter().any(|m| m.kind == MappingKind::Stack));
        assert!(maps.is_sorted_by(|a, b| a.range.end <= b.range.start));
    }
}
