//! Comparison of runs.

use std::collections::BTreeMap;

use super::config::Config;
use super::estimate::Estimate;
use super::run::{Run, RunResult, WorkDone};
use super::slices::{SlicePair, less_work, slowdown};
use super::statistics::mean;
use super::workload::FOR_HUGE_PAGES;

/// A figure of a run; `None` if the run does not have it.
pub type Figure = fn(&RunResult) -> Option<f64>;

/// All runs that count.
#[derive(Debug, Clone)]
pub struct Results<'a>(Vec<&'a Run>);

impl<'a> Results<'a> {
    /// The results of these runs.
    pub fn of(runs: Vec<&'a Run>) -> Self {
        Results(runs)
    }

    /// By name, in the order in which they were run first.
    pub fn workloads(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.0 {
            if !names.contains(&run.workload.as_str()) {
                names.push(&run.workload);
            }
        }
        names
    }

    /// Whether a configuration was run.
    pub fn has(&self, config: Config) -> bool {
        self.0.iter().any(|run| run.config == config)
    }

    /// The failed runs, and why they failed.
    pub fn failed(&self) -> impl Iterator<Item = (&'a Run, &'a str)> {
        self.0.iter().filter_map(|run| Some((*run, run.outcome.as_ref().err()?.as_str())))
    }

    /// All repetitions that have not failed.
    fn repetitions(&self, workload: &str, config: Config) -> impl Iterator<Item = &'a RunResult> {
        let runs = self.0.iter().filter(move |r| r.workload == workload && r.config == config);
        runs.filter_map(|run| run.outcome.as_ref().ok())
    }

    /// A figure of each repetition.
    pub fn values(&self, workload: &str, config: Config, figure: Figure) -> Vec<f64> {
        self.repetitions(workload, config).filter_map(figure).collect()
    }

    /// Its average.
    pub fn mean(&self, workload: &str, config: Config, figure: Figure) -> Option<f64> {
        mean(&self.values(workload, config, figure))
    }

    /// Its increase over the workload alone, in percent.
    pub fn overhead(&self, workload: &str, config: Config, figure: Figure) -> Option<f64> {
        let orig = self.mean(workload, Config::Orig, figure)?;
        let now = self.mean(workload, config, figure)?;
        (orig != 0.0).then(|| 100.0 * (now - orig) / orig)
    }

    /// The increase in work over the workload alone, in percent: compared with its own slices at rest, if there
    /// are any.
    pub fn more_work(&self, workload: &str, config: Config) -> Option<f64> {
        let alone: Figure = |f| f.sliced.as_ref().map(|s| s.alone);
        let Some(alone) = self.mean(workload, config, alone) else {
            return self.overhead(workload, config, |f| Some(f.work.number()));
        };
        let watched = self.mean(workload, config, |f| f.sliced.as_ref().map(|s| s.watched))?;
        (alone != 0.0).then(|| 100.0 * (watched - alone) / alone)
    }

    /// The increase in time for the same work, in percent: the median or mean of repetitions. Each is compared with
    /// its own slices at rest or, without slices, with a run of the workload alone.
    pub fn slowdown(&self, workload: &str, config: Config) -> Option<Estimate> {
        let of_slices = self.of_slices(workload, config, slowdown);
        if of_slices.is_some() {
            return of_slices;
        }
        let time: Figure = |f| match f.work {
            WorkDone::Seconds(seconds) => Some(seconds),
            WorkDone::PerSecond(rate) => (rate > 0.0).then(|| 1.0 / rate),
        };
        self.more(workload, config, time)
    }

    /// The decrease in work per second compared with the workload alone, in percent; the comparison is that of
    /// [`Results::slowdown`].
    pub fn less_work(&self, workload: &str, config: Config) -> Option<Estimate> {
        let of_slices = self.of_slices(workload, config, less_work);
        if of_slices.is_some() {
            return of_slices;
        }
        let rate: Figure = |f| match f.work {
            WorkDone::Seconds(_) => None,
            WorkDone::PerSecond(rate) => Some(rate),
        };
        let more = self.more(workload, config, rate)?;
        Some(Estimate { value: -more.value, ..more })
    }

    /// The estimate from the slices of each repetition. Their pairs are not pooled: the placement of a process in
    /// caches affects all pairs of a repetition.
    fn of_slices(
        &self,
        workload: &str,
        config: Config,
        of: fn(&[SlicePair]) -> Option<Estimate>,
    ) -> Option<Estimate> {
        let sliced = self.repetitions(workload, config).filter_map(|f| f.sliced.as_ref());
        Estimate::of_estimates(&sliced.filter_map(|s| of(&s.pairs)).collect::<Vec<_>>())
    }

    /// The increase over the workload alone, in percent, by the median or mean of repetitions. Each repetition
    /// is compared with the one of the same number, which ran next to it, so that a change in the machine's
    /// speed matters little.
    pub fn more(&self, workload: &str, config: Config, figure: Figure) -> Option<Estimate> {
        let base = self.by_repetition(workload, Config::Orig, figure);
        let of = |(repetition, value): (u32, f64)| {
            let base = base.get(&repetition).filter(|base| **base != 0.0)?;
            Some(100.0 * (value / base - 1.0))
        };
        let own = self.by_repetition(workload, config, figure);
        Estimate::of(&own.into_iter().filter_map(of).collect::<Vec<_>>())
    }

    fn by_repetition(&self, workload: &str, config: Config, figure: Figure) -> BTreeMap<u32, f64> {
        let runs = self.0.iter().filter(|r| r.workload == workload && r.config == config);
        let value = |r: &&Run| Some((r.repetition, figure(r.outcome.as_ref().ok()?)?));
        runs.filter_map(value).collect()
    }

    /// The mean slowdown over all workloads that have one.
    pub fn mean_slowdown(&self, config: Config) -> Option<Estimate> {
        let each = self.workloads().into_iter().filter_map(|w| self.slowdown(w, config));
        Estimate::mean(&each.collect::<Vec<_>>())
    }

    /// Memory that is no longer resident minus the memory that swap requires for it, as a share of the resident
    /// memory of the workload alone, in percent.
    pub fn saved(&self, workload: &str, config: Config) -> Option<f64> {
        self.overhead(workload, config, with_swap).map(|more| -more)
    }

    /// The workloads of which memory may be saved.
    pub fn of_the_grid(&self) -> Self {
        let is_of = |run: &&&Run| !FOR_HUGE_PAGES.contains(&run.workload.as_str());
        Results(self.0.iter().filter(is_of).copied().collect())
    }

    /// The average over all workloads that have it.
    pub fn average(&self, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        mean(&self.workloads().into_iter().filter_map(of).collect::<Vec<_>>())
    }
}

