//! How right the monitor is, over made-up targets whose truth is known.
//!
//! `cargo run --release -p isotherm-sim --example accuracy`

use std::time::Duration;

use isotherm_core::{AddrRange, Attrs, Monitor, Nanos, TargetId, Thresholds};
use isotherm_sim::{Machine, Memory, Ops, Pattern, SimError, run, score_hot};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;
const SECONDS: u64 = 20;
const SEEDS: u64 = 3;

type Lay = fn(&mut Machine, TargetId) -> Result<(), SimError>;

/// The stretch of `len` MiB, `at` MiB behind the base.
fn mib(at: u64, len: u64) -> AddrRange {
    AddrRange::new(BASE + at * MIB, BASE + (at + len) * MIB)
}

/// 1 GiB: 64 MiB at 100 Hz, 128 MiB once a second.
fn hot_warm_cold(m: &mut Machine, t: TargetId) -> Result<(), SimError> {
    m.map(t, mib(0, 1024), Memory::anonymous())?;
    m.touch(t, mib(300, 64), Pattern::Poisson { hz: 100.0 })?;
    m.touch(t, mib(600, 128), Pattern::Poisson { hz: 1.0 })
}

/// 1 GiB, of which 16 stretches of 16 MiB are touched, each twice as often as the one before: from
/// 1/64 Hz to 512 Hz.
fn ladder(m: &mut Machine, t: TargetId) -> Result<(), SimError> {
    m.map(t, mib(0, 1024), Memory::anonymous())?;
    (0..16u64).try_for_each(|i| {
        let hz = f64::from(1 << i) / 64.0;
        m.touch(t, mib(i * 64, 16), Pattern::Poisson { hz })
    })
}

/// 1 GiB, of which each 16th page of 256 MiB is touched at 300 Hz.
fn sparse(m: &mut Machine, t: TargetId) -> Result<(), SimError> {
    m.map(t, mib(0, 1024), Memory::anonymous())?;
    let of = Box::new(Pattern::Poisson { hz: 300.0 });
    m.touch(t, mib(256, 256), Pattern::Sparse { nth: 16, of })
}

/// 1 GiB, of which a window of 32 MiB is touched, another one every 3 s.
fn moving(m: &mut Machine, t: TargetId) -> Result<(), SimError> {
    m.map(t, mib(0, 1024), Memory::anonymous())?;
    let every = Duration::from_secs(3);
    m.touch(t, mib(0, 1024), Pattern::Moving { window: 32 * MIB, every, hz: 100.0 })
}

/// 8 GiB with 5 % hot.
fn eight_gib(m: &mut Machine, t: TargetId) -> Result<(), SimError> {
    m.map(t, mib(0, 8192), Memory::anonymous())?;
    m.touch(t, mib(3000, 410), Pattern::Poisson { hz: 50.0 })
}

/// 1 GiB with 40 hot stretches of 1 MiB.
fn scattered(m: &mut Machine, t: TargetId) -> Result<(), SimError> {
    m.map(t, mib(0, 1024), Memory::anonymous())?;
    (0..40).try_for_each(|i| m.touch(t, mib(7 + i * 25, 1), Pattern::Poisson { hz: 50.0 }))
}

const TARGETS: [(&str, Lay); 6] = [
    ("hot-warm-cold", hot_warm_cold),
    ("ladder", ladder),
    ("sparse", sparse),
    ("moving", moving),
    ("8 GiB", eight_gib),
    ("scattered", scattered),
];

/// Means over snapshots, from two seconds on.
#[derive(Default)]
struct Row {
    snapshots: f64,
    precision: f64,
    recall: f64,
    worst: (f64, f64),
    regions: f64,
    clears: f64,
    seconds: f64,
}

impl Row {
    fn measure(
        &mut self,
        lay: Lay,
        attrs: Attrs,
        seed: u64,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut machine = Machine::new(seed);
        let target = machine.spawn();
        lay(&mut machine, target)?;
        let ops = Ops::new(machine);
        let mut monitor = Monitor::new(ops.clone(), attrs, &[target], seed)?;
        for s in run(&mut monitor, &ops, Nanos(SECONDS * 1_000_000_000))? {
            if s.start < Nanos(2_000_000_000) {
                continue;
            }
            let score = score_hot(&s, &ops.machine(), &Thresholds::default());
            self.snapshots += 1.0;
            self.precision += score.precision();
            self.recall += score.recall();
            self.worst.0 = self.worst.0.min(score.precision());
            self.worst.1 = self.worst.1.min(score.recall());
            self.regions += s.nr_regions() as f64;
            self.clears += s.cost.clears as f64;
            self.seconds += s.end.since(s.start).as_secs_f64();
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "| target | sample | parts | precision (worst) | recall (worst) | regions | clears/s |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, lay) in TARGETS {
        for (sample, aggr) in [(20, 400), (5, 100)] {
            for split_parts in [2, 4] {
                let attrs = Attrs {
                    sample: Duration::from_millis(sample),
                    aggr: Duration::from_millis(aggr),
                    split_parts,
                    ..Attrs::default()
                };
                let mut r = Row { worst: (1.0, 1.0), ..Row::default() };
                (0..SEEDS).try_for_each(|seed| r.measure(lay, attrs, seed))?;
                let n = r.snapshots;
                println!(
                    "| {name} | {sample} ms | {split_parts} | {:.3} ({:.3}) | {:.3} ({:.3}) | {:.0} | {:.0} |",
                    r.precision / n,
                    r.worst.0,
                    r.recall / n,
                    r.worst.1,
                    r.regions / n,
                    r.clears / r.seconds,
                );
            }
        }
    }
    Ok(())
}
