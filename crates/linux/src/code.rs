//! The files that a process executes, and the names of their functions.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};
use isotherm_core::{AddrRange, PAGE_SIZE};
use object::{Object, ObjectKind};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::process::geteuid;

use crate::elf::{CodeSegment, ElfFile, base, code_segments, demangled, variables};
use crate::elf_budget::{ElfBudget, ElfTables};
use crate::generated::{DumpBudget, GeneratedCode};
use crate::proc::{FileCode, ProcError, code, inner_pid, status_field};
use crate::sys::open_regular;

/// Maximum bytes that are read of all maps of generated code. In memory they need up to ten times as many.
const MAX_MAPS: u64 = 64 << 20;
/// Maximum number of files whose build ids are kept.
const MAX_IDS: usize = 1 << 16;

/// Longer build ids, in bytes, are none: linkers make 8, 16 or 20.
const MAX_BUILD_ID_BYTES: usize = 64;

/// A file with this content. A number of a deleted file may be that of another one later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct FileVersion {
    pub device: u64,
    pub inode: u64,
    pub len: u64,
    /// seconds and nanoseconds
    pub changed: (i64, i64),
}

impl FileVersion {
    pub fn of(file: &Metadata) -> Self {
        let changed = (file.ctime(), file.ctime_nsec());
        FileVersion { device: file.dev(), inode: file.ino(), len: file.len(), changed }
    }
}

/// Reads which files processes execute. It reads the build id of each file once.
#[derive(Default)]
pub struct CodeReader {
    build_ids: HashMap<FileVersion, Arc<str>>,
}

impl CodeReader {
    /// The files that `pid` may execute, each with its identity, as in [`isotherm_core::CodeMapping`].
    ///
    /// # Errors
    /// If the mappings of the process cannot be read.
    pub fn read(&mut self, root: &Path, pid: i32) -> Result<Vec<(FileCode, Arc<str>)>, ProcError> {
        let files = code(root, pid)?;
        let process = root.join(format!("proc/{pid}"));
        let mut id = once_for_each(|file| match is_dump(&file.path) {
            // A jitdump grows, and is no code itself.
            true => "".into(),
            false => self.build_id(open_mapped(&process, file)),
        });
        let with_id = |file: FileCode| {
            let id = id(&file);
            (file, id)
        };
        Ok(files.into_iter().map(with_id).collect())
    }

    fn build_id(&mut self, opened: io::Result<(File, Metadata)>) -> Arc<str> {
        // A file that cannot be read has no id that could be compared.
        let Ok((file, found)) = opened else { return "".into() };
        if self.build_ids.len() >= MAX_IDS {
            self.build_ids.clear();
        }
        let version = FileVersion::of(&found);
        Arc::clone(self.build_ids.entry(version).or_insert_with(|| id_of(file, &found)))
    }
}

/// Finds out something `of` each path once: a process may map one file 65,000 times.
pub(crate) fn once_for_each<T: Clone>(
    mut of: impl FnMut(&FileCode) -> T,
) -> impl FnMut(&FileCode) -> T {
    let mut known: HashMap<Arc<str>, T> = HashMap::new();
    move |file| match known.get(&file.path) {
        Some(known) => known.clone(),
        None => known.entry(Arc::clone(&file.path)).or_insert_with(|| of(file)).clone(),
    }
}

/// Opens a file that the process at `process` (`/proc/PID`) has mapped. Without the right to follow its link
/// (`CAP_SYS_ADMIN`), opens its path, where there may be no file (after a `chroot`) or another one (after an upgrade).
pub(crate) fn open_mapped(process: &Path, file: &FileCode) -> io::Result<(File, Metadata)> {
    let (start, end) = (file.range.start, file.range.end);
    open_with_metadata(&process.join(format!("map_files/{start:x}-{end:x}"))).or_else(|_| {
        open_with_metadata(&process.join("root").join(file.path.trim_start_matches('/')))
    })
}

/// Opens a regular file. The metadata are those of the opened file: another one may take its path at any time.
pub(crate) fn open_with_metadata(path: &Path) -> io::Result<(File, Metadata)> {
    let file = open_regular(path)?;
    let found = file.metadata()?;
    Ok((file, found))
}

