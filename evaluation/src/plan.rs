//! The runs and their order.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::config::Config;
use super::workload::FOR_HUGE_PAGES;

/// One planned run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRun<'a> {
    /// name of the workload
    pub workload: &'a str,
    /// configuration
    pub config: Config,
    /// number of the repetition, from 0
    pub repetition: u32,
}

/// All runs, repetition by repetition. For each workload, all configurations follow each other in an order that
/// is random for each repetition, so that drift affects all of them equally.
pub fn turns<'a>(
    workloads: &[&'a str],
    configs: &[Config],
    repetitions: u32,
    seed: u64,
) -> Vec<PlannedRun<'a>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut turns = Vec::new();
    for repetition in 0..repetitions {
        for &workload in workloads {
            let mut drawn: Vec<_> = configs.iter().map(|&c| (random.next_u64(), c)).collect();
            drawn.sort_unstable();
            let drawn =
                drawn.into_iter().map(|(_, config)| PlannedRun { workload, config, repetition });
            turns.extend(drawn.filter(says_something));
        }
    }
    turns
}

/// Leaves out quotas for workloads that have no memory to page out.
fn says_something(turn: &PlannedRun<'_>) -> bool {
    turn.config.quota().is_none() || !FOR_HUGE_PAGES.contains(&turn.workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_once_and_repetitions_behind_each_other() {
        let configs = Config::all();
        let all = turns(&["a", "b"], &configs, 3, 1);
        assert_eq!(all.len(), 2 * 3 * configs.len());
        assert!(all.is_sorted_by_key(|t| t.repetition));
        for (i, turn) in all.iter().enumerate() {
            assert!(!all[..i].contains(turn), "{turn:?} twice");
        }
    }

    #[test]
    fn workloads_for_huge_pages_have_no_quotas() {
        let all = turns(&["huge-gain", "b"], &Config::all(), 1, 1);
        assert_eq!(all.len(), Config::COLUMNS.len() + Config::all().len());
    }

    #[test]
    fn the_order_is_drawn_anew_and_the_same_for_a_seed() {
        let configs = Config::all();
        let all = turns(&["a"], &configs, 2, 1);
        let (first, second) = all.split_at(configs.len());
        let order = |turns: &[PlannedRun<'_>]| turns.iter().map(|t| t.config).collect::<Vec<_>>();
        assert_ne!(order(first), order(second));
        assert_eq!(all, turns(&["a"], &configs, 2, 1));
        assert_ne!(all, turns(&["a"], &configs, 2, 2));
    }
}
