//! Call stacks of programs without frame pointers, from a copy of the stack and the tables of their files.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use gimli::CallFrameInstruction::{DefCfaExpression, Expression, ValExpression};
use gimli::{
    BaseAddresses, CallFrameInstructionIter, CieOrFde, DW_EH_PE_udata4, EhFrame, Encoding,
    EndianSlice, LittleEndian, Operation, UnwindSection,
};
use isotherm_core::AddrRange;
use object::{Object, ObjectSection};

use crate::code::{FileVersion, once_for_each, open_mapped};
use crate::elf::{CodeSegment, ElfFile, base, code_segments};
use crate::faults::StackCopy;
use crate::proc::FileCode;

/// Maximum number of frames.
const MAX_FRAMES: usize = 127;
/// Longer sections are not read. The file itself states how long they are, also without compression.
const MAX_SECTION_BYTES: u64 = 32 << 20;
/// Longer entries of a table are left out: each frame of their function would evaluate all of it.
const MAX_ENTRY_BYTES: usize = 1 << 16;
/// Maximum bytes of the tables of all files, and maximum number of files. Others have no tables.
const MAX_BYTES: usize = 256 << 20;
const MAX_TABLE_FILES: usize = 1 << 14;

/// Maximum number of functions of a file that a signal handler returns to. A C library has one.
const MAX_SIGNAL_RETURNS: usize = 16;
/// The same for all mappings of a process: each frame is compared with all of them.
const MAX_SIGNAL_RETURNS_OF_PROCESS: usize = 1024;
/// Where the kernel leaves bp, sp and ip of the interrupted code, from the stack pointer of such a function on: they are
/// `uc_mcontext` of a `struct ucontext` of x86-64.
const INTERRUPTED: [u64; 3] = [120, 160, 168];

/// A part of the tables of a file, shared by all processes that execute the file.
type Bytes = Arc<[u8]>;

/// The tables of one file.
#[derive(Debug, Clone, Default)]
struct Tables {
    segments: Vec<CodeSegment>,
    frames: Option<FrameTable>,
}

/// How to find the caller at each instruction of a file.
#[derive(Debug, Clone)]
struct FrameTable {
    /// address of `entries` in the file
    address: u64,
    /// the section `.eh_frame`
    entries: Bytes,
    search: Bytes,
    /// The functions that signal handlers return to, as addresses in the file. Their entries have expressions that
    /// framehop does not evaluate.
    signal_returns: Vec<AddrRange>,
}

impl Tables {
    /// None if the file has none.
    fn read(file: File) -> Option<Self> {
        let elf = ElfFile::new(file);
        let file = object::File::parse(&elf).ok()?;
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            if section.compressed_file_range().ok()?.uncompressed_size > MAX_SECTION_BYTES {
                return None;
            }
            Some((section.address(), section.uncompressed_data().ok()?.into_owned()))
        };
        let frames = section(".eh_frame").or_else(|| {
            let (_, mut entries) = section(".debug_frame")?;
            to_eh_frame(&mut entries);
            Some((0, entries))
        });
        Some(Tables {
            segments: code_segments(&file),
            frames: frames.map(|(address, entries)| FrameTable::new(address, &entries)),
        })
    }

    fn parts(&self) -> impl Iterator<Item = &Bytes> {
        self.frames.iter().flat_map(|frames| [&frames.entries, &frames.search])
    }

    /// Where address 0 of the file is, if it is mapped as `code` says.
    fn base(&self, code: &FileCode) -> Option<u64> {
        base(&self.segments, code.range.start, code.offset)
    }

    /// The functions in this mapping that signal handlers return to.
    fn signal_returns(&self, code: &FileCode) -> Vec<AddrRange> {
        let Some((base, frames)) = self.base(code).zip(self.frames.as_ref()) else {
            return Vec::new();
        };
        let moved =
            |r: &AddrRange| AddrRange::new(r.start.wrapping_add(base), r.end.wrapping_add(base));
        let all = frames.signal_returns.iter().map(moved);
        all.filter_map(|r| r.intersect(&code.range)).collect()
    }

    /// The module of the file that is mapped as `code` says.
    fn module(&self, code: &FileCode) -> Option<Module<Bytes>> {
        let base = self.base(code)?;
        let mut sections = ExplicitModuleSectionInfo::default();
        if let Some(frames) = &self.frames {
            let end = frames.address.saturating_add(frames.entries.len() as u64);
            sections.eh_frame_svma = Some(frames.address..end);
            sections.eh_frame = Some(Arc::clone(&frames.entries));
            sections.eh_frame_hdr = Some(Arc::clone(&frames.search));
        }
        // The name would be for debugging only.
        Some(Module::new(String::new(), code.range.start..code.range.end, base, sections))
    }
}

