//! The page cache as the kernel's own system calls report it, on real files.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{needs_root, root};
use isotherm_core::{AddrRange, Budget, PAGE_SIZE};
use isotherm_linux::page_cache::{
    AccessCount, BLOCK_DEVICES, CachedFile, CachedRange, CountedFiles, Directories, FileAction,
    HUGETLBFS, ListCursor, ListStep, Listing, PageCache, PageCacheError, ReadCounter, Writes,
};
use isotherm_linux::proc::mountinfo;
use isotherm_linux::sys::{cachestat, mincore};
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// On the disk, not in memory as `/tmp` may be.
fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file of `pages` pages that was written to the disk, and of which nothing is cached.
fn file_on_disk(folder: &TempDir, name: &str, pages: u64) -> File {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true);
    let file = file.open(folder.path().join(name)).unwrap();
    for mib in 0..(pages * PAGE_SIZE).div_ceil(MIB) {
        let bytes = MIB.min(pages * PAGE_SIZE - mib * MIB) as usize;
        file.write_all_at(&vec![7; bytes], mib * MIB).unwrap();
    }
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    fadvise(&file, 0, None, Advice::Random).unwrap();
    file
}

/// The counter, if the kernel has the tracepoint for reads.
fn usable(loaded: Result<ReadCounter, PageCacheError>) -> Option<ReadCounter> {
    let skipped = |e| {
        assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "{e}");
        eprintln!("skipped: {e}");
    };
    loaded.map_err(skipped).ok()
}

fn read_page(file: &File, page: u64) {
    file.read_exact_at(&mut [0], page * PAGE_SIZE).unwrap();
}

fn parts_of(cache: &mut PageCache, file: &CachedFile) -> Vec<CachedRange> {
    let mut parts = Vec::new();
    cache.parts(std::slice::from_ref(file), |_, part| parts.push(part)).unwrap();
    parts
}

fn open(cache: &mut PageCache, file: &File) -> CachedFile {
    cache.open_file(file).unwrap().files.remove(0)
}

fn cached(file: &File) -> u64 {
    cachestat(file, AddrRange::new(0, 0)).unwrap().cached
}

/// Cached pages by their part of 64 pages.
fn by_mincore(file: &File) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    let all = AddrRange::new(0, file.metadata().unwrap().len());
    for (page, is_cached) in mincore(file, all).unwrap().into_iter().enumerate() {
        *counts.entry(page as u64 / 64).or_default() += u32::from(is_cached);
    }
    counts.retain(|_, n| *n > 0);
    counts
}

fn sums(parts: &[CachedRange]) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    for part in parts.iter().filter(|p| p.cached > 0) {
        *counts.entry(part.first / 64).or_default() += part.cached;
    }
    counts
}

/// The parts of a file, after a check that `mincore` finds the same pages. The kernel may evict a page at any time: then
/// the next readings are the same.
fn same_as_mincore(cache: &mut PageCache, file: &File, found: &CachedFile) -> Vec<CachedRange> {
    let read = || {
        let parts = parts_of(cache, found);
        (sums(&parts) == by_mincore(file)).then_some(parts)
    };
    std::iter::repeat_with(read).take(10).flatten().next().expect("ten readings differ")
}

#[test]
fn the_same_pages_as_mincore_and_cachestat() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let file = file_on_disk(&folder, "some", 20_000);
    // Scattered pages, whole stretches, and the last page.
    (0..20_000).step_by(37).chain(3_000..5_000).chain([19_999]).for_each(|p| read_page(&file, p));
    let found = open(&mut cache, &file);
    let parts = same_as_mincore(&mut cache, &file, &found);
    assert!(parts.iter().map(|p| u64::from(p.cached)).sum::<u64>() >= 20_000 / 37 + 1_900);
    let cached = cached(&file);
    assert!(found.pages.abs_diff(cached) <= 20, "{} and {cached} pages", found.pages);
    assert_eq!(found.size, 20_000 * PAGE_SIZE);
    // Each part with pages has a sample: read once, so referenced. The marks of the last few pages lag behind. A
    // machine short of memory may evict all pages of a part.
    let with_pages = parts.iter().filter(|p| p.cached > 0).count();
    let samples: Vec<_> = parts.iter().filter_map(|p| p.sample).collect();
    let referenced = samples.iter().filter(|s| s.referenced || s.active).count();
    assert_eq!(samples.len(), with_pages);
    assert!(referenced * 10 > with_pages * 9, "{referenced} of {with_pages}");
}

