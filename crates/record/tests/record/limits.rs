use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::Snapshot;
use isotherm_record::{
    Event, FileEndReason, Limits, ReadError, Reader, RecordProgress, RecordingHeader, TornReason,
    WriteError, Writer,
};

use crate::samples::{Shared, even, facts, mapping, reader, snapshots, target};

const SIZE: u64 = 256 << 10;

fn many(n: u64) -> impl Iterator<Item = Snapshot> {
    let mappings = Arc::new(vec![mapping(0x1000, 0x0100_0000, "[heap]")]);
    (0..n).map(move |seq| {
        let mut s = even(seq, 500, &mappings);
        // Values with little similarity, so that files fill up.
        for (i, r) in (0u64..).zip(&mut s.targets[0].regions) {
            let noise = (seq * 1000 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            r.age = Duration::from_nanos(noise >> 40);
        }
        s
    })
}

/// All files in `dir` with their sizes.
fn files(dir: &Path) -> Vec<(String, u64)> {
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())
    };
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(file).collect();
    files.sort();
    files
}

fn read(path: &Path) -> Vec<Event> {
    Reader::open(path).unwrap().collect::<Result<_, _>>().unwrap()
}

fn all_snapshots(path: &Path) -> Vec<Snapshot> {
    snapshots(read(path).into_iter().map(Ok::<_, ReadError>))
}

fn end(path: &Path) -> FileEndReason {
    let Some(Event::End(end)) = read(path).pop() else { panic!("no end") };
    end.why
}

struct Dir {
    dir: tempfile::TempDir,
    path: PathBuf,
}

fn dir() -> Dir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rec");
    Dir { dir, path }
}

fn record(path: &Path, facts: &RecordingHeader, limits: Limits, n: u64) -> RecordProgress {
    let mut writer = Writer::create(path, facts, limits).unwrap();
    let _ = writer.target(target(1)).unwrap();
    let mut progress = RecordProgress::Going;
    for s in many(n) {
        progress = writer.snapshot(&s).unwrap();
        let there = files(path.parent().unwrap()).into_iter().map(|(_, size)| size);
        assert!(there.sum::<u64>() <= limits.max_size.unwrap_or(u64::MAX));
        if progress == RecordProgress::Full {
            break;
        }
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    progress
}

#[test]
fn a_full_record_ends_properly() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: None };
    assert_eq!(record(&d.path, &facts(), limits, 2000), RecordProgress::Full);
    assert_eq!(end(&d.path), FileEndReason::MaxSize);
    let read = all_snapshots(&d.path);
    assert_eq!(read, many(2000).take(read.len()).collect::<Vec<_>>());
    let (_, size) = files(d.dir.path())[0];
    assert!(size <= SIZE && size > SIZE / 2, "{size}");
}

#[test]
fn a_rotating_record_keeps_the_newest() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    assert_eq!(record(&d.path, &facts(), limits, 2000), RecordProgress::Going);
    let files = files(d.dir.path());
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["rec", "rec.1", "rec.2"]);
    assert!(files.iter().all(|(_, size)| *size <= SIZE / 3));

    let read = all_snapshots(&d.path);
    let skipped = 2000 - read.len();
    assert!(skipped > 0 && read.len() > 30, "{}", read.len());
    assert_eq!(read, many(2000).skip(skipped).collect::<Vec<_>>());
    assert_eq!(end(&d.path), FileEndReason::Stopped);
}

#[test]
fn each_file_stands_alone() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    let _ = record(&d.path, &facts(), limits, 2000);
    let alone = d.dir.path().join("alone");
    fs::rename(d.dir.path().join("rec.1"), &alone).unwrap();
    let events = read(&alone);
    assert_eq!(events[..2], [Event::Header(facts()), Event::Target(target(1))]);
    assert!(events.iter().any(|e| matches!(e, Event::Snapshot(_))));
    assert_eq!(end(&alone), FileEndReason::Rotated);
}

#[test]
fn facts_are_written_once_for_all_files() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    let _ = record(&d.path, &facts(), limits, 2000);
    let events = read(&d.path);
    let count = |of: fn(&Event) -> bool| events.iter().filter(|e| of(e)).count();
    assert_eq!(count(|e| matches!(e, Event::Header(_))), 1);
    assert_eq!(count(|e| matches!(e, Event::Mappings { .. })), 1);
    assert_eq!(count(|e| matches!(e, Event::End(_))), 1);
}

