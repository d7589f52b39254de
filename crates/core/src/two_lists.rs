//! The kernel's page cache in miniature: an inactive and an active list of pages, and a memory of evicted pages.
//!
//! The rules are those of Linux without MGLRU (`mm/vmscan.c`, `mm/workingset.c`, `folio_mark_accessed()`): a page
//! comes in on the inactive list. Its second read moves it to the active list. Reclaim takes the oldest inactive
//! page, and moves active pages back while the inactive list is the shorter one. A page that returns soon after
//! its eviction is active at once.

use crate::range::PAGE_SIZE;

/// Below this size both lists are equally long. Above, the inactive list may be shorter.
const EQUAL_LISTS: f64 = (1_u64 << 30) as f64;

/// Heads of the circular lists.
const INACTIVE: u32 = 0;
const ACTIVE: u32 = 1;
/// Node of the first page.
const FIRST_PAGE_NODE: u32 = 2;

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    next: u32,
    previous: u32,
    /// the list that it is in, if any
    list: Option<u32>,
    /// It was read once.
    is_referenced: bool,
    /// number of evictions and activations at its eviction
    evicted_at: Option<u64>,
}

/// A page cache of a fixed size. Pages are numbers from 0 on.
#[derive(Debug, Clone)]
pub(crate) struct TwoLists {
    nodes: Vec<Node>,
    lengths: [usize; 2],
    capacity: usize,
    /// bytes of a page
    page_size: f64,
    /// evictions and activations so far
    clock: u64,
    is_full: bool,
    /// the page that was evicted last
    evicted: Option<u32>,
}

impl TwoLists {
    /// An empty cache for `capacity` pages, each of which stands for `scale` pages of a real cache.
    #[must_use]
    pub fn new(capacity: usize, scale: f64) -> Self {
        let head = |at| Node { next: at, previous: at, ..Node::default() };
        TwoLists {
            nodes: vec![head(INACTIVE), head(ACTIVE)],
            lengths: [0, 0],
            capacity: capacity.max(1),
            page_size: scale * PAGE_SIZE as f64,
            clock: 0,
            is_full: false,
            evicted: None,
        }
    }

    /// Whether a page was evicted so far. Until then, the cache may be as large as all that was accessed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The page that was evicted since the last call. An access evicts at most one.
    pub fn take_evicted(&mut self) -> Option<u32> {
        self.evicted.take()
    }

    /// Reads a page; returns whether it was in the cache.
    pub fn read(&mut self, page: u32) -> bool {
        let at = self.node_of(page);
        let is_hit = self.nodes[at as usize].list.is_some();
        if !is_hit {
            let is_active = self.is_refault(at);
            self.insert(at, if is_active { ACTIVE } else { INACTIVE });
            self.clock += u64::from(is_active);
        }
        let node = &mut self.nodes[at as usize];
        if !node.is_referenced {
            node.is_referenced = true;
        } else if node.list == Some(INACTIVE) {
            node.is_referenced = false;
            self.remove(at);
            self.put(at, ACTIVE);
            self.clock += 1;
        }
        is_hit
    }

    /// Writes a page: it comes into the cache, but writes leave no mark on it.
    pub fn write(&mut self, page: u32) {
        let at = self.node_of(page);
        if self.nodes[at as usize].list.is_none() {
            self.insert(at, INACTIVE);
        }
    }

    fn node_of(&mut self, page: u32) -> u32 {
        let at = page + FIRST_PAGE_NODE;
        if self.nodes.len() <= at as usize {
            self.nodes.resize(at as usize + 1, Node::default());
        }
        at
    }

    /// Whether an absent page was evicted so lately that it would still be there if the active list were shorter.
    fn is_refault(&self, at: u32) -> bool {
        let evicted_at = self.nodes[at as usize].evicted_at;
        evicted_at.is_some_and(|then| self.clock - then <= self.lengths[ACTIVE as usize] as u64)
    }

