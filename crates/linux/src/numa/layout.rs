//! Where the memory of a process lies, and moving it.

use std::collections::BTreeMap;
use std::path::Path;

use isotherm_core::AddrRange;

use super::error::NumaError;
use super::laid_out::LaidOut;
use super::pieces::{Piece, Pieces};
use crate::ops::{Held, refused};
use crate::proc::{KPageFlags, Pagemap};
use crate::sys::{self, UNTOLD};

/// Looked at and moved at a time: 16,384 pages, as a few at a time cost a flush of all CPUs' lists of
/// pages each. A multiple of huge pages.
const PART: u64 = 64 << 20;
/// Resident stretches that are looked for at a time.
const STRETCHES: usize = 4096;
/// The kernel stops moving at what it cannot move, and is asked again for what comes after, so often.
const ATTEMPTS: u32 = 4;

/// The memory of a process, held by a pidfd.
pub struct Layout {
    held: Held,
    pieces: Pieces,
}

/// A piece that lies on the wrong node, and the right one.
#[derive(Debug, Clone, Copy)]
struct Misplaced {
    piece: Piece,
    to: u32,
}

impl Layout {
    /// Of process `pid`.
    ///
    /// # Errors
    /// If there is none, or it may not be looked at.
    pub fn of(root: &Path, pid: i32) -> Result<Self, NumaError> {
        let held = Held::take(root, pid)?;
        let pagemap = Pagemap::open(root, pid).map_err(|e| refused(pid, e))?;
        let pieces = Pieces::new(pagemap, KPageFlags::open(root).ok());
        Ok(Layout { held, pieces })
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.held.pid
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.held.has_ended()
    }

