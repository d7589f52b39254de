//! `isotherm record` of files.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, DirtyBytes, RegionView, Snapshot};
use isotherm_linux::page_cache::ReadCounter;
use isotherm_record::{Event, Reader};
use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::files::write;
use crate::run::{Recorder, finish, isotherm, needs_root, snapshots, until};

pub const MIB: u64 = 1 << 20;
pub const PAGE: u64 = 4096;

/// On the disk, since reads of tmpfs cannot be counted.
pub fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A cached file, whose next reads go page by page.
pub fn cached(path: &Path, mib: u64) -> File {
    let file = write(path, mib);
    fadvise(&file, 0, None, Advice::Random).unwrap();
    file
}

pub fn counts_reads() -> bool {
    let counts = ReadCounter::load().is_ok();
    if !counts {
        eprintln!("skipped: this kernel has no tracepoint for reads");
    }
    counts
}

/// A cached file in a folder of its own, if this kernel counts reads.
pub fn counted_file(mib: u64) -> Option<(TempDir, PathBuf, File)> {
    counts_reads().then(|| {
        let dir = folder();
        let path = dir.path().canonicalize().unwrap().join("data");
        let file = cached(&path, mib);
        (dir, path, file)
    })
}

/// Names of the targets, and the last snapshot.
fn last(record: &Path) -> (Vec<String>, Snapshot) {
    let (mut names, mut last) = (Vec::new(), None);
    for event in Reader::open(record).unwrap() {
        match event.unwrap() {
            Event::Target(fact) => names.push(fact.command),
            Event::Snapshot(s) => last = Some(s),
            _ => {}
        }
    }
    let checked = finish(&mut isotherm(["record", "--check", record.to_str().unwrap()]));
    assert_eq!(checked.status, 0, "{}", checked.err);
    (names, (*last.unwrap()).clone())
}

/// Mean rate of the pages of a part of a target, and the part of it that is unknown.
fn rate(s: &Snapshot, target: usize, mib: std::ops::Range<u64>) -> (f64, f64) {
    let part = AddrRange::new(mib.start * MIB, mib.end * MIB);
    let inside = s.targets[target].regions.iter();
    let inside = inside.filter_map(|r| Some((r, r.range.intersect(&part)?.len() as f64)));
    let (mut hz, mut unknown) = (0.0, 0.0);
    for (r, bytes) in inside {
        hz += f64::from(r.rate.hz) * f64::from(r.touched_bp) / 1e4 * bytes / part.len() as f64;
        unknown += r.unknown_bp.total() as f64 / 1e4 * bytes / part.len() as f64;
    }
    (hz, unknown)
}

/// Calls `access` with the numbers 0, 1, 2.. at a rate, until `ended`; returns the real rate.
///
/// The thread goes before others: on a busy machine it would wait, and then catch up at once, mostly just before a recorder
/// that waits for the same CPU looks. Rates of looks at page tables would be 1.7 times too high.
pub fn at_rate(per_second: f64, ended: &AtomicBool, mut access: impl FnMut(u64)) -> f64 {
    let lowest = libc::sched_param { sched_priority: 1 };
    // Without the privilege, the rates are less even.
    // SAFETY: it sets the policy of this thread, and reads `lowest`.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) };
    let begin = Instant::now();
    let mut count = 0;
    while !ended.load(Ordering::Relaxed) {
        let due = (begin.elapsed().as_secs_f64() * per_second) as u64;
        (count..due).for_each(&mut access);
        count = due.max(count);
        std::thread::sleep(Duration::from_millis(3));
    }
    count as f64 / begin.elapsed().as_secs_f64()
}