#[test]
fn pages_are_counted_again() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let files = ["one", "two"].map(|name| file_on_disk(&folder, name, 300));
    let mut found = files.each_ref().map(|file| open(&mut cache, file));
    assert_eq!(found.each_ref().map(|f| f.pages), [0, 0]);
    (0..100).for_each(|p| read_page(&files[0], p));
    files[1].set_len(400 * PAGE_SIZE).unwrap();
    // The kernel may evict a few at any time.
    let before = cached(&files[0]);
    cache.recount(&mut found).unwrap();
    let after = cached(&files[0]);
    let [one, two] = found.each_ref().map(|f| (f.pages, f.size));
    assert_eq!((one.1, two), (300 * PAGE_SIZE, (0, 400 * PAGE_SIZE)));
    assert!(after >= 90 && (after..=before).contains(&one.0), "{before}, {one:?}, {after}");
    std::fs::remove_file(folder.path().join("one")).unwrap();
    drop(files);
    cache.recount(&mut found).unwrap();
    assert_eq!(found[0].pages, 0, "it has gone");
}

#[test]
fn large_folios_dirty_pages_and_evicted_ones() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let file = file_on_disk(&folder, "large", 16_384);
    // Read ahead in growing folios.
    fadvise(&file, 0, None, Advice::Sequential).unwrap();
    let mut buffer = vec![0; MIB as usize];
    (0..64).for_each(|mib| file.read_exact_at(&mut buffer, mib * MIB).unwrap());
    let found = open(&mut cache, &file);
    let parts = parts_of(&mut cache, &found);
    // The kernel or the host may evict a few at any time.
    assert!(sums(&parts).values().sum::<u32>() >= 15_000, "almost all of it is cached");
    // The disk may write some of them back in the meantime: then both readings change.
    let same = (0..100).any(|n| {
        file.write_all_at(&buffer, (10 + n % 3) * MIB).unwrap();
        read_page(&file, 10 * 256);
        let before = cachestat(&file, AddrRange::new(0, 0)).unwrap();
        let parts = parts_of(&mut cache, &found);
        let sum = |of: fn(&CachedRange) -> u32| parts.iter().map(of).sum::<u32>();
        let found = (u64::from(sum(|p| p.cached)), u64::from(sum(|p| p.dirty)));
        before == cachestat(&file, AddrRange::new(0, 0)).unwrap()
            && before.dirty >= 256
            && found == (before.cached, before.dirty)
    });
    assert!(same, "{:?}", cachestat(&file, AddrRange::new(0, 0)));
    file.sync_all().unwrap();
    let parts = parts_of(&mut cache, &found);
    assert_eq!(parts.iter().map(|p| p.dirty).sum::<u32>(), 0, "after sync");
}

#[test]
fn empty_sparse_truncated_and_deleted_files() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    // One page at 1 TiB, one at 0: nothing between is looked at.
    let sparse = file_on_disk(&folder, "sparse", 0);
    sparse.write_all_at(&[1], 1 << 40).unwrap();
    sparse.write_all_at(&[1], 0).unwrap();
    let found = open(&mut cache, &sparse);
    let parts = parts_of(&mut cache, &found);
    let firsts: Vec<(u64, u32)> = parts.iter().map(|p| (p.first, p.cached)).collect();
    assert_eq!(firsts, [(0, 1), ((1 << 40) / PAGE_SIZE, 1)]);
    // Truncated to one page, then to none.
    sparse.set_len(1).unwrap();
    let found = open(&mut cache, &sparse);
    let first = parts_of(&mut cache, &found);
    assert_eq!(first.iter().map(|p| (p.first, p.cached)).collect::<Vec<_>>(), [(0, 1)]);
    sparse.set_len(0).unwrap();
    let found = open(&mut cache, &sparse);
    assert_eq!((found.pages, parts_of(&mut cache, &found)), (0, vec![]));
    // A deleted file that is open keeps its pages and its name.
    let deleted = file_on_disk(&folder, "deleted", 300);
    (0..300).for_each(|p| read_page(&deleted, p));
    std::fs::remove_file(folder.path().join("deleted")).unwrap();
    let listing = cache.open_file(&deleted).unwrap();
    let found = &listing.files[0];
    assert_eq!((found.links, &*listing.name(found)), (0, "deleted"));
    // The kernel may evict a few at any time.
    let parts = same_as_mincore(&mut cache, &deleted, found);
    assert!(parts.iter().map(|p| p.cached).sum::<u32>() >= 250);
    assert!((250..=300).contains(&found.pages), "{}", found.pages);
    // A file that is gone has no parts, and none of another file.
    let gone = found.clone();
    drop(deleted);
    let parts = parts_of(&mut cache, &gone);
    assert!(parts.iter().map(|p| p.cached).sum::<u32>() <= 300, "{parts:?}");
}

fn all(cache: &mut PageCache) -> Listing {
    let supers = cache.super_blocks().unwrap();
    'again: loop {
        let mut listing = Listing::default();
        for of in supers.iter().filter(|s| s.magic != HUGETLBFS) {
            let mut at = ListCursor::default();
            loop {
                match cache.list_next(of, &[], 0, &mut at, &mut listing).unwrap() {
                    ListStep::More => {}
                    ListStep::End => break,
                    ListStep::Lost => continue 'again,
                }
            }
        }
        return listing;
    }
}

