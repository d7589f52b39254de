//! kswapd: background reclaim, one per node. `balance_pgdat` of mm/vmscan.c, in steps.

use crate::alloc::AllocRequest;
use crate::layout::ZoneKind;
use crate::memory::{Memory, PageOwner};
use crate::nodes::NodeSet;
use crate::reclaim::{CLUSTER, FIRST_PRIORITY, ReclaimStats, Reclaimer, Shrink};
use crate::rules::{LruScope, ZoneBalance};

/// The kswapd of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kswapd {
    /// the kind of zone for which it was started; `None` while it sleeps
    class: Option<ZoneKind>,
    pass: Option<Pass>,
}

/// One pass over the zones below their watermark, at one priority.
#[derive(Debug, Clone)]
struct Pass {
    priority: u32,
    /// zones left to shrink, the next one last
    zones: Vec<usize>,
    /// the highest zone below its watermark
    class: ZoneKind,
    shrink: Option<Shrink>,
    reclaimed: u64,
    /// no zone was scanned to the planned extent
    raise: bool,
}

impl Memory {
    /// Whether a node's kswapd was started and has not finished.
    #[must_use]
    pub fn is_kswapd_awake(&self, node: usize) -> bool {
        self.kswapds.get(node).is_some_and(|k| k.class.is_some())
    }

    /// Starts the kswapd of each node in the zonelist. With lists per zone: if a zone of the node is below its
    /// high watermark. With lists per node: if no zone of the node is above it.
    pub(crate) fn wake_kswapds(&mut self, request: &AllocRequest, nodes: NodeSet) {
        for i in 0..self.zonelist(request.node, request.class).len() {
            let zone = &self.zones[self.zonelists[request.node][request.class.index()][i]];
            let node = zone.node;
            let enough = match self.rules.lru {
                LruScope::Zone => zone.is_balanced(0, ZoneKind::Dma),
                LruScope::Node => self.is_node_balanced(node, request.class),
            };
            if enough || !nodes.contains(node) || self.is_kswapd_awake(node) {
                continue;
            }
            self.kswapds[node].class = Some(request.class);
            self.stats.wakeups += 1;
            self.set_pressure(node, true);
        }
    }

    /// Lets a node's kswapd scan about `pages` pages, if it is awake. Returns the resulting counters.
    pub fn run_kswapd(
        &mut self,
        node: usize,
        pages: u64,
        backing: &mut impl PageOwner,
    ) -> ReclaimStats {
        let mut work = ReclaimStats::default();
        // Each step counts as at least one page, so that the loop terminates.
        let mut spent = 0;
        while spent < pages && self.is_kswapd_awake(node) {
            let step = self.kswapd_step(node, backing);
            spent += step.scanned.max(1);
            work += step;
        }
        work
    }

    fn kswapd_step(&mut self, node: usize, backing: &mut impl PageOwner) -> ReclaimStats {
        let Some(class) = self.kswapds[node].class else { return ReclaimStats::default() };
        let Some(mut pass) = self.kswapds[node].pass.take() else {
            self.kswapds[node].pass = self.begin_pass(node, class, FIRST_PRIORITY, backing);
            if self.kswapds[node].pass.is_none() {
                self.sleep(node);
            }
            return ReclaimStats::default();
        };
        let Some(mut shrink) = pass.shrink.take().or_else(|| self.next_shrink(&mut pass)) else {
            self.kswapds[node].pass = self.next_pass(node, class, &pass, backing);
            return ReclaimStats::default();
        };
        let before = shrink.done;
        let more = self.shrink_step(&mut shrink, Reclaimer::Kswapd, backing);
        let work = ReclaimStats {
            scanned: shrink.done.scanned - before.scanned,
            reclaimed: shrink.done.reclaimed - before.reclaimed,
        };
        pass.reclaimed += work.reclaimed;
        if more {
            pass.shrink = Some(shrink);
        } else {
            pass.raise &= shrink.done.scanned < shrink.to_reclaim;
        }
        self.kswapds[node].pass = Some(pass);
        work
    }