/// Ends the threads of a scope when dropped, also if the test fails: otherwise the scope would wait for them forever.
pub struct EndOnDrop<'a>(pub &'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A page of a range, in an order that looks random, but comes to each page at nearly equal intervals.
pub fn page(i: u64, pages: u64) -> u64 {
    (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % pages
}

/// A page of a range, at random intervals: two rounds of mixing.
fn random_page(i: u64, pages: u64) -> u64 {
    page(i ^ (page(i, 1 << 30) << 7), pages)
}

#[test]
fn parts_of_a_file_by_kind_of_access() {
    needs_root!();
    let Some((dir, path, file)) = counted_file(48) else { return };
    let (record, ended) = (dir.path().join("rec"), AtomicBool::new(false));
    let words = ["record", "--by-access", "--duration", "12s", "--file"];
    let mut recorder = isotherm(words);
    recorder.arg(&path).arg("-o").arg(&record);
    let map = Mapped::of(&file, 48 * MIB);
    let (read, sent, written, mapped) = std::thread::scope(|scope| {
        let end = EndOnDrop(&ended);
        let read = scope.spawn(|| {
            at_rate(40_000.0, &ended, |i| {
                file.read_exact_at(&mut [0; 4096], 8 * MIB + page(i, 1024) * PAGE).unwrap();
            })
        });
        let sent = scope.spawn(|| {
            let null = File::options().write(true).open("/dev/null").unwrap();
            at_rate(600.0, &ended, |i| {
                let mut offset = (16 * MIB + (i % 64) * 16 * PAGE).cast_signed();
                // SAFETY: `offset` is a local variable, and both descriptors are open.
                let sent = unsafe {
                    libc::sendfile(null.as_raw_fd(), file.as_raw_fd(), &mut offset, 65_536)
                };
                assert_eq!(sent, 65_536);
            })
        });
        let written = scope.spawn(|| {
            at_rate(10_000.0, &ended, |i| {
                file.write_all_at(&[2], 24 * MIB + page(i, 512) * PAGE).unwrap();
            })
        });
        let mapped = scope.spawn(|| {
            at_rate(30_000.0, &ended, |i| map.read(32 * MIB + random_page(i, 2048) * PAGE))
        });
        let done = finish(&mut recorder);
        drop(end);
        assert_eq!(done.status, 0, "{}", done.err);
        [read, sent, written, mapped].map(|thread| thread.join().unwrap()).into()
    });
    let (names, s) = last(&record);
    let kinds = ["(read)", "(written)", "(mapped)"];
    assert_eq!(names, kinds.map(|kind| format!("{} {kind}", path.display())));
    // The first snapshots know little yet. If other programs read much, few accesses of each interval are counted.
    let later: Vec<_> = snapshots(&record).skip(4).collect();
    assert!(later.len() >= 4, "{} snapshots", later.len());
    // Mean rates of a page, to a factor of 1.5.
    let near = |target, mib: std::ops::Range<u64>, hz: f64| {
        let all: Vec<_> = later.iter().map(|s| rate(s, target, mib.clone())).collect();
        let mean = all.iter().map(|(hz, _)| hz).sum::<f64>() / all.len() as f64;
        let is_known = rate(&s, target, mib).1 < 0.1;
        assert!((mean / hz).log2().abs() < 0.6 && is_known, "{all:?}, not {hz}");
    };
    near(0, 8..12, read / 1024.0);
    near(0, 16..20, sent * 16.0 / 1024.0);
    near(2, 32..40, mapped / 2048.0);
    assert!(rate(&s, 1, 24..26).0 > 0.0, "{written} writes a second");
    for target in 0..3 {
        assert_eq!(rate(&s, target, 41..48).0, 0.0, "{target}");
    }
    assert_eq!(
        (rate(&s, 0, 24..40).0, rate(&s, 1, 0..23).0, rate(&s, 2, 0..31).0),
        (0.0, 0.0, 0.0)
    );
}

#[test]
fn files_have_idle_ages_and_dirty_bytes() {
    needs_root!();
    let Some((dir, path, file)) = counted_file(16) else { return };
    let (record, ended) = (dir.path().join("rec"), AtomicBool::new(false));
    // Rows come each ten seconds, and snapshots may be late.
    let mut recorder = isotherm(["record", "--duration", "21s", "--file"]);
    let done = std::thread::scope(|scope| {
        let _end = EndOnDrop(&ended);
        scope.spawn(|| {
            at_rate(300.0, &ended, |i| {
                file.write_all_at(&[2], 15 * MIB + page(i, 256) * PAGE).unwrap();
            })
        });
        finish(recorder.arg(&path).arg("-o").arg(&record))
    });
    assert_eq!(done.status, 0, "{}", done.err);
    let all: Vec<_> = snapshots(&record).collect();
    let dirty: Vec<_> = all.iter().map(|s| s.targets[0].dirty.unwrap()).collect();
    let changed = |d: &DirtyBytes| (1..=MIB).contains(&(d.dirty + d.writeback));
    assert!(dirty.iter().any(changed), "{dirty:?}");
    let with_ages = all.iter().filter_map(|s| Some((s, s.targets[0].ages.as_ref()?)));
    let rows: Vec<_> = with_ages.collect();
    assert!((1..=2).contains(&rows.len()), "{} rows in 21 s", rows.len());
    let (s, ages) = rows[0];
    assert!(ages.begun <= ages.since && ages.since < s.end && ages.sampling == 4, "{ages:?}");
    let resident: u64 = s.targets[0].regions.iter().map(RegionView::resident_bytes).sum();
    let counted = ages.idle.total() + u64::from(ages.unknown);
    assert!((counted * PAGE).abs_diff(resident) < MIB, "{counted} pages, {resident} bytes");
    let text = finish(&mut isotherm(["report", "summary", "-i", record.to_str().unwrap()]));
    assert!(text.text().contains("dirty"), "{}", text.text());
    assert!(!text.text().contains("whether it ran"), "files do not run: {}", text.text());
}

/// A shared mapping of a file, of which nothing is read ahead.
struct Mapped(*const u8);

// SAFETY: reads of a mapping that stays as long as the process need no order.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn of(file: &File, size: u64) -> Self {
        let (size, read) = (size as usize, libc::PROT_READ);
        // SAFETY: a new mapping at an address of the kernel's choice; it is never unmapped.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), size, read, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the range was just mapped.
        unsafe { libc::madvise(start, size, libc::MADV_RANDOM) };
        Mapped(start.cast())
    }

    fn read(&self, at: u64) {
        // SAFETY: callers read within the mapping, and no process makes the file shorter.
        let _ = unsafe { self.0.add(at as usize).read_volatile() };
    }
}

