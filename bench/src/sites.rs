//! Functions whose memory is known, compared with what `isotherm report code` says about them.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;

use crate::bootstrap::below;

/// Number of functions that fill memory.
pub const FILLING: usize = 20;
/// Of these, the number of hot ones.
const HOT: usize = 8;
/// Size of the smallest one in KiB. The largest is [`RANGE`] times as large.
const SMALLEST_KIB: f64 = 512.0;
const RANGE: f64 = 128.0;
/// Less than 1: more functions are large than if the logarithms of the sizes were uniform.
const SKEW: f64 = 0.75;
/// Block sizes of the functions that allocate and free.
const BLOCKS: [u64; 8] = [48, 200, 1000, 4096, 4096, 20_000, 65_536, 300_000];
/// Of these functions, the number of hot ones.
const HOT_CHURNING: usize = 3;
/// The memory of one of them in MiB: from the first number to below the second one.
const CHURNING_MIB: (u64, u64) = (12, 44);

/// KiB and heat of each function of a program, different for each seed.
pub fn filling(seed: u64) -> Vec<(u64, bool)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    // One function in each twentieth of the range.
    let mut kib: Vec<u64> = (0..FILLING)
        .map(|i| {
            let uniform = below(&mut rng, 1 << 20) as f64 / f64::from(1 << 20);
            let at = ((i as f64 + uniform) / FILLING as f64).powf(SKEW);
            (SMALLEST_KIB * RANGE.powf(at)) as u64
        })
        .collect();
    shuffle(&mut kib, &mut rng);
    let heat = drawn_heat(FILLING, HOT, &mut rng);
    kib.into_iter().zip(heat).collect()
}

/// Bytes of a block, MiB and heat of each function of the program that allocates and frees, different for each seed.
pub fn churning(seed: u64) -> Vec<(u64, u64, bool)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let heat = drawn_heat(BLOCKS.len(), HOT_CHURNING, &mut rng);
    let (from, to) = CHURNING_MIB;
    let mut mib = || from + rng.next_u64() % (to - from);
    BLOCKS.into_iter().zip(heat).map(|(block, hot)| (block, mib(), hot)).collect()
}

fn drawn_heat(count: usize, hot: usize, rng: &mut impl Rng) -> Vec<bool> {
    let mut heat: Vec<bool> = (0..count).map(|i| i < hot).collect();
    shuffle(&mut heat, rng);
    heat
}

fn shuffle<T>(values: &mut [T], rng: &mut impl Rng) {
    (1..values.len()).rev().for_each(|i| values.swap(i, below(rng, i + 1)));
}

/// What is known of a function, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Truth {
    /// all of its memory
    pub bytes: f64,
    /// its memory that is not touched any more
    pub cold: f64,
}

impl Truth {
    /// Whether most of its memory is cold.
    pub fn is_cold(&self) -> bool {
        2.0 * self.cold > self.bytes
    }
}

/// An estimate of the report with its 95 % interval, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
pub struct Figure {
    /// the estimate
    pub value: f64,
    /// lower end of the interval
    pub low: f64,
    /// upper end of the interval
    pub high: f64,
}

impl Figure {
    /// Whether the interval contains a value.
    pub fn contains(&self, value: f64) -> bool {
        // The report rounds nothing, but sums of floating point numbers differ in the last digits.
        (self.low - 1.0..=self.high + 1.0).contains(&value)
    }
}

/// The memory of a row of the report.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
pub struct Memory {
    /// cold bytes
    pub cold_bytes: Figure,
    /// hot bytes
    pub hot_bytes: Figure,
    /// bytes of any heat
    pub resident_bytes: Figure,
}

/// A row of the report.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Row {
    /// name of the function
    pub name: String,
    /// its memory
    #[serde(flatten)]
    pub memory: Memory,
}

