//! Observes memory whose accessed bits `MADV_COLD` does not clear: mapped more than once, or locked.
//!
//! `clear_refs` clears the bits of whole processes, so this works in epochs, for all processes at once. The steps
//! are: clear, flush the TLBs, read soon afterwards and at the end, and clear again. The accesses to a page are
//! combined by page frame over all processes that map it. A page without an access that other processes map too
//! stays unknown, unless it belongs to a private mapping of a file. Accesses of other processes to the same code
//! are irrelevant to this process. Exposure begins with the flush: before it, an access through a cached
//! translation sets no bit.

mod flush;
mod frames;

use std::time::Duration;

use isotherm_core::{AddrRange, Cost, Mapping, MappingKind, Nanos, OpsError, PAGE_SIZE, Unknown};

pub(crate) use self::flush::flush_by_advice;
use self::frames::{EpochAccess, Frames};
use super::process::VaddrTarget;
use super::survey::{Price, read_blocks};
use super::targets::ProcessTable;
use crate::proc::{self, Refs};
use crate::sys::{monotonic, process_cpu, thread_cpu};
use crate::walker::{Plain, Span, Walker, Want, WindowAnswer, fitting, in_blocks, pages_in_block};
use crate::x86::Level;

/// Time from the flush to the first read of an epoch; the second read is at its end.
const FIRST_READ: Duration = Duration::from_millis(20);
/// The latest first read, if the processes do not run in the meantime.
const LATEST_FIRST_READ: Duration = Duration::from_millis(200);
/// Epochs may use one CPU second per this many seconds.
const EPOCH_CPU_ONE_IN: u32 = 50;
const MIN_EPOCH: Duration = Duration::from_secs(1);
/// Length of the first epoch, so that memory that has just become shared is not unknown for long.
const FIRST_EPOCH: Duration = Duration::from_millis(200);
/// Shortest epoch where TLBs cannot be flushed: translations then stay cached for some time.
const MIN_UNFLUSHED_EPOCH: Duration = Duration::from_secs(5);
const MAX_EPOCH: Duration = Duration::from_secs(60);
/// Longest time for which `clear_refs` may block a process: it can neither map memory nor fault during this time.
const MAX_STALL: Duration = Duration::from_millis(100);
/// Duration of `clear_refs` per GiB of resident memory that it clears.
const STALL_PER_GIB: Duration = Duration::from_millis(13);
/// Duration of the flush that it causes, per GiB of all resident memory.
const FLUSH_PER_GIB: Duration = Duration::from_micros(600);

/// The memory for which epochs are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// memory that cannot be cleared in another way
    Unclearable,
    /// all memory
    All,
}

/// Runs epochs one after the other.
#[derive(Debug)]
pub(super) struct Epochs {
    scope: Scope,
    soft_dirty: bool,
    under_way: Option<Epoch>,
    complete: Option<Complete>,
    length: Duration,
    /// CPUs that the processes kept busy in the last epoch
    busy: f64,
    next: Nanos,
}

#[derive(Debug)]
struct Epoch {
    since: Nanos,
    flushed: bool,
    flushes: u64,
    first: Option<Read>,
    frames: Frames,
    cost: Duration,
    /// CPU time that the processes lost by the flushes
    lost: Duration,
    /// entries that the last read found young: the processes had to set these bits again
    set: u64,
}

/// A complete epoch.
#[derive(Debug)]
struct Complete {
    since: Nanos,
    /// time for which pages were exposed until the first read
    exposure: Duration,
    frames: Frames,
}

#[derive(Debug, Clone, Copy)]
struct Read {
    /// time since the flush
    time: Duration,
    /// CPU time that the processes have used since the flush
    ran: Duration,
}

/// A resident page in question.
#[derive(Debug, Clone, Copy)]
pub(super) struct CandidatePage {
    pub frame: u64,
    /// Whether it was accessed since the current epoch began.
    pub young: bool,
    /// number of entries that map it over all processes, if known
    pub mapped: Option<u32>,
}

