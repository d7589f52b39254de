use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, RateSupport, RegionView, Snapshot, Thresholds, rate};
use isotherm_record::{Reader, export_parquet};

use crate::day;
use crate::samples::{even, mapping, reader, record};

/// Pseudo-random numbers, the same in each run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % n
    }
}

/// A server of 64 GiB in the form of the monitor: 1000 regions, 70 % of them idle, 20 % warm, 10 % hot. Every
/// second, one in ten changes its borders and starts a new age.
fn server(snapshots: u64) -> Vec<Snapshot> {
    const REGIONS: u64 = 1000;
    let mut noise = Noise(1);
    let mappings = Arc::new(vec![mapping(0x7f00_0000_0000, 0x7f10_0000_0000, "")]);
    let kinds: Vec<u64> = (0..REGIONS).map(|_| noise.below(10)).collect();
    let mut cuts: Vec<u64> = (0..REGIONS).map(|i| i * 1024 + noise.below(1000)).collect();
    let mut born: Vec<u64> = vec![0; 1000];
    let mut all = Vec::new();
    for seq in 0..snapshots {
        for i in 0..REGIONS as usize {
            if noise.below(25) == 0 {
                cuts[i] = i as u64 * 1024 + noise.below(1000);
                born[i] = seq;
            }
        }
        let mut s = even(seq, 0, &mappings);
        s.targets[0].regions = (0..REGIONS as usize)
            .map(|i| {
                let young = match kinds[i] {
                    0..7 => 0,
                    7..9 => 20 + noise.below(40),
                    _ => 320 - noise.below(2) * noise.below(10),
                };
                let address = |cut: u64| 0x7f00_0000_0000 + cut * 65536;
                let end = cuts.get(i + 1).copied().unwrap_or(REGIONS * 1024);
                RegionView {
                    range: AddrRange::new(address(cuts[i]), address(end)),
                    accesses_bp: (young * 10_000 / 320) as u32,
                    age: Duration::from_millis(400 * (seq - born[i])),
                    rate: rate(young as f64, 320.0, 20, Duration::from_millis(20)),
                    touched_bp: if young > 0 { 10_000 } else { 0 },
                    resident_bp: if i % 7 == 0 { (i as u32 * 97) % 10_000 } else { 10_000 },
                    unknown_bp: Default::default(),
                    support: Some(RateSupport {
                        measured_bp: 10_000 - i as u32 % 3,
                        extended_bp: 0,
                    }),
                }
            })
            .collect();
        all.push(s);
    }
    all
}

/// As [`server`], but no region is idle. All are touched now and then, with three to eight looks each for the
/// rate, and every third region begins a new age.
fn busy(snapshots: u64) -> Vec<Snapshot> {
    let mut noise = Noise(2);
    let mut all = server(snapshots);
    let mut ages = vec![0; 1000];
    for s in &mut all {
        for (r, age) in s.targets[0].regions.iter_mut().zip(&mut ages) {
            let looks = 3 + noise.below(6);
            let young = noise.below(looks * 5);
            *age = if noise.below(3) == 0 { 0 } else { *age + 1 };
            r.accesses_bp = (young * 10_000 / (looks * 16)) as u32;
            r.touched_bp = if young > 0 { 10_000 } else { 0 };
            r.age = Duration::from_millis(400 * *age);
            let exposure = Duration::from_micros(20_000 + noise.below(1000));
            r.rate = rate(young as f64, looks as f64 * 16.0, looks, exposure);
        }
    }
    all
}

fn bytes_a_region(all: &[Snapshot]) -> f64 {
    let regions: usize = all.iter().map(Snapshot::nr_regions).sum();
    record(all).len() as f64 / regions as f64
}

#[test]
fn a_region_has_a_few_bytes() {
    for (name, all) in [("server", server(240)), ("busy", busy(240)), ("10 s", busy(25))] {
        let bytes = bytes_a_region(&all);
        println!("{name}: {bytes:.2} bytes a region");
        assert!(bytes <= 6.0, "{name}: {bytes:.2} bytes a region");
    }
}

/// Twenty minutes of the day that `bench/interchange` exports.
#[test]
fn a_region_has_a_few_bytes_in_parquet() {
    let dir = tempfile::tempdir().unwrap();
    let (record, out) = (dir.path().join("part.rec"), dir.path().join("out"));
    day::write(&record, 1200, 50).unwrap();
    let reader = Reader::open(&record).unwrap();
    export_parquet(reader, &Thresholds::default(), &out).unwrap();
    let bytes = files(&out) as f64 / (1200.0 * 300.0);
    println!("Parquet: {bytes:.2} bytes a region");
    assert!(bytes <= 6.0, "{bytes:.2} bytes a region");
}

/// The bytes of all files below a folder.
fn files(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let size = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => files(&entry.path()),
        false => entry.metadata().unwrap().len(),
    };
    entries.map(size).sum()
}

#[test]
#[ignore = "a measurement: run it in release"]
fn ten_million_regions() {
    let some = record(&server(1000));
    let begin = Instant::now();
    let mut regions = 0;
    for _ in 0..10 {
        regions += crate::samples::snapshots(reader(&some))
            .iter()
            .map(Snapshot::nr_regions)
            .sum::<usize>();
    }
    println!("{regions} regions in {:?}, {} bytes a million", begin.elapsed(), some.len());
}