/// `Cached` and `Buffers`, in pages.
fn meminfo() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib = |key: &str| -> u64 {
        let line = text.lines().find_map(|l| l.strip_prefix(key)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    (kib("Cached:") + kib("Buffers:")) * 1024 / PAGE_SIZE
}

#[test]
fn all_files_are_all_of_the_page_cache() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let file = file_on_disk(&folder, "with a blank", 1_000);
    (0..1_000).for_each(|p| read_page(&file, p));
    // Other processes fill and empty the cache at the same time.
    let mut seen = Vec::new();
    let near = (0..50).any(|_| {
        let before = meminfo();
        let pages: u64 = all(&mut cache).files.iter().map(|f| f.pages).sum();
        let after = meminfo();
        seen.push((before, pages, after));
        // The counters of the kernel lag behind by some pages for each CPU.
        (before.min(after)..=before.max(after)).contains(&pages) || pages.abs_diff(after) < 1_024
    });
    assert!(near, "Cached + Buffers before, files, and after: {seen:?}");

    let supers = cache.super_blocks().unwrap();
    assert!(supers.iter().any(|s| s.magic == BLOCK_DEVICES && s.name == "bdev"), "{supers:?}");
    // The kernel may evict a few pages of the file as well.
    let before = cached(&file);
    let listing = all(&mut cache);
    let after = cached(&file);
    let ino = file.metadata().unwrap().ino();
    let named = |f: &&CachedFile| f.ino == ino && listing.name(f) == "with a blank";
    let found = listing.files.iter().find(named).unwrap();
    let pages = found.pages;
    assert!(after >= 900 && (after..=before).contains(&pages), "{before}, {pages}, {after}");
    let of = supers.iter().find(|s| s.has(found)).unwrap();
    let mounts = mountinfo("/".as_ref()).unwrap();
    assert!(mounts.iter().any(|m| m.device == of.device), "{of:?}");
    let mut folders = Directories::default();
    cache.name_folders(listing.files.iter().map(|f| f.folder), &mut folders).unwrap();
    let path = folders.path(found.folder).unwrap();
    // Below the mount, whose place in the file system may be another.
    let real = folder.path().canonicalize().unwrap();
    assert!(real.ends_with(path.rsplit('/').next().unwrap()), "{path} is not {real:?}");
}

/// Files that are only counted have the pages that they have if they are listed.
#[test]
fn counted_files_have_the_pages_of_listed_ones() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    for i in 0..2000 {
        let pages = if i % 50 == 0 { 70 } else { i % 5 };
        std::fs::write(folder.path().join(i.to_string()), vec![1; pages * PAGE_SIZE as usize])
            .unwrap();
    }
    let open = File::open(folder.path()).unwrap();
    let below = [cache.folder(&open).unwrap()];
    let device = open.metadata().unwrap().dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let of = cache.super_blocks().unwrap().into_iter().find(|s| s.device == device).unwrap();
    // Files, bytes, cached pages, dirty ones; and the counted ones of these.
    let mut sums = |is_counting: bool| {
        let (mut all, mut counted) = ([0; 4], CountedFiles::default());
        let listed = cache.list(&of, &below, |cache, listing| {
            let Some(mut listing) = listing else {
                (all, counted) = ([0; 4], CountedFiles::default());
                return Ok(());
            };
            if is_counting {
                cache.count_below(u64::MAX);
            }
            let CountedFiles { files, size, cached, dirty, writeback, sampled, .. } =
                listing.counted;
            counted.files += files;
            counted.cached += cached;
            counted.sampled += sampled;
            // A name that the kernel has dropped may be of any folder.
            listing.files.retain(|file| file.folder != 0 && file.pages > 0);
            let listed = listing.files.iter().map(|file| file.size);
            let listed = (listing.files.len() as u64 + files, listed.sum::<u64>() + size);
            let mut more = [listed.0, listed.1, cached, dirty + writeback];
            cache.parts(&listing.files, |_, part| {
                more[2] += u64::from(part.cached);
                more[3] += u64::from(part.dirty + part.writeback);
            })?;
            all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
            Ok::<_, PageCacheError>(())
        });
        listed.unwrap();
        (all, counted)
    };
    // The kernel may write or evict pages meanwhile.
    let mut attempts = std::iter::repeat_with(|| (sums(false), sums(true))).take(10);
    let ((all, _), (_, counted)) =
        attempts.find(|((listed, _), (counted, _))| listed == counted).expect("the same pages");
    assert!((1_600..=1_640).contains(&all[0]), "{all:?}");
    // The first files are listed, and those of 70 pages.
    assert!((400..1000).contains(&counted.files), "{counted:?}");
    assert!(counted.sampled.abs_diff(counted.cached) < 64, "{counted:?}");
    // The program knows at most 16 folders.
    let listed = cache.list(&of, &[below[0]; 17], |cache, listing| {
        assert_eq!(listing.unwrap_or_default().counted, CountedFiles::default());
        cache.count_below(u64::MAX);
        Ok::<_, PageCacheError>(())
    });
    listed.unwrap();
}

