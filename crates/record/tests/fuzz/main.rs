//! Reads changed records and recordings: there is no panic, memory is bounded, and an error has an offset that lies in
//! the input.
//!
//! Each case changes a file of `corpus` at random, the same way in each run. `ISOTHERM_FUZZ_SECONDS` extends the run
//! of each target beyond a few seconds; a seed that fails is printed with the panic. Add the input to `corpus`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod heap;

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use isotherm_core::{Attrs, Nanos};
use isotherm_record::edit::{Edit, Rewriter};
use isotherm_record::import::{Import, ImportError, Presumed};
use isotherm_record::{Facts, Limits, ReadError, Reader, TargetFact, Writer, export_perf_script};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Cases of each target in an ordinary run, which take some seconds.
const IMPORTS: u64 = 2000;
const READS: u64 = 300;
/// Memory that a case may hold, in bytes. Inputs have up to some 100 KiB; a reader has buffers of 256 KiB, and a frame
/// of a record may hold 64 MiB.
const MOST_HEAP: usize = 96 << 20;
/// Maximal length of an input.
const MOST_INPUT: usize = 256 << 10;

fn corpus(wanted: impl Fn(&str) -> bool) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| wanted(path.file_name().unwrap().to_str().unwrap()));
    files.sort();
    assert!(!files.is_empty());
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Random numbers, the same for the same seed.
struct Noise(Xoshiro256PlusPlus);

impl Noise {
    fn new(seed: u64) -> Self {
        Noise(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n.max(1) as u64) as usize
    }

    /// Up to eight changes: other bytes, numbers at their limits, parts left out, doubled or moved, another end.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len());
            let to = (at + 1 + self.below(64)).min(bytes.len());
            match self.below(8) {
                0 | 1 if at < bytes.len() => bytes[at] = self.0.next_u32() as u8,
                2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                3 => {
                    let limit = [0u64, 1, u64::MAX, u64::MAX >> 1, 1 << 31, 1 << 32, 1 << 40]
                        [self.below(7)];
                    let len = [1, 2, 4, 8][self.below(4)].min(bytes.len() - at.min(bytes.len()));
                    bytes[at..at + len].copy_from_slice(&limit.to_le_bytes()[..len]);
                }
                4 => drop(bytes.drain(at.min(to)..to)),
                5 if bytes.len() < MOST_INPUT => {
                    let part = bytes[at.min(to)..to].to_vec();
                    let place = self.below(bytes.len() + 1);
                    bytes.splice(place..place, part);
                }
                6 => {
                    let words: [&[u8]; 8] = [
                        b"[",
                        b"{\"",
                        b"99999999999999999999",
                        b"-1",
                        b"null",
                        b"\n",
                        b",",
                        b"\0\0\0\0",
                    ];
                    let word = words[self.below(8)];
                    bytes.splice(at..at, word.iter().copied());
                }
                _ => bytes.truncate(self.below(bytes.len() + 1)),
            }
        }
    }
}

/// Runs `target` on changed files for as long as asked for. It returns whether it has read anything.
fn fuzz(name: &str, least: u64, files: &[(PathBuf, Vec<u8>)], target: impl Fn(Vec<u8>) -> bool) {
    let seconds = std::env::var("ISOTHERM_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let (begin, long) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(0)));
    let (mut cases, mut read) = (0, 0);
    while cases < least || begin.elapsed() < long {
        let mut noise = Noise::new(cases);
        let (path, bytes) = &files[noise.below(files.len())];
        let mut bytes = bytes.clone();
        // the files themselves first
        if cases < files.len() as u64 {
            bytes.clone_from(&files[cases as usize].1);
        } else {
            noise.change(&mut bytes);
        }
        let told = Told { seed: cases, path: path.clone() };
        let (ok, most) = heap::most(|| target(bytes));
        assert!(most < MOST_HEAP, "{most} bytes of memory");
        std::mem::forget(told);
        read += u64::from(ok);
        cases += 1;
    }
    eprintln!("{name}: {cases} cases, {read} of them read, in {:.1?}", begin.elapsed());
    assert!(read >= files.len() as u64, "the corpus itself can be read");
}

/// Prints the seed of a case that panics.
struct Told {
    seed: u64,
    path: PathBuf,
}

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("seed {} of {}", self.seed, self.path.display());
    }
}

