//! Moving memory between nodes, by the folio.

use isotherm_core::{Destinations, Failure, OpsError, join_touching};
use isotherm_mm::mempolicy::NodeWeights;

use crate::act::cursor::WalkTarget;
use crate::act::eligible::Eligible;
use crate::act::memory::ProcessMemory;
use crate::act::operation::Operation;
use crate::act::pieces::{Piece, nodes, pages_of};
use crate::act::progress::{Failures, Reply, StepResult};
use crate::numa::{self, MoveResult, NumaError, ProcessLayout, node_of};

/// The rule: nodes share by weight, page by page number.
pub(in crate::act) fn weights(to: &Destinations) -> Result<NodeWeights, String> {
    let weight = |weight: u32, node: u32| {
        u8::try_from(weight)
            .map_err(|_| format!("node {node} has the weight {weight}: choose 1 to 255"))
    };
    let all = to.0.iter().map(|d| Ok((d.node, weight(d.weight, d.node)?)));
    NodeWeights::new(all.collect::<Result<Vec<_>, String>>()?).map_err(|e| e.to_string())
}

/// Moves pages to the nodes that the weights assign to them.
pub(super) struct Migrate(pub NodeWeights);

impl Operation for Migrate {
    /// Longer than a millisecond: at each call the kernel has all CPUs empty their lists of pages, which costs
    /// more than moving a few pages.
    fn step(&self) -> u64 {
        2048
    }

    fn reads(&self) -> WalkTarget {
        WalkTarget::Resident { blocks: 4 }
    }

    /// Leaves out folios that are on their node already.
    fn select(&self, eligible: &Eligible<'_>, _: &mut Failures) -> Vec<Piece> {
        let folios = eligible.folios(|_| true);
        let on = nodes(eligible.process, &folios);
        let placed = folios.into_iter().zip(on).filter_map(|(p, on)| Some((p, on?)));
        placed.filter(|(p, on)| self.home(p) != *on).map(|(p, _)| p).collect()
    }

    /// The kernel reports the node of each folio.
    fn apply(&self, memory: &ProcessMemory<'_>, pieces: &[Piece]) -> Result<Reply, OpsError> {
        let (process, all) = (&memory.process, pages_of(pieces));
        let none = |why| Ok(Reply::Counted(StepResult::of(0, all, why)));
        let mut layout = match ProcessLayout::of(&process.root, process.pid) {
            Ok(layout) => layout,
            Err(e) => return none(unattached(&e).ok_or_else(|| failed(e))?),
        };
        if process.has_ended() {
            return none(Failure::Gone);
        }
        let mut sum = MoveResult::default();
        let by_area = pieces.chunk_by(|a, b| a.area == b.area);
        let parts = by_area.flat_map(|part| {
            let area = part.first().map_or(0, |p| p.area);
            let rule = move |piece| node_of(&self.0, area, piece);
            join_touching(part.iter().map(Piece::range)).into_iter().map(move |r| (r, rule))
        });
        let refused = match layout.lay_out(parts, &mut sum) {
            Ok(()) => 0,
            Err(NumaError::NotAllowed { .. }) => all.saturating_sub(sum.moved),
            Err(e) => return Err(failed(e)),
        };
        let left = sum.left;
        let mut result = StepResult::of(sum.moved, left.no_room, Failure::NoRoom);
        result.failures.add(Failure::Busy, left.busy + left.shared + left.partial);
        result.failures.add(Failure::Gone, left.gone);
        result.failures.add(Failure::Refused, refused);
        Ok(Reply::Counted(result))
    }
}

impl Migrate {
    fn home(&self, piece: &Piece) -> u32 {
        let order = piece.pages.trailing_zeros();
        node_of(&self.0, piece.area, numa::MovablePiece { start: piece.start, order })
    }
}

/// Why a process cannot be moved now, if that does not concern the others. Targets may have all descriptors that are
/// not spare, so that none is left for a migration.
fn unattached(e: &NumaError) -> Option<Failure> {
    let NumaError::Attach(e) = e else { return None };
    match e {
        e if e.is_gone() => Some(Failure::Gone),
        e if e.is_denied() => Some(Failure::Refused),
        e => e.is_passing().then_some(Failure::Busy),
    }
}

fn failed(e: NumaError) -> OpsError {
    OpsError::Failed(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::AttachError;

    /// With as many targets as descriptors permit, the first migration ended the service.
    #[test]
    fn a_migration_without_a_free_descriptor_fails_alone() {
        let why = |e: AttachError| unattached(&e.into());
        let source = || std::io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(why(AttachError::Short { pid: 7, source: source() }), Some(Failure::Busy));
        assert_eq!(why(AttachError::NoProcess(7)), Some(Failure::Gone));
        assert_eq!(why(AttachError::Refused { pid: 7, source: source() }), Some(Failure::Refused));
        assert_eq!(why(AttachError::Thread(7)), None);
    }
}
