//! Moving memory between nodes, by the folio.

use isotherm_core::{AddrRange, Destinations, Failure, OpsError};
use isotherm_mm::mempolicy::Weights;

use super::pieces::{Piece, pages_of, ranges};
use super::tally::Done;
use crate::numa::{self, LaidOut, Layout, NumaError, node_of};
use crate::ops::process::Process;
use crate::sys::page_nodes;

/// The rule: nodes share by weight, page by page number.
pub(super) fn weights(to: &Destinations) -> Result<Weights, String> {
    let weight = |weight: u32, node: u32| {
        u8::try_from(weight)
            .map_err(|_| format!("node {node} has the weight {weight}: choose 1 to 255"))
    };
    let all = to.0.iter().map(|d| Ok((d.node, weight(d.weight, d.node)?)));
    Weights::new(all.collect::<Result<Vec<_>, String>>()?).map_err(|e| e.to_string())
}

/// Where each piece lies; none if it has gone.
pub(super) fn nodes(process: &Process, pieces: &[Piece]) -> Vec<Option<u32>> {
    let heads: Vec<u64> = pieces.iter().map(|p| p.start).collect();
    // Only while it has not ended is the pid its own.
    let told = page_nodes(process.pid, &heads).ok().filter(|_| !process.has_ended());
    let nodes = told.unwrap_or_else(|| vec![-libc::ESRCH; heads.len()]);
    nodes.into_iter().map(|node| u32::try_from(node).ok()).collect()
}

/// Those of `pieces` that do not lie where they belong.
pub(super) fn misplaced(process: &Process, weights: &Weights, pieces: &[Piece]) -> Vec<Piece> {
    let on = nodes(process, pieces);
    let placed = pieces.iter().zip(on).filter_map(|(p, on)| Some((p, on?)));
    placed.filter(|(p, on)| home(weights, p) != *on).map(|(p, _)| *p).collect()
}

fn home(weights: &Weights, piece: &Piece) -> u32 {
    let order = piece.pages.trailing_zeros();
    node_of(weights, piece.area, numa::Piece { start: piece.start, order })
}

/// Moves them.
pub(super) fn act(
    process: &Process,
    weights: &Weights,
    pieces: &[Piece],
) -> Result<Done, OpsError> {
    let all = pages_of(pieces);
    let gone = Done::of(0, all, Failure::Gone);
    let mut layout = match Layout::of(&process.root, process.pid) {
        Err(NumaError::Attach(e)) if e.is_gone() => return Ok(gone),
        layout => layout.map_err(failed)?,
    };
    if process.has_ended() {
        return Ok(gone);
    }
    let mut sum = LaidOut::default();
    let by_area = pieces.chunk_by(|a, b| a.area == b.area);
    let parts = by_area.flat_map(|part| {
        let area = part.first().map_or(0, |p| p.area);
        let rule = move |piece| node_of(weights, area, piece);
        ranges(part).into_iter().map(move |range: AddrRange| (range, rule))
    });
    let done = layout.lay_out(parts, &mut sum);
    let left = sum.left;
    let mut failed_for = vec![
        (Failure::NoRoom, left.no_room),
        (Failure::Busy, left.busy + left.shared + left.partial),
        (Failure::Gone, left.gone),
    ];
    match done {
        Ok(()) => {}
        Err(NumaError::NotAllowed { .. }) => {
            failed_for.push((Failure::Refused, all.saturating_sub(sum.moved)));
        }
        Err(e) => return Err(failed(e)),
    }
    failed_for.retain(|(_, pages)| *pages > 0);
    Ok(Done { pages: sum.moved, failed: failed_for })
}

fn failed(e: NumaError) -> OpsError {
    OpsError::Failed(e.to_string())
}
