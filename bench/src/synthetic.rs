//! A generated record of any length: a server of 64 GiB, of which a tenth is hot and two tenths are warm. One
//! region in ten changes its borders and heat each second.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attrs, CacheAccess, CacheAccessKind, CacheTrace, CodeMapping, Cost, Fault,
    FaultKind, Mapping, MappingKind, Nanos, PAGE_SIZE, PageAges, RateSupport, RegionView, Snapshot,
    TargetId, TargetView, UnknownPages, rate,
};
use isotherm_record::{FileEndReason, Limits, RecordingHeader, TargetInfo, WriteError, Writer};

const BASE: u64 = 0x7f00_0000_0000;
/// Address space for each region, within which its borders move.
const STRIDE: u64 = 64 << 20;
const UNIT: u64 = 64 << 10;
const AGGR: Duration = Duration::from_millis(400);
const SAMPLE: Duration = Duration::from_millis(20);

/// Pseudo-random numbers, the same in each run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % n
    }
}

/// The lower border of a region, the pages found touched of 320, and the snapshot of its last change.
#[derive(Clone, Copy)]
struct Stretch {
    start: u64,
    young: u64,
    since: u64,
}

impl Stretch {
    fn new(i: u64, seq: u64, noise: &mut Noise) -> Self {
        let border = if i == 0 { 0 } else { noise.below(STRIDE / UNIT) * UNIT };
        let young = match noise.below(10) {
            0..7 => 0,
            7..9 => 20 + noise.below(40),
            _ => 310 + noise.below(10),
        };
        Stretch { start: BASE + i * STRIDE + border, young, since: seq }
    }
}

/// Writes `snapshots` of `regions` each, one every 400 ms and each with ages.
pub fn write(path: &Path, snapshots: u64, regions: u64) -> Result<(), WriteError> {
    write_every(path, snapshots, regions, (AGGR, 1))
}

/// The same with this time between two snapshots, of which every `ages_every`-th has ages.
///
/// # Errors
/// If the record cannot be written.
pub fn write_every(
    path: &Path,
    snapshots: u64,
    regions: u64,
    (every, ages_every): (Duration, u64),
) -> Result<(), WriteError> {
    let mut facts = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
    facts.look = "nothing: made up".into();
    (facts.host, facts.kernel) = ("nowhere".into(), "6.18".into());
    let mut writer = Writer::create(path, &facts, Limits::default())?;
    let command = "/usr/bin/server --made-up".into();
    let _ = writer.target(TargetInfo { id: TargetId(0), pid: Some(4711), command })?;
    let program = CodeMapping {
        range: AddrRange::new(0x1000, 0x2000),
        offset: 0,
        path: "/usr/bin/server".into(),
        build_id: "".into(),
    };
    let _ = writer.code(TargetId(0), Arc::new(vec![program]))?;
    let _ = writer.fault(Fault {
        target: TargetId(0),
        at: Nanos(0),
        kind: FaultKind::Major,
        tid: 4711,
        thread: "server".into(),
        range: AddrRange::new(BASE, BASE + PAGE_SIZE),
        weight: 1,
        frames: [0x1000].into(),
    })?;
    for snapshot in self::snapshots(regions, every, ages_every).take(snapshots as usize) {
        let _ = writer.snapshot(&snapshot)?;
    }
    let _ = writer.trace(accesses(every * u32::try_from(snapshots).unwrap_or(u32::MAX)))?;
    writer.finish(FileEndReason::Stopped, "")?;
    Ok(())
}

/// Snapshots of `regions` each without an end, one every `every`, of which every `ages_every`-th has ages.
pub fn snapshots(regions: u64, every: Duration, ages_every: u64) -> impl Iterator<Item = Snapshot> {
    let mappings = mappings(regions);
    let mut noise = Noise(1);
    let mut all: Vec<Stretch> = (0..regions).map(|i| Stretch::new(i, 0, &mut noise)).collect();
    (0..).map(move |seq| {
        for (i, stretch) in (0..).zip(&mut all) {
            if noise.below(25) == 0 {
                *stretch = Stretch::new(i, seq, &mut noise);
            }
        }
        snapshot(seq, &all, &mappings, (every, ages_every))
    })
}

