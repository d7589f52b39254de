//! A machine from a file (`docs/abi/testing/lab.md`).

use serde::{Deserialize, Serialize};

use isotherm_mm::{Layout, LayoutError, NodeLayout, ZoneKind, ZoneLayout};

/// Maximum size in KiB of a window of readahead or writeback.
const MAX_WINDOW_KIB: u32 = 16 << 10;

/// A machine: sizes, speeds and costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// a description, in one line
    pub about: String,
    /// number of CPUs, each of which runs one task at a time
    #[serde(default = "four")]
    pub cpus: u32,
    /// the nodes, by number
    #[serde(rename = "node")]
    pub nodes: Vec<NodeSpec>,
    /// the disk with the files
    #[serde(default)]
    pub disk: DiskSpec,
    /// swap for pages of processes, if there is any
    pub swap: Option<SwapSpec>,
    /// cost of the kernel's work
    #[serde(default)]
    pub costs: Costs,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// the lowest kind first
    pub zones: Vec<ZoneSpec>,
    /// distance to each node, including itself; 10 is local. Empty: 20 to all other nodes
    #[serde(default)]
    pub distances: Vec<u32>,
    /// latency of an access from the node itself; from other nodes in proportion to the distance
    #[serde(default = "ninety")]
    pub latency_ns: u32,
    /// bandwidth of all accesses together, in 10^6 bytes a second
    #[serde(default = "ten_thousand")]
    pub bandwidth_mb_s: u32,
}

/// A zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneSpec {
    /// kind; a node has at most one zone of each kind
    pub kind: ZoneKind,
    /// managed pages of 4 KiB
    pub pages: i64,
}

/// A rotating disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskSpec {
    /// transfer rate in 10^6 bytes a second
    pub transfer_mb_s: u32,
    /// size over which the arm moves
    pub size_gib: u32,
    /// seek time to the next track
    pub seek_track_us: u32,
    /// seek time over the whole disk; between, it grows with the square root of the distance
    pub seek_full_us: u32,
    /// time of a rotation, of which half is the mean delay; 0: no rotation
    pub turn_us: u32,
    /// time for which the disk serves one stream before the next
    pub slice_ms: u32,
    /// maximum readahead
    pub readahead_kib: u32,
}

/// Swap for memory of processes, compressed in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapSpec {
    /// number of pages that it holds
    pub pages: u64,
    /// size of a compressed page in percent; 0: swap that is not in memory
    pub compressed_percent: u32,
    /// time to write a page
    pub out_ns: u32,
    /// time to read a page back
    pub in_ns: u32,
}

/// The cost of the kernel's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Costs {
    /// time for a page that is read or written, in addition to the access to its memory
    pub page_ns: u32,
    /// time for an allocated page
    pub allocation_ns: u32,
    /// time for each pass through a zonelist
    pub pass_ns: u32,
    /// time for a page fault
    pub fault_ns: u32,
    /// pages that kswapd scans per second; direct reclaim is as fast
    pub kswapd_pages_s: u32,
}

/// The reason for which a machine is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// not TOML, or an unknown key
    #[error("the machine cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// invalid zones or nodes
    #[error("the machine cannot be: {0}")]
    Layout(#[from] LayoutError),
    /// an invalid number
    #[error("{what} is {found}: choose {hint}")]
    Number {
        /// its meaning
        what: &'static str,
        /// the number
        found: u64,
        /// the permitted values
        hint: &'static str,
    },
}