/// The used part of a report.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Report {
    /// a row for each function
    pub rows: Vec<Row>,
    /// all memory of the program
    pub all: Memory,
    /// the memory with a call stack
    pub with_stack: Memory,
    /// number of samples
    pub samples: u64,
    /// end of the snapshot that the heat is from, in ms of the record
    pub to_ms: f64,
}

impl Report {
    /// The memory of a function by its number. `None` if there was no sample of it.
    pub fn of(&self, number: usize) -> Option<&Memory> {
        self.rows.iter().find(|r| number_of(&r.name) == Some(number)).map(|r| &r.memory)
    }
}

/// The number of the function in its name. Examples: 3 in `site_3`, `sites::site_3` and `void site<3>(Memory&)`.
pub fn number_of(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once("site_").or_else(|| name.split_once("site<"))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// How well reports agree with the truth: sums over functions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Score {
    /// number of functions
    pub sites: usize,
    /// of them, those without a sample
    pub without_sample: usize,
    /// Their cold bytes differ from the truth by at most the tolerance, a share of the function's memory, or the
    /// interval contains the truth.
    pub right: usize,
    /// number of functions whose memory is cold for the most part
    pub cold_sites: usize,
    /// of these, those whose interval of the cold bytes contains the truth
    pub cold_held: usize,
    /// number of the other functions
    pub hot_sites: usize,
    /// of these, those whose interval of the hot bytes contains the truth
    pub hot_held: usize,
    /// differences of the cold bytes from the truth, of the functions with cold memory, in percent of the truth
    pub errors: Vec<f64>,
    /// half the width of the interval, of the functions with cold memory, in percent of the truth
    pub half_widths: Vec<f64>,
    /// cold bytes of all functions, as reported
    pub cold: f64,
    /// the part of them that is not cold
    pub wrongly_cold: f64,
    /// cold bytes of all functions, in truth
    pub true_cold: f64,
}

impl Score {
    /// The score of one report.
    pub fn of(report: &Report, truths: &[Truth], tolerance: f64) -> Self {
        let mut score = Score::default();
        for (number, truth) in truths.iter().enumerate() {
            score.add_site(truth, report.of(number), tolerance);
        }
        score
    }

    fn add_site(&mut self, truth: &Truth, found: Option<&Memory>, tolerance: f64) {
        let memory = found.copied().unwrap_or_default();
        let (cold, error) = (memory.cold_bytes, memory.cold_bytes.value - truth.cold);
        let is_held = cold.contains(truth.cold);
        self.sites += 1;
        self.without_sample += usize::from(found.is_none());
        self.right += usize::from(error.abs() <= tolerance * truth.bytes || is_held);
        if truth.is_cold() {
            self.cold_sites += 1;
            self.cold_held += usize::from(is_held);
            self.errors.push(100.0 * error / truth.cold);
            self.half_widths.push(50.0 * (cold.high - cold.low) / truth.cold);
        } else {
            self.hot_sites += 1;
            let hot = memory.hot_bytes.contains(truth.bytes - truth.cold);
            self.hot_held += usize::from(hot);
            // Of a cold function, an excess is an error of sampling.
            self.wrongly_cold += error.max(0.0);
        }
        self.cold += cold.value;
        self.true_cold += truth.cold;
    }

    /// Share of the reported cold bytes that are cold. 1 if there are none.
    pub fn precision(&self) -> f64 {
        if self.cold > 0.0 { 1.0 - self.wrongly_cold / self.cold } else { 1.0 }
    }

    /// Difference of all cold bytes from the truth, in percent of it.
    pub fn sum_error(&self) -> f64 {
        100.0 * (self.cold / self.true_cold - 1.0)
    }

    /// The score of several reports.
    pub fn sum(scores: &[Score]) -> Self {
        let mut sum = Score::default();
        for s in scores {
            sum.sites += s.sites;
            sum.without_sample += s.without_sample;
            sum.right += s.right;
            sum.cold_sites += s.cold_sites;
            sum.cold_held += s.cold_held;
            sum.hot_sites += s.hot_sites;
            sum.hot_held += s.hot_held;
            sum.errors.extend(&s.errors);
            sum.half_widths.extend(&s.half_widths);
            sum.cold += s.cold;
            sum.wrongly_cold += s.wrongly_cold;
            sum.true_cold += s.true_cold;
        }
        sum
    }
}