#[test]
fn files_that_are_no_records_are_left_alone() {
    let d = dir();
    fs::write(&d.path, "dear diary").unwrap();
    let error = Writer::create(&d.path, &facts(), Limits::default()).err().unwrap();
    assert!(matches!(error, WriteError::Foreign { .. }));
    assert!(error.to_string().contains("choose another name"));
    assert_eq!(fs::read(&d.path).unwrap(), b"dear diary");
}

#[test]
fn rotation_skips_files_that_are_no_records() {
    let d = dir();
    fs::write(d.dir.path().join("rec.2"), "dear diary").unwrap();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    assert!(matches!(
        Writer::create(&d.path, &facts(), limits).err(),
        Some(WriteError::Foreign { .. })
    ));
    let limits = Limits { max_size: Some(SIZE), rotate: Some(2) };
    let _ = record(&d.path, &facts(), limits, 500);
    assert_eq!(fs::read(d.dir.path().join("rec.2")).unwrap(), b"dear diary");
}

#[test]
fn an_earlier_record_is_kept_as_old() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    let of = |seed| RecordingHeader { seed, ..facts() };
    for seed in 0..3 {
        let limits = if seed < 2 { limits } else { Limits::default() };
        let mut writer = Writer::create(&d.path, &of(seed), limits).unwrap();
        for s in many(1500) {
            let _ = writer.snapshot(&s).unwrap();
        }
        writer.finish(FileEndReason::Stopped, "").unwrap();
    }
    let names: Vec<_> = files(d.dir.path()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["rec", "rec.old", "rec.old.1", "rec.old.2"]);
    assert_eq!(read(&d.path)[0], Event::Header(of(2)));
    let old = read(&d.dir.path().join("rec.old"));
    assert_eq!(old[0], Event::Header(of(1)));
    assert!(matches!(old.last(), Some(Event::End(_))));
}

#[test]
fn an_empty_file_is_written_over() {
    let d = dir();
    fs::write(&d.path, "").unwrap();
    let _ = record(&d.path, &facts(), Limits::default(), 3);
    assert_eq!(all_snapshots(&d.path).len(), 3);
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Another user may have made the file, and may have it open. A recording that has just begun keeps it locked.
#[cfg(unix)]
#[test]
fn a_record_never_goes_into_an_existing_file() {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    let d = dir();
    fs::write(&d.path, "").unwrap();
    fs::set_permissions(&d.path, fs::Permissions::from_mode(0o666)).unwrap();
    let mut theirs = fs::File::open(&d.path).unwrap();
    let writer = Writer::create(&d.path, &facts(), Limits::default()).unwrap();
    let busy = Writer::create(&d.path, &facts(), Limits::default()).err();
    assert!(matches!(busy, Some(WriteError::Busy { .. })), "{busy:?}");
    drop(writer);
    let _ = record(&d.path, &facts(), Limits::default(), 3);
    assert_eq!(mode(&d.path), 0o600);
    assert_eq!(theirs.read_to_end(&mut Vec::new()).unwrap(), 0);
}

/// `isotherm now` records into memory.
#[cfg(target_os = "linux")]
#[test]
fn a_file_without_a_name_is_written_in_place() {
    use std::os::fd::AsRawFd;
    let file = tempfile::tempfile().unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let _ = record(&path, &facts(), Limits::default(), 3);
    assert_eq!(all_snapshots(&path).len(), 3);
}

#[cfg(unix)]
#[test]
fn a_link_to_nothing_does_not_choose_the_place_of_a_record() {
    let d = dir();
    let chosen = d.dir.path().join("chosen");
    std::os::unix::fs::symlink(&chosen, &d.path).unwrap();
    let error = Writer::create(&d.path, &facts(), Limits::default()).err();
    assert!(matches!(error, Some(WriteError::Foreign { .. })), "{error:?}");
    assert!(!chosen.exists());
}

/// The owner of the directory puts a link where the next file begins. It stays there, because renaming a file to
/// another name of the same file does nothing.
#[cfg(unix)]
#[test]
fn rotation_does_not_follow_a_link() {
    let d = dir();
    let [diary, previous] = ["diary", "rec.1"].map(|name| d.dir.path().join(name));
    fs::write(&diary, "").unwrap();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(2) };
    let mut writer = Writer::create(&d.path, &facts(), limits).unwrap();
    fs::remove_file(&d.path).unwrap();
    std::os::unix::fs::symlink(&diary, &d.path).unwrap();
    fs::hard_link(&d.path, previous).unwrap();
    for s in many(500) {
        let _ = writer.snapshot(&s).unwrap();
    }
    drop(writer);
    assert_eq!(fs::metadata(&diary).unwrap().len(), 0);
    assert!(!d.path.is_symlink(), "the next file has replaced the link");
}

