//! Having the kernel read what is not there: from swap, or from a file.

use isotherm_core::{AddrRange, Failure, OpsError, PAGE_SIZE, Work};

use super::deed::{Deed, Subject};
use super::filter::let_through;
use super::pieces::{Piece, Stretch, stretches};
use super::tally::Tally;
use super::walk::step_by_step;
use crate::walker::{MAX_ENTRIES, Want, in_blocks};
use crate::x86::Level;

/// Looked through at once: as much as the walker reads in one run.
const PART: u64 = MAX_ENTRIES as u64 * PAGE_SIZE;

/// Reads ahead what of the range of `work` is absent.
pub(super) fn read_ahead(
    subject: &mut Subject<'_>,
    work: &Work<'_>,
    tally: &mut Tally,
) -> Result<(), OpsError> {
    for stretch in stretches(subject.process, work.range) {
        for part in parts(stretch.range) {
            if tally.is_over() {
                return Ok(());
            }
            let Some(mut absent) = absent(subject, part, &stretch)? else {
                tally.note(Failure::Gone, work.range.len() / PAGE_SIZE);
                return Ok(());
            };
            let_through(subject.process, work.filters, &mut absent);
            if !step_by_step(subject, &Deed::ReadAhead, &absent, tally)? {
                return Ok(());
            }
            tally.reach(part.end);
        }
    }
    tally.reach(work.range.end);
    Ok(())
}

fn parts(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    (range.start..range.end)
        .step_by(PART as usize)
        .map(move |start| AddrRange::new(start, range.end.min(start + PART)))
}

/// Pages of `part` that could be read: all of a file that are not mapped, and of other memory what was
/// swapped out. `None` if the process is no longer what it was.
fn absent(
    subject: &mut Subject<'_>,
    part: AddrRange,
    stretch: &Stretch,
) -> Result<Option<Vec<Piece>>, OpsError> {
    let windows: Vec<AddrRange> = in_blocks(part).collect();
    let asked = windows.iter().map(|&window| (window, Want::Entries));
    let read = subject.walker.read(subject.process.pid, asked);
    let Some(batch) = subject.process.as_it_was(read, |batch| Some(batch.identity))? else {
        return Ok(None);
    };
    let mut out = Vec::new();
    for (window, answer) in windows.iter().zip(batch.answers()) {
        let is_absent = |i: &usize| {
            let entry = answer.entry(*i);
            let can_be_read = entry.is_swapped() || !(stretch.swaps || entry.is_resident());
            can_be_read && answer.level != Level::Changed
        };
        let pages = usize::try_from(window.len() / PAGE_SIZE).unwrap_or(0);
        out.extend((0..pages).filter(is_absent).map(|i| Piece {
            start: window.start + i as u64 * PAGE_SIZE,
            pages: 1,
            young: false,
            swaps: stretch.swaps,
            area: stretch.range.start,
        }));
    }
    Ok(Some(out))
}
