//! Which kernel's rules memory is managed by.

use serde::{Deserialize, Serialize};

use crate::fair::Fair;
use crate::watermark::Generation;
use crate::zonelist::ZonelistOrder;

/// What has lists of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LruScope {
    /// up to Linux 4.7
    Zone,
    /// since Linux 4.8
    Node,
}

/// When kswapd leaves a zone alone. Where lists are per node, it is the first zone that has enough
/// that ends its work, and this has no say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneBalance {
    /// Linux 3.15: above high, a gap, and what is kept from the highest zone in need
    GapAndReserve,
    /// the series of 2014-06-18 to 06-30: above high
    HighOnly,
}

/// A kernel's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// which zone of a node comes first
    pub fair: Fair,
    /// what has lists of its own
    pub lru: LruScope,
    /// how watermarks follow from sizes
    pub watermarks: Generation,
    /// `vm.min_free_kbytes`; by the size of memory if there is none
    pub min_free_kbytes: Option<u32>,
    /// what goes first when memory is taken elsewhere
    pub zonelist: ZonelistOrder,
    /// when kswapd leaves a zone alone
    pub balance: ZoneBalance,
    /// whether CPUs hand in what they count only now and then
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
    /// Those of the seed's baseline.
    #[must_use]
    pub fn linux_3_15() -> Self {
        Rules {
            fair: Fair::Baseline,
            lru: LruScope::Zone,
            watermarks: Generation::Ratio,
            min_free_kbytes: None,
            zonelist: ZonelistOrder::Node,
            balance: ZoneBalance::GapAndReserve,
            drift: true,
            swappiness: 60,
        }
    }

    /// Lists per node, watermarks by scale.
    #[must_use]
    pub fn linux_4_8() -> Self {
        Rules {
            fair: Fair::NodeLru,
            lru: LruScope::Node,
            watermarks: Generation::Scale(10),
            ..Rules::linux_3_15()
        }
    }

    /// Whether numbers are within their limits.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let scale = match self.watermarks {
            Generation::Ratio => true,
            Generation::Scale(factor) => (1..=1000).contains(&factor),
        };
        let min_free = self.min_free_kbytes.is_none_or(|k| (128..=1 << 24).contains(&k));
        scale && min_free && self.swappiness <= 100
    }
}
