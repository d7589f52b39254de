//! Large processes, of which a hundredth is hot in thousands of places: how soon the monitor finds them.

use isotherm_core::PageAges;

use super::field::{Field, Prices, TARGET, Touch};
use super::*;

const GIB: u64 = 1 << 30;

/// A virtual machine: a shootdown costs 25 us on each side.
const VIRTUAL: Prices = Prices {
    read_a_page: 2e-9,
    read_a_block: 150e-9,
    clear_a_page: 150e-9,
    touch_again: 400e-9,
    own_run: 25e-6,
    shootdown: 25e-6,
    call: 15e-6,
    wakeup: 0.0,
    computing: 1.0,
    touch: 0.0,
};
/// A physical machine: 2 us.
const BARE: Prices = Prices { own_run: 2e-6, shootdown: 2e-6, ..VIRTUAL };

/// A process of some GiB, of which a hundredth is hot, in four places per GiB.
struct Sparse {
    gib: u64,
    /// ascending
    hot: Vec<AddrRange>,
    /// whether computing is charged, at its cost on this machine
    pays: bool,
    field: Field,
}

impl Sparse {
    fn new(gib: u64, seed: u64, prices: Prices) -> Self {
        let places = 4 * gib;
        // Each place is in its own part of the memory, and consists of whole windows.
        let (part, window) = (GIB / 4, 64 << 10);
        let len = part / 100 / window * window;
        let mut rng = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |n: u64| {
            rng =
                rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (rng >> 33) % n
        };
        let hot: Vec<AddrRange> = (0..places)
            .map(|i| {
                let start = BASE + i * part + below((part - len) / window) * window;
                AddrRange::new(start, start + len)
            })
            .collect();
        let mut areas = Vec::new();
        let mut at = BASE;
        for r in &hot {
            areas.push(AddrRange::new(at, r.start));
            areas.push(*r);
            at = r.end;
        }
        areas.push(AddrRange::new(at, BASE + gib * GIB));
        areas.retain(|r| !r.is_empty());
        let field = Field::priced(&areas, seed, prices);
        for (i, area) in areas.iter().enumerate() {
            if hot.binary_search_by_key(&area.start, |r| r.start).is_ok() {
                field.touch(i, Touch::Random(100.0));
            }
        }
        Sparse { gib, hot, pays: false, field }
    }

    /// Precision and recall of memory that is reported as hot, by bytes.
    fn hot(&self, s: &Snapshot) -> (f64, f64) {
        let thresholds = Thresholds::default();
        let (mut called, mut both) = (0, 0);
        for r in s.targets[0].regions.iter().filter(|r| r.heat(&thresholds) == Heat::Hot) {
            called += r.range.len();
            let first = self.hot.partition_point(|h| h.end <= r.range.start);
            let parts = self.hot[first..].iter().map_while(|h| h.intersect(&r.range));
            both += parts.map(|p| p.len()).sum::<u64>();
        }
        let all: u64 = self.hot.iter().map(AddrRange::len).sum();
        (both as f64 / called.max(1) as f64, both as f64 / all as f64)
    }
}

/// The state at a time, and the cost since the previous one.
struct Row {
    s: u64,
    precision: f64,
    recall: f64,
    /// share of all memory that is reported as cold
    cold: f64,
    /// shares of a CPU, by the prices
    cpu: f64,
    lost: f64,
    /// share of a CPU for computing, at its cost on this machine
    computing: f64,
    /// longest time between two snapshots, in s
    round: f64,
    last: Arc<Snapshot>,
}

impl Row {
    fn line(&self) -> String {
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        format!(
            "| {} | {:.3} | {:.3} | {:.3} | {} | {} | {} | {:.1} | {} |",
            self.s,
            self.precision,
            self.recall,
            self.cold,
            percent(self.cpu),
            percent(self.lost),
            percent(self.computing),
            self.round,
            self.last.nr_regions()
        )
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE_SIZE
}

impl Sparse {
    /// Steps a monitor until a time. `None` if it makes no snapshot until then.
    fn row(&self, monitor: &mut Exposure<Field>, s: u64) -> Option<Row> {
        let begin = self.field.now().0 as f64 / 1e9;
        let length = s as f64 - begin;
        self.field.count_computing(self.pays);
        let snapshots = self.field.run(monitor, seconds(s as f64));
        let computing = self.field.count_computing(self.pays);
        let last = Arc::clone(snapshots.last()?);
        let (precision, recall) = self.hot(&last);
        let share = |of: fn(&Snapshot) -> Duration| {
            snapshots.iter().map(|s| of(s)).sum::<Duration>().as_secs_f64() / length
        };
        let is_cold = |r: &RegionView| {
            r.heat(&Thresholds::default()) == Heat::Cold && r.unknown_bp.total() == 0
        };
        let cold = bytes_where(&last.targets[0], AddrRange::new(0, u64::MAX), is_cold);
        let lengths = snapshots.iter().map(|s| s.end.since(s.start).as_secs_f64());
        Some(Row {
            s,
            precision,
            recall,
            cold: cold as f64 / (self.gib * GIB) as f64,
            cpu: share(|s| s.cost.cpu),
            lost: share(|s| s.cost.lost),
            computing: computing.as_secs_f64() / length,
            round: lengths.fold(0.0, f64::max),
            last,
        })
    }

