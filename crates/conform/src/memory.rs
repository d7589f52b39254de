//! Memory of our own, and the nodes on which it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_linux::sys::{Arena, ArenaKind, NodeMask, PolicyMode, page_nodes, set_policy};
use isotherm_mm::mempolicy::NodeWeights;

use crate::Outcome;

/// Base pages. The first few pages of the mapping are not used, so that the memory does not start at the start
/// of a round.
pub struct BasePages {
    arena: Arena,
    first: u64,
    pages: u64,
}

impl BasePages {
    /// `pages` untouched pages of anonymous memory, starting at an odd page of the mapping.
    pub fn new(pages: u64) -> Result<Self, String> {
        Self::mapped_by(Arena::map, pages, ArenaKind::Base)
    }

    /// Like [`BasePages::new`], but a forked child inherits the memory.
    pub fn inherited(pages: u64) -> Result<Self, String> {
        Self::mapped_by(Arena::map, pages, ArenaKind::Inherited)
    }

    /// Like [`BasePages::new`], in a file in memory.
    pub fn of_file(pages: u64) -> Result<Self, String> {
        Self::mapped_by(Arena::map_file, pages, ArenaKind::Base)
    }

    fn mapped_by(
        map: fn(u64) -> io::Result<Arena>,
        pages: u64,
        backing: ArenaKind,
    ) -> Result<Self, String> {
        const FIRST: u64 = 3;
        let len = (FIRST + pages) * PAGE_SIZE;
        let arena = map(len).map_err(text)?;
        arena.back(AddrRange::new(0, len), backing).map_err(text)?;
        Ok(BasePages { arena, first: FIRST, pages })
    }

    /// A file that is written page by page, so that each page has a folio of its own.
    pub fn written(file: &File, pages: u64) -> Result<Self, String> {
        let page = [1; PAGE_SIZE as usize];
        for at in 0..pages {
            file.write_all_at(&page, at * PAGE_SIZE).map_err(text)?;
        }
        let arena = Arena::of_file(file, pages * PAGE_SIZE).map_err(text)?;
        let memory = BasePages { arena, first: 0, pages };
        // The pages are in the page cache, but not mapped yet.
        memory.touch();
        Ok(memory)
    }

    pub fn range(&self) -> AddrRange {
        let start = self.arena.range().start + self.first * PAGE_SIZE;
        AddrRange::new(start, start + self.pages * PAGE_SIZE)
    }

    pub fn pages(&self) -> u64 {
        self.pages
    }

    pub fn touch(&self) {
        (self.first..self.first + self.pages).for_each(|page| self.arena.write(page));
    }

    pub fn addrs(&self) -> Vec<u64> {
        (0..self.pages).map(|page| self.range().start + page * PAGE_SIZE).collect()
    }

    /// The node of each page, or a negative error number.
    pub fn nodes(&self) -> Result<Vec<i32>, String> {
        page_nodes(own_pid(), &self.addrs()).map_err(text)
    }

    /// Touches all pages, and compares the node of each page with the rule.
    pub fn lies_by(&self, weights: &NodeWeights) -> Outcome {
        self.lies_by_index(weights, |page| page)
    }

    /// Like [`BasePages::lies_by`], for memory where the rule uses `index` in place of the page number.
    pub fn lies_by_index(&self, weights: &NodeWeights, index: impl Fn(u64) -> u64) -> Outcome {
        self.touch();
        self.is_by_index(weights, index)
    }

    /// Like [`BasePages::lies_by`], without touching the pages.
    pub fn is_by(&self, weights: &NodeWeights) -> Outcome {
        self.is_by_index(weights, |page| page)
    }

    fn is_by_index(&self, weights: &NodeWeights, index: impl Fn(u64) -> u64) -> Outcome {
        let wanted = |addr: u64| weights.node(index(addr / PAGE_SIZE));
        let nodes = self.nodes()?;
        let wrong = self.addrs().into_iter().zip(nodes).filter(|&(a, n)| n != signed(wanted(a)));
        match wrong.count() {
            0 => Ok(()),
            n => Err(format!("{n} of {} pages lie elsewhere", self.pages)),
        }
    }
}

impl BasePages {
    /// The number of pages on `node`.
    pub fn count(&self, node: u32) -> Result<u64, String> {
        Ok(self.nodes()?.iter().filter(|&&n| n == signed(node)).count() as u64)
    }

    /// Touches all pages, and checks that each node has the given number of pages, regardless of which pages these
    /// are.
    pub fn counts_are(&self, wanted: &[(u32, u64)]) -> Outcome {
        self.touch();
        let found = wanted.iter().map(|&(node, _)| Ok((node, self.count(node)?)));
        let found = found.collect::<Result<Vec<(u32, u64)>, String>>()?;
        if found == wanted { Ok(()) } else { Err(format!("{found:?}, not {wanted:?}")) }
    }
}

/// The kernel's error as text.
pub fn text(e: io::Error) -> String {
    e.to_string()
}

pub fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

pub fn signed(node: u32) -> i32 {
    i32::try_from(node).unwrap_or(i32::MAX)
}

/// The set of these nodes.
pub fn mask(nodes: &[u32]) -> NodeMask {
    nodes.iter().copied().collect()
}

/// These nodes, each with weight 1.
pub fn even(nodes: &[u32]) -> Result<NodeWeights, String> {
    NodeWeights::new(nodes.iter().map(|&n| (n, 1))).map_err(|e| e.to_string())
}

/// Sets the memory policy of this thread.
pub fn policy(mode: PolicyMode, nodes: &[u32]) -> Outcome {
    set_policy(mode, &mask(nodes)).map_err(|e| format!("the policy is refused: {e}"))
}
