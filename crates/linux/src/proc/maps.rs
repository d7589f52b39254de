//! `/proc/PID/maps`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use isotherm_core::{AddrRange, Mapping, MappingKind};

use super::{ProcError, pid_file, read_limited};

/// The kernel allows 65,530 areas by default; a line has less than 4,200 bytes.
const LIMIT: u64 = 256 << 20;

/// Opens `/proc/PID/maps`. While it is open, no later address space can be at the same kernel address.
///
/// # Errors
/// If there is no such process, or it may not be read.
pub(crate) fn open_maps(root: &Path, pid: i32) -> Result<File, ProcError> {
    let path = pid_file(root, pid, "maps");
    File::open(&path).map_err(|e| ProcError::read(&path, e))
}

/// The mappings of `pid` that it may access. Areas without any permission (guards, reservations) and the
/// kernel's own pages are left out.
///
/// # Errors
/// If the file cannot be read or parsed.
pub fn mappings(root: &Path, pid: i32) -> Result<Vec<Mapping>, ProcError> {
    let path = pid_file(root, pid, "maps");
    let text = read_limited(&path, LIMIT)?;
    parse_maps(&text).map_err(|line| ProcError::parse(&path, &line))
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

/// The files that `pid` may execute.
///
/// # Errors
/// If the file cannot be read.
pub fn code(root: &Path, pid: i32) -> Result<Vec<FileCode>, ProcError> {
    Ok(parse_code(&read_limited(&pid_file(root, pid, "maps"), LIMIT)?))
}

fn parse_code(text: &str) -> Vec<FileCode> {
    let mut names = Names::default();
    let areas = text.lines().filter_map(parse_line);
    let files = areas.filter(|a| a.permissions.contains('x') && a.name.starts_with('/'));
    let mut code =
        |a: Area<'_>| FileCode { range: a.range, offset: a.offset, path: names.shared(a.name) };
    files.map(&mut code).collect()
}

/// Parses the text of `/proc/PID/maps`. The result is sorted and disjoint.
///
/// The kernel writes the text page by page, and areas may change in between. An area that has grown downwards
/// meanwhile begins before the end of the previous one. Then the earlier line holds.
///
/// # Errors
/// The first line that cannot be parsed.
pub fn parse_maps(text: &str) -> Result<Vec<Mapping>, String> {
    let mut names = Names::default();
    let mut out = Vec::new();
    let mut covered = 0;
    for line in text.lines() {
        let mut area = parse_line(line).ok_or_else(|| line.to_owned())?;
        area.range.start = area.range.start.max(covered).min(area.range.end);
        covered = covered.max(area.range.end);
        let accessible = area.permissions.starts_with(|c| c != '-')
            || area.permissions.get(1..3).is_some_and(|wx| wx != "--");
        // Addresses in the upper half belong to the kernel ([vsyscall]).
        if accessible && area.range.end <= 1 << 56 && !area.range.is_empty() {
            out.push(Mapping {
                range: area.range,
                kind: kind(&area),
                name: names.shared(area.name),
                unknown: None,
            });
        }
    }
    Ok(out)
}

struct Area<'a> {
    range: AddrRange,
    permissions: &'a str,
    offset: u64,
    inode: &'a str,
    name: &'a str,
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
        let code = parse_code(&(TEXT.to_owned() + line));
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

    #[test]
    fn our_own() {
        let maps = mappings("/".as_ref(), crate::walker::own_pid()).unwrap();
        assert!(maps.iter().any(|m| m.kind == MappingKind::Stack));
        assert!(maps.is_sorted_by(|a, b| a.range.end <= b.range.start));
    }
}
