//! Names of the functions that a compiler generates while a program runs: in `/tmp/perf-PID.map`, or in a jitdump
//! of perf. Any user may have written these files.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

/// Maximum bytes of the names that are kept of all dumps, and of one name.
const MAX_NAMES: usize = 64 << 20;
const MAX_NAME: usize = 4096;
/// Maximum number of records that are read of all dumps.
const MAX_RECORDS: usize = 1 << 21;

/// `JiTD`, in the byte order of the machine that wrote it
const MAGIC: u32 = 0x4a69_5444;
/// Kinds of records: new code, and code that moves.
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// Bytes before the content of a record: its kind, its size and its time.
const HEADER: usize = 16;
/// Bytes of the content of a record of new code before the name.
const FIXED: usize = 40;

/// The remaining part of what may be read of all dumps together: a record may name any number of them.
#[derive(Debug)]
pub(crate) struct DumpBudget {
    /// bytes
    pub names: usize,
    pub records: usize,
}

impl Default for DumpBudget {
    fn default() -> Self {
        DumpBudget { names: MAX_NAMES, records: MAX_RECORDS }
    }
}

/// The generated functions of a process.
#[derive(Debug, Default)]
pub(crate) struct GeneratedCode {
    /// length and name by start; disjoint
    by_start: BTreeMap<u64, (u64, String)>,
}

impl GeneratedCode {
    /// The name of the function at an address.
    pub(crate) fn at(&self, address: u64) -> Option<&str> {
        let (start, (len, name)) = self.by_start.range(..=address).next_back()?;
        (address - start < *len).then_some(name)
    }

    /// Adds a function. It replaces those that it overlaps: the compiler has used their memory again.
    fn insert(&mut self, start: u64, len: u64, name: String) {
        let end = start.saturating_add(len);
        let earlier = self.by_start.range(..end).rev();
        let overlapped = earlier.take_while(|(at, (len, _))| at.saturating_add(*len) > start);
        let overlapped: Vec<u64> = overlapped.map(|(&at, _)| at).collect();
        overlapped.iter().for_each(|at| {
            self.by_start.remove(at);
        });
        if len > 0 {
            self.by_start.insert(start, (len, name));
        }
    }

    /// Adds the functions of a map: lines `START LENGTH NAME`, whose numbers are hexadecimal.
    pub(crate) fn read_map(&mut self, text: &str) {
        let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        let parse = |line: &str| {
            let mut words = line.splitn(3, ' ');
            Some((hex(words.next()?)?, hex(words.next()?)?, words.next()?.to_owned()))
        };
        text.lines().filter_map(parse).for_each(|(start, len, name)| self.insert(start, len, name));
    }

    /// Adds the functions of a dump, in the format of `jitdump-specification.txt` in the kernel's `tools/perf`, up to the
    /// first damaged or incomplete record. A file of another kind or byte order has none.
    pub(crate) fn read_dump(&mut self, file: &mut (impl Read + Seek), left: &mut DumpBudget) {
        let mut next = skip_header(file);
        while next.is_some() {
            next = self.read_record(file, left);
        }
    }

