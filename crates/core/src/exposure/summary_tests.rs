//! A kept summary equals a newly computed one.

use std::ops::Range;
use std::time::Duration;

use super::super::summary::PieceSums;
use super::super::timing::Moment;
use super::super::view::ViewBasis;
use super::*;
use crate::call::TargetId;
use crate::ops::{Mapping, MappingKind};
use crate::page_mask::PageMask;
use crate::range::AddrRange;
use crate::snapshot::RegionView;
use crate::survey::{BLOCK_SIZE, Block, Cleared};
use crate::time::Nanos;

const TERMS: ExposureTerms = ExposureTerms { share: 1.0, recent: 500, long: 8.0 };
const PIECES: u64 = 32;

fn at(ms: u32) -> Moment {
    Moment { at: Nanos(u64::from(ms) * 1_000_000), ms, ran: None }
}

fn all() -> PageMask {
    PageMask::span(0, 512)
}

/// A target of 64 MiB, observed as a whole at several times.
struct Seen(ExposureTarget);

impl Seen {
    /// The whole target is cleared at 1 s.
    fn new() -> Self {
        let mut w = ExposureTarget::new(TargetId(1), true);
        let range = AddrRange::new(0, PIECES * BLOCK_SIZE);
        let (kind, name) = (MappingKind::Anonymous, "".into());
        w.map(vec![Mapping { range, kind, name, unknown: None }], Nanos(0), 0);
        let mut seen = Seen(w);
        seen.read(990, |_| all());
        seen.clear(0..PIECES, 1_000);
        seen
    }

    fn blocks(ms: u32, blocks: Range<u64>, young: impl Fn(u64) -> PageMask) -> Vec<Block> {
        let block = |n| Block {
            start: n * BLOCK_SIZE,
            huge: false,
            resident: all(),
            young: young(n),
            read_at: at(ms).at,
        };
        blocks.map(block).collect()
    }

    fn read(&mut self, ms: u32, young: impl Fn(u64) -> PageMask) {
        let blocks = Seen::blocks(ms, 0..PIECES, young);
        let all = AddrRange::new(0, u64::MAX);
        self.0.read_all(&blocks, all, &at(ms), &TERMS, 64 << 10);
    }

    /// Clears some blocks. The read after 10 ms finds all pages touched, but in every second block only the
    /// first half; the read after 30 ms finds all pages touched.
    fn clear(&mut self, blocks: Range<u64>, ms: u32) {
        let cleared = |n| Cleared {
            start: n * BLOCK_SIZE,
            armed: all(),
            cleared_at: at(ms).at,
            ..Cleared::default()
        };
        let done: Vec<Cleared> = blocks.clone().map(cleared).collect();
        self.0.clear(&done, &at(ms), &TERMS, Nanos(0));
        let ranges = [AddrRange::new(blocks.start * BLOCK_SIZE, blocks.end * BLOCK_SIZE)];
        for (class, later, half) in [(2, 10, true), (3, 30, false)] {
            let young = |n| if half && n % 2 == 1 { PageMask::span(0, 256) } else { all() };
            let blocks = Seen::blocks(ms + later, blocks.clone(), young);
            self.0.read_some((&ranges, &blocks), Some(class), &at(ms + later), &TERMS);
        }
    }

    fn regions(&mut self, ms: u32) -> Vec<RegionView> {
        let round = Duration::from_millis(250);
        let (now, sample, externally_cleared_share) = (at(ms), Duration::from_millis(20), 0.0);
        let basis = ViewBasis { terms: TERMS, now, round, sample, externally_cleared_share };
        self.0.make_regions(&basis, 100, false);
        self.0.views.clone()
    }
}