/// Every page of a long read counts once, and every short read of the same page.
#[test]
fn reads_are_counted_by_file() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let Some(mut counter) = usable(ReadCounter::load()) else { return };
    let [long, short, other] =
        ["long", "short", "other"].map(|name| file_on_disk(&folder, name, 2_048));
    let mut buffer = vec![0; 2_048 * PAGE_SIZE as usize];
    [&long, &short, &other].iter().for_each(|file| file.read_exact_at(&mut buffer, 0).unwrap());
    let ids = [&long, &short, &other].map(|file| open(&mut cache, file).id());
    // Attaching the program takes long on a busy machine, and does not count.
    let mut seconds = 0.0;
    let reads = counter.during(|| {
        let begin = Instant::now();
        (0..40).for_each(|_| long.read_exact_at(&mut buffer, 0).unwrap());
        (0..80_000).for_each(|i| read_page(&short, i % 3));
        seconds = begin.elapsed().as_secs_f64();
    });
    let reads = reads.unwrap();
    // 81,920 and 80,000 page reads, of which one in 64 counts: 1,250 with a standard deviation of 35. The clock stops
    // before the program is detached.
    let pages = |id| reads.pages_per_second(id) * seconds;
    assert!((70_000.0..120_000.0).contains(&pages(ids[0])), "{}", pages(ids[0]));
    assert!((66_000.0..120_000.0).contains(&pages(ids[1])), "{}", pages(ids[1]));
    let ratio = pages(ids[0]) / pages(ids[1]);
    assert!((0.85..1.2).contains(&ratio), "{ratio}");
    assert_eq!(pages(ids[2]), 0.0, "not read meanwhile");
    assert_eq!(counter.during(|| ()).unwrap().pages_per_second(ids[0]), 0.0, "counts begin anew");
}

#[test]
fn who_holds_a_file() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let file = file_on_disk(&folder, "held", 10);
    read_page(&file, 0);
    let found = open(&mut cache, &file);
    let pid = std::process::id().cast_signed();
    let holds = |cache: &mut PageCache, id: u64| {
        cache.holders().unwrap().iter().any(|h| h.pid == pid && h.file == id)
    };
    assert!(holds(&mut cache, found.id()), "an open file");
    let program = open(&mut cache, &File::open("/proc/self/exe").unwrap());
    assert!(holds(&mut cache, program.id()) && program.is_mapped, "the program, which is mapped");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let parts = cache.mapped().unwrap().into_iter();
    let parts: Vec<_> =
        parts.filter(|p| p.holder.pid == pid && p.holder.file == program.id()).collect();
    assert!(parts.len() > 1);
    for part in parts {
        let line = format!("{:x}-{:x} ", part.range.start, part.range.end);
        let line = maps.lines().find(|l| l.starts_with(&line)).unwrap();
        assert_eq!(u64::from_str_radix(line.split(' ').nth(2).unwrap(), 16), Ok(part.offset));
    }
    drop(file);
    assert!(!holds(&mut cache, found.id()), "a closed file");
}

/// Detaches the programs, and waits until they no longer run: until each child of another test that was forked before,
/// and so has a copy of them, has begun its program.
fn detach(counter: &mut ReadCounter, file: &File) -> Duration {
    let counted = counter.detach();
    let is_called = |counter: &ReadCounter| {
        let calls = counter.calls();
        read_page(file, 0);
        counter.calls() > calls
    };
    let begin = Instant::now();
    while is_called(counter) {
        assert!(begin.elapsed() < Duration::from_secs(60), "its programs still run");
        sleep(Duration::from_millis(1));
    }
    counted
}

