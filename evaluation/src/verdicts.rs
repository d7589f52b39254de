//! The bounds, and whether they are held.

use super::config::Config;
use super::estimate::Estimate;
use super::results::{Figure, Results};
use super::verdict::Verdict;

/// Results of the bench `quotas`, which this evaluation does not repeat.
pub const BY_QUOTAS: &str =
    "how much of a quota is used where work suffices, and what goes first: by `quotas`";

/// A gain or a waste below this, in percent, is too small to be kept or removed.
const NEGLIGIBLE_PERCENT: f64 = 2.0;

/// All bounds.
pub fn verdicts(results: &Results<'_>) -> Vec<Verdict> {
    let [saved, fewer, later] = redis(results, "redis-together");
    let mut all = vec![watching(results), saved.at_least(60.0), fewer.at_most(3.0), later];
    all.extend(redis(results, "redis-hashed"));
    all.extend(quota(&results.of_the_grid()));
    all.push(
        Verdict::of("CPU of isotherm beyond any quota, in points", beyond(results)).at_most(1.5),
    );
    all.extend([windows(results), kept(results), removed(results)]);
    all.extend(best_case(results));
    all
}

/// The windows of all runs with a quota.
fn windows(results: &Results<'_>) -> Verdict {
    // Without a window, isotherm had nothing to do.
    let worst: Figure = |f| f.windows.filter(|w| w.count > 0).map(|w| w.worst);
    let runs = Config::grid().into_iter().flat_map(|config| {
        results.workloads().into_iter().flat_map(move |w| results.values(w, config, worst))
    });
    let found = runs.reduce(f64::max);
    Verdict::of("windows of time quotas: the worst in percent", found).at_most(110.0)
}

fn watching(results: &Results<'_>) -> Verdict {
    let slowdown = results.mean_slowdown(Config::Rec);
    let interval = slowdown.and_then(Estimate::interval);
    let interval = interval.map(|(low, high)| format!("95 %: {low:.2} to {high:.2}"));
    let verdict = Verdict::of("rec: mean slowdown in percent", slowdown.map(|s| s.value));
    verdict.at_most(0.5).with(interval)
}

/// The bounds of prcl on one of the servers.
fn redis(results: &Results<'_>, name: &str) -> [Verdict; 3] {
    let of = |what, found| Verdict::of(format!("prcl, {name}: {what}"), found);
    let fewer = results.less_work(name, Config::Prcl);
    let later = results.overhead(name, Config::Prcl, |f| Some(f.latency?.p99));
    [
        of("saved in percent", results.saved(name, Config::Prcl)),
        of("fewer requests in percent", fewer.map(|f| f.value)).with(error(fewer)),
        of("p99 more than orig's in percent", later),
    ]
}

fn quota(grid: &Results<'_>) -> [Verdict; 3] {
    let best = Config::Quota { ms: 50, prioritised: true };
    let of = |what, found| Verdict::of(format!("50 ms/s, oldest first, {what} in percent"), found);
    let slowdown = grid.mean_slowdown(best);
    [
        of("all workloads: saved", grid.average(|w| grid.saved(w, best))).at_least(45.0),
        of("all workloads: slowdown", slowdown.map(|s| s.value)).at_most(2.0).with(error(slowdown)),
        of("all workloads: CPU", grid.average(|w| grid.mean(w, best, |f| f.own_cpu))).at_most(3.0),
    ]
}

fn error(estimate: Option<Estimate>) -> Option<String> {
    Some(format!("standard error {:.2}", estimate?.error?))
}

/// The maximum CPU time beyond the quota, over all workloads.
fn beyond(results: &Results<'_>) -> Option<f64> {
    let of = |c: Config| {
        let quota = f64::from(c.quota()?) / 10.0;
        let each = results.workloads().into_iter();
        each.filter_map(|w| Some(results.mean(w, c, |f| f.own_cpu)? - quota)).reduce(f64::max)
    };
    Config::grid().into_iter().filter_map(of).reduce(f64::max)
}

/// The workloads for which both thp and ethp have this figure, and for which that of thp `counts`.
fn those<'a>(
    results: &Results<'a>,
    figure: impl Fn(&str, Config) -> Option<f64>,
    counts: impl Fn(f64) -> bool,
) -> Vec<&'a str> {
    let both = |w: &str| figure(w, Config::Ethp).and(figure(w, Config::Thp));
    results.workloads().into_iter().filter(|w| both(w).is_some_and(&counts)).collect()
}

