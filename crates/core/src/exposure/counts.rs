//! Counts of exposures over the windows of a region.

use std::ops::Range;

use super::groups::rows;
use super::piece::Piece;
use super::summary::{PieceSummary, PieceSums};
use super::timing::{ExposureTerms, READS};
use crate::bins::{Bin, PAGES_PER_INDEPENDENT_OBSERVATION, Spread};
use crate::borders::WindowPlace;
use crate::range::PAGE_SIZE;
use crate::survey::BLOCK_SIZE;
use crate::time::Nanos;
use crate::unknown::Unknown;

/// Time limits for the begin of an exposure.
pub(super) struct Horizons {
    /// older exposures do not describe the present
    pub fresh: Nanos,
    /// older exposures do not represent the rest of the region
    pub covered: Nanos,
    /// if no part of the region was cleared since then, the region's published rate is outdated too
    pub known: Nanos,
}

/// Counts over the windows of a group.
#[derive(Default)]
pub(super) struct Counts {
    pub resident: u64,
    pub unknown: [u64; Unknown::ALL.len()],
    /// visible pages in pieces that were looked at recently enough to describe the present
    pub measured: u64,
    /// visible pages whose rate is extended from samples of other memory
    pub extended: u64,
    /// their presumed touched pages and page-seconds
    pub presumed: (f64, f64),
    /// pages looked at recently enough to represent their region
    pub covered: u64,
    pub bins: [Bin; READS],
    /// sums of the bin widths in s, weighted by pages
    widths: [f64; READS],
    /// sums of the times from the clear to the begin of the bin, weighted by pages
    begins: [f64; READS],
    pub fresh: Spread,
    pub all: Spread,
    /// touched pages and their time until the touch, by run (memory that was cleared together)
    pub runs: Spread,
    run: ClearedTogether,
    pub fresh_pages: f64,
    /// Windows that look hotter than before without confirmation; excluded from the other counts.
    pub sudden: Spread,
    pub sudden_pages: f64,
    /// clear time of the first sudden piece, and whether sudden pieces have different clear times
    sudden_since: Option<(Nanos, bool)>,
    pub touched: u32,
    /// part of the group was cleared since [`Horizons::known`]
    pub lately: bool,
    /// earliest last read of any piece, in ms
    pub read: Option<u32>,
}

/// Touched pages of one run, as counted so far.
#[derive(Default)]
struct ClearedTogether {
    cleared: Option<Nanos>,
    touched: f64,
    seconds: f64,
}

/// The windows from one place to another, by piece: index of the piece, first window, end.
pub(super) fn spans(
    pieces: &[Piece],
    from: WindowPlace,
    to: WindowPlace,
) -> impl Iterator<Item = (usize, usize, usize)> {
    let sizes: Vec<usize> =
        pieces[from.0..=to.0.min(pieces.len() - 1)].iter().map(Piece::nr_windows).collect();
    (from.0..=to.0).filter_map(move |p| {
        let first = if p == from.0 { from.1 } else { 0 };
        let size = sizes.get(p - from.0).copied().unwrap_or(0);
        let end = if p == to.0 { to.1 } else { size };
        (first < end).then_some((p, first, end))
    })
}

/// Counts over all windows from one place to another; `now` in ms.
///
/// Windows that look hotter than before for the first time are excluded, unless they were found after two
/// different clears: then each confirms the other.
pub(super) fn count(
    pieces: &[Piece],
    span: (WindowPlace, WindowPlace),
    since: &Horizons,
    t: &ExposureTerms,
    now: u32,
) -> Counts {
    let c = count_but(true, pieces, span, since, t, now);
    let twice = c.sudden_since.is_some_and(|(_, twice)| twice);
    if twice { count_but(false, pieces, span, since, t, now) } else { c }
}

fn count_but(
    sudden: bool,
    pieces: &[Piece],
    (from, to): (WindowPlace, WindowPlace),
    since: &Horizons,
    t: &ExposureTerms,
    now: u32,
) -> Counts {
    let mut c = Counts::default();
    let mut last: Option<CalmRun<'_>> = None;
    for (p, first, end) in spans(pieces, from, to) {
        let piece = &pieces[p];
        c.read = Some(c.read.unwrap_or(u32::MAX).min(piece.read_ms()));
        c.lately |= piece.cleared_at().is_some_and(|at| at >= since.known);
        let is_calm = piece.calm().is_some() && (first, end) == (0, piece.nr_windows());
        let like_last = last.take_if(|last| is_calm && piece.is_exposed_like(last.piece));
        c.end_calm(last.take());
        let exposed = like_last
            .as_ref()
            .map_or_else(|| PresentExposure::of(piece, since, t), |last| last.exposed);
        // Quiet pieces may lie between the parts of a run.
        if !piece.is_quiet() && c.run.cleared != piece.cleared_at() {
            c.end_run();
            c.run.cleared = piece.cleared_at();
        }
        let before = c.visible();
        let extended = if is_calm {
            let armed = c.add_calm(piece, exposed.is_some(), t);
            let so_far = like_last.map_or(0, |last| last.armed);
            last = Some(CalmRun { piece, exposed, armed: so_far + armed });
            piece.extended_in(first..end)
        } else {
            let whole = (first, end) == (0, piece.nr_windows());
            match piece.summary().filter(|s| whole && (sudden || s.sums.sudden_pages == 0)) {
                Some(summary) => c.add(&summary.sums, piece, exposed, now),
                None => {
                    let sums = PieceSums::of(piece, &piece.runs(first..end), sudden, t);
                    c.add(&sums, piece, exposed, now)
                }
            }
        };
        let visible = c.visible().saturating_sub(before);
        let extended = extended.min(visible);
        c.measured += if exposed.is_some() { visible - extended } else { 0 };
        c.extended += extended;
    }
    c.end_calm(last);
    c.end_run();
    for ((bin, width), since) in c.bins.iter_mut().zip(c.widths).zip(c.begins) {
        let weight = bin.touched + bin.survived;
        bin.seconds = if weight > 0.0 { width / weight } else { 0.0 };
        bin.since = if weight > 0.0 { since / weight } else { 0.0 };
    }
    c
}

