//! The layout of memory: nodes, their zones and distances.

use serde::{Deserialize, Serialize};

/// Maximum number of nodes.
pub const MAX_NODES: usize = 64;
/// Maximum number of CPUs.
pub const MAX_CPUS: u32 = 1024;
/// Maximum number of pages: 256 GiB of 4 KiB pages, whose simulation needs 2 GiB.
pub const MAX_PAGES: i64 = 64 << 20;
/// The distance of a node to itself.
const LOCAL_DISTANCE: u32 = 10;

/// The kind of a zone, in ascending order. A request for one kind may also use lower kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZoneKind {
    /// the first 16 MiB, for old devices
    Dma,
    /// up to 4 GiB, for 32-bit devices
    Dma32,
    /// memory that the kernel can address directly
    Normal,
    /// memory beyond the direct mapping of a 32-bit kernel
    HighMem,
    /// memory that holds only movable pages
    Movable,
}

/// All kinds in ascending order.
pub const KINDS: [ZoneKind; 5] =
    [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::HighMem, ZoneKind::Movable];

impl ZoneKind {
    /// Index in [`KINDS`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The kernel's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["DMA", "DMA32", "Normal", "HighMem", "Movable"][self.index()]
    }
}

/// The description of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneLayout {
    /// the kind; each node has at most one zone of a kind
    pub kind: ZoneKind,
    /// pages that the allocator manages
    pub managed: i64,
}

/// The description of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLayout {
    /// zones in ascending order of kind
    pub zones: Vec<ZoneLayout>,
    /// distance to each node including itself, as reported by firmware: 10 is local
    pub distances: Vec<u32>,
}

/// The description of the memory of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// number of CPUs; each keeps its own part of the counters
    pub cpus: u32,
    /// nodes by number
    pub nodes: Vec<NodeLayout>,
}

/// The reason why a layout is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// number of nodes
    #[error("there are {0} nodes: choose 1 to {MAX_NODES}")]
    Nodes(usize),
    /// number of CPUs
    #[error("there are {0} CPUs: choose 1 to {MAX_CPUS}")]
    Cpus(u32),
    /// missing, repeated or unsorted zones
    #[error(
        "node {0} has no zones, or not each kind once from the lowest to the highest: sort them"
    )]
    Zones(usize),
    /// a zone without pages
    #[error("zone {1} of node {0} has {2} pages: choose 1 or more")]
    Empty(usize, &'static str, i64),
    /// total size above the limit
    #[error("there are {0} pages in all: choose at most {MAX_PAGES}")]
    TooBig(i64),
    /// invalid distances
    #[error(
        "node {0} must have one distance to each of the nodes, 10 to itself and 10 to 255 to others"
    )]
    Distances(usize),
}

impl Layout {
    /// A machine with one node and these zones.
    #[must_use]
    pub fn single(cpus: u32, zones: &[(ZoneKind, i64)]) -> Self {
        let zone = |&(kind, managed)| ZoneLayout { kind, managed };
        let zones = zones.iter().map(zone).collect();
        Layout { cpus, nodes: vec![NodeLayout { zones, distances: vec![LOCAL_DISTANCE] }] }
    }

    /// Total number of pages.
    #[must_use]
    pub fn managed(&self) -> i64 {
        let zones = self.nodes.iter().flat_map(|n| &n.zones);
        zones.fold(0, |sum, z| sum.saturating_add(z.managed))
    }

    /// # Errors
    /// The first error found.
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
