//! What is to show, and whether it does.

use std::fmt;

use super::config::Config;
use super::results::{Figure, Results};

/// One bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// what is bounded, and how
    pub what: &'static str,
    /// what was found; none was not measured
    pub found: Option<f64>,
    /// none is told only
    bound: Option<Bound>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Verdict {
    /// Whether it holds; none if it was not measured, or has no bound.
    #[must_use]
    pub fn holds(&self) -> Option<bool> {
        Some(match self.bound? {
            Bound::AtLeast(least) => self.found? >= least,
            Bound::AtMost(most) => self.found? <= most,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Some(Bound::AtLeast(least)) => format!(", at least {least}"),
            Some(Bound::AtMost(most)) => format!(", at most {most}"),
            None => String::new(),
        };
        let verdict = match (self.found, self.holds()) {
            (None, _) => "not measured".to_owned(),
            (Some(found), None) => format!("{found:.2}"),
            (Some(found), Some(true)) => format!("{found:.2}, held"),
            (Some(found), Some(false)) => format!("{found:.2}, BROKEN"),
        };
        write!(f, "{}{bound}: {verdict}", self.what)
    }
}

/// What the bench `quotas` shows, and not this one.
pub const BY_QUOTAS: &str = "windows of time quotas, and what goes first by priority: by `quotas`";

/// A gain or a waste of less than this, in percent, is none that could be kept or removed.
const NOTHING: f64 = 1.0;

/// All bounds.
#[must_use]
pub fn verdicts(results: &Results<'_>) -> Vec<Verdict> {
    let verdict = |what, found, bound| Verdict { what, found, bound: Some(bound) };
    let told = |what, found| Verdict { what, found, bound: None };
    let slowdown = |c| results.average(|w| results.slowdown(w, c));
    let p99: Figure = |f| Some(f.latency?.p99);
    let redis = |w: &str| {
        let fewer = results.overhead(w, Config::Prcl, |f| Some(f.work.number())).map(|more| -more);
        (results.saved(w, Config::Prcl), fewer, results.overhead(w, Config::Prcl, p99))
    };
    let best = Config::Quota { ms: 50, prioritised: true };
    let (saved, fewer, later) = redis("redis-together");
    let hashed = redis("redis-hashed");
    let grid = results.of_the_grid();
    let saved_by = grid.average(|w| grid.saved(w, best));
    let slowed_by = grid.average(|w| grid.slowdown(w, best));
    vec![
        verdict("rec: mean slowdown in percent", slowdown(Config::Rec), Bound::AtMost(1.0)),
        verdict("prcl, redis-together: saved in percent", saved, Bound::AtLeast(60.0)),
        verdict("prcl, redis-together: fewer requests in percent", fewer, Bound::AtMost(3.0)),
        told("prcl, redis-together: p99 more than orig's in percent", later),
        told("prcl, redis-hashed: saved in percent", hashed.0),
        told("prcl, redis-hashed: fewer requests in percent", hashed.1),
        told("prcl, redis-hashed: p99 more than orig's in percent", hashed.2),
        verdict(
            "50 ms/s, oldest first, all workloads: saved in percent",
            saved_by,
            Bound::AtLeast(40.0),
        ),
        verdict(
            "50 ms/s, oldest first, all workloads: slowdown in percent",
            slowed_by,
            Bound::AtMost(3.4),
        ),
        verdict("CPU of isotherm beyond any quota, in points", beyond(results), Bound::AtMost(1.5)),
        verdict("ethp: of the gain of thp, kept in percent", kept(results), Bound::AtLeast(40.0)),
        verdict(
            "ethp: of the waste of thp, removed in percent",
            removed(results),
            Bound::AtLeast(85.0),
        ),
    ]
}

/// The most that any workload has it take beyond its quota.
fn beyond(results: &Results<'_>) -> Option<f64> {
    let of = |c: Config| {
        let quota = f64::from(c.quota()?) / 10.0;
        let each = results.workloads().into_iter();
        each.filter_map(|w| Some(results.mean(w, c, |f| f.own_cpu)? - quota)).reduce(f64::max)
    };
    Config::grid().into_iter().filter_map(of).reduce(f64::max)
}

/// Of workloads that were run under both.
fn both(results: &Results<'_>, of: impl Fn(&str, Config) -> Option<f64>) -> Option<(f64, f64)> {
    let pairs = results.workloads().into_iter();
    let pairs = pairs.filter_map(|w| Some((of(w, Config::Thp)?, of(w, Config::Ethp)?)));
    pairs.reduce(|sum, pair| (sum.0 + pair.0, sum.1 + pair.1))
}

fn kept(results: &Results<'_>) -> Option<f64> {
    let (thp, ethp) = both(results, |w, c| results.slowdown(w, c).map(|s| -s))?;
    (thp > NOTHING).then(|| 100.0 * ethp / thp)
}

/// In bytes that are resident.
fn removed(results: &Results<'_>) -> Option<f64> {
    let resident: Figure = |f| Some(f.memory.resident);
    let more =
        |w: &str, c| Some(results.mean(w, c, resident)? - results.mean(w, Config::Orig, resident)?);
    let (thp, ethp) = both(results, more)?;
    let all: f64 =
        results.workloads().iter().filter_map(|w| results.mean(w, Config::Orig, resident)).sum();
    (100.0 * thp > NOTHING * all).then(|| 100.0 * (1.0 - ethp / thp))
}

#[cfg(test)]
mod tests {
    use super::super::figures::Work;
    use super::super::results::tests::run;
    use super::*;

    fn found(all: &[Verdict], begin: &str) -> Verdict {
        all.iter().find(|v| v.what.starts_with(begin)).unwrap().clone()
    }

    #[test]
    fn what_was_not_measured_is_not_broken() {
        let all = verdicts(&Results::of(Vec::new()));
        assert!(all.iter().all(|v| v.holds().is_none()));
        assert!(all[0].to_string().ends_with("not measured"));
    }

    #[test]
    fn held_and_broken() {
        let runs = [
            run("redis-together", Config::Orig, Work::PerSecond(100.0), 100.0, 0.0),
            run("redis-together", Config::Rec, Work::PerSecond(98.0), 100.0, 0.0),
            run("redis-together", Config::Prcl, Work::PerSecond(99.0), 10.0, 20.0),
        ];
        let all = verdicts(&Results::of(runs.iter().collect()));
        assert_eq!(found(&all, "rec").holds(), Some(false));
        assert!(found(&all, "rec").to_string().ends_with("2.04, BROKEN"));
        assert_eq!(found(&all, "prcl, redis-together: saved").found, Some(70.0));
        assert_eq!(found(&all, "prcl, redis-together: fewer").holds(), Some(true));
        assert_eq!(found(&all, "ethp").found, None);
    }

    #[test]
    fn of_gain_and_waste() {
        let runs = [
            run("gain", Config::Orig, Work::PerSecond(100.0), 100.0, 0.0),
            run("gain", Config::Thp, Work::PerSecond(200.0), 100.0, 0.0),
            run("gain", Config::Ethp, Work::PerSecond(160.0), 100.0, 0.0),
            run("waste", Config::Orig, Work::PerSecond(100.0), 100.0, 0.0),
            run("waste", Config::Thp, Work::PerSecond(100.0), 900.0, 0.0),
            run("waste", Config::Ethp, Work::PerSecond(100.0), 140.0, 0.0),
        ];
        let all = verdicts(&Results::of(runs.iter().collect()));
        let kept = found(&all, "ethp: of the gain").found.unwrap();
        assert!((kept - 75.0).abs() < 1e-9, "{kept}");
        let removed = found(&all, "ethp: of the waste").found.unwrap();
        assert!((removed - 95.0).abs() < 1e-9, "{removed}");
    }

    #[test]
    fn cpu_is_held_against_the_quota() {
        let quota = Config::Quota { ms: 10, prioritised: false };
        let runs = [run("a", quota, Work::PerSecond(1.0), 1.0, 0.0)];
        let all = verdicts(&Results::of(runs.iter().collect()));
        let beyond = found(&all, "CPU").found.unwrap();
        assert!((beyond - 1.0).abs() < 1e-9, "2 % with 1 % allowed: {beyond}");
    }
}