/// Imports, and makes a record of the result.
fn import(bytes: Vec<u8>) -> bool {
    let len = bytes.len() as u64;
    let is_compressed = bytes.first() == Some(&0x78);
    let name = Path::new("fuzzed");
    match Import::read(Cursor::new(bytes), name, "0.1.0", Presumed::default()) {
        Ok(import) => {
            let mut record = Vec::new();
            let writer = Writer::to(&mut record, name, import.facts(), Limits::default());
            let mut writer = writer.unwrap();
            for target in import.targets() {
                let _ = writer.target(target.clone()).unwrap();
            }
            for s in import.snapshots() {
                let _ = writer.snapshot(&s).unwrap();
            }
            writer.finish(isotherm_record::Why::Played, "").unwrap();
            let reader = Reader::new(Cursor::new(record), name).unwrap();
            assert!(
                reader.into_iter().all(|event| event.is_ok()),
                "what is imported is a sound record"
            );
            true
        }
        Err(ImportError::Invalid { at, .. } | ImportError::Large { at, .. }) => {
            assert!(is_compressed || at <= len, "byte {at} of {len}");
            false
        }
        Err(ImportError::Io { source, .. }) => panic!("memory cannot fail: {source}"),
        Err(_) => false,
    }
}

#[test]
fn importers_of_text() {
    let files =
        corpus(|name| name.contains("json") || name.contains("script") || name == "trace-cmd");
    fuzz("text", IMPORTS, &files, import);
}

#[test]
fn importers_of_binary_files() {
    fuzz(
        "binary",
        IMPORTS,
        &corpus(|name| name.contains("record.v") || name == "perf.data"),
        import,
    );
}

/// Reads a record, strictly and with damage left out, edits and exports it.
fn read(bytes: Vec<u8>) -> bool {
    let len = bytes.len() as u64;
    let reader = || Reader::new(Cursor::new(bytes.clone()), Path::new("fuzzed")).unwrap();
    let mut ok = true;
    for event in reader() {
        if let Err(e) = event {
            ok = false;
            if let ReadError::Damaged { at, .. } | ReadError::Torn { at, .. } = e {
                assert!(at <= len, "byte {at} of {len}");
            }
        }
    }
    let mut all = reader().skip_damaged();
    all.by_ref().for_each(drop);
    assert!(all.lost().bytes <= len);
    let _ = export_perf_script(reader().skip_damaged(), std::io::sink());
    let facts = Facts::new("0.1.0", Attrs::default(), Nanos(0));
    let writer = Writer::to(Vec::new(), Path::new("new"), &facts, Limits::default()).unwrap();
    let mut rewriter = Rewriter::new(writer, facts);
    let edit = Edit { aggr: Some(Duration::from_secs(1)), ..Edit::default() };
    let _ = rewriter.add(reader().skip_damaged(), &edit, true);
    ok
}

/// The record itself, whole frames of which are then changed: damage of single bytes never passes the checksums.
#[test]
fn the_reader_of_records() {
    let files = corpus(|name| name == "damo.json" || name.contains("script"));
    let record = |(path, bytes): &(PathBuf, Vec<u8>)| {
        let import = Import::read(Cursor::new(bytes), path, "0.1.0", Presumed::default()).unwrap();
        let mut record = Vec::new();
        let mut writer = Writer::to(&mut record, path, import.facts(), Limits::default()).unwrap();
        for target in import.targets() {
            let _ = writer.target(TargetFact { pid: Some(7), ..target.clone() }).unwrap();
        }
        for s in import.snapshots() {
            let _ = writer.snapshot(&s).unwrap();
        }
        writer.finish(isotherm_record::Why::Stopped, "").unwrap();
        (path.clone(), record)
    };
    let mut records: Vec<_> = files.iter().map(record).collect();
    // Payloads that are not packed, under valid checksums, so that changes reach the Arrow messages.
    let open =
        records.iter().map(|(path, bytes)| (path.clone(), unpacked(bytes))).collect::<Vec<_>>();
    records.extend(open.iter().cloned());
    fuzz("reader", READS, &records, read);
    fuzz("reader behind the checksums", READS, &open, |bytes| read(sealed(&bytes)));
}

const HEADER: usize = 24;

/// The header and payload of each frame.
fn frames(bytes: &[u8]) -> Vec<(&[u8], &[u8])> {
    let (mut at, mut frames) = (0, Vec::new());
    while let Some(header) = bytes.get(at..at + HEADER) {
        let len = u32::from_le_bytes(header[12..16].try_into().unwrap()) as usize;
        let end = (at + HEADER).saturating_add(len).min(bytes.len());
        frames.push((header, &bytes[at + HEADER..end]));
        at = end;
    }
    frames
}

/// The same frames with payloads that are not packed.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let plain = |(header, payload): &(&[u8], &[u8])| {
        let content = zstd::stream::decode_all(*payload).unwrap_or_else(|_| payload.to_vec());
        frame(header, &content)
    };
    frames(bytes).iter().flat_map(plain).collect()
}

/// The frames, whatever their payloads are now, with valid lengths and checksums.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    frames(bytes).iter().flat_map(|(header, payload)| frame(header, payload)).collect()
}

fn frame(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = b"\x89ISOTHM\n".to_vec();
    out.extend(&header[8..12]);
    out.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    out.extend(crc32c::crc32c(payload).to_le_bytes());
    out.extend(crc32c::crc32c(&out).to_le_bytes());
    out.extend(payload);
    out
}
