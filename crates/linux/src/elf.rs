//! Where the parts of an ELF file are in memory.

use std::cell::Cell;
use std::fmt::{self, Write};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use cpp_demangle::DemangleOptions;
use object::elf::PF_X;
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SegmentFlags, SymbolKind};

use crate::sys::open_regular;

/// Maximum bytes that are read of a file: enough for the symbols of any but the largest.
const MAX_BYTES: u64 = 128 << 20;

/// A file that another user may have made, so reading it fails after [`MAX_BYTES`], regardless of the sizes that
/// it states. It is not mapped, because a truncation while it is mapped would end isotherm.
pub(crate) struct ElfFile {
    cache: ReadCache<File>,
    left: Cell<u64>,
}

impl ElfFile {
    pub fn open(path: &Path) -> io::Result<Self> {
        open_regular(path).map(ElfFile::new)
    }

    pub fn new(file: File) -> Self {
        ElfFile { cache: ReadCache::new(file), left: Cell::new(MAX_BYTES) }
    }
}

impl<'a> ReadRef<'a> for &'a ElfFile {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        (&self.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let bytes = (&self.cache).read_bytes_at_until(range, delimiter)?;
        self.left.set(self.left.get().checked_sub(bytes.len() as u64).ok_or(())?);
        Ok(bytes)
    }
}

/// Maximum number of parts of a file with code. Linkers make one or two.
const MAX_CODE_SEGMENTS: usize = 64;

/// A part of a file with code. Other parts may lie on the same page of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeSegment {
    /// offset in the file
    pub offset: u64,
    pub len: u64,
    /// address in the file
    pub address: u64,
}

/// The first [`MAX_CODE_SEGMENTS`] parts of a file with code.
pub(crate) fn code_segments<'d, R: ReadRef<'d>>(file: &object::File<'d, R>) -> Vec<CodeSegment> {
    let is_code =
        |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0);
    let code = file.segments().filter(|segment| is_code(segment.flags())).map(|segment| {
        let (offset, len) = segment.file_range();
        CodeSegment { offset, len, address: segment.address() }
    });
    code.take(MAX_CODE_SEGMENTS).collect()
}

/// Where address 0 of a file is in memory, if its code at `offset`, a multiple of the page size, is mapped at `start`.
pub(crate) fn base(segments: &[CodeSegment], start: u64, offset: u64) -> Option<u64> {
    let holds = |s: &&CodeSegment| {
        s.offset <= offset.saturating_add(4095) && offset < s.offset.saturating_add(s.len)
    };
    let found = segments.iter().find(holds)?;
    Some(start.wrapping_add(found.offset).wrapping_sub(offset).wrapping_sub(found.address))
}

