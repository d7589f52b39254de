use super::*;

const GUESTS: [(&str, &str); 4] = [
    ("6.1", include_str!("../../tests/fixtures/zoneinfo/6.1")),
    ("6.12", include_str!("../../tests/fixtures/zoneinfo/6.12")),
    ("6.18", include_str!("../../tests/fixtures/zoneinfo/6.18")),
    ("7.2", include_str!("../../tests/fixtures/zoneinfo/7.2")),
];
const ONE_NODE: &str = include_str!("../../tests/fixtures/zoneinfo/one-node");

/// As Linux 3.16 writes it: counters of the node in the zone, and before the protection.
const OLD: &str = "Node 0, zone      DMA
  pages free     3977
        min      67
        low      83
        high     100
        scanned  0
        spanned  4095
        present  3998
        managed  3977
    nr_free_pages 3977
    nr_inactive_anon 12
        protection: (0, 3459, 7934, 7934)
  pagesets
    cpu: 0
              count: 7
              high:  0
              batch: 1
  vm stats threshold: 6
  all_unreclaimable: 1
  start_pfn:         1
  inactive_ratio:    3
";

#[test]
fn guests_with_three_nodes() {
    for (kernel, text) in GUESTS {
        let info = parse_zoneinfo(text).unwrap();
        assert_eq!(info.nodes.keys().collect::<Vec<_>>(), [&0, &1, &2], "{kernel}");
        let populated: Vec<_> =
            info.zones.iter().filter(|z| z.present > 0).map(|z| (z.node, &*z.name)).collect();
        let want = [(0, "DMA"), (0, "DMA32"), (1, "DMA32"), (2, "Normal")];
        assert_eq!(populated, want, "{kernel}");
        assert_eq!(info.zones.len() % 3, 0, "{kernel}: each node has every zone");
        for zone in info.zones.iter().filter(|z| z.present > 0) {
            let w = zone.watermarks;
            assert!(w.min < w.low && w.low < w.high && zone.managed <= zone.present, "{zone:?}");
            assert_eq!(zone.pagesets.iter().map(|p| p.cpu).collect::<Vec<_>>(), [0, 1]);
            assert!(zone.pagesets.iter().all(|p| p.stat_threshold.is_some()));
            assert_eq!(zone.unreclaimable, Some(false));
            assert_eq!(zone.counters["nr_free_pages"], zone.free);
            assert!(zone.counters.contains_key("numa_hit"));
            assert!(!zone.counters.contains_key("min") && !zone.counters.contains_key("count"));
        }
        let span = info.zones.iter().find(|z| z.node == 2 && z.present > 0).unwrap().span();
        assert_eq!(span, Some(AddrRange::new(4 << 30, 5 << 30)), "{kernel}");
    }
}

#[test]
fn fields_of_newer_kernels_are_read() {
    let first = |text| parse_zoneinfo(text).unwrap().zones[0].clone();
    let of = |i: usize| first(GUESTS[i].1);
    assert_eq!([0, 1, 3].map(|i| of(i).watermarks.promo.is_some()), [false, true, true]);
    assert_eq!([1, 2].map(|i| of(i).pagesets[0].high_min.is_some()), [false, true]);
    assert_eq!(of(3).counters["reserved_highatomic"], 0);
    assert_eq!(of(3).protection, [0, 950, 950, 950, 950]);
}

#[test]
fn counters_of_the_node_and_empty_zones() {
    let info = parse_zoneinfo(ONE_NODE).unwrap();
    assert_eq!(info.nodes[&0]["nr_active_file"], 849_621);
    assert!(!info.nodes[&0].contains_key("nr_free_pages"));
    let movable = &info.zones[3];
    assert_eq!((&*movable.name, movable.watermarks.min, movable.start_pfn), ("Movable", 32, None));
    assert_eq!((movable.span(), movable.pagesets.len(), movable.counters.len()), (None, 0, 0));
    let normal = &info.zones[2];
    assert_eq!(normal.unreclaimable, Some(true));
    let want = Pageset {
        cpu: 1,
        count: 4_784,
        high: 32_283,
        batch: 63,
        high_min: Some(10_081),
        high_max: Some(337_141),
        stat_threshold: Some(36),
    };
    assert_eq!(normal.pagesets[1], want);
}

#[test]
fn an_old_kernel() {
    let info = parse_zoneinfo(OLD).unwrap();
    let zone = &info.zones[0];
    assert!(info.nodes.is_empty());
    assert_eq!(zone.counters["nr_inactive_anon"], 12);
    assert_eq!((zone.counters["scanned"], zone.counters["inactive_ratio"]), (0, 3));
    assert_eq!((zone.watermarks.boost, zone.cma), (None, None));
    assert_eq!((zone.unreclaimable, zone.protection.len()), (Some(true), 4));
    assert_eq!(zone.pagesets[0].stat_threshold, Some(6));
}

#[test]
fn a_part_is_not_taken_for_the_whole() {
    let (part, _) = OLD.split_once("        spanned").unwrap();
    assert_eq!(parse_zoneinfo(part), Err("zone DMA of node 0 has no `spanned`".into()));
    let (part, _) = OLD.split_once("              batch").unwrap();
    assert_eq!(parse_zoneinfo(part), Err("zone DMA of node 0 has no `batch`".into()));
    assert_eq!(parse_zoneinfo(""), Ok(ZoneInfo::default()));
    let moved = OLD.replace("start_pfn:         1", "start_pfn: 18446744073709551615");
    assert_eq!(parse_zoneinfo(&moved).unwrap().zones[0].span(), None);
}

#[test]
fn this_machine() {
    let info = zoneinfo("/".as_ref()).unwrap();
    assert!(info.zones.iter().any(|z| z.free > 0 && z.span().is_some()));
}
