//! Files: reads and writes are counted where they get pages of the page cache, and mapped parts are looked at in the
//! page tables of the processes that map them.

mod acting;
mod heat;
mod left;
mod mapped;
mod tracer;
mod turns;
mod watched;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::time::Duration;

use isotherm_core::{
    Act, Attrs, CacheTrace, Cost, CountedTarget, EndReason, Nanos, OpsError, PAGE_SIZE, Quality,
    Snapshot, Source, Step, TargetId, TargetView,
};
use isotherm_linux::page_cache::{AccessCount, FileKey, LockedParts, ReadCounter, Writes};
use isotherm_linux::sys::{self, CpuLaps};
use isotherm_linux::{HeldProcesses, Hold, Way};
use isotherm_record::TargetInfo;
use tracing::{info, warn};

pub use self::heat::FileHeatWatch;
use self::left::LeftFiles;
use self::mapped::MappedFiles;
use self::tracer::{TracedFiles, Tracer};
use self::turns::SamplingSlices;
use self::watched::{FileInterval, WINDOW_SHIFT, WatchedFile};
use super::{AttrsFor, Ready, StaticTargets, Watch, WatchError};
use crate::pace::{Pace, PaceLimits, WorkStart};
use crate::page_cache::{CacheReader, FileScope, MAX_WATCHED_FILES};
use crate::usage::UsageError;

/// Maximum number of windows of all files together. If more are cached, windows are joined. Those that left the memory
/// first are forgotten.
const MAX_FILE_WINDOWS: usize = 32_768;
/// Pace of looking which files there are, and of reading which parts of them are cached.
const LISTING: PaceLimits = PaceLimits {
    cpu_divisor: 400,
    min_pause: Duration::from_secs(1),
    max_pause: Duration::from_secs(120),
};
const READING: PaceLimits =
    PaceLimits { cpu_divisor: 400, min_pause: Duration::ZERO, max_pause: Duration::from_secs(60) };

/// The files to watch.
#[derive(Debug, Clone)]
pub struct FilesToWatch {
    /// which files
    pub scope: FileScope,
    /// Reads, writes and mapped accesses are targets of their own.
    pub by_access: bool,
    /// Parts that leave the memory keep their rates, so that schemes can read hot ones ahead.
    pub remembers: bool,
    /// Each access to a sample of pages is listed. Then accesses are counted all the time, at any cost to them.
    pub traces: bool,
}

/// Watches files. It counts from the first step on.
pub struct WatchedFiles {
    reader: CacheReader,
    counter: Result<ReadCounter, String>,
    mapped: Result<(MappedFiles, Way), String>,
    by_access: bool,
    remembers: bool,
    files: Watched,
    locked: LockedParts,
    /// holds no processes
    held: HeldProcesses,
}

impl WatchedFiles {
    /// Opens what can count here, and finds the files. They are targets from `first` on.
    pub fn open(what: &FilesToWatch, first: TargetId) -> Result<Self, WatchError> {
        let reader = CacheReader::open(what.scope.clone())?;
        if let Some(why) = reader.why_not_bpf() {
            return Err(WatchError::NoBpf(why.to_owned()));
        }
        let counter = ReadCounter::by_window(WINDOW_SHIFT, what.traces).map_err(|e| e.to_string());
        let mapped = MappedFiles::open(sys::monotonic().0).map_err(|e| e.to_string());
        match (&counter, &mapped) {
            (Err(reads), Err(maps)) => {
                let (reads, mappings) = (reads.clone(), maps.clone());
                return Err(WatchError::NoFileAccesses { reads, mappings });
            }
            (Err(reads), _) if what.traces => return Err(WatchError::NoTraces(reads.clone())),
            (Err(reads), _) => warn!("reads and writes are unknown: {reads}"),
            (_, Err(maps)) => warn!("accesses through mappings are unknown: {maps}"),
            _ => {}
        }
        let mut files = WatchedFiles {
            reader,
            counter,
            mapped,
            by_access: what.by_access,
            remembers: what.remembers,
            files: Watched::new(first),
            locked: LockedParts::default(),
            held: HeldProcesses::default(),
        };
        files.list()?;
        Ok(files)
    }

    /// Finds the files, and their mappings.
    fn list(&mut self) -> Result<(), WatchError> {
        let begun = WorkStart::now();
        let listed = self.find(begun.at);
        self.files.listed.pause(&begun, &LISTING);
        listed
    }

