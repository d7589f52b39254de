//! The true accesses on the machine.

use isotherm_core::{AddrRange, Nanos, PAGE_SIZE, Thresholds};

use crate::access::{LaidPattern, pages};
use crate::ground_truth::{GroundTruth, IntervalTruth, MachineKind, Stretch, TRUTH_VERSION};
use crate::space::AddressSpace;

/// The true accesses to the memory that is mapped now: exact, for any page and time.
///
/// They include accesses that cannot be observed.
#[derive(Debug, Clone, Copy)]
pub struct Truth<'a> {
    space: &'a AddressSpace,
}

/// Counts of a stretch in an interval.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    touches: f64,
    touched: u64,
    idle: u64,
}

impl<'a> Truth<'a> {
    pub(crate) fn new(space: &'a AddressSpace) -> Self {
        Truth { space }
    }

    /// When the page that contains `addr` was last touched, at `at` or before.
    #[must_use]
    pub fn last_touch(&self, addr: u64, at: Nanos) -> Option<Nanos> {
        let page = addr - addr % PAGE_SIZE;
        self.accesses(page).filter_map(|a| a.last_touch(page, Nanos(0), at)).max()
    }

    /// Expected touches per second of the page that contains `addr`, between `from` and `to`.
    #[must_use]
    pub fn rate_hz(&self, addr: u64, from: Nanos, to: Nanos) -> f64 {
        let page = addr - addr % PAGE_SIZE;
        let touches: f64 = self.accesses(page).map(|a| a.expected(page, from, to)).sum();
        touches / to.since(from).as_secs_f64()
    }

    /// The counts between `from` and `to` of stretches, each within one mapping. Touches are expected numbers,
    /// the other counts are exact.
    #[must_use]
    pub fn interval(
        &self,
        stretches: &[Stretch],
        phase: &str,
        from: Nanos,
        to: Nanos,
    ) -> IntervalTruth {
        let counts: Vec<Counts> = stretches.iter().map(|s| self.counts(s, from, to)).collect();
        IntervalTruth {
            start_ns: from.0,
            end_ns: to.0,
            phase: phase.to_owned(),
            touches: counts.iter().map(|c| c.touches.round() as u64).collect(),
            touched: counts.iter().map(|c| c.touched).collect(),
            idle: counts.iter().map(|c| c.idle).collect(),
        }
    }

    /// All mapped memory, between `from` and `to`.
    #[must_use]
    pub fn ground(&self, from: Nanos, to: Nanos) -> GroundTruth {
        let stretches: Vec<Stretch> = self.stretches().collect();
        let mapped_at = self.space.areas.iter().map(|a| a.mapped_at.0).max();
        GroundTruth {
            schema_version: TRUTH_VERSION,
            workload: String::new(),
            seed: 0,
            machine: MachineKind::Simulated,
            populated_ns: mapped_at.unwrap_or(0),
            idle_ns: idle_ns(),
            intervals: vec![self.interval(&stretches, "", from, to)],
            stretches,
        }
    }

    fn counts(&self, stretch: &Stretch, from: Nanos, to: Nanos) -> Counts {
        let range = stretch.range();
        let accesses: Vec<&LaidPattern> =
            self.space.accesses.iter().filter(|a| a.range.intersect(&range).is_some()).collect();
        let area = self.space.areas.iter().find(|a| a.range.contains(range.start));
        let Some(mapped_at) = area.map(|a| a.mapped_at) else { return Counts::default() };
        let is_idle = |since: Nanos| to.0.saturating_sub(since.0) >= idle_ns();
        if accesses.is_empty() {
            let idle = if is_idle(mapped_at) { stretch.pages() } else { 0 };
            return Counts { idle, ..Counts::default() };
        }
        let mut counts = Counts::default();
        for page in pages(&range).step_by(usize::try_from(stretch.stride).unwrap_or(usize::MAX)) {
            let here = || accesses.iter().filter(|a| a.range.contains(page));
            counts.touches += here().map(|a| a.expected(page, from, to)).sum::<f64>();
            let last = here().filter_map(|a| a.last_touch(page, Nanos(0), to)).max();
            counts.touched += u64::from(last.is_some_and(|t| t > from));
            counts.idle += u64::from(is_idle(last.unwrap_or(mapped_at)));
        }
        counts
    }

    fn accesses(&self, page: u64) -> impl Iterator<Item = &'a LaidPattern> {
        self.space.accesses.iter().filter(move |a| a.range.contains(page))
    }

    /// The mapped memory, cut at the borders of mappings and patterns, and into single pages where pages have
    /// different expectations.
    fn stretches(&self) -> impl Iterator<Item = Stretch> + use<'a> {
        let space = self.space;
        let pieces = space.areas.iter().flat_map(move |area| {
            let part = area.range;
            let ends = space.accesses.iter().flat_map(|a| [a.range.start, a.range.end]);
            let mut cuts: Vec<u64> = ends.filter(|&c| part.contains(c)).collect();
            cuts.extend([part.start, part.end]);
            cuts.sort_unstable();
            cuts.dedup();
            let huge = area.memory.huge;
            cuts.windows(2).map(|w| (AddrRange::new(w[0], w[1]), huge)).collect::<Vec<_>>()
        });
        let cut =
            move |(piece, huge): (AddrRange, bool)| {
                let mut here = space.accesses.iter().filter(|a| a.range.contains(piece.start));
                let step = if here.all(LaidPattern::is_even) { piece.len() } else { PAGE_SIZE };
                (0..piece.len() / step).map(move |i| piece.start + i * step).map(move |start| {
                    Stretch { start, end: start + step, name: String::new(), stride: 1, huge }
                })
            };
        pieces.flat_map(cut)
    }
}

/// Minimum time for which an idle page was not touched: the cold age.
pub(crate) fn idle_ns() -> u64 {
    u64::try_from(Thresholds::default().cold_age.as_nanos()).unwrap_or(u64::MAX)
}
