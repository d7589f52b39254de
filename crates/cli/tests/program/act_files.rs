//! `isotherm run` and `isotherm reclaim` on files.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_linux::page_cache::ReadCounter;
use isotherm_linux::sys::mincore;
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::files::with_whole_cache;
use crate::record_files::{
    EndOnDrop, MIB, PAGE, at_rate, cached, counted_file, counts_reads, folder, page,
};
use crate::run::{finish, finish_after, isotherm, needs_root, until};

/// MiB of a file that the kernel may evict during a test.
const EVICTED: f64 = 1.0;
const SIZE: u64 = 32;
const HOT: Range<u64> = 8..16;

/// MiB of a part that are in the cache.
pub fn resident(file: &File, mib: Range<u64>) -> f64 {
    let part = AddrRange::new(mib.start * MIB, mib.end * MIB);
    let cached = mincore(file, part).unwrap().iter().filter(|cached| **cached).count();
    (cached as u64 * PAGE) as f64 / MIB as f64
}

/// Reads the hot part until `ended`.
fn read_hot(file: &File, ended: &AtomicBool) {
    // Of more than 25,000 reads a second, isotherm sees a part, and ages grow more slowly.
    at_rate(10_000.0, ended, |i| {
        let pages = (HOT.end - HOT.start) * MIB / PAGE;
        file.read_exact_at(&mut [0; 1], HOT.start * MIB + page(i, pages) * PAGE).unwrap();
    });
}

fn act(dir: &TempDir, path: &Path, lines: &[&str], more: &[&str]) -> std::process::Command {
    let mut command = isotherm(["run", "--json", "--file"]);
    command.arg(path).args(more).current_dir(dir.path());
    lines.iter().for_each(|line| _ = command.args(["--scheme-line", line]));
    command
}

fn of_scheme<'a>(table: &'a Value, name: &str) -> &'a Value {
    let schemes = table["schemes"].as_array().unwrap();
    schemes.iter().find(|s| s["scheme"] == name).unwrap_or_else(|| panic!("{name}: {table}"))
}

/// It drops what is cold and clean, and keeps what is read or dirty. A dry run drops nothing.
#[test]
fn cold_parts_of_a_file_are_dropped() {
    needs_root!();
    with_whole_cache(|| {
        let Some((dir, path, file)) = counted_file(SIZE) else { return };
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _end = EndOnDrop(&ended);
            scope.spawn(|| read_hot(&file, &ended));
            let drop = "4K max min min 3s max drop";
            let dry = finish(&mut act(&dir, &path, &[drop], &["--duration", "8s", "--dry-run"]));
            let untouched = resident(&file, 0..SIZE);
            assert!(untouched >= SIZE as f64 - EVICTED, "{untouched} MiB");
            // The kernel writes it back after 30 s.
            file.write_all_at(&[2], 24 * MIB).unwrap();
            let cold = || resident(&file, 0..HOT.start) + resident(&file, HOT.end..SIZE);
            // If other programs read much, ages grow slowly. A dirty page keeps its folio, of at most 2 MiB.
            let mut run = act(&dir, &path, &[drop], &["--duration", "300s"]);
            let done = finish_after(&mut run, |run| {
                until("cold parts are dropped", || cold() <= 2.0);
                kill_process(Pid::from_child(run), Signal::INT).unwrap();
            });
            assert_eq!((dry.status, done.status), (0, 0), "{}{}", dry.err, done.err);
            assert!(dry.text().contains("pageout"), "{}", dry.text());
            let table = done.json();
            let stats = of_scheme(&table, "pageout");
            let applied = stats["applied"]["bytes"].as_u64().unwrap();
            let cold = cold();
            assert!(resident(&file, HOT) >= (HOT.end - HOT.start) as f64 - EVICTED);
            assert!((PAGE as f64 / MIB as f64..=2.0).contains(&cold), "{cold} MiB: {table}");
            let evicted = (SIZE - 8) as f64 - cold - applied as f64 / MIB as f64;
            assert!((0.0..=EVICTED).contains(&evicted), "{evicted} MiB: {table}");
            assert!(stats["failed"]["bytes"].as_u64().unwrap() >= PAGE, "{table}");
        });
    });
}

/// Bytes that a scheme drops of the files below a folder which nothing accessed for 8 s.
fn dropped(dir: &Path) -> u64 {
    // If other programs read much, ages grow slowly.
    let mut command = isotherm(["run", "--json", "--duration", "60s", "--dir"]);
    command.arg(dir).args(["--scheme-line", "4K max min min 8s max drop"]);
    let done = finish(&mut command);
    assert_eq!(done.status, 0, "{}", done.err);
    let table = done.json();
    of_scheme(&table, "pageout")["applied"]["bytes"].as_u64().unwrap()
}

