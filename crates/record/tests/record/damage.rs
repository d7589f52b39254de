use std::path::Path;
use std::sync::Arc;

use isotherm_core::{PageAges, Snapshot};
use isotherm_record::{Event, ReadError, Reader};
use proptest::prelude::*;

use crate::samples::{NAME, few, reader, record, snapshots};

/// Kinds of frames.
const SNAPSHOTS: u8 = 1;
const MAPPINGS: u8 = 2;
const AGES: u8 = 6;

/// Offset and length of each frame, by the rules of the specification.
pub fn frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length: [u8; 4] = bytes[at + 12..at + 16].try_into().unwrap();
        let length = 24 + u32::from_le_bytes(length) as usize;
        all.push((at, length));
        at += length;
    }
    all
}

/// Corrects the checksums of the frame at `at`.
fn reseal(bytes: &mut [u8], (at, length): (usize, usize)) {
    let payload = crc32c::crc32c(&bytes[at + 24..at + length]);
    bytes[at + 16..at + 20].copy_from_slice(&payload.to_le_bytes());
    let header = crc32c::crc32c(&bytes[at..at + 20]);
    bytes[at + 20..at + 24].copy_from_slice(&header.to_le_bytes());
}

/// The snapshots before the record ends, and the error if there is one.
fn read(bytes: &[u8]) -> (Vec<Snapshot>, Option<ReadError>) {
    let (good, bad): (Vec<_>, Vec<_>) = reader(bytes).partition(Result::is_ok);
    assert!(bad.len() <= 1, "an error is the last thing that a reader says");
    (snapshots(good), bad.into_iter().next().map(|e| e.unwrap_err()))
}