/// Reads and writes count in the window of the file that they are in, and a call across windows in each of them.
#[test]
fn accesses_are_counted_by_window() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let Some(mut counter) = usable(ReadCounter::by_window(6, false)) else { return };
    let file = file_on_disk(&folder, "windows", 256);
    let mut buffer = vec![0; 128 * PAGE_SIZE as usize];
    file.read_exact_at(&mut buffer, 0).unwrap();
    let id = open(&mut cache, &file).id();
    counter.take().unwrap();
    let calls = counter.calls();
    counter.attach().unwrap();
    // 32 pages of window 0, all of window 1, and 32 of window 2.
    for _ in 0..2_000 {
        file.read_exact_at(&mut buffer, 32 * PAGE_SIZE).unwrap();
    }
    (0..20_000).for_each(|i| file.write_all_at(&[1], (192 + i % 64) * PAGE_SIZE).unwrap());
    assert!(detach(&mut counter, &file) > Duration::ZERO);
    (0..20_000).for_each(|_| read_page(&file, 0));
    let found = counter.take().unwrap();
    let of = |window: u64, is_write: bool| -> u64 {
        let here = |c: &&AccessCount| c.file == id && c.window == window && c.is_write == is_write;
        found.iter().filter(here).map(|c| c.counted * ReadCounter::SHARE).sum()
    };
    // 64,000, 128,000 and 64,000 pages, with standard deviations of 2,000 to 2,900.
    let read = [0, 1, 2, 3].map(|window| of(window, false));
    assert!(read[0].abs_diff(64_000) < 10_000 && read[2].abs_diff(64_000) < 10_000, "{read:?}");
    assert!(read[1].abs_diff(128_000) < 14_000 && read[3] == 0, "{read:?}");
    let written = [0, 1, 2, 3].map(|window| of(window, true));
    assert_eq!(written[..3], [0; 3]);
    if counter.writes() == Writes::Ext4 && on_ext4(&file) {
        assert!(written[3].abs_diff(20_000) < 6_000, "{written:?}");
    }
    assert!(counter.calls() - calls >= 2_000, "each call costs");
    assert!(counter.take().unwrap().iter().all(|c| c.file != id), "counts begin anew");
}

/// A read of single-page folios gets 31 pages at a time: the last one of 32 comes alone, and is not another read.
#[test]
fn the_last_page_of_a_long_read_counts_once() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let Some(mut counter) = usable(ReadCounter::by_window(6, false)) else { return };
    let file = file_on_disk(&folder, "batches", 32);
    (0..32).for_each(|page| read_page(&file, page));
    let id = open(&mut cache, &file).id();
    let mut buffer = vec![0; 32 * PAGE_SIZE as usize];
    counter.attach().unwrap();
    counter.take().unwrap();
    (0..100_000).for_each(|_| file.read_exact_at(&mut buffer, 0).unwrap());
    let counts = counter.take().unwrap();
    let of = |c: &&AccessCount| c.file == id;
    let read: u64 = counts.iter().filter(of).map(|c| c.counted * ReadCounter::SHARE).sum();
    // 3,200,000 pages, with a standard deviation of 10,100. Counting the last one twice would add 100,000.
    assert!(read.abs_diff(3_200_000) < 50_000, "{read}");
}

/// Windows are joined while a file is read: from then on each access counts in and marks the window that it is in.
#[test]
fn windows_may_become_larger_while_a_file_is_read() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let Some(mut counter) = usable(ReadCounter::by_window(6, false)) else { return };
    let file = file_on_disk(&folder, "joined", 1024);
    (0..1024).for_each(|page| read_page(&file, page));
    let id = open(&mut cache, &file).id();
    let (reads, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    counter.attach().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // Windows 7 and 15 of 64 pages.
                let i = reads.fetch_add(1, Ordering::Relaxed);
                read_page(&file, if i % 4 == 0 { 1023 } else { 511 });
            }
        });
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for shift in [6, 7, 8, 9, 10, 6, 8] {
                counter.set_window_shift(shift);
                // The reader goes on while counts are taken.
                let mut take = || {
                    let before = reads.load(Ordering::Relaxed);
                    (before, counter.take().unwrap(), reads.load(Ordering::Relaxed))
                };
                let mut measure = || {
                    let (before, _, begin) = take();
                    while reads.load(Ordering::Relaxed) < begin + 40_000 {
                        sleep(Duration::from_millis(1));
                    }
                    let (end, found, after) = take();
                    (found, end - begin, begin - before + after - end)
                };
                // Reads while counts are taken may be in them or not: too many would permit any count.
                let (mut found, done, meanwhile) = std::iter::repeat_with(&mut measure)
                    .take(50)
                    .find(|(_, done, meanwhile)| meanwhile * 10 < *done)
                    .expect("few reads while counts are taken");
                let done = done as f64;
                found.retain(|count| count.file == id);
                let mut counts = BTreeMap::new();
                for count in &found {
                    *counts.entry(count.window).or_insert(0.0) +=
                        (count.counted * ReadCounter::SHARE) as f64;
                }
                let mut expected = BTreeMap::new();
                for (page, share) in [(511, 0.75), (1023, 0.25)] {
                    *expected.entry(page >> shift).or_insert(0.0) += share * done;
                }
                let windows = |of: &BTreeMap<u64, f64>| of.keys().copied().collect::<Vec<_>>();
                assert_eq!(windows(&counts), windows(&expected), "shift {shift}");
                for (window, expected) in expected {
                    // Six standard deviations.
                    let error = (counts[&window] - expected).abs();
                    let most = 6.0 * (expected * ReadCounter::SHARE as f64).sqrt();
                    let most = most + meanwhile as f64;
                    assert!(error < most, "{window} at shift {shift}: {counts:?}, not {expected}");
                }
                // In a short time: a window of another test's file may have the same mark.
                (0..2).for_each(|_| drop(counter.take().unwrap()));
                let begin = reads.load(Ordering::Relaxed);
                while reads.load(Ordering::Relaxed) < begin + 100 {
                    sleep(Duration::from_micros(100));
                }
                let marked = (0..16).filter(|window| counter.is_marked(id, *window, false));
                assert_eq!(marked.collect::<Vec<_>>(), windows(&counts), "shift {shift}");
            }
        }));
        ended.store(true, Ordering::Relaxed);
        checked.unwrap();
    });
}