/// The build id of the file at a path: see [`id_of`]. Empty if it is no file that can be read.
fn id_at(path: &Path) -> Arc<str> {
    open_with_metadata(path).map_or("".into(), |(file, found)| id_of(file, &found))
}

/// The build id of a file in hexadecimal digits. Without one, the size and the time of the last change stand for it; their
/// number of digits is odd, so that they are no build id.
fn id_of(file: File, found: &Metadata) -> Arc<str> {
    let without_id = || format!("{:017x}{:016x}", found.len(), found.mtime());
    build_id_of(&ElfFile::new(file)).unwrap_or_else(without_id).into()
}

fn build_id_of(elf: &ElfFile) -> Option<String> {
    let file = object::File::parse(elf).ok()?;
    let id = file.build_id().ok().flatten().filter(|id| id.len() <= MAX_BUILD_ID_BYTES)?;
    Some(id.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// A function at an address of code, and its line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// demangled name
    pub name: String,
    /// `file:line`, if there is debug information
    pub line: Option<String>,
}

/// Finds functions in binaries, their separate debug files, and the maps of compilers that generate code while
/// a program runs (`/tmp/perf-PID.map`, jitdump).
pub struct Functions {
    symbolizer: Symbolizer,
    /// whether the file at a path has the expected build id, or size and time
    checked: HashMap<(PathBuf, Arc<str>), bool>,
    /// By file, as blazesym keeps them: a file is always read at the path at which it was checked, beside which its debug
    /// information is.
    readable: HashMap<FileKey, (PathBuf, Readable)>,
    elf_left: ElfBudget,
    /// by process and dump
    generated: HashMap<(u32, Option<PathBuf>), GeneratedCode>,
    /// bytes that may still be read of maps of generated code
    maps_left: u64,
    dumps_left: DumpBudget,
    variables: HashMap<FileKey, FileVariables>,
}

/// Device, inode, size and time of the last change, in seconds and ns.
type FileKey = (u64, u64, u64, i64, i64);

fn file_key(found: &Metadata) -> FileKey {
    (found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec())
}

/// What blazesym may read of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readable {
    Nothing,
    Symbols,
    SymbolsAndDebugInfo,
}

/// The global variables of a file, at addresses in the file.
#[derive(Default)]
struct FileVariables {
    segments: Vec<CodeSegment>,
    all: Vec<(Range<u64>, String)>,
}

impl FileVariables {
    /// None if the budget does not permit the symbols of the file. It is smaller afterwards.
    fn read(path: &Path, left: &mut ElfBudget) -> Option<Self> {
        ElfTables::read(path).filter(|tables| left.permits_symbols(tables))?;
        let elf = ElfFile::open(path).ok()?;
        let file = object::File::parse(&elf).ok()?;
        Some(FileVariables { segments: code_segments(&file), all: variables(&file, PAGE_SIZE) })
    }
}

impl Default for Functions {
    fn default() -> Self {
        Functions {
            // A file that takes the place of another one later was not checked. blazesym would demangle to any length.
            symbolizer: Symbolizer::builder()
                .enable_auto_reload(false)
                .enable_demangling(false)
                .build(),
            checked: HashMap::new(),
            readable: HashMap::new(),
            elf_left: ElfBudget::default(),
            generated: HashMap::new(),
            maps_left: MAX_MAPS,
            dumps_left: DumpBudget::default(),
            variables: HashMap::new(),
        }
    }
}

