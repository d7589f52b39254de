//! The state of a piece: adjacent memory within one 2 MiB block and one mapping.

use std::ops::Range;
use std::time::Duration;

use super::summary::PieceSummary;
use super::timing::{EARLY_READS, Elapsed, ExposureTerms, Moment, READS};
use super::window::{Evidence, Window};
use super::windows::Windows;
use crate::ops::Seen;
use crate::page_mask::{CompactMask, PageMask};
use crate::range::{AddrRange, PAGE_SIZE, align_down};
use crate::survey::{BLOCK_SIZE, Block, Cleared};
use crate::time::Nanos;
use crate::tuning::{CHECKED_IDLE, MIN_SAMPLE_PAGES, SAMPLED_HZ};
use crate::unknown::Unknown;

/// Pages in the sample of a coarse piece: with fewer, one page that is freed leaves too small a sample.
const COARSE_SAMPLE: usize = MIN_SAMPLE_PAGES as usize;

/// A presumed rate weighs as much as an exposure of this time, in s.
const PRESUMED_S: f64 = 0.02;

/// Hidden pages may be visible again, and show this only by a clear. One follows after this time, or after half of the
/// time for which pages were hidden before the last clear, if that is longer.
const HIDDEN_CLEAR_INTERVAL: Duration = Duration::from_secs(10);

/// An exposure: the reads since a clear.
#[derive(Debug, Clone, PartialEq)]
struct Exposed {
    since: Moment,
    /// time from the clear to each read; NaN if there was none
    reads: [Elapsed; READS],
    /// time from the clear to the last read
    last: Elapsed,
    /// number of reads of all memory
    full: u8,
    /// Idle time in s, if the last read of all memory found only a few pages touched: the read may have come
    /// while the memory was waking.
    stirred: Option<f32>,
    /// rate in Hz until the clear, if samples represented the memory; 0 otherwise
    was_hz: f32,
}

/// Adjacent memory within one block and one mapping, divided into windows.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub range: AddrRange,
    pub huge: bool,
    resident: CompactMask,
    /// young at the last read
    young: CompactMask,
    /// cleared at the start of the current exposure
    armed: CompactMask,
    /// armed pages found young since then
    found: CompactMask,
    hidden: Box<[(Unknown, CompactMask)]>,
    /// time since which it has hidden pages
    hides_since: Nanos,
    exposed: Option<Exposed>,
    /// time of the last clear of the whole piece
    whole_at: Nanos,
    /// Set while the evidence of its windows is outdated: the rate presumed until the whole piece is cleared.
    presumed: Option<Presumed>,
    /// Its evidence may be outdated, since its region has become faster elsewhere.
    doubted: bool,
    calm: Option<Calm>,
    /// dropped by every change of the piece
    summary: Option<Box<PieceSummary>>,
    /// number of consecutive reads of all memory without this piece
    pub missing: u8,
    /// size of a window in bytes, once the whole piece is cleared
    size: u64,
    /// In a large target, one small sample of each piece is cleared and represents the whole piece, which
    /// then has a single window.
    coarse: bool,
    windows: Windows,
}

/// A rate that is presumed from a sample elsewhere in the stretch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Presumed {
    hz: f32,
    /// for a piece that was never cleared: time of the last read of the sample, in ms
    until: u32,
    /// time of the clear of the sample
    since: Nanos,
}

/// The evidence of a piece since its last clear.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// cleared pages, and those of them that were touched
    pub pages: f64,
    pub touched: f64,
    /// page-seconds before the touch
    pub seconds: f64,
    /// lower bound of the time in which the target could touch them, in s
    pub open: f64,
    /// time of the clear
    pub since: Moment,
}

/// The state of a piece without any known touch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Calm {
    /// earliest and latest time of the last touch of any window, in ms
    pub touched: (u32, u32),
    /// see [`Window::level`] and [`Window::kept`]
    pub level: i8,
    pub kept: u32,
}

/// The changes that a read found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReadChange {
    /// pages touched since the previous read
    pub touched: PageMask,
    /// pages that another party has cleared
    pub taken: PageMask,
    /// Some pages are no longer resident.
    pub left: bool,
    /// A window was touched after a long idle time.
    pub reactivated: bool,
    /// A quarter or more of idle armed memory was touched between this read and the previous one: the idle
    /// time in s.
    pub reactivated_after: Option<f64>,
}

impl Piece {
    /// A piece without any evidence, divided into windows of `size` bytes.
    pub fn new(range: AddrRange, size: u64, ms: u32) -> Self {
        let windows = range.end.div_ceil(size) - range.start / size;
        Piece {
            range,
            huge: false,
            resident: CompactMask::default(),
            young: CompactMask::default(),
            armed: CompactMask::default(),
            found: CompactMask::default(),
            hidden: Box::default(),
            hides_since: Nanos(0),
            exposed: None,
            whole_at: Nanos(0),
            presumed: None,
            doubted: false,
            calm: None,
            summary: None,
            missing: 0,
            size,
            coarse: false,
            windows: Windows::new(Window::new(ms), u16::try_from(windows).unwrap_or(u16::MAX)),
        }
    }

    /// A piece with one window, which a sample represents.
    pub fn coarse(range: AddrRange, size: u64, ms: u32) -> Self {
        let windows = Windows::new(Window::new(ms), 1);
        Piece { coarse: true, windows, ..Piece::new(range, size, ms) }
    }

    /// Changes the range within the block, because the mapping has grown or shrunk. Windows that stay keep their state.
    pub fn fit(&mut self, range: AddrRange, ms: u32) {
        if range == self.range {
            return;
        }
        let nth = |addr: u64| addr / self.size;
        let (old, new) = (nth(self.range.start), nth(range.start));
        let (end, len) = (nth(self.range.end - 1), range.end.div_ceil(self.size) - new);
        let kept = |i: u64| Some(i).filter(|i| (old..=end).contains(i)).map(|i| (i - old) as usize);
        self.windows.fit(len as usize, |i| kept(new + i as u64), Window::new(ms));
        self.range = range;
        let all = self.span();
        for mask in [&mut self.resident, &mut self.young, &mut self.armed, &mut self.found] {
            *mask = (&mask.get().and(&all)).into();
        }
        self.hide(self.hidden().map(|(why, mask)| (why, mask.and(&all))).collect());
        self.calm = None;
        self.summary = None;
    }