/// Adjacent untouched pieces that were cleared and read together, as is true of most memory.
struct CalmRun<'a> {
    /// the last of these pieces
    piece: &'a Piece,
    exposed: Option<PresentExposure>,
    armed: u32,
}

/// The current exposure of a piece, if it describes the present.
#[derive(Clone, Copy)]
struct PresentExposure {
    reads: [f64; READS],
    /// recent enough to represent its region
    recent: bool,
}

impl PresentExposure {
    fn of(piece: &Piece, since: &Horizons, t: &ExposureTerms) -> Option<Self> {
        // A quiet piece was untouched until its last read, so the time of the read counts.
        let at = if piece.is_quiet() { piece.read_at() } else { piece.cleared_at() };
        let fresh = at? >= since.fresh && !piece.is_presumed() && !piece.is_stalled(t);
        let recent = at? >= since.covered;
        Some(PresentExposure { reads: piece.reads(t).filter(|_| fresh)?, recent })
    }
}

/// Weight of a page as an observation. A huge page has one bit, and counts as pages that are touched
/// together.
#[derive(Clone, Copy)]
struct Bits {
    /// bits per page
    of_page: f64,
    /// factor by which counts of pages are multiplied before they are added as observations of a window
    alike: f64,
}

impl Bits {
    fn of(piece: &Piece) -> Self {
        let of_page = if piece.huge { PAGE_SIZE as f64 / BLOCK_SIZE as f64 } else { 1.0 };
        Bits {
            of_page,
            alike: if piece.huge { PAGES_PER_INDEPENDENT_OBSERVATION * of_page } else { 1.0 },
        }
    }
}

impl Counts {
    /// Resident pages whose accesses are visible.
    pub fn visible(&self) -> u64 {
        self.resident.saturating_sub(self.unknown.iter().sum())
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        if run.touched > 0.0 {
            self.runs.add(run.touched, run.seconds);
        }
    }

    /// Adds an untouched piece as a whole, except for the counts of its reads. Returns the number of its
    /// armed pages.
    fn add_calm(&mut self, piece: &Piece, is_fresh: bool, t: &ExposureTerms) -> u32 {
        let (armed, e) = piece.idle(t);
        self.touched = self.touched.max(piece.calm().map_or(0, |c| c.touched.1));
        self.resident += u64::from(piece.nr_resident());
        let alike = Bits::of(piece).alike;
        self.all.add(0.0, e * alike);
        if is_fresh {
            self.fresh.add(0.0, e * alike);
        }
        armed
    }

    /// Adds the counts of the reads of adjacent untouched pieces.
    fn end_calm(&mut self, calm: Option<CalmRun<'_>>) {
        if let Some(CalmRun { piece, exposed: Some(exposed), armed }) = calm {
            self.add_exposed(&exposed, &[0; READS], armed, Bits::of(piece));
        }
    }

    /// Adds the counts of some windows of a piece. Returns how many of their pages are presumed similar to
    /// others.
    fn add(
        &mut self,
        s: &PieceSums,
        piece: &Piece,
        exposed: Option<PresentExposure>,
        now: u32,
    ) -> u64 {
        self.resident += s.resident;
        self.unknown.iter_mut().zip(s.unknown).for_each(|(all, n)| *all += n);
        self.touched = self.touched.max(s.touched.min(now));
        self.all.join(&s.all);
        self.presumed = (self.presumed.0 + s.presumed.0, self.presumed.1 + s.presumed.1);
        let Some(x) = exposed else { return s.extended };
        let bits = Bits::of(piece);
        self.covered += if x.recent { s.sudden_pages } else { 0 };
        if let Some(at) = piece.cleared_at().filter(|_| s.sudden_pages > 0) {
            let (first, twice) = self.sudden_since.unwrap_or((at, false));
            self.sudden_since = Some((first, twice || at != first));
            self.sudden_pages += s.sudden_pages as f64;
            self.sudden.join(&s.sudden);
        }
        let e = self.add_exposed(&x, &s.found, s.armed, bits);
        if piece.is_quiet() || piece.huge {
            let touched = s.found.last().map_or(0.0, |&n| n.into());
            self.fresh.add(touched * bits.alike, e * bits.alike);
        } else {
            self.fresh.join(&s.fresh);
        }
        s.extended
    }

