//! An address space: mappings, what touches them, and the look at its accessed bits.

use std::time::Duration;

use isotherm_core::{
    Action, AddrRange, Applied, BLOCK_SIZE, Block, Cleared, Failure, Heat, Mapping, Nanos,
    PAGE_SIZE, PageFilter, PageKind, PageMask, Seen, Unknown, Work,
};

use crate::access::LaidPattern;
use crate::area::{MappedArea, MappingSpec, SimPage, Since};
use crate::machine::SimError;

/// The address space of one target. Its [`crate::Machine`] changes it.
#[derive(Debug)]
pub struct AddressSpace {
    pub(crate) areas: Vec<MappedArea>,
    pub(crate) accesses: Vec<LaidPattern>,
    unknown: Vec<(AddrRange, Unknown)>,
    generation: u32,
    began: Nanos,
    ended: Option<Nanos>,
}

impl AddressSpace {
    pub(crate) fn new(now: Nanos) -> Self {
        AddressSpace {
            areas: Vec::new(),
            accesses: Vec::new(),
            unknown: Vec::new(),
            generation: 0,
            began: now,
            ended: None,
        }
    }

    /// The mappings, in ascending order.
    pub fn mappings(&self) -> impl Iterator<Item = Mapping> + '_ {
        self.areas.iter().map(MappedArea::mapping)
    }

    /// How often it was replaced by `exec`.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.ended.is_some()
    }

    /// Time for which it has run; it always runs.
    pub(crate) fn ran(&self, now: Nanos) -> Duration {
        self.ended.unwrap_or(now).since(self.began)
    }

    pub(crate) fn map(
        &mut self,
        range: AddrRange,
        memory: MappingSpec,
        now: Nanos,
    ) -> Result<(), SimError> {
        self.check_free(range)?;
        let at = self.areas.partition_point(|a| a.range.start < range.start);
        self.areas.insert(at, MappedArea::new(range, memory, now));
        Ok(())
    }

    fn check_free(&self, range: AddrRange) -> Result<(), SimError> {
        let taken = self.areas.iter().any(|a| a.range.intersect(&range).is_some());
        if taken { Err(SimError::Taken(range)) } else { Ok(()) }
    }

    pub(crate) fn unmap(&mut self, range: AddrRange) {
        self.areas = self.areas.drain(..).flat_map(|a| a.without(range)).collect();
        self.accesses = self.accesses.drain(..).flat_map(|a| a.without(range)).collect();
        self.forget_unknown(range);
    }

    /// Extends the mapping that contains `addr` to all of `range`.
    pub(crate) fn grow(&mut self, addr: u64, range: AddrRange, now: Nanos) -> Result<(), SimError> {
        let at = self.area_index(addr).ok_or(SimError::Unmapped(range))?;
        let old = self.areas[at].range;
        if old.intersect(&range) != Some(old) {
            return Err(SimError::Shrinks(range));
        }
        self.check_free(AddrRange::new(range.start, old.start))?;
        self.check_free(AddrRange::new(old.end, range.end))?;
        self.areas[at].grow(range, now);
        Ok(())
    }

    pub(crate) fn touch(&mut self, access: LaidPattern) -> Result<(), SimError> {
        let range = access.range;
        if !self.is_mapped(range) {
            return Err(SimError::Unmapped(range));
        }
        self.accesses.push(access);
        Ok(())
    }

    pub(crate) fn rest(&mut self, range: AddrRange, now: Nanos) {
        let parts = |a: LaidPattern| a.without(range).into_iter().chain(a.ended(range, now));
        self.accesses = self.accesses.drain(..).flat_map(parts).collect();
    }

    pub(crate) fn set_unknown(&mut self, range: AddrRange, why: Option<Unknown>) {
        self.forget_unknown(range);
        self.unknown.extend(why.map(|why| (range, why)));
    }

    fn forget_unknown(&mut self, hole: AddrRange) {
        let parts = |(r, why): (AddrRange, Unknown)| {
            outside(r, hole).into_iter().filter(|r| !r.is_empty()).map(move |r| (r, why))
        };
        self.unknown = self.unknown.drain(..).flat_map(parts).collect();
    }

    pub(crate) fn exec(&mut self) {
        self.unmap(AddrRange::new(0, u64::MAX));
        self.generation += 1;
    }

    pub(crate) fn end(&mut self, now: Nanos) {
        self.unmap(AddrRange::new(0, u64::MAX));
        self.ended.get_or_insert(now);
    }

    fn area_index(&self, addr: u64) -> Option<usize> {
        let at = self.areas.partition_point(|a| a.range.end <= addr);
        self.areas.get(at).is_some_and(|a| a.range.contains(addr)).then_some(at)
    }

    fn is_mapped(&self, range: AddrRange) -> bool {
        let at = self.areas.partition_point(|a| a.range.end <= range.start);
        let parts = self.areas[at..].iter().map_while(|a| a.range.intersect(&range));
        parts.map(|r| r.len()).sum::<u64>() == range.len()
    }

    /// Visits the mapped pages of `range`.
    pub(crate) fn visit(
        &mut self,
        range: AddrRange,
        now: Nanos,
        mut see: impl FnMut(PageView<'_>),
    ) {
        let at = self.areas.partition_point(|a| a.range.end <= range.start);
        for area in &mut self.areas[at..] {
            let Some(part) = area.range.intersect(&range) else { break };
            let mut addr = part.start;
            while addr < part.end {
                let page = area.page_at(addr);
                let whole_area = area.memory.unknown;
                let Some(state) = area.state(page.start) else { break };
                let touched = |after| self.accesses.iter().any(|a| a.touched(page, after, now));
                let resident = state.resident.holds(touched);
                let young = resident && state.young.holds(touched);
                let unknown = whole_area.or_else(|| unknown_at(&self.unknown, page));
                let part = AddrRange::new(addr, page.end.min(part.end));
                see(PageView { page, part, resident, young, unknown, state });
                addr = page.end;
            }
        }
    }

    /// Answers an ask, and returns whether it cleared bits. If any part of the range is not mapped, the look is
    /// dropped.
    pub(crate) fn look(&mut self, range: AddrRange, clear: bool, now: Nanos) -> (Seen, bool) {
        if !self.is_mapped(range) {
            return (Seen::default(), false);
        }
        let mut seen = Seen { read_at: now, cleared_at: now, ..Seen::default() };
        let mut cleared = false;
        self.visit(range, now, |v| {
            seen.pages += v.base_pages();
            match (v.resident, v.unknown) {
                (false, _) => {}
                (true, Some(why)) => seen.unknown.0[why.index()] += v.base_pages(),
                (true, None) => {
                    seen.present += v.base_pages();
                    seen.young += if v.young { v.base_pages() } else { 0 };
                    cleared |= clear && v.young;
                    if clear && v.young {
                        v.state.young = Since::after(now);
                    }
                }
            }
        });
        (seen, cleared)
    }

    /// The accessed bits of the resident pages of `range`, by blocks.
    pub(crate) fn blocks(&mut self, range: AddrRange, now: Nanos) -> Vec<Block> {
        let mut out: Vec<Block> = Vec::new();
        self.visit(range, now, |v| {
            if !v.resident {
                return;
            }
            for (start, pages) in v.by_block() {
                let block = match out.last_mut() {
                    Some(last) if last.start == start => last,
                    _ => {
                        out.push(Block { start, read_at: now, ..Block::default() });
                        let Some(last) = out.last_mut() else { return };
                        last
                    }
                };
                block.huge |= v.page.len() >= BLOCK_SIZE;
                block.resident = block.resident.or(&pages);
                if v.young {
                    block.young = block.young.or(&pages);
                }
            }
        });
        out
    }

    /// Clears the accessed bits of `range`. Returns the result for each block, and the number of its pages that
    /// were young.
    pub(crate) fn clear_blocks(&mut self, range: AddrRange, now: Nanos) -> Vec<(Cleared, u32)> {
        let mut out: Vec<(Cleared, u32)> = Vec::new();
        self.visit(range, now, |v| {
            if !v.resident {
                return;
            }
            for (start, pages) in v.by_block() {
                if out.last().is_none_or(|(last, _)| last.start != start) {
                    out.push((Cleared { start, cleared_at: now, ..Cleared::default() }, 0));
                }
                let Some((last, young)) = out.last_mut() else { return };
                last.huge |= v.page.len() >= BLOCK_SIZE;
                last.armed = last.armed.or(&pages);
                match v.unknown {
                    Some(why) => last.hide(why, &pages),
                    None => *young += if v.young { pages.count() } else { 0 },
                }
            }
            if v.young && v.unknown.is_none() {
                v.state.young = Since::after(now);
            }
        });
        out
    }

    /// Applies `work` to the pages that are completely in its range, up to its limit in bytes.
    pub(crate) fn apply(&mut self, work: &Work<'_>, now: Nanos) -> Applied {
        let mut done = Applied::default();
        let mut full = false;
        self.visit(work.range, now, |v| {
            let len = v.part.len();
            let passed = lets_alone(work, &v);
            full |= !passed && done.tried + len > work.budget.bytes;
            match (full, passed) {
                (true, _) => {}
                (false, true) => done.passed += len,
                (false, false) => {
                    done.tried += len;
                    done.applied += if act(work.action, v, now) { len } else { 0 };
                }
            }
        });
        let unmapped = work.range.len() - done.tried - done.passed;
        if !full && unmapped > 0 {
            done.tried += unmapped;
            done.failure = Some(Failure::Gone);
        }
        done
    }
}

