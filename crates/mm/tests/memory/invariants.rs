//! Properties that always hold.

use std::collections::BTreeSet;

use isotherm_mm::{
    AllocRequest, FAIR, FrameId, KINDS, Layout, ListKind, LruType, Memory, NodeLayout, Rules,
    ZoneKind, ZoneLayout, ZonelistOrder, normal_threshold, pressure_threshold,
};
use proptest::prelude::*;

use super::{Pages, memory};

/// Maximum number of CPUs.
const CPUS: u32 = 5;

fn layouts() -> impl Strategy<Value = Layout> {
    let zones = proptest::collection::btree_map(0_usize..5, 40_i64..3000, 1..4);
    let nodes = proptest::collection::vec(zones, 1..4);
    (1..=CPUS, nodes).prop_map(|(cpus, nodes)| {
        let n = nodes.len();
        let node = |(i, zones): (usize, std::collections::BTreeMap<usize, i64>)| NodeLayout {
            zones: zones
                .iter()
                .map(|(&k, &managed)| ZoneLayout { kind: KINDS[k], managed })
                .collect(),
            distances: (0..n).map(|j| if i == j { 10 } else { 20 }).collect(),
        };
        Layout { cpus, nodes: nodes.into_iter().enumerate().map(node).collect() }
    })
}

fn rules() -> impl Strategy<Value = Rules> {
    (0..FAIR.len(), any::<bool>(), any::<bool>(), 0_u8..=100).prop_map(
        |(f, zone, drift, swappiness)| {
            let zonelist = if zone { ZonelistOrder::Zone } else { ZonelistOrder::Node };
            Rules { zonelist, drift, swappiness, ..FAIR[f].rules() }
        },
    )
}

#[derive(Debug, Clone)]
enum Step {
    Allocate { cpu: u32, node: usize, class: usize, kind: u8, write: bool, times: u8 },
    Free(usize),
    Use(usize),
    Dirty(usize),
    Written(usize),
    Kswapd(usize, u64),
    Fold,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let allocate = (0_u32..6, 0_usize..4, 0_usize..5, 0_u8..3, any::<bool>(), 1_u8..=255).prop_map(
        |(cpu, node, class, kind, write, times)| Step::Allocate {
            cpu,
            node,
            class,
            kind,
            write,
            times,
        },
    );
    let step = prop_oneof![
        6 => allocate,
        2 => any::<usize>().prop_map(Step::Free),
        4 => any::<usize>().prop_map(Step::Use),
        2 => any::<usize>().prop_map(Step::Dirty),
        1 => any::<usize>().prop_map(Step::Written),
        3 => (0_usize..4, 1_u64..500).prop_map(|(n, p)| Step::Kswapd(n, p)),
        1 => Just(Step::Fold),
    ];
    proptest::collection::vec(step, 1..120)
}

fn held(pages: &Pages, at: usize) -> Option<FrameId> {
    let held: Vec<FrameId> = pages.held.iter().flatten().copied().collect();
    (!held.is_empty()).then(|| held[at % held.len()])
}

fn take(memory: &mut Memory, pages: &mut Pages, request: AllocRequest) {
    let before: Vec<i64> = memory.zones().iter().map(|z| z.free.read()).collect();
    let reclaimed = |m: &Memory| m.zones().iter().map(|z| z.stats.reclaimed_direct).sum::<u64>();
    let without = reclaimed(memory);
    let Some(frame) = pages.allocate(memory, request) else { return };
    let zone = &memory.zones()[memory.zone_of(frame)];
    assert!(zone.kind <= request.class, "{:?} for {:?}", zone.kind, request.class);
    let seen = if reclaimed(memory) == without {
        before[memory.zone_of(frame)]
    } else {
        // More pages were free after reclaim than before. The readers' count at that time is their present
        // one plus the part that this CPU has added with the page: for example 59 where 55 are free and 58 is
        // the minimum.
        let w = zone.watermarks;
        let pressure = pressure_threshold(1, w.low, w.min);
        let handed_in = normal_threshold(CPUS, zone.managed).max(pressure);
        zone.free.read() + handed_in + 1
    };
    assert!(seen > zone.watermarks.min, "{seen} free: {zone:?}");
    if request.kind == Some(LruType::Anon) {
        memory.set_mapped(frame, true);
    }
}

