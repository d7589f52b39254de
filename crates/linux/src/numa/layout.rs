//! The placement of a process's memory on nodes, and moving it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use isotherm_core::AddrRange;

use super::batch::Batch;
use super::error::NumaError;
use super::move_result::MoveResult;
use super::nodes::{allowed_nodes_of, nodes};
use super::pieces::{MovablePiece, Pieces};
use super::windows::windows;
use crate::ops::{HeldProcess, refused};
use crate::proc::{KPageFlags, Pagemap, ProcError};
use crate::sys::{self, STATUS_NOT_STORED};

/// Minimal number of pages to move at a time, except for the last ones of a node: each call flushes the page
/// lists of all CPUs.
const MOVED: u64 = 16_384;
/// Maximal number of resident stretches that are searched at a time.
const STRETCHES: usize = 4096;

/// The memory of a process, held by a pidfd.
pub struct ProcessLayout {
    held: HeldProcess,
    pieces: Pieces,
}

/// A piece on the wrong node, and the right node.
#[derive(Debug, Clone, Copy)]
struct Misplaced {
    piece: MovablePiece,
    to: u32,
}

impl ProcessLayout {
    /// The memory of process `pid`.
    ///
    /// # Errors
    /// If the process does not exist, or isotherm may not read it.
    pub fn of(root: &Path, pid: i32) -> Result<Self, NumaError> {
        let held = HeldProcess::take(root, pid)?;
        let pagemap = Pagemap::open(root, pid).map_err(|e| refused(pid, e))?;
        let flags = KPageFlags::open(root).map_err(no_flags)?;
        Ok(ProcessLayout { held, pieces: Pieces::new(pagemap, flags) })
    }

    /// Switches to the current memory of the process, which changes with an exec.
    ///
    /// # Errors
    /// If isotherm may not read it any more. A process that has ended is not an error.
    pub fn renew(&mut self) -> Result<(), NumaError> {
        let pagemap = Pagemap::open(&self.held.root, self.held.pid);
        // If the process still runs, the pagemap was its own.
        if !self.held.has_ended() {
            self.pieces.turn_to(pagemap.map_err(|e| refused(self.held.pid, e))?);
        }
        Ok(())
    }