/// Found by a review: the file had a second end, and was damaged.
#[test]
fn a_failed_rotation_leaves_a_sound_record() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    let mut writer = Writer::create(&d.path, &facts(), limits).unwrap();
    fs::create_dir(d.dir.path().join("rec.2")).unwrap();
    let _ = writer.target(target(1)).unwrap();
    let failed = many(2000).find_map(|s| writer.snapshot(&s).err());
    assert!(matches!(failed, Some(WriteError::Io { .. })), "{failed:?}");
    let summary = writer.finish(FileEndReason::Failed, "rotation").unwrap();
    assert_eq!(end(&d.path), FileEndReason::Rotated);
    assert_eq!(all_snapshots(&d.path).len() as u64, summary.snapshots);
}

/// Found by a review: a reader that was slower than the recording left out a whole file, without a word.
#[test]
fn a_file_that_moves_while_it_waits_is_found() {
    let d = dir();
    let limits = Limits { max_size: Some(4 * SIZE), rotate: Some(4) };
    let mut writer = Writer::create(&d.path, &facts(), limits).unwrap();
    let _ = writer.target(target(1)).unwrap();
    let [first, third] = ["rec.1", "rec.3"].map(|name| d.dir.path().join(name));
    let mut all = many(4000);
    let mut until = |exists: &Path| {
        while !exists.exists() {
            let _ = writer.snapshot(&all.next().unwrap()).unwrap();
        }
    };
    until(&first);
    let mut reader = Reader::open(&d.path).unwrap();
    let mut read = Vec::new();
    while read.is_empty() {
        if let Event::Snapshot(s) = reader.next().unwrap().unwrap() {
            read.push(s.seq);
        }
    }
    // The file that is read now, and the one after it, have other names.
    until(&third);
    let seq = |event: Result<Event, ReadError>| match event.unwrap() {
        Event::Snapshot(s) => Some(s.seq),
        _ => None,
    };
    read.extend(reader.filter_map(seq));
    assert!(read.len() > 20 && read.windows(2).all(|w| w[0] + 1 == w[1]), "{read:?}");
    assert_eq!(read[0], 0);
}

/// Found by a review: they hid intact files, and the record counted as sound.
#[test]
fn damage_to_an_older_file_affects_no_other() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    let _ = record(&d.path, &facts(), limits, 2000);
    let older = d.dir.path().join("rec.1");
    let (sound, whole) = (all_snapshots(&d.path), fs::read(&older).unwrap());
    let skipping = || Reader::open(&d.path).unwrap().skip_damaged();
    for damage in ["cut in a frame", "first frame"] {
        let mut bytes = whole.clone();
        match damage {
            "first frame" => bytes[40] ^= 1,
            _ => bytes.truncate(whole.len() / 2),
        }
        fs::write(&older, bytes).unwrap();
        let read: Vec<u64> = snapshots(skipping()).iter().map(|s| s.seq).collect();
        let (oldest, newest) = (sound[0].seq, sound[sound.len() - 1].seq);
        assert_eq!((read[0], read.last()), (oldest, Some(&newest)), "{damage}");
        assert!(read.len() > sound.len() / 2, "{damage}: {} of {}", read.len(), sound.len());
        let mut reader = skipping();
        reader.by_ref().for_each(drop);
        assert!(reader.lost().places > 0 && reader.lost().bytes > 0, "{damage}");
        let verified = isotherm_record::verify(&d.path).unwrap();
        assert!(!verified.is_sound(), "{damage}");
        assert!(Reader::open(&d.path).unwrap().any(|event| event.is_err()), "{damage}");
    }
}