impl Functions {
    /// The functions at `offset` of the file at `path`: the innermost inlined function first, and last the
    /// function that contains it. None if the file is missing, has another build id, or has no symbol there.
    pub fn in_file(&mut self, path: &Path, build_id: &Arc<str>, offset: u64) -> Vec<Function> {
        if !self.is_same(path, build_id) {
            return Vec::new();
        }
        let Ok(found) = path.metadata() else { return Vec::new() };
        let left = &mut self.elf_left;
        let file = self.readable.entry(file_key(&found));
        let (path, readable) = file.or_insert_with(|| (path.to_owned(), Readable::of(path, left)));
        if *readable == Readable::Nothing {
            return Vec::new();
        }
        let mut elf = Elf::new(&*path);
        elf.debug_syms = *readable == Readable::SymbolsAndDebugInfo;
        let source = Source::Elf(elf);
        let found = self.symbolizer.symbolize_single(&source, Input::FileOffset(offset));
        let Ok(Symbolized::Sym(found)) = found else { return Vec::new() };
        let outer = (&*found.name, found.code_info.as_deref());
        let inlined = found.inlined.iter().map(|f| (&*f.name, f.code_info.as_ref()));
        // blazesym gives each function the place in it; the functions are nested outside in.
        let mut all: Vec<Function> = std::iter::once(outer)
            .chain(inlined)
            .map(|(name, at)| Function { name: demangled(name), line: at.and_then(line) })
            .collect();
        all.reverse();
        all
    }

    /// The global variables of at least a page of the file at `path`, whose code at `offset` is mapped at `start`:
    /// addresses, in ascending order, and names. None if the file is missing, has another build id, or has no symbols.
    pub fn variables(
        &mut self,
        path: &Path,
        build_id: &Arc<str>,
        start: u64,
        offset: u64,
    ) -> Vec<(AddrRange, String)> {
        if !self.is_same(path, build_id) {
            return Vec::new();
        }
        let Ok(found) = path.metadata() else { return Vec::new() };
        let left = &mut self.elf_left;
        let read = || FileVariables::read(path, left).unwrap_or_default();
        let file = self.variables.entry(file_key(&found)).or_insert_with(read);
        let Some(base) = base(&file.segments, start, offset) else { return Vec::new() };
        let moved = |(at, name): &(Range<u64>, String)| {
            (AddrRange::new(at.start.wrapping_add(base), at.end.wrapping_add(base)), name.clone())
        };
        let mut all: Vec<_> = file.all.iter().map(moved).collect();
        // Addresses of a forged file may wrap.
        all.sort_by_key(|(range, _)| range.start);
        all
    }

    /// Whether it is a regular file with this build id. A record may be forged, and name a pipe.
    fn is_same(&mut self, path: &Path, build_id: &Arc<str>) -> bool {
        let same = || !build_id.is_empty() && *id_at(path) == **build_id;
        *self.checked.entry((path.to_owned(), Arc::clone(build_id))).or_insert_with(same)
    }

    /// The generated function at `address` of process `pid`, if its compiler has written a map: into `/tmp`, or if the
    /// process runs in a container, into the `/tmp` there. Or it has written a dump ([`is_dump`]), at a path below a
    /// directory.
    pub fn generated(
        &mut self,
        root: &Path,
        pid: u32,
        dump: Option<(&Path, &str)>,
        address: u64,
    ) -> Option<Function> {
        let mut read = || {
            let inside = root.join(format!("proc/{pid}/root"));
            let own = inner_pid(root, pid).map(|inner| (&*inside, inner));
            let mut maps = own.into_iter().chain([(root, pid)]);
            let (writers, left) = (writers(root, pid), self.maps_left);
            let read = |(root, pid)| read_map(root, pid, &writers, left).ok();
            let text = maps.find_map(read).unwrap_or_default();
            self.maps_left -= text.len() as u64;
            let mut code = GeneratedCode::default();
            code.read_map(&String::from_utf8_lossy(&text));
            let open = |(below, path)| open_written(below, path, &writers).ok();
            if let Some(dump) = dump.and_then(open) {
                code.read_dump(&mut BufReader::new(dump), &mut self.dumps_left);
            }
            code
        };
        let key = (pid, dump.map(|(below, path)| below.join(path.trim_start_matches('/'))));
        let code = self.generated.entry(key).or_insert_with(&mut read);
        Some(Function { name: code.at(address)?.to_owned(), line: None })
    }
}

impl Readable {
    /// What the budget permits of the file at `path`. It is smaller afterwards.
    fn of(path: &Path, left: &mut ElfBudget) -> Self {
        match ElfTables::read(path) {
            Some(tables) if left.permits_symbols(&tables) => {
                match has_permitted_debug_files(path, left) && left.permits_unpacking(&tables) {
                    true => Readable::SymbolsAndDebugInfo,
                    false => Readable::Symbols,
                }
            }
            _ => Readable::Nothing,
        }
    }
}

