//! The files of weights, `/sys/kernel/mm/mempolicy/weighted_interleave`, with the kernel's behaviour.

use super::bandwidth::{bandwidth_of, weights_from_bandwidth};
use super::text::{parse_bool, parse_u8};
use crate::layout::MAX_NODES;
use crate::nodes::NodeSet;

/// The version of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilesOf {
    /// Linux 6.9 to 6.15: 0 or an empty line sets the default, 1; a file for each possible node
    V6_9,
    /// since Linux 6.16: weights follow the bandwidth until a weight is set; a file for each node with memory
    V6_16,
}

/// The error that the kernel returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightFileError {
    /// ENOENT
    #[error("there is no such file: name a node with memory, or a kernel that has it")]
    Missing,
    /// EINVAL
    #[error("the kernel accepts a weight of 1 to 255, and true or false as the mode")]
    Invalid,
    /// ENODEV
    #[error("firmware reports the bandwidth of no node: set weights by hand")]
    NoBandwidth,
}

/// The weights in the machine-wide files.
///
/// A text is one complete write. The kernel does not pass an empty write to these rules, so it has no effect.
///
/// ```
/// use isotherm_mm::NodeSet;
/// use isotherm_mm::mempolicy::{WeightFileError, FilesOf, WeightFilesModel};
///
/// let mut files = WeightFilesModel::new(FilesOf::V6_16, NodeSet::from_iter([0, 1]));
/// files.report_bandwidth(0, 9000, 8000);
/// files.report_bandwidth(1, 2000, 2000);
/// assert_eq!([files.show(0)?, files.show(1)?], [25, 6]);
/// files.store(1, "7\n")?;
/// assert_eq!([files.show(0)?, files.show(1)?], [25, 7]);
/// assert!(!files.show_auto()?, "set by hand");
/// assert_eq!(files.store(1, "0"), Err(WeightFileError::Invalid));
/// # Ok::<(), WeightFileError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightFilesModel {
    of: FilesOf,
    /// nodes with a file
    nodes: NodeSet,
    /// set or computed weights; 0 is the default
    weights: [u8; MAX_NODES],
    /// `None` until a weight is set or a bandwidth is reported, and then counts as true
    auto: Option<bool>,
    /// in MB/s; `None` until a bandwidth is reported
    bandwidth: Option<[u32; MAX_NODES]>,
}

impl WeightFilesModel {
    /// The files of a machine that has just started: all weights are 1.
    #[must_use]
    pub fn new(of: FilesOf, nodes: NodeSet) -> Self {
        WeightFilesModel { of, nodes, weights: [0; MAX_NODES], auto: None, bandwidth: None }
    }

    /// The weight of a node with or without a file: `get_il_weight`.
    #[must_use]
    pub fn weight(&self, node: usize) -> u8 {
        self.weights.get(node).map_or(1, |w| *w.max(&1))
    }

