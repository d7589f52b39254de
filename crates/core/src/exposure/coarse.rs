//! Large targets are observed by samples.
//!
//! Clearing 1 TiB once costs minutes of CPU time, and reading it costs half a second. Therefore the monitor clears
//! a few pages of each 2 MiB block, and these represent the block. The order of the blocks covers all memory
//! evenly, so that the map becomes finer over time. A block between two idle samples is presumed idle; blocks next
//! to a hot sample follow. Where a hot block meets an idle one, both are cut. The parts between their samples get
//! samples of their own, until the border is located well enough. Later, the monitor reads only the sample of an
//! untouched block.

use std::time::Duration;

use super::piece::Piece;
use super::timing::ExposureTerms;
use crate::range::AddrRange;
use crate::survey::BLOCK_SIZE;
use crate::tuning::SAMPLED_HZ;

/// A target with more blocks than this (60 GiB) is large. To clear 60 GiB for the first time costs 10 % of a CPU
/// for 100 s. After that, the state of each page is known. Samples miss most hot places that are smaller than a
/// block. With one 128 KiB strip per block, samples find 7 % of the strips after a minute; clears of all memory
/// find all of them after 10 s.
const LARGE_WINDOWS: usize = 30_720;
/// Borders are located down to pieces of this size in bytes.
const FINE_BYTES: u64 = BLOCK_SIZE / 4;
/// A sample untouched for at least this time counts as idle.
const IDLE_AFTER: Duration = Duration::from_millis(50);

/// Whether a target with this number of blocks is large: clearing all of them would take too long.
pub(super) fn is_large(blocks: usize) -> bool {
    blocks > LARGE_WINDOWS
}

/// Number of different blocks among `items`, which are sorted by `block`: small mappings share blocks.
pub(super) fn nr_blocks<T>(items: &[T], block: impl Fn(&T) -> u64) -> usize {
    items.chunk_by(|a, b| block(a) == block(b)).count()
}

/// Whether the sample of a piece shows a hot rate; `None` if the piece was never cleared.
pub(super) fn is_hot(piece: &Piece, t: &ExposureTerms) -> Option<bool> {
    piece.was_cleared().then(|| piece.sampled_hz(t) >= SAMPLED_HZ)
}

/// Cuts pieces at borders of heat: a border lies between the sample of a hot piece and the sample of its idle
/// neighbour.
pub(super) fn cut_at_borders(pieces: &mut Vec<Piece>, t: &ExposureTerms) {
    let mut new = Vec::new();
    let mut left = pieces.first().and_then(|p| is_hot(p, t));
    for i in 1..pieces.len() {
        let right = is_hot(&pieces[i], t);
        let differ = left.zip(right).is_some_and(|(a, b)| a != b);
        left = right;
        if differ && pieces[i - 1].range.end == pieces[i].range.start {
            let idle = if left == Some(true) { i - 1 } else { i };
            let touched = pieces[idle].window(0).touched;
            for (at, behind) in [(i - 1, true), (i, false)] {
                let piece = &mut pieces[at];
                if piece.is_coarse() && piece.range.len() > FINE_BYTES {
                    let hz = if at == idle { 0.0 } else { piece.sampled_hz(t) };
                    new.extend(piece.cut_off(behind, hz, touched));
                }
            }
        }
    }
    if !new.is_empty() {
        pieces.extend(new);
        // The list consists of two sorted runs, so the sort only merges them.
        pieces.sort_by_key(|p| p.range.start);
    }
}

/// Presumes memory between two untouched samples to be untouched.
pub(super) fn bridge_samples(pieces: &mut [Piece]) {
    let mut last: Option<usize> = None;
    for i in 0..pieces.len() {
        if i > 0 && pieces[i - 1].range.end != pieces[i].range.start {
            last = None;
        }
        if !pieces[i].was_cleared() {
            continue;
        }
        let from = last.replace(i).map_or(i, |at| at + 1);
        if from == i {
            continue;
        }
        let (a, b) = (idle(&pieces[from - 1]), idle(&pieces[i]));
        let touched = a.iter().chain(&b).map(|x| x.0).max();
        let until = a.zip(b).map(|(a, b)| a.1.min(b.1));
        pieces[from..i].iter_mut().for_each(|p| p.bridge(touched, until));
    }
}

/// number of pieces at the last choice
#[derive(Debug, Default)]
pub(super) struct Sentinels {
    /// pieces when they were last chosen
    nr_pieces: usize,
    turn: usize,
}

