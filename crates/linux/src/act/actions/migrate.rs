//! Moving memory between nodes, by the folio.

use isotherm_core::{Destinations, Failure, OpsError, join_touching};
use isotherm_mm::mempolicy::Weights;

use crate::act::cursor::Reads;
use crate::act::eligible::Eligible;
use crate::act::memory::ProcessMemory;
use crate::act::operation::Operation;
use crate::act::pieces::{Piece, nodes, pages_of};
use crate::act::progress::{Failures, Reply, StepResult};
use crate::numa::{self, Layout, MoveResult, NumaError, node_of};

/// The rule: nodes share by weight, page by page number.
pub(in crate::act) fn weights(to: &Destinations) -> Result<Weights, String> {
    let weight = |weight: u32, node: u32| {
        u8::try_from(weight)
            .map_err(|_| format!("node {node} has the weight {weight}: choose 1 to 255"))
    };
    let all = to.0.iter().map(|d| Ok((d.node, weight(d.weight, d.node)?)));
    Weights::new(all.collect::<Result<Vec<_>, String>>()?).map_err(|e| e.to_string())
}

/// Moves pages to the nodes that the weights assign to them.
pub(super) struct Migrate(pub Weights);

impl Operation for Migrate {
    /// Longer than a millisecond: at each call the kernel has all CPUs empty their lists of pages, which costs
    /// more than moving a few pages.
    fn step(&self) -> u64 {
        2048
    }

    fn reads(&self) -> Reads {
        Reads::Resident { blocks: 4 }
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
        let gone = Reply::Counted(StepResult::of(0, all, Failure::Gone));
        let mut layout = match Layout::of(&process.root, process.pid) {
            Err(NumaError::Attach(e)) if e.is_gone() => return Ok(gone),
            layout => layout.map_err(failed)?,
        };
        if process.has_ended() {
            return Ok(gone);
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
        node_of(&self.0, piece.area, numa::Piece { start: piece.start, order })
    }
}

fn failed(e: NumaError) -> OpsError {
    OpsError::Failed(e.to_string())
}