/// Whether a page is skipped: it is unknown, only partly in the range, touched, excluded by a filter, or
/// already in the wanted state.
///
/// The machine's time does not advance during an action, so it cannot clear and look again. A page that was
/// touched since it was last cleared counts as touched.
fn lets_alone(work: &Work<'_>, page: &PageView<'_>) -> bool {
    let touched = page.young && !work.recheck.is_zero();
    page.unknown.is_some()
        || page.part != page.page
        || touched && work.action.prefers() == Some(Heat::Cold)
        || !lets_through(work.filters, page)
        || match work.action {
            Action::PageOut | Action::Cold => !page.resident,
            Action::WillNeed => page.resident,
            _ => false,
        }
}

fn lets_through(filters: &[PageFilter], page: &PageView<'_>) -> bool {
    let is = |kind| match kind {
        PageKind::HugePage { min, max } => (min..=max).contains(&page.page.len()),
        // The time for which a bit has been set is unknown.
        PageKind::Young | PageKind::Touched { .. } => page.young,
        // The machine has one node.
        PageKind::Node(n) => n == 0,
    };
    let answers = filters.iter().find(|f| is(f.kind) == f.matching);
    answers.map_or(filters.last().is_none_or(|last| !last.allow), |f| f.allow)
}

/// Applies `action` to a page, if there is something to do.
fn act(action: &Action, page: PageView<'_>, now: Nanos) -> bool {
    match action {
        Action::PageOut => page.state.resident = Since::after(now),
        Action::Cold => page.state.young = Since::after(now),
        Action::WillNeed => {
            *page.state = SimPage { resident: Since::default(), young: Since::after(now) };
        }
        _ => return false,
    }
    true
}

