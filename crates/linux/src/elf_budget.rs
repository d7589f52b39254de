//! Limits for the files that blazesym reads. It maps them, indexes as many symbols as they state, and unpacks sections to any
//! size. Any user may have written these files.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::bufread::ZlibDecoder;
use object::elf::{
    ELFCOMPRESS_ZLIB, FileHeader32, FileHeader64, SHF_COMPRESSED, SHN_LORESERVE, SHT_PROGBITS,
};
use object::read::elf::{CompressionHeader, FileHeader, ProgramHeader, SectionHeader};
use object::{FileKind, NativeEndian, SectionIndex};

use crate::elf::ElfFile;
use crate::sys::open_regular;

/// Maximum bytes of the symbol tables of all files. For each symbol of 24 bytes, or of 16 in files of 32 bits, blazesym
/// needs 8 bytes.
const MAX_SYMBOLS: u64 = 1 << 30;
/// Maximum bytes of all sections that are unpacked.
const MAX_UNPACKED: u64 = 1 << 30;
/// Maximum bytes of all files with debug information whose checksum is computed.
const MAX_CHECKED: u64 = 16 << 30;

/// The parts of a file that blazesym indexes or unpacks.
pub(crate) struct ElfTables {
    file: File,
    /// bytes of the symbol tables
    symbols: u64,
    packed: Vec<PackedSection>,
}

#[derive(Debug, Clone, Copy)]
struct PackedSection {
    /// offset of the stream in the file, and its length
    offset: u64,
    len: u64,
    /// stated bytes, or none if blazesym cannot unpack it, or need not
    unpacked: Option<u64>,
}

impl ElfTables {
    /// None if the file is damaged, or blazesym would find other sections in it.
    pub fn read(path: &Path) -> Option<Self> {
        let file = open_regular(path).ok()?;
        let elf = ElfFile::new(file.try_clone().ok()?);
        let (symbols, packed) = match FileKind::parse(&elf).ok()? {
            FileKind::Elf32 => tables::<FileHeader32<NativeEndian>>(&elf),
            FileKind::Elf64 => tables::<FileHeader64<NativeEndian>>(&elf),
            _ => None,
        }?;
        Some(ElfTables { file, symbols, packed })
    }
}

fn tables<Elf: FileHeader<Endian = NativeEndian>>(
    elf: &ElfFile,
) -> Option<(u64, Vec<PackedSection>)> {
    let header = Elf::parse(elf).ok()?;
    let endian = header.endian().ok()?;
    // blazesym adds these without a check, and would panic in builds with overflow checks.
    let has_ends = |segment: &Elf::ProgramHeader| {
        let len: u64 = segment.p_filesz(endian).into();
        let begins: [u64; 2] = [segment.p_offset(endian).into(), segment.p_vaddr(endian).into()];
        begins.iter().all(|begin| begin.checked_add(len).is_some())
    };
    if !header.program_headers(endian, elf).ok()?.iter().all(has_ends) {
        return None;
    }
    let sections = header.sections(endian, elf).ok()?;
    // If headers are at offset 0, there are none. blazesym reads some there.
    let at: u64 = header.e_phoff(endian).into();
    let has_segments = at != 0 || header.e_phnum(endian) == 0;
    if !has_segments || sections.is_empty() || sections.len() >= usize::from(SHN_LORESERVE) {
        return None;
    }
    let (mut symbols, mut packed) = (0_u64, Vec::new());
    for (index, section) in sections.enumerate() {
        let name = sections.section_name(endian, section).ok()?;
        // blazesym never reads the first section, and would find a later one of the same name.
        if index == SectionIndex(0) && !name.is_empty() {
            return None;
        }
        let Some((_, len)) = section.file_range(endian) else { continue };
        if matches!(name, b".symtab" | b".dynsym") {
            symbols = symbols.saturating_add(len);
        }
        if section.sh_flags(endian).contains(SHF_COMPRESSED) {
            let (stated, offset, len) = section.compression(endian, elf).ok()??;
            let is_debug_info =
                section.sh_type(endian) == SHT_PROGBITS && name.starts_with(b".debug_");
            let is_known = is_debug_info && stated.ch_type(endian) == ELFCOMPRESS_ZLIB;
            let unpacked = is_known.then(|| stated.ch_size(endian).into());
            packed.push(PackedSection { offset, len, unpacked });
        }
    }
    Some((symbols, packed))
}

