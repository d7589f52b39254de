//! Runs held against each other.

use super::config::Config;
use super::figures::{Figures, Run, Work};
use super::statistics::mean;
use super::workload::FOR_HUGE_PAGES;

/// A figure of a run; none where it has none.
pub type Figure = fn(&Figures) -> Option<f64>;

/// All runs that count.
#[derive(Debug, Clone)]
pub struct Results<'a>(Vec<&'a Run>);

impl<'a> Results<'a> {
    /// Of these runs.
    #[must_use]
    pub fn of(runs: Vec<&'a Run>) -> Self {
        Results(runs)
    }

    /// By name, in the order in which they were run first.
    #[must_use]
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
    #[must_use]
    pub fn has(&self, config: Config) -> bool {
        self.0.iter().any(|run| run.config == config)
    }

    /// Those that have failed, and why.
    pub fn failed(&self) -> impl Iterator<Item = (&'a Run, &'a str)> {
        self.0.iter().filter_map(|run| Some((*run, run.outcome.as_ref().err()?.as_str())))
    }

    /// A figure of each repetition.
    #[must_use]
    pub fn values(&self, workload: &str, config: Config, figure: Figure) -> Vec<f64> {
        let runs = self.0.iter().filter(|r| r.workload == workload && r.config == config);
        runs.filter_map(|run| figure(run.outcome.as_ref().ok()?)).collect()
    }

    /// Its average.
    #[must_use]
    pub fn mean(&self, workload: &str, config: Config, figure: Figure) -> Option<f64> {
        mean(&self.values(workload, config, figure))
    }

    /// How much more it is than without anything beside the workload, in percent.
    #[must_use]
    pub fn overhead(&self, workload: &str, config: Config, figure: Figure) -> Option<f64> {
        let orig = self.mean(workload, Config::Orig, figure)?;
        let now = self.mean(workload, config, figure)?;
        (orig != 0.0).then(|| 100.0 * (now - orig) / orig)
    }

    /// How much longer the same work takes, in percent.
    #[must_use]
    pub fn slowdown(&self, workload: &str, config: Config) -> Option<f64> {
        let time: Figure = |f| match f.work {
            Work::Seconds(seconds) => Some(seconds),
            Work::PerSecond(rate) => (rate > 0.0).then(|| 1.0 / rate),
        };
        self.overhead(workload, config, time)
    }

    /// What is no longer resident, less what swap takes for it, as a share of what is resident without
    /// anything beside the workload; in percent.
    #[must_use]
    pub fn saved(&self, workload: &str, config: Config) -> Option<f64> {
        self.overhead(workload, config, with_swap).map(|more| -more)
    }

    /// Those of which memory may be saved.
    #[must_use]
    pub fn of_the_grid(&self) -> Self {
        let is_of = |run: &&&Run| !FOR_HUGE_PAGES.contains(&run.workload.as_str());
        Results(self.0.iter().filter(is_of).copied().collect())
    }

    /// The average over all workloads that have it.
    #[must_use]
    pub fn average(&self, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        mean(&self.workloads().into_iter().filter_map(of).collect::<Vec<_>>())
    }
}

/// Resident bytes and what swap takes.
#[must_use]
pub fn with_swap(f: &Figures) -> Option<f64> {
    Some(f.memory.resident + f.memory.zram)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::sampler::Memory;
    use super::*;

    /// A run with this work, and so many bytes resident and in swap.
    pub fn run(workload: &str, config: Config, work: Work, resident: f64, zram: f64) -> Run {
        let memory = Memory { used: resident, resident, held: 3.0 * zram, zram };
        let outcome = Ok(Figures {
            work,
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
            run("time", Config::Orig, Work::Seconds(10.0), 1.0, 0.0),
            run("time", Config::Prcl, Work::Seconds(12.5), 1.0, 0.0),
            run("rate", Config::Orig, Work::PerSecond(100.0), 1.0, 0.0),
            run("rate", Config::Prcl, Work::PerSecond(80.0), 1.0, 0.0),
        ];
        let results = Results::of(runs.iter().collect());
        for workload in results.workloads() {
            let slowdown = results.slowdown(workload, Config::Prcl).unwrap();
            assert!((slowdown - 25.0).abs() < 1e-9, "{workload}: {slowdown}");
        }
        let average = results.average(|w| results.slowdown(w, Config::Prcl)).unwrap();
        assert!((average - 25.0).abs() < 1e-9);
        assert_eq!(results.slowdown("time", Config::Rec), None);
    }

    #[test]
    fn saved_is_without_what_swap_takes() {
        let runs = [
            run("a", Config::Orig, Work::Seconds(1.0), 1000.0, 0.0),
            run("a", Config::Prcl, Work::Seconds(1.0), 100.0, 300.0),
        ];
        let saved = Results::of(runs.iter().collect()).saved("a", Config::Prcl).unwrap();
        assert!((saved - 60.0).abs() < 1e-9, "{saved}");
    }

    #[test]
    fn what_failed_is_told_and_does_not_count() {
        let mut runs = [
            run("a", Config::Orig, Work::Seconds(1.0), 1.0, 0.0),
            run("a", Config::Orig, Work::Seconds(9.0), 1.0, 0.0),
        ];
        runs[1].outcome = Err("it was so".to_owned());
        let results = Results::of(runs.iter().collect());
        assert_eq!(results.mean("a", Config::Orig, |f| Some(f.work.number())), Some(1.0));
        let failed: Vec<&str> = results.failed().map(|(_, why)| why).collect();
        assert_eq!(failed, ["it was so"]);
    }
}