impl MachineSpec {
    /// Parses a file.
    ///
    /// # Errors
    /// If it is invalid: the place, and a remedy.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let spec: MachineSpec = toml::from_str(text)?;
        spec.check()?;
        Ok(spec)
    }

    /// A machine with these nodes, and defaults for everything else.
    #[must_use]
    pub fn of(about: &str, cpus: u32, nodes: Vec<NodeSpec>) -> Self {
        let (disk, costs) = (DiskSpec::default(), Costs::default());
        MachineSpec { about: about.to_owned(), cpus, nodes, disk, swap: None, costs }
    }

    /// The layout of its memory.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let n = self.nodes.len();
        let zone = |z: &ZoneSpec| ZoneLayout { kind: z.kind, managed: z.pages };
        let nodes = self.nodes.iter().enumerate().map(|(i, node)| {
            let even = || (0..n).map(|j| if i == j { 10 } else { 20 }).collect();
            let given = &node.distances;
            let distances = if given.is_empty() { even() } else { given.clone() };
            NodeLayout { zones: node.zones.iter().map(zone).collect(), distances }
        });
        Layout { cpus: self.cpus, nodes: nodes.collect() }
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        self.layout().check()?;
        let (d, c) = (&self.disk, &self.costs);
        let speed = "1 to 1000000";
        number("disk.transfer_mb_s", d.transfer_mb_s, 1, 1_000_000, speed)?;
        number("disk.size_gib", d.size_gib, 1, 1 << 20, "1 to 1048576")?;
        let wait = "0 to 1000000";
        number("disk.seek_track_us", d.seek_track_us, 0, 1_000_000, wait)?;
        number(
            "disk.seek_full_us",
            d.seek_full_us,
            d.seek_track_us,
            1_000_000,
            "seek_track_us or more",
        )?;
        number("disk.turn_us", d.turn_us, 0, 1_000_000, wait)?;
        number("disk.slice_ms", d.slice_ms, 0, 10_000, "0 to 10000")?;
        number("disk.readahead_kib", d.readahead_kib, 4, MAX_WINDOW_KIB, "4 to 16384")?;
        for cost in [c.page_ns, c.allocation_ns, c.pass_ns, c.fault_ns] {
            number("a cost", cost, 0, 1_000_000_000, "at most a second")?;
        }
        number("costs.kswapd_pages_s", c.kswapd_pages_s, 1, 1_000_000_000, "1 to 10^9")?;
        for node in &self.nodes {
            number("latency_ns", node.latency_ns, 0, 1_000_000, wait)?;
            number("bandwidth_mb_s", node.bandwidth_mb_s, 1, 100_000_000, "1 to 10^8")?;
        }
        self.swap.map_or(Ok(()), |s| {
            number("swap.compressed_percent", s.compressed_percent, 0, 100, "0 to 100")
        })
    }
}

fn number(
    what: &'static str,
    found: u32,
    min: u32,
    max: u32,
    hint: &'static str,
) -> Result<(), SpecError> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    Err(SpecError::Number { what, found: found.into(), hint })
}

impl Default for NodeSpec {
    /// A node without zones.
    fn default() -> Self {
        NodeSpec {
            zones: Vec::new(),
            distances: Vec::new(),
            latency_ns: ninety(),
            bandwidth_mb_s: ten_thousand(),
        }
    }
}

impl Default for DiskSpec {
    /// A disk of 500 GB with 7200 rotations per minute, as in small machines of 2014.
    fn default() -> Self {
        DiskSpec {
            transfer_mb_s: 132,
            size_gib: 466,
            seek_track_us: 1000,
            seek_full_us: 18_000,
            turn_us: 8333,
            slice_ms: 100,
            readahead_kib: 128,
        }
    }
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            page_ns: 300,
            allocation_ns: 150,
            pass_ns: 30,
            fault_ns: 500,
            kswapd_pages_s: 1_000_000,
        }
    }
}

fn four() -> u32 {
    4
}

fn ninety() -> u32 {
    90
}

fn ten_thousand() -> u32 {
    10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "about = 'x'\n[[node]]\nzones = [{ kind = 'normal', pages = 1000 }]\n";

    #[test]
    fn a_few_lines_are_a_machine() {
        let spec = MachineSpec::parse(ONE).unwrap();
        assert_eq!((spec.cpus, spec.layout().managed()), (4, 1000));
        let again = MachineSpec::parse(&toml::to_string(&spec).unwrap()).unwrap();
        assert_eq!(spec, again);
    }

    #[test]
    fn invalid_values_are_refused() {
        for (more, word) in [
            ("cpu = 3", "unknown field"),
            ("[disk]\ntransfer_mb_s = 0", "disk.transfer_mb_s"),
            ("[disk]\nseek_full_us = 10", "seek_track_us or more"),
            ("[costs]\nkswapd_pages_s = 0", "kswapd_pages_s"),
            ("[[node]]\nzones = []", "no zones"),
            ("[swap]\npages = 1\ncompressed_percent = 101\nout_ns = 1\nin_ns = 1", "0 to 100"),
        ] {
            let text = MachineSpec::parse(&format!("{ONE}{more}")).unwrap_err().to_string();
            assert!(text.contains(word), "{more}: {text}");
        }
    }
}