fn kept(results: &Results<'_>) -> Verdict {
    let of = |w: &str, c| results.slowdown(w, c);
    let on =
        those(results, |w, c| Some(of(w, c)?.value), |slowdown| slowdown < -NEGLIGIBLE_PERCENT);
    let mean = |c| Estimate::mean(&on.iter().filter_map(|w| of(w, c)).collect::<Vec<_>>());
    let both = mean(Config::Thp).zip(mean(Config::Ethp));
    let share = both.map(|(thp, ethp)| 100.0 * ethp.value / thp.value);
    let how = both.map(|(thp, ethp)| {
        let on = on.join(", ");
        format!("slowdown of thp {thp}, of ethp {ethp}, on those that thp speeds up: {on}")
    });
    Verdict::of("ethp: of the gain of thp, kept in percent", share).at_least(76.0).with(how)
}

fn removed(results: &Results<'_>) -> Verdict {
    let resident: Figure = |f| Some(f.memory.resident);
    let on =
        those(results, |w, c| results.overhead(w, c, resident), |more| more > NEGLIGIBLE_PERCENT);
    let sum = |c| -> f64 { on.iter().filter_map(|w| results.mean(w, c, resident)).sum() };
    let waste = |c| sum(c) - sum(Config::Orig);
    let share = (!on.is_empty()).then(|| 100.0 * (1.0 - waste(Config::Ethp) / waste(Config::Thp)));
    let how = share.map(|_| format!("on those of which thp has more resident: {}", on.join(", ")));
    Verdict::of("ethp: of the waste of thp, removed in percent", share).at_least(80.0).with(how)
}

/// A workload counts as slowed down from this slowdown on, in percent.
const SLOWED: f64 = 2.0;