/// Whether blazesym may read the other files that it would read for the file at `path`, or they are missing. It opens
/// whatever the file names, and would wait for the writer of a pipe. Those below `/usr/lib/debug` belong to the system.
fn has_permitted_debug_files(path: &Path, left: &mut ElfBudget) -> bool {
    let mut package = path.as_os_str().to_owned();
    package.push(".dwp");
    let package = Path::new(&package);
    let Ok(place) = path.canonicalize() else { return false };
    let is_package_fine =
        !package.exists() || ElfTables::read(package).is_some_and(|t| left.permits(&t));
    let is_sibling_fine = |link: &Path| {
        let sibling = place.with_file_name(link);
        let mut is_permitted = |t| left.permits_checksum(&t) && left.permits(&t);
        !sibling.exists()
            || refers_only_to(&sibling, |_| true)
                && ElfTables::read(&sibling).is_some_and(&mut is_permitted)
    };
    is_package_fine && refers_only_to(path, is_sibling_fine)
}

/// Whether an ELF file refers to no other file with debug information but one in its folder that is `fine`. It is no object
/// file, whose relocations blazesym would read.
fn refers_only_to(path: &Path, is_fine: impl FnOnce(&Path) -> bool) -> bool {
    let Ok(elf) = ElfFile::open(path) else { return false };
    let Ok(file) = object::File::parse(&elf) else { return false };
    let has = |name| file.section_by_name(name).is_some();
    let Ok(link) = file.gnu_debuglink() else { return false };
    let link = link.map(|(name, _)| Path::new(OsStr::from_bytes(name)));
    let is_name = |link: &Path| link.file_name() == Some(link.as_os_str());
    file.kind() != ObjectKind::Relocatable
        && !has(".gnu_debugaltlink")
        && !has(".debug_sup")
        && link.is_none_or(|link| is_name(link) && is_fine(link))
}

/// Whether an executed file is a jitdump: `jit-PID.dump`, of which a program maps a part so that profilers find it.
#[must_use]
pub fn is_dump(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let pid = name.strip_prefix("jit-").and_then(|rest| rest.strip_suffix(".dump"));
    pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
}

fn line(at: &CodeInfo<'_>) -> Option<String> {
    Some(format!("{}:{}", at.file.to_string_lossy(), at.line?))
}

fn perf_map(pid: u32) -> String {
    format!("tmp/perf-{pid}.map")
}

/// The users whose maps of `pid` are believed: anyone may create such a file for a process of another user. They are
/// root, the user of this process, and those of `pid` while it lives.
fn writers(root: &Path, pid: u32) -> Vec<u32> {
    let uids = status_field(root, pid.cast_signed(), "Uid:").ok().flatten().unwrap_or_default();
    let uids = uids.split_whitespace().filter_map(|uid| uid.parse().ok());
    [0, geteuid().as_raw()].into_iter().chain(uids).collect()
}