    /// The same, again. If it fails, the earlier list stays until the next attempt. Not each failure is printed.
    fn list_again(&mut self) {
        let Err(e) = self.list() else { return };
        let failed = &mut self.files.failed_listings;
        *failed += 1;
        if failed.is_power_of_two() {
            let (failed, why) = (*failed, crate::words::chain(&e));
            warn!(
                "cannot list the files (failure {failed}), so the earlier list stays for now: {why}"
            );
        }
    }

    fn find(&mut self, now: Nanos) -> Result<(), WatchError> {
        let (mut found, cache) = self.reader.find()?;
        found.retain(|f| !self.files.own.contains(&f.file.key()));
        // Also the order of the targets: reports name the first one.
        found.sort_by_key(|f| std::cmp::Reverse(f.file.pages));
        if found.len() > MAX_WATCHED_FILES && !std::mem::replace(&mut self.files.is_cut, true) {
            let all = found.len();
            info!(
                "watching the {MAX_WATCHED_FILES} of {all} files that have the most cached pages"
            );
        }
        let cut = found.split_off(found.len().min(MAX_WATCHED_FILES));
        if let Ok((mapped, _)) = &mut self.mapped {
            let is_any_mapped = found.iter().any(|f| f.file.is_mapped);
            let mut parts = if is_any_mapped { cache.mapped()? } else { Vec::new() };
            let own = i32::try_from(std::process::id()).unwrap_or(0);
            let wanted: HashSet<u64> =
                found.iter().filter(|f| f.file.is_mapped).map(|f| f.file.id()).collect();
            parts.retain(|p| p.holder.pid != own && wanted.contains(&p.holder.file));
            mapped.set_parts(parts);
        }
        let mut before = std::mem::take(&mut self.files.files);
        for f in found {
            let key = f.file.key();
            let watched = before.remove(&key).or_else(|| self.files.files.remove(&key));
            let watched = watched.or_else(|| self.files.left.take(&key));
            let mut watched = watched.unwrap_or_default();
            self.files.news.extend(watched.update(
                f,
                (self.by_access, self.remembers),
                &mut self.files.next_id,
            ));
            self.files.files.insert(key, watched);
        }
        let cut: HashSet<FileKey> = cut.iter().map(|f| f.file.key()).collect();
        let gone = self.files.left.add(before, |key| cut.contains(key), now);
        self.files.gone.extend(gone);
        Ok(())
    }

    /// Reads which parts of the files are cached.
    fn read_parts(&mut self) -> Result<(), OpsError> {
        let begun = WorkStart::now();
        let before = self.files.window_shift;
        let shift = &mut self.files.window_shift;
        let mut files: Vec<&mut WatchedFile> = self.files.files.values_mut().collect();
        let mut read: Vec<_> = files.iter_mut().filter_map(|file| file.begin_parts()).collect();
        // A log grows: programs write beyond the size that it had when it was listed.
        let recounted = self.reader.recount(&mut read);
        files.iter_mut().zip(&read).for_each(|(file, now)| file.resize(now.size));
        let mut windows = 0;
        let result = self.reader.parts(&read, |i, part| {
            if let Some(file) = files.get_mut(i) {
                windows += file.add_part(&part, *shift);
            }
            while windows > MAX_FILE_WINDOWS {
                *shift += 1;
                windows = join_parts(&mut files, &mut self.files.left);
            }
        });
        if *shift > before {
            let window = isotherm_report::bytes(PAGE_SIZE << *shift);
            info!(
                "more than {MAX_FILE_WINDOWS} windows are cached: from now on a window is {window}"
            );
        }
        self.files.read.pause(&begun, &READING);
        recounted.and(result).map_err(failed)
    }
}

/// Joins pairs of cached windows of all files, also of those that have left: one that returns has its parts until they
/// are read again. Returns the number of windows that the watched ones have then.
fn join_parts(watched: &mut [&mut WatchedFile], left: &mut LeftFiles) -> usize {
    left.files().for_each(|file| _ = file.join_parts());
    watched.iter_mut().map(|file| file.join_parts()).sum()
}

/// The watched files.
struct Watched {
    files: BTreeMap<FileKey, WatchedFile>,
    left: LeftFiles,
    /// files that isotherm writes, which are not watched
    own: HashSet<FileKey>,
    next_id: u32,
    /// names to report
    news: Vec<TargetInfo>,
    /// forgotten targets to report
    gone: Vec<TargetId>,
    /// There were more files than can be watched.
    is_cut: bool,
    listed: Pace,
    failed_listings: u64,
    read: Pace,
    /// binary logarithm of the pages of a window
    window_shift: u32,
}