/// One page in 64 counts, so that nothing is counted of most small files in many seconds. Those that are read stay.
#[test]
fn small_files_that_are_read_stay() {
    needs_root!();
    if !counts_reads() {
        return;
    }
    const FILES: usize = 200;
    const BYTES: usize = 16 << 10;
    with_whole_cache(|| {
        let dir = folder();
        let root = dir.path().canonicalize().unwrap();
        let files: Vec<File> = (0..FILES)
            .map(|n| {
                let path = root.join(n.to_string());
                std::fs::write(&path, [1; BYTES]).unwrap();
                let file = File::open(path).unwrap();
                file.sync_all().unwrap();
                file
            })
            .collect();
        let ended = AtomicBool::new(false);
        let bytes = std::thread::scope(|scope| {
            let _end = EndOnDrop(&ended);
            // Each file once a second.
            let reader = || {
                at_rate(FILES as f64 / 2.0, &ended, |i| {
                    let file = &files[i as usize % (FILES / 2)];
                    file.read_exact_at(&mut [0; BYTES], 0).unwrap();
                })
            };
            scope.spawn(reader);
            dropped(&root)
        });
        let cached = |files: &[File]| {
            let all = AddrRange::new(0, BYTES as u64);
            let pages = files.iter().flat_map(|file| mincore(file, all).unwrap());
            pages.filter(|is_cached| *is_cached).count() * PAGE as usize
        };
        let (read, unread) = files.split_at(FILES / 2);
        // At most 4 files of the 100 that are read are dropped, and come back. The kernel may evict some of all too.
        let (all, few) = (FILES / 2 * BYTES, 4 * BYTES);
        assert!(
            cached(read) + few >= all && cached(unread) <= all / 4,
            "{} {}",
            cached(read),
            cached(unread)
        );
        // A busy machine may not get to the last ones.
        assert!((all / 4 * 3..=all + few).contains(&(bytes as usize)), "{bytes} of {all}");
    });
}

/// Few of the reads of a large file count: of each part one in half a minute here.
#[test]
fn parts_that_are_seldom_read_stay() {
    needs_root!();
    with_whole_cache(|| {
        let Some((_dir, path, file)) = counted_file(2 * SIZE) else { return };
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _end = EndOnDrop(&ended);
            // Each part of 256 KiB of the first half twice a second.
            let reader = || {
                at_rate(256.0, &ended, |i| {
                    let page = page(i, SIZE * MIB / PAGE);
                    file.read_exact_at(&mut [0; PAGE as usize], page * PAGE).unwrap();
                })
            };
            scope.spawn(reader);
            let bytes = dropped(path.parent().unwrap());
            // A part without a read for 8 s is one of nine millions.
            assert!(resident(&file, 0..SIZE) >= SIZE as f64 - EVICTED);
            // The other half is dropped, but for what has joined a region with the first one.
            assert!((SIZE * MIB * 3 / 4..=SIZE * MIB).contains(&bytes), "{bytes}");
        });
    });
}

/// What was read until it left the memory is read ahead.
#[test]
fn hot_parts_of_a_file_are_read_back() {
    needs_root!();
    let Some((dir, path, file)) = counted_file(SIZE) else { return };
    let ended = AtomicBool::new(false);
    let prefetch = "4K max 1Hz max 1s max prefetch";
    let mut command = act(&dir, &path, &[prefetch], &["--duration", "25s"]);
    let out = std::thread::scope(|scope| {
        let end = EndOnDrop(&ended);
        let running = scope.spawn(|| finish(&mut command));
        scope.spawn(|| read_hot(&file, &ended));
        std::thread::sleep(Duration::from_secs(8));
        drop(end);
        std::thread::sleep(Duration::from_millis(100));
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        assert!(resident(&file, 0..SIZE) < 1.0);
        until("the hot part is back", || resident(&file, HOT) >= 8.0 - EVICTED);
        assert!(resident(&file, 0..HOT.start) + resident(&file, HOT.end..SIZE) < 1.0);
        running.join().unwrap()
    });
    assert_eq!(out.status, 0, "{}", out.err);
    let table = out.json();
    let applied = of_scheme(&table, "willneed")["applied"]["bytes"].as_u64().unwrap();
    // As much may be absent above.
    assert!(applied as f64 / MIB as f64 >= 8.0 - EVICTED, "{table}");
}

/// Bytes in mappings of a process that are locked.
fn locked_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmLck:")?.trim().split(' ').next());
    kib.map_or(0, |kib| kib.parse::<u64>().unwrap() << 10)
}

