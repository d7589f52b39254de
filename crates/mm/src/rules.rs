//! The rules of a kernel version.

use serde::{Deserialize, Serialize};

use crate::fair::Fair;
use crate::watermark::WatermarkRule;
use crate::zonelist::ZonelistOrder;

/// The scope of the LRU lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LruScope {
    /// per zone, up to Linux 4.7
    Zone,
    /// per node, since Linux 4.8
    Node,
}

/// When kswapd skips a zone. With lists per node this rule does not apply: kswapd stops at the first zone
/// with enough free pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ZoneBalance {
    /// Linux 3.15: free pages above high, plus a gap, plus the reserve for the highest zone in need
    GapAndReserve,
    /// the patch series of 2014-06-18 to 06-30: free pages above high
    HighOnly,
}

/// The rules of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// the fair policy: which zone of a node is used first
    pub fair: Fair,
    /// the scope of the LRU lists
    pub lru: LruScope,
    /// the rule for watermarks
    pub watermarks: WatermarkRule,
    /// `vm.min_free_kbytes`; `None`: computed from the size of memory
    pub min_free_kbytes: Option<u32>,
    /// the order of fallback to other zones and nodes
    pub zonelist: ZonelistOrder,
    /// when kswapd skips a zone
    pub balance: ZoneBalance,
    /// whether CPUs report changes of counters with a delay
    pub drift: bool,
    /// `vm.swappiness`: 0 to 100
    pub swappiness: u8,
}

impl Default for Rules {
    fn default() -> Self {
        Rules::linux_3_15()
    }
}

impl Rules {
    /// The rules of Linux 3.15.
    #[must_use]
    pub fn linux_3_15() -> Self {
        Rules {
            fair: Fair::Baseline,
            lru: LruScope::Zone,
            watermarks: WatermarkRule::Ratio,
            min_free_kbytes: None,
            zonelist: ZonelistOrder::Node,
            balance: ZoneBalance::GapAndReserve,
            drift: true,
            swappiness: 60,
        }
    }

    /// The rules of Linux 4.8: lists per node, watermarks by scale factor.
    #[must_use]
    pub fn linux_4_8() -> Self {
        Rules {
            fair: Fair::NodeLru,
            lru: LruScope::Node,
            watermarks: WatermarkRule::Scale(10),
            ..Rules::linux_3_15()
        }
    }

    /// Whether all numbers are within their limits.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let scale = match self.watermarks {
            WatermarkRule::Ratio => true,
            WatermarkRule::Scale(factor) => (1..=1000).contains(&factor),
        };
        let min_free = self.min_free_kbytes.is_none_or(|k| (128..=1 << 24).contains(&k));
        scale && min_free && self.swappiness <= 100
    }
}