impl Watched {
    /// No file yet; targets from `first` on.
    fn new(first: TargetId) -> Self {
        Watched {
            files: BTreeMap::new(),
            left: LeftFiles::default(),
            own: HashSet::new(),
            next_id: first.0,
            news: Vec::new(),
            gone: Vec::new(),
            is_cut: false,
            listed: Pace::default(),
            failed_listings: 0,
            read: Pace::default(),
            window_shift: WINDOW_SHIFT,
        }
    }

    /// The counts of all files, also of those that have left.
    fn counted(&mut self) -> impl Iterator<Item = &mut CountedTarget> {
        self.files.values_mut().chain(self.left.files()).flat_map(WatchedFile::counted)
    }

    /// Bytes of all files in the cache, as last read.
    fn cached_bytes(&self) -> u64 {
        self.files.values().map(WatchedFile::cached_pages).sum::<u64>() * PAGE_SIZE
    }

    /// Forgets windows that are not in memory, beyond the maximum.
    fn limit_windows(&mut self, now_ms: u32) {
        let mut counted: Vec<&mut CountedTarget> = self.counted().collect();
        CountedTarget::limit(&mut counted, MAX_FILE_WINDOWS, now_ms);
    }

    /// The files as the counter knows them.
    fn traced(&self) -> TracedFiles {
        let files = self.files.values();
        TracedFiles {
            bytes: files.clone().map(WatchedFile::size).sum(),
            targets: files.filter_map(WatchedFile::traced).collect(),
        }
    }
}

impl Ready for WatchedFiles {
    fn describe(&self) -> String {
        let reads = match self.counter.as_ref().map(ReadCounter::writes) {
            Err(_) => "reads and writes not seen",
            Ok(Writes::None) => "reads by mm_filemap_get_pages, writes not seen",
            Ok(Writes::Dirtied) => {
                "reads by mm_filemap_get_pages, the first write of a folio between two writebacks"
            }
            Ok(Writes::Ext4) => {
                "reads by mm_filemap_get_pages, writes on ext4, elsewhere the first write of a folio between two \
                 writebacks"
            }
        };
        let mapped = match &self.mapped {
            Ok((_, way)) => format!("accesses through mappings by {}", way.name()),
            Err(_) => "accesses through mappings not seen".to_owned(),
        };
        format!(
            "files: {reads}, one page of {}; {mapped}. Resolution: 256 KiB, coarser if more than \
             {MAX_FILE_WINDOWS} such windows are cached. Not seen: read() and write() on tmpfs, \
             O_DIRECT, metadata",
            ReadCounter::SHARE
        )
    }

    fn attrs(&self, asked: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        asked.attrs_for(Way::PageIdle, false)
    }

    fn hold(&mut self) -> &mut dyn Hold {
        &mut self.held
    }

    fn act(&self) -> Option<&dyn Act> {
        Some(self)
    }

    fn watched(&self) -> Option<StaticTargets> {
        Some(StaticTargets { kind: "files", facts: self.files.news.clone() })
    }

    fn begin(
        self: Box<Self>,
        attrs: Attrs,
        _: &[TargetId],
        _: u64,
    ) -> Result<Box<dyn Watch>, WatchError> {
        Ok(Box::new(self.watch(attrs.checked().map_err(UsageError::from)?)))
    }
}

impl WatchedFiles {
    fn watch(mut self, attrs: Attrs) -> FileWatch {
        self.files.news.clear();
        let now = sys::monotonic();
        let files = self.files.traced();
        let traced = self.counter.as_mut().ok().filter(|counter| counter.traces());
        let tracer = traced.map(|counter| Tracer::begin(counter, now, files));
        FileWatch {
            files: self,
            attrs,
            turns: if tracer.is_some() {
                SamplingSlices::lasting(now)
            } else {
                SamplingSlices::begin(now)
            },
            tracer,
            trace: None,
            counts: Counts::default(),
            counted_shift: WINDOW_SHIFT,
            begun: now,
            start: now,
            seq: 0,
            cost: Cost::default(),
            cpu: CpuLaps::begin(),
            is_stopped: false,
        }
    }
}

struct FileWatch {
    files: WatchedFiles,
    attrs: Attrs,
    turns: SamplingSlices,
    tracer: Option<Tracer>,
    /// the accesses that were not passed on yet
    trace: Option<CacheTrace>,
    counts: Counts,
    /// the windows by which the counter counts
    counted_shift: u32,
    begun: Nanos,
    /// begin of the present interval
    start: Nanos,
    seq: u64,
    cost: Cost,
    cpu: CpuLaps,
    is_stopped: bool,
}