/// Each access marks its window, also the many that do not count.
#[test]
fn each_access_marks_its_window() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let Some(mut counter) = usable(ReadCounter::by_window(6, false)) else { return };
    let file = file_on_disk(&folder, "marks", 256);
    let mut buffer = vec![0; 128 * PAGE_SIZE as usize];
    let id = open(&mut cache, &file).id();
    assert!(counter.writes() == Writes::Ext4 || !on_ext4(&file), "{:?}", counter.writes());
    let marked = |counter: &ReadCounter, is_write: bool| {
        (0..4).filter(|window| counter.is_marked(id, *window, is_write)).collect::<Vec<u64>>()
    };
    counter.attach().unwrap();
    read_page(&file, 70);
    assert_eq!((marked(&counter, false), marked(&counter, true)), (vec![1], vec![]));
    counter.take().unwrap();
    assert_eq!(marked(&counter, false), [1], "the interval that has just ended");
    counter.take().unwrap();
    assert_eq!(marked(&counter, false), [0; 0], "the one before it");
    file.read_exact_at(&mut buffer, 32 * PAGE_SIZE).unwrap();
    assert_eq!(marked(&counter, false), [0, 1, 2]);
    file.write_all_at(&[1], 200 * PAGE_SIZE).unwrap();
    assert_eq!(marked(&counter, true), [3]);
    detach(&mut counter, &file);
    counter.take().unwrap();
    counter.take().unwrap();
    read_page(&file, 0);
    assert_eq!(marked(&counter, false), [0; 0], "nothing is attached");
}

/// A later file may have the number and the place in memory of a deleted one. Its accesses do not count for that one.
#[test]
fn accesses_to_later_files_do_not_count() {
    needs_root!();
    let folder = folder();
    let mut cache = PageCache::load().unwrap();
    let mut counter = usable(ReadCounter::by_window(6, false));
    let is_reused = later_files(&mut cache, counter.as_mut(), &folder);
    assert!(
        is_reused || !on_ext4(File::open(folder.path()).unwrap()),
        "a file that proves nothing"
    );
}

/// Whether a later file had the number of a deleted one.
fn later_files(cache: &mut PageCache, mut counter: Option<&mut ReadCounter>, at: &TempDir) -> bool {
    let create = |name: &str| {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true);
        let file = file.open(at.path().join(name)).unwrap();
        file.write_all_at(&[1; 4 * PAGE_SIZE as usize], 0).unwrap();
        file
    };
    let mut is_reused = false;
    for _ in 0..50 {
        let file = create("earlier");
        let earlier = open(cache, &file);
        drop(file);
        std::fs::remove_file(at.path().join("earlier")).unwrap();
        if let Some(counter) = &mut counter {
            counter.attach().unwrap();
            counter.take().unwrap();
            counter.take().unwrap();
        }
        let files: Vec<File> = (0..4).map(|n| create(&n.to_string())).collect();
        for file in &files {
            let later = open(cache, file);
            is_reused |= later.ino == earlier.ino;
            assert!(later.id() != earlier.id() && later.key() != earlier.key());
            (0..200).for_each(|page| read_page(file, page % 4));
        }
        // Writeback may hold a deleted file for a moment.
        let deleted = Instant::now();
        while !parts_of(cache, &earlier).is_empty() {
            assert!(deleted.elapsed() < Duration::from_secs(60), "its pages are still found");
            sleep(Duration::from_millis(10));
        }
        if let Some(counter) = &mut counter {
            assert!(!counter.is_marked(earlier.id(), 0, false));
            assert!(counter.take().unwrap().iter().all(|c| c.file != earlier.id()));
        }
        drop(files);
        (0..4).for_each(|n| std::fs::remove_file(at.path().join(n.to_string())).unwrap());
    }
    is_reused
}

/// A file system in an image, which is mounted until it is dropped.
struct Image {
    mounted: TempDir,
    _image: TempDir,
}