#[test]
fn a_record_cut_at_any_byte_gives_all_before_and_a_message() {
    let all = few(30);
    let bytes = record(&all);
    for (begin, length) in frames(&bytes) {
        let (whole, _) = read(&bytes[..begin]);
        assert_eq!(whole, all[..whole.len()]);
        for end in begin..begin + length {
            let (read, error) = read(&bytes[..end]);
            assert_eq!(read, whole, "cut at {end}");
            match error {
                Some(ReadError::NotARecord { .. }) => assert_eq!(end, 0),
                Some(ReadError::Torn { at, .. }) => assert_eq!(at, begin as u64, "cut at {end}"),
                other => panic!("cut at {end}: {other:?}"),
            }
        }
    }
    let (whole, error) = read(&bytes);
    assert_eq!(whole, all);
    assert!(error.is_none());
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    let all = few(14);
    let bytes = record(&all);
    for at in 0..bytes.len() {
        for flip in [1 << (at % 8), 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            let (read, error) = read(&bytes);
            assert_eq!(read, all[..read.len()], "byte {at}");
            match error {
                Some(ReadError::Damaged { .. }) => assert!(at >= 8, "byte {at}"),
                Some(ReadError::NotARecord { .. }) => assert!(at < 8, "byte {at}"),
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_damaged_frame_is_skipped_and_costs_no_other() {
    let all = few(60);
    let bytes = record(&all);
    for (at, length) in frames(&bytes) {
        for byte in [at, at + 13, at + 30, at + length - 1] {
            let mut bytes = bytes.clone();
            bytes[byte] ^= 0x40;
            let mut reader = reader(&bytes).skip_damaged();
            let events: Vec<_> = reader.by_ref().collect();
            assert!(events.iter().filter_map(|e| e.as_ref().err()).all(is_torn), "byte {byte}");
            let lost = reader.lost();
            let ended = events.iter().any(|e| matches!(e, Ok(Event::End(_))));
            let read = snapshots(events);
            assert!(read.iter().all(|s| all.contains(s)), "byte {byte}");
            if bytes[at + 10] != MAPPINGS {
                assert_eq!((lost.places, lost.bytes), (1, length as u64), "byte {byte}");
            }
            // The end counts all of them, if it can be read.
            let until = if ended { 60 } else { read.last().map_or(0, |s| s.seq + 1) };
            assert_eq!(lost.snapshots, until - read.len() as u64, "byte {byte}");
        }
    }
}

fn is_torn(e: &ReadError) -> bool {
    matches!(e, ReadError::Torn { .. })
}

/// Snapshots whose mappings are lost are lost too, and not shown with other mappings.
#[test]
fn no_snapshot_is_given_mappings_of_before() {
    let all = few(60);
    let bytes = record(&all);
    let mut read = Vec::new();
    for (at, length) in frames(&bytes).into_iter().filter(|(at, _)| bytes[at + 10] == MAPPINGS) {
        let mut bytes = bytes.clone();
        bytes[at + length - 9] ^= 1;
        let left = snapshots(reader(&bytes).skip_damaged());
        assert!(left.iter().all(|s| *s == all[s.seq as usize]));
        read.push(left.len());
    }
    // The schema, which only the other frames need; the first set; the second set.
    assert_eq!(read, [60, 30, 30]);
}

/// With correct checksums, the reader must check the values themselves: no panic, and no invalid snapshot.
#[test]
fn hostile_payloads_give_messages() {
    let bytes = record(&few(3));
    for (at, length) in frames(&bytes) {
        for byte in at + 24..at + length {
            for value in [1, 0xff] {
                let mut bytes = bytes.clone();
                bytes[byte] = value;
                reseal(&mut bytes, (at, length));
                for s in snapshots(reader(&bytes).skip_damaged()) {
                    assert!(s.start <= s.end);
                    for t in &s.targets {
                        assert!(t.regions.is_sorted_by(|a, b| a.range.end <= b.range.start));
                    }
                }
            }
        }
    }
}

proptest! {
    /// The same with several bytes at once.
    #[test]
    fn very_hostile_payloads_give_messages(
        frame in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = record(&few(14));
        let frames = frames(&bytes);
        let (at, length) = *frame.get(&frames);
        for (place, value) in changes {
            *place.get_mut(&mut bytes[at + 24..at + length]) = value;
        }
        reseal(&mut bytes, (at, length));
        let _ = reader(&bytes).skip_damaged().count();
    }
}

/// A frame that only announces a long payload.
#[test]
fn a_length_is_not_believed() {
    let mut bytes = record(&[]);
    bytes.truncate(24);
    bytes[12..16].copy_from_slice(&(64u32 << 20).to_le_bytes());
    reseal_header(&mut bytes);
    assert!(matches!(read(&bytes).1, Some(ReadError::Torn { at: 0, .. })));
    bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    reseal_header(&mut bytes);
    let error = read(&bytes).1.unwrap().to_string();
    assert!(error.contains("longer than a frame may be"), "{error}");
}

fn reseal_header(bytes: &mut [u8]) {
    let header = crc32c::crc32c(&bytes[..20]);
    bytes[20..24].copy_from_slice(&header.to_le_bytes());
}

#[test]
fn a_record_of_a_later_isotherm_is_refused_with_advice() {
    let mut bytes = record(&few(1));
    bytes[8] = 9;
    reseal_header(&mut bytes);
    let error = read(&bytes).1.unwrap();
    assert!(matches!(error, ReadError::Version { found: 9, .. }));
    assert!(error.to_string().contains("later isotherm"));
}

#[test]
fn reading_fails_as_the_input_does() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let mut reader = Reader::new(Broken, Path::new(NAME)).unwrap();
    let first: Option<Result<Event, ReadError>> = reader.next();
    assert!(first.unwrap().unwrap_err().to_string().contains("the disk is gone"));
    assert!(reader.next().is_none());
}

/// As after a power cut: the file had grown, and its new part was not yet written.
#[test]
fn a_tail_of_zeros_is_torn_not_damaged() {
    const SECTOR: usize = 512;
    let all = few(60);
    let bytes = record(&all);
    let (whole, _) = read(&bytes);
    assert_eq!(whole, all);
    for (begin, length) in frames(&bytes).into_iter().skip(1) {
        let (before, _) = read(&bytes[..begin]);
        let sectors = (begin..begin + length).filter(|at| at.is_multiple_of(SECTOR));
        for from in std::iter::once(begin).chain(sectors) {
            // Ends of the file: that of this frame, of the next sector, and much later.
            for end in [begin + length, (begin + length).next_multiple_of(SECTOR), 200_000] {
                let mut bytes = bytes[..from].to_vec();
                bytes.resize(end, 0);
                let (read, error) = read(&bytes);
                assert_eq!(read, before, "zeros in {from}..{end}");
                assert!(
                    matches!(error, Some(ReadError::Torn { at, .. }) if at == begin as u64),
                    "zeros in {from}..{end}: {error:?}"
                );
            }
        }
    }
}

/// Zeros before other data are no tail: a reader that skips damage finds that data.
#[test]
fn zeros_in_the_middle_are_damage() {
    let all = few(60);
    let bytes = record(&all);
    let frames = frames(&bytes);
    let &(at, length) = frames.iter().find(|(at, _)| bytes[at + 10] == MAPPINGS).unwrap();
    for (zero, hole) in [(0, 700), (0, 200_000), (length, 0)] {
        let mut bytes = bytes.clone();
        bytes[at..at + zero].fill(0);
        bytes.splice(at..at, std::iter::repeat_n(0, hole));
        let error = read(&bytes).1;
        assert!(matches!(error, Some(ReadError::Damaged { .. })), "{zero} {hole}: {error:?}");
        let mut reader = reader(&bytes).skip_damaged();
        assert_eq!(snapshots(reader.by_ref()), all, "{zero} {hole}");
        assert_eq!(reader.lost().bytes, (zero + hole) as u64);
    }
}

/// Snapshots and their ages are most of a record.
#[test]
fn a_reader_without_snapshots_does_not_read_them_or_their_ages() {
    let mut all = few(4);
    let ages = PageAges { since: all[3].start, begun: all[0].start, ..PageAges::default() };
    all[3].targets[0].ages = Some(Arc::new(ages));
    let mut bytes = record(&all);
    for kind in [SNAPSHOTS, AGES] {
        let of_kind = |(at, _): &(usize, usize)| bytes[at + 10] == kind;
        let (at, length) = frames(&bytes).into_iter().rfind(of_kind).unwrap();
        bytes[at + length - 1] ^= 1;
    }
    assert!(reader(&bytes).any(|event| event.is_err()));
    let events: Vec<Event> = reader(&bytes).without_snapshots().collect::<Result<_, _>>().unwrap();
    assert!(matches!(events.last(), Some(Event::End(_))));
}