/// The truth of one function as the program prints it: its name, its bytes and its cold bytes.
pub fn printed_truth(line: &str) -> Option<(usize, Truth)> {
    let mut words = line.split_whitespace();
    let number = number_of(words.next()?)?;
    let mut bytes = || words.next()?.parse().ok();
    Some((number, Truth { bytes: bytes()?, cold: bytes()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_the_wanted_size_and_heat() {
        for seed in 1..50 {
            let sites = filling(seed);
            let mib: u64 = sites.iter().map(|(kib, _)| kib / 1024).sum();
            assert!((280..=380).contains(&mib), "{mib} MiB");
            assert!(sites.iter().all(|(kib, _)| (512..=65_536).contains(kib)), "{sites:?}");
            assert_eq!((sites.len(), sites.iter().filter(|s| s.1).count()), (FILLING, HOT));
            assert_eq!(churning(seed).iter().filter(|s| s.2).count(), HOT_CHURNING);
        }
        assert_eq!(filling(7), filling(7));
        assert_ne!(filling(7), filling(8));
        assert_ne!(churning(7), churning(8));
    }

    #[test]
    fn functions_are_found_in_all_languages() {
        let names = ["site_3", "sites::site_13", "void site<7>(Memory&, unsigned long)", "main"];
        assert_eq!(names.map(number_of), [Some(3), Some(13), Some(7), None]);
        let truth = Truth { bytes: 30.0, cold: 20.0 };
        assert_eq!(printed_truth("site_4 30 20\n"), Some((4, truth)));
        assert_eq!((printed_truth("end"), printed_truth("site_4 30")), (None, None));
    }

    fn report(rows: &[(usize, [f64; 3], f64)]) -> Report {
        let rows = rows.iter().map(|&(n, [low, value, high], hot)| Row {
            name: format!("site_{n}"),
            memory: Memory {
                cold_bytes: Figure { value, low, high },
                hot_bytes: Figure { value: hot, low: 0.9 * hot, high: 1.1 * hot },
                resident_bytes: Figure::default(),
            },
        });
        let none = Memory::default();
        Report { rows: rows.collect(), all: none, with_stack: none, samples: 0, to_ms: 0.0 }
    }

    /// Of five functions, the first is within its interval, the second within the tolerance, the third has no sample,
    /// and a tenth of the last one, which is hot, looks cold.
    #[test]
    fn functions_are_scored_by_their_truth() {
        let rows = [
            (0, [800.0, 1200.0, 1500.0], 0.0),
            (1, [1050.0, 1090.0, 1200.0], 0.0),
            (3, [0.0; 3], 1000.0),
        ];
        let rows = [&rows[..], &[(4, [150.0, 200.0, 250.0], 1800.0)]].concat();
        let cold = Truth { bytes: 1000.0, cold: 1000.0 };
        let hot = |bytes| Truth { bytes, cold: 0.0 };
        let truths = [cold, cold, cold, hot(1000.0), hot(2000.0)];
        let score = Score::of(&report(&rows), &truths, 0.09);
        assert_eq!((score.sites, score.right, score.without_sample), (5, 3, 1));
        assert_eq!((score.cold_sites, score.cold_held), (3, 1));
        assert_eq!((score.hot_sites, score.hot_held), (2, 1));
        assert_eq!(score.errors, [20.0, 9.0, -100.0]);
        assert!((score.precision() - (1.0 - 200.0 / 2490.0)).abs() < 1e-9);
        assert!((score.sum_error() + 17.0).abs() < 1e-9);
        let twice = Score::sum(&[score.clone(), score.clone()]);
        assert_eq!((twice.right, twice.errors.len()), (6, 6));
        assert!((twice.precision() - score.precision()).abs() < 1e-9);
    }
}