/// Resident bytes, and bytes of memory that swap uses.
pub fn with_swap(f: &RunResult) -> Option<f64> {
    Some(f.memory.resident + f.memory.zram)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::sampler::MemoryFigures;
    use super::super::slices::{Slice, Sliced};
    use super::*;

    /// A run with this work, and so many bytes resident and in swap.
    pub fn run(workload: &str, config: Config, work: WorkDone, resident: f64, zram: f64) -> Run {
        let memory = MemoryFigures { used: resident, resident, held: 3.0 * zram, zram };
        let outcome = Ok(RunResult {
            work,
            sliced: None,
            seconds: 10.0,
            memory,
            major_faults: 100,
            stalls: 0,
            pressure: 1.0,
            own_cpu: (config != Config::Orig).then_some(2.0),
            acting: config.scheme().map(|_| 0.5),
            latency: None,
            windows: None,
        });
        Run { workload: workload.to_owned(), config, repetition: 0, outcome }
    }

    #[test]
    fn time_and_rate_slow_down_alike() {
        let runs = [
            run("time", Config::Orig, WorkDone::Seconds(10.0), 1.0, 0.0),
            run("time", Config::Prcl, WorkDone::Seconds(12.5), 1.0, 0.0),
            run("rate", Config::Orig, WorkDone::PerSecond(100.0), 1.0, 0.0),
            run("rate", Config::Prcl, WorkDone::PerSecond(80.0), 1.0, 0.0),
        ];
        let results = Results::of(runs.iter().collect());
        for workload in results.workloads() {
            let slowdown = results.slowdown(workload, Config::Prcl).unwrap();
            assert!((slowdown.value - 25.0).abs() < 1e-9, "{workload}: {slowdown}");
            assert_eq!(slowdown.error, None, "one run has no error");
        }
        let average = results.mean_slowdown(Config::Prcl).unwrap();
        assert!((average.value - 25.0).abs() < 1e-9);
        assert_eq!(results.slowdown("time", Config::Rec), None);
    }

    #[test]
    fn one_repetition_that_went_astray_moves_no_slowdown() {
        let slowdown = of_repetitions([(100.0, 80.0), (101.0, 20.0), (99.0, 81.0)]);
        assert!((slowdown.value - 25.0).abs() < 1e-9, "{slowdown}");
        assert!(slowdown.error.unwrap() > 10.0, "{slowdown}");
    }

    /// The whole machine is, from run to run.
    #[test]
    fn what_grows_slower_is_no_slowdown() {
        let slowdown = of_repetitions([(100.0, 80.0), (50.0, 40.0), (25.0, 20.0)]);
        assert!((slowdown.value - 25.0).abs() < 1e-9, "{slowdown}");
        assert!(slowdown.error.unwrap() < 1e-9, "{slowdown}");
    }

    /// The slowdown of prcl, from rates without and with it.
    fn of_repetitions(rates: [(f64, f64); 3]) -> Estimate {
        let mut runs = Vec::new();
        for (repetition, (orig, prcl)) in (0..).zip(rates) {
            for (config, rate) in [(Config::Orig, orig), (Config::Prcl, prcl)] {
                let work = WorkDone::PerSecond(rate);
                runs.push(Run { repetition, ..run("a", config, work, 1.0, 0.0) });
            }
        }
        Results::of(runs.iter().collect()).slowdown("a", Config::Prcl).unwrap()
    }

    /// Its process is slower than others, and hardly slower than itself.
    #[test]
    fn who_takes_turns_is_held_against_itself() {
        let mut runs = [
            run("a", Config::Orig, WorkDone::PerSecond(100.0), 1.0, 0.0),
            run("a", Config::Rec, WorkDone::PerSecond(80.0), 1.0, 0.0),
            run("a", Config::Rec, WorkDone::PerSecond(40.0), 1.0, 0.0),
        ];
        for (run, watched) in runs.iter_mut().skip(1).zip([80.0, 40.0]) {
            let slice = |watched, found| Slice { watched, found };
            let slices = [slice(true, watched), slice(false, watched * 1.25)].repeat(2);
            run.outcome.as_mut().unwrap().sliced = Sliced::of(&slices);
        }
        let results = Results::of(runs.iter().collect());
        let slowdown = results.slowdown("a", Config::Rec).unwrap();
        assert!((slowdown.value - 25.0).abs() < 1e-9, "{slowdown}");
        assert!(slowdown.error.unwrap() < 1e-9, "{slowdown}");
        assert!((results.more_work("a", Config::Rec).unwrap() + 20.0).abs() < 1e-9);
        assert_eq!(results.mean_slowdown(Config::Rec), Some(slowdown));
    }

    /// Each repetition differs from the others by far more than its pairs differ from each other.
    #[test]
    fn pairs_of_one_repetition_are_not_independent() {
        let one = run("a", Config::Rec, WorkDone::PerSecond(100.0), 1.0, 0.0);
        let mut runs = [0, 1, 2].map(|repetition| Run { repetition, ..one.clone() });
        for (run, alone) in runs.iter_mut().zip([98.0, 100.0, 102.0]) {
            let slice = |watched, found| Slice { watched, found };
            let slices = [slice(true, 100.0), slice(false, alone)].repeat(10);
            run.outcome.as_mut().unwrap().sliced = Sliced::of(&slices);
        }
        let results = Results::of(runs.iter().collect());
        // The standard error of a median of -2, 0 and 2: 1.253 x 2 / sqrt(3).
        let both = [results.slowdown("a", Config::Rec), results.less_work("a", Config::Rec)];
        for estimate in both.map(Option::unwrap) {
            assert!(estimate.value.abs() < 1e-9, "{estimate}");
            assert!((estimate.error.unwrap() - 1.447).abs() < 0.05, "{estimate}");
        }
    }

    #[test]
    fn saved_is_without_what_swap_takes() {
        let runs = [
            run("a", Config::Orig, WorkDone::Seconds(1.0), 1000.0, 0.0),
            run("a", Config::Prcl, WorkDone::Seconds(1.0), 100.0, 300.0),
        ];
        let saved = Results::of(runs.iter().collect()).saved("a", Config::Prcl).unwrap();
        assert!((saved - 60.0).abs() < 1e-9, "{saved}");
    }

    #[test]
    fn what_failed_is_reported_and_does_not_count() {
        let mut runs = [
            run("a", Config::Orig, WorkDone::Seconds(1.0), 1.0, 0.0),
            run("a", Config::Orig, WorkDone::Seconds(9.0), 1.0, 0.0),
        ];
        runs[1].outcome = Err("it was so".to_owned());
        let results = Results::of(runs.iter().collect());
        assert_eq!(results.mean("a", Config::Orig, |f| Some(f.work.number())), Some(1.0));
        let failed: Vec<&str> = results.failed().map(|(_, why)| why).collect();
        assert_eq!(failed, ["it was so"]);
    }
}
