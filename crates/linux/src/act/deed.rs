//! Doing it to pages that were chosen, and measuring what has come of it.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use isotherm_core::{
    Action, AddrRange, BLOCK_SIZE, Failure, OpsError, PageMask, Support, TargetId, align_down,
};
use isotherm_mm::mempolicy::Weights;

use super::migrate;
use super::pieces::{Piece, pages_of, ranges};
use super::room::Room;
use super::support::huge_pages;
use super::tally::Done;
use crate::ops::process::Process;
use crate::ops::survey::read_blocks;
use crate::ops::vaddr::Vaddr;
use crate::sys::{Advice, advise_all, touch};
use crate::walker::{Plain, RawBlock, Span, Walker, pages_in_block};

/// How an action is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    PageOut,
    Cold,
    ReadAhead,
    Collapse,
    /// split, and page out what is cold
    Demote,
    Touch,
    Move(Weights),
    Count,
}

impl Deed {
    pub fn of(action: &Action) -> Result<Self, OpsError> {
        Ok(match action {
            Action::PageOut => Deed::PageOut,
            Action::Cold | Action::LruDeprio => Deed::Cold,
            Action::WillNeed => Deed::ReadAhead,
            Action::HugePage => Deed::Collapse,
            Action::NoHugePage => Deed::Demote,
            Action::LruPrio => Deed::Touch,
            Action::MigrateHot(to) | Action::MigrateCold(to) => {
                Deed::Move(migrate::weights(to).map_err(OpsError::Failed)?)
            }
            Action::Stat => Deed::Count,
            other => return Err(OpsError::Failed(format!("{} is not known here", other.name()))),
        })
    }

    /// Pages that it is done to between two looks at the clock: what takes a millisecond at most. Moves
    /// take longer, as the kernel has all CPUs empty their lists of pages for each, which costs more than
    /// moving a few.
    pub fn step(&self) -> u64 {
        match self {
            Deed::PageOut | Deed::ReadAhead | Deed::Collapse | Deed::Demote => 64,
            Deed::Touch => 256,
            Deed::Cold | Deed::Count => 512,
            Deed::Move(_) => 2048,
        }
    }

    /// Blocks that are looked at at once, which is that much before it is done to the last of them.
    pub fn blocks(&self) -> u32 {
        if matches!(self, Deed::Move(_)) { 4 } else { 1 }
    }
}

/// Whose memory it is, and who reads its page tables.
pub(super) struct Subject<'a> {
    pub walker: &'a mut Walker,
    pub process: &'a mut Process,
    root: &'a Path,
}

/// Blocks as they are now, by address; `None` if the process is no longer what it was.
type Now = Option<HashMap<u64, RawBlock>>;

impl<'a> Subject<'a> {
    pub fn of(ops: &'a mut Vaddr, target: TargetId) -> Result<Self, OpsError> {
        let Vaddr { walker, targets, root, .. } = ops;
        Ok(Subject { walker, process: targets.get(target)?, root })
    }

    /// Does it to `pieces`, which are sorted.
    pub fn act(&mut self, deed: &Deed, pieces: &[Piece]) -> Result<Done, OpsError> {
        let all = pages_of(pieces);
        match deed {
            Deed::PageOut => self.page_out(pieces),
            Deed::Cold => self.advise(pieces, Advice::Cold, Failure::Busy, |b, pages| {
                b.young.and(pages).is_empty()
            }),
            Deed::ReadAhead => self.read_in(pieces),
            Deed::Collapse if huge_pages(self.root) != Support::Yes => {
                Ok(Done::of(0, all, Failure::Refused))
            }
            Deed::Collapse => self.advise(pieces, Advice::Collapse, Failure::Busy, |b, _| b.huge),
            Deed::Touch => Ok(self.touch_twice(pieces)),
            Deed::Move(weights) => migrate::act(self.process, weights, pieces),
            Deed::Demote | Deed::Count => Ok(Done::of(all, 0, Failure::Busy)),
        }
    }

    /// Has the kernel page out what there is room for: if it finds none it splits large folios in vain.
    fn page_out(&mut self, pieces: &[Piece]) -> Result<Done, OpsError> {
        let needed: u64 = pieces.iter().filter(|p| p.swaps).map(Piece::bytes).sum();
        if needed > 0 && !Room::now().has(needed) {
            return Ok(Done::of(0, pages_of(pieces), Failure::NoRoom));
        }
        self.advise(pieces, Advice::PageOut, Failure::Busy, |b, pages| {
            b.resident.and(pages).is_empty()
        })
    }

    /// Has the kernel begin to read all at once, then waits for each page: the advice alone fills caches,
    /// which page tables do not show, so that the same memory would be read ahead again and again.
    fn read_in(&mut self, pieces: &[Piece]) -> Result<Done, OpsError> {
        let mut failed = self.give(pieces, Advice::WillNeed);
        if let Err(why) = self.touch(pieces) {
            failed.extend(pieces.iter().map(|p| (p.range(), why)));
        }
        let now = self.now(pieces)?;
        Ok(after(pieces, &now, &failed, Failure::Busy, |b, pages| {
            pages.without(&b.resident).is_empty()
        }))
    }

    /// Whether a huge page has been split.
    pub fn split(&mut self, piece: Piece) -> Result<Done, OpsError> {
        let pieces = [piece];
        let now = self.now(&pieces)?;
        Ok(after(&pieces, &now, &[], Failure::Busy, |b, _| !b.huge))
    }

