//! Acts on the pages of a file in the page cache.
//!
//! It proceeds in steps of 2 MiB: it counts the pages of the step by `cachestat`, acts, and counts them again.

use std::fs::File;
use std::io;
use std::path::Path;

use isotherm_core::{Action, AddrRange, Applied, Budget, Failure, PAGE_SIZE, Support, align_down};
use rustix::fs::{Advice, fadvise};

use super::OVERLAYFS;
use crate::sys::{CacheStat, Stopwatch, access_mapped, cachestat};

/// Size of a step, and the alignment of its end: no folio of the page cache is larger.
pub(super) const STEP_BYTES: u64 = 2 << 20;

/// Read-ahead of a device that does not report it: the kernel's default.
const READ_AHEAD: u64 = 128 << 10;

/// An action on the cached pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileAction {
    /// Drops clean pages. Dirty pages, and those that are being written, stay and count as failed.
    Drop,
    /// Starts to read absent pages from the disk.
    Prefetch,
    /// Marks cached pages as accessed twice, so that reclaim takes them last.
    Protect,
    /// Counts cached pages.
    Count,
}

impl FileAction {
    /// The action on files that `action` is, if it is one.
    #[must_use]
    pub fn of(action: &Action) -> Option<Self> {
        match action {
            Action::PageOut => Some(FileAction::Drop),
            Action::WillNeed => Some(FileAction::Prefetch),
            Action::LruPrio => Some(FileAction::Protect),
            Action::Stat => Some(FileAction::Count),
            _ => None,
        }
    }

    /// Whether `action` is possible for files.
    #[must_use]
    pub fn support(action: &Action) -> Support {
        match FileAction::of(action) {
            Some(_) => Support::Yes,
            None => Support::No(format!(
                "{} is an action on the memory of processes: choose drop, prefetch, protect or stat for files",
                action.name()
            )),
        }
    }

