//! Fuzz targets for the readers of records, recordings, schemes, options, requests, files of the kernel and of a lake, and
//! executed files.
//!
//! No input may cause a panic, hold more than [`MAX_HEAP`], or give an error whose offset lies outside of the input. The
//! memory of C libraries does not count: the window of zstd has a limit of its own, and so has the whole target.
//! `make fuzz` runs the targets, and the tests of this crate run their corpus. A function returns whether the corpus may
//! keep the input. Only the targets link libFuzzer: a static program of tests with it does not start.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(feature = "parsers")]
mod files;
mod heap;
#[cfg(feature = "services")]
mod kernel;
#[cfg(feature = "services")]
mod texts;
#[cfg(feature = "services")]
mod web;

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{Attrs, Nanos, Thresholds};
use isotherm_record::edit::{Edit, Rewriter};
use isotherm_record::import::{Format, Import, ImportError, Presumed};
use isotherm_record::{
    FileEndReason, Limits, ReadError, Reader, RecordingHeader, Writer, export_arrow,
    export_damo_json, export_perf_script, export_perfetto,
};

#[cfg(feature = "parsers")]
pub use files::{elf_file, lake_file};
#[cfg(feature = "services")]
pub use kernel::kernel_files;
#[cfg(feature = "services")]
pub use texts::{control, options_file, scheme_text, scheme_toml};
#[cfg(feature = "services")]
pub use web::web_requests;

/// The program of a target: libFuzzer calls the function of this name.
#[macro_export]
macro_rules! target {
    ($function:ident) => {
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| -> libfuzzer_sys::Corpus {
            match $crate::$function(bytes) {
                true => libfuzzer_sys::Corpus::Keep,
                false => libfuzzer_sys::Corpus::Reject,
            }
        });
    };
}

/// Maximal memory that an input may hold, in bytes. Inputs have at most 64 KiB, a reader has buffers of 256 KiB, and
/// a frame of a record may unpack to 64 MiB.
pub const MAX_HEAP: usize = 96 << 20;

/// Length of the header of a frame, in bytes.
const HEADER: usize = 24;

/// Imports json of damo, compressed or not.
pub fn damo_json(bytes: &[u8]) -> bool {
    bounded(|| import(bytes, &[Format::Json, Format::JsonCompressed]))
}

/// Imports binary records of damo.
pub fn damo_binary(bytes: &[u8]) -> bool {
    bounded(|| import(bytes, &[Format::Binary]))
}

/// Imports text of `perf script` and similar.
pub fn trace_text(bytes: &[u8]) -> bool {
    bounded(|| import(bytes, &[Format::TraceText]))
}

/// Imports `perf.data`.
pub fn perf_data(bytes: &[u8]) -> bool {
    bounded(|| import(bytes, &[Format::PerfData]))
}

/// Reads a record.
pub fn record(bytes: &[u8]) -> bool {
    bounded(|| read(bytes))
}

/// Reads a record after it gave each frame the right length and checksums, so that changes reach the messages.
pub fn record_messages(bytes: &[u8]) -> bool {
    bounded(|| read(&sealed(bytes)))
}

fn bounded(target: impl FnOnce() -> bool) -> bool {
    check(heap::most(target))
}

/// The same for a target with threads of its own.
#[cfg(feature = "services")]
fn bounded_with_threads(target: impl FnOnce() -> bool) -> bool {
    check(heap::most_of_all_threads(target))
}

fn check((result, most): (bool, usize)) -> bool {
    assert!(most <= MAX_HEAP, "{most} bytes of memory");
    result
}

/// Imports, and makes a record of the result, which must be sound. Input of no format of `formats` is not kept.
fn import(bytes: &[u8], formats: &[Format]) -> bool {
    let kept = |format| formats.contains(&format);
    let name = Path::new("fuzzed");
    let len = bytes.len() as u64;
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
            writer.finish(FileEndReason::Played, "").unwrap();
            let mut events = Reader::new(Cursor::new(record), name).unwrap();
            assert!(events.all(|event| event.is_ok()), "an import is a sound record");
            kept(import.format())
        }
        Err(ImportError::Invalid { at, format, .. }) => {
            // offsets of a compressed file are those of its text
            assert!(format == Format::JsonCompressed || at <= len, "byte {at} of {len}");
            kept(format)
        }
        Err(ImportError::Empty { format, .. }) => kept(format),
        Err(ImportError::Io { source, .. }) => panic!("memory cannot fail: {source}"),
        Err(
            ImportError::Own { .. } | ImportError::Unknown { .. } | ImportError::NoBytes { .. },
        ) => false,
        Err(_) => true,
    }
}