    /// Whether a sample represents the whole piece.
    pub fn is_coarse(&self) -> bool {
        self.coarse
    }

    /// Makes the piece coarse if it was never cleared.
    pub fn coarsen(&mut self, ms: u32) {
        if !self.was_cleared() && !self.coarse {
            self.coarse = true;
            self.summary = None;
            self.windows = Windows::new(Window::new(ms), 1);
        }
    }

    /// Divides a coarse piece into windows. Each inherits the state of the single window.
    fn refine(&mut self) {
        let windows = self.range.end.div_ceil(self.size) - self.range.start / self.size;
        let one = self.windows[0];
        self.coarse = false;
        self.summary = None;
        self.windows = Windows::new(one, u16::try_from(windows).unwrap_or(u16::MAX));
    }

    /// A few pages in the middle of a coarse piece, or in the middle of the `nth` of `parts` parts of it.
    pub fn sample_of(&self, nth: usize, parts: usize) -> AddrRange {
        let resident: Vec<usize> = match &self.resident {
            CompactMask::Span(from, to) => (usize::from(*from)..usize::from(*to)).collect(),
            mask => mask.get().iter().collect(),
        };
        let middle = resident.len() * (2 * nth + 1) / (2 * parts.max(1));
        let at = middle
            .saturating_sub(COARSE_SAMPLE / 2)
            .min(resident.len().saturating_sub(COARSE_SAMPLE));
        let page = resident.get(at).copied().unwrap_or(0);
        let start = self.block() + page as u64 * PAGE_SIZE;
        let end = start + COARSE_SAMPLE as u64 * PAGE_SIZE;
        AddrRange::new(start, end.min(self.range.end))
    }

    /// The range to read to see whether a coarse piece is still untouched: from its first armed page to its
    /// last. `None` after a touch.
    pub fn sentinel(&self) -> Option<AddrRange> {
        let mask = self.armed.get();
        let (first, last) = (mask.iter().next()?, mask.iter().last()?);
        let at = |page: usize| self.block() + page as u64 * PAGE_SIZE;
        (self.coarse && self.found.is_empty()).then(|| AddrRange::new(at(first), at(last + 1)))
    }

    /// Cuts off the part of a coarse piece before its sample, or behind it (`behind`), because a border of
    /// heat lies on that side. `hz` is the rate of the piece. The new piece was never cleared. If `hz` is
    /// positive, the new piece is presumed that hot; if it proves idle, it counts as idle since `touched`, in
    /// ms. Returns `None` if too few resident pages would be cut off.
    pub fn cut_off(&mut self, behind: bool, hz: f64, touched: u32) -> Option<Piece> {
        let mask = self.armed.get();
        let (first, last) = (mask.iter().next()?, mask.iter().last()?);
        let at = |page: usize| self.block() + page as u64 * PAGE_SIZE;
        let (kept, cut) = match behind {
            true => {
                let border = at(last + 1).next_multiple_of(self.size).min(self.range.end);
                (AddrRange::new(self.range.start, border), AddrRange::new(border, self.range.end))
            }
            false => {
                let border = align_down(at(first), self.size).max(self.range.start);
                (AddrRange::new(border, self.range.end), AddrRange::new(self.range.start, border))
            }
        };
        let (from, to) = self.pages(cut);
        let resident = self.resident.get().and(&PageMask::span(from, to));
        if cut.is_empty() || resident.count() < MIN_SAMPLE_PAGES {
            return None;
        }
        let mut new = Piece::coarse(cut, self.size, touched);
        if hz > 0.0 {
            new.presumed = Some(Presumed { hz: hz as f32, until: self.read_ms(), since: Nanos(0) });
        }
        new.resident = (&resident).into();
        new.young = (&resident).into();
        self.summary = None;
        self.range = kept;
        self.resident = (&self.resident.get().without(&resident)).into();
        Some(new)
    }

    /// The rate that its sample has shown, in Hz; 0 if nothing was touched.
    pub fn sampled_hz(&self, t: &ExposureTerms) -> f64 {
        if self.found.is_empty() {
            return 0.0;
        }
        self.shown_since(t).map_or(0.0, |s| s.touched / s.seconds.max(1e-9))
    }

    /// Presumes a piece that was never cleared to be untouched since `touched`, in ms, because the samples on
    /// both sides were untouched when they were read (`until`). If `until` is `None`, the state of the piece
    /// is unknown; if it proves idle, it counts as idle since `touched`.
    pub fn bridge(&mut self, touched: Option<u32>, until: Option<u32>) {
        if self.presumed_hz().is_some_and(|hz| hz > 0.0) {
            // It was cut off a hot piece.
            return;
        }
        self.summary = None;
        self.presumed = until.map(|until| Presumed { hz: 0.0, until, since: Nanos(0) });
        if let Some(touched) = touched {
            self.windows.distinct_mut().iter_mut().for_each(|w| w.touched = touched);
        }
    }

    /// Subtracts `ms` from all times; times before the new origin become 0.
    pub fn rebase(&mut self, ms: u32) {
        self.summary = None;
        let windows = self.windows.distinct_mut().iter_mut();
        let times = windows.flat_map(|w| [&mut w.touched, &mut w.kept, &mut w.suspect]);
        let exposed = self.exposed.iter_mut().map(|x| &mut x.since.ms);
        let calm = self.calm.iter_mut();
        let calm = calm.flat_map(|c| [&mut c.touched.0, &mut c.touched.1, &mut c.kept]);
        let presumed = self.presumed.iter_mut().map(|p| &mut p.until);
        times.chain(exposed).chain(calm).chain(presumed).for_each(|t| *t = t.saturating_sub(ms));
    }

    /// Whether a read of its block contains a resident page of the piece.
    pub fn is_in(&self, block: &Block) -> bool {
        !block.resident.and(&self.span()).is_empty()
    }

    /// Start address of its block.
    pub fn block(&self) -> u64 {
        align_down(self.range.start, BLOCK_SIZE)
    }

