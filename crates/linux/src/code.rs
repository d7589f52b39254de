//! The files that a process executes, and the names of their functions.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};
use isotherm_core::{AddrRange, PAGE_SIZE};
use object::ReadCache;

use crate::elf::{CodeSegment, base, code_segments, variables};
use crate::generated::{GeneratedCode, MAX_MAP};
use crate::proc::{FileCode, ProcError, code, inner_pid};
use crate::sys::{open_regular, read_regular};

/// Reads which files processes execute. It reads the build id of each file once.
#[derive(Default)]
pub struct CodeReader {
    /// by device and inode
    build_ids: HashMap<(u64, u64), Arc<str>>,
}

impl CodeReader {
    /// The files that `pid` may execute, each with its GNU build id in hexadecimal digits, which is empty if
    /// there is none.
    ///
    /// # Errors
    /// If the mappings of the process cannot be read.
    pub fn read(&mut self, root: &Path, pid: i32) -> Result<Vec<(FileCode, Arc<str>)>, ProcError> {
        let files = code(root, pid)?;
        let below = root.join(format!("proc/{pid}/root"));
        let mut with_id = |file: FileCode| {
            let id = self.build_id(&below.join(file.path.trim_start_matches('/')));
            (file, id)
        };
        Ok(files.into_iter().map(&mut with_id).collect())
    }

    fn build_id(&mut self, path: &Path) -> Arc<str> {
        // A file that was replaced or cannot be read has no id that could be compared.
        let Ok(file) = path.metadata() else { return "".into() };
        let id = self.build_ids.entry((file.dev(), file.ino())).or_insert_with(|| id_of(path));
        Arc::clone(id)
    }
}

fn id_of(path: &Path) -> Arc<str> {
    let id = read_elf_build_id(path).ok().flatten();
    id.iter()
        .flat_map(|id| id.iter())
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
        .into()
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
    /// whether the file at a path has the expected build id
    checked: HashMap<(PathBuf, Arc<str>), bool>,
    /// by process and dump
    generated: HashMap<(u32, Option<PathBuf>), GeneratedCode>,
    variables: HashMap<PathBuf, Arc<FileVariables>>,
}

/// The global variables of a file, at addresses in the file.
#[derive(Default)]
struct FileVariables {
    segments: Vec<CodeSegment>,
    all: Vec<(Range<u64>, String)>,
}

impl FileVariables {
    fn read(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        Some(FileVariables { segments: code_segments(&file), all: variables(&file, PAGE_SIZE) })
    }
}

impl Default for Functions {
    fn default() -> Self {
        Functions {
            symbolizer: Symbolizer::new(),
            checked: HashMap::new(),
            generated: HashMap::new(),
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
        let source = Source::Elf(Elf::new(path));
        let found = self.symbolizer.symbolize_single(&source, Input::FileOffset(offset));
        let Ok(Symbolized::Sym(found)) = found else { return Vec::new() };
        let outer = (&*found.name, found.code_info.as_deref());
        let inlined = found.inlined.iter().map(|f| (&*f.name, f.code_info.as_ref()));
        // blazesym gives each function the place in it; the functions are nested outside in.
        let mut all: Vec<Function> = std::iter::once(outer)
            .chain(inlined)
            .map(|(name, at)| Function { name: name.to_owned(), line: at.and_then(line) })
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
        let read = || FileVariables::read(path).unwrap_or_default().into();
        let file = self.variables.entry(path.to_owned()).or_insert_with(read);
        let Some(base) = base(&file.segments, start, offset) else { return Vec::new() };
        let moved = |(at, name): &(Range<u64>, String)| {
            (AddrRange::new(at.start.wrapping_add(base), at.end.wrapping_add(base)), name.clone())
        };
        file.all.iter().map(moved).collect()
    }

    /// Whether the file has this build id.
    fn is_same(&mut self, path: &Path, build_id: &Arc<str>) -> bool {
        let same = || build_id.is_empty() || *id_of(path) == **build_id;
        *self.checked.entry((path.to_owned(), Arc::clone(build_id))).or_insert_with(same)
    }

    /// The generated function at `address` of process `pid`, if its compiler has written a map: into `/tmp`, or if the
    /// process runs in a container, into the `/tmp` there. Or it has written a `dump` ([`is_dump`]).
    pub fn generated(
        &mut self,
        root: &Path,
        pid: u32,
        dump: Option<&Path>,
        address: u64,
    ) -> Option<Function> {
        let read = || {
            let inside = root.join(format!("proc/{pid}/root"));
            let own = inner_pid(root, pid).map(|inner| perf_map(&inside, inner));
            let mut paths = own.into_iter().chain([perf_map(root, pid)]);
            let text = paths.find_map(|path| read_regular(&path, MAX_MAP).ok()).unwrap_or_default();
            let mut code = GeneratedCode::default();
            code.read_map(&String::from_utf8_lossy(&text));
            if let Some(dump) = dump.and_then(|path| open_regular(path).ok()) {
                code.read_dump(&mut BufReader::new(dump));
            }
            code
        };
        let code = self.generated.entry((pid, dump.map(Path::to_owned))).or_insert_with(read);
        Some(Function { name: code.at(address)?.to_owned(), line: None })
    }
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

fn perf_map(root: &Path, pid: u32) -> PathBuf {
    root.join(format!("tmp/perf-{pid}.map"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated;
    use crate::walker::own_pid;

    #[inline(never)]
    fn a_known_function() -> u64 {
        std::hint::black_box(7)
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
        assert!(last.name.contains("a_known_function"), "{last:?}");
        assert!(last.line.as_ref().unwrap().contains("code.rs:"), "{last:?}");
        // Another build of the file would give wrong names.
        let other: Arc<str> = "00ff".into();
        assert_eq!(functions.in_file(file.path.as_ref().as_ref(), &other, offset), []);
    }

    #[test]
    fn generated_functions_come_from_the_map_of_their_process() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("tmp")).unwrap();
        let text = "7f00 10 old\n7f20 8 LazyCompile:~b c.js:1\nnonsense\n7f00 10 new\n";
        std::fs::write(perf_map(root.path(), 7), text).unwrap();
        // Process 9 is process 2 of a container.
        let process = root.path().join("proc/9");
        std::fs::create_dir_all(process.join("root/tmp")).unwrap();
        std::fs::write(process.join("status"), "Pid:\t9\nNSpid:\t9\t2\n").unwrap();
        std::fs::write(perf_map(&process.join("root"), 2), "7f00 10 inner\n").unwrap();
        let mut functions = Functions::default();
        let mut at =
            |pid, address| functions.generated(root.path(), pid, None, address).map(|f| f.name);
        assert_eq!(at(7, 0x7f0f).as_deref(), Some("new"));
        assert_eq!(at(7, 0x7f20).as_deref(), Some("LazyCompile:~b c.js:1"));
        assert_eq!((at(7, 0x7f10), at(7, 0x7e00), at(8, 0x7f00)), (None, None, None));
        assert_eq!(at(9, 0x7f00).as_deref(), Some("inner"));
        let dump = root.path().join("jit-7.dump");
        std::fs::write(&dump, generated::tests::dump()).unwrap();
        let mut at = |address| functions.generated(root.path(), 7, Some(&dump), address);
        let names = [0x110, 0x7f0f].map(|address| at(address).map(|f| f.name));
        assert_eq!(names, [Some("new".to_owned()), Some("new".to_owned())]);
        assert!(is_dump("/home/a/jit-7.dump"));
        assert!(!is_dump("/jit-x.dump") && !is_dump("/jit-7.dump (deleted)"));
    }
}
