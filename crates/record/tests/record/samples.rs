//! Snapshots to record.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AGE_BINS, AddrRange, AgeHistogram, Attribution, Attrs, CacheTrace, CodeMapping, Cost,
    DirtyBytes, Fault, HugeAges, Mapping, MappingKind, MonitorKind, Nanos, PageAges, Quality, Rate,
    RateSupport, RegionView, Restraint, Snapshot, TargetId, TargetView, Unknown, UnknownPages,
};
use isotherm_record::{Event, FileEndReason, Limits, Reader, RecordingHeader, TargetInfo, Writer};
use proptest::prelude::*;

pub const NAME: &str = "the record under test";

pub fn facts() -> RecordingHeader {
    RecordingHeader {
        host: "lab".into(),
        kernel: "6.12.1".into(),
        command: "isotherm record -- ./app".into(),
        started_unix_ms: 1_795_000_000_000,
        seed: 7,
        look: "bpf".into(),
        ..RecordingHeader::new("0.1.0", Attrs::default(), Nanos(5_000_000_000))
    }
}

pub fn target(id: u32) -> TargetInfo {
    TargetInfo { id: TargetId(id), pid: Some(4000 + id), command: format!("app {id}") }
}

/// Bytes that can be read while they are written.
#[derive(Clone, Default)]
pub struct Shared(pub Rc<RefCell<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Records `snapshots` of targets 0 to 2 into memory.
pub fn record(snapshots: &[Snapshot]) -> Vec<u8> {
    record_with(&facts(), snapshots)
}

/// The same, with the attribution of target 1 just before the end of each snapshot.
pub fn record_attributed(snapshots: &[Snapshot]) -> Vec<u8> {
    record_stacked(snapshots, &[], None, None)
}

/// The same, with faults of target 1 before the first snapshot.
pub fn record_stacked(
    snapshots: &[Snapshot],
    faults: &[Fault],
    code: Option<Arc<Vec<CodeMapping>>>,
    trace: Option<CacheTrace>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::to(&mut bytes, Path::new(NAME), &facts(), Limits::default()).unwrap();
    for id in 0..3 {
        let _ = writer.target(target(id)).unwrap();
    }
    if let Some(code) = code {
        let _ = writer.code(TargetId(1), code).unwrap();
    }
    if let Some(trace) = trace {
        let _ = writer.trace(trace).unwrap();
    }
    let mut faults = faults.iter().peekable();
    for s in snapshots {
        while let Some(f) = faults.next_if(|f| f.at <= s.start) {
            let _ = writer.fault(f.clone()).unwrap();
        }
        let _ = writer.attribution(attribution(s)).unwrap();
        let _ = writer.snapshot(s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    bytes
}

pub fn attribution(s: &Snapshot) -> Attribution {
    Attribution {
        target: TargetId(1),
        at: Nanos(s.end.0 - 1),
        comm: "app (1) \"x\"".into(),
        cgroup: if s.seq == 0 { "" } else { "/system.slice/app.service" }.into(),
        swapped: s.seq << 20,
        major_faults: s.seq * 3,
    }
}

pub fn record_with(facts: &RecordingHeader, snapshots: &[Snapshot]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let limits = Limits::default();
    let mut writer = Writer::to(&mut bytes, Path::new(NAME), facts, limits).unwrap();
    for id in 0..3 {
        let _ = writer.target(target(id)).unwrap();
    }
    for s in snapshots {
        let _ = writer.snapshot(s).unwrap();
    }
    writer.finish(FileEndReason::Stopped, "").unwrap();
    bytes
}

pub fn reader(bytes: &[u8]) -> Reader {
    Reader::new(std::io::Cursor::new(bytes.to_vec()), Path::new(NAME)).unwrap()
}

/// The snapshots among `events`.
pub fn snapshots<E>(events: impl IntoIterator<Item = Result<Event, E>>) -> Vec<Snapshot> {
    let of = |event| match event {
        Ok(Event::Snapshot(s)) => Some(Arc::unwrap_or_clone(s)),
        _ => None,
    };
    events.into_iter().filter_map(of).collect()
}

/// `n` snapshots of 400 ms of a target with three regions, whose mappings change once.
pub fn few(n: u64) -> Vec<Snapshot> {
    let before = Arc::new(vec![mapping(0x1000, 0x9000, "[heap]")]);
    let after = Arc::new(vec![mapping(0x1000, 0x9000, "[heap]"), mapping(0xa000, 0xb000, "")]);
    (0..n).map(|seq| even(seq, 3, if seq < n / 2 { &before } else { &after })).collect()
}

/// A snapshot of `regions` adjacent regions that differ a little.
pub fn even(seq: u64, regions: u64, mappings: &Arc<Vec<Mapping>>) -> Snapshot {
    let region = |i: u64| RegionView {
        range: AddrRange::new(0x1000 * (i + 1), 0x1000 * (i + 2)),
        accesses_bp: u32::try_from(i * 7 + seq).unwrap() % 10_001,
        age: Duration::from_millis(400 * seq),
        // One bit of mantissa, which a record always keeps.
        rate: Rate { hz: [0.5, 0.75, 1.0, 1.5][(seq % 4) as usize], low: 0.5, high: f32::INFINITY },
        touched_bp: 10_000,
        resident_bp: 10_000,
        unknown_bp: UnknownPages::default(),
        support: None,
    };
    Snapshot {
        seq,
        start: Nanos(5_000_000_000 + seq * 400_000_000),
        end: Nanos(5_400_000_000 + seq * 400_000_000),
        attrs: Attrs::default(),
        cost: Cost {
            cpu: Duration::from_micros(900),
            looks: 20,
            pages: 320,
            clears: 3,
            ..Cost::default()
        },
        quality: None,
        targets: vec![TargetView {
            id: TargetId(1),
            ran: Some(Duration::from_millis(390)),
            mappings: mappings.clone(),
            left_out: 0,
            dirty: None,
            ages: None,
            regions: (0..regions).map(region).collect(),
        }],
    }
}

pub fn mapping(start: u64, end: u64, name: &str) -> Mapping {
    let kind = MappingKind::Anonymous;
    Mapping { range: AddrRange::new(start, end), kind, name: name.into(), unknown: None }
}

/// Up to `n` ranges, sorted and disjoint, some of them adjacent or empty.
fn ranges(n: usize) -> impl Strategy<Value = Vec<AddrRange>> {
    let steps = prop::collection::vec((prop_oneof![Just(0), 0..1u64 << 40], 0..1u64 << 40), 0..n);
    (0..u64::MAX >> 1, steps).prop_map(|(mut at, steps)| {
        let mut range = |(gap, len)| {
            let start = at + gap;
            at = start + len;
            AddrRange { start, end: at }
        };
        steps.into_iter().map(&mut range).collect()
    })
}

fn rate() -> impl Strategy<Value = Rate> {
    let hz = || prop_oneof![Just(0.0f32), Just(f32::INFINITY), Just(f32::MAX), 0.0..1e4f32];
    (hz(), hz(), hz()).prop_map(|(hz, low, high)| Rate { hz, low, high })
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::ZERO), any::<u64>().prop_map(Duration::from_nanos)]
}

fn support() -> impl Strategy<Value = Option<RateSupport>> {
    let shares = (0..=10_000u32).prop_flat_map(|told| {
        (0..=told).prop_map(move |measured_bp| RateSupport {
            measured_bp,
            extended_bp: told - measured_bp,
        })
    });
    prop::option::of(shares)
}

fn region(range: AddrRange) -> impl Strategy<Value = RegionView> {
    let bp = || prop_oneof![Just(0), Just(10_000), 0..=10_000u32];
    (bp(), duration(), rate(), bp(), bp(), prop::array::uniform9(bp()), support()).prop_map(
        move |(accesses_bp, age, rate, touched_bp, resident_bp, unknown, support)| RegionView {
            range,
            accesses_bp,
            age,
            rate,
            touched_bp,
            resident_bp,
            unknown_bp: UnknownPages(unknown),
            support,
        },
    )
}

fn mappings() -> impl Strategy<Value = Arc<Vec<Mapping>>> {
    let kind = prop::sample::select(vec![
        MappingKind::Anonymous,
        MappingKind::Heap,
        MappingKind::Stack,
        MappingKind::File,
        MappingKind::Special,
        MappingKind::Physical,
    ]);
    let unknown = prop::option::of(prop::sample::select(Unknown::ALL.to_vec()));
    let rest = prop::collection::vec((kind, "[a-z/ä]{0,9}", unknown), 6);
    (ranges(6), rest).prop_map(|(ranges, rest)| {
        let of = |(range, (kind, name, unknown)): (_, (_, String, _))| Mapping {
            range,
            kind,
            name: name.into(),
            unknown,
        };
        Arc::new(ranges.into_iter().zip(rest).map(of).collect())
    })
}

fn attrs() -> impl Strategy<Value = Attrs> {
    let monitor = prop::sample::select(MonitorKind::ALL.to_vec());
    let old = any::<(u32, u32, u64, u64, u32, u32, bool, bool)>();
    let new = (monitor, any::<(u32, u32, bool)>(), duration());
    (duration(), duration(), duration(), old, new).prop_map(
        |(
            sample,
            aggr,
            update,
            (min_regions, max_regions, min_region_size, window, parts, every, uniform, extra),
            (monitor, (budget_ppm, max_clears, windows), interval),
        )| {
            Attrs {
                sample,
                aggr,
                update,
                min_regions,
                max_regions,
                min_region_size,
                window,
                split_parts: parts,
                clear_every: every,
                split_uniform: uniform,
                extra_split: extra,
                monitor,
                budget_ppm,
                max_clears,
                interval,
                windows,
            }
        },
    )
}

fn quality() -> impl Strategy<Value = Option<Quality>> {
    let restraint = [Restraint::None, Restraint::ShortRuns, Restraint::ReadOnly];
    let error = prop::option::of(0.0..20f32);
    let restraint = prop::sample::select(restraint.to_vec());
    prop::option::of((0..=10_000u32, error, any::<u64>(), restraint).prop_map(
        |(coverage_bp, error_log2, externally_cleared, restraint)| Quality {
            coverage_bp,
            error_log2,
            externally_cleared,
            restraint,
        },
    ))
}

fn ages() -> impl Strategy<Value = Option<Arc<PageAges>>> {
    let histogram = || prop::collection::vec(any::<u32>(), AGE_BINS);
    let histograms = prop::collection::vec(histogram(), 3);
    let huge = prop::option::of(prop::collection::vec(histogram(), 2));
    let bins = |v: &[u32]| AgeHistogram(std::array::from_fn(|i| v[i]));
    let ages = (histograms, huge, any::<[u32; 4]>()).prop_map(
        move |(h, huge, [sampling, untouched, unknown, error_ms])| PageAges {
            since: Nanos(0),
            begun: Nanos(0),
            sampling,
            idle: bins(&h[0]),
            untouched,
            unknown,
            swapped: bins(&h[1]),
            returned: bins(&h[2]),
            error_ms,
            // Nothing but zeros is as good as no huge pages.
            huge: huge.map(|h| Box::new(HugeAges { idle: bins(&h[0]), returned: bins(&h[1]) })),
        },
    );
    prop::option::of(ages.prop_map(Arc::new))
}

fn view(id: u32, mappings: Vec<Arc<Vec<Mapping>>>) -> impl Strategy<Value = TargetView> {
    let regions = ranges(5).prop_flat_map(|r| r.into_iter().map(region).collect::<Vec<_>>());
    let mappings = prop::sample::select(mappings);
    let dirty = any::<(u64, u64)>().prop_map(|(dirty, writeback)| DirtyBytes { dirty, writeback });
    let rest = (prop::option::of(dirty), regions, ages());
    (prop::option::of(duration()), mappings, any::<u64>(), rest).prop_map(
        move |(ran, mappings, left_out, (dirty, regions, ages))| TargetView {
            id: TargetId(id),
            ran,
            mappings,
            left_out,
            dirty,
            ages,
            regions,
        },
    )
}

fn snapshot(mappings: Vec<Arc<Vec<Mapping>>>) -> impl Strategy<Value = Snapshot> {
    let targets = (0..3).map(|id| prop::option::of(view(id, mappings.clone()))).collect::<Vec<_>>();
    let cost = (duration(), any::<(u64, u64, u64)>(), duration())
        .prop_map(|(cpu, (looks, pages, clears), lost)| Cost { cpu, looks, pages, clears, lost });
    (attrs(), cost, quality(), targets, 0..6_000_000_000u64).prop_map(
        |(attrs, cost, quality, targets, len)| Snapshot {
            seq: 0,
            start: Nanos(0),
            end: Nanos(len),
            attrs,
            cost,
            quality,
            targets: targets.into_iter().flatten().collect(),
        },
    )
}

/// Up to `n` consecutive snapshots of up to three targets that come and go, with changing mappings.
pub fn any_snapshots(n: usize) -> impl Strategy<Value = Vec<Snapshot>> {
    prop::collection::vec(mappings(), 1..4)
        .prop_flat_map(move |mappings| prop::collection::vec(snapshot(mappings), 0..n))
        .prop_map(|mut all| {
            let mut now = 0;
            for (seq, s) in (0..).zip(&mut all) {
                s.seq = seq;
                (s.start, s.end) = (Nanos(now), Nanos(now + s.end.0));
                now = s.end.0;
            }
            all
        })
}
