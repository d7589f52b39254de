//! Draws made-up records: `cargo run -p isotherm-report --example synthetic -- DIRECTORY`.

#[path = "../tests/scene/mod.rs"]
mod scene;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use isotherm_core::{Mapping, RegionView, Snapshot, TargetId, TargetView, Unknown};
use isotherm_report::{
    Extent, Grid, Heatmap, Options, Shape, Style, Summarizer, heatmap_picture, summary_text,
    terminal,
};
use scene::{absent, mapping, region, snapshot, target, unknown};

const MIB: u64 = 1 << 20;
const HEAP: u64 = 0x55d0_c1a3_4000;
const LIBC: u64 = 0x7f2b_4120_0000;
const STACK: u64 = 0x7ffd_3a5f_0000;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("name a directory for the pictures")?;
    for (name, options, record) in [redis(), two_targets()] {
        let mut summarizer = Summarizer::new(options.clone());
        record.iter().for_each(|s| summarizer.push(s));
        println!("{}", summary_text(&summarizer.finish()?, 5));
        let map = heatmap(&options, &Shape::terminal(100, 36), &record)?;
        println!("{}", terminal(&map, Style::TrueColor));
        let map = heatmap(&options, &Shape::picture(), &record)?;
        std::fs::write(Path::new(&directory).join(name), heatmap_picture(&map)?.png()?)?;
    }
    Ok(())
}

fn heatmap(
    options: &Options,
    shape: &Shape,
    record: &[Snapshot],
) -> Result<Heatmap, Box<dyn Error>> {
    let mut extent = Extent::new(options.clone());
    record.iter().for_each(|s| extent.push(s));
    let mut grid = Grid::new(extent, shape)?;
    record.iter().for_each(|s| grid.push(s));
    Ok(grid.finish())
}

type Scene = (&'static str, Options, Vec<Snapshot>);

/// A heap that fills, then a hot fifth of it; an untouched table; memory that is locked.
fn redis() -> Scene {
    let options =
        Options::titled("redis-server, 60 s, sampled every 20 ms, a snapshot every 400 ms");
    let record = (0..150)
        .map(|i| snapshot(i, 0.4, vec![target(0, redis_mappings(), redis_regions(i))]))
        .collect();
    ("redis.png", options, record)
}

fn redis_mappings() -> Vec<Mapping> {
    vec![
        mapping(HEAP, HEAP + 300 * MIB, "[heap]"),
        mapping(LIBC - 64 * MIB, LIBC, ""),
        mapping(LIBC, LIBC + 2 * MIB, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
        mapping(LIBC + 2 * MIB, LIBC + 5 * MIB, "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"),
        mapping(STACK, STACK + MIB / 4, "[stack]"),
    ]
}

fn redis_regions(i: u64) -> Vec<RegionView> {
    let filled = (i * 20).min(300) * MIB;
    let mut regions = Vec::new();
    for k in 0..150 {
        let (from, to) = (HEAP + k * 2 * MIB, HEAP + (k + 1) * 2 * MIB);
        regions.push(if k * 2 * MIB >= filled {
            absent(from, to)
        } else {
            region(from, to, heat(i, k))
        });
    }
    regions.extend([
        region(LIBC - 64 * MIB, LIBC - 40 * MIB, 0.0),
        unknown(LIBC - 40 * MIB, LIBC - 16 * MIB, Unknown::Mlocked),
        region(LIBC - 16 * MIB, LIBC, if i > 60 && i % 25 < 8 { 3.0 } else { 0.0 }),
        region(LIBC, LIBC + MIB, 180.0 * noise(i, 900)),
        region(LIBC + MIB, LIBC + 5 * MIB, 0.4 * noise(i, 901)),
        region(STACK, STACK + MIB / 4, 300.0),
    ]);
    regions
}

/// A band of 60 MiB is hot, what is written now is hotter, a scan passes once.
fn heat(i: u64, k: u64) -> f32 {
    let writing = i < 15 && i * 10 <= k + 10;
    let scan = (90..120).contains(&i) && (i - 90) * 5 <= k && k < (i - 90) * 5 + 8;
    match k {
        _ if writing => 400.0,
        40..70 => 45.0 * noise(i, k),
        _ if scan => 8.0,
        0..10 => 1.5 * noise(i, k),
        _ if (i * 7 + k * 13).is_multiple_of(31) => 0.2,
        _ => 0.0,
    }
}

/// Between a half and one and a half, always the same.
fn noise(i: u64, k: u64) -> f32 {
    let x = (i * 151 + k).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    0.5 + x as f32 / (1 << 24) as f32
}

/// A window moves over the one; the other sleeps, begins later, and has more areas than panels.
fn two_targets() -> Scene {
    let labels = BTreeMap::from([
        (TargetId(0), "postgres (pid 4711)".to_owned()),
        (TargetId(1), "backup (pid 4712)".to_owned()),
    ]);
    let record = (0..2000)
        .map(|i| {
            let mut targets = vec![moving(i)];
            if i > 500 {
                targets.push(sparse(i));
            }
            snapshot(i, 0.4, targets)
        })
        .collect();
    let mut options = Options::titled("postgres and its backup, a working set that moves");
    options.labels = labels;
    ("two.png", options, record)
}

fn moving(i: u64) -> TargetView {
    let (size, at) = (4096 * MIB, (i * 2 * MIB) % (3500 * MIB));
    let regions = vec![
        region(LIBC - size, LIBC - size + at, 0.0),
        region(LIBC - size + at, LIBC - size + at + 500 * MIB, 120.0 * noise(i, 1)),
        region(LIBC - size + at + 500 * MIB, LIBC, 0.0),
        region(STACK, STACK + MIB / 4, 20.0),
    ];
    let maps = vec![
        mapping(LIBC - size, LIBC, "/dev/zero (deleted)"),
        mapping(STACK, STACK + MIB, "[stack]"),
    ];
    target(0, maps, regions)
}

fn sparse(i: u64) -> TargetView {
    let part = |k: u64| (HEAP + k * 1024 * MIB, HEAP + k * 1024 * MIB + (k * k * 12 + 3) * MIB);
    let maps = (0..9).map(|k| mapping(part(k).0, part(k).1, "")).collect();
    let regions =
        (0..9).map(|k| region(part(k).0, part(k).1, if k == i / 200 { 2.0 } else { 0.0 }));
    target(1, maps, regions.collect())
}
