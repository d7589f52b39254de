//! The machine of a guest, from a file: nodes, distances, latency and bandwidth.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::room;

/// Maximum memory of a guest, so that two fit on a small machine.
const MAX_MIB: u64 = 16 << 10;
const MAX_GUEST_NODES: usize = 8;
const MAX_GUEST_CPUS: u32 = 8;

/// The content of `topologies/NAME.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// a description, in one line
    pub about: String,
    /// features of the CPUs, by their names in QEMU: on or off
    #[serde(default)]
    pub cpu: BTreeMap<String, String>,
    /// arguments of the kernel
    #[serde(default)]
    pub kernel_args: Vec<String>,
    /// further arguments of QEMU, one by one: devices and their values
    #[serde(default)]
    pub qemu_args: Vec<String>,
    /// in order of their numbers
    pub node: Vec<Node>,
    /// links between nodes
    #[serde(default)]
    pub link: Vec<Link>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// memory; 0 for a node with only CPUs
    pub size_mib: u64,
    /// its CPUs
    #[serde(default)]
    pub cpus: u32,
}

/// The distance of a node from another one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// a node
    pub from: usize,
    /// another node, or the same
    pub to: usize,
    /// distance in the SLIT: 10 is local
    pub distance: Option<u8>,
    /// latency of a read in the HMAT; only from a node with CPUs
    pub latency_ns: Option<u32>,
    /// bandwidth in the HMAT; only from a node with CPUs
    pub bandwidth_mib_s: Option<u32>,
}

impl Topology {
    /// The topology with this name.
    pub fn named(name: &str) -> Result<Self> {
        Topology::read(&room().join("topologies").join(format!("{name}.toml")))
    }

    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Topology::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let t: Topology = toml::from_str(text)?;
        ensure!(
            (1..=MAX_GUEST_NODES).contains(&t.node.len()),
            "a topology has 1 to {MAX_GUEST_NODES} nodes"
        );
        ensure!(
            (1..=MAX_GUEST_CPUS).contains(&t.cpus()),
            "a topology has 1 to {MAX_GUEST_CPUS} CPUs"
        );
        let sizes = t.node.iter().map(|n| n.size_mib);
        ensure!(sizes.clone().all(|s| s <= MAX_MIB), "a node has at most {MAX_MIB} MiB");
        let is_something = |n: &Node| n.size_mib > 0 || n.cpus > 0;
        ensure!(t.node.iter().all(is_something), "a node has memory, or CPUs");
        ensure!(sizes.sum::<u64>() <= MAX_MIB, "a guest has at most {MAX_MIB} MiB");
        for link in &t.link {
            let (from, to) = (t.node.get(link.from), t.node.get(link.to));
            let (Some(from), Some(_)) = (from, to) else {
                anyhow::bail!("the link from {} to {} leads to no node", link.from, link.to);
            };
            let by_hmat = link.latency_ns.is_some() || link.bandwidth_mib_s.is_some();
            ensure!(from.cpus > 0 || !by_hmat, "latency and bandwidth are of a node with CPUs");
            let both = link.latency_ns.is_some() == link.bandwidth_mib_s.is_some();
            ensure!(both, "latency and bandwidth go together");
        }
        Ok(t)
    }

    /// CPUs of all nodes.
    pub fn cpus(&self) -> u32 {
        self.node.iter().map(|n| n.cpus).fold(0, u32::saturating_add)
    }

    /// Whether latency and bandwidth are given.
    pub fn has_hmat(&self) -> bool {
        self.link.iter().any(|l| l.latency_ns.is_some())
    }

    /// Whether the kernel must unpack itself: only then it turns on five-level page tables.
    pub fn has_five_levels(&self) -> bool {
        self.cpu.get("la57").is_some_and(|la57| la57 == "on")
    }

    /// Arguments of QEMU for the memory and the nodes.
    pub fn memory_args(&self) -> Vec<String> {
        let total: u64 = self.node.iter().map(|n| n.size_mib).sum();
        let mut args =
            vec!["-m".into(), format!("{total}M"), "-smp".into(), self.cpus().to_string()];
        let initiator = self.node.iter().position(|n| n.cpus > 0).unwrap_or(0);
        let mut cpu = 0;
        for (i, node) in self.node.iter().enumerate() {
            let size = node.size_mib;
            let mut numa = format!("node,nodeid={i}");
            if size > 0 {
                let memory = format!("memory-backend-memfd,id=m{i},size={size}M");
                args.extend(["-object".into(), memory]);
                let _ = write!(numa, ",memdev=m{i}");
            }
            if node.cpus > 0 {
                let _ = write!(numa, ",cpus={cpu}-{}", cpu + node.cpus - 1);
                cpu += node.cpus;
            } else if self.has_hmat() {
                let _ = write!(numa, ",initiator={initiator}");
            }
            args.extend(["-numa".into(), numa]);
        }
        args.extend(self.link.iter().flat_map(Link::numa_args));
        args
    }

    /// The facts for the guest, one per line, to compare with those that its kernel reports.
    pub fn facts(&self) -> String {
        let mut facts = String::new();
        for (i, node) in self.node.iter().enumerate() {
            let _ = writeln!(facts, "node {i} {} {}", node.size_mib, node.cpus);
        }
        for l in &self.link {
            if let Some(distance) = l.distance {
                let _ = writeln!(facts, "distance {} {} {distance}", l.from, l.to);
            }
            if let (Some(ns), Some(mib_s)) = (l.latency_ns, l.bandwidth_mib_s) {
                let _ = writeln!(facts, "memory {} {} {ns} {mib_s}", l.from, l.to);
            }
        }
        facts
    }
}

