//! The kernel's vectors, and the feedback loop with models of memory.

use super::super::metrics::MemoryMetrics;
use super::*;
use crate::survey::Pressure;

/// `damos_quota_goal.py`: the quota falls after an exceeded goal, and rises after a missed one.
#[test]
fn the_kernels_scores_lead_up_down_up_down() {
    let mut esz = 10_000_000;
    for (score, up) in [(0, true), (15_000, false), (5_000, true), (18_000, false)] {
        let next = feed_loop(esz, score);
        assert_eq!(next > esz, up, "{score}: {esz} to {next}");
        assert_ne!(next, esz);
        esz = next;
    }
}

/// `damos_test_feed_loop_next_input`.
#[test]
fn the_further_off_the_bigger_the_step() {
    let last = 900_000;
    assert!(feed_loop(last, 200) > last && feed_loop(last, 250_000_000) < last);
    assert!(feed_loop(last, 200) > feed_loop(last, 2000));
    assert_eq!(feed_loop(last, 10_000), last);
    assert_eq!(feed_loop(last, 0), 2 * last);
    assert_eq!(feed_loop(last, 15_000), last / 2);
    assert_eq!(feed_loop(last, 20_000), 10_000);
    assert_eq!(feed_loop(20_000, 19_999), 10_000);
    assert_eq!(feed_loop(u64::MAX, 0), u64::MAX);
}

fn stalled(for_so_long: Duration) -> Metrics {
    let pressure = Some(Pressure { stalled: for_so_long, ..Pressure::default() });
    let machine = MemoryMetrics { pressure, ..MemoryMetrics::default() };
    Metrics { machine, ..Metrics::default() }
}

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const MIB: u64 = 1 << 20;

/// A model machine: acting on `at` bytes per window stalls tasks for a millisecond.
struct Plant {
    tuner: Tuner,
    now: Nanos,
    stalled: Duration,
    esz: u64,
}

impl Plant {
    fn new() -> Self {
        Plant { tuner: Tuner::default(), now: Nanos(0), stalled: Duration::ZERO, esz: 0 }
    }

    /// Runs windows for `seconds` seconds, with `work` bytes to act on.
    fn run(&mut self, seconds: u32, at: u64, work: u64) -> Vec<u64> {
        let goal = [Goal::Stalled { of: Scope::Machine, target: MS }];
        let mut window = || {
            let used = self.esz.min(work);
            self.stalled += MS.mul_f64(used as f64 / at as f64);
            self.now = self.now + SECOND;
            self.esz = self.tuner.tune(&goal, PAGE_SIZE, self.now, &stalled(self.stalled), used);
            self.esz
        };
        (0..seconds).map(|_| window()).collect()
    }
}

#[test]
fn a_step_up_and_a_step_down_settle_and_overshoot_at_most_twofold() {
    let mut plant = Plant::new();
    for at in [400 * MIB, 900 * MIB, 90 * MIB, 70 * MIB, 350 * MIB] {
        let windows = plant.run(60, at, u64::MAX);
        let most = *windows.iter().skip(1).max().unwrap();
        assert!(most <= 2 * at, "{most} of {at}");
        for esz in &windows[40..] {
            assert!(esz.abs_diff(at) <= at / 50, "{esz} of {at}: {windows:?}");
        }
    }
}

/// An hour without pressure and with little work, then much work at once.
#[test]
fn the_quota_is_bounded_without_pressure() {
    let mut plant = Plant::new();
    let idle = plant.run(3600, 100 * MIB, 5 * MIB);
    assert!(idle.iter().all(|&esz| esz <= 10 * MIB), "{:?}", idle.last());
    let busy = plant.run(60, 100 * MIB, u64::MAX);
    assert!(busy.iter().all(|&esz| esz <= 200 * MIB), "{busy:?}");
    assert!(busy[40..].iter().all(|esz| esz.abs_diff(100 * MIB) < 2 * MIB), "{busy:?}");
}

/// Much work once, then none.
#[test]
fn an_unused_quota_decays() {
    let mut plant = Plant::new();
    let busy = plant.run(20, 400 * MIB, u64::MAX);
    assert!(busy[19] > 300 * MIB, "{busy:?}");
    let idle = plant.run(200, 400 * MIB, 0);
    assert!(idle[3] > 300 * MIB, "a few windows do no harm: {idle:?}");
    assert_eq!(idle[199], MIB, "{idle:?}");
}

