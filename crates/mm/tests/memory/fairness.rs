//! Properties of the policies, on generated machines.

use isotherm_mm::{Fair, Layout, Memory, NodeLayout, Rules, ZoneKind, ZoneLayout};
use proptest::prelude::*;

use super::{Pages, file, memory, one_node, stream};

fn streamed(layout: &Layout, fair: Fair) -> (Memory, u64) {
    let mut memory = memory(layout, fair.rules());
    let pages = u32::try_from(layout.managed() * 2).unwrap();
    let resets = stream(&mut memory, pages, layout.cpus);
    (memory, resets)
}

fn allocated(memory: &Memory) -> Vec<u64> {
    memory.zones().iter().map(|z| z.stats.allocated).collect()
}

/// The difference between a zone's share of the allocated pages and its share of the allocatable ones.
fn unfairness(memory: &Memory) -> f64 {
    let all: u64 = allocated(memory).iter().sum();
    let zones = memory.zones().iter().filter(|z| z.stats.allocated > 0);
    let managed: i64 = zones.clone().map(|z| z.managed).sum();
    let off = zones
        .map(|z| (z.stats.allocated as f64 / all as f64 - z.managed as f64 / managed as f64).abs());
    off.fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn with_a_dma_zone_v1_never_resets_and_is_off_in_effect(layout in one_node(true)) {
        let (v1, resets) = streamed(&layout, Fair::V1);
        let (off, _) = streamed(&layout, Fair::Off);
        prop_assert_eq!(resets, 0);
        // Except for the first round, before the batches are used up, and its consequences.
        for (v1, off) in allocated(&v1).into_iter().zip(allocated(&off)) {
            prop_assert!(v1.abs_diff(off) * 200 <= v1.max(off), "{} {}", v1, off);
        }
    }

    #[test]
    fn baseline_and_landed_give_each_zone_its_share(layout in one_node(true)) {
        for fair in [Fair::Baseline, Fair::Landed] {
            let (memory, _) = streamed(&layout, fair);
            prop_assert!(unfairness(&memory) < 0.03, "{:?}: {:?}", fair, allocated(&memory));
        }
    }

    #[test]
    fn landed_resets_less_than_baseline(layout in one_node(true)) {
        let (_, baseline) = streamed(&layout, Fair::Baseline);
        let (_, landed) = streamed(&layout, Fair::Landed);
        prop_assert!(landed > 0 && landed < baseline, "{} {}", landed, baseline);
    }

    #[test]
    fn without_a_dma_zone_v1_is_fair(layout in one_node(false)) {
        let (memory, resets) = streamed(&layout, Fair::V1);
        prop_assert!(resets > 0 && unfairness(&memory) < 0.03, "{:?}", allocated(&memory));
    }

    #[test]
    fn a_remote_zone_keeps_v1_from_resetting(layout in four_nodes()) {
        let resets = |fair: Fair| {
            let mut memory = memory(&layout, fair.rules());
            // All of it fits in the first node.
            let pages = layout.nodes[0].zones.iter().map(|z| z.managed).sum::<i64>() * 3 / 4;
            let resets = stream(&mut memory, u32::try_from(pages).unwrap(), layout.cpus);
            (resets, unfairness_of_node(&memory))
        };
        let (baseline, v1, landed) = (resets(Fair::Baseline), resets(Fair::V1), resets(Fair::Landed));
        prop_assert!(baseline.0 > 0 && landed.0 > 0, "{:?} {:?}", baseline, landed);
        prop_assert_eq!(v1.0, 0);
        // A round is some hundred pages, of which the drift of the counters of each CPU is a part: up to 0.047 was seen
        // on some hundred machines, and never less than 0.11 for v1.
        prop_assert!(v1.1 > 0.09 && baseline.1.max(landed.1) < 0.07, "{v1:?} {baseline:?} {landed:?}");
    }
}

fn unfairness_of_node(memory: &Memory) -> f64 {
    let zones: Vec<_> = memory.zones().iter().filter(|z| z.node == 0).collect();
    let all: u64 = zones.iter().map(|z| z.stats.allocated).sum();
    let managed: i64 = zones.iter().map(|z| z.managed).sum();
    let low = zones[0];
    (low.stats.allocated as f64 / all as f64 - low.managed as f64 / managed as f64).abs()
}

/// Four nodes, of which the first has two zones.
fn four_nodes() -> impl Strategy<Value = Layout> {
    (20_000_i64..40_000, 20_000_i64..40_000, 1_u32..9).prop_map(|(low, normal, cpus)| {
        let zone = |kind, managed| ZoneLayout { kind, managed };
        let node = |i: usize| {
            let mut zones = vec![zone(ZoneKind::Normal, normal)];
            if i == 0 {
                zones.insert(0, zone(ZoneKind::Dma32, low));
            }
            let distances = (0..4).map(|j| if i == j { 10 } else { 21 }).collect();
            NodeLayout { zones, distances }
        };
        Layout { cpus, nodes: (0..4).map(node).collect() }
    })
}

/// "high zone alloc batch 1000, low watermark not ok; low zone alloc batch 0, low watermark ok": the mail of
/// 2014-05-29 17:16, and the behaviour of each policy in that state.
#[test]
fn the_boundary() {
    let run = |fair: Fair| {
        let rules = Rules { drift: false, ..fair.rules() };
        let layout = Layout::single(1, &[(ZoneKind::Dma32, 50_000), (ZoneKind::Normal, 50_000)]);
        let mut memory = memory(&layout, rules);
        let mut pages = Pages::default();
        // Normal is filled to its low watermark. Its batch is set to 1000, that of the other zone to 0.
        let normal = &memory.zones()[1];
        let above = normal.free.exact() - normal.watermarks.low;
        assert_eq!(memory.occupy(1, above), above);
        for (z, batch) in [(0, 0), (1, 1000)] {
            let zone = memory.zone_mut(z).unwrap();
            let missing = batch - zone.batch.exact();
            zone.batch.add(0, missing);
            zone.depleted = batch == 0;
        }
        let before = *memory.stats();
        let frame = pages.allocate(&mut memory, file(0)).unwrap();
        (memory.zone_of(frame), memory.stats().since(&before))
    };
    for (fair, resets) in [(Fair::Baseline, 1), (Fair::V1, 0), (Fair::Landed, 1)] {
        let (zone, stats) = run(fair);
        assert_eq!((zone, stats.resets, stats.passes), (0, resets, 2), "{fair:?}");
        assert_eq!(stats.slow_paths, 0, "{fair:?}: the lower zone is above its watermark");
    }
}

/// Two CPUs that find the same number missing both add it.
#[test]
fn resets_that_race_give_twice_as_much() {
    let layout = Layout::single(2, &[(ZoneKind::Normal, 100_000)]);
    let mut memory = memory(&layout, Fair::Baseline.rules());
    let zone = memory.zone_mut(0).unwrap();
    let full = zone.full_batch();
    zone.batch.add(0, -full);
    zone.batch.fold();
    let missing = [zone.missing_batch(), zone.missing_batch()];
    (0..2).zip(missing).for_each(|(cpu, missing)| zone.add_to_batch(cpu, missing));
    assert_eq!(zone.batch.exact(), 2 * full);
}