/// Reads a record, strictly and with damage left out, exports and edits it.
fn read(bytes: &[u8]) -> bool {
    let len = bytes.len() as u64;
    let reader = || Reader::new(Cursor::new(bytes.to_vec()), Path::new("fuzzed")).unwrap();
    for event in reader() {
        if let Err(ReadError::Damaged { at, .. } | ReadError::Torn { at, .. }) = event {
            assert!(at <= len, "byte {at} of {len}");
        }
    }
    let mut all = reader().skip_damaged();
    all.by_ref().for_each(drop);
    assert!(all.lost().bytes <= len);
    let _ = export_perf_script(reader().skip_damaged(), std::io::sink());
    let _ = export_arrow(reader().skip_damaged(), std::io::sink());
    let _ = export_perfetto(reader().skip_damaged(), &Thresholds::default(), std::io::sink());
    let _ = export_damo_json(|| Ok(reader().skip_damaged()), std::io::sink());
    let facts = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
    let writer = Writer::to(Vec::new(), Path::new("new"), &facts, Limits::default()).unwrap();
    let mut rewriter = Rewriter::new(writer, facts);
    let edit = Edit { aggr: Some(Duration::from_secs(1)), ..Edit::default() };
    let _ = rewriter.add(reader().skip_damaged(), &edit, true);
    true
}

/// The header and payload of each frame, regardless of its magic. The last payload may be cut.
fn frames(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (header, after) = rest.split_at_checked(HEADER)?;
        let len = u32::from_le_bytes(header[12..16].try_into().unwrap()) as usize;
        let (payload, next) = after.split_at(len.min(after.len()));
        rest = next;
        Some((header, payload))
    })
}

/// The same frames with payloads that are not compressed: the seeds of [`record_messages`].
#[must_use]
pub fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let plain = |(header, payload): (&[u8], &[u8])| {
        let content = zstd::stream::decode_all(payload).unwrap_or_else(|_| payload.to_vec());
        frame(header, &content)
    };
    frames(bytes).flat_map(plain).collect()
}

/// The frames with valid magic, lengths and checksums, regardless of their payloads.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    frames(bytes).flat_map(|(header, payload)| frame(header, payload)).collect()
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Tests run one at a time, because targets count the memory of all threads.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(dir: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
        let paths = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        let files: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        assert!(!files.is_empty());
        files
    }

    #[test]
    fn every_target_keeps_its_corpus() {
        let _alone = alone();
        type Target = fn(&[u8]) -> bool;
        let targets: &[(&str, Target)] = &[
            ("damo_json", damo_json),
            ("damo_binary", damo_binary),
            ("trace_text", trace_text),
            ("perf_data", perf_data),
            #[cfg(feature = "services")]
            ("scheme_text", scheme_text),
            #[cfg(feature = "services")]
            ("scheme_toml", scheme_toml),
            #[cfg(feature = "services")]
            ("options_file", options_file),
            #[cfg(feature = "services")]
            ("control", control),
            #[cfg(feature = "services")]
            ("kernel_files", kernel_files),
            #[cfg(feature = "services")]
            ("web_requests", web_requests),
            #[cfg(feature = "parsers")]
            ("lake_file", lake_file),
            #[cfg(feature = "parsers")]
            ("elf_file", elf_file),
        ];
        for (name, target) in targets {
            for (path, bytes) in files(&format!("corpus/{name}")) {
                assert!(target(&bytes), "{}", path.display());
            }
        }
    }

    #[test]
    fn records_of_all_versions_are_read_packed_and_unpacked() {
        let _alone = alone();
        for (path, bytes) in files("../crates/record/tests/record/stored") {
            let events = |bytes: Vec<u8>| {
                let events = Reader::new(Cursor::new(bytes), &path).unwrap();
                events.map(|e| format!("{:?}", e.unwrap())).collect::<Vec<_>>()
            };
            assert_eq!(events(sealed(&unpacked(&bytes))), events(bytes.clone()));
            let _ = (record(&bytes), record_messages(&unpacked(&bytes)));
        }
    }

    #[test]
    fn an_input_that_holds_too_much_fails() {
        let _alone = alone();
        let large = || {
            std::hint::black_box(vec![0_u8; MAX_HEAP + 1]);
            true
        };
        assert!(std::panic::catch_unwind(|| bounded(large)).is_err());
        // Found by an audit: the memory of a server's threads did not count.
        let elsewhere = || std::thread::spawn(large).join().unwrap();
        assert!(bounded(elsewhere));
        #[cfg(feature = "services")]
        assert!(std::panic::catch_unwind(|| bounded_with_threads(elsewhere)).is_err());
    }
}
