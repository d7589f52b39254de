//! Call stacks of programs without frame pointers, from a copy of the stack and the tables of their files.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::{Object, ObjectSection};

use crate::elf::{CodeSegment, ElfFile, base, code_segments};
use crate::faults::StackCopy;
use crate::proc::FileCode;

/// Maximum number of frames.
const MAX_FRAMES: usize = 127;
/// Longer sections are not read. The file itself states how long they are, also without compression.
const MAX_SECTION_BYTES: u64 = 32 << 20;
/// Maximum bytes of the sections of all files, and maximum number of files. Others have no tables.
const MAX_BYTES: usize = 256 << 20;
const MAX_FILES: usize = 1 << 14;

/// The content of a section, shared by all processes that execute the file.
type Bytes = Arc<[u8]>;

/// The tables of one file.
#[derive(Debug, Clone, Default)]
struct Tables {
    segments: Vec<CodeSegment>,
    eh_frame: Option<(Range<u64>, Bytes)>,
    eh_frame_hdr: Option<(Range<u64>, Bytes)>,
    debug_frame: Option<(Range<u64>, Bytes)>,
}

impl Tables {
    /// None if the file cannot be read.
    fn read(path: &Path) -> Option<Self> {
        let elf = ElfFile::open(path).ok()?;
        let file = object::File::parse(&elf).ok()?;
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            if section.compressed_file_range().ok()?.uncompressed_size > MAX_SECTION_BYTES {
                return None;
            }
            let bytes: Bytes = section.uncompressed_data().ok()?.into_owned().into();
            let end = section.address().checked_add(section.size())?;
            Some((section.address()..end, bytes))
        };
        Some(Tables {
            segments: code_segments(&file),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            debug_frame: section(".debug_frame"),
        })
    }

    fn sections(&self) -> impl Iterator<Item = &Bytes> {
        let all = [&self.eh_frame, &self.eh_frame_hdr, &self.debug_frame];
        all.into_iter().flatten().map(|(_, bytes)| bytes)
    }

    /// The module of the file that is mapped as `code` says.
    fn module(&self, code: &FileCode) -> Option<Module<Bytes>> {
        let base = base(&self.segments, code.range.start, code.offset)?;
        let svma =
            |part: &Option<(Range<u64>, Bytes)>| part.as_ref().map(|(range, _)| range.clone());
        let bytes =
            |part: &Option<(Range<u64>, Bytes)>| part.as_ref().map(|(_, bytes)| bytes.clone());
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma: svma(&self.eh_frame),
            eh_frame: bytes(&self.eh_frame),
            eh_frame_hdr_svma: svma(&self.eh_frame_hdr),
            eh_frame_hdr: bytes(&self.eh_frame_hdr),
            debug_frame: bytes(&self.debug_frame),
            ..ExplicitModuleSectionInfo::default()
        };
        let range = code.range.start..code.range.end;
        Some(Module::new(code.path.to_string(), range, base, sections))
    }
}

/// The path and the build id of a file.
type FileKey = (Arc<str>, Arc<str>);

/// The tables of the files that were read.
#[derive(Debug, Default)]
pub struct UnwindTables {
    files: HashMap<FileKey, Option<Arc<Tables>>>,
}

impl UnwindTables {
    /// Whether fewer than `most` bytes are kept. Above that, the files that no process executes are dropped first.
    fn has_room(&mut self, most: usize) -> bool {
        if !self.is_below(most) {
            let is_used = |t: &Arc<Tables>| t.sections().any(|bytes| Arc::strong_count(bytes) > 1);
            self.files.retain(|_, tables| tables.as_ref().is_some_and(is_used));
        }
        self.is_below(most)
    }

    fn is_below(&self, most: usize) -> bool {
        let sections = self.files.values().flatten().flat_map(|tables| tables.sections());
        sections.map(|bytes| bytes.len()).sum::<usize>() < most && self.files.len() < MAX_FILES
    }

    fn read(&mut self, key: FileKey, path: &Path) -> Option<Arc<Tables>> {
        if !self.files.contains_key(&key) && !self.has_room(MAX_BYTES) {
            return None;
        }
        self.files.entry(key).or_insert_with(|| Tables::read(path).map(Arc::new)).clone()
    }
}

/// Unwinds the stacks of one process.
pub struct StackUnwinder {
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
}

impl StackUnwinder {
    /// For a process that executes these files, which lie below `root`. Each has its build id.
    #[must_use]
    pub fn new(root: &Path, code: &[(FileCode, Arc<str>)], tables: &mut UnwindTables) -> Self {
        let mut unwinder = UnwinderX86_64::new();
        for (file, id) in code {
            let path = root.join(file.path.trim_start_matches('/'));
            let key = (Arc::clone(&file.path), Arc::clone(id));
            if let Some(module) = tables.read(key, &path).and_then(|t| t.module(file)) {
                unwinder.add_module(module);
            }
        }
        StackUnwinder { unwinder, cache: CacheX86_64::new() }
    }