#[test]
fn files_that_come_go_and_change_their_names() {
    needs_root!();
    let dir = folder();
    let root: PathBuf = dir.path().canonicalize().unwrap();
    let at = |name: &str| root.join(name);
    fs::create_dir(at("tree")).unwrap();
    let _first = cached(&at("tree/first"), 3);
    let tree = at("tree").display().to_string();
    let mut recorder = Recorder::recording(&["--dir", &tree, "--aggr", "500ms"]);
    let record = recorder.record();
    let found = |name: &str| last_names(&record).iter().any(|n| n.ends_with(name));
    // Sparse: only its last MiB exists.
    let second = File::create_new(at("tree/second")).unwrap();
    second.write_all_at(&vec![1; MIB as usize], 99 * MIB).unwrap();
    until("a new file", || found("tree/second"));
    fs::rename(at("tree/second"), at("tree/renamed")).unwrap();
    until("a new name", || found("tree/renamed"));
    fs::remove_file(at("tree/renamed")).unwrap();
    until("a deleted file that is open", || found("tree/renamed (deleted)"));
    // Its pages may have been evicted since.
    until("what is cached of it", || {
        second.write_all_at(&vec![2; MIB as usize], 99 * MIB).unwrap();
        let last = snapshots(&record).last();
        let sparse = last.and_then(|s| s.targets.iter().find(|t| t.mapped() == 100 * MIB).cloned());
        let cached = |r: &RegionView| r.range.len() * u64::from(r.resident_bp) / 10_000;
        sparse.is_some_and(|t| t.regions.iter().map(cached).sum::<u64>() == MIB)
    });
    let _ = recorder.stop();
    let _ = last(&record);
}