/// The result of the last epoch for some pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EpochResult {
    /// pages whose accesses were observed
    pub visible: u32,
    /// visible pages that were accessed from `since` to `read_at`
    pub young: u32,
    /// visible pages that were accessed later
    pub later: u32,
    /// untouched pages that unwatched processes map too
    pub shared: u32,
    /// pages that the epoch has not read: they were mapped later, or the epoch did not cover them
    pub unseen: u32,
    pub since: Nanos,
    pub read_at: Nanos,
}

impl Epochs {
    pub fn new(scope: Scope, soft_dirty: bool) -> Self {
        Epochs {
            scope,
            soft_dirty,
            under_way: None,
            complete: None,
            length: FIRST_EPOCH,
            busy: 0.0,
            next: Nanos(0),
        }
    }

    /// See [`super::Vaddr::pretend_soft_dirty`].
    pub fn pretend_soft_dirty(&mut self) {
        self.soft_dirty = true;
    }

    /// Whether epochs observe all memory.
    pub fn cover_all(&self) -> bool {
        self.scope == Scope::All
    }

    /// The result of the last complete epoch for `pages`; `None` if there is none.
    pub fn answer(&self, pages: impl Iterator<Item = CandidatePage>) -> Option<EpochResult> {
        let Complete { since, exposure, frames } = self.complete.as_ref()?;
        let (since, read_at) = (*since, *since + *exposure);
        let mut e =
            EpochResult { visible: 0, young: 0, later: 0, shared: 0, unseen: 0, since, read_at };
        for page in pages {
            let frame = frames.get(page.frame);
            let elsewhere = page.mapped.is_none_or(|n| n > u32::from(frame.mapped));
            match frame.touched {
                EpochAccess::First => (e.visible, e.young) = (e.visible + 1, e.young + 1),
                EpochAccess::Later => (e.visible, e.later) = (e.visible + 1, e.later + 1),
                EpochAccess::Never if frame.mapped == 0 => e.unseen += 1,
                EpochAccess::Never if page.young => {
                    (e.visible, e.later) = (e.visible + 1, e.later + 1)
                }
                EpochAccess::Never if elsewhere => e.shared += 1,
                EpochAccess::Never => e.visible += 1,
            }
        }
        Some(e)
    }

    /// Reads, ends or begins an epoch if that is due. This may clear bits: call it only when no caller waits
    /// for bits that have not just been read. Returns the number of TLB flushes, and the CPU time that the
    /// processes have lost by them and by setting their bits again.
    pub fn step(
        &mut self,
        walker: &mut Walker,
        targets: &mut ProcessTable<VaddrTarget>,
    ) -> Result<Cost, OpsError> {
        let (now, mut taken) = (monotonic(), Cost::default());
        if let Some(epoch) = &mut self.under_way {
            let over = now >= epoch.since + self.length;
            if !over && !epoch.wants_first_read(now, self.busy, targets) {
                return Ok(taken);
            }
            let begin = thread_cpu();
            let read = epoch.read(over, walker, targets)?;
            epoch.cost += thread_cpu().saturating_sub(begin);
            if !over {
                epoch.first = Some(read);
                return Ok(taken);
            }
            taken.lost = Price::here().of(0, 0, epoch.set);
            self.length = length(epoch.cost + epoch.lost + taken.lost, epoch.flushed);
            self.busy = read.ran.as_secs_f64() / read.time.as_secs_f64();
            self.complete = self.under_way.take().map(|epoch| epoch.complete(read));
        }
        if now >= self.next {
            self.under_way = self.begin(walker, targets)?;
            if self.under_way.is_none() {
                self.next = now + FIRST_EPOCH;
                self.length = FIRST_EPOCH;
                self.complete = None;
            }
        }
        if let Some(begun) = &self.under_way {
            taken.clears = begun.flushes;
            taken.lost += begun.lost;
        }
        Ok(taken)
    }

