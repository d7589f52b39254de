//! The nodes of this machine with their figures and weights, as `isotherm interleave show` prints them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use isotherm_linux::numa::{Node, NumaError, WeightFiles, balancing};
use isotherm_report::bytes;
use serde::Serialize;

use super::root;
use super::rule::MachineNodes;

/// The nodes: `docs/abi/testing/interleave.md`.
#[derive(Serialize)]
pub struct NodesOutput {
    schema_version: u32,
    nodes: Vec<Row>,
    /// `auto`, `manual`, or `fixed` if the kernel has no automatic mode; `None` without weighted
    /// interleave
    mode: Option<&'static str>,
    weights_dir: Option<PathBuf>,
    auto_file: Option<PathBuf>,
    numa_balancing: Option<u32>,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    node: Node,
    weight: Option<u8>,
    /// the weight that the kernel would derive
    weight_by_bandwidth: Option<u8>,
}

impl NodesOutput {
    /// Reads the nodes and their weights.
    ///
    /// # Errors
    /// If a file of the kernel cannot be read.
    pub fn read() -> Result<Self, NumaError> {
        let machine = MachineNodes::read()?;
        let derived = machine.by_bandwidth().unwrap_or_default();
        let files = WeightFiles::find(root()).ok();
        let setting = machine.weights.unwrap_or_default();
        let row = |node: Node| Row {
            weight: setting.weights.get(&node.node).copied(),
            weight_by_bandwidth: derived.get(&node.node).copied(),
            node,
        };
        Ok(NodesOutput {
            schema_version: 1,
            nodes: machine.nodes.into_iter().map(row).collect(),
            mode: files.as_ref().map(|_| match setting.auto {
                Some(true) => "auto",
                Some(false) => "manual",
                None => "fixed",
            }),
            weights_dir: files.as_ref().map(|f| f.dir().to_owned()),
            auto_file: files.as_ref().and_then(|f| Some(f.auto_path()?.to_owned())),
            numa_balancing: balancing(root()),
        })
    }

    /// The nodes as text: a table, the distances, and the source of each figure.
    #[must_use]
    pub fn text(&self) -> String {
        let heads = ["size", "free", "tier", "read MB/s", "write MB/s", "read ns", "write ns"];
        let more = ["weight", "derived"];
        let cells = |cells: &[String]| cells.iter().map(|c| format!("{c:>11}")).collect::<String>();
        let named = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        let mut out =
            format!("{:8}{}{}  CPUs\n", "node", cells(&named(&heads)), cells(&named(&more)));
        for r in &self.nodes {
            let _ = writeln!(out, "{:<8}{}  {}", r.node.node, cells(&r.cells()), r.node.cpus);
        }
        out + &distances(&self.nodes) + &self.sources()
    }

    /// The source of each figure, and the missing figures.
    fn sources(&self) -> String {
        let mut out = String::from("\n");
        let has_figures = self.nodes.iter().any(|r| r.node.cpu.is_some() || r.node.any.is_some());
        let access = if has_figures {
            "/sys/devices/system/node/nodeN/access1/initiators, or access0: reported by firmware \
             (HMAT, CDAT) for the best initiator"
        } else {
            "firmware reports none (no HMAT, no CDAT); isotherm interleave probe measures them"
        };
        let weights = match &self.weights_dir {
            Some(dir) => dir.display().to_string(),
            None => "this kernel has no weighted interleave (Linux 6.9 has)".to_owned(),
        };
        let mode = match (self.mode, &self.auto_file) {
            (Some("auto"), Some(file)) => format!("derived by the kernel ({})", file.display()),
            (Some(_), Some(file)) => format!("set by hand ({})", file.display()),
            (Some(_), None) => "set by hand: this kernel derives none (Linux 6.16 does)".to_owned(),
            _ => "none".to_owned(),
        };
        let balancing = match self.numa_balancing {
            None | Some(0) => "off",
            Some(_) => "on: it moves pages to where they are used, regardless of the weights",
        };
        for (what, source) in [
            ("size, free, CPUs, distances", "/sys/devices/system/node/nodeN"),
            ("bandwidth, latency", access),
            (
                "tier",
                "/sys/devices/virtual/memory_tiering: the lower the faster, 4 is ordinary memory",
            ),
            ("weight", &weights),
            ("mode of the weights", &mode),
            ("derived", "from bandwidth, as Linux 6.16 does it"),
            ("NUMA balancing", balancing),
        ] {
            let _ = writeln!(out, "{what:28}{source}");
        }
        out
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let access = self.node.cpu.as_ref().or(self.node.any.as_ref());
        let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let weight = |w: Option<u8>| number(w.map(u32::from));
        vec![
            bytes(self.node.total_bytes),
            bytes(self.node.free_bytes),
            number(self.node.tier),
            number(access.and_then(|a| a.read_mb_s)),
            number(access.and_then(|a| a.write_mb_s)),
            number(access.and_then(|a| a.read_ns)),
            number(access.and_then(|a| a.write_ns)),
            weight(self.weight),
            weight(self.weight_by_bandwidth),
        ]
    }
}

/// The table of distances between nodes.
fn distances(rows: &[Row]) -> String {
    let nodes: Vec<u32> = rows.iter().map(|r| r.node.node).collect();
    let heads: String = nodes.iter().map(|n| format!("{n:>6}")).collect();
    let mut out = format!("\n{:14}{heads}\n", "distance from");
    for r in rows {
        let of = |map: &BTreeMap<u32, u32>, to| map.get(to).map_or("-".into(), ToString::to_string);
        let cells: String =
            nodes.iter().map(|to| format!("{:>6}", of(&r.node.distances, to))).collect();
        let _ = writeln!(out, "{:<14}{cells}", r.node.node);
    }
    out
}