/// The most that prcl saves of a workload that it does not slow down: less resident memory, as in the mails, which do not
/// count the memory of zram; and the saving after that memory.
fn best_case(results: &Results<'_>) -> [Verdict; 2] {
    let resident: Figure = |f| Some(f.memory.resident);
    let less = |w: &str| results.overhead(w, Config::Prcl, resident).map(|more| -more);
    let best = |what: &str, saved: &dyn Fn(&str) -> Option<f64>| {
        let of = |w| {
            let slowdown = results.slowdown(w, Config::Prcl)?;
            (slowdown.value <= SLOWED).then_some((saved(w)?, w, slowdown))
        };
        let best = results.workloads().into_iter().filter_map(of);
        let best = best.max_by(|a, b| a.0.total_cmp(&b.0));
        let how = best.map(|(_, w, slowdown)| format!("{w}, with a slowdown of {slowdown} %"));
        let what = format!("prcl, best case at a slowdown of at most 2 %: {what} in percent");
        Verdict::of(what, best.map(|(saved, ..)| saved)).with(how)
    };
    [
        best("less resident", &less).at_least(90.0),
        best("saved", &|w| results.saved(w, Config::Prcl)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::run;
    use super::super::run::{Run, RunResult, Windows, WorkDone};
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
            run("redis-together", Config::Orig, WorkDone::PerSecond(100.0), 100.0, 0.0),
            run("redis-together", Config::Rec, WorkDone::PerSecond(98.0), 100.0, 0.0),
            run("redis-together", Config::Prcl, WorkDone::PerSecond(99.0), 10.0, 20.0),
        ];
        let all = verdicts(&Results::of(runs.iter().collect()));
        assert_eq!(found(&all, "rec").holds(), Some(false));
        assert!(found(&all, "rec").to_string().ends_with("2.04, BROKEN"));
        assert_eq!(found(&all, "prcl, redis-together: saved").found, Some(70.0));
        assert_eq!(found(&all, "prcl, redis-together: fewer").holds(), Some(true));
        assert_eq!(found(&all, "ethp").found, None);
    }

    #[test]
    fn the_best_case_is_not_slowed_down() {
        let of = |name, config, rate, resident| {
            run(name, config, WorkDone::PerSecond(rate), resident, 0.0)
        };
        let runs = [
            of("slow", Config::Orig, 100.0, 100.0),
            of("slow", Config::Prcl, 50.0, 1.0),
            of("good", Config::Orig, 100.0, 100.0),
            run("good", Config::Prcl, WorkDone::PerSecond(99.0), 8.0, 30.0),
        ];
        let all = verdicts(&Results::of(runs.iter().collect()));
        let of = |what: &str| {
            found(&all, &format!("prcl, best case at a slowdown of at most 2 %: {what}"))
        };
        let saved = of("saved");
        assert_eq!((saved.found, saved.holds()), (Some(62.0), None), "zram takes 30 of it");
        let best = of("less resident");
        assert_eq!((best.found, best.holds()), (Some(92.0), Some(true)));
        assert!(best.to_string().contains("good, with a slowdown of 1.01 %"), "{best}");
    }

    #[test]
    fn of_windows() {
        let quota = Config::Quota { ms: 50, prioritised: true };
        let of = |worst| {
            let mut run = run("some", quota, WorkDone::PerSecond(1.0), 1.0, 0.0);
            let windows = Some(Windows { count: 9, worst, median: None });
            run.outcome = run.outcome.map(|f| RunResult { windows, ..f });
            run
        };
        let runs = [of(99.0), of(112.0)];
        let worst = found(&verdicts(&Results::of(runs.iter().collect())), "windows");
        assert_eq!((worst.found, worst.holds()), (Some(112.0), Some(false)));
    }

    #[test]
    fn of_gain_and_waste() {
        let runs = [
            run("gain", Config::Orig, WorkDone::PerSecond(100.0), 100.0, 0.0),
            run("gain", Config::Thp, WorkDone::PerSecond(200.0), 100.0, 0.0),
            run("gain", Config::Ethp, WorkDone::PerSecond(160.0), 100.0, 0.0),
            run("waste", Config::Orig, WorkDone::PerSecond(100.0), 100.0, 0.0),
            run("waste", Config::Thp, WorkDone::PerSecond(100.0), 900.0, 0.0),
            run("waste", Config::Ethp, WorkDone::PerSecond(100.0), 140.0, 0.0),
        ];
        let all = verdicts(&Results::of(runs.iter().collect()));
        let kept = found(&all, "ethp: of the gain").found.unwrap();
        assert!((kept - 75.0).abs() < 1e-9, "{kept}");
        let removed = found(&all, "ethp: of the waste").found.unwrap();
        assert!((removed - 95.0).abs() < 1e-9, "{removed}");
        assert!(found(&all, "ethp: of the gain").to_string().contains("speeds up: gain)"));
    }

    /// If thp gains nothing, ethp can neither keep nor lose anything.
    #[test]
    fn gains_are_of_those_that_thp_speeds_up() {
        let of = |name, config, rate| run(name, config, WorkDone::PerSecond(rate), 100.0, 0.0);
        let mut runs = Vec::new();
        for (name, thp, ethp) in [("gain", 125.0, 125.0), ("none", 101.0, 50.0)] {
            runs.push(of(name, Config::Orig, 100.0));
            runs.extend([of(name, Config::Thp, thp), of(name, Config::Ethp, ethp)]);
        }
        let all = verdicts(&Results::of(runs.iter().collect()));
        let kept = found(&all, "ethp: of the gain").found.unwrap();
        assert!((kept - 100.0).abs() < 1e-9, "{kept}");
        assert_eq!(found(&all, "ethp: of the waste").found, None, "thp wastes nothing");
    }

    #[test]
    fn what_was_run_more_than_once_tells_how_sure_it_is() {
        let of = |config, rate| run("a", config, WorkDone::PerSecond(rate), 100.0, 0.0);
        let quota = Config::Quota { ms: 50, prioritised: true };
        let rates = [(Config::Orig, 100.0), (Config::Rec, 99.0), (quota, 98.0)];
        let once = rates.map(|(config, rate)| of(config, rate));
        let again = rates.map(|(config, rate)| Run { repetition: 1, ..of(config, rate - 1.0) });
        let texts = |runs: Vec<&Run>| {
            let all = verdicts(&Results::of(runs));
            ["rec", "50 ms/s, oldest first, all workloads: slowdown"]
                .map(|begin| found(&all, begin).to_string())
        };
        assert!(texts(once.iter().collect()).iter().all(|text| !text.contains('(')));
        let [rec, slowdown] = texts(once.iter().chain(&again).collect());
        assert!(rec.contains("(95 %: "), "{rec}");
        assert!(slowdown.contains("(standard error "), "{slowdown}");
    }

    #[test]
    fn cpu_is_held_against_the_quota() {
        let quota = Config::Quota { ms: 10, prioritised: false };
        let runs = [run("a", quota, WorkDone::PerSecond(1.0), 1.0, 0.0)];
        let all = verdicts(&Results::of(runs.iter().collect()));
        let beyond = found(&all, "CPU").found.unwrap();
        assert!((beyond - 1.0).abs() < 1e-9, "2 % with 1 % allowed: {beyond}");
    }
}