#[test]
fn a_missing_directory_is_said_so() {
    let error = Writer::create(Path::new("/nowhere/rec"), &facts(), Limits::default());
    let error = error.err().unwrap().to_string();
    assert!(error.contains("/nowhere/rec") && error.contains("directory"), "{error}");
}

#[test]
fn a_limit_below_the_first_frames_is_refused() {
    // Text that hardly compresses.
    let note = (1..20_000u32).map(|i| i.wrapping_mul(2_654_435_761).to_string()).collect();
    let facts = RecordingHeader { note, ..facts() };
    let limits = Limits { max_size: Some(64 << 10), rotate: None };
    let error = Writer::to(Vec::new(), Path::new("rec"), &facts, limits).err().unwrap();
    assert!(error.to_string().contains("raise --max-size"), "{error}");
}

/// Children that end before any snapshot must not accumulate in each new file.
#[test]
fn targets_that_are_gone_are_not_written_again() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    let mut writer = Writer::create(&d.path, &facts(), limits).unwrap();
    for (id, s) in (1..).zip(many(1000)) {
        let _ = writer.target(target(id)).unwrap();
        let _ = writer.snapshot(&s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    let reported = read(&d.path).into_iter().filter(|e| matches!(e, Event::Target(_))).count();
    let kept = all_snapshots(&d.path).len();
    assert!(reported < kept + 100, "{reported} targets for {kept} snapshots");
}

/// However long the note is.
#[test]
fn an_end_fits_the_room_kept_for_it() {
    let bytes = Shared::default();
    let writer = Writer::to(bytes.clone(), Path::new("rec"), &facts(), Limits::default()).unwrap();
    let before = bytes.0.borrow().len();
    let mut noise = 1u64;
    let note: String = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from_u32(0x4e00 + (noise >> 52) as u32).unwrap()
    })
    .take(5000)
    .collect();
    writer.finish(FileEndReason::TargetsGone, &note).unwrap();
    assert!(bytes.0.borrow().len() - before <= 2048);
    let Some(Ok(Event::End(end))) = reader(&bytes.0.borrow()).last() else { panic!("no end") };
    assert!(note.starts_with(&end.note) && end.note.len() > 500);
}

/// A recording without snapshots does not replace one that has some.
#[test]
fn a_recording_without_snapshots_leaves_the_earlier_one_in_place() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    let _ = record(&d.path, &facts(), limits, 2000);
    let old = d.dir.path().join("rec.old");
    fs::copy(&d.path, &old).unwrap();
    let contents = || {
        let files = files(d.dir.path());
        let read = |(name, _)| fs::read(d.dir.path().join(name)).unwrap();
        files.into_iter().map(read).collect::<Vec<_>>()
    };
    let before = contents();
    let later = RecordingHeader { seed: 99, ..facts() };
    let begin = |limits| {
        let mut writer = Writer::create(&d.path, &later, limits).unwrap();
        let _ = writer.target(target(1)).unwrap();
        assert!(!writer.is_settled());
        assert_eq!(read(&d.path)[0], Event::Header(facts()), "while it goes on");
        writer
    };
    let summary = begin(limits).finish(FileEndReason::Failed, "").unwrap();
    assert!(!summary.in_place && summary.snapshots == 0);
    assert_eq!(contents(), before);
    drop(begin(Limits::default()));
    assert_eq!(contents(), before);

    let mut writer = begin(limits);
    let _ = writer.snapshot(&many(1).next().unwrap()).unwrap();
    assert!(!writer.is_settled(), "it only waits to be written");
    let _ = writer.flush().unwrap();
    assert!(writer.is_settled());
    assert!(writer.finish(FileEndReason::Stopped, "").unwrap().in_place);
    assert_eq!(read(&d.path)[0], Event::Header(later));
    let names: Vec<_> = files(d.dir.path()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["rec", "rec.old", "rec.old.1", "rec.old.2"]);
}

fn busy(path: &Path) -> Option<PathBuf> {
    match Writer::create(path, &facts(), Limits::default()) {
        Ok(_) => None,
        Err(WriteError::Busy { path }) => Some(path),
        Err(e) => panic!("{e}"),
    }
}

