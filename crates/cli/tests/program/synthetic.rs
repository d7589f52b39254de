//! Generated records, which need neither root nor time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attribution, Attrs, Cost, Mapping, MappingKind, Nanos, Rate, RateSupport,
    RegionView, Snapshot, TargetId, TargetView, UnknownPages,
};
use isotherm_record::{FileEndReason, Limits, RecordingHeader, TargetInfo, Writer};

const REGION: u64 = 64 << 10;

/// Writes a record of `snapshots`, with a flush after every third.
pub fn write(path: &Path, snapshots: u64) {
    record(path, snapshots, None);
}

/// The same for a process in `cgroup`, which has waited for `waited` pages before, and waits for one in each
/// snapshot.
pub fn write_in(cgroup: &str, waited: u64, path: &Path, snapshots: u64) {
    record(path, snapshots, Some((cgroup, waited)));
}

fn record(path: &Path, snapshots: u64, told: Option<(&str, u64)>) {
    let command = told.map_or("", |(cgroup, _)| cgroup).to_owned();
    let facts =
        RecordingHeader { command, ..RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0)) };
    let mut writer = Writer::create(path, &facts, Limits::default()).unwrap();
    let id = TargetId(0);
    let _ = writer.target(TargetInfo { id, pid: Some(4711), command: "made-up".into() }).unwrap();
    let range = AddrRange::new(0x1000_0000, 0x1000_0000 + 40 * REGION);
    let kind = MappingKind::Heap;
    let mappings = Arc::new(vec![Mapping { range, kind, name: "[heap]".into(), unknown: None }]);
    for seq in 0..snapshots {
        if let Some((cgroup, waited)) = told {
            let _ = writer.attribution(Attribution {
                target: id,
                at: Nanos(seq * 400_000_000 + 1),
                comm: "made-up".into(),
                cgroup: cgroup.into(),
                swapped: 0,
                major_faults: waited + seq,
            });
        }
        let _ = writer.snapshot(&snapshot(seq, range, &mappings)).unwrap();
        if seq % 3 == 2 {
            let _ = writer.flush().unwrap();
        }
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
}

fn snapshot(seq: u64, range: AddrRange, mappings: &Arc<Vec<Mapping>>) -> Snapshot {
    let region = |i: u64| RegionView {
        range: AddrRange::new(range.start + i * REGION, range.start + (i + 1) * REGION),
        accesses_bp: u32::try_from(i * 250).unwrap(),
        age: Duration::from_millis(400 * seq),
        rate: Rate { hz: i as f32, low: i as f32 / 2.0, high: i as f32 * 2.0 },
        touched_bp: if i > 0 { 10_000 } else { 0 },
        resident_bp: 10_000,
        unknown_bp: UnknownPages::default(),
        support: Some(RateSupport::MEASURED),
    };
    Snapshot {
        seq,
        start: Nanos(seq * 400_000_000),
        end: Nanos((seq + 1) * 400_000_000),
        attrs: Attrs::default(),
        cost: Cost::default(),
        quality: None,
        targets: vec![TargetView {
            id: TargetId(0),
            ran: None,
            mappings: Arc::clone(mappings),
            left_out: 0,
            dirty: None,
            ages: None,
            regions: (0..range.len() / REGION).map(region).collect(),
        }],
    }
}
