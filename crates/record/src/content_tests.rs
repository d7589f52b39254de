use super::*;
use crate::header::{FileEndReason, RecordingHeader};
use isotherm_core::{Cost, Mapping, MappingKind, Rate, UnknownPages};
use std::sync::Arc;
use std::time::Duration;

fn mapping(start: u64, end: u64) -> Mapping {
    let (kind, name) = (MappingKind::Anonymous, "".into());
    Mapping { range: AddrRange::new(start, end), kind, name, unknown: None }
}

fn region_at(start: u64, end: u64) -> RegionView {
    RegionView {
        range: AddrRange::new(start, end),
        accesses_bp: 100,
        age: Duration::ZERO,
        rate: Rate { hz: 2.0, low: 1.0, high: f32::INFINITY },
        touched_bp: 10_000,
        resident_bp: 10_000,
        unknown_bp: UnknownPages::default(),
        support: None,
    }
}

/// Two mappings that touch, covered by two regions of which one lies in both; one is left out.
fn sound(seq: u64) -> Snapshot {
    let mappings = vec![mapping(0x1000, 0x3000), mapping(0x3000, 0x6000), mapping(0x9000, 0xa000)];
    Snapshot {
        seq,
        start: Nanos(1000 + seq * 100),
        end: Nanos(1100 + seq * 100),
        attrs: Attrs::default(),
        cost: Cost::default(),
        quality: None,
        targets: vec![TargetView {
            id: TargetId(0),
            ran: None,
            mappings: Arc::new(mappings),
            left_out: 0x1000,
            dirty: None,
            ages: None,
            regions: vec![region_at(0x1000, 0x2000), region_at(0x2000, 0x6000)],
        }],
    }
}

fn fact(command: &str) -> Event {
    Event::Target(TargetInfo { id: TargetId(0), pid: Some(1), command: command.into() })
}

fn begun() -> Content {
    let mut content = Content::default();
    let facts = RecordingHeader::new("0", Attrs::default(), Nanos(0));
    assert!(content.take(&Event::Header(facts)).is_empty());
    assert!(content.take(&fact("a")).is_empty());
    content
}

/// The error about one snapshot that was changed.
fn wrong(change: impl FnOnce(&mut Snapshot)) -> String {
    let mut s = sound(0);
    change(&mut s);
    begun().take(&Event::Snapshot(Arc::new(s))).join("; ")
}

fn end(snapshots: u64, files: u64) -> Event {
    Event::End(End { why: FileEndReason::Stopped, note: String::new(), snapshots, files })
}

#[test]
fn a_sound_record_is_sound() {
    let mut content = begun();
    for seq in 0..3 {
        assert_eq!(content.take(&Event::Snapshot(Arc::new(sound(seq)))), [""; 0]);
    }
    assert!(content.take(&fact("a")).is_empty(), "told again by the next file");
    assert_eq!(content.take(&end(3, 1)), [""; 0]);
    assert_eq!((content.snapshots, content.regions, content.all_targets), (3, 6, 1));
}

#[test]
fn cover_is_exact() {
    let first = |s: &mut Snapshot| s.targets[0].regions[0].range;
    assert_eq!(wrong(|_| {}), "");
    assert!(wrong(|s| s.targets[0].left_out = 0).contains("leave out 0, but 24576 are mapped"));
    let gap = |s: &mut Snapshot| s.targets[0].regions[0].range.start = 0x1800;
    assert!(wrong(gap).contains("cover 18432 bytes"));
    let over = |s: &mut Snapshot| s.targets[0].regions[1].range.end = 0x7000;
    assert!(wrong(over).contains("0x2000-0x7000 lies outside"));
    let below = |s: &mut Snapshot| s.targets[0].regions[0].range = AddrRange::new(0, first(s).end);
    assert!(wrong(below).contains("lies outside of what is mapped"));
}

#[test]
fn bounds_are_kept() {
    let rate =
        |low, hz, high| wrong(move |s| s.targets[0].regions[0].rate = Rate { hz, low, high });
    assert_eq!(rate(2.0, 2.0, 2.0), "");
    assert!(rate(3.0, 2.0, 4.0).contains("a rate outside of its interval"));
    assert!(rate(1.0, 2.0, 1.5).contains("a rate outside of its interval"));
    let unknown = |bp: u32| {
        wrong(move |s| {
            s.targets[0].regions[0].resident_bp = 5000;
            s.targets[0].regions[0].unknown_bp.0[0] = bp;
        })
    };
    assert_eq!(unknown(5001), "");
    assert!(unknown(5100).contains("more unknown than resident"));
    let few = |s: &mut Snapshot| (s.attrs.min_regions, s.attrs.max_regions) = (3, 3);
    assert_eq!(wrong(few), "");
    assert!(wrong(|s| s.attrs.max_regions = 1).contains("2 regions are above the bound of 1"));
    assert!(wrong(|s| s.attrs.sample = s.attrs.aggr).contains("its attributes: "));
    assert!(wrong(|s| s.targets[0].id = TargetId(7)).contains("target 7: it was not announced"));
}

#[test]
fn order_is_kept() {
    let after = |next: Snapshot| {
        let mut content = begun();
        content.take(&Event::Snapshot(Arc::new(sound(4))));
        content.take(&Event::Snapshot(Arc::new(next))).join("; ")
    };
    assert_eq!(after(sound(5)), "");
    assert_eq!(after(sound(6)), "snapshot 5 before it is missing");
    assert_eq!(after(sound(9)), "snapshots 5 to 8 before it are missing");
    let early = Snapshot { start: Nanos(1), ..sound(5) };
    assert_eq!(after(early), "it starts before the one before it ends");
    assert_eq!(wrong(|s| s.end = s.start), "it ends when it starts");
    assert_eq!(begun().take(&fact("b")), [""; 0], "it has become another program");
    let another = TargetInfo { id: TargetId(0), pid: Some(2), command: "b".into() };
    assert!(begun().take(&Event::Target(another))[0].contains("target 0 was \"a\" before"));
}

#[test]
fn the_end_counts_earlier_frames() {
    let ended = |first: u64, told, files| {
        let mut content = begun();
        (first..first + 2).for_each(|seq| {
            content.take(&Event::Snapshot(Arc::new(sound(seq))));
        });
        content.take(&end(told, files)).join("; ")
    };
    assert_eq!(ended(0, 2, 1), "");
    assert_eq!(ended(7, 9, 3), "", "older files have made room");
    assert!(ended(7, 9, 1).contains("begins with snapshot 7"));
    assert!(ended(0, 3, 1).contains("counts 3 snapshots, and there are 2"));
}