/// The counts of an interval.
#[derive(Default)]
struct Counts {
    is_on: bool,
    /// calls of the programs that have been added
    calls: u64,
    time: Duration,
}

impl FileWatch {
    /// Attaches or detaches the counter if it is time.
    fn turn(&mut self, now: Nanos) -> Result<(), OpsError> {
        if self.counts.is_on && self.turns.is_check_due(now) {
            self.add_turn(now);
        }
        let Ok(counter) = &mut self.files.counter else { return Ok(()) };
        let is_on = self.turns.is_on(now);
        if is_on && !self.counts.is_on {
            self.counts.calls = counter.calls();
            counter.attach().map_err(failed)?;
            self.turns.begun(now);
        } else if !is_on && self.counts.is_on {
            self.close_turn(now);
        }
        self.counts.is_on = is_on;
        Ok(())
    }

    /// Adds the time and the calls since the turn began, or since the last call. The turn continues.
    fn add_turn(&mut self, now: Nanos) {
        let Ok(counter) = &mut self.files.counter else { return };
        let (time, all) = (counter.lap(), counter.calls());
        let calls = all - std::mem::replace(&mut self.counts.calls, all);
        self.turns.set_share(calls, time, now);
        self.counts.time += time;
        self.cost.lost += SamplingSlices::lost(calls);
    }

    fn close_turn(&mut self, now: Nanos) {
        self.add_turn(now);
        if let Ok(counter) = &mut self.files.counter {
            counter.detach();
        }
        self.counts.is_on = false;
    }

    fn take_counts(&mut self, now: Nanos) -> Result<HashMap<u64, Vec<AccessCount>>, OpsError> {
        // The counter stays attached: otherwise each interval would begin with a gap, in which periodic work hides.
        if self.counts.is_on {
            self.add_turn(now);
        }
        let Ok(counter) = &mut self.files.counter else { return Ok(HashMap::new()) };
        let mut by_file: HashMap<u64, Vec<AccessCount>> = HashMap::new();
        for count in counter.take().map_err(failed)? {
            by_file.entry(count.file).or_default().push(count);
        }
        Ok(by_file)
    }

    /// Reads the list of accesses, if it is due or `is_last`.
    fn read_trace(&mut self, now: Nanos, is_last: bool) -> Result<(), OpsError> {
        let (Some(tracer), Ok(counter)) = (&mut self.tracer, &mut self.files.counter) else {
            return Ok(());
        };
        if is_last || now >= tracer.due() {
            tracer.read(counter, now).map_err(failed)?;
        }
        Ok(())
    }

    /// Passes on the accesses that were read, once it is known to which files they were.
    fn take_trace(&mut self) -> Result<(), OpsError> {
        if let (Some(tracer), Ok(counter)) = (&mut self.tracer, &mut self.files.counter) {
            let files = self.files.files.traced();
            let next = tracer.take(counter, files).map_err(failed)?;
            match &mut self.trace {
                // With processes, several intervals of files may pass before one of theirs ends.
                Some(trace) => trace.append(next),
                None => self.trace = Some(next),
            }
        }
        Ok(())
    }

    fn ms(&self, at: Nanos) -> u32 {
        u32::try_from(at.since(self.begun).as_millis()).unwrap_or(u32::MAX)
    }

    fn publish(&mut self, now: Nanos) -> Result<Snapshot, OpsError> {
        let counts = self.take_counts(now)?;
        self.files.locked.unlock_old(now);
        if now >= self.files.files.listed.due() {
            self.read_trace(now, true)?;
            self.files.list_again();
            self.take_trace()?;
        }
        if now >= self.files.files.read.due() {
            self.files.read_parts()?;
        }
        if let Some(ms) = self.begun.move_origin(now) {
            self.files.files.counted().for_each(|counted| counted.rebase(ms));
        }
        let interval = FileInterval {
            time: now.since(self.start),
            counted: self.files.counter.is_ok().then_some(self.counts.time),
            window_shift: self.files.files.window_shift,
            counted_shift: self.counted_shift,
            counts: &counts,
            counter: self.files.counter.as_ref().ok(),
            mapped: self.files.mapped.as_ref().ok().map(|(mapped, _)| mapped.regions()),
            now,
            now_ms: self.ms(now),
            sample: self.attrs.sample,
        };
        let files = &mut self.files.files.files;
        let all: usize = files.values().map(WatchedFile::nr_windows).sum();
        let mut targets: Vec<TargetView> = Vec::new();
        for file in files.values_mut() {
            let max = self.attrs.max_regions as usize * file.nr_windows() / all.max(1);
            file.observe(&interval, max.max(4), &mut targets);
        }
        let now_ms = interval.now_ms;
        self.files.files.limit_windows(now_ms);
        let shift = self.files.files.window_shift;
        if std::mem::replace(&mut self.counted_shift, shift) != shift {
            if let Ok(counter) = &mut self.files.counter {
                counter.set_window_shift(shift);
            }
            // What was counted since the interval ended is by the earlier windows.
            self.take_counts(now)?;
        }
        targets.sort_by_key(|t| t.id);
        self.cost.cpu += self.cpu.lap();
        let snapshot = Snapshot {
            seq: self.seq,
            start: self.start,
            end: now,
            attrs: self.attrs,
            cost: std::mem::take(&mut self.cost),
            quality: Some(Quality::of_all(&targets)),
            targets,
        };
        self.seq += 1;
        self.start = now;
        self.counts.time = Duration::ZERO;
        Ok(snapshot)
    }
}

