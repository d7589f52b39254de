//! Where the parts of an ELF file are in memory.

use std::ops::Range;

use object::elf::PF_X;
use object::{File, Object, ObjectSegment, ObjectSymbol, ReadRef, SegmentFlags, SymbolKind};

/// A part of a file with code. Other parts may lie on the same page of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeSegment {
    /// offset in the file
    offset: u64,
    len: u64,
    /// address in the file
    address: u64,
}

/// The parts of a file with code.
pub(crate) fn code_segments<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Vec<CodeSegment> {
    let mut found = Vec::new();
    for segment in file.segments() {
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
        if p_flags.0 & PF_X.0 != 0 {
            let (offset, len) = segment.file_range();
            found.push(CodeSegment { offset, len, address: segment.address() });
        }
    }
    found
}

/// Where address 0 of a file is in memory, if its code at `offset`, a multiple of the page size, is mapped at `start`.
pub(crate) fn base(segments: &[CodeSegment], start: u64, offset: u64) -> Option<u64> {
    let holds =
        |s: &&CodeSegment| s.offset <= offset.saturating_add(4095) && offset < s.offset + s.len;
    let found = segments.iter().find(holds)?;
    Some(start.wrapping_add(found.offset).wrapping_sub(offset).wrapping_sub(found.address))
}

/// The global variables of at least `least` bytes: addresses in the file, and names. Where several have the same
/// address, the longest one.
pub(crate) fn variables<'d, R: ReadRef<'d>>(
    file: &File<'d, R>,
    least: u64,
) -> Vec<(Range<u64>, String)> {
    let mut found: Vec<(Range<u64>, String)> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|s| s.kind() == SymbolKind::Data && s.size() >= least && s.is_definition())
        .filter_map(|s| {
            Some((s.address()..s.address().checked_add(s.size())?, demangled(s.name().ok()?)))
        })
        .collect();
    found.sort_by(|a, b| (a.0.start, b.0.end, &a.1).cmp(&(b.0.start, a.0.end, &b.1)));
    let mut end = 0;
    found.retain(|(range, _)| {
        let is_free = range.start >= end;
        end = end.max(range.end);
        is_free
    });
    found
}

fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash.
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    cpp.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::code;
    use crate::walker::own_pid;

    /// A table that the test finds again.
    static TABLE: [u64; 4096] = [7; 4096];

    /// The linker of Rust lets the end of one segment and the begin of the next share a page of the file.
    #[test]
    fn code_and_variables_lie_where_their_symbols_say() {
        let exe = std::env::current_exe().unwrap();
        let content = std::fs::read(&exe).unwrap();
        let file = File::parse(&*content).unwrap();
        let function: fn() = code_and_variables_lie_where_their_symbols_say;
        let function = function as usize as u64;
        let own = code("/".as_ref(), own_pid()).unwrap();
        let own = own.iter().find(|c| c.range.contains(function)).unwrap();
        let base = base(&code_segments(&file), own.range.start, own.offset).unwrap();
        assert!(file.symbols().any(|s| s.address() == function - base && s.size() > 0));
        let table = std::hint::black_box(&TABLE).as_ptr() as u64;
        let found = variables(&file, 32 << 10);
        let (range, name) = found.iter().find(|(r, _)| r.contains(&(table - base))).unwrap();
        assert_eq!((range.start + base, range.end - range.start), (table, 32 << 10));
        assert!(name.ends_with("elf::tests::TABLE"), "{name}");
    }

    #[test]
    fn names_are_demangled() {
        assert_eq!(demangled("_ZN3app5tableE"), "app::table");
        assert_eq!(demangled("_RNvC3app5TABLE"), "app::TABLE");
        assert_eq!(demangled("table"), "table");
    }
}