fn unknown_at(marks: &[(AddrRange, Unknown)], page: AddrRange) -> Option<Unknown> {
    marks.iter().find(|(r, _)| r.intersect(&page).is_some()).map(|&(_, why)| why)
}

/// A base or huge page in its present state.
pub(crate) struct PageView<'a> {
    /// all of it
    pub page: AddrRange,
    /// the part of it in the requested range
    pub part: AddrRange,
    pub resident: bool,
    /// its accessed bit
    pub young: bool,
    pub unknown: Option<Unknown>,
    pub state: &'a mut SimPage,
}

impl PageView<'_> {
    /// The blocks in which it has pages, by address.
    fn by_block(&self) -> impl Iterator<Item = (u64, PageMask)> + use<> {
        let part = self.part;
        let page = |bytes: u64| usize::try_from(bytes / PAGE_SIZE).unwrap_or(usize::MAX);
        let starts =
            (part.start / BLOCK_SIZE..part.end.div_ceil(BLOCK_SIZE)).map(|i| i * BLOCK_SIZE);
        starts.map(move |start| {
            let (first, end) = (part.start.saturating_sub(start), part.end - start);
            (start, PageMask::span(page(first), page(end.min(BLOCK_SIZE))))
        })
    }

    fn base_pages(&self) -> u32 {
        u32::try_from(self.part.len() / PAGE_SIZE).unwrap_or(u32::MAX)
    }
}

/// The parts of `range` below and above `hole`; either may be empty.
pub(crate) fn outside(range: AddrRange, hole: AddrRange) -> [AddrRange; 2] {
    [
        AddrRange::new(range.start, range.end.min(hole.start)),
        AddrRange::new(range.start.max(hole.end), range.end),
    ]
}