impl FrameTable {
    fn new(address: u64, entries: &[u8]) -> Self {
        let (search, signal_returns) = search_table(address, entries);
        FrameTable { address, entries: entries.into(), search: search.into(), signal_returns }
    }
}

/// The entries whose evaluation ends, in the form of an `.eh_frame_hdr`, and the functions that signal handlers return to.
/// The table of the file is of no use: it may point to entries that this function has not checked. Without any, framehop
/// would make a table of all entries for each mapping.
fn search_table(address: u64, entries: &[u8]) -> (Vec<u8>, Vec<AddrRange>) {
    let mut section = EhFrame::new(entries, LittleEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let (mut common, mut found, mut signal_returns) = (HashMap::new(), Vec::new(), Vec::new());
    let mut all = section.entries(&bases);
    while let Ok(Some(entry)) = all.next() {
        match entry {
            CieOrFde::Cie(cie) => {
                let is_short = cie.entry_len() <= MAX_ENTRY_BYTES;
                if is_short
                    && has_no_jump(&section, cie.instructions(&section, &bases), cie.encoding())
                {
                    common.insert(cie.offset(), cie);
                }
            }
            CieOrFde::Fde(partial) => {
                let fde = partial.parse(|_, _, at| {
                    let missing = gimli::Error::NoEntryAtGivenOffset(at.0 as u64);
                    common.get(&at.0).cloned().ok_or(missing)
                });
                let Ok(fde) = fde else { continue };
                if fde.is_signal_trampoline() && signal_returns.len() < MAX_SIGNAL_RETURNS {
                    let start = fde.initial_address();
                    signal_returns.push(AddrRange::new(start, start.saturating_add(fde.len())));
                }
                let is_short = fde.entry_len() <= MAX_ENTRY_BYTES;
                let encoding = fde.cie().encoding();
                if is_short && has_no_jump(&section, fde.instructions(&section, &bases), encoding) {
                    let place = (u32::try_from(fde.initial_address()), u32::try_from(fde.offset()));
                    found.extend(place.0.ok().zip(place.1.ok()));
                }
            }
        }
    }
    found.sort_unstable();
    let mut table = vec![1];
    // Of the address of the section, the number of rows, and the rows. Addresses of entries count from the section.
    table.extend([DW_EH_PE_udata4.0; 3]);
    let rows = found.iter().flat_map(|&(function, entry)| [function, entry]);
    let words = [0, u32::try_from(found.len()).unwrap_or(0)].into_iter().chain(rows);
    words.for_each(|word| table.extend(word.to_le_bytes()));
    (table, signal_returns)
}

/// The sections are in memory, and have the byte order of x86-64.
type Section<'a> = EndianSlice<'a, LittleEndian>;

/// Whether no expression in these instructions has a jump, by which its evaluation might never end.
fn has_no_jump(
    section: &EhFrame<Section<'_>>,
    mut instructions: CallFrameInstructionIter<'_, Section<'_>>,
    encoding: Encoding,
) -> bool {
    // An evaluation ends at the first error.
    while let Ok(Some(instruction)) = instructions.next() {
        let (DefCfaExpression { expression }
        | Expression { expression, .. }
        | ValExpression { expression, .. }) = instruction
        else {
            continue;
        };
        let Ok(expression) = expression.get(section) else { continue };
        let mut operations = expression.operations(encoding);
        while let Ok(Some(operation)) = operations.next() {
            if matches!(operation, Operation::Skip { .. } | Operation::Bra { .. }) {
                return false;
            }
        }
    }
    true
}

/// Gives a `.debug_frame` the form of an `.eh_frame`: there, common entries have another mark, and the others state the
/// distance to their common entry, instead of its place.
fn to_eh_frame(section: &mut [u8]) {
    let (mut rest, mut at) = (section, 0u32);
    while let Some((len, after)) = rest.split_first_chunk_mut() {
        let len = u32::from_le_bytes(*len);
        let end = usize::try_from(len).unwrap_or(usize::MAX);
        let Some((entry, next)) = after.split_at_mut_checked(end) else { return };
        at += 4;
        if let Some(common) = entry.first_chunk_mut() {
            let is_common = *common == [0xff; 4];
            let new = match u32::from_le_bytes(*common) {
                u32::MAX => 0,
                place => at.wrapping_sub(place),
            };
            *common = new.to_le_bytes();
            if is_common {
                to_version_3(entry);
            }
        }
        (rest, at) = (next, at + len);
    }
}

/// Removes the sizes of addresses and segments from a common entry of version 4, which an `.eh_frame` does not have.
/// DW_CFA_nop (0) fills the end. An entry with an augmentation stays: it has more fields.
fn to_version_3(entry: &mut [u8]) {
    if let [_, _, _, _, version @ 4, 0, 8, 0, ..] = entry {
        *version = 3;
        entry.copy_within(8.., 6);
        entry.iter_mut().rev().take(2).for_each(|byte| *byte = 0);
    }
}

/// The tables of the files that were read.
#[derive(Debug, Default)]
pub struct UnwindTables {
    files: HashMap<FileVersion, Option<Arc<Tables>>>,
}

impl UnwindTables {
    /// Whether fewer than `most` bytes are kept. Above that, the files that no process executes are dropped first.
    fn has_room(&mut self, most: usize) -> bool {
        if !self.is_below(most) {
            let is_used = |t: &Arc<Tables>| t.parts().any(|bytes| Arc::strong_count(bytes) > 1);
            self.files.retain(|_, tables| tables.as_ref().is_some_and(is_used));
        }
        self.is_below(most)
    }

    fn is_below(&self, most: usize) -> bool {
        let parts = self.files.values().flatten().flat_map(|tables| tables.parts());
        parts.map(|bytes| bytes.len()).sum::<usize>() < most && self.files.len() < MAX_TABLE_FILES
    }

    fn read(&mut self, opened: io::Result<(File, Metadata)>) -> Option<Arc<Tables>> {
        let (file, found) = opened.ok()?;
        let version = FileVersion::of(&found);
        if !self.files.contains_key(&version) && !self.has_room(MAX_BYTES) {
            return None;
        }
        self.files.entry(version).or_insert_with(|| Tables::read(file).map(Arc::new)).clone()
    }
}

/// Unwinds the stacks of one process.
pub struct StackUnwinder {
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
    /// the functions that signal handlers return to
    signal_returns: Vec<AddrRange>,
}

impl StackUnwinder {
    /// For the process at `process` (`/proc/PID`), which executes these files.
    #[must_use]
    pub fn new<'a>(
        process: &Path,
        code: impl Iterator<Item = &'a FileCode>,
        tables: &mut UnwindTables,
    ) -> Self {
        let mut read = once_for_each(|file| tables.read(open_mapped(process, file)));
        StackUnwinder::of(code.filter_map(|file| Some((file, read(file)?))))
    }

    /// For a process that executes files with these tables.
    fn of<'a>(files: impl Iterator<Item = (&'a FileCode, Arc<Tables>)>) -> Self {
        let (mut unwinder, mut signal_returns) = (UnwinderX86_64::new(), Vec::new());
        for (file, tables) in files {
            if let Some(module) = tables.module(file) {
                unwinder.add_module(module);
                let room = MAX_SIGNAL_RETURNS_OF_PROCESS.saturating_sub(signal_returns.len());
                signal_returns.extend(tables.signal_returns(file).into_iter().take(room));
            }
        }
        StackUnwinder { unwinder, cache: CacheX86_64::new(), signal_returns }
    }

    /// The frames of a stack, the innermost first: the address of an instruction, then return addresses. The address
    /// of an instruction that a signal has interrupted is reported plus 1, like a return address. Where a file has no tables,
    /// frame pointers are followed. It ends early where the copy of the stack ends.
    pub fn frames(&mut self, copy: &StackCopy) -> Vec<u64> {
        let [bp, sp, ip] = copy.registers;
        let mut read = |address: u64| {
            let at = address.checked_sub(sp).and_then(|at| usize::try_from(at).ok()).ok_or(())?;
            let word = copy.bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let mut registers = UnwindRegsX86_64::new(ip, sp, bp);
        let (mut at, mut out) = (FrameAddress::from_instruction_pointer(ip), vec![ip]);
        while out.len() < MAX_FRAMES {
            if self.is_signal_return(at.address_for_lookup()) {
                let frame = registers.sp();
                let saved = INTERRUPTED.map(|offset| read(frame.wrapping_add(offset)));
                let [Ok(bp), Ok(sp), Ok(ip)] = saved else { break };
                registers = UnwindRegsX86_64::new(ip, sp, bp);
                at = FrameAddress::from_instruction_pointer(ip);
                out.push(ip.saturating_add(1));
                continue;
            }
            let caller = self.unwinder.unwind_frame(at, &mut registers, &mut self.cache, &mut read);
            let Some(caller) = caller.ok().flatten().and_then(FrameAddress::from_return_address)
            else {
                break;
            };
            at = caller;
            out.push(at.address());
        }
        out
    }

    fn is_signal_return(&self, address: u64) -> bool {
        self.signal_returns.iter().any(|r| r.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use object::elf::SHF_COMPRESSED;

    use super::*;
    use crate::code::open_with_metadata;
    use crate::elf::tests::with_section;
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

    fn with_debug_frame(section: &[u8]) -> Vec<u8> {
        with_section(".debug_frame", SHF_COMPRESSED, section)
    }

    /// A program could make the recorder allocate any amount by a small file.
    #[test]
    fn a_section_that_unpacks_to_too_much_is_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |copies| {
            std::fs::write(file.path(), with_debug_frame(&compressed(copies))).unwrap();
            Some(
                UnwindTables::default()
                    .read(open_with_metadata(file.path()))
                    .unwrap()
                    .frames
                    .as_ref()?
                    .entries
                    .len(),
            )
        };
        assert_eq!(read(1000), Some(258_001));
        assert_eq!(read(140_000), None, "36 MB");
    }

    /// The tables of each file that a process had executed stayed for ever.
    #[test]
    fn tables_of_files_that_no_process_executes_give_way() {
        let mut tables = UnwindTables::default();
        let mut add = |inode| {
            let bytes: Bytes = vec![0; 100].into();
            let (entries, search) = (bytes.clone(), [].into());
            let frames = FrameTable { address: 0, entries, search, signal_returns: Vec::new() };
            let read = Tables { frames: Some(frames), ..Tables::default() };
            let version = FileVersion { inode, ..FileVersion::default() };
            tables.files.insert(version, Some(read.into()));
            bytes
        };
        let _used = add(1);
        drop(add(2));
        assert!(tables.has_room(201) && tables.files.len() == 2);
        assert!(tables.has_room(200));
        assert_eq!(tables.files.keys().map(|version| version.inode).collect::<Vec<_>>(), [1]);
        assert!(!tables.has_room(100));
    }

    /// An entry of `.debug_frame` or `.eh_frame`: its length, the reference to a common one, and the content.
    fn entry(common: u32, content: &[u8]) -> Vec<u8> {
        let len = u32::try_from(4 + content.len()).unwrap();
        [&len.to_le_bytes(), &common.to_le_bytes(), content].concat()
    }

    /// The common entry of a `.debug_frame`: the caller is above the return address.
    fn common() -> Vec<u8> {
        // Version, no augmentation, alignment of code and data, the register of the return address. Then
        // DW_CFA_def_cfa: rsp + 8, and DW_CFA_offset: the return address is below.
        entry(u32::MAX, &[1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1])
    }

    /// The entry of a function of 256 bytes.
    fn function(common: u32, address: u64, instructions: &[u8]) -> Vec<u8> {
        let range = [address, 256].map(u64::to_le_bytes);
        entry(common, &[range.as_flattened(), instructions].concat())
    }

    fn functions_of(frames: &FrameTable) -> Vec<u32> {
        let (head, rows) = frames.search.split_at(12);
        assert_eq!(head[..8], [1, 3, 3, 3, 0, 0, 0, 0]);
        assert_eq!(head[8..], u32::to_le_bytes((rows.len() / 8).try_into().unwrap()));
        rows.chunks(8).map(|row| u32::from_le_bytes(row[..4].try_into().unwrap())).collect()
    }

    /// A program whose file had such an expression hung the recorder for ever.
    #[test]
    fn an_expression_that_never_ends_is_left_out() {
        // DW_CFA_def_cfa_expression
        let with_expression = |common, address, expression: &[u8]| {
            let len = u8::try_from(expression.len()).unwrap();
            function(common, address, &[&[0x0f, len], expression].concat())
        };
        let endless = entry(u32::MAX, &[1, 0, 1, 0x78, 16, 0x0f, 3, 0x2f, 0xfd, 0xff]);
        let of_endless = u32::try_from(common().len()).unwrap();
        // with the sizes of addresses and segments, as clang writes it
        let version_4 = entry(u32::MAX, &[4, 0, 8, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1]);
        let of_version_4 = of_endless + u32::try_from(endless.len()).unwrap();
        let mut entries = [
            common(),
            endless,
            version_4,
            // DW_OP_skip to itself
            with_expression(0, 0x1000, &[0x2f, 0xfd, 0xff]),
            // DW_CFA_def_cfa_offset
            function(0, 0x4000, &[0x0e, 16]),
            // DW_OP_lit1, and DW_OP_bra to it
            with_expression(0, 0x2000, &[0x31, 0x28, 0xfc, 0xff]),
            // DW_OP_breg7
            with_expression(0, 0x3000, &[0x77, 16]),
            function(of_endless, 0x5000, &[]),
            function(of_version_4, 0x7000, &[0x0e, 16]),
            // DW_CFA_nop
            function(0, 0x6000, &[0; MAX_ENTRY_BYTES]),
        ]
        .concat();
        to_eh_frame(&mut entries);
        let frames = FrameTable::new(0, &entries);
        assert_eq!(functions_of(&frames), [0x3000, 0x4000, 0x7000]);

        let segment = CodeSegment { offset: 0, len: 0x8000, address: 0 };
        let tables = Tables { segments: vec![segment], frames: Some(frames) };
        let range = AddrRange::new(0x7000_0000, 0x7000_8000);
        let file = FileCode { range, offset: 0, path: "a".into() };
        let mut unwinder = StackUnwinder::of([(&file, Arc::new(tables))].into_iter());
        let mut caller = |function: u64| {
            let bytes = [1u64, 2, 3, 4].map(u64::to_ne_bytes).as_flattened().into();
            let copy = StackCopy { registers: [0, 0x9000, function + 0x7000_0010], bytes };
            unwinder.frames(&copy).get(1).copied()
        };
        assert_eq!([0x3000, 0x4000, 0x7000].map(&mut caller), [Some(2); 3]);
        assert_ne!(caller(0x1000), Some(2), "the loop has no caller, but an end");
    }

    /// Stacks ended at the handler of a signal, and PostgreSQL starts its processes in one.
    #[test]
    fn a_stack_continues_in_the_code_that_a_signal_interrupted() {
        // With the augmentation zS, which has no data. DW_CFA_def_cfa_expression: DW_OP_breg7 160, DW_OP_deref.
        let of_signals = [1, b'z', b'S', 0, 1, 0x78, 16, 0, 0x0f, 4, 0x77, 0xa0, 1, 6];
        let of_others = u32::try_from(entry(0, &of_signals).len()).unwrap();
        let mut entries = [
            entry(u32::MAX, &of_signals),
            common(),
            function(0, 0x1000, &[0]),
            function(of_others, 0x2000, &[]),
            // DW_CFA_def_cfa_offset
            function(of_others, 0x3000, &[0x0e, 16]),
        ]
        .concat();
        to_eh_frame(&mut entries);
        let segments = vec![CodeSegment { offset: 0, len: 0x8000, address: 0 }];
        let frames = Some(FrameTable::new(0, &entries));
        let tables = Arc::new(Tables { segments, frames });
        let base = 0x7000_0000;
        let range = AddrRange::new(base, base + 0x8000);
        let file = FileCode { range, offset: 0, path: "a".into() };
        let mut unwinder = StackUnwinder::of([(&file, tables)].into_iter());
        // The handler, which returns to the first byte of the function, and the frame of the kernel.
        let mut stack = [0u64; 40];
        let sp = 0x9000;
        stack[0] = base + 0x1001;
        stack[1 + 20] = sp + 30 * 8;
        stack[1 + 21] = base + 0x3000;
        // The interrupted function has pushed a word. It was interrupted at its first instruction.
        stack[31] = base + 0x2010;
        stack[32] = 0;
        let bytes: Box<[u8]> = stack.map(u64::to_ne_bytes).as_flattened().into();
        let mut frames = |bytes: &[u8]| {
            let copy = StackCopy { registers: [0, sp, base + 0x2000], bytes: bytes.into() };
            unwinder.frames(&copy).into_iter().map(|f| f - base).collect::<Vec<_>>()
        };
        assert_eq!(frames(&bytes), [0x2000, 0x1001, 0x3001, 0x2010]);
        assert_eq!(frames(&bytes[..100]), [0x2000, 0x1001], "the copy ends");
    }

    /// A file that was mapped in a thousand parts took a thousand tables of all of its functions.
    #[test]
    fn all_mappings_of_a_file_share_its_tables() {
        let mut entries = [common(), function(0, 0x1000, &[])].concat();
        to_eh_frame(&mut entries);
        let frames = Some(FrameTable::new(0, &entries));
        let segments = vec![CodeSegment { offset: 0, len: 1 << 20, address: 0 }];
        let tables = Tables { segments, frames };
        let module = |page: u64| {
            let range = AddrRange::new((8 + page) << 12, (9 + page) << 12);
            tables.module(&FileCode { range, offset: page << 12, path: "a".into() }).unwrap()
        };
        let modules: Vec<_> = (0..10).map(module).collect();
        assert!(tables.parts().all(|part| Arc::strong_count(part) == modules.len() + 1));
    }

    /// Found by a review: with a file that was mapped in 65,000 parts, each frame was compared with a million functions.
    #[test]
    fn the_functions_that_signal_handlers_return_to_are_limited_in_all_mappings() {
        let signal_returns = (0..16).map(|n| AddrRange::new(n << 8, (n + 1) << 8)).collect();
        let frames =
            FrameTable { address: 0, entries: [].into(), search: [].into(), signal_returns };
        let segments = vec![CodeSegment { offset: 0, len: 4096, address: 0 }];
        let tables = Arc::new(Tables { segments, frames: Some(frames) });
        let mapped = |page: u64| {
            let range = AddrRange::new(page << 12, (page + 1) << 12);
            FileCode { range, offset: 0, path: "a".into() }
        };
        let files: Vec<FileCode> = (1..=1000).map(mapped).collect();
        let unwinder = StackUnwinder::of(files.iter().map(|file| (file, Arc::clone(&tables))));
        assert_eq!(unwinder.signal_returns.len(), MAX_SIGNAL_RETURNS_OF_PROCESS);
    }

    /// Of two files with the same path in two containers, or one after the other, the second had the tables of the first.
    #[test]
    fn each_file_has_its_own_tables() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut tables = UnwindTables::default();
        let mut len_of = |copies| {
            std::fs::write(file.path(), with_debug_frame(&compressed(copies))).unwrap();
            tables
                .read(open_with_metadata(file.path()))
                .unwrap()
                .frames
                .as_ref()
                .map(|f| f.entries.len())
        };
        assert_eq!([1, 2000].map(&mut len_of), [Some(259), Some(516_001)]);
    }

    /// A pipe with the name of a file that a process executes hung the recorder, until it was killed.
    #[test]
    fn a_pipe_in_the_place_of_a_file_hangs_nothing() {
        with_other_kinds(|path| {
            assert!(
                UnwindTables::default().read(open_with_metadata(path)).is_none(),
                "{}",
                path.display()
            )
        });
    }
}