    fn insert(&mut self, at: u32, list: u32) {
        if self.lengths[0] + self.lengths[1] >= self.capacity {
            self.evict();
        }
        self.put(at, list);
    }

    fn evict(&mut self) {
        self.is_full = true;
        while self.is_inactive_low() {
            let oldest = self.nodes[ACTIVE as usize].previous;
            self.remove(oldest);
            self.put(oldest, INACTIVE);
        }
        let oldest = self.nodes[INACTIVE as usize].previous;
        self.remove(oldest);
        self.clock += 1;
        self.evicted = oldest.checked_sub(FIRST_PAGE_NODE);
        let node = &mut self.nodes[oldest as usize];
        (node.is_referenced, node.evicted_at) = (false, Some(self.clock));
    }

    fn is_inactive_low(&self) -> bool {
        let [inactive, active] = self.lengths;
        let bytes = (inactive + active) as f64 * self.page_size;
        // The kernel counts whole GiB, and takes the whole part of the root.
        let gib = (bytes / EQUAL_LISTS).floor();
        let ratio = if gib > 0.0 { (10.0 * gib).sqrt().floor() } else { 1.0 };
        inactive == 0 || (inactive as f64) * ratio < active as f64
    }

    fn put(&mut self, at: u32, list: u32) {
        let next = std::mem::replace(&mut self.nodes[list as usize].next, at);
        self.nodes[next as usize].previous = at;
        let node = &mut self.nodes[at as usize];
        (node.next, node.previous, node.list) = (next, list, Some(list));
        self.lengths[list as usize] += 1;
    }

    fn remove(&mut self, at: u32) {
        let Node { next, previous, list, .. } = self.nodes[at as usize];
        let Some(list) = list else { return };
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
        self.nodes[at as usize].list = None;
        self.lengths[list as usize] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_read_again_survive_a_scan() {
        let mut cache = TwoLists::new(100, 1.0);
        for _ in 0..2 {
            (0..40).for_each(|page| _ = cache.read(page));
        }
        assert!(!cache.is_full());
        (1000..3000).for_each(|page| assert!(!cache.read(page)));
        assert!(cache.is_full());
        assert_eq!((0..40).filter(|page| cache.read(*page)).count(), 40);
    }

    #[test]
    fn written_pages_come_in_and_go_first() {
        let mut cache = TwoLists::new(100, 1.0);
        (0..10).for_each(|page| (0..5).for_each(|_| cache.write(page)));
        assert!(cache.read(0), "it is in the cache");
        (1000..1100).for_each(|page| _ = cache.read(page));
        assert_eq!((0..10).filter(|page| cache.read(*page)).count(), 0);
    }

    /// Pages found in the last of 20 rounds through `pages`, after 40 other pages were read `times` times.
    fn found_in_loop(times: u32, pages: std::ops::Range<u32>) -> usize {
        let mut cache = TwoLists::new(100, 1.0);
        (0..times).for_each(|_| (0..40).for_each(|page| _ = cache.read(page)));
        let round = |_| pages.clone().filter(|page| cache.read(*page)).count();
        (0..20).map(round).last().unwrap_or(0)
    }

    #[test]
    fn refaults_take_the_place_of_active_pages() {
        assert_eq!(found_in_loop(2, 1000..1090), 90, "it fits without them");
        assert_eq!(found_in_loop(1, 1000..1110), 0, "a loop that never fits is evicted in turn");
    }

    #[test]
    fn of_large_caches_the_inactive_list_is_shorter() {
        let active = |scale: f64| {
            let mut cache = TwoLists::new(1000, scale);
            (0..2000_u32).for_each(|i| {
                let page = i % 900;
                cache.read(page);
                cache.read(page);
            });
            (5000..9000).for_each(|page| _ = cache.read(page));
            cache.lengths[ACTIVE as usize]
        };
        // 4 MiB, and 16 GiB: the square root of 160 is 12.
        assert_eq!((active(1.0), active(4096.0)), (500, 900));
    }
}