    fn monitor(&self, attrs: Attrs) -> Exposure<Field> {
        Exposure::new(self.field.clone(), attrs, &[TARGET], 1).unwrap()
    }
}

/// Prints the state and the cost for processes of 64 GiB, 1 TiB and 4 TiB by time.
///
/// `TERABYTES_ONLY=1024/bare` selects some, `TERABYTES_TIMES="10 20"` sets other times.
#[test]
#[ignore = "prints figures, and takes minutes"]
fn all_terabytes() {
    let only = std::env::var("TERABYTES_ONLY").unwrap_or_default();
    let times = std::env::var("TERABYTES_TIMES").unwrap_or("10 30 60 120".into());
    let times: Vec<u64> = times.split(' ').map(|s| s.parse().unwrap()).collect();
    for gib in [64, 1024, 4096] {
        for (name, prices, percent, pays) in [
            ("virtual", VIRTUAL, 1, false),
            ("bare", BARE, 1, false),
            ("bare, computing paid", BARE, 1, true),
            ("virtual", VIRTUAL, 50, false),
        ] {
            let name = format!("{gib}/{name}/{percent}");
            if !name.contains(&only) {
                continue;
            }
            println!(
                "{name} %\n| s | hot: precision | recall | called cold | own CPU | lost | computing | longest round, s | regions |"
            );
            let sparse = Sparse { pays, ..Sparse::new(gib, 1, prices) };
            let before = resident();
            let attrs = Attrs { budget_ppm: percent * 10_000, ..Attrs::default() };
            let mut monitor = sparse.monitor(attrs);
            for &s in &times {
                let row = sparse.row(&mut monitor, s);
                println!("{}", row.map_or(format!("| {s} | no snapshot |"), |r| r.line()));
            }
            let kib = (resident() - before) / 1024 / gib;
            println!("{kib} KiB of memory for each GiB");
        }
    }
}

/// A hundredth of 64 GiB is hot in 256 places. Their borders are found to a quarter of a MiB.
#[test]
fn hot_places_of_64_gib_are_found() {
    for (prices, s) in [(VIRTUAL, 30), (BARE, 15)] {
        let sparse = Sparse::new(64, 2, prices);
        let mut monitor = sparse.monitor(Attrs::default());
        let row = sparse.row(&mut monitor, s).unwrap();
        println!("{}", row.line());
        assert!(row.precision >= 0.93 && row.recall >= 0.93, "{}", row.line());
        assert!(row.cpu + row.lost <= 0.13, "the first sweep may take a tenth: {}", row.line());
        assert!(row.last.nr_regions() <= 1000, "{}", row.line());
        sparse.row(&mut monitor, s + 5);
        let later = sparse.row(&mut monitor, s + 20).unwrap();
        println!("{}", later.line());
        assert!(later.cpu + later.lost <= 0.011, "{}", later.line());
        assert!(later.precision >= 0.93 && later.recall >= 0.93, "{}", later.line());
        assert!(later.cold >= 0.95, "{}", later.line());
    }
}

/// In 64 GiB with little hot memory, the samples that are read in each round find memory that is reactivated. Memory
/// that falls idle is found when its sample has its turn.
#[test]
fn changes_in_64_gib_are_found() {
    let all = AddrRange::new(BASE, BASE + 64 * GIB);
    let changes = [mib(10 * 1024, 64), mib(30 * 1024, 4), mib(50 * 1024, 512)];
    let mut areas = Vec::new();
    let mut at = all.start;
    for range in changes {
        areas.extend([AddrRange::new(at, range.start), range]);
        at = range.end;
    }
    areas.push(AddrRange::new(at, all.end));
    let field = Field::priced(&areas, 1, VIRTUAL);
    let mut monitor = Exposure::new(field.clone(), Attrs::default(), &[TARGET], 1).unwrap();
    field.touch(5, Touch::Random(100.0));
    let before = field.run(&mut monitor, seconds(60.0)).pop().unwrap();
    let hot = changes.map(|range| called(&before, range, Heat::Hot) >= 0.95);
    assert_eq!(hot, [false, false, true]);
    field.touch(1, Touch::Random(100.0));
    field.touch(3, Touch::Random(100.0));
    field.touch(5, Touch::Idle);
    let then = field.run(&mut monitor, seconds(90.0));
    let since = |s: &Arc<Snapshot>| s.end.since(seconds(60.0)).as_secs_f64();
    let first = |holds: &dyn Fn(&Snapshot) -> bool| then.iter().find(|s| holds(s)).map(since);
    for range in &changes[..2] {
        let after = first(&|s| called(s, *range, Heat::Hot) >= 0.9);
        println!("{} MiB reactivated: called hot after {after:?} s", range.len() / MIB);
        assert!(after.is_some_and(|s| s <= 8.5), "{range:?}: {after:?}");
    }
    let after = first(&|s| called(s, changes[2], Heat::Hot) <= 0.1);
    println!("{} MiB fall idle: not called hot after {after:?} s", changes[2].len() / MIB);
    assert!(after.is_some_and(|s| s <= 12.0), "{after:?}");
    let last = then.last().unwrap();
    let wrong = bytes_where(&last.targets[0], all, |r| r.heat(&Thresholds::default()) == Heat::Hot);
    assert!(wrong <= 72 * MIB, "{} MiB are called hot at the end", wrong / MIB);
}

/// In processes that are not large, hot places smaller than a block are found too.
#[test]
fn hot_strips_of_128_kib_in_32_gib_are_found() {
    let (gib, strip) = (32, 128 << 10);
    let start = |i: u64| BASE + 4 * GIB + i * (2 * MIB) + ((i * 7) % 24) * (64 << 10);
    let hot: Vec<AddrRange> =
        (0..512).map(|i| AddrRange::new(start(i), start(i) + strip)).collect();
    let mut areas = vec![AddrRange::new(BASE, hot[0].start)];
    for (i, strip) in hot.iter().enumerate() {
        let next = hot.get(i + 1).map_or(BASE + gib * GIB, |next| next.start);
        areas.extend([*strip, AddrRange::new(strip.end, next)]);
    }
    let field = Field::priced(&areas, 1, VIRTUAL);
    (0..hot.len()).for_each(|i| field.touch(2 * i + 1, Touch::Random(100.0)));
    let sparse = Sparse { gib, hot, pays: false, field };
    let mut monitor = sparse.monitor(Attrs { max_regions: 2000, ..Attrs::default() });
    let row = sparse.row(&mut monitor, 10).unwrap();
    assert!(row.precision >= 0.97 && row.recall >= 0.97, "{}", row.line());
}

/// Of a process, an eighth is touched at random each `period` seconds, an eighth all the time, and the rest never. For
/// each age: the idle memory, as a share of all, and its truth; and the returns per second over their truth.
fn ages_of(gib: u64, period: f64, ages: [f64; 2]) -> [(f64, f64, f64); 2] {
    let part =
        |from: u64, to: u64| AddrRange::new(BASE + from * gib / 8 * GIB, BASE + to * gib / 8 * GIB);
    let field = Field::priced(&[part(0, 3), part(3, 4), part(4, 5), part(5, 8)], 3, VIRTUAL);
    field.touch(1, Touch::Random(1.0 / period));
    field.touch(2, Touch::Random(100.0));
    let mut monitor = Exposure::new(field.clone(), Attrs::default(), &[TARGET], 1).unwrap();
    let snapshots = field.run(&mut monitor, seconds(240.0));
    let pages = (gib * GIB / PAGE_SIZE) as f64;
    let rows = snapshots.iter().filter_map(|s| Some((s.end, s.targets[0].ages.clone()?)));
    let late: Vec<_> = rows.filter(|(end, _)| *end > seconds(120.0)).collect();
    assert!(late.len() >= 2, "{}", late.len());
    let mean = |of: &dyn Fn(&PageAges, Nanos) -> f64| {
        late.iter().map(|(end, row)| of(row, *end)).sum::<f64>() / late.len() as f64
    };
    let known = mean(&|row, _| row.idle.total() as f64) / pages;
    assert!((known - 1.0).abs() < 0.02, "{known}");
    ages.map(|age| {
        let still = 0.125 * (-age / period).exp();
        let idle = mean(&|row, _| row.idle.at_least(age)) / pages;
        let back =
            mean(&|row, end| row.returned.at_least(age) / end.since(row.since).as_secs_f64());
        println!("{gib} GiB, touched each {period} s, idle for {age} s: {idle:.3}, truth {:.3}; returns {back:.0}/s, truth {:.0}", 0.75 + still, still * pages / period);
        (idle, 0.75 + still, back * period / (still * pages))
    })
}

/// The ages are those of the few blocks that are observed as a whole.
#[test]
fn ages_of_96_gib_are_known() {
    for (idle, truth, back) in ages_of(96, 20.0, [10.0, 30.0]) {
        assert!((idle - truth).abs() < 0.06, "{idle:.3}, not {truth:.3}");
        assert!((0.6..1.6).contains(&back), "{back:.2}");
    }
}

#[test]
#[ignore = "prints figures, and takes minutes"]
fn all_ages_of_large_processes() {
    for (gib, period) in [(64, 20.0), (64, 5.0), (64, 60.0), (256, 20.0), (1024, 20.0)] {
        ages_of(gib, period, [period / 2.0, period * 1.5]);
    }
}
