//! Going through the memory of a work, within its budget.

use isotherm_core::{
    Action, AddrRange, Applied, BLOCK_SIZE, Budget, Failure, OpsError, PAGE_SIZE, Work,
};

use super::absent::read_ahead;
use super::deed::{Deed, Subject};
use super::filter::let_through;
use super::migrate;
use super::pieces::{Found, Next, Piece, next, pages_of, spans, stretches};
use super::prepare::{Prepared, waits_for_touches};
use super::tally::Tally;
use crate::ops::vaddr::Vaddr;
use crate::walker::{Plain, Reader};

/// Of the 512 pages of a huge page, so many are to be resident and touched before it is made.
const TOUCHED: u32 = 448;

/// Does `work`, as far as it was prepared.
pub(super) fn perform(
    ops: &mut Vaddr,
    work: &Work<'_>,
    prepared: &Prepared,
) -> Result<Applied, OpsError> {
    let mut tally = Tally::new(work, prepared.took, ops.paces.of(work.action));
    let deed = Deed::of(work.action)?;
    let mut subject = Subject::of(ops, work.target)?;
    match deed {
        Deed::ReadAhead => read_ahead(&mut subject, work, &mut tally)?,
        Deed::Demote => {
            count_split(&mut subject, prepared, &mut tally)?;
            let without_room = prepared.waits && !page_out_split(&mut subject, work, prepared)?;
            // What was split is done, but it is in vain as long as there is no room.
            let done = tally.end();
            let failure = if without_room { Some(Failure::NoRoom) } else { done.failure };
            return Ok(Applied { failure, ..done });
        }
        _ => go_through(&mut subject, work, prepared, &deed, &mut tally)?,
    }
    Ok(tally.end())
}

/// Which of the huge pages that were to be split are.
fn count_split(
    subject: &mut Subject<'_>,
    prepared: &Prepared,
    tally: &mut Tally,
) -> Result<(), OpsError> {
    for &start in &prepared.split {
        let whole = Piece { start, pages: 512, young: false, swaps: true, area: start };
        tally.count(512, &subject.split(whole)?);
    }
    tally.reach(prepared.upto);
    Ok(())
}

/// Pages out what is cold of the huge pages that were split; returns whether there was room for it.
fn page_out_split(
    subject: &mut Subject<'_>,
    work: &Work<'_>,
    prepared: &Prepared,
) -> Result<bool, OpsError> {
    let budget = Budget { bytes: prepared.split.len() as u64 * BLOCK_SIZE, ..work.budget };
    let work = Work { budget, ..work.clone() };
    let mut tally = Tally::new(&work, prepared.took, None);
    go_through(subject, &work, prepared, &Deed::PageOut, &mut tally)?;
    Ok(tally.had_room())
}

fn go_through(
    subject: &mut Subject<'_>,
    work: &Work<'_>,
    prepared: &Prepared,
    deed: &Deed,
    tally: &mut Tally,
) -> Result<(), OpsError> {
    let range = AddrRange::new(work.range.start, prepared.upto);
    let stretches = stretches(subject.process, range);
    let spans = spans(&stretches, Plain::Everywhere);
    let mut reader = Reader::new(&spans).at_most(deed.blocks());
    while !tally.is_over() {
        let found = match next(subject.walker, subject.process, &mut reader, &stretches)? {
            Next::Found(found) => found,
            Next::End => {
                tally.reach(range.end);
                break;
            }
            Next::Gone => {
                tally.note(Failure::Gone, range.len() / PAGE_SIZE);
                break;
            }
        };
        let wanted = wanted(subject, work, prepared, deed, &found, tally);
        if step_by_step(subject, deed, &wanted, tally)? {
            tally.reach(reader.position().unwrap_or(range.end));
        }
    }
    Ok(())
}

/// Acts on `pieces` as long as the budget lasts; returns whether it did.
pub(super) fn step_by_step(
    subject: &mut Subject<'_>,
    deed: &Deed,
    pieces: &[Piece],
    tally: &mut Tally,
) -> Result<bool, OpsError> {
    let mut rest = pieces;
    while let Some(first) = rest.first() {
        tally.reach(first.start);
        let (step, later) =
            rest.split_at(fitting(rest, tally.step(deed.step()), tally.pages_left()));
        if step.is_empty() || tally.is_over() {
            tally.stop();
            return Ok(false);
        }
        tally.count(pages_of(step), &subject.act(deed, step)?);
        tally.reach(step.last().map_or(0, |p| p.range().end));
        rest = later;
    }
    Ok(true)
}

/// How many of `pieces`, from the first on, make a step of `step` pages, and of no more than `most`. A folio
/// is not parted.
fn fitting(pieces: &[Piece], step: u64, most: u64) -> usize {
    let mut sum = 0;
    let mut fits = |(i, piece): (usize, &Piece)| {
        sum += u64::from(piece.pages);
        sum <= most && (i == 0 || sum <= step)
    };
    pieces.iter().enumerate().take_while(|p| fits(*p)).count()
}

/// On which pieces `deed` is to be done.
fn wanted(
    subject: &Subject<'_>,
    work: &Work<'_>,
    prepared: &Prepared,
    deed: &Deed,
    found: &[Found],
    tally: &mut Tally,
) -> Vec<Piece> {
    let cold_only = waits_for_touches(work);
    let blocks = found.iter().filter(|f| match (work.action, deed) {
        (Action::NoHugePage, _) => prepared.split.binary_search(&f.block.start).is_ok(),
        (_, Deed::Collapse) => is_worth_collapsing(f, prepared),
        _ => true,
    });
    let pieces = blocks.flat_map(|f| match deed {
        Deed::Collapse => vec![f.as_piece()],
        _ if cold_only => f.untouched(&prepared.touched(f.block.start)),
        _ => f.pieces.clone(),
    });
    let mut pieces: Vec<Piece> = pieces.collect();
    let_through(subject.process, work.filters, &mut pieces);
    match deed {
        Deed::Move(weights) => migrate::misplaced(subject.process, weights, &pieces),
        Deed::Touch => {
            let large = pieces.iter().filter(|p| p.pages > 1).map(|p| u64::from(p.pages)).sum();
            if large > 0 {
                tally.note(Failure::Refused, large);
            }
            pieces.retain(|p| p.pages == 1);
            pieces
        }
        _ => pieces,
    }
}

/// Whether a huge page of this block would be used: all of it can be seen, and nearly all is touched.
fn is_worth_collapsing(found: &Found, prepared: &Prepared) -> bool {
    let touched = found.block.young.or(&prepared.touched(found.block.start)).and(&found.resident);
    !found.block.huge && found.is_whole() && found.is_seen() && touched.count() >= TOUCHED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_short_and_part_no_folio() {
        let piece = |pages| Piece { start: 0, pages, young: false, swaps: true, area: 0 };
        let pages = vec![piece(1); 1000];
        assert_eq!(fitting(&pages, 64, 10_000), 64);
        assert_eq!(fitting(&pages, 64, 3), 3);
        assert_eq!(fitting(&pages, 64, 0), 0);
        let folios = [piece(512), piece(16), piece(1)];
        assert_eq!(fitting(&folios, 64, 10_000), 1, "one is longer than a step");
        assert_eq!(fitting(&folios, 64, 511), 0);
        assert_eq!(fitting(&folios[1..], 64, 16), 1);
        assert_eq!(fitting(&[piece(50), piece(16)], 64, 300), 1);
    }
}