impl Sentinels {
    /// Chooses up to about `most` samples at equal distances, different ones each time. A waking stretch that
    /// spans the distance between two samples is found in each round.
    pub fn next(&mut self, pieces: &[Piece], most: usize) -> Vec<AddrRange> {
        let apart = self.nr_pieces.div_ceil(most.max(1)).max(1);
        self.turn = (self.turn + 1) % apart;
        self.nr_pieces = pieces.len();
        let all = pieces.iter().enumerate().filter(|(i, _)| i % apart == self.turn);
        all.filter_map(|(_, p)| p.sentinel()).collect()
    }
}

/// For an untouched sample: the time since which it is untouched, and the time of its last read, in ms.
fn idle(piece: &Piece) -> Option<(u32, u32)> {
    let (at, read) = (piece.cleared_at()?, piece.read_at()?);
    let idle = piece.is_quiet() && read.since(at) >= IDLE_AFTER;
    idle.then(|| (piece.window(0).touched, piece.read_ms()))
}

#[cfg(test)]
mod tests {
    use super::super::timing::Moment;
    use super::*;
    use crate::page_mask::PageMask;
    use crate::range::PAGE_SIZE;
    use crate::survey::{Block, Cleared};
    use crate::time::Nanos;

    const TERMS: ExposureTerms = ExposureTerms { share: 1.0, recent: 0, long: 8.0 };
    const WINDOW: u64 = 64 << 10;

    fn moment(ms: u32) -> Moment {
        Moment { at: Nanos(u64::from(ms) * 1_000_000), ms, ran: None }
    }

    /// `blocks` blocks, all of them young.
    fn young(blocks: u64) -> Vec<Piece> {
        let all = PageMask::span(0, 512);
        let young = |n: u64| {
            let start = n * BLOCK_SIZE;
            let mut piece = Piece::coarse(AddrRange::new(start, start + BLOCK_SIZE), WINDOW, 0);
            let at = moment(0);
            let block = Block { start, huge: false, resident: all, young: all, read_at: at.at };
            piece.read(&block, 0, &at, &TERMS);
            piece
        };
        (0..blocks).map(young).collect()
    }

    /// Clears the sample of a piece at 1 s, and reads it 100 ms later.
    fn sample(piece: &mut Piece, is_hot: bool) {
        let range = piece.sample_of(0, 1);
        let start = piece.block();
        let page = |addr: u64| ((addr - start) / PAGE_SIZE) as usize;
        let armed = PageMask::span(page(range.start), page(range.end));
        let (then, now) = (moment(1000), moment(1100));
        let cleared = Cleared { start, huge: false, armed, hidden: vec![], cleared_at: then.at };
        piece.clear(&cleared, then, None, &TERMS);
        let young = if is_hot { armed } else { PageMask::default() };
        let block = Block { start, huge: false, resident: armed, young, read_at: now.at };
        piece.read(&piece.complete(&block, &range), 4, &now, &TERMS);
    }

    #[test]
    fn memory_between_two_idle_samples_is_idle() {
        for (last_is_hot, known) in [(false, [true, true, true]), (true, [true, false, true])] {
            let mut pieces = young(3);
            sample(&mut pieces[0], false);
            sample(&mut pieces[2], last_is_hot);
            bridge_samples(&mut pieces);
            let seen: Vec<bool> = pieces.iter().map(Piece::is_seen).collect();
            assert_eq!(seen, known, "{last_is_hot}");
            assert!(!pieces[1].was_cleared());
            assert_eq!(pieces[1].extended_in(0..1), if known[1] { 512 } else { 0 });
        }
    }

    /// A border lies between the middles of two blocks: the two halves between them become pieces, and so on.
    #[test]
    fn pieces_are_cut_at_borders() {
        let mut pieces = young(4);
        pieces.iter_mut().enumerate().for_each(|(i, p)| sample(p, i < 2));
        cut_at_borders(&mut pieces, &TERMS);
        let blocks: Vec<u64> = pieces.iter().map(|p| p.block() / BLOCK_SIZE).collect();
        assert_eq!(blocks, [0, 1, 1, 2, 2, 3]);
        let new: Vec<usize> = (0..6).filter(|&i| !pieces[i].was_cleared()).collect();
        assert_eq!(new, [2, 3]);
        assert!(pieces.windows(2).all(|p| p[0].range.end == p[1].range.start));
        let resident: u32 = pieces.iter().map(Piece::nr_resident).sum();
        assert_eq!(resident, 4 * 512);
        assert!(pieces[2].presumed_hz() > Some(2.0), "it was cut off a hot piece");
        new.iter().for_each(|&i| sample(&mut pieces[i], i == 2));
        cut_at_borders(&mut pieces, &TERMS);
        assert_eq!(pieces.len(), 8, "both have halves beside the border");
        let shortest = pieces.iter().map(|p| p.range.len()).min();
        assert!(shortest.is_some_and(|len| len <= FINE_BYTES), "{shortest:?}");
    }
}
