//! Second pass: the history of each block.

use std::time::Duration;

use isotherm_core::AddrRange;

use super::idle::{Ladder, RegionBlockState};

/// State of a block in one snapshot: sums over the regions in it, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockSums {
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

impl BlockSums {
    pub(super) fn new() -> Self {
        BlockSums {
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

    pub(super) fn add(&mut self, fact: &RegionBlockState, part: AddrRange) {
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

/// History of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Block {
    /// seconds for which it was resident and observable
    pub(super) seen_s: f64,
    /// seconds of these for which it was hot
    pub(super) hot_s: f64,
    /// sum over snapshots of seconds times the share of the block that was touched
    pub(super) touched_s: f64,
    /// the maximum of that share in a snapshot
    pub(super) peak: f64,
    /// observable bytes times seconds
    pub(super) byte_s: f64,
    /// touches: rate times these, summed
    pub(super) touches: f64,
    /// number of idle times of the ladder that it has reached
    pub(super) level: usize,
    /// last time at which it was touched or unobservable, since the start of the recording
    busy: Option<Duration>,
    /// start of its idle time, since the start of the recording, if it is idle for the minimum age
    pub(super) idle_since: Option<Duration>,
    /// times that it was touched after an idle time of at least the minimum age
    pub(super) returns: u32,
    /// in the last snapshot; a block is unknown if a region in it is
    pub(super) is_unknown: bool,
    /// observable bytes in the last snapshot
    pub(super) bytes: f64,
}

/// Memory that was touched after an idle time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ReturnedBytes {
    /// number of idle times that it had reached
    pub(super) level: usize,
    pub(super) bytes: f64,
}

impl Block {
    /// Adds a snapshot of `seconds` that ended at `end` since the start of the recording.
    pub(super) fn push(
        &mut self,
        now: &BlockSums,
        seconds: f64,
        end: Duration,
        ladder: &Ladder,
    ) -> Option<ReturnedBytes> {
        self.bytes = now.seen;
        self.is_unknown = now.is_unknown;
        if self.is_unknown || now.seen <= 0.0 {
            // It was freed, or it is unknown whether it was touched.
            (self.level, self.idle_since, self.busy) = (0, None, Some(end));
            return None;
        }
        self.seen_s += seconds;
        self.byte_s += now.seen * seconds;
        self.touches += now.touches * seconds;
        let touched = now.touched / now.length;
        self.touched_s += touched * seconds;
        self.peak = self.peak.max(touched);
        if now.hot * 2.0 > now.seen {
            self.hot_s += seconds;
        }
        if now.accessed {
            let level = std::mem::take(&mut self.level);
            (self.idle_since, self.busy) = (None, Some(end));
            self.returns += u32::from(level >= ladder.least);
            return (level > 0).then_some(ReturnedBytes { level, bytes: now.touched });
        }
        // Merged regions have a mean of their ages. Memory that was touched is idle at most since that touch,
        // and memory without a touch never becomes younger.
        let idle = self.busy.map_or(now.age, |busy| now.age.min(end.saturating_sub(busy)));
        self.level = self.level.max(now.level.min(ladder.level(idle)));
        if self.level >= ladder.least {
            self.idle_since.get_or_insert(end.saturating_sub(idle));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{absent, region, unknown};
    use isotherm_core::{RegionView, Unknown};

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn ladder() -> Ladder {
        Ladder::new(vec![S(30), S(5), S(10)], S(10))
    }

    fn now(regions: &[RegionView]) -> BlockSums {
        let mut now = BlockSums::new();
        for r in regions {
            now.add(&RegionBlockState::new(r, Duration::from_millis(20), 10.0, &ladder()), r.range);
        }
        now
    }

    fn idle(seconds: u64) -> RegionView {
        RegionView { age: S(seconds), ..region(0, 1 << 16, 0.0) }
    }

    #[test]
    fn a_touch_after_idleness_is_a_return() {
        let mut block = Block::default();
        let push = |block: &mut Block, r, end| block.push(&now(&[r]), 1.0, S(end), &ladder());
        assert_eq!(push(&mut block, idle(40), 50), None);
        // Joined with younger memory, which is not a touch.
        assert_eq!(push(&mut block, idle(3), 51), None);
        // One page of a hundred is no touch either.
        let one = RegionView { touched_bp: 100, ..region(0, 1 << 16, 50.0) };
        assert_eq!(push(&mut block, one, 51), None);
        let back = push(&mut block, region(0, 1 << 16, 5.0), 52).unwrap();
        assert_eq!((back.level, back.bytes.round()), (3, 65536.0));
        assert_eq!((block.returns, block.idle_since), (1, None));
        let gone = [unknown(0, 1 << 16, Unknown::Shared), absent(0, 1 << 16)];
        for (r, end) in gone.into_iter().zip([100, 200]) {
            push(&mut block, idle(40), end);
            assert_eq!(block.idle_since, Some(S(end - 40)));
            assert_eq!(push(&mut block, r, end + 1), None);
            assert_eq!((block.level, block.idle_since, block.returns), (0, None, 1));
        }
    }

    #[test]
    fn returned_memory_is_idle_after_the_same_time() {
        let mut block = Block::default();
        let seldom = |hz: f32| {
            let accesses_bp = u32::from(hz > 0.0);
            RegionView { age: S(100), accesses_bp, ..region(0, 1 << 16, hz) }
        };
        let levels =
            [(0.0, 100), (0.01, 101), (0.0, 106), (0.0, 110), (0.0, 111)].map(|(hz, end)| {
                block.push(&now(&[seldom(hz)]), 1.0, S(end), &ladder());
                (block.level, block.returns)
            });
        assert_eq!(levels, [(3, 0), (0, 1), (1, 1), (1, 1), (2, 1)]);
        assert_eq!(block.idle_since, Some(S(101)));
    }

    #[test]
    fn of_several_regions_in_a_block_the_least_idle_decides() {
        let half =
            |at: u64, r: RegionView| RegionView { range: AddrRange::new(at, at + (1 << 15)), ..r };
        let mixed = now(&[half(0, idle(60)), half(1 << 15, region(0, 0, 20.0))]);
        let mut block = Block::default();
        block.push(&mixed, 2.0, S(60), &ladder());
        assert_eq!((block.level, block.hot_s, block.touched_s), (0, 0.0, 1.0));
        assert!((block.touches / block.byte_s - 10.0).abs() < 1e-9);
    }
}