    /// The frames of a stack, the innermost first: the address of an instruction, then return addresses. Where a
    /// file has no tables, frame pointers are followed. It ends early where the copy of the stack ends.
    pub fn frames(&mut self, copy: &StackCopy) -> Vec<u64> {
        let [bp, sp, ip] = copy.registers;
        let mut read = |address: u64| {
            let at = address.checked_sub(sp).and_then(|at| usize::try_from(at).ok()).ok_or(())?;
            let word = copy.bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut frames = self.unwinder.iter_frames(ip, registers, &mut self.cache, &mut read);
        let mut out = Vec::new();
        while out.len() < MAX_FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            out.push(frame.address());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::with_other_kinds;

    /// A section of zeros, compressed by a factor of 160: one literal, and copies of 258 bytes at distance 1.
    fn compressed(copies: u32) -> Vec<u8> {
        let code = |bits: &str| bits.chars().map(|c| c == '1').collect::<Vec<_>>();
        let mut bits = code("11000110000");
        (0..copies).for_each(|_| bits.extend(code("1100010100000")));
        bits.extend(code("0000000"));
        let byte =
            |bits: &[bool]| bits.iter().rev().fold(0, |byte, &bit| (byte << 1) | u8::from(bit));
        let len = 1 + 258 * copies;
        let mut section = Vec::new();
        // Elf64_Chdr: zlib, reserved, size, alignment.
        [1, 0, len, 0, 1, 0].iter().for_each(|word: &u32| section.extend(word.to_le_bytes()));
        section.extend([0x78, 0x01]);
        section.extend(bits.chunks(8).map(byte));
        section.extend((((len % 65_521) << 16) | 1).to_be_bytes());
        section
    }

    /// An ELF file with the compressed section `.debug_frame`.
    fn with_debug_frame(section: &[u8]) -> Vec<u8> {
        let names = b"\0.debug_frame\0.shstrtab\0";
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        [3_u16, 62, 1, 0].iter().for_each(|half| file.extend(half.to_le_bytes()));
        [0_u64, 0, 64].iter().for_each(|word| file.extend(word.to_le_bytes()));
        let rest = [0_u16, 0, 64, 56, 0, 64, 3, 2];
        rest.iter().for_each(|half| file.extend(half.to_le_bytes()));
        file.resize(128, 0);
        let (at, len) = (256 + names.len() as u64, section.len() as u64);
        // Name and type, flags, address, offset, size, link and info, alignment, size of an entry.
        let headers = [
            [(1 << 32) | 1, 0x800, 0, at, len, 0, 1, 0],
            [(3 << 32) | 14, 0, 0, 256, names.len() as u64, 0, 1, 0],
        ];
        headers.as_flattened().iter().for_each(|word: &u64| file.extend(word.to_le_bytes()));
        [&file, &names[..], section].concat()
    }

    /// A program could make the recorder allocate any amount by a small file.
    #[test]
    fn a_section_that_unpacks_to_too_much_is_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |copies| {
            std::fs::write(file.path(), with_debug_frame(&compressed(copies))).unwrap();
            let (_, bytes) = Tables::read(file.path()).unwrap().debug_frame?;
            Some(bytes.len())
        };
        assert_eq!(read(1000), Some(258_001));
        assert_eq!(read(140_000), None, "36 MB");
    }

    /// The tables of each file that a process had executed stayed for ever.
    #[test]
    fn tables_of_files_that_no_process_executes_give_way() {
        let mut tables = UnwindTables::default();
        let mut add = |name: &str| {
            let bytes: Bytes = vec![0; 100].into();
            let read = Tables { eh_frame: Some((0..100, bytes.clone())), ..Tables::default() };
            tables.files.insert((name.into(), "".into()), Some(read.into()));
            bytes
        };
        let _used = add("used");
        drop(add("unused"));
        assert!(tables.has_room(201) && tables.files.len() == 2);
        assert!(tables.has_room(200));
        assert_eq!(tables.files.keys().map(|(path, _)| &**path).collect::<Vec<_>>(), ["used"]);
        assert!(!tables.has_room(100));
    }

    /// A pipe with the name of a file that a process executes hung the recorder, until it was killed.
    #[test]
    fn a_pipe_in_the_place_of_a_file_hangs_nothing() {
        with_other_kinds(|path| assert!(Tables::read(path).is_none(), "{}", path.display()));
    }
}