impl Link {
    fn numa_args(&self) -> Vec<String> {
        let Link { from, to, .. } = self;
        let hmat = |what: &str| {
            format!("hmat-lb,initiator={from},target={to},hierarchy=memory,data-type=access-{what}")
        };
        let numa_args = [
            self.distance.map(|d| format!("dist,src={from},dst={to},val={d}")),
            self.latency_ns.map(|ns| format!("{},latency={ns}", hmat("latency"))),
            self.bandwidth_mib_s.map(|m| format!("{},bandwidth={m}M", hmat("bandwidth"))),
        ];
        numa_args.into_iter().flatten().flat_map(|arg| ["-numa".to_owned(), arg]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = r#"
about = "two"
[[node]]
size_mib = 512
cpus = 2
[[node]]
size_mib = 256
[[link]]
from = 0
to = 1
distance = 20
latency_ns = 200
bandwidth_mib_s = 4096
"#;

    #[test]
    fn nodes_become_arguments() {
        let args = Topology::parse(TWO).unwrap().memory_args();
        let numa: Vec<&str> = args
            .iter()
            .skip_while(|a| *a != "-object")
            .skip(1)
            .step_by(2)
            .map(String::as_str)
            .collect();
        assert_eq!(args[..4], ["-m", "768M", "-smp", "2"]);
        assert_eq!(
            numa,
            [
                "memory-backend-memfd,id=m0,size=512M",
                "node,nodeid=0,memdev=m0,cpus=0-1",
                "memory-backend-memfd,id=m1,size=256M",
                "node,nodeid=1,memdev=m1,initiator=0",
                "dist,src=0,dst=1,val=20",
                "hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-latency,latency=200",
                "hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-bandwidth,bandwidth=4096M",
            ]
        );
    }

    #[test]
    fn cpus_are_numbered_over_all_nodes() {
        let two =
            "about = ''\n[[node]]\nsize_mib = 1\ncpus = 2\n[[node]]\nsize_mib = 1\ncpus = 1\n";
        let args = Topology::parse(two).unwrap().memory_args();
        assert!(args.contains(&"node,nodeid=1,memdev=m1,cpus=2-2".to_owned()), "{args:?}");
    }

    #[test]
    fn a_node_may_have_cpus_alone() {
        let args = Topology::parse(&TWO.replace("512", "0")).unwrap().memory_args();
        assert!(args.contains(&"node,nodeid=0,cpus=0-1".to_owned()), "{args:?}");
        assert!(!args.iter().any(|a| a.contains("id=m0")), "{args:?}");
    }

    #[test]
    fn the_guest_gets_its_topology() {
        let facts = Topology::parse(TWO).unwrap().facts();
        assert_eq!(facts, "node 0 512 2\nnode 1 256 0\ndistance 0 1 20\nmemory 0 1 200 4096\n");
    }

    #[test]
    fn what_no_guest_can_have_is_refused() {
        let refused = [
            ("size_mib = 256", "size_mib = 0"),
            ("size_mib = 512", "size_mib = 18446744073709551615"),
            ("cpus = 2", "cpus = 0"),
            ("cpus = 2", "cpus = 4294967295"),
            ("to = 1", "to = 2"),
            ("from = 0", "from = 1"),
            ("latency_ns = 200\n", ""),
            ("distance = 20", "distance = 300"),
            ("distance", "distanz"),
        ];
        for (is, not) in refused {
            assert!(Topology::parse(&TWO.replace(is, not)).is_err(), "{not}");
        }
    }

    #[test]
    fn all_that_are_here_are_sound() {
        let files = std::fs::read_dir(room().join("topologies")).unwrap();
        let read: Vec<Topology> =
            files.map(|f| Topology::read(&f.unwrap().path()).unwrap()).collect();
        assert!(read.len() >= 2);
    }
}