/// What is read stays in memory although the kernel is told to drop it, until isotherm ends.
#[test]
fn hot_parts_of_a_file_are_protected() {
    needs_root!();
    with_whole_cache(|| {
        let Some((dir, path, file)) = counted_file(SIZE) else { return };
        let ended = AtomicBool::new(false);
        let protect = "4K max 1Hz max min max protect";
        let mut command = act(&dir, &path, &[protect], &["--duration", "300s"]);
        let out = std::thread::scope(|scope| {
            let end = EndOnDrop(&ended);
            scope.spawn(|| read_hot(&file, &ended));
            finish_after(&mut command, |run| {
                until("the hot part is locked", || locked_bytes(run.id()) >= 8 * MIB);
                drop(end);
                std::thread::sleep(Duration::from_millis(100));
                fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                assert!(resident(&file, HOT) >= 8.0 - EVICTED);
                assert!(resident(&file, 0..SIZE) <= SIZE as f64 / 2.0 + EVICTED);
                kill_process(Pid::from_child(run), Signal::INT).unwrap();
            })
        });
        assert_eq!(out.status, 0, "{}", out.err);
        let table = out.json();
        let applied = of_scheme(&table, "lru_prio")["applied"]["bytes"].as_u64().unwrap();
        assert!(applied as f64 / MIB as f64 >= 8.0 - EVICTED, "{table}");
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        assert!(resident(&file, 0..SIZE) < 1.0);
    });
}

/// A scheme that drops the cold parts, 4 MiB in each 5 s, while the machine has so much free memory.
fn limited(dir: &TempDir, high: &str) -> std::path::PathBuf {
    let scheme = dir.path().join(format!("{high}.toml"));
    let watermarks = format!("high = \"{high}\"\nmid = \"{high}\"\nlow = \"0%\"");
    let text = format!(
        "[[scheme]]\naction = \"drop\"\nrate = {{ max = \"0Hz\" }}\nage = {{ min = \"2s\" }}\n\
         [scheme.quota]\nbytes = \"4M\"\nreset = \"5s\"\n\
         [scheme.watermarks]\nmetric = \"free\"\n{watermarks}\n"
    );
    std::fs::write(&scheme, text).unwrap();
    scheme
}

/// A quota bounds what a scheme drops of a file in each of its windows, and watermarks switch the scheme off.
#[test]
fn quotas_and_watermarks_hold_for_files() {
    needs_root!();
    with_whole_cache(|| {
        let Some((dir, path, file)) = counted_file(SIZE) else { return };
        let run = |scheme: &Path| {
            let mut command = isotherm(["run", "--json", "--duration", "14s", "--file"]);
            let done =
                finish(command.arg(&path).arg("--scheme").arg(scheme).current_dir(dir.path()));
            assert_eq!(done.status, 0, "{}", done.err);
            done.json()
        };
        let off = run(&limited(&dir, "0.01%"));
        let stats = of_scheme(&off, "pageout");
        assert_eq!(stats["tried"]["bytes"], 0, "{off}");
        assert!(stats["inactive"].as_u64().unwrap() > 0, "{off}");
        let on = run(&limited(&dir, "100%"));
        let applied =
            of_scheme(&on, "pageout")["applied"]["bytes"].as_u64().unwrap() as f64 / MIB as f64;
        // Two or three windows of 5 s, as parts match after 2 s. A large folio is dropped as a whole, or not at all.
        assert!((4.0..=12.0).contains(&applied), "{applied} MiB: {on}");
        // The machine may reclaim some too.
        assert!(SIZE as f64 - resident(&file, 0..SIZE) >= applied, "{on}");
    });
}

#[test]
fn what_files_cannot_do_is_refused() {
    needs_root!();
    if ReadCounter::load().is_err() {
        return;
    }
    let dir = folder();
    let path = dir.path().join("data");
    drop(cached(&path, 1));
    let path = path.to_str().unwrap();
    for (args, status, said) in [
        (&["run", "--scheme-line", "4K max min max min max hugepage"][..], 1, "choose drop"),
        (&["reclaim", "--pages", "--control", "none"], 1, "single pages"),
        (&["reclaim", "--control", "none", "--children"], 2, "are about processes"),
        (&["reclaim", "--control", "none", "--look", "smaps"], 2, "leave out --look"),
        (&["reclaim", "--control", "none", "--monitor", "pages"], 2, "leave out --monitor"),
    ] {
        let done = finish(isotherm(args).args(["--file", path, "--duration", "1s"]));
        assert_eq!(done.status, status, "{args:?}: {}", done.err);
        assert!(done.err.contains(said), "{args:?}: {}", done.err);
    }
}
