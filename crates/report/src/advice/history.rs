//! Second pass: what each block has gone through.

use std::time::Duration;

use isotherm_core::scheme::mean_hz;
use isotherm_core::{AddrRange, Heat, RegionView, Thresholds};

/// Idle times that are told apart, ascending. Memory has reached as many of them as its level says.
#[derive(Debug, Clone)]
pub(super) struct Ladder(Vec<Duration>);

impl Ladder {
    pub(super) fn new(mut steps: Vec<Duration>) -> Self {
        steps.sort_unstable();
        steps.dedup();
        Ladder(steps)
    }

    pub(super) fn steps(&self) -> &[Duration] {
        &self.0
    }

    /// The level of memory that has been idle for this long.
    pub(super) fn level(&self, idle: Duration) -> usize {
        self.0.partition_point(|&step| step <= idle)
    }

    /// How many steps a region is cold by, if each were where cold begins. A region that is hot in
    /// part is not idle.
    fn reached(&self, r: &RegionView, hot_hz: f64) -> usize {
        let is_cold = |&&step: &&Duration| {
            let t = Thresholds { hot_hz, cold_age: step };
            r.heat(&t) == Heat::Cold && f64::from(r.rate.hz) < hot_hz
        };
        self.0.iter().take_while(is_cold).count()
    }
}

/// What a snapshot says of a region, for each byte of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact {
    /// part of it that is resident and can be seen
    pub(super) seen: f64,
    /// does that hold for half of what is resident, or more
    is_unknown: bool,
    /// part of it that is there and touched
    touched: f64,
    /// is it hot
    hot: bool,
    /// was it touched in the snapshot
    accessed: bool,
    /// touches of its seen pages a second
    pub(super) hz: f64,
    pub(super) level: usize,
    age: Duration,
}

impl Fact {
    pub(super) fn new(r: &RegionView, sample: Duration, hot_hz: f64, ladder: &Ladder) -> Self {
        let part = |bp: u64| bp.min(10_000) as f64 / 1e4;
        let resident = part(r.resident_bp.into());
        let unknown = part(r.unknown_bp.total()).min(resident);
        let seen = resident - unknown;
        let hot = r.heat(&Thresholds { hot_hz, ..Thresholds::default() }) == Heat::Hot;
        let accessed = r.accesses_bp > 0 || hot;
        Fact {
            seen,
            is_unknown: unknown > 0.0 && unknown >= seen,
            touched: if accessed { seen * part(r.touched_bp.into()) } else { 0.0 },
            hot,
            accessed,
            hz: mean_hz(r, sample),
            level: ladder.reached(r, hot_hz),
            age: r.age,
        }
    }
}

/// What a snapshot says of a block: sums over the regions that lie in it, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    length: f64,
    seen: f64,
    is_unknown: bool,
    touched: f64,
    hot: f64,
    touches: f64,
    accessed: bool,
    level: usize,
    age: Duration,
}

impl Now {
    pub(super) fn new() -> Self {
        Now {
            length: 0.0,
            seen: 0.0,
            is_unknown: false,
            touched: 0.0,
            hot: 0.0,
            touches: 0.0,
            accessed: false,
            level: usize::MAX,
            age: Duration::MAX,
        }
    }

    pub(super) fn add(&mut self, fact: &Fact, part: AddrRange) {
        let bytes = part.len() as f64;
        self.length += bytes;
        self.seen += fact.seen * bytes;
        self.is_unknown |= fact.is_unknown;
        self.touched += fact.touched * bytes;
        self.hot += if fact.hot { fact.seen * bytes } else { 0.0 };
        self.touches += fact.hz * fact.seen * bytes;
        if fact.seen > 0.0 {
            self.accessed |= fact.accessed;
            self.level = self.level.min(fact.level);
            self.age = self.age.min(fact.age);
        }
    }
}

/// What a block has gone through.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Block {
    /// that it was there and could be seen
    pub(super) seen_s: f64,
    /// of these, that it was hot
    pub(super) hot_s: f64,
    /// of all, times the part of it that was touched
    pub(super) touched_s: f64,
    /// seen bytes times seconds
    pub(super) byte_s: f64,
    /// touches a second of these, summed
    pub(super) touches: f64,
    /// steps of idle time that it has reached
    pub(super) level: usize,
    /// since the recording began, if it is idle for the least age
    pub(super) idle_since: Option<Duration>,
    /// times that it was touched after it was idle for the least age
    pub(super) returns: u32,
    /// in the last snapshot; a block is, if a region in it is
    pub(super) is_unknown: bool,
    /// seen bytes in the last snapshot
    pub(super) bytes: f64,
}