    /// The zones up to the highest one below its watermark; `None` if there is none.
    fn begin_pass(
        &mut self,
        node: usize,
        class: ZoneKind,
        priority: u32,
        backing: &mut impl PageOwner,
    ) -> Option<Pass> {
        if self.is_node_balanced(node, class) {
            return None;
        }
        let mut zones: Vec<usize> =
            (0..self.zones.len()).filter(|&z| self.zones[z].node == node).collect();
        for &z in &zones {
            self.age_anon(self.lruvec_of(z), backing);
        }
        let class = match self.rules.lru {
            LruScope::Zone => {
                let in_need = |&z: &usize| {
                    let zone = &self.zones[z];
                    let sensible = priority == FIRST_PRIORITY || zone.is_reclaimable();
                    sensible && !zone.is_balanced(0, ZoneKind::Dma)
                };
                let highest = zones.iter().copied().rev().find(in_need)?;
                zones.retain(|&z| z <= highest);
                self.zones[highest].kind
            }
            // The node has a single set of lists.
            LruScope::Node => {
                zones.truncate(1);
                class
            }
        };
        zones.reverse();
        Some(Pass { priority, zones, class, shrink: None, reclaimed: 0, raise: true })
    }

    /// Plans the scan of the next zone in the pass that needs it: `kswapd_shrink_zone`.
    fn next_shrink(&self, pass: &mut Pass) -> Option<Shrink> {
        while let Some(z) = pass.zones.pop() {
            let zone = &self.zones[z];
            let per_node = self.rules.lru == LruScope::Node;
            if !per_node {
                if pass.priority != FIRST_PRIORITY && !zone.is_reclaimable() {
                    continue;
                }
                if self.is_left_alone(z, pass.class) {
                    pass.raise = false;
                    continue;
                }
            }
            let target = |z: usize| self.zones[z].watermarks.high.max(CLUSTER).unsigned_abs();
            let to_reclaim = if per_node {
                let up_to = |&z: &usize| {
                    self.zones[z].node == zone.node && self.zones[z].kind <= pass.class
                };
                (0..self.zones.len()).filter(up_to).map(target).sum()
            } else {
                target(z)
            };
            return Some(self.shrink(self.lruvec_of(z), pass.priority, pass.class, to_reclaim));
        }
        None
    }

    fn is_left_alone(&self, zone: usize, class: ZoneKind) -> bool {
        let z = &self.zones[zone];
        match self.rules.balance {
            ZoneBalance::GapAndReserve => z.is_balanced(z.balance_gap(), class),
            ZoneBalance::HighOnly => z.is_balanced(0, ZoneKind::Dma),
        }
    }

    /// The next pass, with increased effort if this one made little progress. `None` if all zones are
    /// balanced, or if this pass had the greatest effort. In the second case, kswapd starts again with the
    /// least effort, unless the node is balanced or reclaim is hopeless.
    fn next_pass(
        &mut self,
        node: usize,
        class: ZoneKind,
        pass: &Pass,
        backing: &mut impl PageOwner,
    ) -> Option<Pass> {
        let harder = pass.raise || pass.reclaimed == 0;
        let priority = pass.priority - u32::from(harder);
        if priority >= 1
            && let Some(pass) = self.begin_pass(node, class, priority, backing)
        {
            return Some(pass);
        }
        if self.is_node_balanced(node, class) || self.is_node_hopeless(node) {
            self.sleep(node);
        }
        None
    }

    /// `pgdat_balanced`: with lists per zone, all zones must have enough free pages; with lists per node, one
    /// zone is sufficient.
    fn is_node_balanced(&self, node: usize, class: ZoneKind) -> bool {
        let mut zones = self.zones.iter().filter(|z| z.node == node && z.kind <= class);
        match self.rules.lru {
            LruScope::Zone => zones.all(|z| !z.is_reclaimable() || z.is_balanced(0, ZoneKind::Dma)),
            LruScope::Node => zones.any(|z| z.is_balanced(0, class)),
        }
    }

    fn is_node_hopeless(&self, node: usize) -> bool {
        self.zones.iter().filter(|z| z.node == node).all(|z| !z.is_reclaimable())
    }

    fn sleep(&mut self, node: usize) {
        self.kswapds[node] = Kswapd::default();
        self.set_pressure(node, false);
    }

    fn set_pressure(&mut self, node: usize, awake: bool) {
        if self.rules.drift {
            for zone in self.zones.iter_mut().filter(|z| z.node == node) {
                zone.set_pressure(self.cpus, awake);
            }
        }
    }
}
