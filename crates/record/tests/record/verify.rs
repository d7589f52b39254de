//! Checks whether a record is sound.

use std::fs;
use std::path::{Path, PathBuf};

use isotherm_core::{AddrRange, Snapshot};
use isotherm_record::{FileEndReason, Limits, Verification, Writer, verify};
use tempfile::TempDir;

use crate::samples::{facts, few, record, target};

/// Snapshots whose regions and left-out memory cover exactly the mapped memory.
fn sound(n: u64) -> Vec<Snapshot> {
    let mut all = few(n);
    for view in all.iter_mut().flat_map(|s| &mut s.targets) {
        let covered: u64 = view.regions.iter().map(|r| r.range.len()).sum();
        view.left_out = view.mapped() - covered;
        view.regions.iter_mut().for_each(|r| r.rate.low = 0.0);
    }
    all
}

fn file(dir: &TempDir, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join("a.rec");
    fs::write(&path, bytes).unwrap();
    path
}

fn of(bytes: &[u8]) -> Verification {
    let dir = TempDir::new().unwrap();
    verify(&file(&dir, bytes)).unwrap()
}

#[test]
fn a_record_as_written_is_sound() {
    let v = of(&record(&sound(40)));
    assert!(v.is_sound() && v.torn.is_none(), "{v:?}");
    assert_eq!((v.snapshots, v.regions, v.targets), (40, 120, 3));
}

#[test]
fn problems_are_reported_with_their_place() {
    let mut all = sound(9);
    all[4].targets[0].left_out += 1;
    all[7].targets[0].regions[0].range = AddrRange::new(0, 0x2000);
    all.remove(2);
    let bytes = record(&all);
    let v = of(&bytes);
    let found: Vec<_> = v.problems.iter().map(|p| (p.snapshot, p.what.as_str())).collect();
    assert_eq!(found[0], (Some(3), "snapshot 2 before it is missing"));
    assert!(found[1].0 == Some(4) && found[1].1.contains("leave out"), "{found:?}");
    assert!(found[2].0 == Some(7) && found[2].1.contains("lies outside"), "{found:?}");
    assert!(v.problems.iter().all(|p| bytes[p.at as usize..].starts_with(b"\x89ISOTHM\n")));
    assert!(!v.is_sound() && v.nr_problems == 3);
}

#[test]
fn a_flip_anywhere_is_found() {
    let bytes = record(&sound(3));
    for at in (0..bytes.len()).step_by(7) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        let dir = TempDir::new().unwrap();
        if let Ok(v) = verify(&file(&dir, &bytes)) {
            assert!(!v.is_sound() || v.torn.is_some(), "byte {at}: {v:?}");
        }
    }
}

#[test]
fn a_missing_end_is_no_damage() {
    let bytes = record(&sound(3));
    let v = of(&bytes[..bytes.len() - 5]);
    assert!(v.is_sound() && v.torn.is_some() && v.snapshots == 3, "{v:?}");
}

/// A record that is cut in its first frames cannot be judged.
#[test]
fn a_record_cut_before_its_facts_is_an_error() {
    let bytes = record(&sound(3));
    let dir = TempDir::new().unwrap();
    for end in [10, 23, 24, 200] {
        let e = verify(&file(&dir, &bytes[..end])).unwrap_err();
        assert!(e.to_string().contains("breaks off after byte 0"), "{end}: {e}");
    }
}

/// Damage at the beginning and at the end costs snapshots too.
#[test]
fn snapshots_that_damage_has_cost_are_counted() {
    let all = sound(90);
    let bytes = record(&all);
    let mut most = 0;
    for at in (1000..bytes.len() - 400).step_by(501) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        let v = of(&bytes);
        assert!(!v.is_sound());
        assert_eq!(v.lost.snapshots, 90 - v.snapshots, "byte {at}");
        most = most.max(v.lost.snapshots);
    }
    assert!(most > 1);
}

#[test]
fn problems_are_counted_and_the_first_are_kept() {
    let mut all = sound(50);
    all.iter_mut().for_each(|s| s.targets[0].left_out = 7);
    let v = of(&record(&all));
    assert_eq!((v.nr_problems, v.problems.len()), (50, 20));
}

#[test]
fn a_target_must_be_announced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    let mut writer = Writer::create(&path, &facts(), Limits::default()).unwrap();
    let _ = writer.target(target(0)).unwrap();
    for s in sound(2) {
        let _ = writer.snapshot(&s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    let v = verify(&path).unwrap();
    assert_eq!(v.nr_problems, 2);
    assert_eq!(v.problems[0].what, "target 1: it was not announced before");
}

#[test]
fn older_files_are_checked_with_the_newest_one() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.rec");
    let limits = Limits { max_size: Some(3 * (64 << 10)), rotate: Some(3) };
    let mut writer = Writer::create(&path, &facts(), limits).unwrap();
    (0..3).for_each(|id| {
        let _ = writer.target(target(id)).unwrap();
    });
    for s in sound(6000) {
        let _ = writer.snapshot(&s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    assert!(dir.path().join("a.rec.2").exists());
    let v = verify(&path).unwrap();
    assert!(v.is_sound() && v.snapshots > 0 && v.torn.is_none(), "{:?}", v.problems);
    assert!(v.snapshots < 6000, "the oldest have made room");
}

#[test]
fn a_file_that_is_no_record_is_an_error() {
    let dir = TempDir::new().unwrap();
    for bytes in [&b"hot and cold\n"[..], &[0; 500], &[]] {
        let e = verify(&file(&dir, bytes)).unwrap_err();
        assert!(e.to_string().contains("is no isotherm record"), "{e}");
    }
    assert!(verify(Path::new("/no/such")).is_err());
}
