//! `/sys/devices/system/node`: nodes with memory, their distances, and the latency and bandwidth that firmware
//! reports (HMAT, CDAT); `/sys/devices/virtual/memory_tiering`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::NumaError;
use super::files::{list, number, text};
use crate::proc;

const NODES: &str = "sys/devices/system/node";
const TIERS: &str = "sys/devices/virtual/memory_tiering";
/// Maximal number of tiers that are read, because the data come from firmware.
const MAX_TIERS: usize = 4096;

/// A node with memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// its number
    pub node: u32,
    /// size of its memory; 0 if unknown
    pub total_bytes: u64,
    /// free part of it
    pub free_bytes: u64,
    /// its CPUs, as the kernel lists them: `0-3,8`; empty if it has none
    pub cpus: String,
    /// distance from here to each node: 10 is the node itself
    pub distances: BTreeMap<u32, u32>,
    /// access from the best initiator of any kind (`access0`)
    pub any: Option<NodePerformance>,
    /// access from the best initiator with CPUs (`access1`)
    pub cpu: Option<NodePerformance>,
    /// its memory tier: a lower number is faster; 4 is ordinary memory
    pub tier: Option<u32>,
}

/// The access to a node from its best initiators, as firmware reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NodePerformance {
    /// nodes with CPUs or other initiators with the best access
    pub initiators: Vec<u32>,
    /// read bandwidth in MB/s
    pub read_mb_s: Option<u32>,
    /// write bandwidth in MB/s
    pub write_mb_s: Option<u32>,
    /// read latency in ns
    pub read_ns: Option<u32>,
    /// write latency in ns
    pub write_ns: Option<u32>,
}

impl Node {
    /// Read and write bandwidth in MB/s, from the source that the kernel uses: CPUs only; 0 is unknown.
    #[must_use]
    pub fn bandwidth(&self) -> (u32, u32) {
        let access = self.cpu.as_ref();
        let of = |f: fn(&NodePerformance) -> Option<u32>| access.and_then(f).unwrap_or(0);
        (of(|a| a.read_mb_s), of(|a| a.write_mb_s))
    }

    /// Its directory in sysfs.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        Path::new("/").join(NODES).join(format!("node{}", self.node))
    }
}

/// All nodes with memory, in ascending order.
///
/// # Errors
/// If the kernel reports none.
pub fn nodes(root: &Path) -> Result<Vec<Node>, NumaError> {
    let dir = root.join(NODES);
    let path = dir.join("has_memory");
    let with_memory = list(&path, &text(&path)?.ok_or(NumaError::NoNodes)?)?;
    let path = dir.join("online");
    let online = list(&path, &text(&path)?.unwrap_or_default())?;
    let tiers = tiers(root);
    let one = |&id: &u32| node(&dir, id, &online, tiers.get(&id).copied());
    with_memory.iter().map(one).collect()
}

fn node(dir: &Path, id: u32, online: &[u32], tier: Option<u32>) -> Result<Node, NumaError> {
    let dir = dir.join(format!("node{id}"));
    let meminfo = text(&dir.join("meminfo"))?.unwrap_or_default();
    let kib = |key: &str| {
        let line = meminfo.lines().find(|l| l.contains(key))?;
        line.split_whitespace().nth(3)?.parse::<u64>().ok()
    };
    let bytes = |key| kib(key).unwrap_or(0).saturating_mul(1024);
    // One distance for each online node, in ascending order.
    let distances = text(&dir.join("distance"))?.unwrap_or_default();
    let distances = distances.split_whitespace().filter_map(|d| d.parse().ok());
    Ok(Node {
        node: id,
        total_bytes: bytes("MemTotal:"),
        free_bytes: bytes("MemFree:"),
        cpus: text(&dir.join("cpulist"))?.unwrap_or_default(),
        distances: online.iter().copied().zip(distances).collect(),
        any: access(&dir.join("access0/initiators")),
        cpu: access(&dir.join("access1/initiators")),
        tier,
    })
}

/// None if firmware reports neither latency nor bandwidth.
fn access(dir: &Path) -> Option<NodePerformance> {
    let positive = |name: &str| number(&dir.join(name)).filter(|&n| n > 0);
    let access = NodePerformance {
        initiators: numbered(dir, "node"),
        read_mb_s: positive("read_bandwidth"),
        write_mb_s: positive("write_bandwidth"),
        read_ns: positive("read_latency"),
        write_ns: positive("write_latency"),
    };
    let tells = access.read_mb_s.or(access.write_mb_s).or(access.read_ns).or(access.write_ns);
    tells.map(|_| access)
}