impl Image {
    /// `None` if the program to make it is missing.
    fn new(kind: &str, package: &str, options: &str) -> Option<Self> {
        let (image, mounted) = (folder(), folder());
        let path = image.path().join("image");
        File::create(&path).unwrap().set_len(512 * MIB).unwrap();
        let mkfs = format!("mkfs.{kind}");
        let made = Command::new(&mkfs).arg("-q").arg(&path).output();
        let Ok(made) = made else {
            let skipped = format!("{kind}: {mkfs} is missing (package {package})");
            assert!(std::env::var_os("ISOTHERM_REQUIRE_ALL").is_none(), "{skipped}");
            eprintln!("skipped {skipped}");
            return None;
        };
        assert!(made.status.success(), "{mkfs}: {made:?}");
        let options = format!("loop,{options}");
        let mount =
            Command::new("mount").args(["-o", &options]).arg(&path).arg(mounted.path()).output();
        assert!(mount.as_ref().unwrap().status.success(), "{kind}: {mount:?}");
        Some(Image { mounted, _image: image })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.mounted.path()).status();
    }
}

#[test]
fn ext4_in_an_image() {
    needs_root!();
    Image::new("ext4", "e2fsprogs", "rw").iter().for_each(|image| as_on_any(&image.mounted));
}

/// Each written page counts once, with and without delayed allocation, also if a write spans many folios.
#[test]
fn writes_on_ext4_count_without_delayed_allocation() {
    needs_root!();
    for options in ["nodelalloc", "data=journal", "delalloc"] {
        let Some(mut counter) = usable(ReadCounter::by_window(6, false)) else { return };
        let Some(image) = Image::new("ext4", "e2fsprogs", options) else { return };
        let mut cache = PageCache::load().unwrap();
        let file = file_on_disk(&image.mounted, "written", 256);
        // Random reads make a folio of each page.
        (0..256).for_each(|page| read_page(&file, page));
        let id = open(&mut cache, &file).id();
        counter.attach().unwrap();
        let mut written = |write: &dyn Fn()| -> u64 {
            counter.take().unwrap();
            write();
            let counts = counter.take().unwrap();
            let of = |c: &&AccessCount| c.file == id && c.is_write;
            counts.iter().filter(of).map(|c| c.counted * ReadCounter::SHARE).sum()
        };
        let one_by_one = written(&|| {
            (0..20_000).for_each(|i| file.write_all_at(&[1], i % 64 * PAGE_SIZE).unwrap());
        });
        // 20,000 writes, of which one in 64 counts: a standard deviation of 1,130.
        assert!(one_by_one.abs_diff(20_000) < 6_000, "{options}: {one_by_one}");
        let at_once = written(&|| {
            (0..1_000).for_each(|_| file.write_all_at(&vec![1; MIB as usize], 0).unwrap());
        });
        // 256,000 pages, with a standard deviation of 4,030.
        assert!(at_once.abs_diff(256_000) < 25_000, "{options}: {at_once}");
    }
}

#[test]
fn xfs_in_an_image() {
    needs_root!();
    Image::new("xfs", "xfsprogs", "rw").iter().for_each(|image| {
        as_on_any(&image.mounted);
        a_dirty_folio_marks_its_windows(&image.mounted);
        copies_are_files_of_their_own(&image.mounted);
    });
}

#[test]
fn btrfs_in_an_image() {
    needs_root!();
    Image::new("btrfs", "btrfs-progs", "rw").iter().for_each(|image| {
        as_on_any(&image.mounted);
        copies_are_files_of_their_own(&image.mounted);
        subvolumes_have_files_of_their_own(&image.mounted);
    });
}

/// A write of 1 MiB makes one folio of 256 pages. The kernel reports which folio has become dirty, and not which page.
fn a_dirty_folio_marks_its_windows(at: &TempDir) {
    let mut cache = PageCache::load().unwrap();
    let Some(mut counter) = usable(ReadCounter::by_window(6, false)) else { return };
    let file = File::create(at.path().join("large")).unwrap();
    file.write_all_at(&vec![1; MIB as usize], 0).unwrap();
    file.write_all_at(&[1], MIB).unwrap();
    file.sync_all().unwrap();
    let id = open(&mut cache, &file).id();
    counter.attach().unwrap();
    let written = |counter: &ReadCounter| {
        (0..6).filter(|window| counter.is_marked(id, *window, true)).collect::<Vec<u64>>()
    };
    file.write_all_at(&[1], 200 * PAGE_SIZE).unwrap();
    assert!(written(&counter).contains(&3), "{:?}", written(&counter));
    assert!(!written(&counter).contains(&4), "the next folio");
}