    /// The pages of `range`, as indices in the block: first and end.
    fn pages(&self, range: AddrRange) -> (usize, usize) {
        let page = |addr: u64| usize::try_from((addr - self.block()) / PAGE_SIZE).unwrap_or(0);
        (page(range.start), page(range.end))
    }

    /// The pages of the piece as a mask of its block.
    fn span(&self) -> PageMask {
        let (first, end) = self.pages(self.range);
        PageMask::span(first, end)
    }

    /// Number of windows.
    pub fn nr_windows(&self) -> usize {
        self.windows.len()
    }

    /// Address range of a window.
    pub fn window_range(&self, i: usize) -> AddrRange {
        let size = if self.coarse { BLOCK_SIZE } else { self.size };
        let start = align_down(self.range.start, size) + i as u64 * size;
        AddrRange::new(start.max(self.range.start), (start + size).min(self.range.end))
    }

    /// A window.
    pub fn window(&self, i: usize) -> &Window {
        &self.windows[i]
    }

    /// The windows in the range, each with the length of its memory; or the one window that represents all,
    /// with the length of the piece.
    pub fn heats(&self, windows: Range<usize>) -> impl Iterator<Item = (&Window, u64)> {
        let one = self.is_one(&windows).then(|| self.range.len());
        let windows = if one.is_some() { 0..1 } else { windows };
        let len = move |i: usize| one.unwrap_or_else(|| self.window_range(i).len());
        windows.map(move |i| (&self.windows[i], len(i)))
    }

    /// Calls `note` for the windows in the range, or for the one window that represents all.
    pub fn note_heat(&mut self, windows: Range<usize>, mut note: impl FnMut(&mut Window)) {
        match self.is_one(&windows) {
            true => self.windows.distinct_mut().iter_mut().for_each(note),
            false => {
                for i in windows {
                    note(&mut self.windows[i]);
                }
            }
        }
    }

    /// Whether the range is all windows, and one window represents them.
    fn is_one(&self, windows: &Range<usize>) -> bool {
        *windows == (0..self.nr_windows()) && self.windows.distinct().len() == 1
    }

    /// The windows of a range in runs of windows with equal figures. A run is not empty.
    pub fn runs(&self, windows: Range<usize>) -> Vec<Range<usize>> {
        if self.is_one(&windows) && self.is_even() {
            return vec![windows];
        }
        let is_visible = self.hidden.is_empty();
        let state = |i: usize| (i, (self.resident_in(i), self.touched(i), self.is_found(i)));
        let states: Vec<_> = windows.map(state).collect();
        let runs = states.chunk_by(|(i, one), (k, other)| {
            is_visible && one == other && self.windows[*i].shows_the_same(&self.windows[*k])
        });
        runs.map(|run| run[0].0..run[0].0 + run.len()).collect()
    }

    /// Whether all windows are whole, resident and visible, and either all or none of their pages are young, and found
    /// touched.
    fn is_even(&self) -> bool {
        let all_or_none = |mask: &CompactMask| mask.is_empty() || *mask == self.resident;
        let AddrRange { start, end } = self.range;
        self.hidden.is_empty()
            && [start, end].iter().all(|at| at.is_multiple_of(self.size))
            && self.resident() == self.span()
            && all_or_none(&self.young)
            && all_or_none(&self.found)
    }

    /// The pages of a window, as indices in the block.
    fn pages_of(&self, i: usize) -> (usize, usize) {
        self.pages(self.window_range(i))
    }

    /// Number of pages of `mask` in a window.
    pub fn count(&self, mask: &PageMask, i: usize) -> u16 {
        let (first, end) = self.pages_of(i);
        u16::try_from(mask.count_in(first, end)).unwrap_or(u16::MAX)
    }

    /// Number of resident pages in a window.
    pub fn resident_in(&self, i: usize) -> u16 {
        self.count_kept(&self.resident, i)
    }

    fn count_kept(&self, mask: &CompactMask, i: usize) -> u16 {
        let (first, end) = self.pages_of(i);
        u16::try_from(mask.count_in(first, end)).unwrap_or(u16::MAX)
    }

    /// Whether the piece was ever cleared.
    pub fn was_cleared(&self) -> bool {
        self.exposed.is_some()
    }

    /// Whether the piece has evidence or a presumed rate.
    pub fn is_seen(&self) -> bool {
        self.exposed.is_some() || self.presumed.is_some()
    }

    /// Time of the last clear.
    pub fn cleared_at(&self) -> Option<Nanos> {
        self.exposed.as_ref().map(|x| x.since.at)
    }

    /// Time of the last clear of the whole piece, not of a sample only.
    pub fn whole_at(&self) -> Option<Nanos> {
        self.cleared_at().map(|_| self.whole_at)
    }

    /// Whether the target has hardly run since the clear, so that the absence of touches carries no
    /// information.
    pub fn is_stalled(&self, t: &ExposureTerms) -> bool {
        let stalled = |x: &Exposed| x.last.open(t.share) < f64::from(x.last.wall) / 2.0;
        self.exposed.as_ref().is_some_and(stalled)
    }

    /// Time of the last read.
    pub fn read_at(&self) -> Option<Nanos> {
        let x = self.exposed.as_ref()?;
        Some(x.since.at + Duration::from_secs_f32(x.last.wall.max(0.0)))
    }

    /// Time of the last read in ms since the monitor began; for a piece that was never cleared, the time of
    /// the sample's last read.
    pub fn read_ms(&self) -> u32 {
        let ms = |x: &Exposed| x.since.ms.saturating_add((x.last.wall * 1e3) as u32);
        let presumed = || self.presumed.map_or(0, |p| p.until);
        self.exposed.as_ref().map_or_else(presumed, ms)
    }

    /// Time of the last read or clear in ms, for a read at `now`; `now` if the piece was never cleared.
    pub fn read_before(&self, now: u32) -> u32 {
        if self.was_cleared() { self.read_ms() } else { now }
    }

    /// Class of the next read of all memory, as an index among [`READS`].
    pub fn next_full(&mut self) -> usize {
        let Some(x) = &mut self.exposed else { return READS - 1 };
        let class = EARLY_READS.len() + usize::from(x.full);
        x.full = x.full.saturating_add(1);
        class.min(READS - 1)
    }

