//! The pages of a piece: adjacent memory within one block and one mapping.

use std::time::Duration;

use crate::ops::Seen;
use crate::page_mask::PageMask;
use crate::range::{AddrRange, PAGE_SIZE, align_down};
use crate::survey::{BLOCK_SIZE, Block, Cleared};
use crate::time::Nanos;
use crate::tuning::UNTOUCHED_LEVEL;
use crate::unknown::Unknown;

/// The state of a page. Times are in ms since the monitor began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Page {
    /// time of the last touch; initially the time of the first read
    pub touched: u32,
    /// time since which the page has kept its heat
    pub kept: u32,
    /// samples in the current interval, and samples in which the page was touched
    pub seen: u16,
    pub young: u16,
    /// binary logarithm of the rate in Hz
    pub level: i8,
}

impl Page {
    fn new(ms: u32) -> Self {
        Page { touched: ms, kept: ms, seen: 0, young: 0, level: UNTOUCHED_LEVEL }
    }

    fn count(&mut self, young: bool) {
        if self.seen == u16::MAX {
            (self.seen, self.young) = (self.seen / 2, self.young / 2);
        }
        self.seen += 1;
        self.young += u16::from(young);
    }
}

/// Adjacent memory within one block and one mapping.
#[derive(Debug, Clone)]
pub(super) struct ScannedPiece {
    pub range: AddrRange,
    pub huge: bool,
    pub resident: PageMask,
    /// resident pages whose accesses cannot be observed
    pub hidden: Vec<(Unknown, PageMask)>,
    /// of these, pages that another way to look has reported
    pub reported: PageMask,
    /// pages that were cleared, or were not young when others were cleared
    armed: PageMask,
    /// young at the last read
    young: PageMask,
    /// start of the time in which accesses count for the next read
    since: Nanos,
    /// sum over the samples of the current interval
    exposure: Duration,
    samples: u32,
    /// length of a sample of the reported pages
    reported_for: Duration,
    /// number of consecutive reads without this piece
    pub missing: u8,
    pages: Box<[Page]>,
}

impl ScannedPiece {
    /// A piece without any evidence.
    pub fn new(range: AddrRange, ms: u32) -> Self {
        let pages = usize::try_from(range.len() / PAGE_SIZE).unwrap_or(0);
        ScannedPiece {
            range,
            huge: false,
            resident: PageMask::default(),
            hidden: Vec::new(),
            reported: PageMask::default(),
            armed: PageMask::default(),
            young: PageMask::default(),
            since: Nanos(0),
            exposure: Duration::ZERO,
            samples: 0,
            reported_for: Duration::ZERO,
            missing: 0,
            pages: vec![Page::new(ms); pages].into(),
        }
    }

    /// Subtracts `ms` from all times; times before the new origin become 0.
    pub fn rebase(&mut self, ms: u32) {
        for page in &mut self.pages {
            page.touched = page.touched.saturating_sub(ms);
            page.kept = page.kept.saturating_sub(ms);
        }
    }

    /// Copies the state of the pages that are also in `old`, a piece of the same block.
    pub fn take_over(&mut self, old: &ScannedPiece) {
        let Some(both) = self.range.intersect(&old.range) else { return };
        let (span, first) = (self.span(both), self.index(self.range.start));
        for (i, page) in old.pages(both) {
            if let Some(own) = self.pages.get_mut(i - first) {
                *own = *page;
            }
        }
        let add = |own: &mut PageMask, other: &PageMask| *own = own.or(&other.and(&span));
        add(&mut self.resident, &old.resident);
        add(&mut self.armed, &old.armed);
        add(&mut self.young, &old.young);
        add(&mut self.reported, &old.reported);
        let hidden = old.hidden.iter().map(|(why, mask)| (*why, mask.and(&span)));
        self.hidden.extend(hidden.filter(|(_, mask)| !mask.is_empty()));
        (self.huge, self.since, self.missing) = (old.huge, old.since, old.missing);
        (self.exposure, self.samples) = (old.exposure, old.samples);
        self.reported_for = old.reported_for;
    }

    /// Start address of its block.
    pub fn block(&self) -> u64 {
        align_down(self.range.start, BLOCK_SIZE)
    }

    /// Index in the block of the page at `addr`.
    fn index(&self, addr: u64) -> usize {
        usize::try_from((addr - self.block()) / PAGE_SIZE).unwrap_or(0)
    }

    /// The pages of `range` as a mask of the block.
    pub fn span(&self, range: AddrRange) -> PageMask {
        PageMask::span(self.index(range.start), self.index(range.end))
    }