    /// Clears and flushes each process that has run since its last clear: the others cannot have set a bit or
    /// cached a translation. `None` if there is no memory to observe.
    fn begin(
        &self,
        walker: &mut Walker,
        targets: &mut ProcessTable<VaddrTarget>,
    ) -> Result<Option<Epoch>, OpsError> {
        let (cpu, begin) = (thread_cpu(), monotonic());
        let (mut flushed, mut flushes, mut members) = (true, 0, 0);
        let mut lost = Duration::ZERO;
        for process in targets.all() {
            let areas = process.epoch_areas(self.scope, self.soft_dirty);
            let ran = process_cpu(process.pid);
            process.ran_at_flush = ran.unwrap_or_default();
            let idle = ran.is_some() && ran == process.ran_at_clear && areas == process.in_epoch;
            if !idle && !areas.is_empty() {
                process.ran_at_clear = ran;
                if let Some(along) = process.clear_refs(walker, &areas)? {
                    flushed &= flush::flush(walker, process, self.soft_dirty)?;
                    flushes += 1;
                    lost += Price::here().of(1, process.running(), along);
                    process.in_epoch = areas;
                } else {
                    process.in_epoch.clear();
                }
            } else {
                process.in_epoch = areas;
            }
            members += usize::from(!process.in_epoch.is_empty());
        }
        if members == 0 {
            return Ok(None);
        }
        // `since` is the middle: the exposure of the first process is a little longer, that of the last a
        // little shorter.
        let since = begin + monotonic().since(begin) / 2;
        let cost = thread_cpu().saturating_sub(cpu);
        let (first, frames) = (None, Frames::default());
        Ok(Some(Epoch { since, flushed, flushes, first, frames, cost, lost, set: 0 }))
    }
}

impl Epoch {
    /// Just after the flush, processes may have to wait for a CPU, and their hot memory would look cold. So the
    /// first read waits until they have run half as much as usual, at most `LATEST_FIRST_READ`.
    fn wants_first_read(
        &self,
        now: Nanos,
        busy: f64,
        targets: &mut ProcessTable<VaddrTarget>,
    ) -> bool {
        let time = now.since(self.since);
        if self.first.is_some() || !self.flushed || time < FIRST_READ {
            return false;
        }
        let ran = cpu_in_epoch(targets);
        time >= LATEST_FIRST_READ || ran >= FIRST_READ.mul_f64(busy / 2.0)
    }

    /// Ends the epoch with its last read, which also serves as the first one if there was none.
    ///
    /// Exposure is scaled to the usual speed of these processes. Example: if they ran for 0.5 s of an epoch of
    /// 1 s, and for 15 ms until the first read, the exposure is 30 ms. It stays within a factor of 4 of the
    /// elapsed time.
    fn complete(mut self, last: Read) -> Complete {
        // The result is kept until the next epoch is complete.
        self.frames.shrink();
        let first = self.first.unwrap_or(last);
        let share = first.ran.as_secs_f64() / last.ran.as_secs_f64();
        let usual = if share.is_finite() { last.time.mul_f64(share) } else { first.time };
        let exposure = usual.clamp(first.time / 4, first.time * 4);
        Complete { since: self.since, exposure, frames: self.frames }
    }

    fn read(
        &mut self,
        last: bool,
        walker: &mut Walker,
        targets: &mut ProcessTable<VaddrTarget>,
    ) -> Result<Read, OpsError> {
        let time = monotonic().since(self.since);
        let ran = cpu_in_epoch(targets);
        let touched = if self.first.is_none() { EpochAccess::First } else { EpochAccess::Later };
        let zero = walker.zero_frames().to_vec();
        for process in targets.all() {
            let windows: Vec<AddrRange> =
                process.in_epoch.iter().copied().flat_map(in_blocks).collect();
            let mut rest = &windows[..];
            while !rest.is_empty() {
                let n = fitting(rest.iter().copied()).clamp(1, rest.len());
                let (now, later) = rest.split_at(n);
                let asked = now.iter().map(|&r| (r, Want::Entries));
                let read = walker.read(process.pid, asked);
                let Some(batch) = process.as_it_was(read, |batch| Some(batch.identity))? else {
                    break;
                };
                for (range, answer) in now.iter().zip(batch.answers()) {
                    self.note(*range, &answer, &zero, touched, last);
                }
                rest = later;
            }
        }
        Ok(Read { time, ran })
    }

