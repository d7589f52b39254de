//! Call stacks of programs without frame pointers, from a copy of the stack and the tables of their files.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::{Object, ObjectSection, ReadCache};

use crate::elf::{CodeSegment, base, code_segments};
use crate::faults::StackCopy;
use crate::proc::FileCode;
use crate::sys::open_regular;

/// Maximum number of frames.
const MOST_FRAMES: usize = 127;
/// Longer sections are not read.
const MOST_BYTES: u64 = 256 << 20;

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
        let cache = ReadCache::new(open_regular(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let section = |name: &str| {
            let section = file.section_by_name(name).filter(|s| s.size() <= MOST_BYTES)?;
            let bytes: Bytes = section.uncompressed_data().ok()?.into_owned().into();
            Some((section.address()..section.address() + section.size(), bytes))
        };
        Some(Tables {
            segments: code_segments(&file),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            debug_frame: section(".debug_frame"),
        })
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
            let read = || Tables::read(&path).map(Arc::new);
            let tables = tables.files.entry(key).or_insert_with(read);
            if let Some(module) = tables.as_ref().and_then(|t| t.module(file)) {
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
        while out.len() < MOST_FRAMES
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

    /// A pipe with the name of a file that a process executes hung the recorder, until it was killed.
    #[test]
    fn a_pipe_in_the_place_of_a_file_hangs_nothing() {
        with_other_kinds(|path| assert!(Tables::read(path).is_none(), "{}", path.display()));
    }
}