/// Reads of 600 pages, one after the other and five times, within `time`.
fn accesses(time: Duration) -> CacheTrace {
    const PAGES: u64 = 600;
    let read = |page| CacheAccess {
        target: TargetId(0),
        page: page % PAGES,
        kind: CacheAccessKind::Read,
        rarity: 0,
    };
    CacheTrace {
        since: Nanos(0),
        until: Nanos(0) + time,
        sampling: 0,
        pages: vec![(TargetId(0), 5 * PAGES)],
        missing: 0,
        accesses: (0..5 * PAGES).map(read).collect(),
    }
}

/// A heap, a file and anonymous memory, side by side.
fn mappings(regions: u64) -> Arc<Vec<Mapping>> {
    let (end, third) = (BASE + regions * STRIDE, regions / 3 * STRIDE);
    let parts = [
        (BASE, BASE + third, MappingKind::Heap, "[heap]"),
        (BASE + third, BASE + 2 * third, MappingKind::File, "/var/lib/server/table"),
        (BASE + 2 * third, end, MappingKind::Anonymous, ""),
    ];
    let mapping = |(start, end, kind, name): (u64, u64, MappingKind, &str)| Mapping {
        range: AddrRange::new(start, end),
        kind,
        name: name.into(),
        unknown: None,
    };
    Arc::new(parts.map(mapping).into())
}

fn snapshot(
    seq: u64,
    all: &[Stretch],
    mappings: &Arc<Vec<Mapping>>,
    (every, ages_every): (Duration, u64),
) -> Snapshot {
    let end = mappings.last().map_or(BASE, |m| m.range.end);
    let ends = all.iter().skip(1).map(|s| s.start).chain([end]);
    let region = |(i, (s, end)): (usize, (&Stretch, u64))| {
        let mut unknown_bp = UnknownPages::default();
        unknown_bp.0[0] = if i % 50 == 0 { 5000 } else { 0 };
        RegionView {
            range: AddrRange::new(s.start, end),
            accesses_bp: u32::try_from(s.young * 10_000 / 320).unwrap_or(10_000),
            age: every * u32::try_from(seq - s.since).unwrap_or(u32::MAX),
            rate: rate(s.young as f64, 320.0, 20, SAMPLE),
            touched_bp: if s.young > 0 { 10_000 } else { 0 },
            resident_bp: if i % 7 == 0 { 6000 } else { 10_000 },
            unknown_bp,
            support: Some(RateSupport::MEASURED),
        }
    };
    let at = |seq: u64| Nanos(0) + every * u32::try_from(seq).unwrap_or(u32::MAX);
    let start = at(seq);
    let has_ages = (seq + 1).is_multiple_of(ages_every);
    let since = at((seq + 1).saturating_sub(ages_every));
    Snapshot {
        seq,
        start,
        end: at(seq + 1),
        attrs: Attrs::default(),
        cost: Cost {
            cpu: every / 50,
            looks: 20_000,
            pages: 320_000,
            clears: 400,
            lost: every / 1000,
        },
        quality: None,
        targets: vec![TargetView {
            id: TargetId(0),
            ran: Some(every / 2),
            mappings: Arc::clone(mappings),
            left_out: 0,
            dirty: None,
            ages: has_ages
                .then(|| Arc::new(ages(since, every * u32::try_from(ages_every).unwrap_or(1)))),
            regions: all.iter().zip(ends).enumerate().map(region).collect(),
        }],
    }
}

/// Half of the memory is touched all the time. The rest has ages of 2 s and more, ever fewer pages the older they
/// are, but for an eighth that is never touched. What passes an age comes back from it.
fn ages(since: Nanos, time: Duration) -> PageAges {
    let mut ages = PageAges { since, sampling: 1, error_ms: 500, ..PageAges::default() };
    ages.idle.add(100, 8_000_000);
    let end = since + time;
    ages.idle.add(end.0 / 1_000_000, 2_000_000);
    for i in 0..12 {
        let age = 2_000 << i;
        if end.0 / 1_000_000 > age {
            ages.idle.add(age, 460_000);
            // An octave is left in as long as its age.
            let left = 460_000 * time.as_millis() / u128::from(age);
            ages.returned.add(age, u32::try_from(left / 4).unwrap_or(u32::MAX));
        }
    }
    ages
}