    /// The pages within `range`: index in the block, and state.
    pub fn pages(&self, range: AddrRange) -> impl Iterator<Item = (usize, &Page)> {
        let first = self.index(self.range.start);
        let within = range.intersect(&self.range).unwrap_or_default();
        let (from, to) = match within.is_empty() {
            true => (first, first),
            false => (self.index(within.start), self.index(within.end)),
        };
        (from..to).filter_map(move |i| Some((i, self.pages.get(i - first)?)))
    }

    /// The page with this index in the block.
    pub fn page_mut(&mut self, index: usize) -> Option<&mut Page> {
        let first = self.index(self.range.start);
        self.pages.get_mut(index.checked_sub(first)?)
    }

    /// Mean time of a sample.
    pub fn exposure(&self) -> Duration {
        self.exposure.checked_div(self.samples).unwrap_or(self.reported_for)
    }

    /// Pages whose accesses cannot be observed, including reported ones.
    pub fn unseen(&self) -> PageMask {
        self.hidden.iter().fold(PageMask::default(), |all, (_, mask)| all.or(mask))
    }

    /// Applies a read; `counts` states whether it counts as a sample.
    pub fn read(&mut self, block: &Block, ms: u32, counts: bool) {
        let span = self.span(self.range);
        let (resident, young) = (block.resident.and(&span), block.young.and(&span));
        for i in resident.without(&self.resident).iter() {
            if let Some(page) = self.page_mut(i) {
                *page = Page::new(ms);
            }
        }
        (self.huge, self.resident, self.young) = (block.huge, resident, young);
        self.armed = self.armed.and(&resident);
        let armed = self.armed;
        if counts && !armed.is_empty() {
            self.exposure += block.read_at.since(self.since);
            self.samples += 1;
            for i in armed.iter() {
                if let Some(page) = self.page_mut(i) {
                    page.count(young.contains(i));
                }
            }
        }
        for i in young.without(&self.unseen()).iter() {
            if let Some(page) = self.page_mut(i) {
                page.touched = ms;
            }
        }
        self.since = block.read_at;
    }

    /// Whether there is a page to clear.
    pub fn is_due(&self) -> bool {
        let fresh = self.young.or(&self.resident.without(&self.armed));
        !fresh.without(&self.unseen()).is_empty()
    }

    /// Applies a clear, unless it concerns another piece of the block.
    pub fn clear(&mut self, c: &Cleared, ms: u32) {
        let span = self.span(self.range);
        let armed = c.armed.and(&span);
        let hidden: Vec<_> = c.hidden.iter().map(|(why, mask)| (*why, mask.and(&span))).collect();
        let told_of = hidden.iter().fold(armed, |all, (_, mask)| all.or(mask));
        if told_of.is_empty() {
            return;
        }
        let was_unseen = self.unseen();
        self.armed = armed;
        self.hidden = hidden.into_iter().filter(|(_, mask)| !mask.is_empty()).collect();
        self.reported = self.reported.and(&self.unseen());
        self.since = c.cleared_at;
        // Accesses to these pages were not observed in the meantime.
        for i in was_unseen.without(&self.unseen()).iter() {
            if let Some(page) = self.page_mut(i) {
                *page = Page::new(ms);
            }
        }
    }

    /// Applies a report of another way to look at the hidden pages of a window. A touch within the report's
    /// own time counts as a touch within a sampling interval.
    pub fn take_report(&mut self, window: AddrRange, seen: &Seen, ms: u32, sample: Duration) {
        let Some(since) = seen.since.filter(|_| seen.present > 0) else { return };
        self.reported_for = sample;
        let seconds = seen.read_at.since(since).as_secs_f64();
        let untouched = 1.0 - f64::from(seen.young) / f64::from(seen.present);
        let young = 1.0 - untouched.powf(sample.as_secs_f64() / seconds.max(1e-9));
        let Some(window) = window.intersect(&self.range) else { return };
        for i in self.unseen().and(&self.span(window)).iter() {
            let is_new = !self.reported.contains(i);
            self.reported.insert(i);
            let Some(page) = self.page_mut(i) else { continue };
            if is_new {
                *page = Page::new(ms);
            }
            (page.seen, page.young) =
                (REPORTED_SAMPLES, (young * f64::from(REPORTED_SAMPLES)).round() as u16);
            if seen.young + seen.later > 0 {
                page.touched = ms;
            }
        }
    }

    /// Ends the interval. Reports stay valid until the next report.
    pub fn restart(&mut self) {
        (self.exposure, self.samples) = (Duration::ZERO, 0);
        let first = self.index(self.range.start);
        for (i, page) in self.pages.iter_mut().enumerate() {
            if !self.reported.contains(first + i) {
                (page.seen, page.young) = (0, 0);
            }
        }
    }
}

/// A report about a page counts as this number of samples.
const REPORTED_SAMPLES: u16 = 1000;