    /// Applies the action to a page-aligned part of a file. It may exceed the time by one step.
    ///
    /// # Errors
    /// If the file is of an overlay, whose pages `cachestat` does not find. If the kernel has no `cachestat`
    /// (before Linux 6.5), or refuses it, because it requires write permission or the owner.
    pub fn apply(self, file: &File, part: AddrRange, budget: Budget) -> io::Result<Applied> {
        if rustix::fs::fstatfs(file)?.f_type.cast_unsigned() == OVERLAYFS {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let watch = Stopwatch::start();
        let mut done = Applied::default();
        let mut at = part.start;
        while at < part.end && (at == part.start || watch.wall() < budget.time) {
            let end = align_down(at.saturating_add(STEP_BYTES), STEP_BYTES).min(part.end);
            let left = budget.bytes.saturating_sub(done.tried) / PAGE_SIZE;
            let within = self.within(file, AddrRange::new(at, end), left);
            let stepped = within.and_then(|step| Ok((step, self.step(file, step)?)));
            let (step, (tried, applied)) = match stepped {
                Ok((step, _)) if step.is_empty() => break,
                Ok(stepped) => stepped,
                // The applied pages are charged. The file may have shrunk since.
                Err(_) if done.tried > 0 => {
                    done.failure = Some(Failure::Refused);
                    break;
                }
                Err(e) => return Err(e),
            };
            done.tried += tried * PAGE_SIZE;
            done.applied += applied.min(tried) * PAGE_SIZE;
            done.passed += step.len() - tried * PAGE_SIZE;
            at = step.end;
        }
        if done.applied < done.tried {
            done.failure.get_or_insert(Failure::Busy);
        }
        done.took = watch.wall();
        Ok(done)
    }

    /// The pages of a part that the action is for.
    fn pages(self, stat: &CacheStat, part: AddrRange) -> u64 {
        let pages = part.len() / PAGE_SIZE;
        match self {
            FileAction::Prefetch => pages.saturating_sub(stat.cached),
            _ => stat.cached.min(pages),
        }
    }

    /// The longest beginning of `part` with at most `most` pages that the action is for.
    fn within(self, file: &File, part: AddrRange, most: u64) -> io::Result<AddrRange> {
        let fits = |pages: u64| -> io::Result<bool> {
            let begin = AddrRange::new(part.start, part.start + pages * PAGE_SIZE);
            Ok(pages == 0 || self.pages(&cachestat(file, begin)?, begin) <= most)
        };
        let (mut fitting, mut too_many) = (0, part.len() / PAGE_SIZE + 1);
        let mut next = too_many - 1;
        while fitting + 1 < too_many {
            if fits(next)? {
                fitting = next
            } else {
                too_many = next
            }
            next = fitting.midpoint(too_many);
        }
        Ok(AddrRange::new(part.start, part.start + fitting * PAGE_SIZE))
    }

    /// Acts on a part; returns the numbers of tried and of applied pages.
    fn step(self, file: &File, part: AddrRange) -> io::Result<(u64, u64)> {
        let before = cachestat(file, part)?;
        let tried = self.pages(&before, part);
        if tried == 0 {
            return Ok((0, 0));
        }
        let mut runs = Vec::new();
        let applied = match self {
            FileAction::Drop => {
                // On dirty pages the advice starts writeback, which isotherm must not cause.
                find_runs(file, part, &is_clean, &mut runs)?;
                for run in runs {
                    fadvise(
                        file,
                        run.start,
                        std::num::NonZeroU64::new(run.len()),
                        Advice::DontNeed,
                    )?;
                }
                before.cached.saturating_sub(cachestat(file, part)?.cached)
            }
            FileAction::Prefetch => {
                for piece in pieces(part, read_ahead(file)) {
                    let len = std::num::NonZeroU64::new(piece.len());
                    fadvise(file, piece.start, len, Advice::WillNeed)?;
                }
                cachestat(file, part)?.cached.saturating_sub(before.cached)
            }
            FileAction::Protect => {
                find_runs(file, part, &is_cached, &mut runs)?;
                // The first of both accesses makes an inactive page referenced, the second makes it active.
                runs.iter().try_for_each(|run| access_mapped(file, *run))?;
                runs.iter().map(|run| run.len() / PAGE_SIZE).sum()
            }
            FileAction::Count => tried,
        };
        Ok((tried, applied))
    }
}

/// Bytes that the kernel reads ahead at once, of the device that holds a file: it ignores the rest of longer advice.
fn read_ahead(file: &File) -> u64 {
    let device = rustix::fs::fstat(file).map(|stat| stat.st_dev);
    let kib = device.ok().and_then(|device| read_ahead_kib("/sys".as_ref(), device));
    kib.map_or(READ_AHEAD, |kib| kib << 10).clamp(PAGE_SIZE, STEP_BYTES)
}

/// The read-ahead of a device in KiB: of a disk or of a network file system by its own name, of a partition by that of
/// its disk. A file system such as btrfs has a device number without a name in `/sys`.
fn read_ahead_kib(sys: &Path, device: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let own = format!("class/bdi/{major}:{minor}/read_ahead_kb");
    // The name of a partition is a link to its folder, which is in that of the disk.
    let of_disk = format!("dev/block/{major}:{minor}/../queue/read_ahead_kb");
    let read = |path: &String| std::fs::read_to_string(sys.join(path)).ok()?.trim().parse().ok();
    [own, of_disk].iter().find_map(read)
}

/// A part in pieces of at most `most` bytes.
fn pieces(part: AddrRange, most: u64) -> impl Iterator<Item = AddrRange> {
    let next = move |at: &u64| Some(at + most).filter(|at| *at < part.end);
    let starts = std::iter::successors(Some(part.start).filter(|at| *at < part.end), next);
    starts.map(move |at| AddrRange::new(at, (at + most).min(part.end)))
}

/// Whether all pages in the cache are clean; `None`: some are.
fn is_clean(stat: &CacheStat, _: u64) -> Option<bool> {
    match stat.dirty + stat.writeback {
        0 => Some(stat.cached > 0),
        unclean if unclean >= stat.cached => Some(false),
        _ => None,
    }
}

/// Whether all pages are in the cache; `None`: some are.
pub(super) fn is_cached(stat: &CacheStat, pages: u64) -> Option<bool> {
    match stat.cached {
        0 => Some(false),
        cached => (cached >= pages).then_some(true),
    }
}

/// Finds the parts for which `is` is true, by halving the part.
pub(super) fn find_runs(
    file: &File,
    part: AddrRange,
    is: &impl Fn(&CacheStat, u64) -> Option<bool>,
    runs: &mut Vec<AddrRange>,
) -> io::Result<()> {
    let pages = part.len() / PAGE_SIZE;
    match is(&cachestat(file, part)?, pages) {
        Some(false) => {}
        Some(true) => match runs.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => runs.push(part),
        },
        // It changes at this moment.
        None if pages < 2 => {}
        None => {
            let middle = part.start + pages / 2 * PAGE_SIZE;
            find_runs(file, AddrRange::new(part.start, middle), is, runs)?;
            find_runs(file, AddrRange::new(middle, part.end), is, runs)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_part() {
        let lengths = |start, end| {
            let all: Vec<AddrRange> = pieces(AddrRange::new(start, end), 128 << 10).collect();
            assert!(all.windows(2).all(|two| two[0].end == two[1].start));
            all.iter().map(|piece| piece.len() >> 10).collect::<Vec<_>>()
        };
        assert_eq!(lengths(4096, 4096 + (300 << 10)), [128, 128, 44]);
        assert_eq!(lengths(0, 128 << 10), [128]);
        assert_eq!(lengths(8192, 8192), [0; 0]);
    }

    #[test]
    fn a_partition_has_the_read_ahead_of_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let path = |path: &str| sys.path().join(path);
        for folder in ["devices/sda/queue", "devices/sda/sda1", "class/bdi/8:0", "dev/block"] {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        std::fs::write(path("devices/sda/queue/read_ahead_kb"), "4096\n").unwrap();
        std::fs::write(path("class/bdi/8:0/read_ahead_kb"), "512\n").unwrap();
        std::os::unix::fs::symlink("../../devices/sda/sda1", path("dev/block/8:1")).unwrap();
        let of = |major, minor| read_ahead_kib(sys.path(), rustix::fs::makedev(major, minor));
        assert_eq!((of(8, 0), of(8, 1), of(0, 40)), (Some(512), Some(4096), None));
    }
}