/// Memory that was touched after it had been idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Return {
    /// it had reached as many steps
    pub(super) from: usize,
    /// and has so many now
    pub(super) to: usize,
    pub(super) bytes: f64,
}

impl Block {
    /// A snapshot of `seconds` that ended `end` after the begin; idle for the least age is what has
    /// reached `least` steps.
    pub(super) fn push(
        &mut self,
        now: &Now,
        seconds: f64,
        end: Duration,
        least: usize,
    ) -> Option<Return> {
        self.bytes = now.seen;
        self.is_unknown = now.is_unknown;
        if self.is_unknown || now.seen <= 0.0 {
            // Whether it was touched nobody knows, or it was given back.
            (self.level, self.idle_since) = (0, None);
            return None;
        }
        self.seen_s += seconds;
        self.byte_s += now.seen * seconds;
        self.touches += now.touches * seconds;
        self.touched_s += now.touched / now.length * seconds;
        if now.hot * 2.0 > now.seen {
            self.hot_s += seconds;
        }
        let before = self.level;
        // Ages of regions that are joined are mixed: without a touch nothing becomes younger.
        self.level = if now.accessed { now.level } else { before.max(now.level) };
        if self.level < least {
            self.idle_since = None;
        } else if before < least {
            self.idle_since = Some(end.saturating_sub(now.age));
        }
        if self.level >= before {
            return None;
        }
        self.returns += u32::from(before >= least && self.level < least);
        Some(Return { from: before, to: self.level, bytes: now.touched })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{absent, region, unknown};
    use isotherm_core::Unknown;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn ladder() -> Ladder {
        Ladder::new(vec![S(30), S(5), S(10), S(10)])
    }

    fn now(regions: &[RegionView]) -> Now {
        let mut now = Now::new();
        for r in regions {
            now.add(&Fact::new(r, Duration::from_millis(20), 10.0, &ladder()), r.range);
        }
        now
    }

    fn idle(seconds: u64) -> RegionView {
        RegionView { age: S(seconds), ..region(0, 1 << 16, 0.0) }
    }

    #[test]
    fn a_level_is_reached_by_age_and_by_not_being_touched() {
        let levels = [4, 5, 10, 29, 30].map(|s| Fact::new(&idle(s), S(1), 10.0, &ladder()).level);
        assert_eq!(levels, [0, 1, 2, 2, 3]);
        // Of pages touched once in 200 s, 5 % are within 10 s, and 14 % within 30 s.
        let seldom = RegionView { age: S(60), ..region(0, 1 << 16, 0.005) };
        assert_eq!(Fact::new(&seldom, S(1), 10.0, &ladder()).level, 2);
        let in_part = RegionView { age: S(60), touched_bp: 300, ..region(0, 1 << 16, 50.0) };
        assert_eq!(Fact::new(&in_part, S(1), 10.0, &ladder()).level, 0);
    }

    #[test]
    fn what_is_touched_after_it_was_idle_has_come_back() {
        let mut block = Block::default();
        let mut push = |r: RegionView, end| block.push(&now(&[r]), 1.0, S(end), 2);
        assert_eq!(push(idle(40), 50), None);
        // Joined with what is younger: not a touch.
        assert_eq!(push(idle(3), 51), None);
        let back = Return { from: 3, to: 0, bytes: 65536.0 };
        assert_eq!(push(region(0, 1 << 16, 5.0), 52), Some(back));
        assert_eq!((block.returns, block.idle_since), (1, None));
        for r in [unknown(0, 1 << 16, Unknown::Shared), absent(0, 1 << 16)] {
            block.push(&now(&[idle(20)]), 1.0, S(60), 2);
            assert_eq!(block.idle_since, Some(S(40)));
            assert_eq!(block.push(&now(&[r]), 1.0, S(61), 2), None);
            assert_eq!((block.level, block.idle_since, block.returns), (0, None, 1));
        }
    }

    #[test]
    fn of_several_regions_in_a_block_the_least_idle_decides() {
        let half =
            |at: u64, r: RegionView| RegionView { range: AddrRange::new(at, at + (1 << 15)), ..r };
        let mixed = now(&[half(0, idle(60)), half(1 << 15, region(0, 0, 20.0))]);
        let mut block = Block::default();
        block.push(&mixed, 2.0, S(60), 2);
        assert_eq!((block.level, block.hot_s, block.touched_s), (0, 0.0, 1.0));
        assert!((block.touches / block.byte_s - 10.0).abs() < 1e-9);
    }
}