    /// Compares what lies in `range` with the rule.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn look(
        &mut self,
        range: AddrRange,
        rule: impl Fn(Piece) -> u32,
    ) -> Result<LaidOut, NumaError> {
        let mut sum = LaidOut::default();
        self.parts(range, |layout, part| {
            let (out, _) = layout.compare(part, &rule)?;
            sum += &out;
            Ok(())
        })?;
        Ok(sum)
    }

    /// Moves what lies in `range` to where the rule asks, piece by piece. What has been done so far
    /// stands in `sum` also if it fails in between. A process that ends meanwhile is no failure.
    ///
    /// # Errors
    /// If the kernel refuses to tell or to move.
    pub fn lay_out(
        &mut self,
        range: AddrRange,
        rule: impl Fn(Piece) -> u32,
        sum: &mut LaidOut,
    ) -> Result<(), NumaError> {
        self.parts(range, |layout, part| {
            let (mut out, misplaced) = layout.compare(part, &rule)?;
            let done = layout.move_all(misplaced, &mut out);
            *sum += &out;
            done
        })
    }

    /// The resident parts of a range.
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
        rule: impl Fn(Piece) -> u32,
    ) -> Result<(LaidOut, Vec<Misplaced>), NumaError> {
        let found = self.pieces.of(range)?;
        let mut out = LaidOut::default();
        out.left.partial = found.partial;
        let mut misplaced = Vec::new();
        for (piece, on) in found.pieces.iter().zip(self.nodes(&found.pieces)?) {
            // What is gone again, and the zero page, lie nowhere.
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
        Ok((out, misplaced))
    }

    /// On which node each lies, or the negative error number of why none.
    fn nodes(&self, pieces: &[Piece]) -> Result<Vec<i32>, NumaError> {
        let addrs: Vec<u64> = pieces.iter().map(|p| p.start).collect();
        match sys::page_nodes(self.held.pid, &addrs) {
            Ok(nodes) => Ok(nodes),
            Err(e) if self.is_ending(&e) => Ok(vec![UNTOLD; pieces.len()]),
            Err(source) => Err(self.failed("found", source)),
        }
    }

    /// Moves them, node by node, and counts what the kernel says afterwards.
    fn move_all(&self, all: Vec<Misplaced>, out: &mut LaidOut) -> Result<(), NumaError> {
        let mut by_node: BTreeMap<u32, Vec<Piece>> = BTreeMap::new();
        all.iter().for_each(|m| by_node.entry(m.to).or_default().push(m.piece));
        for (node, pieces) in by_node {
            self.move_to(node, pieces, out)?;
        }
        Ok(())
    }

    fn move_to(
        &self,
        node: u32,
        mut pieces: Vec<Piece>,
        out: &mut LaidOut,
    ) -> Result<(), NumaError> {
        let target = i32::try_from(node).unwrap_or(i32::MAX);
        for attempt in 1..=ATTEMPTS {
            let addrs: Vec<u64> = pieces.iter().map(|p| p.start).collect();
            let (mut said, mut full) = (vec![UNTOLD; pieces.len()], false);
            match sys::move_pages(self.held.pid, &addrs, &vec![target; addrs.len()]) {
                Ok((_, status)) => said = status,
                Err(e) if e.raw_os_error() == Some(libc::ENOMEM) => full = true,
                Err(e) if self.is_ending(&e) => {}
                Err(source) => return Err(self.failed("moved", source)),
            }
            // What counts is where they lie now.
            let now = self.nodes(&pieces)?;
            let mut rest = Vec::new();
            for ((piece, now), said) in pieces.into_iter().zip(now).zip(said) {
                let pages = piece.pages();
                match (now, said) {
                    (now, _) if now == target => out.moved += pages,
                    (now, _) if now < 0 => out.left.gone += pages,
                    (_, s) if s == -libc::EACCES => out.left.shared += pages,
                    (_, s) if s == -libc::ENOMEM => out.left.no_room += pages,
                    (_, UNTOLD) if !full && attempt < ATTEMPTS => rest.push(piece),
                    (_, UNTOLD) if full => out.left.no_room += pages,
                    _ => out.left.busy += pages,
                }
            }
            pieces = rest;
            if pieces.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// A process that ends is without memory for a moment before it has ended (EINVAL).
    fn is_ending(&self, e: &std::io::Error) -> bool {
        let gone = [libc::EINVAL, libc::ESRCH].map(Some);
        self.held.has_ended() || gone.contains(&e.raw_os_error())
    }

    fn failed(&self, what: &'static str, source: std::io::Error) -> NumaError {
        NumaError::Pages { what, pid: self.held.pid, source }
    }
}

/// Stretches cut at multiples of [`PART`], and those within one of these joined: one read of page
/// tables and one move take the same.
fn windows(stretches: &[AddrRange]) -> Vec<AddrRange> {
    let mut out: Vec<AddrRange> = Vec::new();
    for s in stretches {
        let mut at = s.start;
        while at < s.end {
            let end = s.end.min((at / PART + 1) * PART);
            match out.last_mut() {
                Some(last) if last.start / PART == at / PART => last.end = end,
                _ => out.push(AddrRange::new(at, end)),
            }
            at = end;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::OwnPages;
    use crate::walker::own_pid;

    #[test]
    fn windows_take_what_lies_in_one_part() {
        let r = AddrRange::new;
        let found = windows(&[r(0, 4096), r(8192, PART + 4096), r(2 * PART, 2 * PART + 4096)]);
        assert_eq!(found, [r(0, PART), r(PART, PART + 4096), r(2 * PART, 2 * PART + 4096)]);
    }

    /// On a machine with one node all lies there, wherever it is asked to be.
    #[test]
    fn own_pages_are_found_and_what_cannot_be_moved_is_counted() {
        let mut own = OwnPages::map(64).unwrap();
        (0..64).step_by(2).for_each(|page| own.write(page, 1));
        let mut layout = Layout::of("/".as_ref(), own_pid()).unwrap();
        let here = layout.look(own.range(0, 64), |_| 0).unwrap();
        assert_eq!(here.pages, 32);
        assert_eq!(here.found.values().sum::<u64>(), 32);
        assert_eq!(here.asked, BTreeMap::from([(0, 32)]));
        let mut done = LaidOut::default();
        layout.lay_out(own.range(0, 64), |_| 0, &mut done).unwrap();
        assert_eq!((done.pages, done.moved + done.left.total()), (32, done.misplaced));
        let absent = layout.lay_out(own.range(0, 64), |_| 1000, &mut done).unwrap_err();
        assert!(absent.to_string().contains("cannot be moved"), "{absent}");
    }
}