fn failed(e: isotherm_linux::page_cache::PageCacheError) -> OpsError {
    OpsError::Failed(e.to_string())
}

impl Source for FileWatch {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        if self.is_stopped {
            return Ok(Step::End(EndReason::Stopped));
        }
        let mut until = self.start + self.attrs.aggr;
        if let Ok((mapped, _)) = &mut self.files.mapped {
            let (cost, next) = mapped.step(now)?;
            // The time of this thread includes the monitor's.
            self.cost += Cost { cpu: Duration::ZERO, ..cost };
            until = until.min(next);
        }
        if now >= self.start + self.attrs.aggr {
            let snapshot = self.publish(now)?;
            self.turn(now)?;
            return Ok(Step::Snapshot(snapshot.into()));
        }
        self.turn(now)?;
        self.read_trace(now, false)?;
        if let Some(tracer) = &self.tracer {
            until = until.min(tracer.due());
        } else if self.files.counter.is_ok() {
            until = until.min(self.turns.next(now));
        }
        Ok(Step::Wait(until))
    }
}

impl Watch for FileWatch {
    fn hold(&mut self) -> &mut dyn Hold {
        &mut self.files.held
    }

    /// The targets are always the files.
    fn set_targets(&mut self, _: &[TargetId]) -> Result<(), WatchError> {
        Ok(())
    }

    fn act(&mut self) -> Option<&mut dyn Act> {
        Some(&mut self.files)
    }

    fn attrs_of(&self, asked: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        Ready::attrs(&self.files, asked)
    }

    fn news(&mut self) -> Vec<TargetInfo> {
        std::mem::take(&mut self.files.files.news)
    }

    fn gone(&mut self) -> Vec<TargetId> {
        std::mem::take(&mut self.files.files.gone)
    }

    fn leave_out(&mut self, file: &File) -> Result<(), WatchError> {
        let WatchedFiles { reader, files, .. } = &mut self.files;
        let Some(cache) = reader.page_cache() else { return Ok(()) };
        for file in cache.open_file(file)?.files {
            if let Some(own) = files.files.remove(&file.key()) {
                files.gone.extend(own.targets());
            }
            files.own.insert(file.key());
        }
        Ok(())
    }

    fn trace(&mut self) -> Option<CacheTrace> {
        self.trace.take()
    }

    fn attrs(&self) -> Option<Attrs> {
        Some(self.attrs)
    }

    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), WatchError> {
        self.attrs = attrs.checked()?;
        Ok(())
    }

    fn stop(&mut self) -> Result<(), WatchError> {
        self.is_stopped = true;
        if self.counts.is_on {
            self.close_turn(sys::monotonic());
        }
        if self.tracer.is_some() {
            self.read_trace(sys::monotonic(), true)?;
            self.files.list_again();
            self.take_trace()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use isotherm_linux::page_cache::CachedRange;

    use super::*;

    #[test]
    fn parts_of_files_that_have_left_are_joined_too() {
        let file = || {
            let mut file = WatchedFile::default();
            for first in [0, 1 << WINDOW_SHIFT] {
                let (evicted, dirty, writeback) = (0, 0, 0);
                let part =
                    CachedRange { first, cached: 1, evicted, dirty, writeback, sample: None };
                file.add_part(&part, WINDOW_SHIFT);
            }
            file
        };
        let (mut watched, key) = (file(), (0, 0, 0));
        let mut left = LeftFiles::default();
        left.add(BTreeMap::from([(key, file())]), |_| true, Nanos(1));
        join_parts(&mut [&mut watched], &mut left);
        let returned = left.take(&key).unwrap();
        assert_eq!((watched.nr_windows(), returned.nr_windows()), (1, 1));
    }
}
