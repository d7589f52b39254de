//! `/sys/kernel/mm/mempolicy/weighted_interleave`: the machine's weights.
//!
//! `nodeN` contains a weight (since Linux 6.9). Since 6.16, another file shows whether the kernel has derived
//! the weights from bandwidth; writing a weight ends that mode.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::NumaError;
use super::files::text;
use crate::sys::MAX_KERNEL_NODES;

const WEIGHTS: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
/// Possible names of the file of the automatic mode in Linux 6.16: the intended one, and the one before its
/// correction.
const AUTO: [&str; 2] = ["auto", "__auto_type"];

/// The content of the files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WeightSetting {
    /// whether the kernel derives the weights from bandwidth; none if it cannot
    pub auto: Option<bool>,
    /// weight of each node with memory
    pub weights: BTreeMap<u32, u8>,
}

impl WeightSetting {
    /// The weights as an argument: `0=9,1=1`.
    #[must_use]
    pub fn text(&self) -> String {
        weights_text(&self.weights)
    }
}

pub(super) fn weights_text(weights: &BTreeMap<u32, u8>) -> String {
    weights.iter().map(|(node, w)| format!("{node}={w}")).collect::<Vec<_>>().join(",")
}

/// The files with the weights.
#[derive(Debug, Clone)]
pub struct WeightFiles {
    dir: PathBuf,
    auto: Option<PathBuf>,
}

impl WeightFiles {
    /// Finds the files.
    ///
    /// # Errors
    /// If this kernel has none.
    pub fn find(root: &Path) -> Result<Self, NumaError> {
        let dir = root.join(WEIGHTS);
        if !dir.is_dir() {
            return Err(NumaError::NoWeights);
        }
        let auto = AUTO.map(|name| dir.join(name)).into_iter().find(|path| path.exists());
        Ok(WeightFiles { dir, auto })
    }

    /// The directory of the files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of the automatic mode, if this kernel has it.
    #[must_use]
    pub fn auto_path(&self) -> Option<&Path> {
        self.auto.as_deref()
    }

    /// Reads the files.
    ///
    /// # Errors
    /// If they cannot be read or understood.
    pub fn read(&self) -> Result<WeightSetting, NumaError> {
        let auto = match &self.auto {
            None => None,
            Some(path) => Some(switch(path)?),
        };
        let mut weights = BTreeMap::new();
        for node in
            super::nodes::numbered(&self.dir, "node").into_iter().filter(|&n| n < MAX_KERNEL_NODES)
        {
            let path = self.node(node);
            // A node may disappear in the meantime.
            if let Some(text) = text(&path)? {
                let weight = text.parse().map_err(|_| NumaError::Parse { path, text })?;
                weights.insert(node, weight);
            }
        }
        Ok(WeightSetting { auto, weights })
    }

    fn node(&self, node: u32) -> PathBuf {
        self.dir.join(format!("node{node}"))
    }

    /// Sets the weight of a node; before Linux 6.16, 0 is the default.
    pub(super) fn write(&self, node: u32, weight: u8) -> Result<(), NumaError> {
        write(&self.node(node), &weight.to_string())
    }

    /// Turns the automatic mode on or off.
    pub(super) fn write_auto(&self, on: bool) -> Result<(), NumaError> {
        let path = self.auto.as_ref().ok_or(NumaError::NoAuto)?;
        write(path, if on { "1" } else { "0" }).map_err(|e| match e {
            NumaError::File { source, .. } if source.raw_os_error() == Some(libc::ENODEV) => {
                NumaError::NoBandwidth
            }
            e => e,
        })
    }

    /// Sets all weights to the default of the kernel.
    pub(super) fn write_default(&self) -> Result<(), NumaError> {
        let all = || self.read().map(|s| s.weights.into_keys());
        if self.auto.is_none() {
            return all()?.try_for_each(|node| self.write(node, 0));
        }
        match self.write_auto(true) {
            // Without bandwidth data, all default weights are 1. Writing a weight that is already 1 would end
            // the mode.
            Err(NumaError::NoBandwidth) => {
                let set = self.read()?.weights.into_iter().filter(|(_, weight)| *weight != 1);
                set.map(|(node, _)| node).try_for_each(|node| self.write(node, 1))
            }
            done => done,
        }
    }
}

/// The kernel shows a switch as `true`, `Y` or `1`.
fn switch(path: &Path) -> Result<bool, NumaError> {
    let text = text(path)?.unwrap_or_default();
    match text.as_str() {
        "true" | "Y" | "1" => Ok(true),
        "false" | "N" | "0" => Ok(false),
        _ => Err(NumaError::Parse { path: path.to_owned(), text }),
    }
}

fn write(path: &Path, text: &str) -> Result<(), NumaError> {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().write(true).truncate(true).open(path);
    let written = file.and_then(|mut f| f.write_all(format!("{text}\n").as_bytes()));
    written.map_err(|source| NumaError::File { what: "write", path: path.to_owned(), source })
}
