//! What exposures have shown, counted over the windows of a region.

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

/// Begins of exposures.
pub(super) struct Horizons {
    /// before, they tell of the past
    pub fresh: Nanos,
    /// before, they stand for nothing else
    pub covered: Nanos,
    /// before, what was known of a region is of the past too, if none of it was cleared since
    pub known: Nanos,
}

/// Counts over the windows of a group.
#[derive(Default)]
pub(super) struct Counts {
    pub resident: u64,
    pub unknown: [u64; Unknown::ALL.len()],
    /// of the visible pages, those in pieces that were looked at lately enough to describe the present
    pub measured: u64,
    /// those in pieces that are presumed to be like others
    pub extended: u64,
    /// of these, touched pages and page-seconds, as presumed
    pub presumed: (f64, f64),
    /// pages looked at so lately that they stand for their region
    pub covered: u64,
    pub bins: [Bin; READS],
    /// sums of widths, weighted by pages
    widths: [f64; READS],
    /// and of times from the clear to their begin
    begins: [f64; READS],
    pub fresh: Spread,
    pub all: Spread,
    /// touched pages, and their time until then, by what was cleared together
    pub runs: Spread,
    run: ClearedTogether,
    pub fresh_pages: f64,
    /// What looks hotter than before, which nothing else does yet: it is left out.
    pub sudden: Spread,
    pub sudden_pages: f64,
    /// when it was cleared, and whether that was more than once
    sudden_since: Option<(Nanos, bool)>,
    pub touched: u32,
    /// some of it was cleared since [`Horizons::known`]
    pub lately: bool,
    /// when that of it was read which was read the longest time ago
    pub read: Option<u32>,
}

/// What was cleared together, as far as it is counted.
#[derive(Default)]
struct ClearedTogether {
    cleared: Option<Nanos>,
    touched: f64,
    seconds: f64,
}

/// The windows from one place to another, by piece.
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
/// What looks hotter than before for the first time is left out, unless that was found after two clears:
/// one is the second sign of the other.
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
        // What is quiet lies between parts of a run.
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
                None => c.add(&PieceSums::of(piece, first..end, sudden, t), piece, exposed, now),
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

/// Adjacent pieces that nobody touches, and that were cleared and read together, as most memory was.
struct CalmRun<'a> {
    /// the last of them
    piece: &'a Piece,
    exposed: Option<PresentExposure>,
    armed: u32,
}

/// The current exposure of a piece, if it tells of the present.
#[derive(Clone, Copy)]
struct PresentExposure {
    reads: [f64; READS],
    /// it stands for its region
    recent: bool,
}

impl PresentExposure {
    fn of(piece: &Piece, since: &Horizons, t: &ExposureTerms) -> Option<Self> {
        // What was not touched since is as it was when it was last read.
        let at = if piece.is_quiet() { piece.read_at() } else { piece.cleared_at() };
        let fresh = at? >= since.fresh && !piece.is_presumed() && !piece.is_stalled(t);
        let recent = at? >= since.covered;
        Some(PresentExposure { reads: piece.reads(t).filter(|_| fresh)?, recent })
    }
}

/// What a page tells: a huge one has one bit, and tells as much as pages that are touched together.
#[derive(Clone, Copy)]
struct Bits {
    /// of each page
    of_page: f64,
    /// as so many pages of a window
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
    /// Resident pages whose accesses can be seen.
    pub fn visible(&self) -> u64 {
        self.resident.saturating_sub(self.unknown.iter().sum())
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        if run.touched > 0.0 {
            self.runs.add(run.touched, run.seconds);
        }
    }

    /// Adds a piece that nobody touches, as a whole, but for what its reads have found; returns of how many pages that is.
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

    /// Adds what reads have found of pieces that nobody touches.
    fn end_calm(&mut self, calm: Option<CalmRun<'_>>) {
        if let Some(CalmRun { piece, exposed: Some(exposed), armed }) = calm {
            self.add_exposed(&exposed, &[0; READS], armed, Bits::of(piece));
        }
    }

    /// Adds what some windows of a piece have shown; returns how many of their pages are presumed to be like others.
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

    /// Adds what reads have found of `armed` pages; returns their page-seconds.
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
    /// Of some windows; `leaves_out`: what looks hotter than before.
    pub fn of(piece: &Piece, windows: Range<usize>, leaves_out: bool, t: &ExposureTerms) -> Self {
        let mut s =
            PieceSums { extended: piece.extended_in(windows.clone()), ..PieceSums::default() };
        s.add_resident(piece, windows.clone());
        let (quiet, bits) = (piece.is_quiet(), Bits::of(piece));
        let (mut d_all, mut e_all) = (0.0, 0.0);
        for i in windows {
            let w = piece.window(i);
            s.touched = s.touched.max(piece.touched(i));
            let evidence = piece.evidence(i, t);
            let (d, e) = (f64::from(evidence.d), f64::from(evidence.e));
            if e > 0.0 && !piece.huge {
                s.all.add(d, e);
            }
            if piece.is_extended(i) {
                s.presumed = (s.presumed.0 + d, s.presumed.1 + e);
            }
            (d_all, e_all) = (d_all + d, e_all + e);
            // Of a huge page one touch says as much for all its windows.
            if leaves_out && !quiet && !piece.huge && piece.is_sudden(i, t) {
                let current = w.current();
                s.sudden.add(current.d.into(), current.e.into());
                s.sudden_pages += u64::from(w.pages);
                continue;
            }
            s.armed += u32::from(w.pages);
            if !quiet {
                s.found.iter_mut().zip(w.found).for_each(|(sum, n)| *sum += u32::from(n));
                if !piece.huge && w.pages > 0 {
                    let current = w.current();
                    s.fresh.add(current.d.into(), current.e.into());
                }
            }
        }
        // One bit for all of a huge page.
        if piece.huge && e_all > 0.0 {
            s.all.add(d_all * bits.alike, e_all * bits.alike);
        }
        s
    }

    /// Counts what of some windows is resident, and what of that cannot be seen.
    fn add_resident(&mut self, piece: &Piece, windows: Range<usize>) {
        let hides = piece.hides();
        for i in windows {
            let resident = u64::from(piece.resident_in(i));
            self.resident += resident;
            if hides {
                let told = u64::from(piece.window(i).reported);
                for (why, mask) in piece.hidden() {
                    let hidden = u64::from(piece.count(&mask, i)).saturating_sub(told);
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
    /// Of a piece of which something was touched since it was cleared.
    fn of(piece: &Piece, t: &ExposureTerms) -> Self {
        PieceSummary {
            rows: rows(piece, t),
            sums: PieceSums::of(piece, 0..piece.nr_windows(), true, t),
            recent: piece.same_recent(t.recent),
        }
    }
}

/// Sums up the pieces that have changed since that was last done; says how many. What memory says that was not touched
/// since it was cleared depends on the time.
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