    fn note(
        &mut self,
        range: AddrRange,
        answer: &WindowAnswer<'_>,
        zero: &[u64],
        touched: EpochAccess,
        last: bool,
    ) {
        if matches!(answer.level, Level::None | Level::Changed) {
            return;
        }
        for page in 0..usize::try_from(range.len() / PAGE_SIZE).unwrap_or(0) {
            let entry = answer.entry(page);
            if !entry.is_memory(answer.level, zero) {
                continue;
            }
            let frame = answer.frame(range, page);
            if entry.is_young() {
                self.frames.touch(frame, touched);
                self.set += u64::from(last);
            }
            if last {
                self.frames.map(frame);
            }
        }
    }
}

/// The length of the next epoch after one that used `cost` CPU time, including that of the processes.
pub(super) fn length(cost: Duration, flushed: bool) -> Duration {
    let shortest = if flushed { MIN_EPOCH } else { MIN_UNFLUSHED_EPOCH };
    cost.saturating_mul(EPOCH_CPU_ONE_IN).clamp(shortest, MAX_EPOCH)
}

/// CPU time that the processes of the epoch have used since it began.
fn cpu_in_epoch(targets: &mut ProcessTable<VaddrTarget>) -> Duration {
    let members = targets.all().filter(|p| !p.in_epoch.is_empty());
    members.filter_map(|p| process_cpu(p.pid)?.checked_sub(p.ran_at_flush)).sum()
}

impl VaddrTarget {
    /// The areas that epochs cover; none if the bits of this process cannot be cleared at once.
    ///
    /// Clearing the bits of files does not affect private memory. Private memory is cleared only where a flush
    /// is sure to follow (without `soft_dirty`): otherwise pages with a cached translation would look idle to
    /// other monitors.
    fn epoch_areas(&self, scope: Scope, soft_dirty: bool) -> Vec<AddrRange> {
        if !self.takes_epochs() {
            return Vec::new();
        }
        let areas = self.mappings.iter().filter(|m| match (m.unknown, scope) {
            (None, Scope::All) => true,
            (None, Scope::Unclearable) => {
                self.is_sharing(m.range.start) && (is_file(m) || !soft_dirty)
            }
            (Some(why), _) => {
                why == Unknown::Mlocked && (is_file(m) || !soft_dirty || scope == Scope::All)
            }
        });
        areas.map(|m| m.range).collect()
    }

    /// Whether all bits can be cleared at once, without blocking the process for long.
    pub(super) fn takes_epochs(&self) -> bool {
        self.refs.is_some() && !self.stalls
    }

    /// Clears at least `areas` (sorted), unless that would take too long. If it was done, returns the number of
    /// young entries of other memory that were cleared too.
    fn clear_refs(
        &mut self,
        walker: &mut Walker,
        areas: &[AddrRange],
    ) -> Result<Option<u64>, OpsError> {
        let only_files = areas.iter().all(|a| self.mapping_at(a.start).is_none_or(is_file));
        let which = if only_files { Refs::Files } else { Refs::All };
        let resident = proc::resident(&self.root, self.pid).unwrap_or_default();
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        let cleared = if only_files { resident.files } else { resident.all };
        let stall = STALL_PER_GIB.mul_f64(gib(cleared)) + FLUSH_PER_GIB.mul_f64(gib(resident.all));
        self.stalls = stall > MAX_STALL;
        if self.stalls {
            return Ok(None);
        }
        let along = if only_files { 0 } else { self.young_but(walker, areas)? };
        let done = self.refs.as_mut().is_some_and(|refs| refs.clear(which).is_ok());
        Ok(done.then_some(along))
    }

