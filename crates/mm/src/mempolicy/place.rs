//! Allocates pages by the node of a policy: `alloc_pages_mpol` of mm/mempolicy.c.

use super::files::WeightFilesModel;
use super::policy::Mode;
use super::task::{Allowed, Task};
use super::weights::static_node;
use crate::alloc::{AllocRequest, Allocated, OutOfMemory};
use crate::memory::{Memory, PageOwner};
use crate::nodes::NodeSet;

/// The use of an allocated page: it decides which rule of interleaving applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// a page of an address space, with its [`super::interleave_index`]
    Mapped(u64),
    /// a page outside address spaces: page cache, memory of the kernel
    Other,
}

impl Task {
    /// The preferred node for a page, for a task that runs on node `local`.
    pub fn node(
        &mut self,
        what: Use,
        local: usize,
        weights: &WeightFilesModel,
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

    /// The nodes that a page may come from: the allowed nodes of a bind policy, if there are any; otherwise
    /// all allowed nodes. Interleaving only selects the preferred node.
    #[must_use]
    pub fn usable(&self) -> NodeSet {
        let (policy, allowed) = (self.allowed().policy(), self.allowed().nodes());
        let bound = policy.nodes().and(allowed);
        let binds = policy.mode() == Mode::Bind && !bound.is_empty();
        if binds { bound } else { allowed }
    }

    /// Allocates a page by the task's policy: from the preferred node, or, if that has no page, from the next
    /// allowed node in its zonelist. If no node has a page and the allowed nodes have changed in the
    /// meantime, it tries again.
    ///
    /// The request's node is the node that the task runs on.
    ///
    /// # Errors
    /// If no allowed node has a page.
    pub fn allocate(
        &mut self,
        memory: &mut Memory,
        request: AllocRequest,
        what: Use,
        weights: &WeightFilesModel,
        backing: &mut impl PageOwner,
        mut meanwhile: impl FnMut(&mut Allowed),
    ) -> Result<Allocated, OutOfMemory> {
        let node = self.node(what, request.node, weights, &mut meanwhile);
        let request = AllocRequest { node, ..request };
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
}

/// The node of the page with this index.
fn nth(nodes: NodeSet, index: u64, weight: impl Fn(usize) -> u8) -> Option<usize> {
    let weighted = |n: usize| Some((u32::try_from(n).ok()?, weight(n)));
    let nodes: Vec<(u32, u8)> = nodes.iter().filter_map(weighted).collect();
    static_node(index, &nodes).and_then(|n| usize::try_from(n).ok())
}