/// What holds on each file system.
fn as_on_any(at: &TempDir) {
    let mut cache = PageCache::load().unwrap();
    let mut counter = usable(ReadCounter::by_window(6, false));
    // Scattered pages, a stretch, and the last page.
    let file = file_on_disk(at, "some", 2_000);
    (0..2_000).step_by(37).chain(300..500).chain([1_999]).for_each(|page| read_page(&file, page));
    let found = open(&mut cache, &file);
    let _ = same_as_mincore(&mut cache, &file, &found);
    assert_eq!((found.size, found.ino), (2_000 * PAGE_SIZE, file.metadata().unwrap().ino()));

    // Reads and writes count and mark. 64,000 pages, with a standard deviation of 2,000.
    if let Some(counter) = &mut counter {
        let mut buffer = vec![0; 64 * PAGE_SIZE as usize];
        file.read_exact_at(&mut buffer, 256 * PAGE_SIZE).unwrap();
        counter.attach().unwrap();
        counter.take().unwrap();
        counter.take().unwrap();
        let mut read = || file.read_exact_at(&mut buffer, 256 * PAGE_SIZE).unwrap();
        read();
        file.write_all_at(&[1], 700 * PAGE_SIZE).unwrap();
        let marked = |is_write: bool| {
            (0..32).filter(|w| counter.is_marked(found.id(), *w, is_write)).collect::<Vec<u64>>()
        };
        // At once: a window of another test's file may have the same mark.
        assert_eq!((marked(false), marked(true)), (vec![4], vec![10]));
        (1..1_000).for_each(|_| read());
        let counts = counter.take().unwrap();
        let here = |c: &&AccessCount| c.file == found.id() && c.window == 4 && !c.is_write;
        let pages: u64 = counts.iter().filter(here).map(|c| c.counted * ReadCounter::SHARE).sum();
        assert!(pages.abs_diff(64_000) < 10_000, "{pages}");
    }

    // Clean pages are dropped. A dirty page stays, with its folio.
    let file = file_on_disk(at, "dropped", 1_024);
    (0..1_024).for_each(|page| read_page(&file, page));
    file.write_all_at(&[2], 1_000 * PAGE_SIZE).unwrap();
    let all = AddrRange::new(0, 1_024 * PAGE_SIZE);
    let budget = Budget { bytes: u64::MAX, time: Duration::MAX };
    // A host may have taken back some of them: those that are left are tried.
    let before = cachestat(&file, all).unwrap().cached;
    let done = FileAction::Drop.apply(&file, all, budget).unwrap();
    let left = cachestat(&file, all).unwrap().cached;
    assert!(before >= 512, "{before}");
    assert!((before * PAGE_SIZE).abs_diff(done.tried) <= 5 * PAGE_SIZE, "{before} {done:?}");
    assert_eq!(done.applied, done.tried - left * PAGE_SIZE);
    assert!((1..=512).contains(&left), "{left}");
    file.read_exact_at(&mut [0], 1_000 * PAGE_SIZE).unwrap();
    later_files(&mut cache, counter.as_mut(), at);
}

/// A copy that shares its blocks with the origin has a page cache of its own.
fn copies_are_files_of_their_own(at: &TempDir) {
    let mut cache = PageCache::load().unwrap();
    let origin = file_on_disk(at, "origin", 100);
    let [from, to] = ["origin", "copy"].map(|name| at.path().join(name));
    run(Command::new("cp").arg("--reflink=always").args([&from, &to]));
    let copy = File::open(&to).unwrap();
    for file in [&origin, &copy] {
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
        fadvise(file, 0, None, Advice::Random).unwrap();
    }
    (0..50).for_each(|page| read_page(&copy, page));
    let [origin, copy] = [&origin, &copy].map(|file| open(&mut cache, file));
    assert!(origin.key() != copy.key() && origin.id() != copy.id());
    assert!(origin.pages == 0 && (30..=50).contains(&copy.pages), "{}", copy.pages);
}

/// Files of several subvolumes may have the same number, and those of a snapshot the same generation too.
fn subvolumes_have_files_of_their_own(at: &TempDir) {
    let mut cache = PageCache::load().unwrap();
    let path = |name: &str| at.path().join(name);
    let subvolume = |what: &[&str], paths: &[&str]| {
        let paths = paths.iter().map(|name| path(name));
        run(Command::new("btrfs").arg("subvolume").args(what).args(paths));
    };
    subvolume(&["create"], &["a"]);
    subvolume(&["create"], &["b"]);
    ["a/file", "b/file"].iter().for_each(|name| std::fs::write(path(name), [1; 9_000]).unwrap());
    subvolume(&["snapshot"], &["a", "c"]);
    let files = ["a/file", "b/file", "c/file"].map(|name| File::open(path(name)).unwrap());
    files.iter().for_each(|file| read_page(file, 0));
    let [a, b, c] = files.each_ref().map(|file| open(&mut cache, file));
    assert!(a.ino == b.ino && a.ino == c.ino);
    assert!(a.key() != b.key() && a.key() != c.key() && b.key() != c.key());
    assert!(a.id() != b.id() && a.id() != c.id());
    let listed = all(&mut cache).files;
    for file in [&a, &b, &c] {
        let same = listed.iter().filter(|f| f.key() == file.key());
        assert_eq!(same.map(CachedFile::id).collect::<Vec<_>>(), [file.id()]);
    }
}

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {done:?}");
}

fn on_ext4(file: impl std::os::fd::AsFd) -> bool {
    rustix::fs::fstatfs(file).unwrap().f_type == 0xef53
}