/// The numbers of the entries of `dir` whose names are `prefix` and a number, in ascending order.
pub(super) fn numbered(dir: &Path, prefix: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_TIERS);
    let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
    let mut all: Vec<u32> = entries.filter_map(|e| number(e.file_name().to_str()?)).collect();
    all.sort_unstable();
    all
}

/// The tier of each node; none before Linux 6.1.
fn tiers(root: &Path) -> BTreeMap<u32, u32> {
    let dir = root.join(TIERS);
    let of = |tier: u32| {
        let path = dir.join(format!("memory_tier{tier}/nodelist"));
        let nodes = text(&path).ok().flatten().and_then(|t| list(&path, &t).ok());
        nodes.unwrap_or_default().into_iter().map(move |node| (node, tier))
    };
    numbered(&dir, "memory_tier").into_iter().flat_map(of).collect()
}

/// The nodes whose memory a process may use: those of its cpuset.
///
/// # Errors
/// If the process has ended, or its status lists none.
pub fn allowed_nodes_of(root: &Path, pid: i32) -> Result<Vec<u32>, NumaError> {
    let allowed = proc::status_field(root, pid, "Mems_allowed_list:")?;
    let path = root.join(format!("proc/{pid}/status"));
    list(&path, &allowed.ok_or(NumaError::NoNodes)?)
}

/// The mode of NUMA balancing: 1 moves pages towards the CPUs that use them, 2 between tiers, 3 both; 0 is off;
/// none if this kernel does not have it.
#[must_use]
pub fn balancing(root: &Path) -> Option<u32> {
    number(&root.join("proc/sys/kernel/numa_balancing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    /// Node 1 is offline, node 3 has CPUs and no memory.
    #[test]
    fn node_files_are_parsed() {
        let root = tree([
            ("sys/devices/system/node/has_memory", "0,2\n"),
            ("sys/devices/system/node/online", "0,2-3\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node0/distance", "10 20 30\n"),
            (
                "sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal:         992800 kB\nNode 0 MemFree:          953020 kB\n",
            ),
            ("sys/devices/system/node/node2/access1/initiators/read_bandwidth", "40960\n"),
            ("sys/devices/system/node/node2/access1/initiators/write_bandwidth", "20480\n"),
            ("sys/devices/system/node/node2/access1/initiators/read_latency", "200\n"),
            ("sys/devices/system/node/node2/access1/initiators/node3/x", ""),
            ("sys/devices/system/node/node2/access0/initiators/read_latency", "0\n"),
            ("sys/devices/system/node/node0/access0/initiators/read_bandwidth", "900\n"),
            ("sys/devices/virtual/memory_tiering/memory_tier112/nodelist", "2\n"),
        ]);
        let all = nodes(root.path()).unwrap();
        let [zero, two] = &all[..] else { panic!("{all:?}") };
        assert_eq!((zero.node, two.node), (0, 2));
        assert_eq!(zero.total_bytes, 992_800 << 10);
        assert_eq!(zero.free_bytes, 953_020 << 10);
        assert_eq!(zero.distances, BTreeMap::from([(0, 10), (2, 20), (3, 30)]));
        assert_eq!((zero.bandwidth(), zero.tier), ((0, 0), None));
        let cpu = two.cpu.as_ref().unwrap();
        assert_eq!((&cpu.initiators[..], cpu.read_ns, cpu.write_ns), (&[3][..], Some(200), None));
        assert_eq!((two.bandwidth(), two.tier), ((40_960, 20_480), Some(112)));
        assert_eq!(two.any, None, "0 is not told");
    }

    #[test]
    fn a_kernel_without_nodes() {
        assert!(matches!(nodes(tree([]).path()), Err(NumaError::NoNodes)));
        let odd = tree([("sys/devices/system/node/has_memory", "many\n")]);
        assert!(matches!(nodes(odd.path()), Err(NumaError::Parse { .. })));
    }

    #[test]
    fn allowed_nodes_of_a_process_are_read() {
        let root = tree([("proc/7/status", "Name:\tx\nMems_allowed_list:\t0,2-3\n")]);
        assert_eq!(allowed_nodes_of(root.path(), 7).unwrap(), [0, 2, 3]);
        assert!(allowed_nodes_of(root.path(), 8).is_err());
    }

    #[test]
    fn this_machine() {
        let all = nodes("/".as_ref()).unwrap();
        let allowed = allowed_nodes_of("/".as_ref(), crate::walker::own_pid()).unwrap();
        assert!(all.iter().any(|n| allowed.contains(&n.node)));
        assert!(all.iter().all(|n| n.total_bytes > n.free_bytes));
        assert!(all.iter().all(|n| n.distances.get(&n.node) == Some(&10)));
    }
}