#[test]
fn where_nothing_changes_nothing_is_summed_up_anew() {
    let mut seen = Seen::new();
    assert_eq!(sum_up(&mut seen.0.pieces, &TERMS), PIECES as usize);
    for ms in [1_250, 1_500, 1_750, 2_000] {
        seen.read(ms, |_| all());
        assert_eq!(sum_up(&mut seen.0.pieces, &TERMS), 0, "at {ms}");
    }
    seen.clear(3..5, 2_000);
    assert_eq!(sum_up(&mut seen.0.pieces, &TERMS), 2);
    seen.read(2_250, |n| if n == 7 { PageMask::span(0, 100) } else { all() });
    assert_eq!(sum_up(&mut seen.0.pieces, &TERMS), 1, "somebody else has cleared some of it");
}

#[test]
fn a_sign_of_heat_counts_for_as_long_as_is_said() {
    let mut seen = Seen::new();
    seen.0.pieces.iter_mut().for_each(|p| p.suspect(900));
    assert_eq!(sum_up(&mut seen.0.pieces, &TERMS), PIECES as usize);
    let recent = |recent| ExposureTerms { recent, ..TERMS };
    assert_eq!(sum_up(&mut seen.0.pieces, &recent(100)), 0, "it was 100 ms before the clear");
    assert_eq!(sum_up(&mut seen.0.pieces, &recent(5_000)), 0);
    assert_eq!(sum_up(&mut seen.0.pieces, &recent(99)), PIECES as usize);
    assert_eq!(sum_up(&mut seen.0.pieces, &recent(0)), 0);
}

#[test]
fn kept_summaries_equal_computed_ones() {
    let [mut kept, mut anew] = [Seen::new(), Seen::new()];
    for ms in (1_250..9_000).step_by(250) {
        for seen in [&mut kept, &mut anew] {
            seen.read(ms, |_| all());
            if ms % 1_000 == 0 {
                let first = u64::from(ms / 1_000) * 3;
                seen.clear(first..first + 2, ms);
            }
        }
        let changes = anew.0.pieces.iter_mut();
        changes.for_each(|p| p.rebase(0));
        assert_eq!(kept.regions(ms + 100), anew.regions(ms + 100), "at {ms}");
    }
}

/// Windows with equal figures are counted at once.
#[test]
fn runs_of_equal_windows_count_as_each_of_them() {
    let mut seen = Seen::new();
    seen.read(1_250, |n| if n == 7 { PageMask::span(0, 100) } else { all() });
    let pieces = &mut seen.0.pieces;
    (0..8).for_each(|n| pieces[n].extend(20.0, at(2_000).at, Some(1_500)));
    (4..12).for_each(|n| pieces[n].suspect(900));
    for (n, piece) in pieces.iter().enumerate() {
        let windows = 0..piece.nr_windows();
        let runs = piece.runs(windows.clone());
        match n {
            // Pages were still young in the first windows, then in a part of one.
            7 => assert_eq!(runs, [0..7, 7..16, 16..32]),
            // A half was found touched earlier than the other one.
            _ if n % 2 == 1 => assert_eq!(runs, [0..16, 16..32], "{n}"),
            _ => assert_eq!(runs, std::slice::from_ref(&windows), "{n}"),
        }
        for leaves_out in [false, true] {
            let of = |runs: &[Range<usize>]| PieceSums::of(piece, runs, leaves_out, &TERMS);
            let of_one = |i: usize| of(std::slice::from_ref(&(i..i + 1)));
            let (at_once, each) = (of(&runs), windows.clone().map(of_one));
            let sum = each.reduce(|mut a, b| {
                a.resident += b.resident;
                a.extended += b.extended;
                a.presumed = (a.presumed.0 + b.presumed.0, a.presumed.1 + b.presumed.1);
                a.touched = a.touched.max(b.touched);
                a.armed += b.armed;
                a.found.iter_mut().zip(b.found).for_each(|(a, b)| *a += b);
                a.sudden_pages += b.sudden_pages;
                a.all.join(&b.all);
                a.fresh.join(&b.fresh);
                a.sudden.join(&b.sudden);
                a
            });
            assert_eq!(format!("{at_once:?}"), format!("{:?}", sum.unwrap()), "{n}");
        }
    }
}
