//! What memory there is: nodes, their zones and distances.

use serde::{Deserialize, Serialize};

/// At most so many nodes.
pub const MAX_NODES: usize = 64;
/// At most so many CPUs.
pub const MAX_CPUS: u32 = 1024;
/// At most so many pages: 256 GiB of 4 KiB, which take 2 GiB to simulate.
pub const MAX_PAGES: i64 = 64 << 20;
/// A node's distance to itself.
pub const LOCAL_DISTANCE: u32 = 10;

/// A zone's kind, the lowest first. What asks for one kind is content with those below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZoneKind {
    /// the first 16 MiB, for devices of the last century
    Dma,
    /// up to 4 GiB, for devices of 32 bits
    Dma32,
    /// what the kernel can use without ado
    Normal,
    /// what a kernel of 32 bits has no addresses for
    HighMem,
    /// what holds only pages that can be moved
    Movable,
}

/// All kinds, the lowest first.
pub const KINDS: [ZoneKind; 5] =
    [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::HighMem, ZoneKind::Movable];

impl ZoneKind {
    /// Its place in [`KINDS`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its name in the kernel.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["DMA", "DMA32", "Normal", "HighMem", "Movable"][self.index()]
    }
}

/// A zone as it is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneLayout {
    /// of which each node has at most one
    pub kind: ZoneKind,
    /// pages that the allocator manages
    pub managed: i64,
}

/// A node as it is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLayout {
    /// the lowest kind first
    pub zones: Vec<ZoneLayout>,
    /// to each node, itself too, as firmware tells it: 10 is local
    pub distances: Vec<u32>,
}

/// Memory as it is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// each has its own part of the counters
    pub cpus: u32,
    /// by number
    pub nodes: Vec<NodeLayout>,
}

/// Why there can be no such memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// nodes
    #[error("there are {0} nodes: choose 1 to {MAX_NODES}")]
    Nodes(usize),
    /// CPUs
    #[error("there are {0} CPUs: choose 1 to {MAX_CPUS}")]
    Cpus(u32),
    /// order of the zones
    #[error(
        "node {0} has no zones, or not each kind once from the lowest to the highest: sort them"
    )]
    Zones(usize),
    /// a zone
    #[error("zone {1} of node {0} has {2} pages: choose 1 or more")]
    Empty(usize, &'static str, i64),
    /// all zones
    #[error("there are {0} pages in all: choose at most {MAX_PAGES}")]
    TooBig(i64),
    /// distances
    #[error(
        "node {0} must have one distance to each of the nodes, 10 to itself and 10 to 255 to others"
    )]
    Distances(usize),
}

impl Layout {
    /// One node of these zones.
    #[must_use]
    pub fn single(cpus: u32, zones: &[(ZoneKind, i64)]) -> Self {
        let zone = |&(kind, managed)| ZoneLayout { kind, managed };
        let zones = zones.iter().map(zone).collect();
        Layout { cpus, nodes: vec![NodeLayout { zones, distances: vec![LOCAL_DISTANCE] }] }
    }

    /// Pages in all.
    #[must_use]
    pub fn managed(&self) -> i64 {
        let zones = self.nodes.iter().flat_map(|n| &n.zones);
        zones.fold(0, |sum, z| sum.saturating_add(z.managed))
    }

    /// # Errors
    /// What makes no sense.
    pub fn check(&self) -> Result<(), LayoutError> {
        if self.nodes.is_empty() || self.nodes.len() > MAX_NODES {
            return Err(LayoutError::Nodes(self.nodes.len()));
        }
        if self.cpus == 0 || self.cpus > MAX_CPUS {
            return Err(LayoutError::Cpus(self.cpus));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            if node.zones.is_empty() || !node.zones.is_sorted_by(|a, b| a.kind < b.kind) {
                return Err(LayoutError::Zones(i));
            }
            if let Some(z) = node.zones.iter().find(|z| z.managed < 1) {
                return Err(LayoutError::Empty(i, z.kind.name(), z.managed));
            }
            let d = &node.distances;
            let plausible = d.iter().all(|d| (LOCAL_DISTANCE..=255).contains(d));
            if d.len() != self.nodes.len() || !plausible || d[i] != LOCAL_DISTANCE {
                return Err(LayoutError::Distances(i));
            }
        }
        let managed = self.managed();
        if managed > MAX_PAGES { Err(LayoutError::TooBig(managed)) } else { Ok(()) }
    }
}
