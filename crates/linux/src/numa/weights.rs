//! `/sys/kernel/mm/mempolicy/weighted_interleave`: the machine's weights.
//!
//! `nodeN` holds a weight, since Linux 6.9. Since 6.16 a file tells whether the kernel has derived them
//! from bandwidth; writing a weight ends that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::NumaError;
use super::files::text;
use crate::sys::MAX_NODES;

const WEIGHTS: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
/// What the file of the automatic mode may be called: Linux 6.16, and before that was mended.
const AUTO: [&str; 2] = ["auto", "__auto_type"];

/// What the files say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Setting {
    /// whether the kernel derives them from bandwidth; none if it cannot
    pub auto: Option<bool>,
    /// of each node with memory
    pub weights: BTreeMap<u32, u8>,
}

impl Setting {
    /// As it is typed: `0=9,1=1`.
    #[must_use]
    pub fn text(&self) -> String {
        weights_text(&self.weights)
    }
}

pub(super) fn weights_text(weights: &BTreeMap<u32, u8>) -> String {
    weights.iter().map(|(node, w)| format!("{node}={w}")).collect::<Vec<_>>().join(",")
}

/// The files.
#[derive(Debug, Clone)]
pub struct WeightFiles {
    dir: PathBuf,
    auto: Option<PathBuf>,
}

impl WeightFiles {
    /// Finds them.
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

    /// The directory in which they are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file that tells of the automatic mode, if this kernel has it.
    #[must_use]
    pub fn auto_path(&self) -> Option<&Path> {
        self.auto.as_deref()
    }

    /// What they say.
    ///
    /// # Errors
    /// If they cannot be read or understood.
    pub fn read(&self) -> Result<Setting, NumaError> {
        let auto = match &self.auto {
            None => None,
            Some(path) => Some(switch(path)?),
        };
        let mut weights = BTreeMap::new();
        for node in super::nodes::numbered(&self.dir, "node").into_iter().filter(|&n| n < MAX_NODES)
        {
            let path = self.node(node);
            // A node may go while this is read.
            if let Some(text) = text(&path)? {
                let weight = text.parse().map_err(|_| NumaError::Parse { path, text })?;
                weights.insert(node, weight);
            }
        }
        Ok(Setting { auto, weights })
    }

    fn node(&self, node: u32) -> PathBuf {
        self.dir.join(format!("node{node}"))
    }

    /// Sets the weight of a node; 0 is the default, before Linux 6.16.
    pub(super) fn write(&self, node: u32, weight: u8) -> Result<(), NumaError> {
        write(&self.node(node), &weight.to_string())
    }

    /// Has the kernel derive all weights, or not any more.
    pub(super) fn write_auto(&self, on: bool) -> Result<(), NumaError> {
        let path = self.auto.as_ref().ok_or(NumaError::NoAuto)?;
        write(path, if on { "1" } else { "0" }).map_err(|e| match e {
            NumaError::File { source, .. } if source.raw_os_error() == Some(libc::ENODEV) => {
                NumaError::NoBandwidth
            }
            e => e,
        })
    }

    /// Sets all weights to what they are when nobody has set any.
    pub(super) fn write_default(&self) -> Result<(), NumaError> {
        let all = || self.read().map(|s| s.weights.into_keys());
        if self.auto.is_none() {
            return all()?.try_for_each(|node| self.write(node, 0));
        }
        match self.write_auto(true) {
            // Nothing is to be derived from: all are 1. Writing that where it is so would end the mode.
            Err(NumaError::NoBandwidth) => {
                let set = self.read()?.weights.into_iter().filter(|(_, weight)| *weight != 1);
                set.map(|(node, _)| node).try_for_each(|node| self.write(node, 1))
            }
            done => done,
        }
    }
}

/// As the kernel shows switches: `true`, `Y` or `1`.
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