/// Refaults: the quota falls to its minimum if the goal cannot be reached; this is not an error.
#[test]
fn a_goal_that_can_never_be_met_ends_at_the_least() {
    let goal = [Goal::Refaults { of: Scope::Machine, ppm: 2000 }];
    for unit in [PAGE_SIZE, 2 * MIB] {
        let (mut tuner, mut used, mut faults) = (Tuner::default(), 0, 0);
        for second in 1..20 {
            faults += 1_000_000;
            let pressure = Some(Pressure { major_faults: faults, ..Pressure::default() });
            let machine = MemoryMetrics { pressure, working_set: Some(1 << 30), resident: None };
            let metrics = Metrics { machine, ..Metrics::default() };
            used = tuner.tune(&goal, unit, Nanos(second * 1_000_000_000), &metrics, used);
        }
        assert_eq!(used, unit);
    }
}

/// Less than a huge page would allow no action, so nothing would be used, and the quota would never grow.
#[test]
fn the_first_quota_is_the_smallest_unit_of_the_action() {
    let goal = [Goal::Free { bp: 2000 }];
    let missed = Metrics { free_bp: Some(1000), ..Metrics::default() };
    let (mut tuner, mut levels, mut used) = (Tuner::default(), Vec::new(), 0);
    for second in 1..6 {
        let level = tuner.tune(&goal, 2 * MIB, Nanos(second * 1_000_000_000), &missed, used);
        used = level - level % (2 * MIB);
        levels.push(level / MIB);
    }
    assert_eq!(levels, [2, 3, 4, 6, 9], "half as much again, from one on");
}

/// 0.2 % of 1 GiB are 524 pages, which is 8.7 per second.
#[test]
fn refaults_count_by_the_minute_and_the_working_set() {
    let goal = Goal::Refaults { of: Scope::Machine, ppm: 2000 };
    let metrics = |major_faults| {
        let pressure = Some(Pressure { major_faults, ..Pressure::default() });
        let machine = MemoryMetrics { pressure, working_set: Some(1 << 30), resident: None };
        Metrics { machine, ..Metrics::default() }
    };
    let score = |faults| goal.score(&metrics(0), &metrics(faults), 10 * SECOND).unwrap();
    assert_eq!(score(0), 0);
    assert!(score(87).abs_diff(10_000) < 100, "{}", score(87));
    assert!(score(44).abs_diff(5_000) < 100, "{}", score(44));
}

#[test]
fn a_state_that_is_reached_stops_and_the_level_is_kept() {
    let goal = [Goal::Free { bp: 2000 }];
    let mut tuner = Tuner::default();
    let mut at = |second: u64, bp| {
        let metrics = Metrics { free_bp: Some(bp), ..Metrics::default() };
        tuner.tune(&goal, PAGE_SIZE, Nanos(second * 1_000_000_000), &metrics, 64 * MIB)
    };
    let missed = at(1, 1000);
    assert!(missed > MIB);
    assert_eq!(at(2, 2000), 0);
    assert_eq!(at(3, 1999) / MIB, missed / MIB);
}

#[test]
fn a_missing_metric_gives_no_quota() {
    let mut tuner = Tuner::default();
    let name: Arc<str> = Arc::from("/gone");
    for goal in [
        Goal::Stalled { of: Scope::Machine, target: MS },
        Goal::Refaults { of: Scope::Group(name.clone()), ppm: 1 },
        Goal::Resident { of: Scope::Group(name.clone()), bytes: 1 },
        Goal::Free { bp: 1 },
        Goal::User { name, target: 1.0 },
    ] {
        assert_eq!(tuner.tune(&[goal], PAGE_SIZE, Nanos(1), &Metrics::default(), 0), 0);
    }
}

#[test]
fn the_goal_nearest_to_being_passed_decides() {
    let user = |name: &str| Goal::User { name: Arc::from(name), target: 10.0 };
    let figures = [("far", 1.0), ("near", 15.0)];
    let user_figures = figures.map(|(name, x)| (Arc::from(name), x)).into();
    let metrics = Metrics { user: user_figures, ..Metrics::default() };
    let tune =
        |goals: &[Goal]| Tuner::default().tune(goals, PAGE_SIZE, Nanos(1), &metrics, 64 * MIB);
    assert!(tune(&[user("far")]) > MIB);
    assert_eq!(tune(&[user("far"), user("near")]), MIB / 2);
}

#[test]
fn goals_that_mean_nothing_are_refused() {
    for goal in [
        Goal::Stalled { of: Scope::Machine, target: Duration::ZERO },
        Goal::Refaults { of: Scope::Machine, ppm: 0 },
        Goal::Free { bp: 10_001 },
        Goal::Resident { of: Scope::Machine, bytes: 0 },
        Goal::User { name: Arc::from("x"), target: f64::NAN },
    ] {
        assert!(matches!(goal.check(), Err(SchemeError::Goal(_))), "{goal:?}");
    }
}