/// Two recordings with one name at once: the second one is refused and changes nothing, at any time of the
/// first one.
#[test]
fn a_second_recording_of_one_name_is_refused() {
    let d = dir();
    let old = d.dir.path().join("rec.old");
    let begin = || Writer::create(&d.path, &facts(), Limits::default()).unwrap();
    let mut first = begin();
    assert_eq!(busy(&d.path), Some(d.path.clone()), "nothing is there but its beginning");
    let _ = first.snapshot(&many(1).next().unwrap()).unwrap();
    let _ = first.flush().unwrap();
    assert_eq!(busy(&d.path), Some(d.path.clone()));
    assert_eq!(files(d.dir.path()).len(), 1);
    first.finish(FileEndReason::Stopped, "").unwrap();

    // The earlier record is in its place, and the new one waits.
    let mut second = begin();
    assert_eq!(busy(&d.path), Some(d.path.clone()));
    let _ = second.snapshot(&many(1).next().unwrap()).unwrap();
    let _ = second.flush().unwrap();
    assert!(second.is_settled() && old.exists());
    assert_eq!(busy(&d.path), Some(d.path.clone()));
    second.finish(FileEndReason::Stopped, "").unwrap();

    // FILE.old of one recording is FILE of another.
    let other = Writer::create(&old, &facts(), Limits::default()).unwrap();
    assert_eq!(busy(&d.path), Some(old));
    drop(other);
    assert_eq!(busy(&d.path), None);
}

#[test]
fn a_second_recording_is_refused_while_files_rotate() {
    let d = dir();
    let limits = Limits { max_size: Some(SIZE), rotate: Some(3) };
    let mut writer = Writer::create(&d.path, &facts(), limits).unwrap();
    let _ = writer.target(target(1)).unwrap();
    let mut rotated = 0;
    for s in many(2000) {
        let _ = writer.snapshot(&s).unwrap();
        let files = writer.summary().files;
        if files > rotated {
            rotated = files;
            assert_eq!(busy(&d.path), Some(d.path.clone()), "{files} files");
        }
    }
    assert!(rotated > 3);
    writer.finish(FileEndReason::Stopped, "").unwrap();
    assert_eq!(busy(&d.path), None);
}

/// The reader's message about a missing end depends on whether the record is still being written.
#[test]
fn a_missing_end_has_its_reason() {
    let d = dir();
    let why = |path: &Path| match Reader::open(path).unwrap().last() {
        Some(Err(ReadError::Torn { why, .. })) => why,
        other => panic!("{other:?}"),
    };
    let mut writer = Writer::create(&d.path, &facts(), Limits::default()).unwrap();
    assert_eq!(why(&d.path), TornReason::Recording, "no snapshot yet");
    let _ = writer.target(target(1)).unwrap();
    let _ = writer.snapshot(&many(1).next().unwrap()).unwrap();
    let _ = writer.flush().unwrap();
    assert_eq!(why(&d.path), TornReason::Recording);
    let copy = d.dir.path().join("copy");
    fs::copy(&d.path, &copy).unwrap();
    assert_eq!(why(&copy), TornReason::Killed);
    let len = fs::metadata(&copy).unwrap().len();
    fs::OpenOptions::new().write(true).open(&copy).unwrap().set_len(len - 3).unwrap();
    assert_eq!(why(&copy), TornReason::Cut);
    drop(writer);
    assert_eq!(why(&d.path), TornReason::Killed);
}

/// A full disk: the written part stays, and the end with the reason may still fit.
#[test]
fn a_disk_that_is_full_at_the_end_is_reported_in_the_record() {
    struct Disk(Shared, usize);
    impl std::io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let full = self.0.0.borrow().len() + bytes.len() > self.1;
            if full { Err(std::io::ErrorKind::StorageFull.into()) } else { self.0.write(bytes) }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let bytes = Shared::default();
    let disk = Disk(bytes.clone(), 16 << 10);
    let mut writer = Writer::to(disk, Path::new("rec"), &facts(), Limits::default()).unwrap();
    for s in many(10) {
        assert_eq!(writer.snapshot(&s).unwrap(), RecordProgress::Going);
    }
    let error = writer.finish(FileEndReason::Stopped, "").unwrap_err().to_string();
    assert!(error.contains("cannot write the record rec") && error.contains("has room"), "{error}");
    let Some(Ok(Event::End(end))) = reader(&bytes.0.borrow()).last() else { panic!("no end") };
    assert_eq!((end.why, end.snapshots), (FileEndReason::Failed, 0));
    assert!(end.note.contains("cannot write the record"), "{end:?}");
}