fn last_names(record: &Path) -> Vec<String> {
    let events = Reader::open(record).unwrap().map_while(Result::ok);
    let name = |event| match event {
        Event::Target(fact) => Some(fact.command),
        _ => None,
    };
    events.filter_map(name).collect()
}

/// More windows are cached than isotherm counts in: it joins them, and goes on.
#[test]
fn windows_of_sparse_files_are_joined() {
    needs_root!();
    if !counts_reads() {
        return;
    }
    // One page of each window, and of more windows than the maximum of 32,768.
    const WINDOW: u64 = 256 << 10;
    const FILES: u64 = 34;
    const WINDOWS: u64 = 1000;
    let dir = folder();
    let tree = dir.path().canonicalize().unwrap().join("tree");
    fs::create_dir(&tree).unwrap();
    let sparse = |n: u64| {
        let path = tree.join(n.to_string());
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(WINDOWS * WINDOW).unwrap();
        fadvise(&file, 0, None, Advice::Random).unwrap();
        file
    };
    let files: Vec<File> = (0..FILES).map(sparse).collect();
    let cache_all = || {
        for (file, window) in files.iter().flat_map(|f| (0..WINDOWS).map(move |w| (f, w))) {
            file.read_exact_at(&mut [0], window * WINDOW).unwrap();
        }
    };
    cache_all();
    let mut recorder = Recorder::recording(&["--dir", tree.to_str().unwrap(), "--aggr", "500ms"]);
    until("the message about larger windows", || {
        let has_come = recorder.err().contains("from now on a window is 512.0 KiB");
        if !has_come {
            // The kernel may have evicted pages. Many reads a second would disturb other tests: ages then grow slowly.
            std::thread::sleep(Duration::from_secs(3));
            cache_all();
        }
        has_come
    });
    let record = recorder.record();
    let recorded = || snapshots(&record).count();
    cache_all();
    let joined = recorded();
    until("snapshots with larger windows", || recorded() > joined + 2);
    let s = recorder.stop().snapshots.pop().unwrap();
    assert_eq!(s.targets.len() as u64, FILES);
    let regions = s.targets.iter().flat_map(|t| &t.regions);
    let cached: u64 = regions.clone().map(RegionView::resident_bytes).sum();
    let all = FILES * WINDOWS * PAGE;
    assert!((all / 2..all + all / 20).contains(&cached), "{cached} bytes of {all}");
    let is_joined = |r: &RegionView| r.range.start.is_multiple_of(2 * WINDOW);
    assert!(regions.clone().all(is_joined), "{:?}", s.targets);
}

/// The record grows as long as isotherm watches it. After a rotation it is another file.
#[test]
fn the_record_itself_is_not_recorded() {
    needs_root!();
    if !counts_reads() {
        return;
    }
    // Very many regions, so that the record rotates soon.
    const FILES: u64 = 300;
    let dir = folder();
    let root = dir.path().canonicalize().unwrap();
    let at = |name: &str| root.join(name);
    (0..FILES).for_each(|n| fs::write(at(&n.to_string()), "cached").unwrap());
    let (tree, record) = (root.to_str().unwrap(), at("rec"));
    let limits = ["--max-size", "256K", "--rotate", "2"];
    let options = ["--dir", tree, "--aggr", "500ms", "-o", record.to_str().unwrap()];
    let mut recorder = Recorder::recording(&[&options[..], &limits[..]].concat());
    until("a rotation", || at("rec.1").exists());
    // What the record writes from now on is in a listing that has this file.
    fs::write(at("later"), "cached").unwrap();
    let mut names = BTreeSet::new();
    until("a new file", || {
        std::thread::sleep(Duration::from_millis(200));
        // It does not exist for a moment at each rotation.
        let events = Reader::open(&record).into_iter().flatten().map_while(Result::ok);
        names.extend(events.filter_map(|event| match event {
            Event::Target(fact) => Some(fact.command),
            _ => None,
        }));
        names.iter().any(|name| name.ends_with("/later"))
    });
    recorder.signal(Signal::INT);
    assert_eq!(recorder.wait().code(), Some(0), "{}", recorder.err());
    let own = names.iter().find(|name| name.contains("/rec"));
    assert_eq!(own, None);
}

