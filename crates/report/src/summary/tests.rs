use super::*;
use crate::filter::RecordFilter;
use crate::scene::{absent, mapping, region, snapshot, target, unknown};
use isotherm_core::{AddrRange, DirtyBytes, RegionView};
use proptest::prelude::*;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A heap of 8 MiB: 1 hot, 1 warm, 2 cold, 1 unknown, 2 absent, 1 in no region.
fn heap() -> Vec<RegionView> {
    vec![
        region(0, MIB, 50.0),
        region(MIB, 2 * MIB, 1.0),
        region(2 * MIB, 4 * MIB, 0.0),
        unknown(4 * MIB, 5 * MIB, Unknown::Mlocked),
        absent(5 * MIB, 7 * MIB),
    ]
}

fn summary(options: Options, snapshots: &[Snapshot]) -> Result<Summary, FilterError> {
    let mut s = Summarizer::new(options);
    snapshots.iter().for_each(|snapshot| s.push(snapshot));
    s.finish()
}

fn one(regions: Vec<RegionView>) -> Snapshot {
    snapshot(0, 1.0, vec![target(0, vec![mapping(0, 8 * MIB, "[heap]")], regions)])
}

fn filtered(time: Option<(u64, u64)>, addr: Option<(u64, u64)>) -> Options {
    let filter = RecordFilter {
        time: time.map(|(a, b)| Duration::from_millis(a)..Duration::from_millis(b)),
        addr: addr.map(|(a, b)| AddrRange::new(a, b)),
        ..RecordFilter::default()
    };
    Options { filter, ..Options::default() }
}

#[test]
fn every_byte_is_counted_once() {
    let s = summary(Options::default(), &[one(heap())]).unwrap();
    let expected = Bytes {
        mapped_bytes: 8 * MIB,
        resident_bytes: Some(5 * MIB),
        hot_bytes: MIB,
        warm_bytes: MIB,
        cold_bytes: 2 * MIB,
        unknown_bytes: MIB,
        unknown_bytes_by_reason: BTreeMap::from([("mlocked", MIB)]),
        measured_bytes: 4 * MIB,
        extended_bytes: 0,
        old_bytes: 0,
        absent_bytes: Some(2 * MIB),
        left_out_bytes: MIB,
        dirty_bytes: 0,
        writeback_bytes: 0,
    };
    assert_eq!(s.mean, expected);
    assert_eq!(s.last, expected);
    assert_eq!(s.mappings, [MappingRow { name: "[heap]".into(), bytes: expected }]);
}

#[test]
fn dirty_bytes_of_files_are_counted() {
    let of = |dirty| {
        let mut s = one(heap());
        s.targets[0].dirty = Some(DirtyBytes { dirty, writeback: MIB });
        s
    };
    let second =
        Snapshot { seq: 1, start: of(0).end, end: of(0).end + Duration::from_secs(1), ..of(0) };
    let s = summary(Options::default(), &[of(4 * MIB), second]).unwrap();
    let dirty = |b: &Bytes| (b.dirty_bytes, b.writeback_bytes);
    assert_eq!((dirty(&s.mean), dirty(&s.last)), ((2 * MIB, MIB), (0, MIB)));
    assert_eq!([dirty(&s.targets[0].bytes), dirty(&s.mappings[0].bytes)], [(2 * MIB, MIB); 2]);
    let text = crate::summary_text(&s, 9);
    assert!(text.contains("dirty") && text.contains("under writeback"), "{text}");
    let part = summary(filtered(None, Some((0, MIB))), &[of(MIB)]).unwrap();
    assert_eq!(dirty(&part.mean), (0, 0), "of a part of the file it is not known");
}

#[test]
fn regions_are_clipped_to_the_addresses_wanted() {
    let s = summary(filtered(None, Some((MIB / 2, 3 * MIB))), &[one(heap())]).unwrap();
    assert_eq!((s.mean.hot_bytes, s.mean.warm_bytes, s.mean.cold_bytes), (MIB / 2, MIB, MIB));
    assert_eq!(s.mean.mapped_bytes, 5 * MIB / 2);
    let none = summary(filtered(None, Some((9 * MIB, 10 * MIB))), &[one(heap())]).unwrap_err();
    assert_eq!(
        none.to_string(),
        "no monitored memory at 0x900000-0xa00000: the record has regions within 0x0-0x700000, \
         choose addresses within it"
    );
}

#[test]
fn a_region_over_two_mappings_counts_for_both_in_proportion() {
    let maps = vec![mapping(0, MIB, "/lib/libc.so.6"), mapping(MIB, 4 * MIB, "")];
    let half = RegionView { resident_bp: 5000, ..region(0, 4 * MIB, 20.0) };
    let s = summary(Options::default(), &[snapshot(0, 1.0, vec![target(0, maps, vec![half])])]);
    let rows: Vec<_> = s
        .unwrap()
        .mappings
        .into_iter()
        .map(|r| (r.name, r.bytes.hot_bytes, r.bytes.absent_bytes.unwrap()))
        .collect();
    assert_eq!(
        rows,
        [
            ("anonymous".to_owned(), 3 * MIB / 2, 3 * MIB / 2),
            ("/lib/libc.so.6".to_owned(), MIB / 2, MIB / 2),
        ]
    );
}