    /// Adds the counts of the reads of `armed` pages; returns their page-seconds.
    fn add_exposed(
        &mut self,
        x: &PresentExposure,
        found: &[u32; READS],
        armed: u32,
        bits: Bits,
    ) -> f64 {
        self.fresh_pages += f64::from(armed);
        if x.recent {
            self.covered += u64::from(armed);
        }
        let (mut t, mut had, mut e) = (0.0, 0u32, 0.0);
        for (i, (&read, &n)) in x.reads.iter().zip(found).enumerate() {
            if read.is_nan() {
                continue;
            }
            let seconds = (read - t).max(1e-5);
            let (touched, left) =
                (f64::from(n.saturating_sub(had)), f64::from(armed.saturating_sub(n)));
            let weight = (touched + left) * bits.of_page;
            self.bins[i].touched += touched * bits.of_page;
            self.bins[i].survived += left * bits.of_page;
            self.widths[i] += seconds * weight;
            self.begins[i] += t * weight;
            e += seconds * (left + touched / 2.0);
            self.run.touched += touched * bits.of_page;
            self.run.seconds += touched * bits.of_page * (t + seconds / 2.0);
            (t, had) = (read, n.max(had));
        }
        e
    }
}

impl PieceSums {
    /// Sums over some windows, see [`Piece::runs`]. With `leaves_out`, sudden windows are excluded.
    pub fn of(piece: &Piece, runs: &[Range<usize>], leaves_out: bool, t: &ExposureTerms) -> Self {
        let mut s = PieceSums::default();
        s.add_resident(piece, runs);
        let (quiet, bits) = (piece.is_quiet(), Bits::of(piece));
        let (mut d_all, mut e_all) = (0.0, 0.0);
        for run in runs {
            let (i, n) = (run.start, run.len());
            let w = piece.window(i);
            s.extended += piece.extended_in(i..i + 1) * n as u64;
            s.touched = s.touched.max(piece.touched(i));
            let evidence = piece.evidence(i, t);
            let (d, e) = (f64::from(evidence.d), f64::from(evidence.e));
            if e > 0.0 && !piece.huge {
                s.all.add_run(n, d, e);
            }
            let (d, e) = (d * n as f64, e * n as f64);
            if piece.is_extended(i) {
                s.presumed = (s.presumed.0 + d, s.presumed.1 + e);
            }
            (d_all, e_all) = (d_all + d, e_all + e);
            // One touch of a huge page makes all its windows look touched, so no window counts as sudden.
            if leaves_out && !quiet && !piece.huge && piece.is_sudden(i, t) {
                let current = w.current();
                s.sudden.add_run(n, current.d.into(), current.e.into());
                s.sudden_pages += u64::from(w.pages) * n as u64;
                continue;
            }
            s.armed += u32::from(w.pages) * n as u32;
            if !quiet {
                let found = w.found.map(|pages| u32::from(pages) * n as u32);
                s.found.iter_mut().zip(found).for_each(|(sum, pages)| *sum += pages);
                if !piece.huge && w.pages > 0 {
                    let current = w.current();
                    s.fresh.add_run(n, current.d.into(), current.e.into());
                }
            }
        }
        // A huge page has one accessed bit.
        if piece.huge && e_all > 0.0 {
            s.all.add(d_all * bits.alike, e_all * bits.alike);
        }
        s
    }

    /// Counts the resident pages of some windows, and the pages among them whose accesses are invisible.
    fn add_resident(&mut self, piece: &Piece, runs: &[Range<usize>]) {
        let hides = piece.hides();
        for run in runs {
            let i = run.start;
            let resident = u64::from(piece.resident_in(i)) * run.len() as u64;
            self.resident += resident;
            if hides {
                let described = u64::from(piece.window(i).reported);
                for (why, mask) in piece.hidden() {
                    let hidden = u64::from(piece.count(&mask, i)).saturating_sub(described);
                    self.unknown[why.index()] += hidden;
                }
            }
            if !piece.is_seen() {
                self.unknown[Unknown::Unseen.index()] += resident;
            }
        }
    }
}

impl PieceSummary {
    /// The summary of a piece that was touched since its last clear.
    fn of(piece: &Piece, t: &ExposureTerms) -> Self {
        let runs = piece.runs(0..piece.nr_windows());
        PieceSummary {
            rows: rows(piece, &runs, t),
            sums: PieceSums::of(piece, &runs, true, t),
            recent: piece.same_recent(t.recent),
        }
    }
}

/// Computes missing summaries and returns their number. Quiet pieces have no summary, because their counts
/// depend on the present time.
pub(super) fn sum_up(pieces: &mut [Piece], t: &ExposureTerms) -> usize {
    let sum_up = |p: &mut Piece| {
        let changed = p.lacks_summary(t);
        if changed {
            p.keep_summary(PieceSummary::of(p, t));
        }
        usize::from(changed)
    };
    pieces.iter_mut().map(sum_up).sum()
}