/// A log has grown since the files were listed, which happens seldom where very many files are in memory.
#[test]
fn what_is_appended_to_a_file_is_recorded() {
    needs_root!();
    let Some((dir, _, file)) = counted_file(1) else { return };
    let dir = dir.path().to_str().unwrap();
    let mut recorder = Recorder::recording(&["--by-access", "--aggr", "500ms", "--dir", dir]);
    let record = recorder.record();
    let recorded = || snapshots(&record).count();
    let before = recorded();
    let ended = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndOnDrop(ended);
        // All the time: if other programs read much, few milliseconds of each interval are counted.
        let append = |i| file.write_all_at(&[2; 64], MIB + i % 16_384 * 64).unwrap();
        scope.spawn(move || at_rate(20_000.0, ended, append));
        let is_rated = || snapshots(&record).last().is_some_and(|s| rate(&s, 1, 1..2).0 > 0.0);
        until("a rate of what was appended", is_rated);
    });
    let needed = recorded() - before;
    let _ = recorder.stop();
    assert!(needed <= 10, "after {needed} snapshots");
}

/// Files cannot be listed while the mounts cannot be read. The recorder keeps those that it has, and tries again.
#[test]
fn a_failed_listing_ends_nothing() {
    needs_root!();
    if !counts_reads() {
        return;
    }
    let dir = folder();
    let tree = dir.path().canonicalize().unwrap().join("tree");
    fs::create_dir(&tree).unwrap();
    let (path, record) = (tree.join("kept"), dir.path().join("rec"));
    let _file = cached(&path, 4);
    // Nothing but the listing needs /proc. How soon it is due depends on the number of files of the machine.
    let script = "\"$1\" record --dir \"$2\" --duration 170s -o \"$3\" 2>\"$3.err\" &
        until [ -s \"$3\" ]; do sleep 0.1; done
        umount -l /proc || exit 77
        until grep -q 'list the files' \"$3.err\" || ! kill -0 $!; do sleep 0.1; done
        sleep 3; kill $!; wait $!; status=$?; cat \"$3.err\" >&2; exit $status";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_isotherm")]);
    let done = finish(command.arg(&tree).arg(&record));
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("cannot list the files (failure 1)"), "{}", done.err);
    let (names, s) = last(&record);
    assert_eq!((names, s.targets.len()), (vec![path.display().to_string()], 1));
}

/// There, the kernel reports other pids than isotherm has to use, and not all processes that map a file.
#[test]
fn mapped_memory_is_unknown_in_a_pid_namespace() {
    needs_root!();
    let Some((dir, path, file)) = counted_file(4) else { return };
    let record = dir.path().join("rec");
    let _map = Mapped::of(&file, 4 * MIB);
    let mut command = std::process::Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_isotherm"), "record"]);
    command.args(["--duration", "3s", "--file"]).arg(&path).arg("-o").arg(&record);
    let done = finish(&mut command);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("runs in a pid namespace"), "{}", done.err);
    let (_, s) = last(&record);
    assert_unknown(&s, 4);
}

/// Asserts that the only target is unknown, a file of so many MiB. The host or another test may have evicted some of it: what
/// is left is unknown.
fn assert_unknown(s: &Snapshot, mib: u64) {
    let left: u64 = s.targets[0].regions.iter().map(RegionView::resident_bytes).sum();
    let (hz, unknown) = rate(s, 0, 0..mib);
    let unknown = unknown * (mib * MIB) as f64;
    assert!(hz == 0.0 && unknown > 0.99 * left as f64, "{left} bytes: {:?}", s.targets);
    assert!(left >= mib * MIB / 2, "{left} bytes");
}