/// The remaining part of what blazesym may read of all files together: a record may name any number of them.
#[derive(Debug)]
pub(crate) struct ElfBudget {
    pub symbols: u64,
    unpacked: u64,
    checked: u64,
}

impl Default for ElfBudget {
    fn default() -> Self {
        ElfBudget { symbols: MAX_SYMBOLS, unpacked: MAX_UNPACKED, checked: MAX_CHECKED }
    }
}

impl ElfBudget {
    /// Whether the budget permits the symbols and the sections of a file. It is smaller afterwards.
    pub fn permits(&mut self, tables: &ElfTables) -> bool {
        self.permits_symbols(tables) && self.permits_unpacking(tables)
    }

    pub fn permits_symbols(&mut self, tables: &ElfTables) -> bool {
        take(&mut self.symbols, tables.symbols)
    }

    pub fn permits_unpacking(&mut self, tables: &ElfTables) -> bool {
        tables.packed.iter().all(|section| {
            // Many sections may share a long stream that unpacks to nothing.
            let is_permitted = |stated: u64| take(&mut self.unpacked, stated.max(section.len));
            section.unpacked.is_some_and(is_permitted)
                && section.is_as_long_as_stated(&tables.file).unwrap_or(false)
        })
    }

    pub fn permits_checksum(&mut self, tables: &ElfTables) -> bool {
        tables.file.metadata().is_ok_and(|found| take(&mut self.checked, found.len()))
    }
}

fn take(left: &mut u64, needed: u64) -> bool {
    let remaining = left.checked_sub(needed);
    *left = remaining.unwrap_or(*left);
    remaining.is_some()
}