    /// The number of young entries outside of `areas`.
    fn young_but(&self, walker: &mut Walker, areas: &[AddrRange]) -> Result<u64, OpsError> {
        let is_other = |r: &AddrRange| areas.binary_search_by_key(&r.start, |a| a.start).is_err();
        let others = self.mappings.iter().map(|m| m.range).filter(is_other);
        let spans: Vec<Span> = others.map(|range| Span { range, plain: Plain::Nowhere }).collect();
        let mut young = 0;
        read_blocks(walker, self, &spans, |b| {
            let range = spans.get(b.span).map_or(AddrRange::default(), |s| s.range);
            let of_it = b.young.and(&pages_in_block(b.start, range)).count();
            young += u64::from(if b.huge { of_it.min(1) } else { of_it });
        })?;
        Ok(young)
    }
}

fn is_file(mapping: &Mapping) -> bool {
    matches!(mapping.kind, MappingKind::File | MappingKind::Special)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Frame 1 is touched at once, 2 late, the others never; 5 is touched after the epoch. 300 processes map frame 7.
    fn epochs() -> Epochs {
        let mut frames = Frames::default();
        (1..=5).for_each(|f| frames.map(f));
        (0..300).for_each(|_| frames.map(7));
        frames.touch(1, EpochAccess::First);
        frames.touch(2, EpochAccess::Later);
        let complete = Complete { since: Nanos(1_000_000_000), exposure: 20 * MS, frames };
        Epochs { complete: Some(complete), ..Epochs::new(Scope::Unclearable, false) }
    }

    fn ask(pages: &[(u64, Option<u32>)]) -> EpochResult {
        epochs()
            .answer(pages.iter().map(|&(frame, mapped)| CandidatePage {
                frame,
                mapped,
                young: frame == 5,
            }))
            .unwrap()
    }

    #[test]
    fn early_and_late_touches_are_distinguished() {
        let e = ask(&[(1, Some(1)), (2, Some(1)), (4, Some(1))]);
        assert_eq!((e.visible, e.young, e.later), (3, 1, 1));
        assert_eq!(e.read_at.since(e.since), 20 * MS);
        assert_eq!(ask(&[(5, Some(1))]).later, 1, "it is young in the next epoch");
    }

    #[test]
    fn untouched_by_us_and_mapped_by_others_is_not_cold() {
        let e = ask(&[(3, Some(2)), (4, None), (1, Some(9)), (77, Some(1))]);
        assert_eq!((e.visible, e.young, e.shared, e.unseen), (1, 1, 2, 1));
    }

    #[test]
    fn many_watched_processes_are_not_unwatched_ones() {
        let of = |mapped| {
            let e = ask(&[(7, Some(mapped))]);
            (e.visible, e.shared)
        };
        assert_eq!((of(300), of(301)), ((1, 0), (0, 1)));
    }

    /// The exposure of an epoch of 1 s, with its first read after 40 ms.
    fn exposure(ran_first: u32, ran_last: u32) -> Duration {
        let first = Read { time: 40 * MS, ran: ran_first * MS };
        let (since, frames, cost) = (Nanos(0), Frames::default(), MS);
        let epoch = Epoch {
            since,
            flushed: true,
            flushes: 1,
            first: Some(first),
            frames,
            cost,
            lost: cost,
            set: 0,
        };
        epoch.complete(Read { time: 1000 * MS, ran: ran_last * MS }).exposure
    }

    #[test]
    fn exposure_is_in_time_as_it_passes_for_the_processes() {
        assert_eq!(exposure(20, 500), 40 * MS, "as usual");
        assert_eq!(exposure(15, 500), 30 * MS);
        assert_eq!(exposure(0, 500), 10 * MS, "within bounds");
        assert_eq!(exposure(0, 0), 40 * MS, "it did not run at all");
    }

    #[test]
    fn before_the_first_epoch_there_is_no_answer() {
        let pages = [CandidatePage { frame: 1, mapped: Some(1), young: false }];
        assert_eq!(Epochs::new(Scope::All, true).answer(pages.into_iter()), None);
    }
}
