//! Pages that are touched under the policy of a task are on exactly the nodes that the rule gives.

use isotherm_linux::sys::PolicyMode;
use isotherm_mm::mempolicy::NodeWeights;

use crate::memory::{BasePages, even, policy};
use crate::{Bench, Outcome, PAGES, rounds_of};

/// Runs `check` in this thread, and in a thread that starts under the policy and inherits it.
fn here_and_inherited(check: impl Fn() -> Outcome + Sync) -> Outcome {
    check()?;
    let child = std::thread::scope(|s| s.spawn(&check).join());
    child
        .unwrap_or_else(|_| Err("it could not be tried".into()))
        .map_err(|e| format!("inherited: {e}"))
}

fn on_each_node(bench: &Bench, mode: PolicyMode) -> Outcome {
    for &node in &bench.nodes {
        policy(mode, &[node])?;
        here_and_inherited(|| BasePages::new(PAGES)?.lies_by(&even(&[node])?))
            .map_err(|e| format!("node {node}: {e}"))?;
    }
    Ok(())
}

pub fn bind(bench: &Bench) -> Outcome {
    on_each_node(bench, PolicyMode::BIND)
}

pub fn prefer(bench: &Bench) -> Outcome {
    on_each_node(bench, PolicyMode::PREFERRED)
}

pub fn interleave(bench: &Bench) -> Outcome {
    interleaved(&bench.nodes)
}

pub fn interleave_pairs(bench: &Bench) -> Outcome {
    let pair = |pair: &[(u32, u8)]| interleaved(&[pair[0].0, pair[1].0]);
    pairs(&bench.weights).iter().try_for_each(|p| pair(p))
}

fn interleaved(nodes: &[u32]) -> Outcome {
    policy(PolicyMode::INTERLEAVE, nodes)?;
    let rule = even(nodes)?;
    here_and_inherited(|| {
        let m = BasePages::new(rounds_of(&rule))?;
        // Before Linux 6.7, the kernel uses only the lower 32 bits of the page number.
        let short = |page: u64| page & u64::from(u32::MAX);
        m.lies_by(&rule).or_else(|e| m.lies_by_index(&rule, short).map_err(|_| e))
    })
    .map_err(|e| format!("nodes {nodes:?}: {e}"))
}

/// Each pair of nodes, with their weights.
fn pairs(weights: &NodeWeights) -> Vec<[(u32, u8); 2]> {
    let all = weights.nodes();
    let with_later = |(i, &a): (usize, &(u32, u8))| all.iter().skip(i + 1).map(move |&b| [a, b]);
    all.iter().enumerate().flat_map(with_later).collect()
}

pub fn weighted(bench: &Bench) -> Outcome {
    policy(PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes)?;
    BasePages::new(rounds_of(&bench.weights))?.lies_by(&bench.weights)
}

pub fn weighted_pairs(bench: &Bench) -> Outcome {
    for [a, b] in pairs(&bench.weights) {
        let weights = NodeWeights::new([a, b]).map_err(|e| e.to_string())?;
        policy(PolicyMode::WEIGHTED_INTERLEAVE, &[a.0, b.0])?;
        let lies = BasePages::new(rounds_of(&weights))?.lies_by(&weights);
        lies.map_err(|e| format!("nodes {} and {}: {e}", a.0, b.0))?;
    }
    Ok(())
}

pub fn weighted_inherited(bench: &Bench) -> Outcome {
    policy(PolicyMode::WEIGHTED_INTERLEAVE, &bench.nodes)?;
    here_and_inherited(|| BasePages::new(rounds_of(&bench.weights))?.lies_by(&bench.weights))
}