fn go(memory: &mut Memory, pages: &mut Pages, step: &Step) {
    match *step {
        Step::Allocate { cpu, node, class, kind, write, times } => {
            let kind = [Some(LruType::File), Some(LruType::Anon), None][usize::from(kind)];
            let write = write && kind == Some(LruType::File);
            let request = AllocRequest { cpu, node, class: KINDS[class], kind, write, owner: 0 };
            (0..times).for_each(|_| take(memory, pages, request));
        }
        Step::Free(at) => {
            if let Some(frame) = held(pages, at) {
                pages.held[usize::try_from(memory.owner_of(frame)).unwrap()] = None;
                memory.free(1, frame);
                memory.free(1, frame);
            }
        }
        Step::Use(at) => held(pages, at).into_iter().for_each(|f| {
            pages.accessed[usize::try_from(memory.owner_of(f)).unwrap()] = true;
            memory.mark_accessed(f);
        }),
        Step::Dirty(at) => held(pages, at).into_iter().for_each(|f| memory.set_dirty(f)),
        Step::Written(at) => held(pages, at).into_iter().for_each(|f| memory.set_clean(f)),
        Step::Kswapd(node, budget) => {
            memory.run_kswapd(node, budget, pages);
        }
        Step::Fold => memory.fold_counters(),
    }
}

/// Pages are conserved, none is on two lists, and counters match the lists.
fn check(memory: &Memory, pages: &Pages) {
    let all = memory.zones().iter().map(|z| z.managed).sum::<i64>();
    let mut on_lists = BTreeSet::new();
    let mut counted = 0;
    for kind in ListKind::LRU {
        let mut seen = BTreeSet::new();
        for zone in 0..memory.zones().len() {
            // If lists belong to nodes, zones share them.
            seen.extend(memory.on_list(zone, kind));
        }
        let len = i64::try_from(seen.len()).unwrap();
        assert_eq!(len, memory.list_len(kind));
        assert!(seen.iter().all(|&f| memory.list_of(f) == kind));
        counted += len;
        on_lists.extend(seen);
    }
    assert_eq!(i64::try_from(on_lists.len()).unwrap(), counted, "a page is on two lists");
    let frames = || 0..FrameId::try_from(all).unwrap();
    for (i, z) in memory.zones().iter().enumerate() {
        let count = |list: fn(ListKind) -> bool| {
            let of = frames().filter(|&f| memory.zone_of(f) == i && list(memory.list_of(f)));
            i64::try_from(of.count()).unwrap()
        };
        assert_eq!(count(|l| l == ListKind::Free), z.free.exact());
        assert_eq!(count(|l| l.lru_type() == Some(LruType::File)), z.file);
        assert_eq!(count(|l| l.lru_type() == Some(LruType::Anon)), z.anon);
        let dirty = frames().filter(|&f| memory.zone_of(f) == i && memory.is_dirty(f)).count();
        assert_eq!(i64::try_from(dirty).unwrap(), z.dirty);
        assert_eq!(z.stats.allocated - z.stats.freed, (z.managed - z.free.exact()).unsigned_abs());
        let w = z.watermarks;
        assert!(w.min <= w.low && w.low <= w.high, "{w:?}");
    }
    let used = frames().filter(|&f| memory.list_of(f) != ListKind::Free).count();
    assert_eq!(used, pages.held.iter().flatten().count(), "what is used is held");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn pages_are_conserved(layout in layouts(), rules in rules(), steps in steps(), swap: bool) {
        let mut memory = memory(&layout, rules);
        memory.set_swap(swap);
        let mut pages = Pages::default();
        for (at, step) in steps.iter().enumerate() {
            memory.set_now(at as u64);
            go(&mut memory, &mut pages, step);
        }
        check(&memory, &pages);
    }
}

#[test]
fn machines_that_make_no_sense_are_refused() {
    let refused = |layout: Layout| Memory::new(&layout, Rules::default()).unwrap_err().to_string();
    let single = |zones: &[(ZoneKind, i64)]| Layout::single(1, zones);
    for (layout, word) in [
        (single(&[]), "has no zones"),
        (single(&[(ZoneKind::Normal, 10), (ZoneKind::Dma, 10)]), "sort"),
        (single(&[(ZoneKind::Normal, 0)]), "1 or more"),
        (single(&[(ZoneKind::Normal, i64::MAX)]), "at most"),
        (Layout { cpus: 0, ..single(&[(ZoneKind::Normal, 10)]) }, "CPUs"),
        (Layout { cpus: 1, nodes: Vec::new() }, "nodes"),
    ] {
        let text = refused(layout);
        assert!(text.contains(word), "{text}");
    }
    let mut far = single(&[(ZoneKind::Normal, 10)]);
    far.nodes[0].distances = vec![20];
    assert!(refused(far).contains("distance"));
}