/// The global variables of at least `least` bytes: addresses in the file, and names. Where several have the same
/// address, the longest one.
pub(crate) fn variables<'d, R: ReadRef<'d>>(
    file: &object::File<'d, R>,
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

/// Maximum length of a demangled name in bytes: a symbol of 150 bytes may stand for megabytes.
const MAX_NAME_BYTES: usize = 4096;

/// The name in Rust or C++ of a symbol; the symbol itself if it has none, or too long a one.
pub(crate) fn demangled(symbol: &str) -> String {
    let mut name = ShortName(String::new());
    let written = match rustc_demangle::try_demangle(symbol) {
        // Without the hash.
        Ok(rust) => write!(name, "{rust:#}"),
        Err(_) => cpp_demangle::Symbol::new(symbol).map_err(|_| fmt::Error).and_then(|cpp| {
            // A name begins with its namespace: only templates would have a type before it.
            cpp.structured_demangle(&mut name, &DemangleOptions::new().no_return_type())
        }),
    };
    written.map_or_else(|_| symbol.to_owned(), |()| name.0)
}

/// A name that is written in parts. Writing it fails beyond [`MAX_NAME_BYTES`].
struct ShortName(String);

impl Write for ShortName {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use object::elf::{SHT_PROGBITS, SHT_STRTAB, SectionFlags, SectionType};

    use super::*;
    use crate::proc::code;
    use crate::walker::own_pid;

    /// A table that the test finds again.
    static TABLE: [u64; 4096] = [7; 4096];

    #[derive(Clone)]
    pub(crate) struct Section {
        pub name: &'static str,
        pub kind: SectionType,
        pub flags: SectionFlags,
        pub content: Vec<u8>,
    }

    /// A library with these sections, which is mapped at address 0. The header of the first one is at offset 192.
    pub(crate) fn with_sections(sections: &[Section]) -> Vec<u8> {
        let names = sections.iter().map(|s| s.name).chain([".shstrtab"]);
        let names = format!("\0{}\0", names.collect::<Vec<_>>().join("\0"));
        let (kind, flags) = (SHT_STRTAB, SectionFlags(0));
        let content = names.clone().into_bytes();
        let strings = Section { name: ".shstrtab", kind, flags, content };
        let (mut headers, mut contents) = (vec![0_u64; 8], Vec::new());
        let count = sections.len() as u16 + 2;
        let begin = 128 + 64 * u64::from(count);
        for section in sections.iter().chain([&strings]) {
            let name = names.find(&format!("\0{}\0", section.name)).unwrap() as u64 + 1;
            let kind = u64::from(section.kind.0) << 32;
            let (at, len) = (begin + contents.len() as u64, section.content.len() as u64);
            // Name and type, flags, address, offset, size, link and info, alignment, size of an entry.
            headers.extend([kind | name, section.flags.0, 0, at, len, 0, 8, 0]);
            contents.extend(&section.content);
            contents.resize(contents.len().next_multiple_of(8), 0);
        }
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        [3_u16, 62, 1, 0].iter().for_each(|half| file.extend(half.to_le_bytes()));
        // The entry, and where the headers of segments and sections begin.
        [0_u64, 64, 128].iter().for_each(|word| file.extend(word.to_le_bytes()));
        let rest = [0_u16, 0, 64, 56, 1, 64, count, count - 1];
        rest.iter().for_each(|half| file.extend(half.to_le_bytes()));
        // One segment with code: type and flags, offset, two addresses, two sizes, alignment.
        let len = begin + contents.len() as u64;
        let segment = [(5 << 32) | 1, 0, 0, 0, len, len, 4096, 0];
        let words = segment.iter().chain(&headers);
        words.for_each(|word: &u64| file.extend(word.to_le_bytes()));
        [file, contents].concat()
    }

    pub(crate) fn with_section(name: &'static str, flags: SectionFlags, content: &[u8]) -> Vec<u8> {
        let content = content.to_owned();
        with_sections(&[Section { name, kind: SHT_PROGBITS, flags, content }])
    }

    /// A file may be sparse and state any size.
    #[test]
    fn a_limited_part_of_a_file_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let elf = ElfFile::open(file.path()).unwrap();
        assert!((&elf).read_bytes_at(0, 1 << 39).is_err());
        assert_eq!((&elf).read_bytes_at(1 << 39, 100).unwrap().len(), 100);
        assert!((&elf).read_bytes_at(0, MAX_BYTES - 99).is_err(), "together");
    }

    /// Found by a review: for each of 65,000 mappings of a file, the recorder looked through two million segments.
    #[test]
    fn a_limited_number_of_parts_with_code_is_read() {
        let mut content = with_sections(&[]);
        let (segment, begin) = (content[64..120].to_owned(), content.len() as u64);
        content.extend(segment.repeat(1000));
        // Where the headers of segments begin, and their number.
        content[32..40].copy_from_slice(&begin.to_le_bytes());
        content[56..58].copy_from_slice(&1000_u16.to_le_bytes());
        let file = object::File::parse(&*content).unwrap();
        assert_eq!(code_segments(&file).len(), MAX_CODE_SEGMENTS);
    }

    /// The linker of Rust lets the end of one segment and the begin of the next share a page of the file.
    #[test]
    fn code_and_variables_lie_where_their_symbols_say() {
        let exe = std::env::current_exe().unwrap();
        let content = std::fs::read(&exe).unwrap();
        let file = object::File::parse(&*content).unwrap();
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
        // Found by a review: the type of the result was taken for the namespace of the function.
        assert_eq!(demangled("_Z4loadIiEvv"), "load<int>()");
        assert_eq!(demangled("_Z1f1AIiES_IS0_S0_E"), "f(A<int>, A<A<int>, A<int> >)");
    }

    /// Found by a review: each argument has the previous one eight times, so that a name needed any amount of memory.
    #[test]
    fn a_name_that_becomes_too_long_stays_mangled() {
        let argument = |n: u32| format!("S_I{}E", format!("S{n}_").repeat(8));
        let cpp = format!("_Z1f1AIiE{}", (0..6).map(argument).collect::<String>());
        assert_eq!(demangled(&cpp), cpp);
    }
}
