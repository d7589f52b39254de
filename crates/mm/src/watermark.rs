//! Watermarks and reserves: `__setup_per_zone_wmarks` and `setup_per_zone_lowmem_reserve` of mm/page_alloc.c.
//! All sizes are in pages, unless a name states kbytes.

use serde::{Deserialize, Serialize};

use crate::layout::{Layout, NodeLayout, ZoneKind};

const PAGE_KBYTES: i64 = 4;
/// `sysctl_lowmem_reserve_ratio` by [`ZoneKind::index`].
const RESERVE_RATIO: [i64; 5] = [256, 256, 32, 32, 1];

/// The rule for the distance of the low and high watermarks from the min watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum WatermarkRule {
    /// up to Linux 4.5: low is 125 % of min, high 150 %
    Ratio,
    /// since Linux 4.6: steps of 25 % of min, or of this many 10,000ths of the zone if that is more
    /// (`watermark_scale_factor`, 10 by default)
    Scale(u32),
}

/// Watermarks of a zone, in free pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ZoneWatermarks {
    /// below this, only tasks that will free memory may allocate
    pub min: i64,
    /// below this, kswapd is started
    pub low: i64,
    /// kswapd reclaims until this many pages are free
    pub high: i64,
}

/// The default of `vm.min_free_kbytes` for `lowmem` pages (all except [`ZoneKind::HighMem`]): the square root
/// of 16 times as many kbytes, clamped to 128 to 65536 ([`WatermarkRule::Ratio`]) or to 262144.
#[must_use]
pub fn min_free_kbytes(lowmem: i64, generation: WatermarkRule) -> i64 {
    let most = if generation == WatermarkRule::Ratio { 65536 } else { 262_144 };
    (lowmem.max(0) * PAGE_KBYTES * 16).isqrt().clamp(128, most)
}

/// Watermarks of a zone of `managed` pages on a machine with `lowmem` pages.
#[must_use]
pub fn watermarks(
    kind: ZoneKind,
    managed: i64,
    lowmem: i64,
    min_free_kbytes: i64,
    generation: WatermarkRule,
) -> ZoneWatermarks {
    let share = min_free_kbytes / PAGE_KBYTES * managed / lowmem.max(1);
    let min = if kind == ZoneKind::HighMem { (managed / 1024).clamp(32, 128) } else { share };
    match generation {
        WatermarkRule::Ratio => ZoneWatermarks { min, low: min + share / 4, high: min + share / 2 },
        WatermarkRule::Scale(factor) => {
            let step = (share / 4).max(managed * i64::from(factor) / 10_000);
            ZoneWatermarks { min, low: min + step, high: min + 2 * step }
        }
    }
}

/// Pages of all zones except [`ZoneKind::HighMem`].
#[must_use]
pub fn lowmem(layout: &Layout) -> i64 {
    let zones = layout.nodes.iter().flat_map(|n| &n.zones);
    zones.filter(|z| z.kind != ZoneKind::HighMem).map(|z| z.managed).sum()
}

/// Pages that zone `at` of a node reserves from requests that permit a higher kind, by [`ZoneKind::index`] of that
/// kind. It is the pages of the zones above it, up to that kind, divided by a ratio.
#[must_use]
pub fn lowmem_reserve(node: &NodeLayout, at: usize) -> [i64; 5] {
    let own = node.zones[at].kind;
    let above = |class: usize| {
        let higher = node.zones[at + 1..].iter().filter(|z| z.kind.index() <= class);
        higher.map(|z| z.managed).sum::<i64>()
    };
    std::array::from_fn(|class| above(class) / RESERVE_RATIO[own.index()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use ZoneKind::{Dma, Dma32, HighMem, Movable, Normal};

    fn marks(min: i64, low: i64, high: i64) -> ZoneWatermarks {
        ZoneWatermarks { min, low, high }
    }

    /// The worked example: 8 GiB as /proc/zoneinfo shows them on Linux 3.15.
    #[test]
    fn eight_gib() {
        let layout = Layout::single(4, &[(Dma, 3976), (Dma32, 757_760), (Normal, 1_290_240)]);
        let lowmem = lowmem(&layout);
        let kbytes = min_free_kbytes(lowmem, WatermarkRule::Ratio);
        assert_eq!(kbytes, 11459);
        let found = layout.nodes[0].zones.iter().enumerate().map(|(i, z)| {
            let w = watermarks(z.kind, z.managed, lowmem, kbytes, WatermarkRule::Ratio);
            (w, w.high - w.low, lowmem_reserve(&layout.nodes[0], i)[Normal.index()])
        });
        let expected = [
            (marks(5, 6, 7), 1, 8000),
            (marks(1057, 1321, 1585), 264, 5040),
            (marks(1800, 2250, 2700), 450, 0),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn since_4_6_the_steps_are_a_thousandth_of_the_zone() {
        let kbytes = min_free_kbytes(2_051_976, WatermarkRule::Scale(10));
        let of = |managed| watermarks(Normal, managed, 2_051_976, kbytes, WatermarkRule::Scale(10));
        assert_eq!(of(1_290_240), marks(1800, 1800 + 1290, 1800 + 2580));
        let steep = watermarks(Normal, 1_290_240, 2_051_976, kbytes, WatermarkRule::Scale(1));
        assert_eq!(steep, marks(1800, 2250, 2700), "a quarter of min at least");
    }

    #[test]
    fn the_root_has_bounds() {
        assert_eq!(min_free_kbytes(1, WatermarkRule::Ratio), 128);
        assert_eq!(min_free_kbytes(1 << 30, WatermarkRule::Ratio), 65536);
        assert_eq!(min_free_kbytes(1 << 40, WatermarkRule::Scale(10)), 262_144);
    }

    #[test]
    fn high_memory_has_a_min_of_its_own() {
        let w = |managed| watermarks(HighMem, managed, 200_000, 3000, WatermarkRule::Ratio);
        assert_eq!(w(1_000_000).min, 128);
        assert_eq!(w(40_000).min, 39);
        assert_eq!(w(1000).min, 32);
    }

    #[test]
    fn movable_memory_is_kept_from_by_a_32nd() {
        let layout = Layout::single(1, &[(Dma32, 25_600), (Normal, 51_200), (Movable, 64_000)]);
        let of = |at| lowmem_reserve(&layout.nodes[0], at);
        assert_eq!(of(0), [0, 0, 200, 200, 450]);
        assert_eq!(of(1)[Movable.index()], 2000);
    }
}