    /// Gives advice, and looks at which pieces it `has_worked`.
    fn advise(
        &mut self,
        pieces: &[Piece],
        advice: Advice,
        left_for: Failure,
        has_worked: impl Fn(&RawBlock, &PageMask) -> bool,
    ) -> Result<Done, OpsError> {
        let failed = self.give(pieces, advice);
        let now = self.now(pieces)?;
        Ok(after(pieces, &now, &failed, left_for, has_worked))
    }

    /// Gives advice; returns where it was not taken, and why.
    fn give(&self, pieces: &[Piece], advice: Advice) -> Vec<(AddrRange, Failure)> {
        let ranges = ranges(pieces);
        let failed = advise_all(self.process.pidfd.as_fd(), &ranges, advice);
        let of = |(i, e): (usize, io::Error)| Some((*ranges.get(i)?, why(&e, advice)));
        failed.into_iter().filter_map(of).collect()
    }

    fn now(&mut self, pieces: &[Piece]) -> Result<Now, OpsError> {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(None) };
        let range = AddrRange::new(first.start, last.range().end);
        let mut blocks = HashMap::new();
        let span = [Span { range, plain: Plain::Nowhere }];
        let same = read_blocks(self.walker, self.process, &span, |b| {
            blocks.insert(b.start, *b);
        })?;
        Ok(same.then_some(blocks))
    }

    /// The first touch makes a page of the inactive list a referenced one, the second an active one.
    fn touch_twice(&self, pieces: &[Piece]) -> Done {
        let all = pages_of(pieces);
        let twice = [0; 2].map(|_| self.touch(pieces));
        match twice.into_iter().try_fold(all, |least, touched| Ok(least.min(touched?))) {
            Ok(touched) => Done::of(touched, all - touched, Failure::Gone),
            Err(why) => Done::of(0, all, why),
        }
    }

    /// Reads a byte of each of `pieces`; returns of how many that could be done.
    fn touch(&self, pieces: &[Piece]) -> Result<u64, Failure> {
        let pages: Vec<u64> = pieces.iter().map(|p| p.start).collect();
        // Only while it has not ended is the pid its own.
        if self.process.has_ended() {
            return Err(Failure::Gone);
        }
        touch(self.process.pid, &pages).map_err(|e| why(&e, Advice::WillNeed))
    }
}

/// What has come of advice, from the blocks as they are `now`.
fn after(
    pieces: &[Piece],
    now: &Now,
    failed: &[(AddrRange, Failure)],
    left_for: Failure,
    has_worked: impl Fn(&RawBlock, &PageMask) -> bool,
) -> Done {
    let Some(blocks) = now else { return Done::of(0, pages_of(pieces), Failure::Gone) };
    let has_worked = |piece: &Piece| {
        let start = align_down(piece.start, BLOCK_SIZE);
        // A block in which nothing is resident is not told.
        let block = blocks.get(&start).copied().unwrap_or_default();
        has_worked(&block, &pages_in_block(start, piece.range()))
    };
    let mut done = Done::default();
    for piece in pieces {
        let refused = failed.iter().find(|(range, _)| range.contains(piece.start)).map(|f| f.1);
        let why = refused.or_else(|| (!has_worked(piece)).then_some(left_for));
        match why {
            None => done.pages += u64::from(piece.pages),
            Some(why) => done.fail(why, u64::from(piece.pages)),
        }
    }
    done
}

/// What the kernel means.
fn why(e: &io::Error, advice: Advice) -> Failure {
    match e.raw_os_error() {
        Some(libc::ENOMEM) if advice == Advice::Collapse => Failure::NoRoom,
        Some(libc::ENOMEM | libc::ESRCH | libc::EFAULT) => Failure::Gone,
        Some(libc::EPERM | libc::EACCES) => Failure::Refused,
        Some(libc::EINVAL) if advice == Advice::Collapse => Failure::Refused,
        // Locked meanwhile, or pinned.
        _ => Failure::Busy,
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::PAGE_SIZE;

    use super::*;

    fn page(n: u64) -> Piece {
        Piece { start: n * PAGE_SIZE, pages: 1, young: false, swaps: true, area: 0 }
    }

    #[test]
    fn what_has_worked_is_counted_and_why_the_rest_has_not() {
        let pieces: Vec<Piece> = (0..10).map(page).collect();
        let failed = [(AddrRange::new(8 * PAGE_SIZE, 10 * PAGE_SIZE), Failure::Gone)];
        let block = RawBlock { resident: PageMask::span(0, 3), ..RawBlock::default() };
        let gone = |b: &RawBlock, pages: &PageMask| b.resident.and(pages).is_empty();
        let now = Some(HashMap::from([(0, block)]));
        let done = after(&pieces, &now, &failed, Failure::Busy, gone);
        assert_eq!(done.pages, 5);
        assert_eq!(done.failed, [(Failure::Busy, 3), (Failure::Gone, 2)]);
        let done = after(&pieces, &Some(HashMap::new()), &[], Failure::Busy, gone);
        assert_eq!((done.pages, done.failed.len()), (10, 0), "nothing is resident");
        let done = after(&pieces, &None, &[], Failure::Busy, gone);
        assert_eq!((done.pages, done.failed), (0, vec![(Failure::Gone, 10)]));
    }
}