/// Reads at most `limit` bytes of the map of `pid` below `root`.
fn read_map(root: &Path, pid: u32, writers: &[u32], limit: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    open_written(root, &perf_map(pid), writers)?.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

/// Opens a regular file of one of the `writers` below `root`, where links lead to no place outside of `root`. It follows no
/// link in the place of the file.
fn open_written(root: &Path, path: &str, writers: &[u32]) -> io::Result<File> {
    let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = File::from(openat2(root, path, flags, Mode::empty(), resolve)?);
    if !writers.contains(&found.metadata()?.uid()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    open_regular(format!("/proc/self/fd/{}", found.as_raw_fd()).as_ref())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use object::elf::{SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB, SectionFlags};

    use super::*;
    use crate::elf::tests::{Section, with_section, with_sections};
    use crate::elf_budget::tests::packed;
    use crate::generated;
    use crate::sys::with_other_kinds;
    use crate::walker::own_pid;

    #[inline(never)]
    fn a_known_function() -> u64 {
        std::hint::black_box(7)
    }

    /// A process could make the recorder open its file 130,000 times, which takes seconds.
    #[test]
    fn a_file_that_is_mapped_often_is_opened_once() {
        let file = |page: u64, path: &str| {
            let range = AddrRange::new(page << 12, (page + 1) << 12);
            FileCode { range, offset: 0, path: path.into() }
        };
        let files: Vec<FileCode> =
            (0..65_000).map(|page| file(page, if page % 2 == 0 { "/a" } else { "/b" })).collect();
        let mut asked = Vec::new();
        let mut name = once_for_each(|file| {
            asked.push(file.path.to_string());
            file.path.to_string()
        });
        assert!(files.iter().all(|file| *name(file) == *file.path));
        drop(name);
        assert_eq!(asked, ["/a", "/b"]);
    }

    #[test]
    fn a_function_of_this_program_has_its_name_and_line() {
        let address = a_known_function as fn() -> u64 as usize as u64;
        assert_eq!(a_known_function(), 7);
        let code = CodeReader::default().read("/".as_ref(), own_pid()).unwrap();
        let (file, id) = code.iter().find(|(f, _)| f.range.contains(address)).unwrap();
        assert!(id.len() >= 16, "{id}");
        let offset = address - file.range.start + file.offset;
        let mut functions = Functions::default();
        let found = functions.in_file(file.path.as_ref().as_ref(), id, offset);
        let last = found.last().unwrap();
        assert!(last.name.ends_with("code::tests::a_known_function"), "{last:?}");
        // A build without debug information has no lines.
        assert!(last.line.as_ref().is_none_or(|l| l.contains("code.rs:")), "{last:?}");
        // Another build of the file would give wrong names.
        let other: Arc<str> = "00ff".into();
        assert_eq!(functions.in_file(file.path.as_ref().as_ref(), &other, offset), []);
        assert_eq!(functions.in_file(file.path.as_ref().as_ref(), &"".into(), offset), []);

        // Without a build id, as from some linkers, only the same file will do.
        let mut content = std::fs::read(&*file.path).unwrap();
        let digits = |at: usize| u8::from_str_radix(&id[at..at + 2], 16).unwrap();
        let note: Vec<u8> = (0..id.len() / 2).map(|n| digits(2 * n)).collect();
        let note = [b"GNU\0", &*note].concat();
        let at = content.windows(note.len()).position(|bytes| bytes == note).unwrap();
        content[at] = b'X';
        let copy = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(copy.path(), content).unwrap();
        let id = id_at(copy.path());
        assert_eq!(id.len(), 33);
        assert_eq!(functions.in_file(copy.path(), &id, offset).last(), Some(last));
        copy.as_file().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(Functions::default().in_file(copy.path(), &id, offset), []);
    }

    /// A deleted file and a new one with its number had the same build id, which was read once.
    #[test]
    fn the_id_of_a_file_is_that_of_its_content() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut reader = CodeReader::default();
        let mut id_with = |content: &str| {
            std::fs::write(file.path(), content).unwrap();
            reader.build_id(open_with_metadata(file.path()))
        };
        let first = id_with("a");
        assert_ne!(id_with("another"), first);
        assert!(!first.is_empty());
    }

    /// A pipe with the name of a file that a process executes, or that a forged record names, hung isotherm.
    #[test]
    fn a_pipe_in_the_place_of_a_file_hangs_nothing() {
        with_other_kinds(|path| {
            let mut functions = Functions::default();
            assert_eq!(&*id_at(path), "");
            assert_eq!(functions.in_file(path, &"".into(), 0), []);
            assert_eq!(functions.variables(path, &"".into(), 0, 0), []);
        });
    }

    /// A pipe in the place of a file with debug information hung `report code`.
    #[test]
    fn a_pipe_in_the_place_of_debug_information_hangs_nothing() {
        with_other_kinds(|path| {
            let beside = |name: &str| path.with_file_name(name);
            let program = path.with_extension("program");
            symlink(std::env::current_exe().unwrap(), &program).unwrap();
            symlink(path, path.with_extension("program.dwp")).unwrap();
            let address = a_known_function as fn() -> u64 as usize as u64;
            let code = CodeReader::default().read("/".as_ref(), own_pid()).unwrap();
            let (file, id) = code.iter().find(|(f, _)| f.range.contains(address)).unwrap();
            let offset = address - file.range.start + file.offset;
            let found = Functions::default().in_file(&program, id, offset);
            assert!(found.last().unwrap().name.contains("a_known_function"), "{found:?}");

            let with = |name: &'static str, link: &str| {
                let section = [link.as_bytes(), &[0; 8][link.len() % 4..]].concat();
                std::fs::write(beside("elf"), with_section(name, SectionFlags(0), &section))
                    .unwrap();
                has_permitted_debug_files(&beside("elf"), &mut ElfBudget::default())
            };
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(!with(".gnu_debuglink", name), "{name}");
            assert!(!with(".gnu_debuglink", "../a") && !with(".gnu_debuglink", "/a"));
            assert!(!with(".gnu_debugaltlink", "a") && !with(".debug_sup", "a"));
            assert!(with(".gnu_debuglink", "missing") && with(".gnu_debuglink", "elf"));
        });
    }

    /// The symbols of a library with one function, `known`, at 0x10 to 0x20.
    fn symbols() -> [Section; 2] {
        let flags = SectionFlags(0);
        // Name, global function, section; address; size.
        let symbol = [1 | (0x12 << 32) | (1 << 48), 0x10, 0x10].map(u64::to_le_bytes).concat();
        let content = [vec![0; 24], symbol].concat();
        let table = Section { name: ".symtab", kind: SHT_SYMTAB, flags, content };
        let content = b"\0known\0".to_vec();
        [table, Section { name: ".strtab", kind: SHT_STRTAB, flags, content }]
    }

    fn name_in(path: &Path) -> Option<String> {
        Functions::default().in_file(path, &id_at(path), 0x18).pop().map(|function| function.name)
    }

    /// Found by an audit: a program ended `service status` of root by the size that a section states, here and in the files
    /// that blazesym finds beside it.
    #[test]
    fn debug_information_that_unpacks_to_too_much_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let [program, package, sibling] =
            ["program", "program.dwp", "sibling"].map(|name| dir.path().join(name));
        let [table, strings] = symbols();
        let with = |other| with_sections(&[table.clone(), strings.clone(), other]);
        let bomb = with(packed(10, 1 << 63));
        let content = b"sibling\0\0\0\0\0".to_vec();
        let (kind, flags) = (SHT_PROGBITS, SectionFlags(0));
        let linked = with(Section { name: ".gnu_debuglink", kind, flags, content });
        let read = |path: &Path, content: &[u8]| {
            std::fs::write(path, content).unwrap();
            let readable = Readable::of(&program, &mut ElfBudget::default());
            (readable, name_in(&program))
        };
        let known = Some("known".to_owned());
        assert_eq!(read(&program, &linked), (Readable::SymbolsAndDebugInfo, known.clone()));
        assert_eq!(read(&sibling, &bomb), (Readable::Symbols, known.clone()));
        // Its checksum is not the stated one, so blazesym finds no names.
        assert_eq!(read(&sibling, &linked), (Readable::SymbolsAndDebugInfo, None));
        assert_eq!(read(&package, &bomb), (Readable::Symbols, known.clone()));
        std::fs::remove_file(package).unwrap();
        assert_eq!(read(&program, &bomb), (Readable::Symbols, known));
    }

    /// Found by a review: at its other path, a file was read with the debug information beside the first one, which was not
    /// checked.
    #[test]
    fn a_file_is_read_at_the_path_at_which_it_was_checked() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name).join("program"));
        let [first, second] = &paths;
        paths.iter().for_each(|path| std::fs::create_dir(path.parent().unwrap()).unwrap());
        let content = b"sibling\0\0\0\0\0".to_vec();
        let (kind, flags) = (SHT_PROGBITS, SectionFlags(0));
        let link = Section { name: ".gnu_debuglink", kind, flags, content };
        let [table, strings] = symbols();
        std::fs::write(first, with_sections(&[table, strings, link])).unwrap();
        std::fs::hard_link(first, second).unwrap();
        let bomb = with_sections(&[packed(10, 1 << 63)]);
        std::fs::write(first.with_file_name("sibling"), bomb).unwrap();
        let mut functions = Functions::default();
        for path in &paths {
            assert_eq!(functions.in_file(path, &id_at(path), 0x18)[0].name, "known");
        }
        let readable: Vec<_> = functions.readable.values().collect();
        assert_eq!(readable, [&(first.clone(), Readable::Symbols)]);
    }

    /// Found by an audit: a sparse file needs no space on the disk for any number of symbols.
    #[test]
    fn a_file_with_too_many_symbols_has_no_names() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut content = with_sections(&symbols());
        std::fs::write(file.path(), &content).unwrap();
        assert_eq!(name_in(file.path()).as_deref(), Some("known"));
        let size = &mut content[192 + 32..][..8];
        size.copy_from_slice(&(24_u64 << 35).to_le_bytes());
        std::fs::write(file.path(), &content).unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        assert_eq!(name_in(file.path()), None);
    }

    /// Found by a review: variables were read without a budget, and again at each path of a file.
    #[test]
    fn variables_share_the_budget_of_symbols() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link, copy] = ["file", "link", "copy"].map(|name| dir.path().join(name));
        let [mut table, strings] = symbols();
        // The symbol is a variable of a page.
        table.content[24 + 4] = 0x11;
        table.content[24 + 16..].copy_from_slice(&PAGE_SIZE.to_le_bytes());
        let budget = table.content.len() as u64;
        let mut content = with_sections(&[table, strings]);
        // Section 2 has the names of section 1.
        content[192 + 40] = 2;
        std::fs::write(&file, content).unwrap();
        std::fs::hard_link(&file, &link).unwrap();
        std::fs::copy(&file, &copy).unwrap();
        let mut functions = Functions::default();
        functions.elf_left.symbols = budget;
        let number = |path: PathBuf| functions.variables(&path, &id_at(&path), 0, 0).len();
        assert_eq!([file, link, copy].map(number), [1, 1, 0]);
    }

    /// blazesym would read the relocations of an object file again and again.
    #[test]
    fn an_object_file_has_symbols_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut content = with_sections(&symbols());
        content[16] = 1;
        std::fs::write(file.path(), &content).unwrap();
        let readable = Readable::of(file.path(), &mut ElfBudget::default());
        assert_eq!(readable, Readable::Symbols);
    }

    #[test]
    fn generated_functions_come_from_the_map_of_their_process() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("tmp")).unwrap();
        let text = "7f00 10 old\n7f20 8 LazyCompile:~b c.js:1\nnonsense\n7f00 10 new\n";
        std::fs::write(root.path().join(perf_map(7)), text).unwrap();
        // Process 9 is process 2 of a container.
        let process = root.path().join("proc/9");
        std::fs::create_dir_all(process.join("root/tmp")).unwrap();
        std::fs::write(process.join("status"), "Pid:\t9\nNSpid:\t9\t2\n").unwrap();
        std::fs::write(process.join("root").join(perf_map(2)), "7f00 10 inner\n").unwrap();
        let mut functions = Functions::default();
        let mut at =
            |pid, address| functions.generated(root.path(), pid, None, address).map(|f| f.name);
        assert_eq!(at(7, 0x7f0f).as_deref(), Some("new"));
        assert_eq!(at(7, 0x7f20).as_deref(), Some("LazyCompile:~b c.js:1"));
        assert_eq!((at(7, 0x7f10), at(7, 0x7e00), at(8, 0x7f00)), (None, None, None));
        assert_eq!(at(9, 0x7f00).as_deref(), Some("inner"));
        // Each of many processes had a map of 64 MiB, and the report needed eight times as much memory for each.
        let read = (text.len() + "7f00 10 inner\n".len()) as u64;
        assert_eq!(functions.maps_left, MAX_MAPS - read, "of all maps together");
        functions.maps_left = 8;
        std::fs::write(root.path().join(perf_map(10)), "1 1 abcd\n").unwrap();
        assert_eq!(functions.generated(root.path(), 10, None, 1).unwrap().name, "abcd");
        std::fs::write(root.path().join(perf_map(11)), "1 1 abcd\n").unwrap();
        assert_eq!(functions.generated(root.path(), 11, None, 1), None);
    }

    #[test]
    fn generated_functions_come_from_the_dump_of_their_process() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("tmp")).unwrap();
        std::fs::write(root.path().join(perf_map(7)), "7f00 10 new\n").unwrap();
        let mut functions = Functions::default();
        let dump = root.path().join("jit-7.dump");
        std::fs::write(&dump, generated::tests::dump()).unwrap();
        let at_dump = Some((root.path(), "/jit-7.dump"));
        let mut at = |address| functions.generated(root.path(), 7, at_dump, address);
        let names = [0x110, 0x7f0f].map(|address| at(address).map(|f| f.name));
        assert_eq!(names, [Some("new".to_owned()), Some("new".to_owned())]);
        assert!(is_dump("/home/a/jit-7.dump"));
        assert!(!is_dump("/jit-x.dump") && !is_dump("/jit-7.dump (deleted)"));
    }

    /// Found by an audit: isotherm followed a link in the place of a dump, so that root read any file to its end.
    #[test]
    fn a_dump_of_another_user_names_no_function() {
        let root = tempfile::tempdir().unwrap();
        let dump = root.path().join("jit-7.dump");
        let at = |path: &str| {
            let mut functions = Functions::default();
            functions.generated(root.path(), 7, Some((root.path(), path)), 0x110).is_some()
        };
        std::fs::write(&dump, generated::tests::dump()).unwrap();
        symlink("jit-7.dump", root.path().join("jit-8.dump")).unwrap();
        assert!(at("/jit-7.dump") && !at("/jit-8.dump"), "no link");
        if !geteuid().is_root() {
            assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "other owners take root");
            return;
        }
        chown(&dump, Some(65534), None).unwrap();
        assert!(!at("/jit-7.dump"), "of another user");
    }

    /// A forged record with 100 targets and dumps needed 250 MB for each.
    #[test]
    fn the_dumps_of_all_processes_share_a_budget() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("jit-7.dump"), generated::tests::dump()).unwrap();
        let mut functions = Functions::default();
        functions.dumps_left.records = 10;
        let mut at = |pid| {
            let dump = Some((root.path(), "/jit-7.dump"));
            functions.generated(root.path(), pid, dump, 0x110).is_some()
        };
        assert_eq!([at(7), at(8), at(9)], [true, true, false]);
    }

    /// Found by an audit: any user could name the functions of any process, by a file or a link in `/tmp`.
    #[test]
    fn a_map_of_another_user_names_no_function() {
        let root = tempfile::tempdir().unwrap();
        for (dir, map) in [("tmp", perf_map(1)), ("elsewhere", perf_map(2))] {
            std::fs::create_dir(root.path().join(dir)).unwrap();
            std::fs::write(root.path().join(map.replace("tmp", dir)), "7f00 10 known\n").unwrap();
        }
        let at = |pid| {
            let found = Functions::default().generated(root.path(), pid, None, 0x7f00);
            found.is_some_and(|f| f.name == "known")
        };
        symlink("../elsewhere/perf-2.map", root.path().join(perf_map(2))).unwrap();
        assert!(at(1) && !at(2), "no link");
        // A container may link its /tmp, but only to a place of its own.
        std::fs::rename(root.path().join("tmp"), root.path().join("moved")).unwrap();
        symlink("/moved", root.path().join("tmp")).unwrap();
        assert!(at(1), "below its own root");
        if !geteuid().is_root() {
            assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "other owners take root");
            return;
        }
        chown(root.path().join("moved/perf-1.map"), Some(65534), None).unwrap();
        assert!(!at(1), "of another user");
        std::fs::create_dir_all(root.path().join("proc/1")).unwrap();
        std::fs::write(root.path().join("proc/1/status"), "Uid:\t0\t65534\t0\t0\n").unwrap();
        assert!(at(1), "of the user of the process");
    }
}