    /// Reads `nodeN`.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn show(&self, node: usize) -> Result<u8, WeightFileError> {
        self.file(node).map(|node| self.weight(node))
    }

    /// Writes to `nodeN`.
    ///
    /// # Errors
    /// If the file does not exist, or the text is not a weight.
    pub fn store(&mut self, node: usize, text: &str) -> Result<(), WeightFileError> {
        let node = self.file(node)?;
        if text.is_empty() {
            return Ok(());
        }
        let weight = match self.of {
            FilesOf::V6_9 if text == "\n" => 0,
            _ => parse_u8(text).ok_or(WeightFileError::Invalid)?,
        };
        if self.of == FilesOf::V6_16 {
            if weight == 0 {
                return Err(WeightFileError::Invalid);
            }
            self.auto = Some(false);
        }
        self.weights[node] = weight;
        Ok(())
    }

    /// Reads `auto`.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn show_auto(&self) -> Result<bool, WeightFileError> {
        self.auto_file()?;
        Ok(self.auto.unwrap_or(true))
    }

    /// Writes `auto`: off keeps the weights; on computes them again.
    ///
    /// # Errors
    /// If the file does not exist, the text is not a boolean, or no bandwidth was ever reported.
    pub fn store_auto(&mut self, text: &str) -> Result<(), WeightFileError> {
        self.auto_file()?;
        if text.is_empty() {
            return Ok(());
        }
        let on = parse_bool(text).ok_or(WeightFileError::Invalid)?;
        if on {
            let mb_s = self.bandwidth.ok_or(WeightFileError::NoBandwidth)?;
            self.compute(&mb_s);
        }
        self.auto = Some(on);
        Ok(())
    }

    /// Firmware reports the bandwidth of a node, in MB/s: weights follow, unless they were set manually.
    pub fn report_bandwidth(&mut self, node: usize, read_mb_s: u32, write_mb_s: u32) {
        if self.of == FilesOf::V6_9 || node >= MAX_NODES {
            return;
        }
        let mut mb_s = self.bandwidth.unwrap_or([0; MAX_NODES]);
        mb_s[node] = bandwidth_of(read_mb_s, write_mb_s);
        self.bandwidth = Some(mb_s);
        if self.auto != Some(false) {
            self.auto = Some(true);
            self.compute(&mb_s);
        }
    }

    /// A node gained or lost memory, and therefore its file; its weight stays.
    pub fn set_memory(&mut self, node: usize, has: bool) {
        if self.of == FilesOf::V6_16 {
            let others = self.nodes.iter().filter(|&n| n != node);
            self.nodes = others.chain(has.then_some(node)).collect();
        }
    }

    fn compute(&mut self, mb_s: &[u32; MAX_NODES]) {
        let known: Vec<u32> = self.nodes.iter().map(|n| mb_s[n]).collect();
        self.weights = [1; MAX_NODES];
        for (node, weight) in self.nodes.iter().zip(weights_from_bandwidth(&known)) {
            self.weights[node] = weight;
        }
    }

    fn file(&self, node: usize) -> Result<usize, WeightFileError> {
        if self.nodes.contains(node) { Ok(node) } else { Err(WeightFileError::Missing) }
    }

    fn auto_file(&self) -> Result<(), WeightFileError> {
        if self.of == FilesOf::V6_16 { Ok(()) } else { Err(WeightFileError::Missing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(of: FilesOf) -> WeightFilesModel {
        WeightFilesModel::new(of, [0, 2].into_iter().collect())
    }

    #[test]
    fn texts_that_are_weights() {
        let good = [("1", 1), ("255\n", 255), ("0x1f", 31), ("0X1F", 31), ("017\n", 15), ("+9", 9)];
        for of in [FilesOf::V6_9, FilesOf::V6_16] {
            for (text, weight) in good {
                let mut files = files(of);
                assert_eq!(files.store(2, text), Ok(()), "{text:?}");
                assert_eq!((files.show(2), files.show(0)), (Ok(weight), Ok(1)));
            }
            let bad =
                ["256", "-1", "a", " 1", "1 ", "1\n\n", "08", "0x", "+", "++1", "1.5", "0x+1"];
            for text in bad {
                let mut files = files(of);
                assert_eq!(files.store(0, text), Err(WeightFileError::Invalid), "{text:?}");
                assert_eq!(files, self::files(of), "nothing is changed");
            }
            assert_eq!(files(of).store(1, "1"), Err(WeightFileError::Missing));
            assert_eq!(files(of).show(64), Err(WeightFileError::Missing));
        }
    }

    #[test]
    fn zero_and_the_empty_line() {
        for text in ["0", "0\n", "00", "0x0", "\n"] {
            let mut old = files(FilesOf::V6_9);
            old.store(0, "5").unwrap();
            assert_eq!(old.store(0, text), Ok(()), "{text:?}");
            assert_eq!(old.show(0), Ok(1), "the default");
            assert_eq!(
                files(FilesOf::V6_16).store(0, text),
                Err(WeightFileError::Invalid),
                "{text:?}"
            );
        }
        let mut new = files(FilesOf::V6_16);
        assert_eq!(new.store(0, ""), Ok(()), "a write of nothing does nothing");
        assert_eq!(new.show_auto(), Ok(true));
    }

    #[test]
    fn the_automatic_mode() {
        let mut f = files(FilesOf::V6_16);
        assert_eq!(f.show_auto(), Ok(true), "as nothing was said");
        assert_eq!(f.store_auto("true"), Err(WeightFileError::NoBandwidth));
        assert_eq!(f.store_auto("maybe"), Err(WeightFileError::Invalid));
        f.report_bandwidth(0, 2000, 3000);
        f.report_bandwidth(2, 1000, 1000);
        assert_eq!((f.show(0), f.show(2)), (Ok(21), Ok(10)));

        f.store(2, "4").unwrap();
        assert_eq!((f.show(0), f.show(2), f.show_auto()), (Ok(21), Ok(4), Ok(false)));
        f.report_bandwidth(2, 2000, 2000);
        assert_eq!(f.show(2), Ok(4), "what was set by hand stays");
        f.store_auto("on").unwrap();
        assert_eq!((f.show(0), f.show(2)), (Ok(1), Ok(1)), "with what was told since");
        f.set_memory(2, false);
        f.set_memory(1, true);
        f.report_bandwidth(1, 500, 500);
        let before = f.show(0);
        f.set_memory(1, false);
        f.store_auto("on").unwrap();
        assert!(f.show(0) != before, "computed anew, though it was on");
        f.store_auto("off").unwrap();
        assert_eq!((f.show(0), f.show_auto()), (Ok(1), Ok(false)));
    }

    #[test]
    fn off_without_anything_reported() {
        let mut f = files(FilesOf::V6_16);
        f.store_auto("0").unwrap();
        assert_eq!((f.show_auto(), f.show(0)), (Ok(false), Ok(1)));
    }

    #[test]
    fn the_older_kernels_have_no_mode() {
        let mut f = files(FilesOf::V6_9);
        assert_eq!(f.show_auto(), Err(WeightFileError::Missing));
        assert_eq!(f.store_auto("1"), Err(WeightFileError::Missing));
        f.report_bandwidth(0, 2000, 2000);
        assert_eq!(f.show(0), Ok(1));
    }

    #[test]
    fn a_node_that_comes_and_goes() {
        let mut f = files(FilesOf::V6_16);
        f.store(2, "7").unwrap();
        f.set_memory(2, false);
        assert_eq!(f.show(2), Err(WeightFileError::Missing));
        assert_eq!(f.weight(2), 7);
        f.set_memory(2, true);
        assert_eq!(f.show(2), Ok(7));
    }
}