impl PackedSection {
    /// blazesym unpacks the whole stream, regardless of the stated size.
    fn is_as_long_as_stated(&self, mut file: &File) -> io::Result<bool> {
        let Some(stated) = self.unpacked else { return Ok(false) };
        file.seek(SeekFrom::Start(self.offset))?;
        let stream = ZlibDecoder::new(BufReader::new(file.take(self.len)));
        let len = io::copy(&mut stream.take(stated.saturating_add(1)), &mut io::sink())?;
        Ok(len == stated)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use object::elf::{SHT_DYNSYM, SHT_NOTE, SHT_SYMTAB, SectionFlags};
    use tempfile::NamedTempFile;

    use super::*;
    use crate::elf::tests::{Section, with_sections};

    fn file(content: &[u8]) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    /// A section of debug information that unpacks to this many zeros, but may state another number.
    pub(crate) fn packed(len: usize, stated: u64) -> Section {
        let mut stream = ZlibEncoder::new(Vec::new(), Compression::fast());
        stream.write_all(&vec![0; len]).unwrap();
        let header = [1, stated, 1].map(u64::to_le_bytes).concat();
        let content = [header, stream.finish().unwrap()].concat();
        Section { name: ".debug_info", kind: SHT_PROGBITS, flags: SHF_COMPRESSED, content }
    }

    fn permits(content: &[u8]) -> Option<bool> {
        let tables = ElfTables::read(file(content).path())?;
        Some(ElfBudget::default().permits(&tables))
    }

    /// Found by fuzzing: blazesym adds offset and size, and panicked in builds with overflow checks.
    #[test]
    fn a_segment_whose_end_overflows_is_refused() {
        let sound = with_sections(&[]);
        assert!(ElfTables::read(file(&sound).path()).is_some());
        // The offset and the address of the segment, which has a size.
        for field in [72, 80] {
            let mut damaged = sound.clone();
            damaged[field..field + 8].fill(0xff);
            assert!(ElfTables::read(file(&damaged).path()).is_none(), "{field}");
        }
    }

    #[test]
    fn sections_that_unpack_to_another_size_than_they_state_are_not_permitted() {
        let permits = |len, stated| permits(&with_sections(&[packed(len, stated)]));
        assert_eq!(permits(1 << 20, 1 << 20), Some(true));
        assert_eq!(permits(1 << 20, 1 << 63), Some(false), "the memory for it is reserved at once");
        for stated in [0, (1 << 20) - 1, (1 << 20) + 1] {
            assert_eq!(permits(1 << 20, stated), Some(false), "{stated}");
        }
    }

    #[test]
    fn only_debug_information_is_unpacked() {
        let section = packed(9, 9);
        let others = [(".gnu_debuglink", SHT_PROGBITS), (".debug_info", SHT_NOTE)];
        for (name, kind) in others {
            let other = Section { name, kind, ..section.clone() };
            assert_eq!(permits(&with_sections(&[other])), Some(false), "{name}");
        }
        let mut zstd = section;
        zstd.content[0] = 2;
        assert_eq!(permits(&with_sections(&[zstd])), Some(false));
    }

    #[test]
    fn all_files_share_a_budget() {
        let flags = SectionFlags(0);
        let file = file(&with_sections(&[
            packed(1000, 1000),
            Section { name: ".symtab", kind: SHT_SYMTAB, flags, content: vec![0; 48] },
            Section { name: ".dynsym", kind: SHT_DYNSYM, flags, content: vec![0; 24] },
        ]));
        let tables = ElfTables::read(file.path()).unwrap();
        let len = file.as_file().metadata().unwrap().len();
        let mut left = ElfBudget { symbols: 150, unpacked: 2500, checked: len + 1 };
        assert!(left.permits(&tables) && left.permits(&tables) && left.permits_checksum(&tables));
        assert!(!left.permits_symbols(&tables) && !left.permits_unpacking(&tables));
        assert!(!left.permits_checksum(&tables));
        assert_eq!((left.symbols, left.unpacked, left.checked), (6, 500, 1));
        let mut short = ElfBudget { unpacked: tables.packed[0].len - 1, ..ElfBudget::default() };
        let empty = PackedSection { unpacked: Some(0), ..tables.packed[0] };
        let tables = ElfTables { packed: vec![empty], ..tables };
        assert!(!short.permits_unpacking(&tables), "also reading has a limit");
    }

    /// This program has symbols, and in most builds debug information.
    #[test]
    fn ordinary_programs_use_little_of_the_budget() {
        let tables = ElfTables::read(&std::env::current_exe().unwrap()).unwrap();
        assert!((1..MAX_SYMBOLS / 10).contains(&tables.symbols), "{}", tables.symbols);
        assert!(ElfBudget::default().permits(&tables));
    }

    /// blazesym takes other bytes for headers than the reader that checks the file.
    #[test]
    fn files_that_blazesym_reads_otherwise_are_refused() {
        let good = with_sections(&[packed(9, 9)]);
        assert_eq!(permits(&good), Some(true));
        let with = |at: usize, bytes: &[u8]| {
            let mut content = good.clone();
            content[at..at + bytes.len()].copy_from_slice(bytes);
            permits(&content)
        };
        assert_eq!(with(5, &[2]), None, "byte order");
        assert_eq!(with(32, &[0; 8]), None, "program headers at 0");
        assert_eq!(with(40, &[0; 8]), None, "section headers at 0");
        assert_eq!(with(62, &[0; 2]), None, "names in section 0");
        assert_eq!(with(128, &[1]), None, "section 0 has a name");
        assert_eq!(with(60, &[0xff, 0xfe]), None, "more sections than the file has");
    }
}
