//! From the policy's node to a page: `alloc_pages_mpol` and `alloc_pages_bulk_array_mempolicy` of
//! mm/mempolicy.c.

use super::bulk::Share;
use super::files::WeightFiles;
use super::policy::Mode;
use super::task::{Allowed, Task};
use super::weights::static_node;
use crate::alloc::{Allocated, OutOfMemory, Request};
use crate::lru::FrameId;
use crate::memory::{Backing, Memory};
use crate::nodes::NodeSet;

/// What an allocation is for: it decides by which rule pages are interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// a page of an address space, by its [`super::interleave_index`]
    Mapped(u64),
    /// whatever has no place in one: the page cache, the kernel's own
    Other,
}

impl Task {
    /// The node that is asked first for a page, by who runs on the node `local`.
    pub fn node(
        &mut self,
        what: Use,
        local: usize,
        weights: &WeightFiles,
        meanwhile: impl FnMut(&mut Allowed),
    ) -> usize {
        let policy = *self.allowed().policy();
        let node = match (policy.mode(), what) {
            (Mode::Local | Mode::Bind, _) => None,
            (Mode::Preferred, _) => policy.nodes().first(),
            (Mode::Interleave, Use::Other) => self.take_interleaved(meanwhile),
            (Mode::Interleave, Use::Mapped(index)) => nth(policy.nodes(), index, |_| 1),
            (Mode::WeightedInterleave, Use::Other) => {
                self.take_weighted(|n| weights.weight(n), meanwhile)
            }
            (Mode::WeightedInterleave, Use::Mapped(index)) => {
                nth(policy.nodes(), index, |n| weights.weight(n))
            }
        };
        node.unwrap_or(local)
    }

    /// The nodes that a page may come from: those of a bind, if any of them is allowed; else all
    /// that are. Interleave only says where to begin.
    #[must_use]
    pub fn usable(&self) -> NodeSet {
        let (policy, allowed) = (self.allowed().policy(), self.allowed().nodes());
        let bound = policy.nodes().and(allowed);
        let binds = policy.mode() == Mode::Bind && !bound.is_empty();
        if binds { bound } else { allowed }
    }

    /// Gives out a page by the task's policy: of the node that it names, or, if that has none, of
    /// the next one in its zonelist that is allowed. If there is none, and the allowed nodes have
    /// changed since, it is tried again.
    ///
    /// The request's node is the one that the task runs on.
    ///
    /// # Errors
    /// If no allowed node has a page.
    pub fn allocate(
        &mut self,
        memory: &mut Memory,
        request: Request,
        what: Use,
        weights: &WeightFiles,
        backing: &mut impl Backing,
        mut meanwhile: impl FnMut(&mut Allowed),
    ) -> Result<Allocated, OutOfMemory> {
        let node = self.node(what, request.node, weights, &mut meanwhile);
        let request = Request { node, ..request };
        loop {
            let before = self.allowed().sequence();
            let result = memory.allocate_on(request, self.usable(), backing);
            if result.is_ok() {
                return result;
            }
            meanwhile(self.allowed_mut());
            if self.allowed().sequence() == before {
                return result;
            }
        }
    }

    /// Gives out many pages that have no place in an address space. What a node is short of, but
    /// for one page, is not made up for elsewhere: there may be fewer than asked for.
    pub fn allocate_bulk(
        &mut self,
        memory: &mut Memory,
        request: Request,
        pages: u64,
        weights: &WeightFiles,
        backing: &mut impl Backing,
        mut meanwhile: impl FnMut(&mut Allowed),
    ) -> Vec<FrameId> {
        let shares = match self.allowed().policy().mode() {
            Mode::WeightedInterleave => {
                self.bulk_weighted(pages, |n| weights.weight(n), &mut meanwhile)
            }
            Mode::Interleave => self.bulk_interleaved(pages, &mut meanwhile),
            Mode::Local | Mode::Preferred | Mode::Bind => {
                let node = self.node(Use::Other, request.node, weights, &mut meanwhile);
                vec![Share { node, pages }]
            }
        };
        let mut frames = Vec::new();
        for Share { node, pages } in shares {
            let request = Request { node, ..request };
            frames.extend(memory.allocate_share(request, self.usable(), pages, backing));
        }
        frames
    }
}

impl Memory {
    /// Many pages of one node at once, if it has a zone that is still above its low mark then; else
    /// a single one, from wherever: `__alloc_pages_bulk`.
    fn allocate_share(
        &mut self,
        request: Request,
        nodes: NodeSet,
        pages: u64,
        backing: &mut impl Backing,
    ) -> Vec<FrameId> {
        let local = self.usable_zones(&request, nodes).next().map(|z| self.zones()[z].node);
        let only = local.map_or(NodeSet::EMPTY, NodeSet::single);
        let more = i64::try_from(pages).unwrap_or(i64::MAX);
        let has = self.usable_zones(&request, only).any(|z| {
            let zone = &self.zones()[z];
            zone.is_above(zone.watermarks.low.saturating_add(more), request.class)
        });
        let (nodes, pages) = if has { (only, pages) } else { (nodes, 1) };
        let given = (0..pages).map_while(|_| self.allocate_on(request, nodes, backing).ok());
        given.map(|page| page.frame).collect()
    }
}

/// The node of the page with this index.
fn nth(nodes: NodeSet, index: u64, weight: impl Fn(usize) -> u8) -> Option<usize> {
    let weighted = |n: usize| Some((u32::try_from(n).ok()?, weight(n)));
    let nodes: Vec<(u32, u8)> = nodes.iter().filter_map(weighted).collect();
    static_node(index, &nodes).and_then(|n| usize::try_from(n).ok())
}