    /// Resident pages.
    pub fn resident(&self) -> PageMask {
        self.resident.get()
    }

    /// Number of resident pages.
    pub fn nr_resident(&self) -> u32 {
        self.resident.count()
    }

    /// Pages whose accesses are invisible, by reason.
    pub fn hidden(&self) -> impl Iterator<Item = (Unknown, PageMask)> {
        self.hidden.iter().map(|(why, mask)| (*why, mask.get()))
    }

    /// Whether the piece has such pages.
    pub fn hides(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Whether a clear is due of a piece with hidden pages: they may be visible again.
    pub fn may_have_shown(&self, now: Nanos) -> bool {
        let for_long = self.whole_at.since(self.hides_since) / 2;
        let due = |at| now.since(at) >= HIDDEN_CLEAR_INTERVAL.max(for_long);
        self.hides() && self.whole_at().is_some_and(due)
    }

    /// All pages whose accesses are invisible.
    pub fn unseen_pages(&self) -> PageMask {
        self.hidden().fold(PageMask::default(), |all, (_, mask)| all.or(&mask))
    }

    /// Whether all of its pages are visible and young: further reads find nothing new.
    pub fn is_spent(&self) -> bool {
        self.hidden.is_empty() && !self.young.is_empty() && self.young == self.resident
    }

    /// Number of young, visible pages: they carry no more information until they are cleared.
    pub fn spent(&self) -> u32 {
        match self.hidden.is_empty() {
            true => self.young.count(),
            false => self.spent_pages().count(),
        }
    }

    /// Number of young pages, visible or not.
    pub fn nr_young(&self) -> u32 {
        self.young.count()
    }

    /// Number of spent pages within `range`.
    pub fn spent_in(&self, range: &AddrRange) -> u32 {
        let (first, end) = range.intersect(&self.range).map_or((0, 0), |r| self.pages(r));
        match self.hidden.is_empty() {
            true => self.young.count_in(first, end),
            false => self.spent_pages().count_in(first, end),
        }
    }

    /// Latest time of the last touch of a window, in ms.
    pub fn last_touched(&self) -> u32 {
        self.windows.distinct().iter().map(|w| w.touched).max().unwrap_or(0)
    }

    /// The pages of `mask` that belong to the piece.
    pub fn within(&self, mask: &PageMask) -> PageMask {
        mask.and(&self.span())
    }

    /// Young pages.
    pub fn young(&self) -> PageMask {
        self.young.get()
    }

    fn spent_pages(&self) -> PageMask {
        self.young.get().without(&self.unseen_pages())
    }

    /// The rate until the last clear in Hz, if the piece was hot then and is untouched since: it may have become
    /// idle.
    pub fn may_be_idle(&self, now: Nanos) -> Option<f64> {
        let x = self.exposed.as_ref().filter(|x| now.since(x.since.at) < CHECKED_IDLE)?;
        (self.is_idle_for_sure() && x.was_hz > 0.0).then_some(x.was_hz.into())
    }

    /// Notes that the piece has become idle, and that this was extended to its surroundings.
    pub fn settle_idle(&mut self) {
        self.exposed.iter_mut().for_each(|x| x.was_hz = 0.0);
    }

    /// Whether the piece is untouched since its clear.
    pub fn is_quiet(&self) -> bool {
        self.is_seen() && self.found.is_empty()
    }

    /// Completes a block of which only `asked` was read: the rest of this piece is as the last read found it.
    pub fn complete(&self, block: &Block, asked: &AddrRange) -> Block {
        let (first, end) = self.pages(asked.intersect(&self.range).unwrap_or(self.range));
        let rest = self.span().without(&PageMask::span(first, end));
        Block {
            resident: block.resident.or(&self.resident().and(&rest)),
            young: block.young.or(&self.young.get().and(&rest)),
            ..*block
        }
    }

    /// Applies a read; `class` is its index among [`READS`].
    pub fn read(
        &mut self,
        block: &Block,
        class: usize,
        now: &Moment,
        t: &ExposureTerms,
    ) -> ReadChange {
        let span = self.span();
        let (resident, mut young) = (block.resident.and(&span), block.young.and(&span));
        if self.coarse && self.was_cleared() {
            // Pages that were not cleared carry no information.
            young = young.and(&self.armed.get());
        }
        let (mut taken, mut touched, mut new) =
            (PageMask::default(), PageMask::default(), PageMask::default());
        let mut left = false;
        if !self.resident.is(&resident) {
            // Pages that are no longer resident cannot be observed.
            left = !self.resident.get().without(&resident).is_empty();
            self.calm = None;
            self.summary = None;
            self.armed = (&self.armed.get().and(&resident)).into();
            self.hide(self.hidden().map(|(why, mask)| (why, mask.and(&resident))).collect());
            self.resident = (&resident).into();
        }
        if self.huge != block.huge {
            self.huge = block.huge;
            self.summary = None;
        }
        // Most memory is unchanged.
        if !self.young.is(&young) {
            let was_young = self.young.get();
            taken = was_young.without(&young).and(&resident);
            touched = young.without(&was_young);
            new = young.and(&self.armed.get()).without(&self.found.get());
            self.young = (&young).into();
            self.summary = None;
        }
        if !touched.is_empty() {
            self.calm = None;
        }
        let reactivated_after = self.reactivation(&new, class, now, t);
        let reactivated = self.expose(&new, class, now, t);
        if !touched.is_empty() {
            self.change(
                |p, i| p.count(&touched, i) > 0,
                |w, touched| {
                    if touched {
                        w.touched = now.ms;
                    }
                },
            );
        }
        if self.calm.is_none() && self.is_quiet() && class >= EARLY_READS.len() {
            self.calm = self.calm_down(t);
            if self.calm.is_some() {
                self.windows.join();
            }
        }
        ReadChange { touched, taken, left, reactivated, reactivated_after }
    }

    /// Whether a touch of the pages `new` means that idle memory is reactivated. Returns the idle time in s.
    fn reactivation(
        &mut self,
        new: &PageMask,
        class: usize,
        now: &Moment,
        t: &ExposureTerms,
    ) -> Option<f64> {
        // It was idle at an earlier read of all memory, or is presumed idle.
        let idle = self.found.is_empty() && (class > EARLY_READS.len() || self.is_presumed_idle());
        if new.is_empty() {
            if idle || class >= EARLY_READS.len() {
                self.exposed.as_mut()?.stirred = None;
            }
            return None;
        }
        let armed = self.armed.get().count();
        let all = self.found.get().or(new).count();
        let much = armed >= MIN_SAMPLE_PAGES && all * 4 >= armed;
        let touched = || self.windows.distinct().iter().map(|w| w.touched).max().unwrap_or(now.ms);
        let x = self.exposed.as_ref()?;
        let idle_for = if idle {
            // It may have been idle for a long time before the clear.
            x.last.open(t.share).max(f64::from(now.ms.saturating_sub(touched())) / 1e3)
        } else {
            f64::from(x.stirred?)
        };
        let x = self.exposed.as_mut()?;
        if idle && !much {
            x.stirred = Some(idle_for as f32);
        } else if class >= EARLY_READS.len() {
            x.stirred = None;
        }
        much.then_some(idle_for)
    }

    /// Records what a read of class `class` would have shown: no touches that are not known.
    pub fn find_nothing_new(&mut self, class: usize, now: &Moment, t: &ExposureTerms) {
        self.expose(&PageMask::default(), class, now, t);
    }

    /// Drops the earlier evidence of quiet memory that no longer applies. Returns the common state of the
    /// windows, if they agree.
    fn calm_down(&mut self, t: &ExposureTerms) -> Option<Calm> {
        let simple = self.hidden.is_empty() && self.young.is_empty();
        let whole = || self.resident() == self.span() && self.resident == self.armed;
        let plain = simple && self.presumed.is_none() && (self.coarse || whole());
        let open = self.exposed.as_ref()?.last.open(t.share);
        let mut each = self.windows.distinct_mut().iter_mut();
        if !plain || !each.all(|w| w.forget(w.idle_for(open))) {
            return None;
        }
        let windows = self.windows.distinct();
        let first = windows.first()?;
        let alike = |w: &Window| w.level == first.level && w.kept == first.kept;
        let touched = windows.iter().map(|w| w.touched);
        let touched = (touched.clone().min()?, touched.max()?);
        let calm = Calm { touched, level: first.level, kept: first.kept };
        windows.iter().all(alike).then_some(calm)
    }

    /// The state of the whole piece, if it is calm.
    pub fn calm(&self) -> Option<&Calm> {
        self.calm.as_ref()
    }

    /// Armed pages of calm memory, and their page-seconds since the clear.
    pub fn idle(&self, t: &ExposureTerms) -> (u32, f64) {
        let seconds = self.exposed.as_ref().map_or(0.0, |x| x.last.open(t.share));
        let pages = self.armed.count();
        (pages, f64::from(pages) * seconds)
    }

    /// Sets the heat of all windows.
    pub fn set_level(&mut self, level: i8, kept: u32) {
        for w in self.windows.distinct_mut() {
            (w.level, w.kept) = (level, kept);
        }
        if let Some(calm) = &mut self.calm {
            (calm.level, calm.kept) = (level, kept);
        }
    }

    /// Adds a read that found `new` pages touched. Returns whether a window was touched after a long idle
    /// time.
    fn expose(&mut self, new: &PageMask, class: usize, now: &Moment, t: &ExposureTerms) -> bool {
        let Some(x) = &mut self.exposed else { return false };
        let elapsed = Elapsed::between(&x.since, now);
        let (was, is) = (x.last.open(t.share), elapsed.open(t.share));
        x.reads[class] = elapsed;
        x.last = elapsed;
        let quiet = self.found.is_empty();
        if quiet && new.is_empty() {
            // Most memory is cold: the evidence of its windows follows from the times alone.
            return false;
        }
        if new.is_empty() {
            let mut tells = false;
            for w in self.windows.distinct_mut() {
                tells |= w.pass((is - was).max(0.0), class);
            }
            if tells {
                self.summary = None;
            }
            return false;
        }
        self.summary = None;
        self.found = (&self.found.get().or(new)).into();
        let mut reactivated = false;
        self.change(
            |p, i| p.count(new, i),
            |w, count| {
                if quiet {
                    w.stay_idle(was);
                }
                if count > 0 && was > t.long && w.current().d == 0.0 {
                    reactivated = true;
                    w.suspect = now.ms.max(1);
                }
                w.add(count, (is - was).max(0.0), class);
            },
        );
        reactivated
    }

    /// Applies `change` to each window.
    fn change<T: PartialEq>(
        &mut self,
        by: impl Fn(&Piece, usize) -> T,
        change: impl FnMut(&mut Window, T),
    ) {
        let mut windows = std::mem::take(&mut self.windows);
        windows.change(|i| by(self, i), change);
        self.windows = windows;
    }

    /// Applies a clear: a new exposure begins. The piece stays unchanged if `c` contains none of its pages:
    /// then the clear did not include this piece.
    pub fn clear(&mut self, c: &Cleared, since: Moment, was_hz: Option<f64>, t: &ExposureTerms) {
        let span = self.span();
        let described = c.hidden.iter().fold(c.armed, |all, (_, mask)| all.or(mask));
        if described.and(&span).is_empty() {
            return;
        }
        let armed = c.armed.and(&span);
        let whole = described.and(&span).count() >= self.resident().count();
        if whole && self.coarse {
            self.refine();
        }
        // Memory presumed idle was untouched since the clear of its sentinels, if these are untouched.
        let sentinels = self.exposed.as_ref().filter(|_| self.is_idle_for_sure());
        let idle_since = sentinels.map_or(since.ms, |x| x.since.ms);
        let presumed: Vec<Option<Evidence>> = match self.presumed {
            Some(_) => (0..self.nr_windows()).map(|i| self.presumed_of(i)).collect(),
            None => Vec::new(),
        };
        let presumed_now = self.presumed_after_clear(whole, &since, t);
        let shown = self.exposure(t);
        self.summary = None;
        let first = self.coarse && !self.was_cleared();
        self.change(
            |p, i| {
                let presumed = presumed.get(i).copied().flatten();
                (p.count_kept(&p.young, i) > 0, p.count(&armed, i), presumed)
            },
            |w, (young, pages, presumed)| {
                match presumed {
                    Some(e) if whole && e.d > 0.0 && e.d < e.e * SAMPLED_HZ as f32 => {
                        w.forget_all_but(e.d / e.e);
                    }
                    Some(_) => w.forget_all(),
                    None => w.carry(shown.of(w), shown.is_confirmed(w), since.ms),
                }
                match presumed {
                    Some(e) if e.d == 0.0 && !whole => {}
                    Some(e) if e.d == 0.0 => w.touched = w.touched.max(idle_since),
                    // A young page may have been touched until now.
                    _ if young && !first => w.touched = since.ms,
                    _ => {}
                }
                w.pages = pages;
            },
        );
        self.huge = c.huge;
        self.armed = (&armed).into();
        self.found = CompactMask::default();
        self.young = match self.coarse {
            true => CompactMask::default(),
            false => (&self.young.get().without(&armed)).into(),
        };
        self.resident = (&self.resident().or(&described.and(&span))).into();
        if !self.hides() {
            self.hides_since = since.at;
        }
        self.note_hidden(c, &armed, &described, whole);
        self.presumed = presumed_now;
        if whole || self.coarse {
            self.whole_at = since.at;
        }
        self.doubted = false;
        self.calm = None;
        let (last, was_hz) = (Elapsed::default(), was_hz.unwrap_or(0.0) as f32);
        self.exposed = Some(Exposed {
            since,
            reads: [Elapsed::UNREAD; READS],
            last,
            full: 0,
            stirred: None,
            was_hz,
        });
    }

    /// The rate that the pages which a clear left out keep: if only a sample of the piece was cleared, the rest keeps
    /// its presumed rate.
    fn presumed_after_clear(
        &self,
        whole: bool,
        since: &Moment,
        t: &ExposureTerms,
    ) -> Option<Presumed> {
        match self.presumed {
            _ if whole || self.coarse => None,
            Some(p) => Some(p),
            None => {
                let before = (0..self.nr_windows()).map(|i| self.evidence(i, t));
                let before = before.fold(Evidence::default(), Evidence::plus);
                Some(Presumed { hz: before.d / before.e.max(1e-6), until: 0, since: since.at })
            }
        }
    }

    /// Notes the pages that a clear has reported as hidden; `described` are all pages that it reports on.
    fn note_hidden(&mut self, c: &Cleared, armed: &PageMask, described: &PageMask, whole: bool) {
        let span = self.span();
        // If no page of a sample is visible, the whole coarse piece counts as hidden.
        let all = (self.coarse && armed.is_empty()).then(|| self.resident());
        let most = if all.is_some() { 1 } else { usize::MAX };
        let hidden = |mask: &PageMask| all.unwrap_or_else(|| mask.and(&span));
        let reported = c.hidden.iter().take(most).map(|(why, mask)| (*why, hidden(mask)));
        // The clear of a sample need not report what is hidden beside it.
        let beside = self.hidden().filter(|_| !whole && !self.coarse);
        let beside = beside.map(|(why, mask)| (why, mask.without(described)));
        self.hide(reported.chain(beside).collect());
    }

    /// Sets the invisible pages, by reason.
    fn hide(&mut self, hidden: Vec<(Unknown, PageMask)>) {
        let some = hidden.iter().filter(|(_, mask)| !mask.is_empty());
        self.hidden = some.map(|(why, mask)| (*why, mask.into())).collect();
    }

    /// Applies a report of another way to look at the hidden pages of a window.
    pub fn take_report(&mut self, addr: u64, seen: &Seen, ms: u32) {
        let Some(since) = seen.since else { return };
        self.summary = None;
        let i = usize::try_from(addr / self.size - self.range.start / self.size).unwrap_or(0);
        let described = u16::try_from(seen.present).unwrap_or(u16::MAX);
        let w = &mut self.windows[i];
        w.reported = described;
        if seen.young + seen.later > 0 {
            w.touched = ms;
        }
        w.take_report(seen.young, described, seen.read_at.since(since).as_secs_f64());
    }

    /// Whether both pieces were cleared and read together, with the same page size and presumed rate.
    pub fn is_exposed_like(&self, o: &Piece) -> bool {
        let bits = |x: &Exposed| x.reads.map(|r| (r.wall.to_bits(), r.ran.to_bits()));
        let same = |a: &Exposed, b: &Exposed| a.since == b.since && bits(a) == bits(b);
        let exposed = self.exposed.as_ref().zip(o.exposed.as_ref());
        self.huge == o.huge
            && self.presumed == o.presumed
            && exposed.is_some_and(|(a, b)| same(a, b))
    }

    /// The evidence of the current exposure.
    fn exposure(&self, t: &ExposureTerms) -> CurrentExposure {
        CurrentExposure {
            open: self.exposed.as_ref().map(|x| x.last.open(t.share)),
            quiet: self.found.is_empty(),
            since: self.exposed.as_ref().map_or(0, |x| x.since.ms),
            recent: t.recent,
        }
    }

    /// For the windows within `range` in the current exposure: touched pages, page-seconds before the touch,
    /// and the expected number of touched pages at `hz`.
    pub fn against(&self, range: AddrRange, hz: f64, t: &ExposureTerms) -> [f64; 3] {
        let seconds = self.exposed.as_ref().map_or(0.0, |x| x.last.surely_open(t.share));
        let touched = -(-hz * seconds).exp_m1();
        let whole =
            |i: &usize| range.intersect(&self.window_range(*i)) == Some(self.window_range(*i));
        let shown = self.exposure(t);
        (0..self.nr_windows()).filter(whole).fold([0.0; 3], |[d, e, n], i| {
            let x = shown.of(&self.windows[i]);
            let pages = f64::from(self.windows[i].pages);
            [d + f64::from(x.d), e + f64::from(x.e), n + pages * touched]
        })
    }

    /// Whether a window was touched after a long idle time and not cleared since: its rate is unknown.
    pub fn is_reactivated(&self, i: usize) -> bool {
        !self.is_extended(i)
            && self.exposed.as_ref().is_some_and(|x| self.windows[i].suspect > x.since.ms)
    }

    /// Whether the piece was cleared within `ms` before `now`.
    pub fn is_cleared_within(&self, ms: u32, now: u32) -> bool {
        self.exposed.as_ref().is_some_and(|x| now.saturating_sub(x.since.ms) <= ms)
    }

    /// Whether a window was found touched since the clear.
    pub fn is_found(&self, i: usize) -> bool {
        self.count_kept(&self.found, i) > 0
    }

    /// Whether a new summary is due: the piece was touched since the clear, and has no valid summary. Drops
    /// the summary of a quiet piece.
    pub fn lacks_summary(&mut self, t: &ExposureTerms) -> bool {
        if !self.is_seen() || self.is_quiet() {
            self.summary = None;
            return false;
        }
        !self.summary.as_ref().is_some_and(|s| s.recent.contains(&t.recent))
    }

    /// Stores the summary until the piece changes.
    pub fn keep_summary(&mut self, summary: PieceSummary) {
        self.summary = Some(Box::new(summary));
    }

    /// The stored summary.
    pub fn summary(&self) -> Option<&PieceSummary> {
        self.summary.as_deref()
    }

    /// The values of [`ExposureTerms::recent`] that confirm the same signs of heat as `recent`.
    pub fn same_recent(&self, recent: u32) -> Range<u32> {
        let since = self.exposed.as_ref().map_or(0, |x| x.since.ms);
        let signs = self.windows.distinct().iter().map(|w| w.suspect);
        let ago = signs.filter(|ms| (1..=since).contains(ms)).map(|ms| since - ms);
        ago.fold(0..u32::MAX, |Range { start, end }, ago| match ago <= recent {
            true => start.max(ago)..end,
            false => start..end.min(ago),
        })
    }

    /// The evidence of a window over all exposures.
    pub fn evidence(&self, i: usize, t: &ExposureTerms) -> Evidence {
        if let Some(evidence) = self.presumed_of(i) {
            return evidence;
        }
        let (shown, w) = (self.exposure(t), &self.windows[i]);
        w.together(shown.of(w), shown.is_confirmed(w))
    }

    /// Whether a window looks hotter than before in this exposure for the first time: it may be a burst just
    /// after the clear.
    pub fn is_sudden(&self, i: usize, t: &ExposureTerms) -> bool {
        let (shown, w) = (self.exposure(t), &self.windows[i]);
        w.is_sudden(shown.of(w), shown.is_confirmed(w))
    }

    /// Whether any window is sudden, see [`Piece::is_sudden`]. Never true for a huge page.
    pub fn is_sudden_anywhere(&self, t: &ExposureTerms) -> bool {
        !self.huge && (0..self.windows.distinct().len()).any(|i| self.is_sudden(i, t))
    }

    /// The presumed evidence of a window, if it is presumed.
    fn presumed_of(&self, i: usize) -> Option<Evidence> {
        let presumed = self.presumed.filter(|p| !self.is_sample(i, p))?;
        let e = f32::from(self.resident_in(i)) * PRESUMED_S as f32;
        Some(Evidence { d: presumed.hz * e, e })
    }

    /// Whether a window was cleared after the sample that the presumed rate comes from.
    fn is_sample(&self, i: usize, presumed: &Presumed) -> bool {
        self.windows[i].pages > 0 && self.cleared_at().is_some_and(|at| at >= presumed.since)
    }

    /// The evidence since the last clear, summed over the windows.
    pub fn shown_since(&self, t: &ExposureTerms) -> Option<Shown> {
        let x = self.exposed.as_ref()?;
        let exposure = self.exposure(t);
        let zero = Shown {
            pages: 0.0,
            touched: 0.0,
            seconds: 0.0,
            open: x.last.surely_open(t.share),
            since: x.since,
        };
        Some((0..self.nr_windows()).fold(zero, |sum, i| {
            let (w, e) = (&self.windows[i], exposure.of(&self.windows[i]));
            Shown {
                pages: sum.pages + f64::from(w.pages),
                touched: sum.touched + f64::from(e.d),
                seconds: sum.seconds + f64::from(e.e),
                ..sum
            }
        }))
    }

    /// Presumes the piece as hot as its region elsewhere, until the piece is cleared.
    pub fn presume(&mut self, hz: f64) {
        let since =
            self.exposed.as_ref().map_or(Nanos(0), |x| x.since.at + Duration::from_nanos(1));
        self.presumed = Some(Presumed { hz: hz as f32, until: 0, since });
        self.doubted = true;
        self.summary = None;
    }

    /// Presumes the piece as hot as a sample cleared at `since`. `touched` is the time of the last touch of
    /// slow memory, in ms.
    pub fn extend(&mut self, hz: f64, since: Nanos, touched: Option<u32>) {
        self.presumed = Some(Presumed { hz: hz as f32, until: 0, since });
        self.calm = None;
        self.summary = None;
        if let Some(ms) = touched {
            self.windows.distinct_mut().iter_mut().for_each(|w| w.touched = w.touched.max(ms));
        }
    }

    /// Number of resident pages in the windows whose rate is extended from other memory.
    pub fn extended_in(&self, windows: Range<usize>) -> u64 {
        if self.coarse && self.was_cleared() && !self.is_extended(0) {
            // All armed pages are resident.
            return u64::from(self.resident.count().saturating_sub(self.armed.count()));
        }
        if self.presumed.is_none() {
            return 0;
        }
        let extended = windows.filter(|i| self.is_extended(*i));
        extended.map(|i| u64::from(self.resident_in(i))).sum()
    }

    /// Whether the rate of a window is extended from other memory.
    pub fn is_extended(&self, i: usize) -> bool {
        self.presumed.is_some_and(|p| !self.is_sample(i, &p))
    }

    /// Notes a first sign of heat: the piece was reactivated.
    pub fn suspect(&mut self, ms: u32) {
        self.summary = None;
        self.windows.distinct_mut().iter_mut().for_each(|w| w.suspect = ms.max(1));
    }

    /// Whether it was reactivated within `ms` before `now`.
    pub fn was_reactivated_within(&self, ms: u32, now: u32) -> bool {
        let last = self.windows.distinct().iter().map(|w| w.suspect).max().unwrap_or(0);
        last > 0 && now.saturating_sub(last) < ms
    }

    /// The presumed rate in Hz.
    pub fn presumed_hz(&self) -> Option<f64> {
        self.presumed.map(|p| p.hz.into())
    }

    /// Whether the piece is presumed idle.
    pub fn is_presumed_idle(&self) -> bool {
        self.presumed.is_some_and(|p| p.hz == 0.0)
    }

    /// Whether the piece has a sufficient sample that would show a touch, and the sample is untouched.
    pub fn is_idle_for_sure(&self) -> bool {
        self.is_quiet() && self.sentinels() >= MIN_SAMPLE_PAGES
    }

    /// Number of armed, untouched pages: a touch of these shows that the piece is reactivated.
    pub fn sentinels(&self) -> u32 {
        if self.found.is_empty() {
            return self.armed.count();
        }
        self.armed.get().without(&self.found.get()).count()
    }

    /// The first window with a majority of young pages, from the `nth` on, then from the first on.
    pub fn young_window(&self, nth: usize) -> Option<AddrRange> {
        let n = self.nr_windows();
        let young = |i: &usize| 2 * self.count_kept(&self.young, *i) > self.resident_in(*i);
        (0..n).map(|k| (nth + k) % n).find(young).map(|i| self.window_range(i))
    }

    /// Marks the evidence of the piece as doubtful until it is cleared.
    pub fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Whether the evidence is doubtful.
    pub fn is_doubted(&self) -> bool {
        self.doubted
    }

    /// Whether the rate of the whole piece is presumed.
    pub fn is_presumed(&self) -> bool {
        self.presumed.is_some_and(|p| self.cleared_at().is_none_or(|at| at < p.since))
    }

    /// Time of the last known touch of a window, in ms; `u32::MAX` if a page is young, because it may be
    /// touched at any time.
    pub fn touched(&self, i: usize) -> u32 {
        let presumed = self.presumed.is_some_and(|p| p.hz < 2.0 && !self.is_sample(i, &p));
        let is_young = !presumed && self.count_kept(&self.young, i) > 0;
        if is_young { u32::MAX } else { self.windows[i].touched }
    }

    /// Time from the clear to each read of the current exposure, in s; NaN if there was none.
    pub fn reads(&self, t: &ExposureTerms) -> Option<[f64; READS]> {
        let x = self.exposed.as_ref()?;
        Some(x.reads.map(|r| if r.wall.is_nan() { f64::NAN } else { r.open(t.share) }))
    }
}

/// The current exposure of a piece, as needed for the evidence of its windows.
#[derive(Debug, Clone, Copy)]
struct CurrentExposure {
    /// exposure time in s; `None` without an exposure
    open: Option<f64>,
    /// no page was touched
    quiet: bool,
    /// start of the exposure, in ms
    since: u32,
    /// see [`ExposureTerms::recent`]
    recent: u32,
}

impl CurrentExposure {
    fn of(&self, w: &Window) -> Evidence {
        match self.open {
            None => Evidence::default(),
            Some(open) if self.quiet => w.idle_for(open),
            Some(_) => w.current(),
        }
    }

