//! Writes a made-up record of a host with three services of two processes each, a snapshot every second, the same
//! in each run: `cargo run --release -p isotherm-record --example day -- FILE [SECONDS [REGIONS]]`.
//!
//! One region in 25 changes its borders and heat each second. The rates of touched regions vary from snapshot to
//! snapshot, as measured ones do. `web` is busy by day, `batch` by night, and `db` always.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, Attribution, Attrs, Cost, Mapping, MappingKind, Nanos, RateSupport, RegionView,
    Snapshot, TargetId, TargetView, UnknownPages, rate,
};
use isotherm_record::{FileEndReason, Limits, RecordingHeader, TargetInfo, Writer};

const SERVICES: [&str; 3] = ["web", "db", "batch"];
const PROCESSES: usize = 2 * SERVICES.len();
const BASE: u64 = 0x7f00_0000_0000;
/// Address space for each region, within which its borders move.
const STRIDE: u64 = 64 << 20;
const UNIT: u64 = 64 << 10;
const EVERY: Duration = Duration::from_secs(1);
const SAMPLE: Duration = Duration::from_millis(20);
/// Looks in an interval.
const LOOKS: u64 = 320;
/// 2 November 2026, 0:00 UTC.
const STARTED_UNIX_MS: u64 = 1_793_577_600_000;

/// Pseudo-random numbers, the same in each run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % n
    }
}

/// The lower border of a region, the looks that find it touched, and the second of its last change.
struct Stretch {
    start: u64,
    young: u64,
    since: u64,
}

impl Stretch {
    fn new(i: u64, second: u64, busy_percent: u64, noise: &mut Noise) -> Self {
        let border = if i == 0 { 0 } else { noise.below(STRIDE / UNIT) * UNIT };
        let young = match (noise.below(100) < busy_percent, noise.below(3)) {
            (false, _) => 0,
            (true, 0) => 290,
            (true, _) => 20 + noise.below(40),
        };
        Stretch { start: BASE + i * STRIDE + border, young, since: second }
    }
}

/// The share of memory that a process touches in an hour of the day, in percent.
fn busy_percent(process: usize, second: u64) -> u64 {
    let hour = second / 3600 % 24;
    match (SERVICES[process / 2], hour) {
        ("web", 8..20) | ("batch", 0..4) => 60,
        ("db", _) => 40,
        _ => 5,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: day FILE [SECONDS [REGIONS]]")?;
    let seconds = args.next().map_or(Ok(86_400), |text| text.parse())?;
    let regions: u64 = args.next().map_or(Ok(300), |text| text.parse())?;
    write(Path::new(&path), seconds, regions / PROCESSES as u64)
}

/// Writes `seconds` snapshots of `regions` in each process.
///
/// # Errors
/// If the record cannot be written.
pub fn write(path: &Path, seconds: u64, regions: u64) -> Result<(), Box<dyn Error>> {
    let mut facts = RecordingHeader::new("0.1.0", Attrs::default(), Nanos(0));
    (facts.look, facts.host, facts.kernel) =
        ("nothing: made up".into(), "nowhere".into(), "6.18".into());
    facts.started_unix_ms = STARTED_UNIX_MS;
    let mut writer = Writer::create(path, &facts, Limits::default())?;
    for (id, process) in (0..).zip(0..PROCESSES) {
        let command = format!("/usr/bin/{} --process {}", SERVICES[process / 2], process % 2);
        let _ = writer.target(TargetInfo { id: TargetId(id), pid: Some(4000 + id), command })?;
    }
    let mapping = Mapping {
        range: AddrRange::new(BASE, BASE + regions * STRIDE),
        kind: MappingKind::Anonymous,
        name: "".into(),
        unknown: None,
    };
    let mappings = Arc::new(vec![mapping]);
    let mut noise = Noise(1);
    let mut all: Vec<Vec<Stretch>> = (0..PROCESSES)
        .map(|p| (0..regions).map(|i| Stretch::new(i, 0, busy_percent(p, 0), &mut noise)).collect())
        .collect();
    for second in 0..seconds {
        for (process, stretches) in all.iter_mut().enumerate() {
            for (i, stretch) in (0..).zip(stretches) {
                if noise.below(25) == 0 {
                    *stretch = Stretch::new(i, second, busy_percent(process, second), &mut noise);
                }
            }
        }
        if second % 60 == 0 {
            for (id, process) in (0..).zip(0..PROCESSES) {
                let _ = writer.attribution(attribution(TargetId(id), process, second))?;
            }
        }
        let targets = (0..).zip(&all).map(|(id, stretches)| TargetView {
            id: TargetId(id),
            ran: Some(EVERY / 2),
            mappings: Arc::clone(&mappings),
            left_out: 0,
            dirty: None,
            ages: None,
            regions: views(stretches, second, &mut noise),
        });
        let snapshot = Snapshot {
            seq: second,
            start: Nanos(0) + EVERY * u32::try_from(second)?,
            end: Nanos(0) + EVERY * u32::try_from(second + 1)?,
            attrs: Attrs::default(),
            cost: Cost { cpu: EVERY / 100, looks: 20_000, pages: 320_000, ..Cost::default() },
            quality: None,
            targets: targets.collect(),
        };
        let _ = writer.snapshot(&snapshot)?;
    }
    writer.finish(FileEndReason::Stopped, "made up")?;
    Ok(())
}

fn attribution(target: TargetId, process: usize, second: u64) -> Attribution {
    let service = SERVICES[process / 2];
    Attribution {
        target,
        at: Nanos(second * 1_000_000_000),
        comm: service.into(),
        cgroup: format!("/system.slice/{service}.service").into(),
        swapped: 0,
        major_faults: 0,
    }
}

fn views(stretches: &[Stretch], second: u64, noise: &mut Noise) -> Vec<RegionView> {
    let last = BASE + stretches.len() as u64 * STRIDE;
    let ends = stretches.iter().skip(1).map(|s| s.start).chain([last]);
    let view = |(s, end): (&Stretch, u64)| {
        let young = if s.young > 0 { s.young + noise.below(20) } else { 0 };
        RegionView {
            range: AddrRange::new(s.start, end),
            accesses_bp: u32::try_from(young * 10_000 / LOOKS).unwrap_or(10_000),
            age: EVERY * u32::try_from(second - s.since).unwrap_or(u32::MAX),
            rate: rate(young as f64, LOOKS as f64, 20, SAMPLE),
            touched_bp: if young > 0 { 10_000 } else { 0 },
            resident_bp: 10_000,
            unknown_bp: UnknownPages::default(),
            support: Some(RateSupport::MEASURED),
        }
    };
    stretches.iter().zip(ends).map(view).collect()
}