    /// The pid of the process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.held.pid
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.held.has_ended()
    }

    /// Compares the memory in `range` with the rule.
    ///
    /// # Errors
    /// If the kernel does not report the placement.
    pub fn look(
        &mut self,
        range: AddrRange,
        rule: impl Fn(MovablePiece) -> u32,
    ) -> Result<MoveResult, NumaError> {
        let mut sum = MoveResult::default();
        self.parts(range, |layout, part| layout.compare(part, &rule, &mut sum).map(drop))?;
        Ok(sum)
    }

    /// Moves the memory of each range to the nodes that its rule requests, piece by piece. If it fails in
    /// between, `sum` contains the work so far. A process that ends in the meantime is not an error.
    ///
    /// # Errors
    /// If the kernel does not report the placement, or refuses to move.
    pub fn lay_out<R: Fn(MovablePiece) -> u32>(
        &mut self,
        parts: impl IntoIterator<Item = (AddrRange, R)>,
        sum: &mut MoveResult,
    ) -> Result<(), NumaError> {
        let mut waiting: BTreeMap<u32, (Vec<MovablePiece>, u64)> = BTreeMap::new();
        for (range, rule) in parts {
            self.parts(range, |layout, part| {
                for Misplaced { piece, to } in layout.compare(part, &rule, sum)? {
                    let (pieces, pages) = waiting.entry(to).or_default();
                    pieces.push(piece);
                    *pages += piece.pages();
                    if *pages >= MOVED {
                        *pages = 0;
                        layout.move_to(to, std::mem::take(pieces), sum)?;
                    }
                }
                Ok(())
            })?;
        }
        waiting.into_iter().try_for_each(|(node, (pieces, _))| self.move_to(node, pieces, sum))
    }

    /// Calls `each` for the resident parts of a range.
    fn parts(
        &mut self,
        range: AddrRange,
        mut each: impl FnMut(&mut Self, AddrRange) -> Result<(), NumaError>,
    ) -> Result<(), NumaError> {
        let mut at = range.start;
        while at < range.end {
            let mut stretches = Vec::new();
            let rest = AddrRange::new(at, range.end);
            self.pieces.pagemap().resident(rest, STRETCHES, &mut stretches);
            let Some(last) = stretches.last().copied() else { break };
            for window in windows(&stretches) {
                if self.held.has_ended() {
                    return Ok(());
                }
                each(self, window)?;
            }
            at = last.end;
        }
        Ok(())
    }

    fn compare(
        &mut self,
        range: AddrRange,
        rule: impl Fn(MovablePiece) -> u32,
        out: &mut MoveResult,
    ) -> Result<Vec<Misplaced>, NumaError> {
        let found = self.pieces.of(range)?;
        out.left.partial += found.partial;
        let mut misplaced = Vec::new();
        for (piece, on) in found.pieces.iter().zip(self.nodes(&found.pieces)?) {
            // Pages that were unmapped in the meantime, and the zero page, are on no node.
            let Ok(on) = u32::try_from(on) else { continue };
            let (pages, to) = (piece.pages(), rule(*piece));
            out.pages += pages;
            out.in_folios += if piece.order > 0 { pages } else { 0 };
            *out.found.entry(on).or_default() += pages;
            *out.asked.entry(to).or_default() += pages;
            if on != to {
                out.misplaced += pages;
                misplaced.push(Misplaced { piece: *piece, to });
            }
        }
        Ok(misplaced)
    }

    /// The node of each piece, or a negative error number.
    fn nodes(&self, pieces: &[MovablePiece]) -> Result<Vec<i32>, NumaError> {
        let addrs: Vec<u64> = pieces.iter().map(|p| p.start).collect();
        match sys::page_nodes(self.held.pid, &addrs) {
            Ok(nodes) => Ok(nodes),
            Err(e) if self.is_ending(&e) => Ok(vec![STATUS_NOT_STORED; pieces.len()]),
            Err(source) => Err(self.failed("found", source)),
        }
    }

    /// Moves the pieces, and counts the results that the kernel reports afterwards.
    fn move_to(
        &self,
        node: u32,
        pieces: Vec<MovablePiece>,
        out: &mut MoveResult,
    ) -> Result<(), NumaError> {
        let mut batch = Batch::new(node, pieces);
        while !batch.pieces().is_empty() {
            let addrs: Vec<u64> = batch.pieces().iter().map(|p| p.start).collect();
            let targets = vec![batch.node(); addrs.len()];
            let (done, said) = sys::move_pages(self.held.pid, &addrs, &targets);
            let full = match done {
                Ok(_) => false,
                Err(e) if e.raw_os_error() == Some(libc::ENOMEM) => true,
                Err(e) if self.is_ending(&e) => false,
                Err(source) => return Err(self.not_moved(node, source)),
            };
            let now = self.nodes(batch.pieces())?;
            batch.tried(&now, &said, full, out);
        }
        Ok(())
    }

    fn not_moved(&self, node: u32, source: std::io::Error) -> NumaError {
        let (root, pid) = (&self.held.root, self.held.pid);
        let error = match source.raw_os_error() {
            Some(libc::EACCES) => allowed_nodes_of(root, pid)
                .map(|allowed| NumaError::NotAllowed { pid, node, allowed }),
            Some(libc::ENODEV) => nodes(root)
                .map(|all| NumaError::NoNode { node, have: all.iter().map(|n| n.node).collect() }),
            _ => return self.failed("moved", source),
        };
        error.unwrap_or_else(|e| e)
    }

    /// Whether the process is ending: it then has no memory for a moment before it has ended (EINVAL).
    fn is_ending(&self, e: &std::io::Error) -> bool {
        let gone = [libc::EINVAL, libc::ESRCH].map(Some);
        self.held.has_ended() || gone.contains(&e.raw_os_error())
    }

    fn failed(&self, what: &'static str, source: std::io::Error) -> NumaError {
        NumaError::Pages { what, pid: self.held.pid, source }
    }
}

fn no_flags(e: ProcError) -> NumaError {
    match e {
        ProcError::Read { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            NumaError::NoFrames
        }
        e => e.into(),
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