#[test]
fn means_and_percentiles_weigh_by_time() {
    // 3 s with a working set of 1 MiB, then 1 s with 4 MiB, of which only half is wanted.
    let mut long = one(vec![region(0, MIB, 50.0)]);
    long.end = long.start + Duration::from_secs(3);
    let mut short = one(vec![region(0, 4 * MIB, 50.0)]);
    (short.start, short.end) = (long.end, long.end + Duration::from_secs(1));
    let s = summary(filtered(Some((0, 3500)), None), &[long, short]).unwrap();
    assert_eq!(s.mean.hot_bytes, (5 * 2 * MIB).div_ceil(7), "(3 x 1 + 0.5 x 4) / 3.5 MiB");
    assert_eq!((s.working_set.p50_bytes, s.working_set.p95_bytes), (MIB, 4 * MIB));
    assert_eq!((s.from_ms, s.to_ms, s.snapshots), (0.0, 3500.0, 2));
}

#[test]
fn percentiles_are_sizes_not_exceeded_for_that_share_of_time() {
    let of = |sizes: Vec<(u64, f64)>| {
        let mut d = Distribution::new(EXACT_SNAPSHOTS);
        sizes.into_iter().for_each(|(size, seconds)| d.push(size, seconds));
        working_set(d)
    };
    let hundred: Vec<_> = (1..=100).rev().map(|n| (n, 0.1)).collect();
    assert_eq!(of(hundred), WorkingSet { p50_bytes: 50, p95_bytes: 95, max_bytes: 100 });
    let rare = vec![(1, 9.6), (7, 0.4)];
    assert_eq!(of(rare), WorkingSet { p50_bytes: 1, p95_bytes: 1, max_bytes: 7 });
}

#[test]
fn cost_and_cpu_are_per_second_of_the_time_wanted() {
    let snapshots: Vec<_> = (0..10)
        .map(|i| {
            let regions = vec![region(0, MIB, 1.0); 1 + i as usize % 2];
            snapshot(i, 0.4, vec![target(0, vec![], regions.clone()), target(3, vec![], regions)])
        })
        .collect();
    let s = summary(filtered(Some((1000, 3000)), None), &snapshots).unwrap();
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} is not {b}");
    close(s.monitor.cpu_percent, 1.0);
    close(s.monitor.looks_per_s, 125.0);
    close(s.monitor.clears_per_s, 50.0);
    close(s.monitor.regions_mean, 3.0);
    assert_eq!((s.monitor.regions_max, s.monitor.regions_bound), (4, 1000));
    close(s.target_cpu_percent.unwrap(), 100.0);
    close(s.targets[1].cpu_percent.unwrap(), 50.0);
    assert_eq!((s.targets[1].target, &*s.targets[1].label), (3, "target 3"));
    assert_eq!(s.mappings[0].name, "(no mapping known)");
}

#[test]
fn targets_without_a_row_count_in_the_totals() {
    let of = |id| target(id, vec![], vec![region(0, MIB, 1.0)]);
    let views: Vec<_> = (0..98_304).map(of).collect();
    let s = summary(Options::default(), &[snapshot(0, 1.0, views)]).unwrap();
    let first: f64 = s.targets.iter().filter_map(|row| row.cpu_percent).sum();
    assert_eq!(s.targets.len(), 65_536);
    assert_eq!(s.target_cpu_percent.unwrap().round(), (first * 1.5).round());
    assert_eq!(s.mean.mapped_bytes, 98_304 * MIB);
}

#[test]
fn json_names_its_units() {
    let json = crate::json(&summary(Options::default(), &[one(heap())]).unwrap()).unwrap();
    let v: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(v["schema_version"], 1);
    assert_eq!(v["hot_hz"], 10.0);
    assert_eq!(v["cold_ms"], 5000.0);
    assert_eq!(v["mean"]["unknown_bytes_by_reason"]["mlocked"], MIB);
    assert_eq!(v["working_set"]["p95_bytes"], 2 * MIB);
    assert_eq!(v["mappings"][0]["name"], "[heap]");
    assert_eq!(v["mappings"][0]["hot_bytes"], MIB);
    assert_eq!(v["targets"][0]["cpu_percent"], 20.0);
    assert_eq!(v["monitor"]["regions_max"], 5);
}

prop_compose! {
    fn any_region()(start in 0u64..1 << 40, len in 1u64..1 << 34, hz in 0f32..1e4,
                    resident in 0u32..=10_000, unknown in 0u32..=10_000) -> RegionView {
        let mut r = region(start, start + len, hz);
        r.resident_bp = resident;
        r.unknown_bp.0[1] = unknown.min(resident);
        r
    }
}

proptest! {
    #[test]
    fn bytes_add_up_to_mapped_memory(r in any_region(), cut in 0u64..1 << 34, last in 0u64..1 << 20) {
        let end = r.range.end + last;
        let border = (r.range.start + cut).min(end);
        let maps = vec![mapping(r.range.start, border, "/a"), mapping(border, end, "/b")];
        let s = summary(Options::default(), &[snapshot(0, 1.0, vec![target(0, maps, vec![r])])]).unwrap();
        for b in s.mappings.iter().map(|m| &m.bytes).chain([&s.mean, &s.last]) {
            let (resident, absent) = b.resident_bytes.zip(b.absent_bytes).unwrap();
            prop_assert_eq!(resident + absent + b.left_out_bytes, b.mapped_bytes);
            prop_assert_eq!(b.of_any_heat(), resident);
        }
        prop_assert_eq!(s.mean.mapped_bytes, end - r.range.start);
        prop_assert_eq!(s.mean.left_out_bytes, last);
        let by_name: u64 = s.mappings.iter().map(|m| m.bytes.mapped_bytes).sum();
        prop_assert_eq!(by_name, s.mean.mapped_bytes);
    }
}