/// Reads of tmpfs are unknown, neither hot nor cold.
#[test]
fn memory_of_tmpfs_is_unknown() {
    needs_root!();
    let Ok(dir) = TempDir::new_in("/dev/shm") else {
        eprintln!("skipped: no tmpfs at /dev/shm");
        return;
    };
    let path = dir.path().join("file");
    let _file = cached(&path, 4);
    let record = dir.path().join("rec");
    let mut recorder = isotherm(["record", "--duration", "3s", "--file"]);
    let done = finish(recorder.arg(&path).arg("-o").arg(&record));
    assert_eq!(done.status, 0, "{}", done.err);
    let (_, s) = last(&record);
    assert_unknown(&s, 4);
}

#[test]
fn what_makes_no_sense_is_reported() {
    let dir = folder();
    let file = dir.path().join("file");
    drop(cached(&file, 1));
    let (dir, file) = (dir.path().to_str().unwrap(), file.to_str().unwrap());
    for (args, status, said) in [
        (&["--file", dir][..], 2, "is a folder: give it with --dir"),
        (&["--dir", file], 2, "is a file: give it with --file"),
        (&["--file", file, "--look", "smaps"], 2, "leave out --look"),
        (&["--file", file, "--monitor", "pages"], 2, "leave out --physical, --monitor"),
        (&["--by-access", "--pid", "1"], 2, "give --file, --dir, --mount or --cached"),
        (&["--file", "/no/such/file"], 1, "/no/such/file"),
    ] {
        let done = finish(&mut isotherm([&["record", "-o", "/dev/null"], args].concat()));
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
    }
}

/// Each page of a file is read as often as any other, so a cache holds its share of the reads.
#[test]
fn the_hit_ratio_of_caches_of_other_sizes() {
    needs_root!();
    let Some((_dir, path, file)) = counted_file(32) else { return };
    let ended = AtomicBool::new(false);
    let mut watching = isotherm(["need", "--for", "8s", "--json", "--page-cache", "16M", "--file"]);
    watching.arg(&path);
    let (done, read) = std::thread::scope(|scope| {
        let end = EndOnDrop(&ended);
        let read = scope.spawn(|| {
            let mut long = vec![0; 8 << 20];
            at_rate(40_000.0, &ended, |i| {
                if i % 1000 == 0 {
                    // The buffer ends behind the file, where there are no pages.
                    let last = 32 * MIB - PAGE;
                    assert_eq!(file.read_at(&mut long, last).unwrap() as u64, PAGE);
                }
                let page = random_page(i, 32 * MIB / PAGE);
                file.read_exact_at(&mut [0; 1], page * PAGE).unwrap();
            })
        });
        let done = finish(&mut watching);
        drop(end);
        (done, read.join().unwrap())
    });
    assert_eq!(done.status, 0, "{}", done.err);
    let need = done.json();
    let cache = &need["cache"];
    let at = |mib: u64| {
        let rows = cache["curve"].as_array().unwrap();
        let row = rows.iter().find(|row| row["cache_bytes"].as_u64() == Some(mib * MIB));
        row.unwrap_or_else(|| panic!("{mib} MiB: {need}"))["hit_percent"].as_f64().unwrap()
    };
    assert!((35.0..65.0).contains(&at(16)), "{need}");
    assert!(cache["now"]["hit_percent"].as_f64().unwrap() > 95.0, "{need}");
    assert!(cache["verdict"]["cache_bytes"].as_u64().unwrap() > 28 * MIB, "{need}");
    let rate = cache["reads_per_second"].as_f64().unwrap();
    assert!((rate / read).log2().abs() < 0.5, "{read} reads a second: {need}");
    let accessed = cache["accessed_bytes"].as_u64().unwrap();
    assert!((28 * MIB..36 * MIB).contains(&accessed), "{need}");

    // Nobody reads it any more.
    let short = finish(isotherm(["need", "--for", "2s", "--json", "--file"]).arg(&path));
    let refused = short.json()["cache"]["refused"].as_str().unwrap().to_owned();
    assert!(refused.contains("too short"), "{refused}");
    let other = finish(&mut isotherm(["record", "--reuse", "--", "true"]));
    assert_eq!(other.status, 2);
    assert!(other.err.contains("--reuse is about files"), "{}", other.err);
}