    /// None at the end of the dump or of the budget.
    fn read_record(&mut self, file: &mut (impl Read + Seek), left: &mut DumpBudget) -> Option<()> {
        let mut header = [0; HEADER];
        file.read_exact(&mut header).ok()?;
        left.records = left.records.checked_sub(1)?;
        let (kind, size) = (int(&header, 0)?, usize::try_from(int(&header, 4)?).ok()?);
        let size = size.checked_sub(HEADER)?;
        let needed = if matches!(kind, LOAD | MOVE) { size.min(FIXED + MAX_NAME) } else { 0 };
        let mut content = vec![0; needed];
        file.read_exact(&mut content).ok()?;
        // the instructions
        file.seek_relative(i64::try_from(size - needed).ok()?).ok()?;
        match kind {
            LOAD => {
                let name = content.get(FIXED..)?.split(|&b| b == 0).next()?;
                left.names = left.names.checked_sub(name.len())?;
                let name = String::from_utf8_lossy(name).into_owned();
                self.insert(long(&content, 16)?, long(&content, 24)?, name);
            }
            MOVE => {
                if let Some((len, name)) = self.by_start.remove(&long(&content, 16)?) {
                    self.insert(long(&content, 24)?, len, name);
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn skip_header(file: &mut (impl Read + Seek)) -> Option<()> {
    let mut header = [0; 12];
    file.read_exact(&mut header).ok()?;
    let size = int(&header, 8)?.checked_sub(12)?;
    let is_dump = int(&header, 0)? == MAGIC;
    is_dump.then(|| file.seek_relative(i64::from(size)).ok())?
}

fn int(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Cursor;

    use super::*;

    fn record(kind: u32, content: &[u8]) -> Vec<u8> {
        let size = u32::try_from(HEADER + content.len()).unwrap();
        [&kind.to_ne_bytes()[..], &size.to_ne_bytes(), &[0; 8], content].concat()
    }

    fn longs(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
    }

    fn load(start: u64, name: &str) -> Vec<u8> {
        let numbers = longs(&[7, start, start, 16, 1]);
        record(LOAD, &[&numbers, name.as_bytes(), &[0], &[0xcc; 16]].concat())
    }

    /// A dump of functions of 16 bytes each: `old` at 0x100, of which `new` replaces the second half, and `moved`, which
    /// moves from 0x200 to 0x300.
    pub(crate) fn dump() -> Vec<u8> {
        let version = [1_u32, 40, 62, 0, 7].map(u32::to_ne_bytes).concat();
        let header = [&MAGIC.to_ne_bytes()[..], &version, &[0; 16]].concat();
        let lines = record(2, &longs(&[0x108, 0]));
        let moves = record(MOVE, &longs(&[7, 0x300, 0x200, 0x300, 16, 1]));
        [header, load(0x100, "old"), load(0x200, "moved"), lines, load(0x108, "new"), moves]
            .concat()
    }

    fn read(bytes: &[u8]) -> GeneratedCode {
        let mut code = GeneratedCode::default();
        code.read_dump(&mut Cursor::new(bytes), &mut DumpBudget::default());
        code
    }

    #[test]
    fn later_code_replaces_the_code_that_it_overlaps() {
        let code = read(&dump());
        let at = [0x107, 0x108, 0x117, 0x118, 0x200, 0x2ff, 0x300, 0x30f].map(|at| code.at(at));
        let (new, moved) = (Some("new"), Some("moved"));
        assert_eq!(at, [None, new, new, None, None, None, moved, moved]);
        let mut code = GeneratedCode::default();
        code.read_map("100 10 a\n200 10 b\n108 0 none\nfffffffffffffff0 ff last\n10 800 c");
        assert_eq!(
            [0x100, 0x20f, u64::MAX].map(|at| code.at(at)),
            [Some("c"), Some("c"), Some("last")]
        );
    }

    #[test]
    fn damaged_dumps_have_the_functions_before_the_damage() {
        let whole = dump();
        let names = |bytes: &[u8]| read(bytes).by_start.len();
        assert_eq!(names(&whole), 2);
        // A process that still writes: the last record is incomplete. Instructions may be missing.
        assert_eq!(read(&whole[..whole.len() - 1]).at(0x200), Some("moved"));
        for end in 0..whole.len() {
            assert!(names(&whole[..end]) <= 2);
            let mut damaged = whole.clone();
            for byte in [0, 0xff] {
                damaged[end] = byte;
                assert!(names(&damaged) <= 4);
            }
        }
        let mut other = whole.clone();
        other[..4].reverse();
        assert_eq!(names(&other), 0, "another byte order");
        // A record without a name, or that is shorter than its header, ends the dump.
        let header = &whole[..40];
        for short in [record(LOAD, &[0; 39]), [LOAD, 15, 0, 0].map(u32::to_ne_bytes).concat()] {
            assert_eq!(names(&[header, &short, &load(0x100, "after")].concat()), 0);
        }
    }

    #[test]
    fn long_names_are_cut_and_many_end_the_dump() {
        let header = &dump()[..40];
        let name = "x".repeat(MAX_NAME * 3);
        let code = read(&[header, &load(0x100, &name), &load(0x200, "after")].concat());
        assert_eq!(code.at(0x100).map(str::len), Some(MAX_NAME));
        assert_eq!(code.at(0x200), Some("after"));
        let mut left = DumpBudget { names: MAX_NAME, records: 9 };
        let mut code = GeneratedCode::default();
        let mut file = Cursor::new([load(0x100, &name), load(0x200, "after")].concat());
        assert!(code.read_record(&mut file, &mut left).is_some());
        assert!(code.read_record(&mut file, &mut left).is_none());
    }

    #[test]
    fn all_dumps_share_a_budget() {
        // Two dumps of five records each, and 11 bytes of names.
        for (names, records) in [(22, usize::MAX), (usize::MAX, 10)] {
            let mut left = DumpBudget { names, records };
            let mut read = || {
                let mut code = GeneratedCode::default();
                code.read_dump(&mut Cursor::new(dump()), &mut left);
                code.by_start.len()
            };
            assert_eq!([read(), read(), read()], [2, 2, 0]);
        }
    }
}
