//! Pieces to move to one node, until all have been tried.

use super::move_result::MoveResult;
use super::pieces::MovablePiece;
use crate::sys::STATUS_NOT_STORED;

/// The kernel stops at a page that it cannot move. isotherm then calls it again for the remaining pages, at
/// most this often, while their number decreases.
const ATTEMPTS: u32 = 256;

/// Pieces to move to one node.
#[derive(Debug)]
pub(super) struct Batch {
    node: i32,
    pieces: Vec<MovablePiece>,
    attempts: u32,
}

/// The result of an attempt to move a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveStatus {
    Moved,
    Gone,
    Shared,
    NoRoom,
    Busy,
    /// the kernel has stopped before it, or at it
    NotStored,
}

impl MoveStatus {
    /// The result for a piece: `now` is its current node, `status` the kernel's result of the move; each is a
    /// node or a negative error number. The current node has precedence.
    fn of(target: i32, now: i32, status: i32, full: bool) -> Self {
        match (now, status) {
            (now, _) if now == target => MoveStatus::Moved,
            (now, _) if now < 0 => MoveStatus::Gone,
            (_, status) if status == -libc::EACCES => MoveStatus::Shared,
            (_, status) if status == -libc::ENOMEM => MoveStatus::NoRoom,
            (_, STATUS_NOT_STORED) if full => MoveStatus::NoRoom,
            (_, STATUS_NOT_STORED) => MoveStatus::NotStored,
            _ => MoveStatus::Busy,
        }
    }
}

impl Batch {
    pub fn new(node: u32, pieces: Vec<MovablePiece>) -> Self {
        Batch { node: i32::try_from(node).unwrap_or(i32::MAX), pieces, attempts: 0 }
    }

    pub fn node(&self) -> i32 {
        self.node
    }

    /// The pieces to try next; empty when all have been tried.
    pub fn pieces(&self) -> &[MovablePiece] {
        &self.pieces
    }

    /// Counts the results of an attempt, and keeps the pieces to try again. `full`: the node had no free
    /// memory.
    pub fn tried(&mut self, now: &[i32], status: &[i32], full: bool, out: &mut MoveResult) {
        self.attempts += 1;
        let before = self.pieces.len();
        let mut rest = Vec::new();
        for ((piece, &now), &status) in self.pieces.iter().zip(now).zip(status) {
            let pages = piece.pages();
            match MoveStatus::of(self.node, now, status, full) {
                MoveStatus::Moved => out.moved += pages,
                MoveStatus::Gone => out.left.gone += pages,
                MoveStatus::Shared => out.left.shared += pages,
                MoveStatus::NoRoom => out.left.no_room += pages,
                MoveStatus::Busy => out.left.busy += pages,
                MoveStatus::NotStored => rest.push(*piece),
            }
        }
        // The first piece was tried, and stopped the kernel: it moves to the end, so that the others need not
        // wait for it.
        if !rest.is_empty() {
            rest.rotate_left(1);
        }
        if rest.len() == before || self.attempts == ATTEMPTS {
            out.left.busy += rest.drain(..).map(|p| p.pages()).sum::<u64>();
        }
        self.pieces = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::UnmovedPages;

    #[test]
    fn the_status_of_a_piece_gives_its_result() {
        let fate = |now, status, full| MoveStatus::of(2, now, status, full);
        for (now, status, full, expected) in [
            (2, STATUS_NOT_STORED, true, MoveStatus::Moved),
            (2, -libc::EACCES, false, MoveStatus::Moved),
            (-libc::ENOENT, STATUS_NOT_STORED, false, MoveStatus::Gone),
            (-libc::EFAULT, 2, false, MoveStatus::Gone),
            (STATUS_NOT_STORED, STATUS_NOT_STORED, true, MoveStatus::Gone),
            (0, -libc::EACCES, true, MoveStatus::Shared),
            (0, -libc::ENOMEM, false, MoveStatus::NoRoom),
            (0, STATUS_NOT_STORED, true, MoveStatus::NoRoom),
            (0, STATUS_NOT_STORED, false, MoveStatus::NotStored),
            (0, -libc::EBUSY, true, MoveStatus::Busy),
            (0, 2, false, MoveStatus::Busy),
        ] {
            assert_eq!(fate(now, status, full), expected, "{now} {status} {full}");
        }
    }

    /// The kernel's answer for each page: `m` moved, `s` shared, `p` pinned.
    ///
    /// As in `do_pages_move`: before the kernel refuses a page at once, it moves the queued pages. If one of those
    /// fails, it reports no further status.
    fn attempt(kinds: &[u8], on: &mut [i32], pieces: &[MovablePiece]) -> Vec<i32> {
        let mut status = vec![STATUS_NOT_STORED; pieces.len()];
        let mut queued = Vec::new();
        let mut move_queued = |queued: &mut Vec<usize>, status: &mut Vec<i32>| {
            let fails = queued.iter().any(|&i| kinds[pieces[i].start as usize] == b'p');
            for i in queued.drain(..) {
                let at = pieces[i].start as usize;
                if kinds[at] == b'm' {
                    on[at] = 1;
                }
                status[i] = if fails { STATUS_NOT_STORED } else { 1 };
            }
            fails
        };
        for (i, piece) in pieces.iter().enumerate() {
            if kinds[piece.start as usize] == b's' {
                status[i] = -libc::EACCES;
                if move_queued(&mut queued, &mut status) {
                    return status;
                }
            } else {
                queued.push(i);
            }
        }
        move_queued(&mut queued, &mut status);
        status
    }

    fn all_tried(kinds: &str) -> (u64, UnmovedPages) {
        let kinds = kinds.as_bytes();
        let mut on = vec![0; kinds.len()];
        let pieces =
            (0..kinds.len() as u64).map(|start| MovablePiece { start, order: 0 }).collect();
        let (mut batch, mut out) = (Batch::new(1, pieces), MoveResult::default());
        while !batch.pieces().is_empty() {
            let status = attempt(kinds, &mut on, batch.pieces());
            let now: Vec<i32> = batch.pieces().iter().map(|p| on[p.start as usize]).collect();
            batch.tried(&now, &status, false, &mut out);
        }
        (out.moved, out.left)
    }

    #[test]
    fn an_unmovable_piece_does_not_stop_the_others() {
        let left = |shared, busy| UnmovedPages { shared, busy, ..UnmovedPages::default() };
        assert_eq!(all_tried("mmmm"), (4, left(0, 0)));
        assert_eq!(all_tried("pppp"), (0, left(0, 4)));
        assert_eq!(all_tried(&("p".to_owned() + &"ms".repeat(500))), (500, left(500, 1)));
        assert_eq!(all_tried(&"psm".repeat(20)), (20, left(20, 20)));
    }
}