    /// Whether a sign of heat preceded the exposure by at most `recent` ms.
    fn is_confirmed(&self, w: &Window) -> bool {
        w.suspect > 0 && w.suspect <= self.since && self.since - w.suspect <= self.recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: ExposureTerms = ExposureTerms { share: 1.0, recent: 0, long: 8.0 };

    fn moment(s: u64) -> Moment {
        Moment { at: Nanos(s * 1_000_000_000), ms: (s * 1000) as u32, ran: None }
    }

    /// One window represents all windows of calm memory, however many there are.
    #[test]
    fn calm_memory_keeps_one_window_for_all() {
        let all = PageMask::span(0, 512);
        let mut piece = Piece::new(AddrRange::new(0, BLOCK_SIZE), 64 << 10, 0);
        let read = |piece: &mut Piece, s: u64, young: PageMask| {
            let at = moment(s);
            let block = Block { start: 0, huge: false, resident: all, young, read_at: at.at };
            piece.read(&block, 10, &at, &TERMS);
        };
        read(&mut piece, 1, all);
        let at = moment(2);
        let cleared =
            Cleared { start: 0, huge: false, armed: all, hidden: vec![], cleared_at: at.at };
        piece.clear(&cleared, at, None, &TERMS);
        assert_eq!(piece.windows.distinct().len(), 1, "all were young, and all are cleared");
        read(&mut piece, 3, PageMask::default());
        assert_eq!((piece.windows.distinct().len(), piece.nr_windows()), (1, 32));
        let before = piece.window(31).touched;
        read(&mut piece, 30, PageMask::span(16, 17));
        assert_eq!(piece.windows.distinct().len(), 32, "one is touched");
        let touched = |i: usize| piece.window(i).touched;
        assert_eq!((touched(0), touched(1), touched(31)), (before, 30_000, before));
    }

    /// A page may be allocated between a read and the clear, and freed after the clear.
    #[test]
    fn what_cannot_be_seen_is_resident() {
        let mut piece = Piece::new(AddrRange::new(0, BLOCK_SIZE), 64 << 10, 0);
        let read = |piece: &mut Piece, s: u64, pages: usize| {
            let resident = PageMask::span(0, pages);
            let at = moment(s);
            let young = PageMask::default();
            piece.read(
                &Block { start: 0, huge: false, resident, young, read_at: at.at },
                10,
                &at,
                &TERMS,
            );
        };
        read(&mut piece, 1, 256);
        let hidden = vec![(Unknown::Unseen, PageMask::span(200, 300))];
        let (armed, at) = (PageMask::span(0, 200), moment(2));
        let cleared = Cleared { start: 0, huge: false, armed, hidden, cleared_at: at.at };
        piece.clear(&cleared, at, None, &TERMS);
        assert!(piece.unseen_pages().without(&piece.resident()).is_empty());
        assert_eq!(piece.unseen_pages().count(), 100);
        read(&mut piece, 3, 220);
        assert_eq!(piece.unseen_pages().count(), 20);
        read(&mut piece, 4, 200);
        assert!(piece.hidden.is_empty());
    }
}
