//! Background work while tasks run: kswapd, swap, and events that are due.

use isotherm_mm::ReclaimStats;

use super::owners::Owner;
use super::system::{Actor, PagedMachine};
use super::writeback::DirtyLimits;

/// Interval at which CPUs fold their counters, in ns.
const FOLD_NS: u64 = 1_000_000_000;

impl PagedMachine {
    /// Lets the kswapds work until `now`, and handles events that are due by then.
    pub(super) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        self.memory.set_now(self.now);
        for node in 0..self.kswapd_at.len() {
            self.advance_kswapd(node);
        }
        if self.now >= self.folded_at + FOLD_NS {
            self.folded_at = self.now;
            self.memory.fold_counters();
        }
        if let Some(ages) = &mut self.ages {
            self.memory.drain_departures().for_each(|d| ages.push(&d));
        }
        self.settle_swap();
    }

    fn advance_kswapd(&mut self, node: usize) {
        let speed = u64::from(self.spec.costs.kswapd_pages_s);
        if !self.memory.is_kswapd_awake(node) {
            self.kswapd_at[node] = self.now;
            return;
        }
        let time = self.now.saturating_sub(self.kswapd_at[node]);
        let pages = u128::from(time) * u128::from(speed) / 1_000_000_000;
        let pages = u64::try_from(pages).unwrap_or(u64::MAX);
        if pages == 0 {
            return;
        }
        let work = self.memory.run_kswapd(node, pages, &mut self.owners);
        let busy = self.scan_ns(work) + self.swap_debt();
        self.counts.kswapd_ns += busy;
        // Work beyond the available time reduces the time of the next turn.
        self.kswapd_at[node] = self.now.max(self.kswapd_at[node] + busy);
    }

    /// Adjusts the number of pages that hold compressed pages, as far as memory is available.
    pub(super) fn settle_swap(&mut self) {
        let Some(swap) = &self.owners.swap else { return };
        let (wanted, has) = (swap.pool_wanted(), swap.pool.len() as u64);
        for _ in has..wanted {
            let mut kernel = Actor { cpu: 0, now: self.now };
            let owner = Owner::File(0, 0);
            let Ok(frame) = self.allocate(&mut kernel, None, owner, false) else { break };
            if let Some(swap) = &mut self.owners.swap {
                swap.pool.push(frame);
            }
        }
        for _ in wanted..has {
            let page = self.owners.swap.as_mut().and_then(|s| s.pool.pop());
            page.into_iter().for_each(|frame| self.memory.free(0, frame));
        }
    }

    /// The present limits on dirty pages.
    pub(super) fn dirty_limits(&self) -> DirtyLimits {
        let zones = self.memory.zones().iter();
        DirtyLimits::of(zones.map(|z| (z.free.read() - z.watermarks.high).max(0) + z.file).sum())
    }

    pub(super) fn scan_ns(&self, work: ReclaimStats) -> u64 {
        work.scanned * 1_000_000_000 / u64::from(self.spec.costs.kswapd_pages_s)
    }

    pub(super) fn swap_debt(&mut self) -> u64 {
        self.owners.swap.as_mut().map_or(0, |s| std::mem::take(&mut s.owed_ns))
    }
}
